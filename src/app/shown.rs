//! The configuration and the runtime file as pages show them.

use serde_json::{Map, Value};

use crate::config::{Config, differing, effective_yaml};
use crate::limits::{Overrides, Snapshot};
use crate::server::http::ConfigView;

/// The configuration as YAML. What differs is told by the defaults of the target that runs, and
/// the target itself by the default one.
pub(super) fn config_yaml(config: &Config, view: ConfigView) -> String {
    match view {
        ConfigView::Effective => effective_yaml(config),
        ConfigView::Defaults => effective_yaml(&Config::for_target(config.target)),
        ConfigView::Diff => {
            let mut defaults = Config::for_target(config.target);
            defaults.target = Config::default().target;
            crate::config::diff_yaml(config, &defaults)
        }
    }
}

/// The runtime file in force as YAML: every limit of the tenants that it names, or only those
/// that are not the defaults'.
pub(super) fn runtime_yaml(overrides: &Overrides, view: ConfigView) -> String {
    let snapshot = overrides.snapshot();
    let Some(in_force) = snapshot.view() else {
        return "{}\n".to_owned();
    };
    let text = match view {
        ConfigView::Diff => runtime_diff(&snapshot),
        ConfigView::Effective | ConfigView::Defaults => {
            in_force.to_yaml().map_err(|error| error.to_string())
        }
    };
    text.unwrap_or_else(|error| format!("# cannot be written as YAML: {error}\n"))
}

fn runtime_diff(snapshot: &Snapshot) -> Result<String, String> {
    let tree = serde_json::to_value(snapshot.view()).map_err(|error| error.to_string())?;
    let limits = serde_json::to_value(snapshot.defaults()).map_err(|error| error.to_string())?;
    // Each tenant of the file is compared with the defaults that its limits were laid over.
    let mut defaults = Map::new();
    for block in ["overrides", "hard_overrides"] {
        let tenants = tree[block].as_object().into_iter().flat_map(Map::keys);
        let block_defaults = tenants.map(|tenant| (tenant.clone(), limits.clone())).collect();
        defaults.insert(block.to_owned(), Value::Object(block_defaults));
    }
    match differing(&tree, &Value::Object(defaults)) {
        Some(diff) => serde_saphyr::to_string(&diff).map_err(|error| error.to_string()),
        None => Ok("{}\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Target;
    use crate::limits::{InstanceLimits, Limits, RuntimeFile};

    #[test]
    fn a_targets_own_defaults_are_no_difference_but_the_target_is() {
        let mut config = Config::for_target(Target::Ingester);
        let diff = |config: &Config| config_yaml(config, ConfigView::Diff);
        assert_eq!(diff(&config), "target: ingester\n");
        config.store.enabled = !config.store.enabled;
        assert!(diff(&config).contains("enabled: "), "{}", diff(&config));
        assert_eq!(diff(&Config::default()), "{}\n");
    }

    #[test]
    fn of_the_runtime_file_only_what_is_not_the_default_is_shown() {
        let limits = Limits { max_global_series_per_user: 7, ..Limits::default() };
        let overrides = Overrides::new(limits.clone(), InstanceLimits::default());
        let diff = || runtime_yaml(&overrides, ConfigView::Diff);
        assert_eq!(diff(), "{}\n");
        let text =
            "overrides:\n  a: {max_series_per_user: 5}\n  same: {max_global_series_per_user: 7}\n";
        let file = RuntimeFile::parse(text, &limits, &InstanceLimits::default()).expect("a file");
        overrides.publish(file);
        assert_eq!(diff(), "overrides:\n  a:\n    max_series_per_user: 5\n");
        assert!(runtime_yaml(&overrides, ConfigView::Effective).contains("max_series_per_metric"));
    }
}
