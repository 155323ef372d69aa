//! What a push of one new sample would meet here, without making it: for those who ask why.
//!
//! Every answer is given by what decides in [`Ingester::push`]: the same admission, standing,
//! limits and texts, asked and not acted upon. Nothing is created, charged or counted.

use std::sync::Arc;

use crate::clock::Now;
use crate::ingester::admission::Overload;
use crate::ingester::rates::ChargedBy;
use crate::ingester::standing::Standing;
use crate::ingester::tenants::Tenant;
use crate::ingester::{Ingester, PushError, texts};
use crate::keys::RingKey;
use crate::labels::{Labels, ring_key};
use crate::limits::InstanceLimits;
use crate::ratelimit::{BucketView, Budget};
use crate::ring::RingSnapshot;
use crate::series::{Basis, Inspected, Item, Kind, NewSeries, Tick};
use crate::tenant::TenantId;

/// A series as the ingester would get it: with labels in order and none empty.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub tenant: &'a TenantId,
    pub labels: Labels<'a>,
    pub kind: Kind,
    /// Who has charged the push to the tenant's rate before it came here.
    pub charged_by: ChargedBy,
}

/// See the head of the file.
pub struct Inspection {
    /// Why no push is taken at all, in the sender's words.
    pub closed: Option<String>,
    pub overload: Option<Overload>,
    pub in_flight: u64,
    /// Items a second, the moving average.
    pub rate: f64,
    pub instance: InstanceLimits,
    /// The tenant has series or did something lately; without, it would be made first.
    pub has_tenant: bool,
    /// Why it could not be made.
    pub no_tenant: Option<String>,
    /// Why the labels refuse the whole push.
    pub bad_labels: Option<&'static str>,
    /// The tenant's rate as it is checked here; `None` where it is not.
    pub tenant_rate: Option<TenantRate>,
    pub ring_key: RingKey,
    /// What applies to the tenant.
    pub standing: Arc<Standing>,
    pub ring: Arc<RingSnapshot>,
    pub basis: Basis,
    pub metric_exempt: bool,
    /// Label sets that the series belongs to, by their index.
    pub label_sets: Vec<u16>,
    pub series: Inspected,
    /// What the sender of the series would read, if it is refused.
    pub refusal: Option<String>,
}

/// A tenant's rate on the push path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantRate {
    pub budget: Budget,
    /// As it stands; `None` before the first push that was charged, when it is full.
    pub bucket: Option<BucketView>,
}

impl Ingester {
    pub fn inspect(&self, question: Question<'_>, now: Now) -> Inspection {
        let Question { tenant: id, labels, kind, charged_by } = question;
        let overrides = self.overrides.snapshot();
        let instance = overrides.instance();
        let visit = self.tenants.visit(id);
        let made;
        let tenant: &Tenant = match &visit {
            Some(visit) => visit,
            None => {
                // As the first push would make it; it goes when this is answered.
                made = self.make_tenant(id);
                &made
            }
        };
        let standing = tenant.standing.load_full();
        let mut label_sets = Vec::new();
        let sets = &standing.limits.limits_per_label_set;
        if !sets.is_empty() {
            sets.matches(|name| labels.get(name).unwrap_or_default(), &mut label_sets);
        }
        let metric = labels.metric_name();
        let metric_exempt = self.ignored_metrics.contains(metric);
        let new = NewSeries {
            ring_key: ring_key(id.as_str(), labels),
            metric,
            metric_exempt,
            label_sets: &label_sets,
            label_sets_generation: standing.label_sets_generation,
        };
        let item = Item {
            identity: self.hasher.identity(labels),
            first_ms: now.unix_ms,
            newest_ms: now.unix_ms,
            kind,
        };
        let rules = self.series_rules(instance);
        let series = tenant.series.inspect(&item, &new, &rules, Tick::new(now.steady_s()));
        let refusal = series.verdict.err().map(|refusal| {
            let message = self.config.admin_limit_message.as_str();
            let metric = String::from_utf8_lossy(metric);
            let text = texts::series_refusal(refusal, &standing, message, &metric, &labels);
            texts::of_tenant(id, &text)
        });
        Inspection {
            closed: self.check_running().err().map(|error| error.to_string()),
            overload: self.admission.overload(self.admission.in_flight() + 1, instance),
            in_flight: self.admission.in_flight(),
            rate: self.admission.rate(),
            has_tenant: visit.is_some(),
            no_tenant: match &visit {
                Some(_) => None,
                None => self.check_new_tenant(id, instance).err().map(|error| error.to_string()),
            },
            bad_labels: texts::check_labels(labels).err(),
            tenant_rate: self.tenant_rate(id, &standing, charged_by, now),
            ring_key: new.ring_key,
            ring: self.ring.load(),
            basis: self.basis(),
            metric_exempt,
            series,
            refusal,
            instance: instance.clone(),
            standing,
            label_sets,
        }
    }

    /// Whether a tenant that is not here may be made.
    fn check_new_tenant(&self, id: &TenantId, limits: &InstanceLimits) -> Result<(), PushError> {
        self.check_active(id)?;
        match self.tenants.is_full(limits.max_tenants) {
            true => Err(texts::too_many_tenants(id)),
            false => Ok(()),
        }
    }
}
