//! What came in, tenant by tenant, and what became of it.
//!
//! A tenant's numbers are made by its first request and go when it has sent none for a while, as
//! in Cortex; they are statistics, and a request that overlaps the removal may be counted into
//! numbers that nobody reads any more.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use crate::clock::Now;
use crate::distributor::prepared::{Counts, Discarded};
use crate::distributor::turns::Turns;
use crate::exposition::{Counter, Families, RefusedCount};
use crate::sync::{AtomicI64, Mutex, Ordering};
use crate::tenant::TenantId;
use crate::wire::write_request::Summary;

/// Tenants whose numbers are kept, at about 500 bytes each: 32 MiB. A flood of made-up names
/// would fill memory and every scrape; later ones are counted together, without a name.
pub const TENANTS_MAX: usize = 65_536;
/// A tenant that has sent nothing for so long is forgotten: Cortex's 15 minutes.
const IDLE_NS_MAX: i64 = 15 * 60 * 1_000_000_000;

/// Totals that the distributor behind us counts under the same name for the same traffic; summed
/// over both, everything would count twice. Refusals are ours alone, and stay.
pub const UPSTREAMS_OWN: [&str; 8] = [
    "cortex_distributor_exemplars_in_total",
    "cortex_distributor_latest_seen_sample_timestamp_seconds",
    "cortex_distributor_metadata_in_total",
    "cortex_distributor_push_requests_total",
    "cortex_distributor_received_exemplars_total",
    "cortex_distributor_received_metadata_total",
    "cortex_distributor_received_samples_total",
    "cortex_distributor_samples_in_total",
];

/// What a request says it is: the `type` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum RequestKind {
    V1,
    V2,
    /// Of another content type, read as version 1.
    Unknown,
    Otlp,
}

impl RequestKind {
    const ALL: [Self; 4] = [Self::V1, Self::V2, Self::Unknown, Self::Otlp];

    fn label(self) -> &'static str {
        match self {
            Self::V1 => "prw1",
            Self::V2 => "prw2",
            Self::Unknown => "unknown",
            Self::Otlp => "otlp",
        }
    }
}

/// Requests by what they say they are.
#[derive(Default)]
pub struct Requests([Counter; RequestKind::ALL.len()]);

impl Requests {
    pub fn came(&self, kind: RequestKind) {
        self.0[kind as usize].add(1);
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let mut requests = families.counters(
            "cortex_distributor_push_requests_total",
            "Total number of push requests by type.",
        );
        for kind in RequestKind::ALL {
            let count = self.0[kind as usize].get();
            if count > 0 {
                requests.sample([("type", kind.label())], count as f64);
            }
        }
    }
}

/// All tenants' numbers.
#[derive(Default)]
pub struct Tenants {
    /// Held for a look-up; written only when a tenant comes or goes.
    map: RwLock<HashMap<TenantId, Arc<TenantCounters>>>,
    /// Requests of tenants beyond [`TENANTS_MAX`].
    untracked: Counter,
}

/// One tenant's numbers.
#[derive(Default)]
pub struct TenantCounters {
    samples_in: Counter,
    histograms_in: Counter,
    exemplars_in: Counter,
    metadata_in: Counter,
    samples_received: Counter,
    histograms_received: Counter,
    exemplars_received: Counter,
    metadata_received: Counter,
    latest_sample_ms: AtomicI64,
    shadow_refused: Counter,
    discarded: Mutex<Discards>,
    last_request_ns: AtomicI64,
    pub(super) turns: Turns,
}

/// By reason; the reasons are the few of validation and of the limiters.
#[derive(Default)]
struct Discards {
    samples: BTreeMap<&'static str, u64>,
    exemplars: BTreeMap<&'static str, u64>,
    metadata: BTreeMap<&'static str, u64>,
}

impl Tenants {
    /// The numbers of a tenant whose request has come.
    pub fn enter(&self, tenant: &TenantId, now: Now) -> Arc<TenantCounters> {
        let counters = self.known(tenant).unwrap_or_else(|| self.add(tenant));
        counters.last_request_ns.fetch_max(now.steady_ns, Ordering::Relaxed);
        counters
    }

