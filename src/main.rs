//! Arguments, configuration, logging, the app, a signal, the drain. Decides nothing.

use std::error::Error;
use std::process::ExitCode;

use freehold::config::{Command, Config};
use freehold::{app, plan, query, telemetry};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  caused by: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let command = Command::parse(std::env::args_os())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = match command {
        Command::Serve(config) => runtime.block_on(serve(*config)).map(|()| ExitCode::SUCCESS),
        Command::Query(args) => {
            print!("{}", runtime.block_on(query::run(&args))?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Clients(args) => {
            print!("{}", runtime.block_on(query::clients::run(&args))?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Explain(args) => {
            let told = runtime.block_on(query::explain::run(&args))?;
            print!("{}", told.text);
            Ok(told.exit_code())
        }
        Command::Plan(args) => {
            print!("{}", runtime.block_on(plan::run(&args))?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Print(text) => {
            print!("{text}");
            Ok(ExitCode::SUCCESS)
        }
    };
    // What was asked of us is answered or given up; a read that nobody waits for any more must
    // not keep the process.
    runtime.shutdown_background();
    outcome
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
