//! Go's rules for flags, before clap reads what they leave.
//!
//! One dash or two, a boolean takes its value only after `=`, the last of two wins, a list that
//! is given again goes on. Clap alone cannot: `-ingester.x` is nine short flags to it.

use std::ffi::OsString;

use super::plan;
use super::settings::CONFIG_FILE;
use crate::config::{ConfigError, flags, load};

/// Rewrites flags to the one form that clap reads: `--name=value`, by the flag's main name.
/// What stands behind a command is its own, but for `plan`, which takes the flags too.
pub(super) fn rewritten(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Vec<String>, ConfigError> {
    let mut arguments = arguments.into_iter().map(|argument| {
        argument.into_string().map_err(|argument| ConfigError::NotUtf8 { argument })
    });
    let mut rewritten: Vec<String> = arguments.next().transpose()?.into_iter().collect();
    let mut is_plan = false;
    while let Some(argument) = arguments.next() {
        let argument = argument?;
        let is_flag = argument.len() > 1 && argument.starts_with('-') && argument != "--";
        if !is_flag && !is_plan && argument == plan::NAME {
            is_plan = true;
            rewritten.push(argument);
            continue;
        }
        if !is_flag {
            // A command; what follows is its own.
            rewritten.push(argument);
            for argument in arguments {
                rewritten.push(argument?);
            }
            break;
        }
        let given = argument.strip_prefix("--").unwrap_or(&argument[1..]);
        let (name, value) = match given.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (given, None),
        };
        if matches!(name, "h" | "help" | "V" | "version") && value.is_none() {
            rewritten.push(if name.len() == 1 { format!("-{name}") } else { format!("--{name}") });
            continue;
        }
        if is_plan && name == plan::INSTANCES && value.is_none() {
            rewritten.push(format!("--{}", plan::INSTANCES));
            continue;
        }
        let option = plan::OPTIONS.into_iter().find(|option| is_plan && *option == name);
        let (name, is_bool) = match flags::find(name) {
            _ if option.is_some() => (option.unwrap_or_default(), false),
            Some(flag) => (flag.name, is_bool(flag)),
            None if name == CONFIG_FILE => (CONFIG_FILE, false),
            None => return Err(unknown_flag(name)),
        };
        let value = match value {
            Some(value) => value,
            None if is_bool => "true".to_owned(),
            None => arguments.next().ok_or(ConfigError::MissingValue { flag: name })??,
        };
        let argument = format!("--{name}={value}");
        // A list that is given again goes on: Cortex's members to join are given one by one.
        let opening = format!("--{name}=");
        let before = rewritten.iter_mut().find(|before| before.starts_with(&opening));
        match before.filter(|_| is_list(name) && !value.is_empty()) {
            Some(before) if before.len() > opening.len() => {
                before.push(',');
                before.push_str(&value);
            }
            _ => rewritten.push(argument),
        }
    }
    Ok(rewritten)
}

fn is_list(name: &str) -> bool {
    let flag = flags::find(name);
    flag.and_then(|flag| {
        flags::at(&flags::default_tree(), flag.path).map(serde_json::Value::is_array)
    })
    .unwrap_or_default()
}

fn is_bool(flag: &flags::Flag) -> bool {
    flags::at(&flags::default_tree(), flag.path).is_some_and(serde_json::Value::is_boolean)
}

fn unknown_flag(name: &str) -> ConfigError {
    let nearest = flags::all()
        .flat_map(|flag| std::iter::once(flag.name).chain(flag.aliases.iter().copied()))
        .chain([CONFIG_FILE, "help", "version"])
        .max_by(|one, other| load::likeness(one, name).total_cmp(&load::likeness(other, name)))
        .expect("the table has rows");
    ConfigError::UnknownFlag { flag: name.to_owned(), nearest }
}
