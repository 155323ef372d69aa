//! The task that takes ended spans to a collector, in batches, one at a time.
//!
//! A batch that a collector does not take for now is tried again while the queue behind it fills;
//! what then finds no place is dropped by whoever ends it. So a dead collector costs the queue's
//! memory and a batch's, and no request any time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::otlp;
use super::span::{Ended, Sampling, SpanCounts, Tracer};
use crate::clock::Clock;
use crate::exposition::Families;
use crate::ratelimit::LogLines;
use crate::upstream::{AskError, Upstream};

/// Spans of one batch, as OpenTelemetry's exporters send them: a hundred kilobytes or so.
const BATCH_SPANS_MAX: usize = 512;
/// How long a span waits for others, as there.
const BATCH_WAIT: Duration = Duration::from_secs(5);
/// How long a collector may take for a batch, as there.
const EXPORT_WITHIN: Duration = Duration::from_secs(10);
/// Tries of one batch, with waits between them that double: a collector that nobody hears of for a
/// quarter of a minute is one that is down, and newer spans are worth more than older ones.
const TRIES_MAX: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How long the last batches may take once the process is to end.
const LAST_WITHIN: Duration = Duration::from_secs(2);
/// Wall and steady clock drift apart by less in an hour. More is a clock that was set.
const DRIFT_MAX_NS: u64 = 50_000_000;

/// Of what process spans are.
#[derive(Clone, Debug)]
pub struct Origin {
    /// `service.name`
    pub service: String,
    /// `service.instance.id`
    pub instance: String,
    pub version: &'static str,
}

/// Sends spans until all tracers are gone.
pub struct Exporter {
    upstream: Upstream,
    origin: Origin,
    clock: Clock,
    ended: mpsc::Receiver<Ended>,
    counts: Arc<SpanCounts>,
    queued: Queued,
    /// Under way.
    batch: Option<Batch>,
    /// What the wall clock is ahead of the steady one. Kept, so that the spans of one trace lie as
    /// they were, whatever batches they are in.
    ahead_ns: i64,
    is_failing: bool,
}

/// Spans as they go out.
struct Batch {
    bytes: Vec<u8>,
    spans: u64,
}

/// What of a batch the collector did not want.
struct Rejected {
    spans: u64,
    why: String,
}

/// Reads how full the queue is; keeps nobody from ending.
#[derive(Clone)]
pub struct Queued(Option<mpsc::WeakSender<Ended>>);

impl Exporter {
    /// With the tracer whose spans it sends.
    pub fn new(
        upstream: Upstream,
        origin: Origin,
        sampling: Sampling,
        clock: Clock,
    ) -> (Tracer, Self) {
        let counts = Arc::new(SpanCounts::default());
        let (tracer, ended) = Tracer::new(clock, sampling, Arc::clone(&counts));
        let exporter = Self {
            upstream,
            origin,
            clock,
            ended,
            counts,
            queued: Queued(tracer.weak_queue()),
            batch: None,
            ahead_ns: ahead_ns(clock),
            is_failing: false,
        };
        (tracer, exporter)
    }

    /// What is shown of it.
    pub fn shown(&self) -> (Arc<SpanCounts>, Queued) {
        (Arc::clone(&self.counts), self.queued.clone())
    }

    /// Runs until all tracers are gone and their spans sent. Once `ending` is ready nothing is
    /// tried again, and nothing waits for company.
    pub async fn run(mut self, ending: impl Future<Output = ()>) {
        let mut ending = std::pin::pin!(ending);
        let mut spans = Vec::with_capacity(BATCH_SPANS_MAX);
        loop {
            tokio::select! {
                () = &mut ending => break,
                // May be dropped: what was received is in `spans`.
                more = self.fill(&mut spans) => if !more { return },
            }
            self.batch = Some(self.encoded(&mut spans));
            tokio::select! {
                () = &mut ending => break,
                // May be dropped: the batch is kept, and a span that arrives twice is one.
                () = self.export() => {}
            }
        }
        self.finish(spans).await;
    }

    /// Waits for a span and for those soon after it; false when there will be no more.
    async fn fill(&mut self, spans: &mut Vec<Ended>) -> bool {
        if spans.is_empty() && self.ended.recv_many(spans, BATCH_SPANS_MAX).await == 0 {
            return false;
        }
        let filling = async {
            while spans.len() < BATCH_SPANS_MAX {
                let room = BATCH_SPANS_MAX - spans.len();
                if self.ended.recv_many(spans, room).await == 0 {
                    break;
                }
            }
        };
        // Over or not: what is there goes.
        let _ = timeout(BATCH_WAIT, filling).await;
        true
    }

    async fn export(&mut self) {
        let mut wait = FIRST_WAIT;
        for tries in 1..=TRIES_MAX {
            match self.send().await {
                Err(error) if tries < TRIES_MAX && is_for_now(&error) => {
                    sleep(wait).await;
                    wait *= 2;
                }
                outcome => return self.settle(outcome),
            }
        }
    }

