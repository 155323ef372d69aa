//! The query gate: what a client may ask, before those behind us work for it.
//!
//! [`Frontend::answer`] is the story; all else here is one of its steps or keeps its numbers.
//!
//! ```text
//! answer ─► in flight ─► ceiling ─► own cache ─► same query in flight ─► client's budget ─► ask
//!                                                                                          │
//!                                         head: refund, debt, slow line ◄─ written for all ┘
//! ```
//!
//! What must hold: a query costs its client one credit or nothing, by what it made those behind
//! us do; what is shared is the same query to the byte; an answer goes through as it came.

pub mod asked;
mod canary;
pub mod config;
mod counters;
mod flights;
mod in_flight;
mod kept;
mod lately;
mod purse;
mod query_log;
mod refusal;
pub mod shared;
mod views;
mod watch;

use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::clients::peers::Budgets;
use crate::clients::{Cause, Refusal};
use crate::clock::Clock;
use crate::exposition::Families;
use crate::limits::Overrides;
use crate::sync::Mutex;
use crate::trail::{Kind, Span};
use crate::upstream::queries::{DownstreamError, Query, Reply, ReplyError, ReplyHead};

use asked::{Asked, Call, QueryKey};
use canary::{Belief, Signal};
use config::{CachedAnswers, FrontendConfig};
use counters::Counters;
use flights::{Flights, Lead, Lost, Place, Reader};
use in_flight::{InFlight, UnderWay};
use kept::Kept;
use lately::Lately;
use purse::{Means, Payment, Purse};
use query_log::{Line, QueryLog};
use refusal::Which;

pub use in_flight::Full;
pub use views::CachedAreFree;

/// Value of the `reason` label where a client's budget refuses.
const CLIENT_RATE_LIMITED: &str = "client_rate_limited";
/// The same where too much is under way.
const TOO_MANY_IN_FLIGHT: &str = "too_many_inflight_requests";

/// On a query's span: who gave the answer.
const ANSWERED_BY: &str = "freehold.answered_by";

/// Asks those behind us.
pub type AskFn = dyn Fn(Query) -> Asking + Send + Sync;
/// A question under way.
pub type Asking = Pin<Box<dyn Future<Output = Result<Reply, DownstreamError>> + Send>>;

/// What a query gate is made of.
pub struct Parts {
    pub config: FrontendConfig,
    pub overrides: Arc<Overrides>,
    /// Where clients' budgets are kept; `None` where clients are not looked for.
    pub budgets: Option<Budgets>,
    pub ask: Arc<AskFn>,
    pub clock: Clock,
}

/// The query gate.
pub struct Frontend {
    overrides: Arc<Overrides>,
    means: Option<Means>,
    in_flight: InFlight,
    flights: Flights<ReplyHead, NoAnswer>,
    kept: Option<Arc<Kept>>,
    ask: Arc<AskFn>,
    clock: Clock,
    counters: Arc<Counters>,
    signal: Arc<Signal>,
    log: QueryLog,
    slow_after: Option<Duration>,
    /// Those who write answers; they end with the last reader, or with us.
    writers: Mutex<JoinSet<()>>,
    config: FrontendConfig,
}