    /// The numbers of a tenant that has sent something sound before.
    pub fn known(&self, tenant: &TenantId) -> Option<Arc<TenantCounters>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }

    fn add(&self, tenant: &TenantId) -> Arc<TenantCounters> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = map.get(tenant) {
            return Arc::clone(counters);
        }
        let counters = Arc::<TenantCounters>::default();
        if map.len() < TENANTS_MAX {
            map.insert(tenant.clone(), Arc::clone(&counters));
        } else {
            self.untracked.add(1);
        }
        counters
    }

    /// Forgets tenants that have been silent; returns how many are left.
    pub fn sweep(&self, now: Now) -> usize {
        let oldest_ns = now.steady_ns.saturating_sub(IDLE_NS_MAX);
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        map.retain(|_, counters| counters.last_request_ns.load(Ordering::Relaxed) >= oldest_ns);
        map.len()
    }

    fn sorted(&self) -> Vec<(TenantId, Arc<TenantCounters>)> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            map.iter().map(|(id, counters)| (id.clone(), Arc::clone(counters))).collect();
        drop(map);
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// What was discarded of each tenant, by reason. Holds one tenant's lock at a time.
    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let tenants: Vec<_> =
            map.iter().map(|(id, counters)| (id.clone(), Arc::clone(counters))).collect();
        drop(map);
        for (id, counters) in tenants {
            counters.tell_refused(id.as_str(), tell);
        }
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let tenants = self.sorted();
        read_by_type(
            families,
            "cortex_distributor_samples_in_total",
            "The total number of samples that have come in to the distributor, including rejected \
             or deduped samples.",
            &tenants,
            |counters| (counters.samples_in.get(), counters.histograms_in.get()),
        );
        read_by_type(
            families,
            "cortex_distributor_received_samples_total",
            "The total number of received samples, excluding rejected and deduped samples.",
            &tenants,
            |counters| (counters.samples_received.get(), counters.histograms_received.get()),
        );
        let mut counter = |name, help, read: &dyn Fn(&TenantCounters) -> u64| {
            let mut family = families.counters(name, help);
            for (id, counters) in &tenants {
                family.sample([("user", id.as_str())], read(counters) as f64);
            }
        };
        counter(
            "cortex_distributor_exemplars_in_total",
            "The total number of exemplars that have come in to the distributor, including \
             rejected or deduped exemplars.",
            &|counters| counters.exemplars_in.get(),
        );
        counter(
            "cortex_distributor_metadata_in_total",
            "The total number of metadata that have come in to the distributor, including rejected.",
            &|counters| counters.metadata_in.get(),
        );
        counter(
            "cortex_distributor_received_exemplars_total",
            "The total number of received exemplars, excluding rejected and deduped exemplars.",
            &|counters| counters.exemplars_received.get(),
        );
        counter(
            "cortex_distributor_received_metadata_total",
            "The total number of received metadata, excluding rejected.",
            &|counters| counters.metadata_received.get(),
        );
        let mut shadow = families.counters(
            "freehold_distributor_client_shadow_refused_total",
            "Samples, exemplars and metadata that budgets of clients would have refused, of tenants \
             that only count.",
        );
        for (id, counters) in &tenants {
            let refused = counters.shadow_refused.get();
            if refused > 0 {
                shadow.sample([("user", id.as_str())], refused as f64);
            }
        }
        let mut latest = families.gauges(
            "cortex_distributor_latest_seen_sample_timestamp_seconds",
            "Unix timestamp of latest received sample per user.",
        );
        for (id, counters) in &tenants {
            let latest_ms = counters.latest_sample_ms.load(Ordering::Relaxed);
            if latest_ms > 0 {
                latest.sample([("user", id.as_str())], latest_ms as f64 / 1000.0);
            }
        }
        read_discards(families, &tenants);
        families.counter(
            "freehold_distributor_untracked_tenants_total",
            "Requests of tenants beyond the number whose counters are kept.",
            self.untracked.get(),
        );
    }
}

type Named = (TenantId, Arc<TenantCounters>);

/// Float samples and native histograms of each tenant.
fn read_by_type(
    families: &mut Families,
    name: &str,
    help: &str,
    tenants: &[Named],
    read: fn(&TenantCounters) -> (u64, u64),
) {
    let mut family = families.counters(name, help);
    for (id, counters) in tenants {
        let (floats, histograms) = read(counters);
        family.sample([("type", "float"), ("user", id.as_str())], floats as f64);
        family.sample([("type", "histogram"), ("user", id.as_str())], histograms as f64);
    }
}

