//! What the follower lets others see: readiness and metrics.

use std::sync::Arc;

use crate::exposition::Families;
use crate::ingester::Ingester;
use crate::ingester::following::machine::Reach;
use crate::ingester::following::tenant::{Reason, Way};
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// How a fall of a tenant's series upstream was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Explained {
    Cut,
    Emptied,
    Unexplained,
}

impl Explained {
    const ALL: [Self; 3] = [Self::Cut, Self::Emptied, Self::Unexplained];

    pub(super) fn by(way: Option<Way>) -> Self {
        match way {
            Some(Way::Cut { .. }) => Self::Cut,
            Some(Way::Emptied { .. }) => Self::Emptied,
            None => Self::Unexplained,
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Emptied => "emptied",
            Self::Unexplained => "unexplained",
        }
    }
}

const REASONS: [Reason; 5] =
    [Reason::Load, Reason::Returned, Reason::AfterDrop, Reason::Drift, Reason::Labels];

/// Statistics of the follower; each number is right by itself.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) polls: AtomicU64,
    pub(super) poll_failures: AtomicU64,
    pub(super) listings: [AtomicU64; REASONS.len()],
    pub(super) listing_failures: AtomicU64,
    pub(super) listing_us: AtomicU64,
    pub(super) drops: [AtomicU64; Explained::ALL.len()],
    pub(super) tenants_loading: AtomicU64,
    pub(super) is_reached: AtomicBool,
    /// No poll has been answered since we started.
    pub(super) is_new: AtomicBool,
}

impl Counts {
    pub(super) fn note_reach(&self, reach: Reach) {
        self.is_reached.store(reach == Reach::Reached, Ordering::Release);
        self.is_new.store(matches!(reach, Reach::NotYet { .. }), Ordering::Release);
    }

    pub(super) fn note_listing(&self, reason: Reason) {
        let at = REASONS.iter().position(|one| *one == reason).unwrap_or(0);
        self.listings[at].fetch_add(1, Ordering::Relaxed);
    }
}

/// A view of the follower; cheap to clone.
#[derive(Clone)]
pub struct FollowStatus {
    pub(super) ingester: Arc<Ingester>,
    pub(super) counts: Arc<Counts>,
}

impl FollowStatus {
    /// All series that were upstream when we started are known.
    pub fn is_loaded(&self) -> bool {
        self.ingester.is_counted()
    }

    /// The last poll of the upstream's series was answered.
    pub fn is_reached(&self) -> bool {
        self.counts.is_reached.load(Ordering::Acquire)
    }

    /// Why `/ready` has to wait, if it has to.
    pub fn readiness(&self) -> Result<(), String> {
        if self.is_loaded() {
            return Ok(());
        }
        if self.counts.is_new.load(Ordering::Acquire) {
            return Err("the upstream has not told its series yet".to_owned());
        }
        let left = self.counts.tenants_loading.load(Ordering::Relaxed);
        Err(format!("the series of {left} tenants are being loaded from the upstream"))
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let counts = &self.counts;
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        families.gauge(
            "freehold_ingester_upstream_reached",
            "1 if the last poll of the upstream's series was answered.",
            f64::from(u8::from(counts.is_reached.load(Ordering::Acquire))),
        );
        families.counter(
            "freehold_ingester_upstream_polls_total",
            "Polls of the upstream's series, failed ones included.",
            read(&counts.polls),
        );
        families.counter(
            "freehold_ingester_upstream_poll_failures_total",
            "Polls of the upstream's series that failed.",
            read(&counts.poll_failures),
        );
        let mut listings = families.counters(
            "freehold_ingester_upstream_listings_total",
            "Listings of a tenant's series upstream, by what made them due.",
        );
        for (reason, count) in REASONS.iter().zip(&counts.listings) {
            listings.sample([("reason", reason.label())], read(count) as f64);
        }
        families.counter(
            "freehold_ingester_upstream_listing_failures_total",
            "Listings that failed, were empty or too short.",
            read(&counts.listing_failures),
        );
        families.gauge(
            "freehold_ingester_upstream_listing_duration_seconds",
            "How long the last complete listing of a tenant took.",
            read(&counts.listing_us) as f64 / 1e6,
        );
        let mut drops = families.counters(
            "freehold_ingester_upstream_drops_total",
            "Falls of a tenant's series upstream, by how they were understood.",
        );
        for (explained, count) in Explained::ALL.iter().zip(&counts.drops) {
            drops.sample([("explained", explained.label())], read(count) as f64);
        }
        self.read_tenants(families);
    }

    fn read_tenants(&self, families: &mut Families) {
        let mut tenants = self.ingester.tenants.all();
        tenants.sort_by(|a, b| a.id.cmp(&b.id));
        let mut series = families.gauges(
            "freehold_ingester_upstream_series",
            "Series in the upstream's head per user, as of the last poll.",
        );
        for tenant in &tenants {
            let value = tenant.upstream.series.load(Ordering::Relaxed);
            series.sample([("user", tenant.id.as_str())], value as f64);
        }
        let mut residue = families.gauges(
            "freehold_ingester_upstream_residue_series",
            "Series upstream that no listing names, per user: those without samples.",
        );
        for tenant in &tenants {
            let value = tenant.upstream.residue.load(Ordering::Relaxed);
            residue.sample([("user", tenant.id.as_str())], value as f64);
        }
        let mut drift = families.gauges(
            "freehold_ingester_upstream_drift_series",
            "Series upstream beyond those known here and the residue, per user; below zero, known here beyond the upstream's.",
        );
        for tenant in &tenants {
            let value = tenant.upstream.drift.load(Ordering::Relaxed);
            drift.sample([("user", tenant.id.as_str())], value as f64);
        }
    }
}
