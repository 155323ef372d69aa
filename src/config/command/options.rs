//! Options that several commands share.

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Arg, ArgMatches};

/// Where the pages and the writes of operators are, unless told otherwise.
pub(super) const ADMIN_ADDRESS: &str = "http://127.0.0.1:8081";

/// For whom a command prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For scripts.
    Json,
}

/// The process that a command asks, and how it shows who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskedArgs {
    /// `host:port`, or a URL of http or https.
    pub address: String,
    /// Has the bearer that the process wants; `None` sends none.
    pub bearer_token_file: Option<PathBuf>,
    /// Authorities that an https server is checked against; empty takes the host's.
    pub tls_ca: PathBuf,
}

impl AskedArgs {
    pub(super) fn read(given: &ArgMatches) -> Self {
        Self {
            address: text(given, "address").expect("it has a default"),
            bearer_token_file: text(given, "bearer-token-file").map(PathBuf::from),
            tls_ca: text(given, "tls-ca").unwrap_or_default().into(),
        }
    }

    pub(super) fn options(default: &'static str, help: &'static str) -> [Arg; 3] {
        [
            address_arg(default, help),
            Arg::new("bearer-token-file")
                .long("bearer-token-file")
                .value_name("FILE")
                .help("Has the bearer token that the process wants"),
            Arg::new("tls-ca").long("tls-ca").value_name("FILE").help(
                "Authorities in PEM that an https server is checked against; default the host's",
            ),
        ]
    }
}

pub(super) fn address_arg(default: &'static str, help: &'static str) -> Arg {
    Arg::new("address")
        .long("address")
        .alias("addr")
        .value_name("HOST:PORT|URL")
        .default_value(default)
        .help(help)
}

/// `--output table|json`.
pub(super) fn output_arg() -> Arg {
    output_arg_of(PossibleValue::new("table").alias("text").help("For people"))
}

/// The same where people get something else than a table.
pub(super) fn output_arg_of(for_people: PossibleValue) -> Arg {
    let name = for_people.get_name().to_owned();
    Arg::new("output")
        .long("output")
        .value_name("FORM")
        .value_parser([for_people, PossibleValue::new("json").help("For scripts")])
        .default_value(name)
        .help("What is printed")
}

pub(super) fn output(given: &ArgMatches) -> Output {
    match given.get_one::<String>("output").map(String::as_str) {
        Some("json") => Output::Json,
        _ => Output::Table,
    }
}

pub(super) fn text(given: &ArgMatches, name: &str) -> Option<String> {
    given.get_one::<String>(name).cloned()
}