    /// The end of a process: what is there, and what comes until the last tracer is gone, since
    /// requests that are answered in the drain have spans, too.
    async fn finish(mut self, mut spans: Vec<Ended>) {
        let mut is_taken = true;
        loop {
            if self.batch.is_some() {
                // Nobody waits for a second refusal.
                let sent = match is_taken {
                    true => timeout(LAST_WITHIN, self.send()).await.ok(),
                    false => None,
                };
                is_taken = matches!(sent, Some(Ok(_)));
                match sent {
                    Some(outcome) => self.settle(outcome),
                    None => self.lose("the process ends"),
                }
            }
            if spans.is_empty() && self.ended.recv_many(&mut spans, BATCH_SPANS_MAX).await == 0 {
                return;
            }
            self.batch = Some(self.encoded(&mut spans));
        }
    }

    fn encoded(&mut self, spans: &mut Vec<Ended>) -> Batch {
        let ahead_ns = ahead_ns(self.clock);
        if ahead_ns.abs_diff(self.ahead_ns) > DRIFT_MAX_NS {
            self.ahead_ns = ahead_ns;
        }
        let spans = std::mem::replace(spans, Vec::with_capacity(BATCH_SPANS_MAX));
        let count = spans.len() as u64;
        Batch { bytes: otlp::encode(spans, &self.origin, self.ahead_ns), spans: count }
    }

    async fn send(&self) -> Result<Rejected, AskError> {
        let bytes = self.batch.as_ref().map_or(&[][..], |batch| &batch.bytes);
        let answer = self.upstream.ask_encoded(otlp::EXPORT, bytes, EXPORT_WITHIN).await?;
        let (spans, why) = otlp::rejected(&answer)?;
        Ok(Rejected { spans, why })
    }

    /// Counts what became of the batch.
    fn settle(&mut self, outcome: Result<Rejected, AskError>) {
        let rejected = match outcome {
            Ok(rejected) => rejected,
            Err(error) => return self.lose(&error.to_string()),
        };
        let Some(batch) = self.batch.take() else { return };
        let spans = rejected.spans.min(batch.spans);
        self.counts.sent.add(batch.spans - spans);
        self.counts.rejected.add(spans);
        if spans > 0 {
            self.tell_lost(spans, &rejected.why);
        } else if std::mem::take(&mut self.is_failing) {
            tracing::info!(collector = %self.upstream.address(), "the collector takes spans again");
        }
    }

    fn lose(&mut self, why: &str) {
        let Some(batch) = self.batch.take() else { return };
        self.counts.unsent.add(batch.spans);
        self.tell_lost(batch.spans, why);
    }

    /// Once per change: the metric tells how many.
    fn tell_lost(&mut self, spans: u64, error: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let (collector, error) = (self.upstream.address(), LogLines::cut(error));
            tracing::warn!(%collector, spans, error, "the collector does not take spans");
        }
    }
}

impl SpanCounts {
    pub fn read_metrics(&self, queued: &Queued, families: &mut Families) {
        let mut spans = families
            .counters("freehold_trace_spans_total", "Spans that ended, by what became of them.");
        for (fate, counter) in [
            ("queue_full", &self.queue_full),
            ("rejected", &self.rejected),
            ("sent", &self.sent),
            ("unsent", &self.unsent),
        ] {
            spans.sample([("fate", fate)], counter.get() as f64);
        }
        families.gauge(
            "freehold_trace_spans_queued",
            "Spans that wait to be sent.",
            queued.spans() as f64,
        );
    }
}

impl Queued {
    fn spans(&self) -> usize {
        let queue = self.0.as_ref().and_then(mpsc::WeakSender::upgrade);
        queue.map_or(0, |queue| queue.max_capacity() - queue.capacity())
    }
}

/// Statuses after which OTLP says to try again, and whatever is between us.
fn is_for_now(error: &AskError) -> bool {
    const CANCELLED: i32 = 1;
    const DEADLINE_EXCEEDED: i32 = 4;
    const RESOURCE_EXHAUSTED: i32 = 8;
    const ABORTED: i32 = 10;
    const OUT_OF_RANGE: i32 = 11;
    const UNAVAILABLE: i32 = 14;
    const DATA_LOSS: i32 = 15;
    match error {
        AskError::Upstream(_) => true,
        AskError::Status { code, .. } => matches!(
            *code,
            CANCELLED
                | DEADLINE_EXCEEDED
                | RESOURCE_EXHAUSTED
                | ABORTED
                | OUT_OF_RANGE
                | UNAVAILABLE
                | DATA_LOSS
        ),
        _ => false,
    }
}

fn ahead_ns(clock: Clock) -> i64 {
    clock.unix_ns().saturating_sub(clock.steady_ns())
}
