//! Which of a tenant's local limits apply right now.
//!
//! A ring change gives a limit for the new view at once, but a count for it only after a recount.
//! Comparing the old count with the new limit would refuse a tenant for series that have just
//! become somebody else's. So each number is held at the greater of the two until the recount
//! swaps count and limit together; the hold has a deadline, because a recount that never ends
//! must not keep a cluster's limit too high for ever.
//!
//! Without enforcement nothing is held: the count compared is the in-memory one, and the newest
//! limit applies at once, as in Cortex.

use std::sync::Arc;

use super::last::Tick;
use super::refusal::Basis;

/// The number of a limit that is not set.
pub const UNLIMITED: u64 = u64::MAX;

/// Why a limit has the number it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InForce {
    /// The cluster's limit divided by instances.
    #[default]
    Flat,
    /// The cluster's limit by our share of the key space.
    Share,
    /// The number of the previous view, until the recount for the new one is done.
    Held,
}

/// This instance's limits for a tenant; [`UNLIMITED`] where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalLimits {
    pub series: u64,
    pub native_histogram_series: u64,
    /// Of each metric's series.
    pub per_metric: u64,
    /// Of each label set's series, in the order of the configuration in force.
    pub label_sets: Arc<[u64]>,
    /// How the numbers were computed: `Flat` or `Share`.
    pub reason: InForce,
}

impl Default for LocalLimits {
    fn default() -> Self {
        Self {
            series: UNLIMITED,
            native_histogram_series: UNLIMITED,
            per_metric: UNLIMITED,
            label_sets: Arc::default(),
            reason: InForce::Flat,
        }
    }
}

/// A number, and why it is that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub max: u64,
    pub in_force: InForce,
}

/// Names one of a tenant's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitName {
    Series,
    NativeHistogramSeries,
    PerMetric,
    /// By index into the label sets of the configuration.
    LabelSet(u16),
}

impl LocalLimits {
    pub fn get(&self, name: LimitName) -> u64 {
        match name {
            LimitName::Series => self.series,
            LimitName::NativeHistogramSeries => self.native_histogram_series,
            LimitName::PerMetric => self.per_metric,
            LimitName::LabelSet(index) => {
                self.label_sets.get(usize::from(index)).copied().unwrap_or(UNLIMITED)
            }
        }
    }
}

/// Limits of the view in force, and of the one whose recount is due.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitsInForce {
    current: LocalLimits,
    next: Option<Next>,
}

#[derive(Clone, Debug)]
struct Next {
    epoch: u64,
    limits: LocalLimits,
    deadline: Tick,
}

impl LimitsInForce {
    /// Replaces the numbers of the view in force: at once, whatever they are.
    pub(super) fn set(&mut self, limits: LocalLimits) {
        self.current = limits;
    }

    /// Announces the numbers of the view `epoch`, which its recount will put in force.
    pub(super) fn hold(&mut self, epoch: u64, limits: LocalLimits, deadline: Tick) {
        self.next = Some(Next { epoch, limits, deadline });
    }

    /// The recount for the view `epoch` is done: what was announced for it or before applies.
    pub(super) fn swap(&mut self, epoch: u64) {
        if let Some(next) = self.next.take_if(|next| next.epoch <= epoch) {
            self.current = next.limits;
        }
    }

    pub(super) fn get(&self, name: LimitName, basis: Basis, now: Tick) -> Limit {
        let current = Limit { max: self.current.get(name), in_force: self.current.reason };
        let Some(next) = &self.next else {
            return current;
        };
        let max = next.limits.get(name);
        let holds = basis == Basis::Owned && now < next.deadline && current.max > max;
        if holds {
            Limit { max: current.max, in_force: InForce::Held }
        } else {
            Limit { max, in_force: next.limits.reason }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Tick = Tick::new(100);
    const DEADLINE: Tick = Tick::new(160);

    fn series(max: u64) -> LocalLimits {
        LocalLimits { series: max, ..LocalLimits::default() }
    }

    fn in_force(limits: &LimitsInForce, now: Tick) -> (u64, InForce) {
        let limit = limits.get(LimitName::Series, Basis::Owned, now);
        (limit.max, limit.in_force)
    }

    #[test]
    fn case_a4_a_fall_is_held_until_the_recount() {
        let mut limits = LimitsInForce::default();
        limits.set(series(10_000));
        limits.hold(2, series(5_000), DEADLINE);
        assert_eq!(in_force(&limits, T0), (10_000, InForce::Held));
        limits.swap(2);
        assert_eq!(in_force(&limits, T0), (5_000, InForce::Flat));
    }

    #[test]
    fn case_a6_a_rise_applies_at_once_and_a_fall_later_number_by_number() {
        let mut limits = LimitsInForce::default();
        limits.set(LocalLimits { per_metric: 10, ..series(100) });
        limits.hold(2, LocalLimits { per_metric: 20, ..series(50) }, DEADLINE);
        assert_eq!(in_force(&limits, T0), (100, InForce::Held));
        let per_metric = limits.get(LimitName::PerMetric, Basis::Owned, T0);
        assert_eq!(per_metric, Limit { max: 20, in_force: InForce::Flat });
    }

    #[test]
    fn case_a32_an_operators_cut_applies_during_a_hold() {
        // The global limit halves while three instances become six: 10,000 of the old view turns
        // into 5,000, and what the new view will give is 2,500.
        let mut limits = LimitsInForce::default();
        limits.set(series(10_000));
        limits.hold(2, series(5_000), DEADLINE);
        limits.set(series(5_000));
        limits.hold(2, series(2_500), DEADLINE);
        assert_eq!(in_force(&limits, T0), (5_000, InForce::Held));
        limits.swap(2);
        assert_eq!(in_force(&limits, T0), (2_500, InForce::Flat));
    }

    #[test]
    fn a_hold_ends_at_its_deadline() {
        let mut limits = LimitsInForce::default();
        limits.set(series(100));
        limits.hold(2, series(50), DEADLINE);
        assert_eq!(in_force(&limits, Tick::new(159)), (100, InForce::Held));
        assert_eq!(in_force(&limits, DEADLINE), (50, InForce::Flat));
    }

    #[test]
    fn without_enforcement_nothing_is_held() {
        let mut limits = LimitsInForce::default();
        limits.set(series(100));
        limits.hold(2, series(50), DEADLINE);
        assert_eq!(limits.get(LimitName::Series, Basis::InMemory, T0).max, 50);
    }

    #[test]
    fn a_recount_for_an_older_view_leaves_newer_numbers_waiting() {
        let mut limits = LimitsInForce::default();
        limits.set(series(100));
        limits.hold(3, series(50), DEADLINE);
        limits.swap(2);
        assert_eq!(in_force(&limits, T0), (100, InForce::Held));
        limits.swap(3);
        assert_eq!(in_force(&limits, T0), (50, InForce::Flat));
    }

    #[test]
    fn a_label_set_that_the_limits_do_not_know_is_unlimited() {
        let limits = LocalLimits { label_sets: Arc::from([7]), ..LocalLimits::default() };
        assert_eq!(limits.get(LimitName::LabelSet(0)), 7);
        assert_eq!(limits.get(LimitName::LabelSet(1)), UNLIMITED);
    }
}
