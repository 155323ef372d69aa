//! What is refused now: how much the counters of refusals grew within about the last minute.
//!
//! Counters tell what was refused since the start, which says nothing of now. So they are looked at
//! every [`SLOT_MS`], and whenever a page is made; what they grew by is kept for a minute, by reason
//! and tenant. A look reads counters that are there anyway: pushes pay nothing for it.
//!
//! Bounds: `TENANT_ROWS_MAX` rows of tenants are told apart from look to look, and
//! `TENANTS_KEPT_MAX` of each reason in each slot; what is beyond counts for the reason alone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use serde::Serialize;

use super::reasons;
use crate::clock::Now;
use crate::exposition::RefusedCount;

/// How long a slot is filled. With `SLOTS` full ones a page speaks of about a minute.
pub const SLOT_MS: i64 = 10_000;
/// A look that comes a little early ends a slot too, or every second one would be missed.
const SLOT_MS_MIN: i64 = SLOT_MS * 9 / 10;
/// Slots that are kept when they are full: a minute of them.
const SLOTS: usize = 6;

/// Rows of tenants by reason whose counts are remembered, at about 150 bytes: 3 MB. More tenants
/// than this are refused at once only where everybody is, and then the reason is what matters.
const TENANT_ROWS_MAX: usize = 20_000;
/// Tenants of each reason that a full slot keeps, those with most refusals.
const TENANTS_KEPT_MAX: usize = 50;
/// Tenants of each reason that a page shows.
const TENANTS_SHOWN_MAX: usize = 5;
/// Reasons are words of closed sets; this is against a room that would break with that.
const REASONS_MAX: usize = 256;

