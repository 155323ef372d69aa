//! Defaults, then the file, then flags, laid over each other and read once.
//!
//! All three are trees of plain values until the end, so that each layer needs to say only what
//! it changes and the rooms' own types judge the outcome.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::flags::{self, Kind};
use super::{Config, ConfigError, Target, table};
use crate::limits;

/// Longest configuration file, in bytes. Ours are a few kB; what is longer is the wrong file.
const CONFIG_FILE_BYTES_MAX: u64 = 1 << 20;

/// One value that a file or a flag sets.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    path: String,
    /// As it was written: the path, or its second place.
    key: String,
    value: Value,
    /// Where it was said, for errors.
    place: String,
}

/// Reads the configuration that `settings`, in their order, make of the defaults.
pub(super) fn load(settings: &[Setting]) -> Result<Config, ConfigError> {
    let defaults = flags::default_tree();
    let mut tree = match named_target(settings) {
        Some(target) => serde_json::to_value(Config::for_target(target)).expect("a config is maps"),
        None => defaults.clone(),
    };
    for setting in settings {
        set(&mut tree, &setting.path, setting.value.clone());
    }
    let config: Config =
        serde_json::from_value(tree).map_err(|error| blame(&defaults, settings, error))?;
    config.validate()?;
    Ok(config)
}

/// The target that `settings` come to, if they name a known one: it decides about defaults.
fn named_target(settings: &[Setting]) -> Option<Target> {
    let named = settings.iter().rev().find(|setting| setting.path == "target")?;
    Target::try_from(named.value.as_str()?.to_owned()).ok()
}

/// What a file sets, in the file's order.
pub(super) fn file_settings(path: &Path) -> Result<Vec<Setting>, ConfigError> {
    let text = read(path)?;
    // Only `true` and `false` are booleans: `on` and `off` are values of options here, and a
    // text that is not quoted should not change its type because of how it is spelled.
    let options = serde_saphyr::options! { strict_booleans: true };
    let tree: Option<Value> = serde_saphyr::from_str_with_options(&text, options)
        .map_err(|source| ConfigError::Yaml { path: path.into(), source: Box::new(source) })?;
    let map = match tree {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(ConfigError::NoMap { path: path.into() }),
    };
    let mut settings = Vec::new();
    let defaults = flags::default_tree();
    collect(&File { path, defaults: &defaults }, &map, &defaults, "", &mut settings)?;
    check_places(path, &settings)?;
    Ok(settings)
}

/// What stands in two places of one file says the same in both.
fn check_places(file: &Path, settings: &[Setting]) -> Result<(), ConfigError> {
    for (at, setting) in settings.iter().enumerate() {
        let before = settings[..at].iter().find(|before| before.path == setting.path);
        let Some(before) = before.filter(|before| !is_same(&before.value, &setting.value)) else {
            continue;
        };
        return Err(ConfigError::TwoPlaces {
            path: file.into(),
            keys: [before, setting].map(|setting| setting.key.clone()),
            values: [before, setting].map(|setting| setting.value.to_string()),
        });
    }
    Ok(())
}

/// Whether two values are one; 5 and 5.0 are.
fn is_same(one: &Value, other: &Value) -> bool {
    let numbers = one.as_f64().zip(other.as_f64());
    one == other || numbers.is_some_and(|(one, other)| one == other)
}

/// What a flag sets, its text read as the kind of its default.
pub(super) fn flag_setting(flag: &flags::Flag, text: &str) -> Result<Setting, ConfigError> {
    let place = format!("flag -{}", flag.name);
    let defaults = flags::default_tree();
    let default = flags::at(&defaults, flag.path).expect("a test holds every row to a known path");
    let kind =
        |expected| ConfigError::Kind { place: place.clone(), value: format!("{text:?}"), expected };
    let value = match Kind::of(default) {
        Kind::Bool => parse_bool(text).map(Value::from).ok_or_else(|| kind("true or false"))?,
        Kind::Int => {
            let number: i128 = text.parse().map_err(|_| kind("a whole number"))?;
            let number = u64::try_from(number)
                .map(serde_json::Number::from)
                .or_else(|_| i64::try_from(number).map(serde_json::Number::from));
            Value::Number(number.map_err(|_| kind("a whole number of 64 bits"))?)
        }
        Kind::Float => {
            let number = text.parse::<f64>().map(serde_json::Number::from_f64);
            match number {
                Ok(number) => Value::Number(number.ok_or_else(|| kind("a finite number"))?),
                // A share; a key that takes none says so itself.
                Err(_) if text.ends_with('%') => Value::from(text),
                Err(_) => return Err(kind("a number")),
            }
        }
        Kind::Duration | Kind::Text => Value::from(text),
        Kind::List if text.is_empty() => Value::Array(Vec::new()),
        Kind::List => text.split(',').map(|item| Value::from(item.trim())).collect(),
    };
    Ok(Setting { path: flag.path.to_owned(), key: flag.path.to_owned(), value, place })
}

