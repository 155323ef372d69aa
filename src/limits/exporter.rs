//! Limits as metrics: `cortex_overrides` for tenants that the runtime file names, and
//! `cortex_overrides_defaults` for all others.
//!
//! What is exported is what Cortex exports of the limits that we use: numbers, switches as 0 and
//! 1, durations in seconds; no texts and no lists.

use serde_json::Value;

use super::{Limits, QUERY_RATE, Snapshot};
use crate::exposition::Families;
use crate::units::Millis;

/// Most tenants that are exported, in the order of their names: with 40 limits each they make
/// 400,000 samples, some 40 MB of text. How many there are is told beside.
pub const TENANTS_MAX: usize = 10_000;

/// Adds the families of the limits in force.
pub fn read_metrics(snapshot: &Snapshot, families: &mut Families) {
    let mut defaults = families
        .gauges("cortex_overrides_defaults", "Resource limits of tenants without an override");
    for (name, value) in numbers(snapshot.defaults()) {
        defaults.sample([("limit_name", &name)], value);
    }
    let mut tenants: Vec<_> = snapshot.tenants().collect();
    tenants.sort_by_key(|(tenant, _)| *tenant);
    let mut overrides =
        families.gauges("cortex_overrides", "Resource limit overrides applied to tenants");
    for (tenant, limits) in tenants.iter().take(TENANTS_MAX) {
        for (name, value) in numbers(limits) {
            overrides.sample([("limit_name", &name), ("user", tenant.as_str())], value);
        }
    }
    let hidden = tenants.len().saturating_sub(TENANTS_MAX);
    families.gauge(
        "freehold_overrides_tenants_hidden",
        "Tenants with overrides that cortex_overrides leaves out, since there are too many.",
        hidden as f64,
    );
}

/// Limits that a metric can hold, by name.
fn numbers(limits: &Limits) -> Vec<(String, f64)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(limits) else { return Vec::new() };
    let number = |name: &str, value: &Value| match value {
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::Number(number) => number.as_f64(),
        // A share is told as what it comes to.
        Value::String(_) if name == QUERY_RATE => limits.query_rate(),
        // Texts that look like durations are texts where they are free.
        Value::String(text) if DURATIONS.contains(&name) => {
            Millis::parse(text).ok().map(|span| span.0 as f64 / 1000.0)
        }
        _ => None,
    };
    fields.iter().filter_map(|(name, value)| Some((name.clone(), number(name, value)?))).collect()
}

/// Limits that are durations.
const DURATIONS: [&str; 4] = [
    "creation_grace_period",
    "ha_tracker_failover_timeout",
    "out_of_order_time_window",
    "reject_old_samples_max_age",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::AtScrape;
    use crate::limits::{InstanceLimits, Overrides};
    use prometheus::{Registry, TextEncoder};

    /// Fields that Cortex's exporter leaves out: texts and lists.
    const NOT_NUMBERS: [&str; 6] = [
        "drop_labels",
        "ha_cluster_label",
        "ha_replica_label",
        "ingestion_rate_strategy",
        "limits_per_label_set",
        "promote_resource_attributes",
    ];

    #[test]
    fn every_limit_that_is_a_number_is_exported() {
        let all = serde_json::to_value(Limits::default()).expect("fields");
        let exported: Vec<String> =
            numbers(&Limits::default()).into_iter().map(|(n, _)| n).collect();
        for name in all.as_object().expect("fields").keys() {
            let is_exported = exported.contains(name);
            assert_eq!(is_exported, !NOT_NUMBERS.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn overrides_and_defaults_are_told_from_the_snapshot() {
        let overrides =
            std::sync::Arc::new(Overrides::new(Limits::default(), InstanceLimits::default()));
        let file = "overrides:\n  t:\n    ingestion_rate: 7\n    accept_ha_samples: true\n    \
                    creation_grace_period: 90s\n    query_capacity_per_second: 50\n    \
                    client_identity_query_rate_limit: 5%\n";
        let file = overrides.parse(file).expect("valid");
        overrides.publish(file);
        let registry = Registry::new();
        let read = move |families: &mut Families| read_metrics(&overrides.load(), families);
        registry.register(Box::new(AtScrape::new("test_overrides", read))).expect("new");
        let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        for line in [
            "cortex_overrides{limit_name=\"ingestion_rate\",user=\"t\"} 7",
            "cortex_overrides{limit_name=\"client_identity_query_rate_limit\",user=\"t\"} 2.5",
            "cortex_overrides{limit_name=\"accept_ha_samples\",user=\"t\"} 1",
            "cortex_overrides{limit_name=\"creation_grace_period\",user=\"t\"} 90",
            "cortex_overrides{limit_name=\"ingestion_burst_size\",user=\"t\"} 50000",
            "cortex_overrides_defaults{limit_name=\"ingestion_rate\"} 25000",
            "cortex_overrides_defaults{limit_name=\"reject_old_samples_max_age\"} 1209600",
            "cortex_overrides_defaults{limit_name=\"accept_ha_samples\"} 0",
        ] {
            assert!(text.lines().any(|have| have == line), "{line}\nin\n{text}");
        }
        assert!(!text.contains("ha_cluster_label"));
    }
}
