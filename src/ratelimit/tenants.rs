//! One bucket per tenant, with rates that follow the configuration.
//!
//! A tenant's rate and burst are asked for when its bucket is made and again once the recheck
//! period is over, so a change of limits, or of the number of healthy distributors, is in force
//! within that period. The caller gives them; this room knows neither limits nor rings.
//!
//! Each bucket has a lock of its own, held for one take.

use std::time::Duration;

use hashbrown::DefaultHashBuilder;

use super::bucket::{Bucket, RATE_UNLIMITED};
use crate::go_text::Float;
use crate::sync::{AtomicU64, Ordering};
use crate::tenant::TenantId;
use lines::{LINES_MAX, Lines, Name};

mod lines;

/// How long a tenant's rate and burst stay in force before they are asked for again.
pub const RECHECK_PERIOD: Duration = Duration::from_secs(10);

/// Most tenants that have a bucket; a cache line each, and 22 MiB in all.
///
/// A tenant that finds no room among its neighbours takes the place of one whose bucket is full
/// again. If there is none, it is judged by a full one that is not kept: it may burst with each
/// request, which it could have under a new name anyway, while known tenants stay limited. Counted
/// as untracked.
pub const TENANTS_MAX: usize = LINES_MAX;

/// How far above its share of a tenant's writes an instance may be: hashing spreads series evenly,
/// not their samples.
pub const SHARE_TOLERANCE: f64 = 1.5;

/// How a tenant's configured rate becomes the rate of this instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The rate is meant per instance.
    Local,
    /// The rate is meant for all healthy distributors together.
    Global,
    /// No limit, for writers inside the cluster.
    Infinite,
}

impl Strategy {
    /// What one instance of `healthy_instances` may admit. The burst is never divided.
    ///
    /// None healthy means that the ring is not known yet; then the whole rate applies here.
    pub fn budget(self, rate: f64, burst: u64, healthy_instances: usize) -> Budget {
        match self {
            Self::Infinite => Budget { rate: RATE_UNLIMITED, burst: 0 },
            Self::Global if healthy_instances > 0 && rate != RATE_UNLIMITED => {
                Budget { rate: rate / healthy_instances as f64, burst }
            }
            Self::Local | Self::Global => Budget { rate, burst },
        }
    }
}

/// What a bucket may spend: credits per second, and most at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    pub rate: f64,
    pub burst: u64,
}

impl Budget {
    /// What an instance may see of a budget that distributors enforce over all of them, when it
    /// holds `share` of the tenant's key space (the shares of all instances sum to RF).
    ///
    /// It guards against distributors that are bypassed, so it must not refuse what they admitted:
    /// the rate has [`SHARE_TOLERANCE`], the burst is whole, and a share that is not known or
    /// nothing limits nothing.
    pub fn of_share(rate: f64, burst: u64, share: Option<f64>) -> Self {
        let part = share.filter(|&share| share > 0.0 && rate != RATE_UNLIMITED);
        let rate = part.map_or(RATE_UNLIMITED, |share| rate * share * SHARE_TOLERANCE);
        Self { rate, burst }
    }
}

/// Credits that a request took. Not `Clone`, so that they come back once at most.
#[derive(Debug, PartialEq)]
#[must_use = "a charge that may have to be given back must be kept until the request is decided"]
pub struct Charge {
    credits: u64,
    taken_ns: i64,
}

impl Charge {
    /// Parts with up to `credits` of the charge, to give back only those.
    pub fn split(&mut self, credits: u64) -> Charge {
        let credits = credits.min(self.credits);
        self.credits -= credits;
        Charge { credits, taken_ns: self.taken_ns }
    }

    pub fn credits(&self) -> u64 {
        self.credits
    }
}

/// A refused request: what the tenant has, and when it may come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverRate {
    /// Credits per second that this instance admits.
    pub rate: f64,
    pub burst: u64,
    /// Until the request would pass; `None` if it never can.
    pub wait_ns: Option<u64>,
    /// Size of the request in credits.
    pub asked: u64,
}

/// What the refused request carried, as the texts count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items {
    Ingestion { samples: u64, metadata: u64 },
    NativeHistograms { samples: u64 },
}

/// State of one bucket, for pages and tests; looking changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketView {
    pub credits: f64,
    pub rate: f64,
    pub burst: u64,
}

/// What a sweep found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub removed: usize,
    pub kept: usize,
}

/// A limiter over all tenants.
pub struct TenantLimiter {
    recheck_ns: i64,
    hasher: DefaultHashBuilder,
    lines: Lines,
    untracked_total: AtomicU64,
}

impl TenantLimiter {
    pub fn new(recheck_period: Duration) -> Self {
        Self {
            recheck_ns: i64::try_from(recheck_period.as_nanos()).unwrap_or(i64::MAX),
            hasher: DefaultHashBuilder::default(),
            lines: Lines::new(),
            untracked_total: AtomicU64::new(0),
        }
    }

