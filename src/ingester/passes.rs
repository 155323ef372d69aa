//! What keeps the numbers true behind the pushes: recounts, cycles, cuts of heads, idle tenants.
//!
//! One thread runs all passes, one after the other, woken by the ring, by the limits, or by the
//! second. None stops a push: each takes a tenant's locks for one stripe at a time.
//!
//! What must hold: a tenant's count and limit change together (`put_in_force`, then the recount's
//! last step); a pass that fails for one tenant goes on with the next.

mod mismatch;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Now};
use crate::ingester::Ingester;
use crate::ingester::history;
use crate::ingester::recounts::{RecountPass, RecountReason};
use crate::ingester::standing::{Rules, Standing};
use crate::ingester::tenants::Tenant;
use crate::labels::Identity;
use crate::limits::Snapshot;
use crate::ring::{OwnView, RingSnapshot, UnknownOwnership};
use crate::series::head::{Cut, CutReason};
use crate::series::{Basis, Fate, Progress, SeriesStore, Tick};
use crate::tenant::TenantId;

use mismatch::{Generations, Mismatch};

/// How long the pass thread sleeps when nobody wakes it; the tick of the instance's rate.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between two looks at the heads.
const HEAD_TICKS: u64 = 15;
/// Ticks between two ticks of the tenants' rates.
const TENANT_RATE_TICKS: u64 = 15;
/// Ticks between two looks at tenants' counts for their history.
const HISTORY_TICKS: u64 = history::SPACING.as_secs();
/// Ticks between two sweeps of limiters and retention.
const SWEEP_TICKS: u64 = 300;
/// A ring of which nobody has told anything for this long has lost its watcher: one that works
/// reads, or fails to, well within it.
const RING_SILENCE_MAX: Duration = Duration::from_secs(120);
/// When labels are read once more after a change of what is counted by them: pushes that began
/// before the change have ended by then.
const LABELS_AGAIN: Duration = Duration::from_secs(30);
/// Pushes that arrive in less than this many seconds keep an empty tenant.
const EMPTY_TENANT_IDLE: Duration = Duration::from_secs(600);

/// Wakes the pass thread ahead of its tick. Waking a thread that has a wake-up pending already is
/// nothing lost: it looks at everything.
#[derive(Clone)]
pub struct Wake(crossbeam::channel::Sender<()>);

/// The other end of [`Wake`].
pub struct Wakes(crossbeam::channel::Receiver<()>);

pub fn wakes() -> (Wake, Wakes) {
    let (sender, receiver) = crossbeam::channel::bounded(1);
    (Wake(sender), Wakes(receiver))
}

impl Wake {
    pub fn wake(&self) {
        // Full means that a wake-up is pending; closed, that nobody is left to wake.
        let _ = self.0.try_send(());
    }
}

/// Runs passes until its [`Wake`]s are gone or the ingester stops.
pub struct PassLoop {
    ingester: Arc<Ingester>,
    clock: Clock,
    seen: Seen,
    mismatch: Mismatch,
    heard: Heard,
    /// Tenants whose labels are read again, and when. One entry per change of a tenant's limits
    /// in the last [`LABELS_AGAIN`].
    labels_due: VecDeque<(i64, TenantId)>,
    ticks: u64,
    cycle_due_ns: i64,
}

/// What the ring's reader last let us hear.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    reads: u64,
    at_ns: i64,
}

/// What the last renewal was made from.
#[derive(Default)]
struct Seen {
    ring: Option<Arc<RingSnapshot>>,
    limits: Option<Arc<Snapshot>>,
    mismatch: bool,
}

impl PassLoop {
    pub fn new(ingester: Arc<Ingester>, clock: Clock) -> Self {
        Self {
            heard: Heard { reads: ingester.ring.reads(), at_ns: clock.now().steady_ns },
            ingester,
            clock,
            seen: Seen::default(),
            mismatch: Mismatch::default(),
            labels_due: VecDeque::new(),
            ticks: 0,
            cycle_due_ns: 0,
        }
    }

