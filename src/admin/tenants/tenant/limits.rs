//! A tenant's limits: what they come to here, and what set each number.

use serde::Serialize;
use serde_json::Value;

use super::super::row::{bar_class, in_force, percent};
use crate::ingester::detail::{LimitUse, Limited};
use crate::limits::{Origin, ToldLimit};

/// A limit of this instance beside what uses it.
#[derive(Serialize)]
pub(super) struct LimitRow {
    pub(super) limit_on: &'static str,
    /// Names of the settings, for each instance and for the cluster.
    pub(super) local_name: &'static str,
    pub(super) global_name: &'static str,
    /// 0 is none.
    pub(super) local: i64,
    pub(super) global: i64,
    /// In force here; `None` where there is none.
    pub(super) limit: Option<u64>,
    pub(super) in_force: &'static str,
    /// `None` where it is not known.
    pub(super) used: Option<u64>,
    pub(super) headroom: Option<i64>,
    pub(super) used_percent: Option<f64>,
}

/// A limit as it is set.
#[derive(Serialize)]
pub(super) struct ToldRow {
    #[serde(flatten)]
    pub(super) told: ToldLimit,
}

impl LimitRow {
    pub(super) fn new(limit: &LimitUse) -> Self {
        let (limit_on, local_name, global_name) = words(limit.limited);
        let signed = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let both = limit.limit.zip(limit.used);
        Self {
            limit_on,
            local_name,
            global_name,
            local: limit.local,
            global: limit.global,
            limit: limit.limit,
            in_force: in_force(limit.limit, limit.in_force),
            used: limit.used,
            headroom: both.map(|(limit, used)| signed(limit).saturating_sub(signed(used))),
            used_percent: both.and_then(|(limit, used)| percent(used, limit)),
        }
    }

    pub(super) fn bar_class(&self) -> &'static str {
        bar_class(self.used_percent)
    }
}

impl ToldRow {
    pub(super) fn new(told: ToldLimit) -> Self {
        Self { told }
    }

    pub(super) fn is_override(&self) -> bool {
        self.told.origin == Origin::Override
    }

    pub(super) fn value(&self) -> String {
        text(&self.told.value)
    }

    pub(super) fn default(&self) -> String {
        text(&self.told.default)
    }

    pub(super) fn hard_limit(&self) -> Option<String> {
        self.told.hard_limit.as_ref().map(text)
    }
}

/// The limit of each metric's series.
pub(super) fn of_metric(limits: &[LimitUse]) -> Option<u64> {
    limits.iter().find(|limit| limit.limited == Limited::SeriesPerMetric)?.limit
}

fn words(limited: Limited) -> (&'static str, &'static str, &'static str) {
    match limited {
        Limited::Series => ("series", "max_series_per_user", "max_global_series_per_user"),
        Limited::NativeHistogramSeries => (
            "native histogram series",
            "max_native_histogram_series_per_user",
            "max_global_native_histogram_series_per_user",
        ),
        Limited::SeriesPerMetric => (
            "series of the largest metric",
            "max_series_per_metric",
            "max_global_series_per_metric",
        ),
        Limited::Metadata => {
            ("metrics with metadata", "max_metadata_per_user", "max_global_metadata_per_user")
        }
        Limited::MetadataPerMetric => {
            ("metadata of each metric", "max_metadata_per_metric", "max_global_metadata_per_metric")
        }
    }
}

/// A value as an operator writes it. The largest double is what Cortex calls no limit.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.as_f64() == Some(f64::MAX) => "no limit".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Limits, known_names};
    use crate::series::InForce;

    #[test]
    fn every_limit_is_named_by_its_settings() {
        let told = serde_json::to_value(Limits::default()).expect("serializes");
        for limited in [
            Limited::Series,
            Limited::NativeHistogramSeries,
            Limited::SeriesPerMetric,
            Limited::Metadata,
            Limited::MetadataPerMetric,
        ] {
            let (_, local, global) = words(limited);
            for name in [local, global] {
                assert!(
                    known_names().any(|known| known == name) && !told[name].is_null(),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn what_is_left_of_a_limit_is_told_where_both_numbers_are_known() {
        let series = LimitUse {
            limited: Limited::Series,
            local: 0,
            global: 60,
            limit: Some(30),
            in_force: InForce::Share,
            used: Some(33),
        };
        let row = LimitRow::new(&series);
        assert_eq!((row.headroom, row.used_percent), (Some(-3), Some(110.0)));
        assert_eq!((row.in_force, row.bar_class()), ("share", "bad"));
        let unknown = LimitRow::new(&LimitUse { used: None, ..series });
        assert_eq!((unknown.headroom, unknown.used_percent), (None, None));
        let none = LimitRow::new(&LimitUse { limit: None, ..series });
        assert_eq!((none.headroom, none.in_force), (None, "none"));
    }

    #[test]
    fn values_read_as_they_are_written() {
        assert_eq!(text(&Value::from("30s")), "30s");
        assert_eq!(text(&Value::from(5)), "5");
        assert_eq!(text(&Value::from(f64::MAX)), "no limit");
        assert_eq!(text(&serde_json::json!(["a"])), "[\"a\"]");
    }
}