/// Tells of a room's counts; called with no lock of the pages held that a push could meet.
pub type TellRefused = dyn Fn(&mut dyn FnMut(RefusedCount<'_>)) + Send + Sync;

/// One that refuses.
#[derive(Clone)]
pub struct RefusalSource {
    /// Who it is, in the words of a page: `Ingester`.
    pub by: &'static str,
    /// The page with more of it.
    pub page: Option<&'static str>,
    /// What leads to a tenant's page when its name is put behind: `/tenants/tenant?id=`.
    pub tenant_page: Option<&'static str>,
    pub tell: Arc<TellRefused>,
}

/// The counts of all sources, looked at again and again.
pub struct Refusals {
    sources: Vec<RefusalSource>,
    /// Held while the counters are read, by a thread that makes a page or looks; never by a push.
    seen: Mutex<Seen>,
}

/// What is refused now, most first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RefusedNow {
    /// Seconds that it is about.
    pub over_seconds: f64,
    pub reasons: Vec<RefusedReason>,
}

/// One reason of one who refuses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RefusedReason {
    pub by: &'static str,
    pub reason: &'static str,
    /// What is counted.
    pub unit: &'static str,
    pub count: u64,
    pub per_second: f64,
    /// What that means, and what to do.
    pub means: &'static str,
    /// Where it is written down, in the documentation.
    pub docs: &'static str,
    /// The metric that counts it.
    pub metric: &'static str,
    /// The page with more of it.
    pub page: Option<&'static str>,
    /// What leads to a tenant's page when its name is put behind.
    #[serde(skip)]
    pub tenant_page: Option<&'static str>,
    /// Those with most, where it is counted by tenant.
    pub tenants: Vec<RefusedTenant>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RefusedTenant {
    pub tenant: String,
    pub count: u64,
    pub per_second: f64,
}

/// Place of the source, the metric and the reason.
type ReasonKey = (usize, &'static str, &'static str);

struct Seen {
    totals: HashMap<ReasonKey, Totals>,
    /// Rows of tenants in `totals`.
    tenant_rows: usize,
    /// Number of the look, by which one sees what was not told of any more.
    look: u64,
    full: VecDeque<Slot>,
    filling: Slot,
    /// When the latest look was.
    looked_ns: i64,
}

/// Of one reason, as of the latest look.
#[derive(Default)]
struct Totals {
    unit: &'static str,
    /// Without a tenant: what is counted so, and tenants beyond the bound.
    unnamed: u64,
    tenants: HashMap<Box<str>, TenantTotal>,
}

struct TenantTotal {
    count: u64,
    look: u64,
}

/// What the counters grew by since `began_ns`.
#[derive(Default)]
struct Slot {
    began_ns: i64,
    grown: HashMap<ReasonKey, Grown>,
}

#[derive(Default)]
struct Grown {
    count: u64,
    tenants: HashMap<Box<str>, u64>,
}

impl Refusals {
    /// Counts from now on: what the sources have counted before is not now.
    pub fn new(sources: Vec<RefusalSource>, now: Now) -> Self {
        let filling = Slot { began_ns: now.steady_ns, ..Slot::default() };
        let seen = Seen {
            totals: HashMap::new(),
            tenant_rows: 0,
            look: 0,
            full: VecDeque::with_capacity(SLOTS + 1),
            filling,
            looked_ns: now.steady_ns,
        };
        let refusals = Self { sources, seen: Mutex::new(seen) };
        refusals.look(now);
        let mut seen = refusals.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.filling.grown.clear();
        drop(seen);
        refusals
    }

    /// Reads the counters. To be called every [`SLOT_MS`] at least.
    pub fn look(&self, now: Now) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = &mut *seen;
        seen.look += 1;
        for (place, source) in self.sources.iter().enumerate() {
            // What is unnamed comes in parts, so it is added up before it is compared.
            let mut unnamed: HashMap<ReasonKey, u64> = HashMap::new();
            (source.tell)(&mut |told| seen.take(place, told, &mut unnamed));
            for (key, count) in unnamed {
                seen.take_unnamed(key, count);
            }
        }
        seen.forget_gone();
        seen.looked_ns = now.steady_ns;
        seen.turn(now.steady_ns);
    }

    /// What was refused within the last minute or so, up to this moment.
    pub fn now(&self, now: Now) -> RefusedNow {
        self.look(now);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let first = seen.full.front().unwrap_or(&seen.filling);
        let over_seconds =
            (now.steady_ns.saturating_sub(first.began_ns).max(0) as f64 / 1e9).max(1.0);
        let mut sums: HashMap<ReasonKey, Grown> = HashMap::new();
        for slot in seen.full.iter().chain([&seen.filling]) {
            for (key, grown) in &slot.grown {
                let sum = sums.entry(*key).or_default();
                sum.count += grown.count;
                for (tenant, count) in &grown.tenants {
                    *sum.tenants.entry(tenant.clone()).or_default() += count;
                }
            }
        }
        let mut reasons: Vec<_> = sums
            .into_iter()
            .filter(|(_, grown)| grown.count > 0)
            .map(|((place, metric, reason), grown)| {
                let source = &self.sources[place];
                let told = reasons::of(reason);
                let key = (place, metric, reason);
                RefusedReason {
                    by: source.by,
                    reason,
                    unit: seen.totals.get(&key).map_or("", |totals| totals.unit),
                    count: grown.count,
                    per_second: grown.count as f64 / over_seconds,
                    means: told.means,
                    docs: told.docs,
                    metric,
                    page: source.page,
                    tenant_page: source.tenant_page,
                    tenants: most(grown.tenants, TENANTS_SHOWN_MAX)
                        .into_iter()
                        .map(|(tenant, count)| RefusedTenant {
                            tenant: tenant.into(),
                            count,
                            per_second: count as f64 / over_seconds,
                        })
                        .collect(),
                }
            })
            .collect();
        reasons.sort_by(|a, b| {
            b.count.cmp(&a.count).then_with(|| (a.by, a.reason).cmp(&(b.by, b.reason)))
        });
        RefusedNow { over_seconds, reasons }
    }
}