    /// The thread's body.
    pub fn run(mut self, wakes: &Wakes) {
        let mut tick_due_ns = self.clock.now().steady_ns;
        while !self.ingester.is_stopped() {
            let now_ns = self.clock.now().steady_ns;
            let wait = Duration::from_nanos(u64::try_from(tick_due_ns - now_ns).unwrap_or(0));
            let woken = wakes.0.recv_timeout(wait);
            let now = self.clock.now();
            self.renew(now);
            if now.steady_ns >= tick_due_ns {
                tick_due_ns = now.steady_ns + TICK.as_nanos() as i64;
                self.tick(now);
            } else if woken == Err(crossbeam::channel::RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Brings every tenant up to date with ring and limits, if either has changed.
    pub fn renew(&mut self, now: Now) {
        let ring = self.ingester.ring.load();
        let limits = self.ingester.overrides.snapshot();
        let mismatch = self.mismatch.distrusted_at_ns.is_some();
        let same = self.seen.ring.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &ring))
            && self.seen.limits.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &limits))
            && self.seen.mismatch == mismatch;
        if same {
            return;
        }
        self.tell_ownership(&ring);
        let ingester = Arc::clone(&self.ingester);
        let mut pass = ingester.recounts.begin(now.unix_ms, ingester.totals.count().owned);
        // A tenant made from here on reads a ring and limits at least as new as these: tenants
        // are made under the lock that this list is taken under.
        for tenant in ingester.tenants.all() {
            if ingester.renew_tenant(&tenant, &ring, &limits, &mut pass, now) {
                self.read_labels_later(tenant.id.clone(), now);
            }
        }
        let took_ns = self.clock.now().steady_ns - now.steady_ns;
        pass.took_us = u64::try_from(took_ns / 1000).unwrap_or(0);
        pass.owned_after = ingester.totals.count().owned;
        ingester.recounts.end(pass);
        self.seen = Seen { ring: Some(ring), limits: Some(limits), mismatch };
    }

    /// Says once when it becomes unknown which keys are ours, and when it is known again: a wrong
    /// id in the configuration shows nowhere else so early.
    fn tell_ownership(&self, ring: &RingSnapshot) {
        let unknown = |ring: &RingSnapshot| match ring.own() {
            OwnView::Known(_) => None,
            OwnView::Unknown(reason) => Some(*reason),
        };
        let before = self.seen.ring.as_deref().map(unknown);
        match (before, unknown(ring)) {
            // Before the first reading everything is unknown, and that is no news.
            (_, Some(UnknownOwnership::RingEmpty)) => {}
            (Some(before), now) if before == now => {}
            (_, Some(reason)) => {
                let id = ring.settings().own_id.as_deref().unwrap_or_default();
                tracing::warn!(id, %reason, "owned series are unknown: limits act on what is in memory");
            }
            (Some(Some(reason)), None) if reason != UnknownOwnership::RingEmpty => {
                tracing::info!("owned series are known again");
            }
            (_, None) => {}
        }
    }

    /// What is due by time alone.
    pub fn tick(&mut self, now: Now) {
        self.ticks += 1;
        let ingester = Arc::clone(&self.ingester);
        ingester.admission.tick();
        self.listen(now);
        self.read_labels_again(now);
        let tenants = ingester.tenants.all();
        if self.ticks.is_multiple_of(TENANT_RATE_TICKS) {
            for tenant in &tenants {
                tenant.api_rate.tick();
                tenant.rule_rate.tick();
            }
        }
        if self.ticks.is_multiple_of(HEAD_TICKS) {
            for tenant in &tenants {
                ingester.cut_head(tenant, now);
                // A cut may read the disk for a while; a change of the ring does not wait for
                // those of all tenants.
                self.renew(now);
            }
        }
        if self.ticks.is_multiple_of(HISTORY_TICKS) {
            ingester.look_at_counts(&tenants, now);
        }
        if now.steady_ns >= self.cycle_due_ns {
            let period = ingester.config.active_series_metrics_update_period.as_duration();
            self.cycle_due_ns = now.steady_ns + period.as_nanos() as i64;
            ingester.admission.turn_window();
            for tenant in &tenants {
                ingester.cycle(tenant, now);
            }
            self.weigh_evidence(now);
        }
        if self.ticks.is_multiple_of(SWEEP_TICKS) {
            ingester.sweep(now);
        }
    }

    /// Notices a ring whose reader has died or hangs: nobody else would let its time run out.
    fn listen(&mut self, now: Now) {
        let ring = &self.ingester.ring;
        let reads = ring.reads();
        if reads != self.heard.reads {
            self.heard = Heard { reads, at_ns: now.steady_ns };
        } else if now.steady_ns - self.heard.at_ns >= RING_SILENCE_MAX.as_nanos() as i64 {
            ring.read_failed(now.unix_ms, "nobody has read the ring for two minutes");
            self.heard.reads = ring.reads();
        }
    }

    fn read_labels_later(&mut self, id: TenantId, now: Now) {
        self.labels_due.push_back((now.steady_ns + LABELS_AGAIN.as_nanos() as i64, id));
    }

    /// A push that had matched a new series by the label sets of before may have created it
    /// after the labels pass; it is in the store by now, and is assigned here.
    fn read_labels_again(&mut self, now: Now) {
        while let Some((_, id)) = self.labels_due.pop_front_if(|due| due.0 <= now.steady_ns) {
            let Some(tenant) = self.ingester.tenants.visit(&id) else {
                continue;
            };
            let standing = tenant.standing.load_full();
            let counts = standing.counts_metrics() || standing.counts_label_sets();
            let is_read = !counts
                || tenant.series.labels_pass_done() == 0
                || self.ingester.read_labels(&tenant, &standing);
            drop(tenant);
            if !is_read {
                self.read_labels_later(id, now);
            }
        }
    }

    /// Compares what was created with what of it the ring calls ours.
    fn weigh_evidence(&mut self, now: Now) {
        if !self.ingester.is_running() {
            // What a restart finds in the heads came by older rings.
            self.mismatch = Mismatch::default();
            return;
        }
        let mut created = 0;
        let mut not_owned = 0;
        for tenant in self.ingester.tenants.all() {
            let counts = tenant.series.counts();
            // What was there before us came by older rings and proves nothing.
            created += counts.created_total.saturating_sub(counts.restored_total);
            not_owned += counts.created_not_owned_total;
        }
        let generations = Generations {
            ring: self.ingester.ring.generation(),
            limits: self.ingester.overrides.load().generation(),
        };
        if self.mismatch.judge(generations, created, not_owned, now.steady_ns) {
            let explained = self.ingester.explain_mismatch(now);
            let (setting, value) =
                explained.map_or(("unknown", String::new()), |found| (found.setting, found.value));
            tracing::warn!(
                created,
                not_owned,
                setting,
                value,
                "more than 1 % of the created series are not ours by the ring: the named setting \
                 has that value at the distributors, as far as these series tell; where none \
                 explains them, they place series by other labels or follow another ring. Series \
                 limits act on the in-memory count until it ends"
            );
        }
        let distrusted = self.mismatch.distrusted_at_ns.is_some();
        self.ingester.recounts.note_mismatch(distrusted);
    }
}

