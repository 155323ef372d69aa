//! A task for each lane, the line that shows how it goes, and the end.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep, sleep_until};

use super::LoadError;
use super::body::BodyWriter;
use super::report::{Progress, Summary};
use super::schedule::{Batch, Lane, Pace, Shape};
use super::series::Naming;
use super::tally::{Count, Done, Outcome, Tally};
use super::target::Target;
use crate::clock::Clock;
use crate::config::{LoadArgs, Output};
use crate::output::{self, Screen, Told};

/// How often it is shown how it goes.
const TICK: Duration = Duration::from_secs(1);
/// What was due before the end is still sent for so long after it.
const GRACE: Duration = Duration::from_secs(1);
/// How long a stop waits for what is under way.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Without a rate, a lane that gets no answer would try as fast as it can.
const UNANSWERED_PAUSE: Duration = Duration::from_millis(100);

/// Sends until the time is over or `stop` is, and tells what became of it.
pub async fn run(
    args: &LoadArgs,
    screen: &Screen,
    stop: impl Future<Output = ()>,
) -> Result<Told, LoadError> {
    if args.shape.is_too_much() {
        let Shape { tenants, series, batch, .. } = args.shape;
        return Err(LoadError::TooMuch { tenants, series, batch });
    }
    let target = Target::new(args);
    let target = target
        .map_err(|source| LoadError::Target { address: args.asked.address.clone(), source })?;
    let run = Arc::new(Run {
        target,
        naming: Arc::new(Naming::new(args.seed, args.metrics, args.labels)),
        started: Instant::now(),
        start_ms: Clock::start().now().unix_ms,
        window: Mutex::default(),
        args: args.clone(),
    });
    let outcome = run.drive(stop).await;
    let summary = Summary::new(args, &outcome);
    let text = match args.output {
        Output::Table => summary.print(screen),
        Output::Json => output::json(&summary).map_err(LoadError::Json)?,
    };
    Ok(Told { text, is_finding: summary.is_finding() })
}

/// How a run went.
pub(super) struct Outcomes {
    pub(super) tally: Tally,
    /// Due before the end, and not sent.
    pub(super) not_sent: Count,
    pub(super) elapsed: Duration,
    /// It was stopped before its time was over.
    pub(super) is_stopped: bool,
}

struct Run {
    target: Target,
    naming: Arc<Naming>,
    started: Instant,
    /// The same as Unix milliseconds.
    start_ms: i64,
    /// Locked for some additions after each request; never across an await.
    window: Mutex<Window>,
    args: LoadArgs,
}

/// What has happened since it was last looked at.
#[derive(Default)]
struct Window {
    tally: Tally,
    /// Sent and not answered yet, since the start.
    under_way: Count,
}

impl Run {
    async fn drive(self: &Arc<Self>, stop: impl Future<Output = ()>) -> Outcomes {
        let (stopping, stopped) = watch::channel(false);
        let mut lanes = JoinSet::new();
        for number in 0..self.args.shape.lanes() {
            let lane = Lane::new(self.args.shape, self.args.pace, number);
            lanes.spawn(Arc::clone(self).lane(lane, stopped.clone()));
        }
        let progress = ProgressLine::new();
        let mut ticks = interval_at(self.started + TICK, TICK);
        let mut stop = std::pin::pin!(stop);
        let (mut total, mut not_sent) = (Tally::default(), Count::default());
        let mut give_up_at = None;
        loop {
            // Every arm only waits: what it loses when another one is first, it finds again.
            tokio::select! {
                _ = ticks.tick() => {
                    let window = std::mem::take(&mut self.window().tally);
                    total.merge(&window);
                    progress.show(self.elapsed(), &window, &total);
                }
                ended = lanes.join_next() => match ended {
                    Some(Ok(left_out)) => not_sent.merge(left_out),
                    // A lane that panicked has told why; what it had under way is counted below.
                    Some(Err(_)) => {}
                    None => break,
                },
                () = &mut stop, if give_up_at.is_none() => {
                    stopping.send_replace(true);
                    give_up_at = Some(Instant::now() + STOP_PATIENCE);
                }
                () = until(give_up_at), if give_up_at.is_some() => {
                    lanes.shutdown().await;
                    break;
                }
            }
        }
        progress.clear();
        let elapsed = self.started.elapsed();
        let window = std::mem::take(&mut *self.window());
        total.merge(&window.tally);
        total.give_up(window.under_way);
        Outcomes { tally: total, not_sent, elapsed, is_stopped: give_up_at.is_some() }
    }