    /// Takes `credits` from the tenant's bucket, or says why not; a refusal changes nothing.
    ///
    /// `budget` is called under the bucket's lock, for a new one and once per recheck period.
    pub fn take(
        &self,
        tenant: &TenantId,
        credits: u64,
        now_ns: i64,
        budget: impl FnOnce() -> Budget,
    ) -> Result<Charge, OverRate> {
        let Some(mut entry) = self.lines.find_or_enter(self.name(tenant), now_ns) else {
            self.untracked_total.fetch_add(1, Ordering::Relaxed);
            let Budget { rate, burst } = budget();
            return take(&mut Bucket::new(rate, burst), credits, now_ns);
        };
        if now_ns >= entry.recheck_ns {
            let Budget { rate, burst } = budget();
            let is_new = entry.recheck_ns == i64::MIN;
            entry.recheck_ns = now_ns.saturating_add(self.recheck_ns);
            if is_new {
                entry.bucket = Bucket::new(rate, burst);
            }
            if entry.bucket.rate() != rate {
                entry.bucket.set_rate(rate, now_ns);
            }
            if entry.bucket.burst() != burst {
                entry.bucket.set_burst(burst, now_ns);
            }
        }
        take(&mut entry.bucket, credits, now_ns)
    }

    /// Returns a charge that bought nothing, less what the bucket has refilled since.
    pub fn give_back(&self, tenant: &TenantId, charge: Charge, now_ns: i64) {
        // Without an entry the bucket was full, and would lose the charge at the brim.
        if let Some(mut entry) = self.lines.find(self.name(tenant)) {
            entry.bucket.give_back(charge.credits, charge.taken_ns, now_ns);
        }
    }

    pub fn view(&self, tenant: &TenantId, now_ns: i64) -> Option<BucketView> {
        let entry = self.lines.find(self.name(tenant))?;
        Some(BucketView {
            credits: entry.bucket.credits_at(now_ns),
            rate: entry.bucket.rate(),
            burst: entry.bucket.burst(),
        })
    }

    /// Drops the buckets of tenants that are idle and owe nothing.
    pub fn sweep(&self, now_ns: i64) -> Swept {
        let mut swept = Swept::default();
        self.lines.retain(|entry| {
            let is_idle = entry.is_idle_at(now_ns);
            swept.removed += usize::from(is_idle);
            swept.kept += usize::from(!is_idle);
            !is_idle
        });
        swept
    }

    /// Requests judged without a kept bucket, since the table was at [`TENANTS_MAX`].
    pub fn untracked_total(&self) -> u64 {
        self.untracked_total.load(Ordering::Relaxed)
    }

    fn name(&self, tenant: &TenantId) -> Name {
        use std::hash::BuildHasher as _;
        Name::new(self.hasher.hash_one(tenant.as_str()))
    }
}

fn take(bucket: &mut Bucket, credits: u64, now_ns: i64) -> Result<Charge, OverRate> {
    if bucket.take(credits, now_ns) {
        return Ok(Charge { credits, taken_ns: now_ns });
    }
    Err(OverRate {
        rate: bucket.rate(),
        burst: bucket.burst(),
        wait_ns: bucket.wait_ns(credits, now_ns),
        asked: credits,
    })
}

impl OverRate {
    /// The request is larger than the burst: the same request can never pass.
    pub fn is_over_burst(&self) -> bool {
        self.asked > self.burst
    }

    /// Value of the `reason` label. `parity` keeps to Cortex's reasons.
    pub fn reason(&self, items: Items, parity: bool) -> &'static str {
        match (items, !parity && self.is_over_burst()) {
            (Items::Ingestion { .. }, false) => "rate_limited",
            (Items::Ingestion { .. }, true) => "burst_exceeded",
            (Items::NativeHistograms { .. }, false) => "native_histogram_rate_limited",
            (Items::NativeHistograms { .. }, true) => "native_histogram_burst_exceeded",
        }
    }

    /// Cortex's text, to the letter; it names the rate even where the burst refused.
    pub fn cortex_text(&self, items: Items) -> String {
        let rate = Float(self.rate);
        match items {
            Items::Ingestion { samples, metadata } => format!(
                "ingestion rate limit ({rate}) exceeded while adding {samples} samples and \
                 {metadata} metadata"
            ),
            Items::NativeHistograms { samples } => format!(
                "native histogram ingestion rate limit ({rate}) exceeded while adding {samples} \
                 native histogram samples"
            ),
        }
    }

    /// Our text: Cortex's sentence, then which bound was hit and the numbers behind it.
    ///
    /// `configured_rate` is what the tenant's limits say, before `strategy` made it this
    /// instance's.
    pub fn text(&self, items: Items, strategy: Strategy, configured_rate: f64) -> String {
        let (local, global) = match strategy {
            Strategy::Global => (0.0, configured_rate),
            Strategy::Local | Strategy::Infinite => (configured_rate, 0.0),
        };
        let bound = match self.is_over_burst() {
            false => "the rate is used up".to_owned(),
            true => format!(
                "a request of {} items is above the burst and can never be admitted",
                self.asked
            ),
        };
        let cure = match self.is_over_burst() {
            false => "please contact administrator to raise it",
            true => "please send smaller requests or contact administrator to raise it",
        };
        format!(
            "{}; {bound} (local limit: {} global limit: {} actual local limit: {} burst: {}), {cure}",
            self.cortex_text(items),
            Float(local),
            Float(global),
            Float(self.rate),
            self.burst,
        )
    }
}

#[cfg(test)]
mod tests;