impl Ingester {
    /// A tenant's standing by the ring and limits of now.
    pub(super) fn work_out(&self, id: &TenantId, before: Option<&Standing>) -> Standing {
        let ring = self.ring.load();
        let limits = self.overrides.snapshot();
        Standing::new(id, limits.limits(id), &ring, self.standing_rules(), before)
    }

    fn standing_rules(&self) -> Rules {
        Rules {
            mode: self.config.series_limit_mode,
            shard_by_all_labels: self.role.shard_by_all_labels,
            shuffle_sharding: self.role.shuffle_sharding,
            mismatch: self.recounts.is_mismatch(),
        }
    }

    /// Brings one tenant up to date. Whether what is counted by metric or label set has changed.
    fn renew_tenant(
        &self,
        tenant: &Tenant,
        ring: &RingSnapshot,
        limits: &Snapshot,
        pass: &mut RecountPass,
        now: Now,
    ) -> bool {
        let before = tenant.standing.load_full();
        let rules = self.standing_rules();
        let standing =
            Standing::new(&tenant.id, limits.limits(&tenant.id), ring, rules, Some(&before));
        if standing.is_same(&before) {
            return false;
        }
        let standing = Arc::new(standing);
        let hold = self.config.series_limit_hold_timeout.as_duration().as_secs();
        let deadline = now.steady_s().saturating_add(u32::try_from(hold).unwrap_or(u32::MAX));
        // Pushes match label sets by the standing they load, so the store must know the new
        // generation first: what matched by the old one is then left to the labels pass.
        let labels = self.count_labels(&tenant.series, Some(&before), &standing);
        put_in_force(&tenant.series, Some(&before), &standing, Tick::new(deadline));
        tenant.standing.store(Arc::clone(&standing));
        if standing.epoch != before.epoch {
            let owned_before = tenant.series.counts().series.owned;
            tenant.series.begin_recount(standing.view());
            while tenant.series.recount_step() == Progress::More {}
            let reason = match (standing.unknown, standing.is_same_ring(&before)) {
                (Some(_), _) => RecountReason::OwnershipUnknown,
                (None, true) => RecountReason::ShardSizeChanged,
                (None, false) => RecountReason::RingChanged,
            };
            let owned_after = tenant.series.counts().series.owned;
            if let Some(moved) = pass.note(reason, owned_before, owned_after) {
                tenant.recounts.note(moved);
                if self.basis() == Basis::Owned {
                    tenant.history.broke(now, owned_after);
                }
            }
        }
        if labels && tenant.series.counts().series.in_memory > 0 {
            self.read_labels(tenant, &standing);
        }
        labels
    }

