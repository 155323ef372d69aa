//! The ingester: who may write, which series may come to be, and what is counted.
//!
//! [`Ingester::push`] is the story; everything else here is either one of its steps or keeps the
//! numbers up to date behind it (`passes.rs`). What applies to a tenant is worked out when the
//! ring or the limits change (`standing.rs`), never on the way of a push.
//!
//! ```text
//! push ─► admission ─► read ─► tenant ─► rates ─► metadata ─► touch ─► judge ─► store ─► answer
//! ring, limits ─► passes ─► standing of each tenant ─► recount, limits in force
//! ```
//!
//! What must hold: a push is answered with an error, or all it kept is in the store; a refused
//! series leaves no trace; a push that fails as a whole leaves nothing.

pub mod acceptance;
pub mod admission;
pub mod config;
pub mod counters;
pub mod detail;
pub mod following;
pub mod forward;
mod gate;
pub mod history;
pub mod inspect;
mod judge;
pub mod listing;
pub mod metadata;
pub mod metrics;
pub mod passes;
mod push;
mod rates;
pub mod recounts;
pub mod refusals;
mod restart;
pub mod settings_check;
pub mod standing;
pub mod tenants;
#[cfg(all(test, not(feature = "model")))]
mod tests;
mod texts;
pub mod views;
pub mod what_if;

pub use rates::ChargedBy;
pub use texts::MAX_SERIES;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Now;
use crate::labels::IdentityHasher;
use crate::limits::{IgnoredMetrics, InstanceLimits, Overrides};
use crate::ratelimit::{Ewma, RECHECK_PERIOD, TenantLimiter};
use crate::ring::Ring;
use crate::ring::model::InstanceState;
use crate::series::head::{Head, HeadRule};
use crate::series::{Basis, KindRule, Options, Rules, SeriesStore, Tick, Totals, UNLIMITED};
use crate::store::{Store, StoreError};
use crate::sync::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use crate::tenant::TenantId;
use crate::wire::DecodeError;

use admission::{Admission, Overload, Permit};
use config::IngesterConfig;
use counters::{DiscardReason, InstanceCounters};
use push::{Push, Request, Scratch, Tally};
use rates::Charges;
use recounts::RecountLog;
use standing::Standing;
use tenants::{Tenant, Tenants, TooManyTenants, Visit};

/// Weight of the newest interval in moving averages: Cortex's.
const RATE_ALPHA: f64 = 0.2;
/// Interval of a tenant's rates, as `UserStats` tells them: Cortex's default.
const TENANT_RATE_INTERVAL: Duration = Duration::from_secs(15);
/// Interval of the instance's rate.
const INSTANCE_RATE_INTERVAL: Duration = Duration::from_secs(1);
/// Number of the source that says that a push comes from a rule.
const SOURCE_RULE: i32 = 1;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Where this ingester stands among the services around it.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Pushes come from distributors that check tenants' rates themselves.
    pub behind_distributors: bool,
    /// Write requests are sharded by all labels; without it global limits mean nothing here.
    pub shard_by_all_labels: bool,
    pub shuffle_sharding: bool,
    /// Another ingester stands behind us and stores what we admit: see `forward.rs`.
    pub has_upstream: bool,
}

/// What is answered to a push that went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    pub samples: u64,
    pub histograms: u64,
    pub exemplars: u64,
}

