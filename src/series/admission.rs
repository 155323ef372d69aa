//! May this series be created: the instance's limit, then the tenant's, then the place itself.

use super::batch::Kind;
use super::in_force::{InForce, Limit};
use super::last::Tick;
use super::ledger::{CheckRules, Ledger};
use super::refusal::{Basis, Decided, NewSeries, Refusal};
use super::{Rules, SeriesStore};
use crate::sync::Ordering;

impl SeriesStore {
    /// All checks in their order, and the reservation from the instance's totals. Whether the
    /// new series is owned.
    pub(super) fn admit(
        &self,
        ledger: &Ledger,
        new: &NewSeries<'_>,
        kind: Kind,
        rules: &Rules,
        now: Tick,
    ) -> Result<bool, Refusal> {
        self.check_instance(rules)?;
        if rules.shadow && rules.basis == Basis::InMemory {
            let shadow = ledger.shadow(now);
            self.mirror.shadow_admitted.fetch_add(u64::from(shadow.would_admit), Ordering::Relaxed);
            self.mirror.shadow_refused.fetch_add(u64::from(shadow.would_refuse), Ordering::Relaxed);
        }
        ledger.check(new, kind, self.check_rules(rules, now))?;
        let owned = ledger.owns(new.ring_key);
        // Reserved last, so that a series refused by its tenant's limits never takes another
        // tenant's place, not even for a moment.
        if !self.totals.reserve(owned, rules.basis, rules.instance_series_max) {
            return Err(Refusal::Instance(self.instance_decided(rules)));
        }
        Ok(owned)
    }

    pub(super) fn check_instance(&self, rules: &Rules) -> Result<(), Refusal> {
        let decided = self.instance_decided(rules);
        match decided.count.by(rules.basis) < decided.limit.max {
            true => Ok(()),
            false => Err(Refusal::Instance(decided)),
        }
    }

    /// The numbers of the limit over all tenants.
    pub(super) fn instance_decided(&self, rules: &Rules) -> Decided {
        let limit = Limit { max: rules.instance_series_max, in_force: InForce::Flat };
        Decided { count: self.totals.count(), basis: rules.basis, limit }
    }

    pub(super) fn check_rules(&self, rules: &Rules, now: Tick) -> CheckRules {
        CheckRules {
            basis: rules.basis,
            kinds: self.kinds,
            now,
            active_native_histogram: self.mirror.active_native_histogram.load(Ordering::Relaxed),
        }
    }
}
