//! `freehold check-config`: what it is told, and what it says.

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Arg, ArgMatches};

use super::Output;
use super::options;
use crate::config::{ConfigError, effective_json, effective_yaml, load};

pub(super) const NAME: &str = "check-config";

/// Every value that the file would put in force.
pub(super) fn checked(given: &ArgMatches) -> Result<String, ConfigError> {
    let file: &PathBuf = given.get_one("FILE").expect("clap requires it");
    let config = load::load(&load::file_settings(file)?)?;
    Ok(match options::output(given) {
        Output::Table => effective_yaml(&config),
        Output::Json => effective_json(&config),
    })
}

pub(super) fn command() -> clap::Command {
    clap::Command::new(NAME)
        .about("Validate a YAML file and print the effective values")
        .arg(options::output_arg_of(PossibleValue::new("yaml").help("As a file that would set it")))
        .arg(
            Arg::new("FILE")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("The file that -config.file would be given"),
        )
}
