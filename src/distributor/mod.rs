//! The write gate: what a tenant may write, and how often, before anything is stored.
//!
//! [`Distributor::push`] is the story; all else here is one of its steps or keeps its numbers.
//!
//! ```text
//! push ─► admission ─► decode ─► replicas ─► prepare ─► tenant's rate ─► client's ─► histograms' ─► sink
//! ```
//!
//! What must hold: a refused request has cost its tenant nothing; one bad series does not sink
//! the others; what goes on unchanged is not copied.

mod admission;
mod config;
mod counters;
pub mod fan_out;
pub mod ha;
pub mod inspect;
pub mod prepare;
mod prepared;
mod rates;
mod received;
mod refusal_log;
mod replicas;
pub mod shared;
mod sink;
#[cfg(test)]
mod tests;
mod turns;
pub mod validation;
mod views;

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crate::clients::peers::Budgets;
use crate::clock::{Clock, Now};
use crate::exposition::Families;
use crate::labels::{NameScheme, Placement};
use crate::limits::Overrides;
use crate::ratelimit::BucketView;
use crate::tenant::TenantId;
use crate::trail::{Kind as SpanKind, Span};
use crate::upstream::distributor::Answer as UpstreamAnswer;

use admission::Admission;
use counters::{Requests, TenantCounters, Tenants};
use ha::{HaRequest, HaTracker};
use prepare::{HaSeries, PrepareError, Replicas, Scratch, Treatment, prepare, without_histograms};
use rates::{Account, Charges, ClientVerdict, Rates};
use refusal_log::{Kind, Refusal, RefusalLog, Sender};
use sink::{Outgoing, Sent};

pub use crate::ratelimit::RateLimitHeaders;
pub use admission::{InstanceLimits, Overload, RATE_INTERVAL};
pub use config::{
    DistributorConfig, DistributorConfigError, OtlpConfig, PoolConfig, ShardingStrategy,
};
pub use counters::RequestKind;
pub use prepared::{Counts, Discarded, HistogramRule, Item, ItemKind, Prepared};
pub use rates::{Peers, RateView, Refused};
pub use received::{Form, Received, RoomFor, Unreadable};
pub use replicas::Dropped;
pub use sink::{LocalPush, RingSink, Sink, SinkError};
pub use views::WayOn;

/// See the head of the file.
pub struct Distributor {
    config: DistributorConfig,
    names: NameScheme,
    parity: bool,
    overrides: Arc<Overrides>,
    clock: Clock,
    admission: Admission,
    requests: Requests,
    tenants: Tenants,
    ha: Arc<HaTracker>,
    rates: Rates,
    refusals: RefusalLog,
    sink: Sink,
}

/// What a distributor is made of.
pub struct Parts {
    pub config: DistributorConfig,
    /// Which names labels may have.
    pub names: NameScheme,
    /// Cortex's behaviour wherever ours differs on purpose.
    pub parity: bool,
    pub overrides: Arc<Overrides>,
    pub peers: Peers,
    /// Budgets over all distributors, where there are any.
    pub budgets: Option<Budgets>,
    /// Tells whose samples are taken; it may be off.
    pub ha: Arc<HaTracker>,
    pub sink: Sink,
    pub clock: Clock,
    /// How long a tenant's rate and burst stay in force before they are asked for again.
    pub recheck_period: Duration,
}

/// What became of a request that was not refused whole.
#[derive(Debug)]
pub enum Answer {
    Taken {
        written: Written,
        partly: Option<Partly>,
    },
    /// What the distributor behind us said, to be handed on as it is.
    Passed(UpstreamAnswer),
}

/// What of a request went on to be stored, as answers to remote write 2.0 tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub samples: u64,
    pub histograms: u64,
    pub exemplars: u64,
}

/// Why a request was not taken whole; the rest of it was.
#[derive(Clone, Debug, PartialEq)]
pub enum Partly {
    /// Some series could go to no ingester; the text is about the first.
    Invalid { text: String },
    /// The native histograms were over their own rate.
    Refused(Refused),
}

