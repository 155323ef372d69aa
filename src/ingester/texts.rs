//! What a refused sender reads: Cortex's sentences, with our counts behind them where they
//! decided.

use std::fmt::Display;

use crate::go_text::Rfc3339Ms;
use crate::ingester::PushError;
use crate::ingester::standing::Standing;
use crate::ingester::tenants::TooManyTenants;
use crate::labels::Labels;
use crate::limits::{Counts, LimitInForce, LocalLimit, Numbers, Refusal as Text, RefusalKind};
use crate::ring::model::InstanceState;
use crate::series::{Basis, Decided, InForce, Refusal};
use crate::tenant::TenantId;

pub const MAX_SERIES: &str = "cannot add series: ingesters's max series limit reached";
pub const STOPPING: &str = "ingester stopping";
/// A refusal that the rest of a listing may take back.
pub const STILL_LISTED: &str = "at the tenant's series limit while its series are still being \
     listed: try again";
const EMPTY_LABELS: &str = "empty labelset: invalid sample";
const NO_METRIC_NAME: &str = "no metric name label";
pub const EXEMPLAR_WITHOUT_SERIES: &str =
    "exemplars not ingested because series not already present";
pub const EXEMPLAR_TOO_LONG: &str =
    "label length for exemplar exceeds maximum of 128 UTF-8 characters";

/// A tenant that cannot be made while we are not ACTIVE.
pub fn not_active(state: InstanceState) -> String {
    format!(
        "cannot create a new TSDB while the ingester is not in active state (current state: {state})"
    )
}

/// The metric's name of labels that a new series can have; without, the whole push is refused.
pub fn check_labels(labels: Labels<'_>) -> Result<&[u8], &'static str> {
    match labels.metric_name() {
        _ if labels.is_empty() => Err(EMPTY_LABELS),
        [] => Err(NO_METRIC_NAME),
        metric => Ok(metric),
    }
}

pub fn too_many_tenants(tenant: &TenantId) -> PushError {
    PushError::Whole { text: of_tenant(tenant, &TooManyTenants) }
}

/// An error in the name of its tenant.
pub fn of_tenant(tenant: &TenantId, text: &dyn Display) -> String {
    format!("user={tenant}: {text}")
}

/// A sample or histogram that the store does not take.
pub fn ingest(error: &dyn Display, timestamp_ms: i64, series: &dyn Display) -> String {
    format!("err: {error}. timestamp={}, series={series}", Rfc3339Ms(timestamp_ms))
}

pub fn exemplar(
    error: &str,
    timestamp_ms: i64,
    series: &dyn Display,
    exemplar: &dyn Display,
) -> String {
    let time = Rfc3339Ms(timestamp_ms);
    format!("err: {error}. timestamp={time}, series={series}, exemplar={exemplar}")
}

/// A series that a limit refuses.
pub fn series_refusal(
    refusal: Refusal,
    standing: &Standing,
    admin_message: &str,
    metric: &dyn Display,
    series: &dyn Display,
) -> String {
    let limits = &standing.limits;
    let set = |index: u16| limits.limits_per_label_set.get(index);
    let (kind, local, global, decided) = match refusal {
        // The whole push is refused in the instance's own words, see the caller.
        Refusal::Instance(_) => return MAX_SERIES.to_owned(),
        Refusal::Series(decided) => (
            RefusalKind::SeriesPerUser,
            limits.max_series_per_user,
            limits.max_global_series_per_user,
            decided,
        ),
        Refusal::NativeHistogramSeries(decided) => (
            RefusalKind::NativeHistogramSeriesPerUser,
            limits.max_native_histogram_series_per_user,
            limits.max_global_native_histogram_series_per_user,
            decided,
        ),
        Refusal::Metric(decided) => (
            RefusalKind::SeriesPerMetric { metric },
            limits.max_series_per_metric,
            limits.max_global_series_per_metric,
            decided,
        ),
        Refusal::LabelSet { index, decided } => (
            RefusalKind::SeriesPerLabelSet { id: set(index).map_or("", |set| &set.id) },
            0,
            set(index).map_or(0, |set| set.max_series),
            decided,
        ),
    };
    let actual_local = LocalLimit(i64::try_from(decided.limit.max).unwrap_or(i64::MAX));
    let numbers = Numbers { local, global, actual_local };
    let counts = counts(decided, standing);
    Text { kind, numbers, admin_message, counts }.text(series)
}

/// With enforcement off the text is Cortex's to the letter.
fn counts(decided: Decided, standing: &Standing) -> Option<Counts> {
    if decided.basis == Basis::InMemory {
        return None;
    }
    Some(Counts {
        owned: standing.unknown.is_none().then_some(decided.count.owned),
        in_memory: decided.count.in_memory,
        in_force: match decided.limit.in_force {
            InForce::Flat => LimitInForce::Flat,
            InForce::Share => LimitInForce::Share,
            InForce::Held => LimitInForce::HeldUntilRecount,
        },
    })
}
