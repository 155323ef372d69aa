//! `freehold query`: what it is told.

use clap::{Arg, ArgMatches};

use super::Output;
use super::options::{self, text};

pub(super) const NAME: &str = "query";

/// What `freehold query` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryArgs {
    /// Host and port of the HTTP listener, or its URL.
    pub addr: String,
    pub tenant: String,
    /// A series selector as PromQL writes it.
    pub matchers: String,
    /// RFC 3339 or Unix seconds; absent is an hour before `end`.
    pub start: Option<String>,
    /// RFC 3339 or Unix seconds; absent is now.
    pub end: Option<String>,
    pub output: Output,
}

pub(super) fn read(given: &ArgMatches) -> QueryArgs {
    let text = |name: &str| text(given, name);
    QueryArgs {
        addr: text("address").expect("it has a default"),
        tenant: text("tenant").expect("clap requires it"),
        matchers: text("MATCHERS").expect("clap requires it"),
        start: text("start"),
        end: text("end"),
        output: options::output(given),
    }
}

pub(super) fn command() -> clap::Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    clap::Command::new(NAME)
        .about("Print what a running instance holds of a tenant's series")
        .arg(option("tenant").required(true).value_name("TENANT").help("Whose series"))
        .arg(options::address_arg("127.0.0.1:8080", "HTTP listener of the running instance"))
        .arg(option("start").value_name("TIME").help("RFC 3339 or Unix seconds; default end - 1h"))
        .arg(option("end").value_name("TIME").help("RFC 3339 or Unix seconds; default now"))
        .arg(options::output_arg())
        .arg(
            Arg::new("MATCHERS")
                .required(true)
                .help("A series selector, such as 'up{job=\"node\"}'"),
        )
}
