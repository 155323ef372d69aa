//! One bucket per tenant, with rates that follow the configuration.
//!
//! A tenant's rate and burst are asked for when its bucket is made and again once the recheck
//! period is over, so a change of limits, or of the number of healthy distributors, is in force
//! within that period. The caller gives them; this room knows neither limits nor rings.
//!
//! Buckets live in shards, each under its own lock. Two tenants share a lock by chance only, and
//! it is held for one look-up and one take. Lock order: one shard at a time.

use std::time::Duration;

use crossbeam::utils::CachePadded;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::bucket::{Bucket, RATE_UNLIMITED};
use crate::go_text::Float;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::tenant::TenantId;

/// How long a tenant's rate and burst stay in force before they are asked for again.
pub const RECHECK_PERIOD: Duration = Duration::from_secs(10);

const SHARDS: usize = 64;

/// Most tenants of one shard that have a bucket.
const SHARD_TENANTS_MAX: usize = 4096;

/// Most tenants that have a bucket; at about 120 bytes each that is 32 MiB.
///
/// At the bound a shard first drops the buckets that are full again, once per recheck period. If
/// that frees nothing, a tenant without a bucket is judged by a full one that is not kept: it may
/// burst with each request, which it could have under a new name anyway, while known tenants stay
/// limited. Counted as untracked.
pub const TENANTS_MAX: usize = SHARDS * SHARD_TENANTS_MAX;

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
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    untracked_total: AtomicU64,
}

#[derive(Default)]
struct Shard {
    entries: HashTable<Entry>,
    /// When a full shard may be searched for idle entries again: the search visits all of them,
    /// and a flood of new names must not pay for it, or make others wait for it, each time.
    search_again_ns: i64,
}

struct Entry {
    tenant: TenantId,
    bucket: Bucket,
    recheck_ns: i64,
}

impl Entry {
    /// Full, and past its recheck: a new bucket would say the same.
    fn is_idle_at(&self, now_ns: i64) -> bool {
        now_ns >= self.recheck_ns && self.bucket.is_full_at(now_ns)
    }
}

impl TenantLimiter {
    pub fn new(recheck_period: Duration) -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::new(Mutex::new(Shard::default())));
        Self {
            recheck_ns: i64::try_from(recheck_period.as_nanos()).unwrap_or(i64::MAX),
            hasher: DefaultHashBuilder::default(),
            shards: shards.collect(),
            untracked_total: AtomicU64::new(0),
        }
    }

    /// Takes `credits` from the tenant's bucket, or says why not; a refusal changes nothing.
    ///
    /// `budget` is called under the shard's lock, for a new bucket and once per recheck period.
    pub fn take(
        &self,
        tenant: &TenantId,
        credits: u64,
        now_ns: i64,
        budget: impl FnOnce() -> Budget,
    ) -> Result<Charge, OverRate> {
        let hash = self.hash(tenant);
        let mut shard = self.shard(hash);
        if let Some(entry) = shard.entries.find_mut(hash, |entry| entry.tenant == *tenant) {
            if now_ns >= entry.recheck_ns {
                let Budget { rate, burst } = budget();
                if entry.bucket.rate() != rate {
                    entry.bucket.set_rate(rate, now_ns);
                }
                if entry.bucket.burst() != burst {
                    entry.bucket.set_burst(burst, now_ns);
                }
                entry.recheck_ns = now_ns.saturating_add(self.recheck_ns);
            }
            return take(&mut entry.bucket, credits, now_ns);
        }
        let Budget { rate, burst } = budget();
        let mut bucket = Bucket::new(rate, burst);
        let taken = take(&mut bucket, credits, now_ns);
        if shard.entries.len() >= SHARD_TENANTS_MAX && now_ns >= shard.search_again_ns {
            shard.entries.retain(|entry| !entry.is_idle_at(now_ns));
            shard.search_again_ns = now_ns.saturating_add(self.recheck_ns);
        }
        if shard.entries.len() < SHARD_TENANTS_MAX {
            let recheck_ns = now_ns.saturating_add(self.recheck_ns);
            let entry = Entry { tenant: tenant.clone(), bucket, recheck_ns };
            shard.entries.insert_unique(hash, entry, |entry| self.hash(&entry.tenant));
        } else {
            self.untracked_total.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Returns a charge that bought nothing, less what the bucket has refilled since.
    pub fn give_back(&self, tenant: &TenantId, charge: Charge, now_ns: i64) {
        let hash = self.hash(tenant);
        // Without an entry the bucket was full, and would lose the charge at the brim.
        if let Some(entry) =
            self.shard(hash).entries.find_mut(hash, |entry| entry.tenant == *tenant)
        {
            entry.bucket.give_back(charge.credits, charge.taken_ns, now_ns);
        }
    }

    pub fn view(&self, tenant: &TenantId, now_ns: i64) -> Option<BucketView> {
        let hash = self.hash(tenant);
        let shard = self.shard(hash);
        let bucket = &shard.entries.find(hash, |entry| entry.tenant == *tenant)?.bucket;
        Some(BucketView {
            credits: bucket.credits_at(now_ns),
            rate: bucket.rate(),
            burst: bucket.burst(),
        })
    }

    /// Drops the buckets of tenants that are idle and owe nothing.
    pub fn sweep(&self, now_ns: i64) -> Swept {
        let mut swept = Swept::default();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.entries.len();
            shard.entries.retain(|entry| !entry.is_idle_at(now_ns));
            swept.kept += shard.entries.len();
            swept.removed += before - shard.entries.len();
        }
        swept
    }

    /// Requests judged without a kept bucket, since the table was at [`TENANTS_MAX`].
    pub fn untracked_total(&self) -> u64 {
        self.untracked_total.load(Ordering::Relaxed)
    }

    fn hash(&self, tenant: &TenantId) -> u64 {
        use std::hash::BuildHasher as _;
        self.hasher.hash_one(tenant.as_str())
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The table uses the lowest bits for the slot and the topmost for its tags.
        let index = (hash >> 32) as usize % SHARDS;
        lock(&self.shards[index])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A bucket is a few numbers, each valid by itself: a panic in between leaves no bad state.
    shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
