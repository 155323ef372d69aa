//! The flags of the table as clap's arguments, and what they and the file set.

use clap::{Arg, ArgAction, ArgMatches};

use crate::config::flags::{self, Kind};
use crate::config::{ConfigError, load, table};

pub(super) const CONFIG_FILE: &str = "config.file";

/// The table's groups under their headings.
pub(super) fn with_flags(mut command: clap::Command) -> clap::Command {
    let defaults = flags::default_tree();
    command = command.next_help_heading("General").arg(config_file_arg());
    for group in table::FLAGS {
        command = command.next_help_heading(group.heading);
        command = command.args(group.flags.iter().map(|flag| flag_arg(flag, &defaults)));
    }
    command
}

/// The same, taken but not shown.
pub(super) fn hidden_flags() -> impl Iterator<Item = Arg> {
    let defaults = flags::default_tree();
    flags::all().map(move |flag| flag_arg(flag, &defaults).hide(true))
}

pub(super) fn config_file_arg() -> Arg {
    Arg::new(CONFIG_FILE)
        .long(CONFIG_FILE)
        .value_name("file")
        .help("YAML file with the same keys; docs/freehold.yaml is an example.")
}

fn flag_arg(flag: &flags::Flag, defaults: &serde_json::Value) -> Arg {
    let default = flags::at(defaults, flag.path).expect("a test holds rows to known paths");
    let shown = flags::shown(default);
    Arg::new(flag.name)
        .long(flag.name)
        .visible_aliases(flag.aliases)
        .action(ArgAction::Set)
        .require_equals(true)
        .value_name(Kind::of(default).name())
        .hide_default_value(shown.is_empty())
        .default_value(shown)
        .help(flag.help)
}

/// What the file sets, then what the flags set.
pub(super) fn settings(matches: &ArgMatches) -> Result<Vec<load::Setting>, ConfigError> {
    let mut settings = match matches.get_one::<String>(CONFIG_FILE) {
        Some(file) => load::file_settings(file.as_ref())?,
        None => Vec::new(),
    };
    for flag in flags::all() {
        let is_given =
            matches.value_source(flag.name) == Some(clap::parser::ValueSource::CommandLine);
        if let (true, Some(text)) = (is_given, matches.get_one::<String>(flag.name)) {
            settings.push(load::flag_setting(flag, text)?);
        }
    }
    Ok(settings)
}