/// Why a push is not, or not wholly, accepted. How each is said on the wire is the edge's.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The ingester does not take pushes yet, or no longer; names its state.
    #[error("{state}")]
    NotRunning { state: &'static str },
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    #[error(transparent)]
    Overload(#[from] Overload),
    /// Refused as a whole by something that is not the sender's fault; nothing is kept.
    #[error("{text}")]
    Whole { text: String },
    /// The tenant's rate is exceeded; nothing is kept. `wait_ns` until the push would pass.
    #[error("{text}")]
    RateLimited { text: String, wait_ns: Option<u64> },
    /// Parts were refused, for the reason in the text; the rest is stored.
    #[error("{text}")]
    Partial { text: String, rate_limited: bool, stored: Pushed },
    #[error("cannot store the push")]
    Store(#[from] StoreError),
}

/// Whether pushes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// Made, and nothing more.
    New = 0,
    /// Reads back what the store holds.
    Starting = 1,
    Running = 2,
    Stopping = 3,
}

/// See the head of the file.
pub struct Ingester {
    pub config: IngesterConfig,
    pub role: Role,
    pub tenants: Tenants,
    pub totals: Arc<Totals>,
    pub admission: Admission,
    pub counters: InstanceCounters,
    pub recounts: RecountLog,
    pub ring: Arc<Ring>,
    pub overrides: Arc<Overrides>,
    pub store: Option<Arc<Store>>,
    limiter: TenantLimiter,
    histogram_limiter: TenantLimiter,
    hasher: IdentityHasher,
    ignored_metrics: IgnoredMetrics,
    state: AtomicU8,
    /// The series that were in memory before a start are counted again: those of the store, or
    /// those of the upstream.
    is_counted: AtomicBool,
    /// Our state in the ring, by its number; only ACTIVE makes new tenants.
    ring_state: AtomicI64,
}

/// What an ingester is made of.
pub struct Parts {
    pub config: IngesterConfig,
    pub role: Role,
    pub ring: Arc<Ring>,
    pub overrides: Arc<Overrides>,
    pub store: Option<Arc<Store>>,
    pub hasher: IdentityHasher,
}

impl Ingester {
    pub fn new(parts: Parts) -> Self {
        let ignored_metrics =
            IgnoredMetrics::parse(&parts.config.ignore_series_limit_for_metric_names);
        Self {
            tenants: Tenants::default(),
            totals: Arc::new(Totals::new()),
            admission: Admission::new(Ewma::new(RATE_ALPHA, INSTANCE_RATE_INTERVAL)),
            counters: InstanceCounters::default(),
            recounts: RecountLog::default(),
            limiter: TenantLimiter::new(RECHECK_PERIOD),
            histogram_limiter: TenantLimiter::new(RECHECK_PERIOD),
            ignored_metrics,
            state: AtomicU8::new(State::New as u8),
            is_counted: AtomicBool::new(false),
            ring_state: AtomicI64::new(InstanceState::Pending as i64),
            config: parts.config,
            role: parts.role,
            ring: parts.ring,
            overrides: parts.overrides,
            store: parts.store,
            hasher: parts.hasher,
        }
    }

    /// Takes one push of a tenant: `body` is an encoded `cortexpb.WriteRequest`.
    ///
    /// Synchronous. With a store it may wait for the disk, so not for a thread of the runtime.
    pub fn push(&self, id: &TenantId, body: &[u8], now: Now) -> Result<Pushed, PushError> {
        self.push_from(ChargedBy::Nobody, id, body, now)
    }

    /// The same, for who may have charged the tenant already.
    pub fn push_from(
        &self,
        charged_by: ChargedBy,
        id: &TenantId,
        body: &[u8],
        now: Now,
    ) -> Result<Pushed, PushError> {
        self.admitted(|instance, scratch, _in_flight| {
            self.push_admitted(charged_by, id, body, instance, scratch, now)
        })
    }

    /// What goes round every push, whoever stores it: admission, and this thread's scratch.
    fn admitted<T>(
        &self,
        push: impl FnOnce(&InstanceLimits, &mut Scratch, Permit) -> Result<T, PushError>,
    ) -> Result<T, PushError> {
        self.check_running()?;
        let overrides = self.overrides.load();
        let in_flight = self.admit(overrides.instance())?;
        SCRATCH.with_borrow_mut(|scratch| {
            let outcome = push(overrides.instance(), scratch, in_flight);
            scratch.trim();
            outcome
        })
    }

    /// Reads the request, then enters its tenant: a malformed one makes none.
    fn read_and_enter<'a>(
        &self,
        id: &TenantId,
        body: &'a [u8],
        instance: &InstanceLimits,
        scratch: &mut Scratch,
        now: Now,
    ) -> Result<(Request<'a>, Visit), PushError> {
        let request = scratch.read(body, &self.hasher)?;
        let tenant = self.enter(id, instance)?;
        tenant.note_push(now);
        Ok((request, tenant))
    }

    /// The push under the rules of this moment, charged to its tenant's rates.
    fn begin<'a>(
        &'a self,
        charged_by: ChargedBy,
        tenant: &'a Tenant,
        standing: &'a Standing,
        request: &Request<'a>,
        instance: &InstanceLimits,
        now: Now,
    ) -> Result<(Push<'a>, Charges), PushError> {
        let rules = self.series_rules(instance);
        let mut push = Push::new(self, tenant, standing, request, rules, now);
        let charges = self.charge(&mut push, request, charged_by)?;
        Ok((push, charges))
    }

    fn push_admitted(
        &self,
        charged_by: ChargedBy,
        id: &TenantId,
        body: &[u8],
        instance: &InstanceLimits,
        scratch: &mut Scratch,
        now: Now,
    ) -> Result<Pushed, PushError> {
        let (request, tenant) = self.read_and_enter(id, body, instance, scratch, now)?;
        let standing = tenant.standing.load();
        let (push, charges) =
            self.begin(charged_by, &tenant, &standing, &request, instance, now)?;
        let noted = self.note_metadata(&tenant, &standing, &request, now);
        let rate_limited = push.has_failed();
        match push.run(scratch, &noted) {
            Ok((tally, failure)) => {
                if !standing.limits.enable_native_histograms {
                    let left_out = request.summary.histograms;
                    tenant.counters.discard_samples(DiscardReason::NativeHistogramSample, left_out);
                }
                self.count(&tenant, request.summary.source, &tally, noted.ingested, now);
                tally.answer(&tenant.id, failure, rate_limited)
            }
            Err(error) => {
                // Nothing is kept, so nothing is charged.
                self.give_back(id, charges, now);
                self.take_back_metadata(&tenant, &noted);
                Err(error)
            }
        }
    }

    /// What is in memory is being found out; no pushes yet.
    pub fn starting(&self) {
        self.set_state(State::Starting);
    }

    /// From here on pushes are taken. With an upstream its series may still be unknown.
    pub fn run(&self) {
        if !self.role.has_upstream {
            self.note_counted();
        }
        self.set_state(State::Running);
    }

    /// What was in memory before the start is counted again.
    pub fn note_counted(&self) {
        self.is_counted.store(true, Ordering::Release);
    }

    pub fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::Acquire)
    }

    /// From here on pushes are refused; those under way end as they would.
    pub fn stop(&self) {
        self.set_state(State::Stopping);
    }

    pub fn is_running(&self) -> bool {
        self.state() == State::Running
    }

    pub fn is_stopped(&self) -> bool {
        self.state() == State::Stopping
    }

    /// Our state in the ring has changed.
    pub fn note_ring_state(&self, state: InstanceState) {
        self.ring_state.store(state as i64, Ordering::Release);
    }

    fn state(&self) -> State {
        let states = [State::New, State::Starting, State::Running, State::Stopping];
        states[usize::from(self.state.load(Ordering::Acquire))]
    }

    fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    fn check_running(&self) -> Result<(), PushError> {
        match self.state() {
            State::Running => Ok(()),
            State::Stopping => Err(PushError::Whole { text: texts::STOPPING.to_owned() }),
            State::Starting => Err(PushError::NotRunning { state: "Starting" }),
            State::New => Err(PushError::NotRunning { state: "New" }),
        }
    }

    fn admit(&self, limits: &InstanceLimits) -> Result<Permit, Overload> {
        let admitted = self.admission.admit(limits);
        match &admitted {
            Ok(_) => {}
            Err(Overload::InFlight) => self.counters.refused_in_flight.add(1),
            Err(Overload::Rate) => self.counters.refused_rate.add(1),
        }
        admitted
    }

    /// Enters the tenant; its first push makes it.
    fn enter(&self, id: &TenantId, limits: &InstanceLimits) -> Result<Visit, PushError> {
        if let Some(visit) = self.tenants.visit(id) {
            return Ok(visit);
        }
        self.check_active(id)?;
        let made = self.tenants.enter(id, limits.max_tenants, || self.make_tenant(id));
        made.map_err(|TooManyTenants| {
            self.counters.refused_tenants.add(1);
            texts::too_many_tenants(id)
        })
    }

    /// Only who is ACTIVE makes tenants.
    fn check_active(&self, id: &TenantId) -> Result<(), PushError> {
        let state = InstanceState::from_number(self.ring_state.load(Ordering::Acquire));
        let state = state.unwrap_or(InstanceState::Pending);
        if state == InstanceState::Active {
            return Ok(());
        }
        let text = texts::not_active(state);
        Err(PushError::Whole { text: texts::of_tenant(id, &text) })
    }

    /// An empty tenant that stands as ring and limits have it now.
    fn make_tenant(&self, id: &TenantId) -> Tenant {
        let standing = self.work_out(id, None);
        let options = Options { kinds: self.kind_rule(), ..Options::default() };
        let series = SeriesStore::new(options, standing.view(), Arc::clone(&self.totals));
        self.count_labels(&series, None, &standing);
        passes::put_in_force(&series, None, &standing, Tick::MAX);
        Tenant::new(id.clone(), series, Head::new(HeadRule::default()), Arc::new(standing))
    }

    /// How new series are checked.
    fn series_rules(&self, limits: &InstanceLimits) -> Rules {
        let max = limits.max_series;
        Rules {
            instance_series_max: if max == 0 { UNLIMITED } else { max },
            basis: self.basis(),
            shadow: self.config.owned_series_shadow_enabled,
            // A push can fail as a whole after some of its series were created: by its labels,
            // the instance's limit, the store.
            pending: true,
        }
    }

    /// Which count the limits are compared with.
    pub fn basis(&self) -> Basis {
        if self.config.owned_series_limit_enforcement_enabled {
            Basis::Owned
        } else {
            Basis::InMemory
        }
    }

    fn kind_rule(&self) -> KindRule {
        if self.config.limits_parity { KindRule::AtWake } else { KindRule::Latest }
    }

    /// Whether exemplars are judged here, where they are kept.
    fn keeps_exemplars(&self, standing: &Standing) -> bool {
        if self.role.has_upstream {
            return false;
        }
        match standing.limits.max_exemplars {
            0 => self.store.is_some(),
            max => max > 0,
        }
    }

    /// Counts what a push stored, once it is stored.
    fn count(&self, tenant: &Tenant, source: i32, tally: &Tally, metadata: u64, now: Now) {
        let counters = &self.counters;
        counters.samples.add(tally.samples);
        counters.samples_failed.add(tally.samples_failed);
        counters.histograms.add(tally.histograms);
        counters.histograms_failed.add(tally.histograms_failed);
        counters.exemplars.add(tally.exemplars);
        counters.exemplars_failed.add(tally.exemplars_failed);
        let items = tally.samples + tally.histograms;
        self.admission.ingested(items + metadata);
        let rate = if source == SOURCE_RULE { &tenant.rule_rate } else { &tenant.api_rate };
        rate.add(i64::try_from(items).unwrap_or(i64::MAX));
        if let Some((oldest_ms, newest_ms)) = tally.times_ms {
            let mut head = tenant.head.lock().expect("no panic under this lock");
            head.appended(oldest_ms, newest_ms, now.unix_ms);
        }
    }
}
