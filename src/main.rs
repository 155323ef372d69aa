//! Arguments, configuration, logging, the app, a signal, the drain. Decides nothing.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use freehold::config::{Command, Config, ConfigError, write_manual};
use freehold::output::{FINDING, Screen, Told, USAGE, fault};
use freehold::{app, load, plan, query, telemetry};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    match run().and_then(|told| said(&told).map_err(Into::into)) {
        Ok(code) => code,
        Err(error) => {
            // Who has closed standard error reads nothing.
            let _ = io::stderr().lock().write_all(fault(error.as_ref()).as_bytes());
            match error.downcast_ref::<ConfigError>() {
                Some(error) if error.is_usage() => ExitCode::from(USAGE),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Puts it on standard output.
fn said(told: &Told) -> io::Result<ExitCode> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(told.text.as_bytes()).and_then(|()| stdout.flush()) {
        // Whoever reads has seen enough: a pager that was closed, `head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(if told.is_finding { ExitCode::from(FINDING) } else { ExitCode::SUCCESS })
}

fn run() -> Result<Told, Box<dyn Error>> {
    let command = Command::parse(std::env::args_os())?;
    let screen = Screen::of_stdout();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(carry_out(command, &screen));
    // What was asked of us is answered or given up; a read that nobody waits for any more must
    // not keep the process.
    runtime.shutdown_background();
    outcome
}

async fn carry_out(command: Command, screen: &Screen) -> Result<Told, Box<dyn Error>> {
    Ok(match command {
        Command::Serve(config) => {
            serve(*config).await?;
            Told::plain(String::new())
        }
        Command::Print(text) => Told::plain(text),
        Command::Manual { directory } => Told::plain(write_manual(&directory)?),
        Command::Query(args) => query::run(&args).await?,
        Command::Clients(args) => Told::plain(query::clients::shown(&args, screen).await?),
        Command::Explain(args) => query::explain::run(&args, screen).await?,
        Command::Ring(args) => query::ring::run(&args, screen).await?,
        Command::Tenants(args) => query::tenants::run(&args, screen).await?,
        Command::Plan(args) => plan::run(&args, screen).await?,
        Command::Load(args) => {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let stop = async move {
                interrupt.recv().await;
            };
            load::run(&args, screen, stop).await?
        }
    })
}

async fn serve(config: Config) -> Result<(), Box<dyn Error>> {
    telemetry::start_logging(&config.server)?;
    // Listened for before anything starts, so that an early signal is not lost.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = async move {
        // Both arms only wait, so that losing one loses nothing.
        tokio::select! {
            _ = terminate.recv() => tracing::info!(signal = "SIGTERM", "asked to stop"),
            _ = interrupt.recv() => tracing::info!(signal = "SIGINT", "asked to stop"),
        }
    };
    app::run(config, stop).await?;
    Ok(())
}