fn read_discards(families: &mut Families, tenants: &[Named]) {
    let mut family = |name, help, read: fn(&Discards) -> &BTreeMap<&'static str, u64>| {
        let mut family = families.counters(name, help);
        for (id, counters) in tenants {
            let discards = counters.discards();
            for (reason, count) in read(&discards) {
                family.sample([("reason", reason), ("user", id.as_str())], *count as f64);
            }
        }
    };
    family(
        "cortex_discarded_samples_total",
        "The total number of samples that were discarded.",
        |discards| &discards.samples,
    );
    family(
        "cortex_discarded_exemplars_total",
        "The total number of exemplars that were discarded.",
        |discards| &discards.exemplars,
    );
    family(
        "cortex_discarded_metadata_total",
        "The total number of metadata that were discarded.",
        |discards| &discards.metadata,
    );
}

impl TenantCounters {
    /// Counts all that a request carried, whatever becomes of it.
    pub fn came_in(&self, summary: &Summary) {
        self.samples_in.add(summary.samples);
        self.histograms_in.add(summary.histograms);
        self.exemplars_in.add(summary.exemplars);
        self.metadata_in.add(summary.metadata);
        if summary.newest_ms > 0 {
            self.latest_sample_ms.store(summary.newest_ms, Ordering::Relaxed);
        }
    }

    /// Counts what validation let pass.
    pub fn received(&self, counts: &Counts) {
        self.samples_received.add(counts.samples);
        self.histograms_received.add(counts.histograms);
        self.exemplars_received.add(counts.exemplars);
        self.metadata_received.add(counts.metadata);
    }

    /// Counts what validation left out.
    pub fn discarded(&self, discarded: &Discarded) {
        if *discarded == Discarded::default() {
            return;
        }
        let mut discards = self.discards();
        let Discards { samples, exemplars, metadata } = &mut *discards;
        for (into, from) in [
            (samples, &discarded.samples),
            (exemplars, &discarded.exemplars),
            (metadata, &discarded.metadata),
        ] {
            for (reason, count) in from {
                *into.entry(reason).or_default() += count;
            }
        }
    }

    /// Counts a whole request that was over the tenant's rate.
    pub fn discarded_whole(&self, reason: &'static str, counts: &Counts) {
        let mut discards = self.discards();
        let Discards { samples, exemplars, metadata } = &mut *discards;
        for (into, count) in [
            (samples, counts.samples + counts.histograms),
            (exemplars, counts.exemplars),
            (metadata, counts.metadata),
        ] {
            if count > 0 {
                *into.entry(reason).or_default() += count;
            }
        }
    }

    /// Counts what a client's budget would have refused.
    pub fn shadow_refused(&self, items: u64) {
        self.shadow_refused.add(items);
    }

    /// Counts samples that were left out, for histograms over their rate.
    pub fn discarded_samples(&self, reason: &'static str, count: u64) {
        *self.discards().samples.entry(reason).or_default() += count;
    }

    /// What was discarded of this tenant, by reason.
    pub fn tell_refused(&self, tenant: &str, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        let discards = self.discards();
        for (metric, unit, counts) in [
            ("cortex_discarded_samples_total", "samples", &discards.samples),
            ("cortex_discarded_exemplars_total", "exemplars", &discards.exemplars),
            ("cortex_discarded_metadata_total", "metadata", &discards.metadata),
        ] {
            for (&reason, &count) in counts {
                tell(RefusedCount { metric, unit, reason, tenant: Some(tenant), count });
            }
        }
    }

    /// What budgets of clients would have refused of a tenant that only counts.
    pub fn shadow_refused_total(&self) -> u64 {
        self.shadow_refused.get()
    }

    fn discards(&self) -> crate::sync::MutexGuard<'_, Discards> {
        // Numbers, each valid by itself: a panic in between leaves no bad state.
        self.discarded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(steady_s: i64) -> Now {
        Now { unix_ms: 0, steady_ns: steady_s * 1_000_000_000 }
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).expect("a tenant")
    }

    #[test]
    fn a_silent_tenants_numbers_go() {
        let tenants = Tenants::default();
        tenants.enter(&tenant("a"), now(0));
        tenants.enter(&tenant("b"), now(600));
        assert_eq!(tenants.sweep(now(900)), 2);
        assert_eq!(tenants.sweep(now(901)), 1);
        assert_eq!(tenants.sorted()[0].0, tenant("b"));
    }

    #[test]
    fn case_r40_made_up_tenants_use_bounded_memory() {
        let tenants = Tenants::default();
        for number in 0..TENANTS_MAX + 10 {
            tenants.enter(&tenant(&format!("t{number}")), now(0));
        }
        assert_eq!(tenants.sweep(now(0)), TENANTS_MAX);
        assert_eq!(tenants.untracked.get(), 10);
    }
}
