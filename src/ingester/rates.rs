//! A tenant's rates on the ingester's push path.
//!
//! They guard against a distributor that is bypassed or misconfigured, and stand for one where
//! there is none. They must never refuse what compliant distributors admitted: behind those, an
//! ingester sees its share of a tenant's writes, and allows a tolerance above it.

use crate::clock::Now;
use crate::ingester::config::CheckIngestionLimits;
use crate::ingester::counters::{DiscardReason, MetadataReason};
use crate::ingester::inspect::TenantRate;
use crate::ingester::push::{Push, Request};
use crate::ingester::standing::Standing;
use crate::ingester::{Ingester, PushError};
use crate::limits::{IngestionRateStrategy, Limits};
use crate::ratelimit::{Budget, Charge, Items, OverRate, RATE_UNLIMITED, Strategy};
use crate::tenant::TenantId;

/// How far above its share of a tenant's rate an instance lets pushes pass behind distributors:
/// the share of a moment is not the share of the long run.
const TOLERANCE: f64 = 1.5;

/// Who has charged a push to its tenant before it came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargedBy {
    /// Nobody that we know of.
    Nobody,
    /// The distributor of this process; what it has admitted is not charged a second time.
    Distributor,
}

/// What a limit of the tenant comes to here.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Check {
    None,
    /// The configured rate as it is.
    Whole,
    /// This part of it.
    Part(f64),
}

/// What a push was charged.
#[derive(Default)]
pub(super) struct Charges {
    items: Option<Charge>,
    histograms: Option<Charge>,
}

impl Ingester {
    /// Charges the tenant's rate for all items of a push, then that of native histograms.
    ///
    /// Over the first the push is refused; over the second only its histograms are left out,
    /// and what the first was charged for them is given back.
    pub(super) fn charge(
        &self,
        push: &mut Push<'_>,
        request: &Request<'_>,
        charged_by: ChargedBy,
    ) -> Result<Charges, PushError> {
        let (tenant, now_ns) = (push.tenant, push.now.steady_ns);
        let check = self.check(push.standing, charged_by);
        if check == Check::None {
            return Ok(Charges::default());
        }
        let limits = &push.standing.limits;
        let summary = &request.summary;
        let samples = summary.samples + summary.histograms;
        let credits = samples + summary.exemplars + summary.metadata;
        let budget = || check.budget(limits.ingestion_rate, limits.ingestion_burst_size);
        let taken = self.limiter.take(&tenant.id, credits, now_ns, budget);
        let mut charge = taken.map_err(|over| {
            tenant.counters.discard_samples(DiscardReason::RateLimited, samples);
            tenant.counters.discard_exemplars(summary.exemplars);
            tenant.counters.discard_metadata(MetadataReason::RateLimited, summary.metadata);
            let items = Items::Ingestion { samples, metadata: summary.metadata };
            let text = self.text(over, items, limits);
            PushError::RateLimited { text, wait_ns: over.wait_ns }
        })?;
        let histograms = if push.takes_histograms { summary.histograms } else { 0 };
        if histograms == 0 {
            return Ok(Charges { items: Some(charge), histograms: None });
        }
        let (rate, burst) =
            (limits.native_histogram_ingestion_rate, limits.native_histogram_ingestion_burst_size);
        let budget = || check.budget(rate, burst);
        let taken = self.histogram_limiter.take(&tenant.id, histograms, now_ns, budget);
        if let Err(over) = &taken {
            let reason = DiscardReason::NativeHistogramRateLimited;
            tenant.counters.discard_samples(reason, histograms);
            push.takes_histograms = false;
            let items = Items::NativeHistograms { samples: histograms };
            push.fail(|| self.text(*over, items, limits));
            if !self.config.limits_parity {
                self.limiter.give_back(&tenant.id, charge.split(histograms), now_ns);
            }
        }
        Ok(Charges { items: Some(charge), histograms: taken.ok() })
    }

    /// Gives back what a push was charged of which nothing is kept. Cortex keeps it.
    pub(super) fn give_back(&self, id: &TenantId, charges: Charges, now: Now) {
        if self.config.limits_parity {
            return;
        }
        if let Some(charge) = charges.items {
            self.limiter.give_back(id, charge, now.steady_ns);
        }
        if let Some(charge) = charges.histograms {
            self.histogram_limiter.give_back(id, charge, now.steady_ns);
        }
    }

    /// The tenant's rate as pushes are charged to it here, if they are.
    pub(super) fn tenant_rate(
        &self,
        id: &TenantId,
        standing: &Standing,
        charged_by: ChargedBy,
        now: Now,
    ) -> Option<TenantRate> {
        let check = self.check(standing, charged_by);
        let limits = &standing.limits;
        (check != Check::None).then(|| TenantRate {
            budget: check.budget(limits.ingestion_rate, limits.ingestion_burst_size),
            bucket: self.limiter.view(id, now.steady_ns),
        })
    }

    fn check(&self, standing: &Standing, charged_by: ChargedBy) -> Check {
        let strategy = standing.limits.ingestion_rate_strategy;
        match (self.config.check_ingestion_limits, strategy) {
            (CheckIngestionLimits::Off, _) => Check::None,
            (CheckIngestionLimits::Auto, _) if charged_by == ChargedBy::Distributor => Check::None,
            (CheckIngestionLimits::On, _) => Check::Whole,
            (CheckIngestionLimits::Auto, _) if !self.role.behind_distributors => Check::Whole,
            // Each distributor admits the whole rate, so the sum is theirs to know.
            (CheckIngestionLimits::Auto, IngestionRateStrategy::Local) => Check::None,
            (
                CheckIngestionLimits::Auto,
                IngestionRateStrategy::Global | IngestionRateStrategy::Leased,
            ) => match standing.unknown {
                Some(_) => Check::None,
                None => Check::Part(standing.share * TOLERANCE),
            },
        }
    }

    fn text(&self, over: OverRate, items: Items, limits: &Limits) -> String {
        if self.config.limits_parity {
            return over.cortex_text(items);
        }
        let strategy = match limits.ingestion_rate_strategy {
            IngestionRateStrategy::Local => Strategy::Local,
            IngestionRateStrategy::Global | IngestionRateStrategy::Leased => Strategy::Global,
        };
        let rate = match items {
            Items::Ingestion { .. } => limits.ingestion_rate,
            Items::NativeHistograms { .. } => limits.native_histogram_ingestion_rate,
        };
        over.text(items, strategy, rate)
    }
}

impl Check {
    /// The burst is never divided: one request may come whole to one instance.
    fn budget(self, rate: f64, burst: u64) -> Budget {
        let rate = match self {
            Self::Part(part) if rate != RATE_UNLIMITED => rate * part,
            _ => rate,
        };
        Budget { rate, burst }
    }
}
