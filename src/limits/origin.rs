//! Where each of a tenant's limits comes from, for whoever wants to change one.
//!
//! A limit is set by the tenant's block of the runtime file, or it is the configuration's. Beside
//! it stand the default that the block covers, the most that the overrides API may set, and
//! whether that may set it at all.

use serde::Serialize;
use serde_json::Value;

use super::overrides::Snapshot;
use crate::tenant::TenantId;

/// What set a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `limits:` of the configuration, or a flag, or nobody.
    Default,
    /// The tenant's block of the runtime file.
    Override,
}

/// A limit of a tenant, and what stands around it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToldLimit {
    pub name: String,
    /// In force.
    pub value: Value,
    pub origin: Origin,
    pub default: Value,
    /// The most that the overrides API may set, where the tenant has hard limits.
    pub hard_limit: Option<Value>,
    /// The overrides API may set it.
    pub is_open_to_api: bool,
}

impl Snapshot {
    /// All limits of a tenant by name, from this one state of the limits.
    pub fn told(&self, tenant: &TenantId) -> Vec<ToldLimit> {
        let values = |limits| serde_json::to_value(limits).unwrap_or_default();
        let defaults = values(self.defaults());
        let file = self.file();
        let set = file.and_then(|file| file.set_names.get(tenant.as_str()));
        let hard = file.and_then(|file| file.hard_overrides.get(tenant.as_str()));
        let hard = hard.map(values);
        let open = file.map(|file| &*file.api_allowed_limits).unwrap_or_default();
        let Value::Object(limits) = values(self.limits(tenant)) else {
            return Vec::new();
        };
        let told = limits.into_iter().map(|(name, value)| ToldLimit {
            origin: match set.is_some_and(|set| set.contains(&name.as_str())) {
                true => Origin::Override,
                false => Origin::Default,
            },
            default: defaults.get(&name).cloned().unwrap_or_default(),
            hard_limit: hard.as_ref().and_then(|hard| hard.get(&name)).cloned(),
            is_open_to_api: open.contains(&name),
            name,
            value,
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{InstanceLimits, Limits, Overrides};
    use super::*;

    fn told(file: &str, tenant: &str) -> Vec<ToldLimit> {
        let defaults = Limits { max_series_per_user: 100, ..Limits::default() };
        let overrides = Overrides::new(defaults, InstanceLimits::default());
        overrides.publish(overrides.parse(file).expect("a runtime file"));
        overrides.load().told(&TenantId::parse(tenant).expect("a tenant"))
    }

    fn limit(told: &[ToldLimit], name: &str) -> ToldLimit {
        told.iter().find(|limit| limit.name == name).expect("a limit").clone()
    }

    #[test]
    fn an_override_is_one_even_where_it_repeats_the_default() {
        let file = "overrides:
  a: {max_series_per_user: 100, max_global_series_per_user: 7}
  b: {}
hard_overrides:
  a: {max_global_series_per_user: 9}
api_allowed_limits: [max_global_series_per_user]
";
        let a = told(file, "a");
        let expect = ToldLimit {
            name: "max_global_series_per_user".to_owned(),
            value: 7.into(),
            origin: Origin::Override,
            default: 0.into(),
            hard_limit: Some(9.into()),
            is_open_to_api: true,
        };
        assert_eq!(limit(&a, "max_global_series_per_user"), expect);
        let local = limit(&a, "max_series_per_user");
        assert_eq!((local.origin, &local.value), (Origin::Override, &100.into()));
        assert_eq!(local.hard_limit, Some(100.into()), "as the default, where none is given");
        assert!(!local.is_open_to_api);
        let rate = limit(&a, "ingestion_rate");
        assert_eq!((rate.origin, &rate.value), (Origin::Default, &rate.default));
        for other in ["b", "c"] {
            let told = told(file, other);
            assert!(told.iter().all(|limit| limit.origin == Origin::Default), "{other}");
            assert!(told.iter().all(|limit| limit.hard_limit.is_none()), "{other}");
            assert_eq!(told.len(), a.len(), "{other}");
        }
    }

    #[test]
    fn anchors_and_merges_count_as_written() {
        let file = "overrides:
  a: &tier {max_series_per_user: 3}
  b:
    <<: *tier
    ingestion_rate: 4
  c: *tier
";
        for (tenant, set) in [("a", 1), ("b", 2), ("c", 1)] {
            let told = told(file, tenant);
            let overridden = told.iter().filter(|limit| limit.origin == Origin::Override);
            assert_eq!(overridden.count(), set, "{tenant}");
        }
    }
}