    /// Sends what a lane has to send; gives back what was due and not sent.
    async fn lane(self: Arc<Self>, mut lane: Lane, mut stopped: watch::Receiver<bool>) -> Count {
        let LoadArgs { values, shape, duration, pace, .. } = self.args;
        let mut writer = BodyWriter::new(Arc::clone(&self.naming), values, shape.series);
        let end = self.started + duration;
        while !*stopped.borrow() && Instant::now() < end + GRACE {
            let due = lane.due_us().map(|due_us| self.started + Duration::from_micros(due_us));
            if due.unwrap_or_else(Instant::now) >= end {
                break;
            }
            if let Some(due) = due {
                tokio::select! {
                    () = sleep_until(due) => {}
                    _ = stopped.changed() => break,
                }
            }
            let batch = lane.take(self.elapsed_us());
            let is_answered = self.send(&mut writer, &batch).await;
            if !is_answered && pace == Pace::Max {
                tokio::select! {
                    () = sleep(UNANSWERED_PAUSE) => {}
                    _ = stopped.changed() => break,
                }
            }
        }
        let until_us = self.elapsed_us().min(micros(duration));
        let (requests, samples) = lane.left_out(until_us);
        Count { requests, samples }
    }

    /// Whether there was an answer.
    async fn send(&self, writer: &mut BodyWriter, batch: &Batch) -> bool {
        let body = match self.target.takes_blocks() {
            true => writer.block(batch, self.start_ms),
            false => writer.plain(batch, self.start_ms),
        };
        let (samples, bytes) = (batch.places.len() as u64, body.len() as u64);
        let tenant = self.tenant(batch.tenant);
        let client = batch.client.map(|client| format!("client-{}", client + 1));
        let sent_us = self.elapsed_us();
        self.window().under_way.add(samples);
        let outcome = self.target.send(&tenant, client.as_deref(), body).await;
        let is_answered = !matches!(outcome, Outcome::Unanswered { .. });
        let due_us = batch.due_us.unwrap_or(sent_us);
        let done = Done {
            samples,
            new_series: u64::from(batch.new_series),
            bytes,
            latency_us: self.elapsed_us().saturating_sub(due_us),
            behind_us: sent_us.saturating_sub(due_us),
        };
        let mut window = self.window();
        window.under_way.take(samples);
        window.tally.add(&done, outcome);
        is_answered
    }

    fn tenant(&self, number: u32) -> String {
        match self.args.shape.tenants {
            1 => self.args.tenant.clone(),
            _ => format!("{}-{}", self.args.tenant, number + 1),
        }
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn elapsed_us(&self) -> u64 {
        micros(self.elapsed())
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        // Additions leave nothing half done.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        sleep_until(deadline).await;
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// One line on a terminal that is written over each time; elsewhere there is none.
struct ProgressLine {
    is_terminal: bool,
}

impl ProgressLine {
    fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal() }
    }

    fn show(&self, elapsed: Duration, window: &Tally, total: &Tally) {
        let progress = Progress { elapsed, window, total };
        self.write(&progress.to_string());
    }

    fn clear(&self) {
        self.write("");
    }

    fn write(&self, line: &str) {
        if self.is_terminal {
            // A line that wraps cannot be written over; it has only ASCII in it.
            let width = output::terminal_width().unwrap_or(line.len());
            let line = line.get(..width).unwrap_or(line);
            let mut stderr = std::io::stderr().lock();
            // Whoever has closed the terminal does not look.
            let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
        }
    }
}