    /// Switches counting by metric and by label set on or off as the limits ask; says whether
    /// the labels of series that are there, or on their way, have to be read for it.
    pub(super) fn count_labels(
        &self,
        series: &SeriesStore,
        before: Option<&Standing>,
        standing: &Standing,
    ) -> bool {
        let counts_metrics = Standing::counts_metrics;
        let sets = Standing::counts_label_sets;
        let mut changed = false;
        match (before.is_some_and(counts_metrics), counts_metrics(standing)) {
            (false, true) => {
                series.enable_metric_counts();
                changed = true;
            }
            (true, false) => series.disable_metric_counts(),
            _ => {}
        }
        let same_sets = before
            .is_some_and(|before| before.label_sets_generation == standing.label_sets_generation);
        match (before.is_some_and(sets), sets(standing)) {
            (_, true) if !same_sets || !before.is_some_and(sets) => {
                series.enable_label_sets(standing.label_sets_generation);
                changed = true;
            }
            (true, false) => series.disable_label_sets(),
            _ => {}
        }
        changed
    }

    /// The labels pass: tells the tracker what the series that are there refer to. `false` if
    /// the labels could not be read.
    pub(super) fn read_labels(&self, tenant: &Tenant, standing: &Standing) -> bool {
        let Some(store) = &self.store else {
            return true;
        };
        let sets = &standing.limits.limits_per_label_set;
        let generation = standing.label_sets_generation;
        let mut matched = Vec::new();
        let read = store.for_each_head_series(&tenant.id, |identity, labels| {
            sets.matches(|name| labels.get(name).unwrap_or_default(), &mut matched);
            tenant.series.assign(identity, labels.metric_name(), &matched, generation);
        });
        match read {
            Ok(_) => {
                let missed = tenant.series.labels_pass_done();
                if missed > 0 {
                    tracing::warn!(
                        tenant = %tenant.id, missed,
                        "series without labels in the store are not counted by metric and \
                         label set"
                    );
                }
                true
            }
            // The counts stay unknown and refuse nothing until it is tried again.
            Err(error) => {
                tracing::error!(
                    tenant = %tenant.id, %error,
                    "cannot read labels for limits by metric and label set"
                );
                false
            }
        }
    }

    /// The minute cycle of one tenant.
    fn cycle(&self, tenant: &Arc<Tenant>, now: Now) {
        let idle_s = self.config.active_series_metrics_idle_timeout.as_duration().as_secs();
        let idle_before = u64::from(now.steady_s()).saturating_sub(idle_s);
        tenant.series.cycle(Tick::new(u32::try_from(idle_before).unwrap_or(0)));
        let retain_ms = i64::try_from(self.config.metadata_retain_period.0).unwrap_or(i64::MAX);
        let removed = tenant.metadata.purge(now.unix_ms.saturating_sub(retain_ms));
        tenant.counters.metadata_removed.add(removed);
        let idle_ns = EMPTY_TENANT_IDLE.as_nanos() as i64;
        let is_idle = |tenant: &Tenant| now.steady_ns - tenant.pushed_at_ns() >= idle_ns;
        if is_idle(tenant) {
            self.tenants.remove_if(tenant, |tenant| {
                let empty = tenant.series.counts().series.in_memory == 0;
                empty && tenant.metadata.is_empty() && is_idle(tenant)
            });
        }
    }