/// Why nothing of a request was taken.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error(transparent)]
    Overload(#[from] Overload),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Dropped(#[from] Dropped),
    #[error(transparent)]
    Unfit(#[from] PrepareError),
    #[error("{}", .0.text)]
    OverRate(Refused),
    /// Nobody who knows a budget answers.
    #[error("{}", .0.text)]
    BudgetUnknown(Refused),
    #[error(transparent)]
    Sink(#[from] SinkError),
}

thread_local! {
    /// A thread prepares one request at a time, and never waits while it does.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Distributor {
    pub fn new(parts: Parts) -> Self {
        Self {
            admission: Admission::new(parts.config.instance_limits.clone()),
            requests: Requests::default(),
            tenants: Tenants::default(),
            ha: parts.ha,
            rates: Rates::new(parts.peers, parts.budgets, parts.parity, parts.recheck_period),
            refusals: RefusalLog::default(),
            config: parts.config,
            names: parts.names,
            parity: parts.parity,
            overrides: parts.overrides,
            clock: parts.clock,
            sink: parts.sink,
        }
    }

    /// Takes one write of a tenant. Dropped, it stays charged.
    pub async fn push(
        &self,
        tenant: &TenantId,
        write: Received,
        now: Now,
    ) -> Result<Answer, PushError> {
        let (trail, client) = (write.trail.clone(), write.client.clone());
        let sender = Sender { tenant, client: client.as_ref(), trail: &trail };
        let outcome = self.push_story(tenant, write, now).await;
        if let Some((kind, reason, text)) = refusal(&outcome) {
            trail.span.text("freehold.refused.reason", reason);
            trail.span.fail(&text);
            self.refusals.tell(Refusal { kind, sender, reason, text: &text }, now);
        }
        self.refusals.tell_slow(sender, now, self.clock.now());
        outcome
    }

    async fn push_story(
        &self,
        tenant: &TenantId,
        write: Received,
        now: Now,
    ) -> Result<Answer, PushError> {
        // The instance first: what it cannot bear it does not even look at.
        let _in_flight = self.admission.admit(self.sink.requests_in_flight())?;
        let overrides = self.overrides.snapshot();
        let known = self.tenants.known(tenant);
        let turn = match &known {
            Some(counters) => counters.turns.wait(now).await,
            None => None,
        };
        let now = turn.as_ref().map_or(now, |turn| turn.now);
        let account = Account::new(tenant, &overrides, now);
        let decoded = write.decode(&self.config, account.limits)?;
        let counters = self.tenants.enter(tenant, now);
        counters.came_in(&decoded.summary);
        write.trail.span.count("freehold.series", decoded.summary.series);
        write.trail.span.count("freehold.samples", decoded.summary.samples);
        if let Some(text) = &decoded.left_out {
            let Received { client, trail, .. } = &write;
            let sender = Sender { tenant, client: client.as_ref(), trail };
            let refusal = Refusal { kind: Kind::Invalid, sender, reason: "untranslatable", text };
            self.refusals.tell(refusal, now);
        }

        // Samples of a replica that is not elected are none of the tenant's.
        let replicas = replicas::decide(&self.ha, account, &decoded, &counters).await?;

        // One bad series does not sink the others; the first failure is the answer's text.
        let mut prepared = self.prepare(account, &replicas, &decoded.body, &counters)?;
        counters.received(&prepared.counts);
        let left_out = prepared.discarded.total();
        if left_out > 0 {
            write.trail.span.count("freehold.refused", left_out);
        }
        let invalid = prepared.failure.take().map(|text| Partly::Invalid { text });
        // A replica's label that was taken off is not to be seen behind us again.
        let mut has_losses = invalid.is_some() || prepared.has_losses() || replicas.rewrites();
        if prepared.is_empty() {
            return Ok(Answer::Taken { written: Written::default(), partly: invalid });
        }

        drop(turn);

        // The tenant's rate refuses the request whole, and so does its client's.
        let mut charges = self.charge(account, &write, &counters, &prepared.counts).await?;
        self.admission.admitted(prepared.counts.total());

        // The rate of native histograms refuses these alone, and its text goes before.
        let histograms = prepared.counts.histograms;
        let mut partly = invalid;
        if let Err(refused) = self.rates.charge_histograms(account, histograms, &mut charges) {
            counters.discarded_samples(refused.reason, histograms);
            write.trail.span.count("freehold.refused", histograms);
            let before = prepared.counts.total();
            prepared = without_histograms(prepared, self.histogram_rule());
            let gone = before - prepared.counts.total();
            self.rates.give_back_part(account, &mut charges, gone);
            if prepared.is_empty() {
                return Err(PushError::OverRate(refused));
            }
            has_losses = true;
            partly = Some(Partly::Refused(refused));
        }

        let written = Written::of(&prepared.counts);
        let shard_size = account.limits.ingestion_tenant_shard_size;
        let outgoing = Outgoing { write, prepared, has_losses, shard_size };
        match self.sink.send(tenant, outgoing).await {
            Ok(Sent::Stored) => Ok(Answer::Taken { written, partly }),
            Ok(Sent::Answered(answer)) => Ok(Answer::Passed(answer)),
            Err(error) => {
                if error.is_unprocessed() {
                    self.rates.give_back(tenant, charges, self.clock.now().steady_ns);
                }
                Err(error.into())
            }
        }
    }

    /// Counts a request whose kind is known, whatever becomes of it.
    pub fn came(&self, kind: RequestKind) {
        self.requests.came(kind);
    }

    /// The tenant's main bucket as it stands; `None` before its first request.
    pub fn budget(&self, tenant: &TenantId) -> Option<BucketView> {
        self.rates.view(tenant, self.clock.now())
    }

    /// Once per [`RATE_INTERVAL`].
    pub fn tick(&self) {
        self.admission.tick();
    }

    /// Once a minute: forgets tenants that are idle and owe nothing.
    pub fn sweep(&self, now: Now) {
        self.rates.sweep(now);
        self.tenants.sweep(now);
    }

    pub fn read_metrics(&self, families: &mut Families) {
        self.admission.read_metrics(families);
        self.requests.read_metrics(families);
        self.tenants.read_metrics(families);
        self.rates.read_metrics(families);
        self.sink.read_metrics(families);
        if self.sink.is_counted_behind() {
            families.leave_out(&counters::UPSTREAMS_OWN);
        }
    }

    fn prepare<'a>(
        &self,
        account: Account<'_>,
        request: &HaRequest,
        body: &'a [u8],
        counters: &TenantCounters,
    ) -> Result<Prepared<'a>, PushError> {
        let Account { tenant, limits, now, .. } = account;
        let judge = |series: HaSeries<'_>| self.ha.judge(tenant, request, series);
        let treatment = self.treatment(account, request.replicas(limits, &judge));
        let prepared = SCRATCH.with_borrow_mut(|scratch| {
            let prepared = prepare(body, &treatment, scratch, now.unix_ms);
            if matches!(request, HaRequest::Mixed(_)) {
                self.ha.count_non_ha(tenant, scratch.observed.samples_without_replica);
            }
            scratch.trim();
            prepared
        });
        match &prepared {
            Ok(prepared) => counters.discarded(&prepared.discarded),
            Err(error) => counters.discarded(error.discarded()),
        }
        Ok(prepared?)
    }

    fn treatment<'a>(&self, account: Account<'a>, replicas: Replicas<'a>) -> Treatment<'a> {
        let placement = match self.config.shard_by_all_labels {
            true => Placement::ByAllLabels,
            false => Placement::ByMetric,
        };
        let Account { tenant, limits, .. } = account;
        let (tenant, names, is_placed) = (tenant.as_str(), self.names, self.sink.places());
        Treatment { tenant, limits, names, placement, is_placed, replicas }
    }

    async fn charge(
        &self,
        account: Account<'_>,
        write: &Received,
        counters: &TenantCounters,
        counts: &Counts,
    ) -> Result<Charges, PushError> {
        let span = &write.trail.span;
        // What is decided here takes no time; who owns a budget may have to be asked.
        let _asking = match self.rates.has_owners() {
            true => span.child(SpanKind::Client, "owner"),
            false => Span::default(),
        };
        let refused = |refused: Refused| {
            // Who has to come back for no fault of its own has lost nothing.
            if refused.is_unknown {
                return PushError::BudgetUnknown(refused);
            }
            counters.discarded_whole(refused.reason, counts);
            span.count("freehold.refused", counts.total());
            PushError::OverRate(refused)
        };
        let by_tenant = |by_tenant: Refused| {
            if !by_tenant.is_unknown {
                counters.turns.refused(account.now);
            }
            refused(by_tenant)
        };
        let mut charges = self.rates.charge(account, counts).await.map_err(by_tenant)?;
        match self.rates.charge_client(account, write.client.as_ref(), counts, &mut charges).await {
            ClientVerdict::Passed => {}
            ClientVerdict::Shadowed => counters.shadow_refused(counts.total()),
            ClientVerdict::Refused(by_client) => return Err(refused(by_client)),
        }
        Ok(charges)
    }

    fn histogram_rule(&self) -> HistogramRule {
        if self.parity { HistogramRule::WholeSeries } else { HistogramRule::HistogramsOnly }
    }
}