/// Why there is no answer, or not all of it. The same for all who wait for it.
#[derive(Clone, Debug, Default, thiserror::Error)]
pub enum NoAnswer {
    #[error(transparent)]
    Downstream(Arc<DownstreamError>),
    #[error("the answer broke off")]
    BrokenOff(#[source] Arc<ReplyError>),
    #[default]
    #[error("the query was given up before it was answered")]
    Unasked,
}

/// Why a query is not answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AnswerError {
    #[error(transparent)]
    Full(#[from] Full),
    /// `wait_ns` is until the same query would pass; `None` if it never can.
    #[error("{text}")]
    ClientBudget { text: String, wait_ns: Option<u64> },
    /// Nobody knows what the client has spent.
    #[error("{text}")]
    BudgetUnknown { text: String, wait_ns: Option<u64> },
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

/// An answer that has begun.
pub struct Answered {
    pub head: Arc<ReplyHead>,
    /// How old it is, where it is one that we have kept.
    pub age_secs: Option<u64>,
    body: Body,
    _under_way: UnderWay,
}

enum Body {
    Coming(Reader<ReplyHead, NoAnswer>),
    Kept(Option<Bytes>),
}

impl Frontend {
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { config, overrides, budgets, ask, clock } = parts;
        let counters = Arc::new(Counters::default());
        let signal = Arc::new(Signal::new(match config.cached_answers {
            CachedAnswers::Trusted => Belief::Believed,
            CachedAnswers::Verified | CachedAnswers::Charged => Belief::Unknown,
        }));
        let means = budgets.map(|budgets| Means {
            budgets,
            signal: Arc::clone(&signal),
            lately: Arc::new(Lately::default()),
            counters: Arc::clone(&counters),
            clock,
        });
        let age_max_ns =
            i64::try_from(config.cache_ttl.as_duration().as_nanos()).unwrap_or(i64::MAX);
        let kept = Kept::new(age_max_ns, config.cache_bytes_max);
        Arc::new(Self {
            overrides,
            means,
            in_flight: InFlight::new(
                config.max_inflight_requests,
                config.max_inflight_requests_per_tenant,
                config.max_inflight_requests_per_client,
            ),
            flights: Flights::default(),
            kept: kept.map(Arc::new),
            ask,
            clock,
            counters,
            signal,
            log: QueryLog::default(),
            slow_after: config.slow_after(),
            writers: Mutex::default(),
            config,
        })
    }

    /// Answers a query, or says why not; what is refused or slow is told to the log.
    pub async fn answer(self: &Arc<Self>, asked: Asked) -> Result<Answered, AnswerError> {
        let began_ns = self.clock.steady_ns();
        let (tenant, client) = (asked.tenant.clone(), asked.client.clone());
        let trail = asked.trail.clone();
        let words = asked.words.clone();
        let outcome = self.answer_story(asked).await;
        let now_ns = self.clock.steady_ns();
        let took = Duration::from_nanos(now_ns.abs_diff(began_ns));
        let (client, words, trail) = (client.as_ref(), &words, &trail);
        let line = Line { tenant: &tenant, client, words, took, trail };
        match &outcome {
            Err(error) => {
                let reason = error.reason();
                if error.is_own_refusal() {
                    self.counters.rejected(reason, &tenant);
                }
                let text = error.to_string();
                trail.span.text("freehold.refused.reason", reason);
                trail.span.fail(&text);
                self.log.refused(line, reason, &text, now_ns);
            }
            Ok(answered) => {
                if self.slow_after.is_some_and(|slow_after| took > slow_after) {
                    self.counters.slow.add(1);
                    let head = &answered.head;
                    let wall_ms = head.server_timing_ms(QUERIER_WALL_TIME);
                    self.log.slow(line, head.status(), wall_ms, now_ns);
                }
            }
        }
        outcome
    }

    async fn answer_story(self: &Arc<Self>, asked: Asked) -> Result<Answered, AnswerError> {
        let under_way = self.in_flight.enter(&asked.tenant, asked.client.as_ref())?;
        let purse = self.purse(&asked);
        if let Some(purse) = &purse {
            let tried = {
                let _asking = asked.trail.span.child(Kind::Client, "owner");
                purse.try_once().await
            };
            tried.map_err(|refusal| AnswerError::budget(&refusal, Which::Tries, purse))?;
        }
        // Only now, so that what is refused above is not hashed. The client's budget of queries
        // cannot be asked before: who joins another pays nothing.
        let is_wanted = self.config.share_identical_queries || self.kept.is_some();
        let key = if is_wanted { asked.key() } else { None };
        if let Some((kept, age_secs)) = self.kept(key) {
            self.counters.kept.add(1);
            asked.trail.span.text(ANSWERED_BY, "kept");
            let body = Body::Kept(Some(kept.body));
            let age_secs = Some(age_secs);
            return Ok(Answered { head: kept.head, age_secs, body, _under_way: under_way });
        }
        let shared = key.filter(|_| self.config.share_identical_queries);
        loop {
            let reader = match self.flights.join_or_lead(shared) {
                Place::Joined(reader) => match reader.head().await {
                    // Who was to ask could not pay, or has gone: it is for us to ask.
                    Err(NoAnswer::Unasked) => continue,
                    Err(error) => return Err(error.into()),
                    Ok(_) => {
                        self.counters.joined.add(1);
                        asked.trail.span.text(ANSWERED_BY, "joined");
                        reader
                    }
                },
                Place::Leads(lead, reader) => {
                    let payment = pay(purse, &asked).await?;
                    self.write(lead, asked, key, payment);
                    reader
                }
            };
            let head = reader.head().await?;
            let body = Body::Coming(reader);
            return Ok(Answered { head, age_secs: None, body, _under_way: under_way });
        }
    }

    pub fn read_metrics(&self, families: &mut Families) {
        self.counters.read_metrics(families);
        families.gauge(
            "freehold_frontend_inflight_requests",
            "Queries that are being answered.",
            self.in_flight.all() as f64,
        );
        let help = "1 while the signal that an answer came from the results cache is believed, \
                    so that such answers cost nothing.";
        let is_believed = f64::from(u8::from(self.signal.is_believed()));
        families.gauge("freehold_frontend_cached_answers_believed", help, is_believed);
    }

    /// The budget that the query is paid from, where its client has one.
    fn purse(&self, asked: &Asked) -> Option<Purse> {
        let (means, client) = (self.means.as_ref()?, asked.client.as_ref()?);
        let snapshot = self.overrides.load();
        let limits = snapshot.limits(&asked.tenant);
        let terms = shared::client_terms(limits)?;
        Some(Purse {
            tenant: asked.tenant.clone(),
            client: client.clone(),
            terms,
            is_shadow: limits.client_identity_query_shadow,
            means: means.clone(),
        })
    }

    fn kept(&self, key: Option<QueryKey>) -> Option<(kept::KeptAnswer, u64)> {
        self.kept.as_ref()?.get(&key?, self.clock.steady_ns())
    }

    /// Sees to it that the answer is written, whoever of its readers leaves.
    fn write(
        self: &Arc<Self>,
        lead: Lead<ReplyHead, NoAnswer>,
        mut asked: Asked,
        key: Option<QueryKey>,
        payment: Payment,
    ) {
        let writer = Writer {
            key,
            call: asked.call,
            counters: Arc::clone(&self.counters),
            kept: self.kept.clone(),
            clock: self.clock,
        };
        self.counters.sent_on.add(1);
        if let Some((name, value)) = &asked.own_header {
            asked.query.set(name, value);
        }
        asked.trail.span.text(ANSWERED_BY, "asked");
        let span = asked.trail.span.child(Kind::Client, "downstream");
        for (name, value) in span.headers() {
            asked.query.set(name, &value);
        }
        let asking = (self.ask)(asked.query);
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        while writers.try_join_next().is_some() {}
        writers.spawn(writer.write(lead, asking, payment, span));
    }
}

/// The name of Cortex's signal.
const QUERIER_WALL_TIME: &str = "querier_wall_time";

async fn pay(purse: Option<Purse>, asked: &Asked) -> Result<Payment, AnswerError> {
    let Some(purse) = purse else { return Ok(Payment::none()) };
    let shape = (asked.call == Call::Range).then(|| asked.shape());
    let payer = purse.clone();
    let _asking = asked.trail.span.child(Kind::Client, "owner");
    let paid = purse.pay(shape).await;
    paid.map_err(|refusal| AnswerError::budget(&refusal, Which::Queries, &payer))
}

/// Writes one answer for all who read it.
struct Writer {
    key: Option<QueryKey>,
    call: Call,
    counters: Arc<Counters>,
    kept: Option<Arc<Kept>>,
    clock: Clock,
}

impl Writer {
    /// The span is over with the head: the body comes at the pace of its readers.
    async fn write(
        self,
        lead: Lead<ReplyHead, NoAnswer>,
        asking: Asking,
        payment: Payment,
        span: Span,
    ) {
        let answer = lead.answer();
        // Whoever drops a question or an answer ends it; the payment is kept.
        let reply = tokio::select! {
            biased;
            reply = asking => reply,
            () = answer.abandoned() => return,
        };
        let (head, mut body) = match reply {
            Ok(Reply { head, body }) => (head, body),
            Err(error) => {
                self.counters.failed.add(1);
                span.fail(&error.to_string());
                return answer.give_up(NoAnswer::Downstream(Arc::new(error)));
            }
        };
        span.count("http.response.status_code", head.status().into());
        drop(span);
        payment.answered(self.call == Call::Range && is_from_cache(&head));
        let head = answer.head(head);
        let kept = self.kept.as_ref();
        let mut keeping = kept.zip(self.key).and_then(|(kept, key)| kept.begin(key, &head));
        loop {
            let piece = tokio::select! {
                biased;
                piece = body.next() => piece,
                () = answer.abandoned() => return,
            };
            match piece {
                None => break,
                Some(Err(error)) => {
                    self.counters.failed.add(1);
                    return answer.give_up(NoAnswer::BrokenOff(Arc::new(error)));
                }
                Some(Ok(piece)) => {
                    keeping = keeping.and_then(|keeping| keeping.piece(&piece));
                    if answer.piece(piece).await.is_err() {
                        return;
                    }
                }
            }
        }
        answer.end();
        if let (Some(kept), Some(keeping)) = (kept, keeping) {
            kept.keep(keeping, self.clock.steady_ns());
        }
    }
}

/// Whether an answer says that no querier has worked for it.
fn is_from_cache(head: &ReplyHead) -> bool {
    head.status() == 200 && head.server_timing_ms(QUERIER_WALL_TIME) == Some(0.0)
}

impl Answered {
    /// The next piece of the answer's body; `None` at its end.
    pub async fn next(&mut self) -> Option<Result<Bytes, Lost<NoAnswer>>> {
        match &mut self.body {
            Body::Coming(reader) => reader.next().await,
            Body::Kept(body) => body.take().map(Ok),
        }
    }
}

impl AnswerError {
    fn budget(refusal: &Refusal, which: Which, purse: &Purse) -> Self {
        let text = refusal::text(refusal, which, &purse.tenant, &purse.client);
        let wait_ns = refusal.wait_ns;
        match refusal.cause {
            Cause::Budget => Self::ClientBudget { text, wait_ns },
            Cause::OwnerLost => Self::BudgetUnknown { text, wait_ns },
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Full(_) => TOO_MANY_IN_FLIGHT,
            Self::ClientBudget { .. } => CLIENT_RATE_LIMITED,
            Self::BudgetUnknown { .. } => "client_budget_unknown",
            Self::NoAnswer(_) => "no_answer",
        }
    }

    /// A bound of this gate was hit.
    pub fn is_own_refusal(&self) -> bool {
        match self {
            Self::Full(_) | Self::ClientBudget { .. } => true,
            Self::BudgetUnknown { .. } | Self::NoAnswer(_) => false,
        }
    }

    /// Nothing of it is the sender's doing.
    pub fn is_our_doing(&self) -> bool {
        self.is_own_refusal() || matches!(self, Self::BudgetUnknown { .. })
    }
}
