//! What a flag is: a name, the key it sets, and, from the key's default, what it takes.

use super::Config;
use super::table::FLAGS;

/// The flags of one component; the heading stands in `--help` and in the reference.
#[derive(Debug)]
pub struct Group {
    pub heading: &'static str,
    pub flags: &'static [Flag],
}

/// One flag and the key it sets.
#[derive(Debug)]
pub struct Flag {
    pub name: &'static str,
    /// Dotted path in the YAML file.
    pub path: &'static str,
    /// Other names for the same thing, from comparable systems.
    pub aliases: &'static [&'static str],
    /// One sentence or two, without the default.
    pub help: &'static str,
}

/// Every flag of every group.
pub(super) fn all() -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().flat_map(|group| group.flags)
}

/// The flag of that name or alias.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    all().find(|flag| flag.name == name || flag.aliases.contains(&name))
}

/// What a flag takes, read from its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Float,
    Duration,
    Text,
    List,
}

impl Kind {
    pub(super) fn of(default: &serde_json::Value) -> Self {
        use serde_json::Value;
        match default {
            Value::Bool(_) => Self::Bool,
            Value::Number(number) if number.is_f64() => Self::Float,
            Value::Number(_) => Self::Int,
            Value::String(text) if crate::units::Millis::parse(text).is_ok() => Self::Duration,
            Value::Array(_) => Self::List,
            _ => Self::Text,
        }
    }

    /// How the kind is called in `--help` and in the reference.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::Duration => "duration",
            Self::Text => "text",
            Self::List => "list",
        }
    }
}

/// The default configuration as a tree of values: the source of every type and default.
pub(super) fn default_tree() -> serde_json::Value {
    serde_json::to_value(Config::default()).expect("a config is maps with text keys and scalars")
}

/// The value at a dotted path.
pub(super) fn at<'tree>(
    tree: &'tree serde_json::Value,
    path: &str,
) -> Option<&'tree serde_json::Value> {
    path.split('.').try_fold(tree, |block, key| block.get(key))
}

/// A default as one writes it after a flag.
pub(super) fn shown(default: &serde_json::Value) -> String {
    match default {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        serde_json::Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}