impl Seen {
    fn take(
        &mut self,
        place: usize,
        told: RefusedCount<'_>,
        unnamed: &mut HashMap<ReasonKey, u64>,
    ) {
        let RefusedCount { metric, unit, reason, tenant, count } = told;
        let key = (place, metric, reason);
        if !self.totals.contains_key(&key) {
            // Most have refused nothing ever, and need no row.
            if count == 0 || self.totals.len() >= REASONS_MAX {
                return;
            }
            self.totals.insert(key, Totals { unit, ..Totals::default() });
        }
        let Some(totals) = self.totals.get_mut(&key) else { return };
        let Some(tenant) = tenant else {
            *unnamed.entry(key).or_default() += count;
            return;
        };
        let look = self.look;
        let grown = match totals.tenants.get_mut(tenant) {
            Some(total) => {
                total.look = look;
                grown_by(std::mem::replace(&mut total.count, count), count)
            }
            None if count == 0 => return,
            None if self.tenant_rows >= TENANT_ROWS_MAX => {
                *unnamed.entry(key).or_default() += count;
                return;
            }
            None => {
                self.tenant_rows += 1;
                totals.tenants.insert(tenant.into(), TenantTotal { count, look });
                count
            }
        };
        if grown > 0 {
            let of_reason = self.filling.grown.entry(key).or_default();
            of_reason.count += grown;
            if let Some(sum) = of_reason.tenants.get_mut(tenant) {
                *sum += grown;
            } else {
                of_reason.tenants.insert(tenant.into(), grown);
            }
        }
    }

    fn take_unnamed(&mut self, key: ReasonKey, count: u64) {
        let Some(totals) = self.totals.get_mut(&key) else { return };
        // Tenants beyond the bound come and go, so this sum may fall; then nothing is known of it.
        let grown = count.saturating_sub(std::mem::replace(&mut totals.unnamed, count));
        if grown > 0 {
            self.filling.grown.entry(key).or_default().count += grown;
        }
    }

    /// Tenants that their rooms have forgotten.
    fn forget_gone(&mut self) {
        let look = self.look;
        for totals in self.totals.values_mut() {
            let before = totals.tenants.len();
            totals.tenants.retain(|_, total| total.look == look);
            self.tenant_rows -= before - totals.tenants.len();
        }
    }

    /// Begins a new slot when the one that is filled is full.
    fn turn(&mut self, now_ns: i64) {
        if now_ns.saturating_sub(self.filling.began_ns) < SLOT_MS_MIN * 1_000_000 {
            return;
        }
        let next = Slot { began_ns: now_ns, ..Slot::default() };
        let mut full = std::mem::replace(&mut self.filling, next);
        for grown in full.grown.values_mut() {
            if grown.tenants.len() > TENANTS_KEPT_MAX {
                let kept = most(std::mem::take(&mut grown.tenants), TENANTS_KEPT_MAX);
                grown.tenants = kept.into_iter().collect();
            }
        }
        self.full.push_back(full);
        if self.full.len() > SLOTS {
            self.full.pop_front();
        }
    }
}

/// A counter that is lower than before is another one, which began anew.
fn grown_by(before: u64, now: u64) -> u64 {
    if now >= before { now - before } else { now }
}