    /// Lets each tenant's history have a look at its count, once that is known.
    fn look_at_counts(&self, tenants: &[Arc<Tenant>], now: Now) {
        if !self.is_counted() {
            return;
        }
        for tenant in tenants {
            tenant.history.look(now, tenant.series.counts().series.by(self.basis()));
        }
    }

    /// Series have come or gone without a write: with the head that held them, or by a listing.
    pub(super) fn note_break(&self, tenant: &Tenant, now: Now) {
        tenant.history.broke(now, tenant.series.counts().series.by(self.basis()));
    }

    /// Drops what the head of one tenant drops now.
    fn cut_head(&self, tenant: &Tenant, now: Now) {
        while let Some(cut) = self.due_cut(tenant, now) {
            self.learn_newest(tenant);
            let mut failed = None;
            let removed = tenant.series.purge(
                cut.before_ms,
                |_| Fate::Keep,
                |gone| failed = self.drop_heads(tenant, gone, cut).err().or(failed.take()),
            );
            let left = tenant.series.counts().series.in_memory > 0;
            let mut head = tenant.head.lock().expect("no panic under this lock");
            head.cut(cut.before_ms, left.then_some(cut.before_ms));
            drop(head);
            if removed > 0 {
                self.note_break(tenant, now);
            }
            tracing::info!(
                tenant = %tenant.id, removed, before_ms = cut.before_ms,
                idle = cut.reason == CutReason::Idle, "head cut"
            );
            if let Some(error) = failed {
                // The rows are dropped by the next cut after a restart; counts are right now.
                tracing::error!(tenant = %tenant.id, %error, "cannot drop head rows");
            }
            if cut.reason == CutReason::Idle {
                return;
            }
        }
    }

    fn due_cut(&self, tenant: &Tenant, now: Now) -> Option<Cut> {
        // Without a store of our own the head is somebody else's.
        self.store.as_ref()?;
        tenant.head.lock().expect("no panic under this lock").due(now.unix_ms)
    }

    fn drop_heads(
        &self,
        tenant: &Tenant,
        gone: &[Identity],
        cut: Cut,
    ) -> Result<(), crate::store::StoreError> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let is_gone = |identity| !tenant.series.contains(identity);
        store.drop_heads(&tenant.id, gone, Some(cut.before_ms), is_gone).map(drop)
    }

    /// Asks the store for newest times that a restart has left unknown.
    fn learn_newest(&self, tenant: &Tenant) {
        let Some(store) = &self.store else {
            return;
        };
        let mut unknown = Vec::new();
        tenant.series.purge_where(
            |candidate| {
                if candidate.newest_ms.is_none() {
                    unknown.push(candidate.identity);
                }
                Fate::Keep
            },
            |_| {},
        );
        for identity in unknown {
            match store.newest_sample(&tenant.id, identity) {
                Ok(newest) => {
                    // A series without a sample left is older than any cut.
                    let newest_ms = newest.map_or(i64::MIN + 1, |sample| sample.t_ms);
                    tenant.series.learn_newest(identity, newest_ms);
                }
                Err(error) => {
                    tracing::error!(tenant = %tenant.id, %error, "cannot read a newest sample");
                    return;
                }
            }
        }
    }

    /// Limiters forget idle tenants; the store forgets what is too old.
    fn sweep(&self, now: Now) {
        self.limiter.sweep(now.steady_ns);
        self.histogram_limiter.sweep(now.steady_ns);
        if let Some(store) = &self.store {
            match store.apply_retention(now.unix_ms) {
                Ok(0) => {}
                Ok(blocks) => tracing::info!(blocks, "retention dropped blocks"),
                Err(error) => tracing::error!(%error, "cannot apply the retention"),
            }
        }
    }
}

/// Puts a standing's limits in force: at once what the operator changed and what rises; when the
/// recount ends what falls because ownership moved.
pub(super) fn put_in_force(
    series: &SeriesStore,
    before: Option<&Standing>,
    standing: &Standing,
    deadline: Tick,
) {
    match before {
        Some(before) if before.epoch != standing.epoch => {
            series.set_limits(standing.local_limits(&before.shape));
            series.hold(standing.epoch, standing.local_limits(&standing.shape), deadline);
        }
        _ => series.set_limits(standing.local_limits(&standing.shape)),
    }
}