impl Written {
    fn of(counts: &Counts) -> Self {
        Self { samples: counts.samples, histograms: counts.histograms, exemplars: counts.exemplars }
    }
}

/// What of an outcome is worth a line in the log: its kind, the reason, and the text.
fn refusal(outcome: &Result<Answer, PushError>) -> Option<(Kind, &'static str, Cow<'_, str>)> {
    let partly = match outcome {
        Ok(Answer::Passed(_)) | Ok(Answer::Taken { partly: None, .. }) => return None,
        Ok(Answer::Taken { partly: Some(partly), .. }) => partly,
        Err(error) => {
            let (kind, reason) = match error {
                PushError::Overload(overload) => (Kind::Instance, overload.reason()),
                PushError::OverRate(refused) => (Kind::Rate, refused.reason),
                PushError::BudgetUnknown(_) => (Kind::Rate, "budget unknown"),
                PushError::Unreadable(Unreadable::NoRoom) => (Kind::Instance, "no room"),
                PushError::Unreadable(_) => (Kind::Invalid, "unreadable"),
                // Every replica but one sends such samples all the time.
                PushError::Dropped(Dropped::Deduped(_)) => return None,
                PushError::Dropped(_) => (Kind::Invalid, "replica"),
                PushError::Unfit(_) => (Kind::Invalid, "unfit"),
                PushError::Sink(SinkError::Told { status: 400..500, .. }) => {
                    (Kind::Sink, "refused further in")
                }
                PushError::Sink(_) => (Kind::Sink, "not stored"),
            };
            return Some((kind, reason, error.to_string().into()));
        }
    };
    match partly {
        Partly::Invalid { text } => Some((Kind::Invalid, "invalid", text.into())),
        Partly::Refused(refused) => {
            Some((Kind::Histograms, refused.reason, refused.text.as_str().into()))
        }
    }
}
