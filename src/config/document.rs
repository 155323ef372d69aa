//! The configuration as text: what is in force, what differs from the defaults, the reference.

use serde_json::{Map, Value};

use super::flags::{self, Kind};
use super::{Config, FLAGS};

/// Every value in force, as a file that would set it. Secrets are masked.
pub fn effective_yaml(config: &Config) -> String {
    serde_saphyr::to_string(config).expect("a config is maps with text keys and scalars")
}

/// The same as JSON, for scripts.
pub fn effective_json(config: &Config) -> String {
    let text = serde_json::to_string_pretty(config);
    text.expect("a config is maps with text keys and scalars") + "\n"
}

/// Only what differs from `defaults`.
pub fn diff_yaml(config: &Config, defaults: &Config) -> String {
    let tree = |config| serde_json::to_value(config).expect("a config is maps and scalars");
    match differing(&tree(config), &tree(defaults)) {
        Some(diff) => {
            serde_saphyr::to_string(&diff).expect("a tree has text keys and plain values")
        }
        None => "{}\n".to_owned(),
    }
}

/// The text of `docs/configuration.md`.
pub fn reference_markdown() -> String {
    let defaults = flags::default_tree();
    let mut text = String::from(REFERENCE_HEAD);
    for group in FLAGS {
        text.push_str(&format!("\n## {}\n", group.heading));
        for flag in group.flags {
            let default =
                flags::at(&defaults, flag.path).expect("a test holds rows to known paths");
            let kind = Kind::of(default).name();
            let shown = match flags::shown(default) {
                empty if empty.is_empty() => "empty".to_owned(),
                shown => format!("`{shown}`"),
            };
            text.push_str(&format!("\n### `-{}`\n\n", flag.name));
            text.push_str(&format!("Key `{}`, {kind}, default {shown}.\n", flag.path));
            for sentence in flag.help.split_inclusive(". ") {
                text.push_str(sentence.trim_end());
                text.push('\n');
            }
            if !flag.aliases.is_empty() {
                let names: Vec<_> = flag.aliases.iter().map(|name| format!("`-{name}`")).collect();
                text.push_str(&format!("Also called {}.\n", names.join(", ")));
            }
        }
    }
    text
}

const REFERENCE_HEAD: &str = "\
# Configuration

<!-- Generated from the table of flags and the defaults: FREEHOLD_BLESS=1 cargo test --lib config -->

A value comes from its flag, else from the YAML file that `-config.file` names, else it is the default.
Flags take one dash or two, and their value after `=` or as the next argument; a boolean takes it only after `=`, and is true without one.
A list takes its items separated by commas on the command line.
Durations are written as in `1h30m`, `10s` or `250ms`.
An unknown flag or key, or a value that does not fit, ends the start and names the nearest right one.
`freehold check-config FILE` validates a file and prints every value in force; `/config` shows the same of a running process, `/config?mode=diff` only what differs from the defaults.
";

/// The part of `tree` that is not as in `defaults`; `None` when all of it is.
pub(crate) fn differing(tree: &Value, defaults: &Value) -> Option<Value> {
    if tree == defaults {
        return None;
    }
    match (tree, defaults) {
        (Value::Object(fields), Value::Object(default_fields)) => {
            let mut diff = Map::new();
            for (key, value) in fields {
                let default = default_fields.get(key).unwrap_or(&Value::Null);
                if let Some(value) = differing(value, default) {
                    diff.insert(key.clone(), value);
                }
            }
            Some(Value::Object(diff))
        }
        _ => Some(tree.clone()),
    }
}