struct File<'a> {
    path: &'a Path,
    defaults: &'a Value,
}

fn collect(
    file: &File<'_>,
    block: &Map<String, Value>,
    default_block: &Value,
    prefix: &str,
    settings: &mut Vec<Setting>,
) -> Result<(), ConfigError> {
    for (key, value) in block {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let Some(default) = default_block.get(key) else {
            // A limit of Cortex's that we have no use for is read past, as in its runtime file.
            if prefix == "limits" && limits::known_names().any(|name| name == key) {
                continue;
            }
            let second = table::SECOND_PLACES.iter().find(|(there, _)| *there == path);
            if let Some(&(_, ours)) = second {
                if !value.is_null() {
                    settings.push(Setting {
                        path: ours.to_owned(),
                        ..file.setting(path, value.clone())
                    });
                }
                continue;
            }
            return Err(unknown_key(file, path));
        };
        // A block whose default is empty holds names we cannot know; its own type judges it.
        let is_block = default.as_object().is_some_and(|fields| !fields.is_empty());
        match value {
            // `ingester:` with nothing behind it changes nothing.
            Value::Null => {}
            Value::Object(fields) if is_block => collect(file, fields, default, &path, settings)?,
            _ if is_block => {
                return Err(ConfigError::NoBlock { path: file.path.into(), key: path });
            }
            // A zone called 1 is a text all the same.
            Value::Number(number) if default.is_string() && !number.is_f64() => {
                settings.push(file.setting(path, Value::from(number.to_string())));
            }
            _ => settings.push(file.setting(path, value.clone())),
        }
    }
    Ok(())
}

impl File<'_> {
    fn setting(&self, path: String, value: Value) -> Setting {
        let place = format!("key {path} in {}", self.path.display());
        Setting { key: path.clone(), path, value, place }
    }
}

fn unknown_key(file: &File<'_>, key: String) -> ConfigError {
    let path: PathBuf = file.path.into();
    if let Some(&(_, now)) = table::RENAMED_KEYS.iter().find(|(was, _)| *was == key) {
        return ConfigError::RenamedKey { path, key, now };
    }
    let mut known = Vec::new();
    paths(file.defaults, "", &mut known);
    known.extend(table::SECOND_PLACES.iter().map(|(there, _)| (*there).to_owned()));
    // A key in the wrong block has the right last name.
    let last = |path: &str| path.rsplit('.').next().map(str::to_owned);
    let likeness = |path: &String| {
        let same_name = f64::from(u8::from(last(path) == last(&key)));
        same_name + likeness(path, &key)
    };
    let nearest = known
        .iter()
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
        .expect("the default configuration has keys")
        .clone();
    ConfigError::UnknownKey { path, key, nearest }
}

/// How alike two names are, 0 to 1. A shared beginning counts most: people complete names by
/// their first parts and err in the last.
pub(super) fn likeness(one: &str, other: &str) -> f64 {
    strsim::jaro_winkler(one, other)
}

/// Dotted paths of every block and value below `tree`.
pub(super) fn paths(tree: &Value, prefix: &str, found: &mut Vec<String>) {
    for (key, value) in tree.as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        found.push(path.clone());
        paths(value, &path, found);
    }
}

/// Finds which setting the types refused: serde's error does not say where it happened.
fn blame(defaults: &Value, settings: &[Setting], error: serde_json::Error) -> ConfigError {
    for setting in settings {
        let mut tree = defaults.clone();
        set(&mut tree, &setting.path, setting.value.clone());
        if let Err(source) = serde_json::from_value::<Config>(tree) {
            let value = setting.value.to_string();
            return ConfigError::Value { place: setting.place.clone(), value, source };
        }
    }
    // Fields do not judge each other before `validate`, so one alone was refused above.
    ConfigError::Value { place: "the configuration".into(), value: "read".into(), source: error }
}

fn set(tree: &mut Value, path: &str, value: Value) {
    let slot = path.split('.').try_fold(tree, |block, key| block.get_mut(key));
    *slot.expect("settings are made from known paths only") = value;
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::ReadFile { path: path.into(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(CONFIG_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > CONFIG_FILE_BYTES_MAX {
        return Err(ConfigError::FileTooLong {
            path: path.into(),
            bytes_max: CONFIG_FILE_BYTES_MAX,
        });
    }
    Ok(text)
}

/// Booleans as Go's flags spell them.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