/// Those with most, most first.
fn most(tenants: HashMap<Box<str>, u64>, len_max: usize) -> Vec<(Box<str>, u64)> {
    let mut tenants: Vec<_> = tenants.into_iter().collect();
    tenants.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    tenants.truncate(len_max);
    tenants
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRIC: &str = "cortex_discarded_samples_total";

    type Rows = Arc<Mutex<Vec<(&'static str, Option<String>, u64)>>>;

    fn at(seconds: i64) -> Now {
        Now { unix_ms: 0, steady_ns: seconds * 1_000_000_000 }
    }

    fn refusals(rows: &Rows) -> Refusals {
        let rows = Arc::clone(rows);
        let tell: Arc<TellRefused> = Arc::new(move |tell: &mut dyn FnMut(RefusedCount<'_>)| {
            for &(reason, ref tenant, count) in rows.lock().expect("rows").iter() {
                let (unit, tenant) = ("samples", tenant.as_deref());
                tell(RefusedCount { metric: METRIC, unit, reason, tenant, count });
            }
        });
        Refusals::new(
            vec![RefusalSource { by: "Gate", page: None, tenant_page: None, tell }],
            at(1),
        )
    }

    fn set(rows: &Rows, now: &[(&'static str, &str, u64)]) {
        let row = |&(reason, tenant, count): &(&'static str, &str, u64)| {
            (reason, (!tenant.is_empty()).then(|| tenant.to_owned()), count)
        };
        *rows.lock().expect("rows") = now.iter().map(row).collect();
    }

    #[test]
    fn what_was_refused_before_is_not_now_and_a_minute_later_neither() {
        let rows = Rows::default();
        set(&rows, &[("rate_limited", "a", 1000), ("max_series", "", 7)]);
        let refusals = refusals(&rows);
        assert_eq!(refusals.now(at(5)).reasons, []);

        set(
            &rows,
            &[("rate_limited", "a", 1030), ("rate_limited", "b", 10), ("max_series", "", 8)],
        );
        let now = refusals.now(at(11));
        assert_eq!(now.over_seconds, 10.0);
        let [rate, series] = now.reasons.as_slice() else { panic!("two reasons: {now:?}") };
        assert_eq!((rate.by, rate.reason, rate.unit), ("Gate", "rate_limited", "samples"));
        assert_eq!((rate.count, rate.per_second), (40, 4.0));
        let tenants: Vec<_> =
            rate.tenants.iter().map(|row| (row.tenant.as_str(), row.count)).collect();
        assert_eq!(tenants, [("a", 30), ("b", 10)]);
        assert_eq!((series.reason, series.count, series.tenants.len()), ("max_series", 1, 0));
        assert!(!rate.means.is_empty() && rate.docs.starts_with("docs/"));

        for second in (20..=60).step_by(10) {
            assert_eq!(refusals.now(at(second)).reasons.len(), 2, "{second}");
        }
        refusals.look(at(71));
        let later = refusals.now(at(81));
        assert_eq!(later.reasons, [], "{later:?}");
        assert!((50.0..=70.0).contains(&later.over_seconds), "{}", later.over_seconds);
    }

    #[test]
    fn a_tenant_that_went_and_came_back_is_counted_from_nothing() {
        let rows = Rows::default();
        set(&rows, &[("rate_limited", "a", 50)]);
        let refusals = refusals(&rows);
        set(&rows, &[("rate_limited", "a", 20)]);
        assert_eq!(refusals.now(at(3)).reasons[0].count, 20, "its counter began anew");
        set(&rows, &[]);
        refusals.look(at(4));
        set(&rows, &[("rate_limited", "a", 5)]);
        assert_eq!(refusals.now(at(5)).reasons[0].count, 25);
    }

    #[test]
    fn any_number_of_tenants_fits_and_their_refusals_are_not_lost() {
        let rows = Rows::default();
        let refusals = refusals(&rows);
        let tenants = 3 * TENANT_ROWS_MAX / 2;
        let all = |count: u64| -> Vec<_> {
            let name = |number| Some(format!("tenant-{number}"));
            (0..tenants).map(|number| ("rate_limited", name(number), count)).collect()
        };
        *rows.lock().expect("rows") = all(1);
        assert_eq!(refusals.now(at(2)).reasons[0].count, tenants as u64);
        *rows.lock().expect("rows") = all(3);
        let now = refusals.now(at(12));
        assert_eq!(now.reasons[0].count, 3 * tenants as u64);
        assert_eq!(now.reasons[0].tenants.len(), TENANTS_SHOWN_MAX);
        let seen = refusals.seen.lock().expect("seen");
        assert_eq!(seen.tenant_rows, TENANT_ROWS_MAX);
        let kept: usize = seen
            .full
            .iter()
            .flat_map(|slot| slot.grown.values())
            .map(|one| one.tenants.len())
            .sum();
        assert_eq!(kept, TENANTS_KEPT_MAX);
    }
}
