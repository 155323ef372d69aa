//! `freehold tenants`: what it is told.

use clap::{Arg, ArgMatches};

use super::Output;
use super::options::{self, AskedArgs, text};

pub(super) const NAME: &str = "tenants";

/// Tenants that are printed unless told otherwise: a screen.
const TOP_DEFAULT: &str = "20";
/// Orders that a process knows; each puts what needs a look first.
const SORTS: [&str; 8] =
    ["headroom", "used", "time-to-limit", "owned", "in-memory", "active", "refused", "tenant"];

/// What `freehold tenants` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantsArgs {
    pub asked: AskedArgs,
    /// Part of a name; empty lets every tenant through.
    pub filter: String,
    /// As the page names it.
    pub sort: String,
    /// Most that are printed; `None` is all.
    pub top: Option<usize>,
    pub output: Output,
}

pub(super) fn read(given: &ArgMatches) -> TenantsArgs {
    let top: usize = *given.get_one("top").expect("it has a default");
    TenantsArgs {
        asked: AskedArgs::read(given),
        filter: text(given, "filter").unwrap_or_default(),
        sort: text(given, "sort").expect("it has a default").replace('-', "_"),
        top: (top > 0).then_some(top),
        output: options::output(given),
    }
}

pub(super) fn command() -> clap::Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    clap::Command::new(NAME)
        .about("List tenants with their series, the limit in force and what is left of it")
        .after_help("Ends with 3 when a tenant that is printed has no headroom left.")
        .args(AskedArgs::options(
            options::ADMIN_ADDRESS,
            "Admin listener of an ingester, of a sidecar or of -target=all",
        ))
        .arg(option("filter").value_name("TEXT").help("Only tenants with this in their name"))
        .arg(
            option("sort")
                .value_name("BY")
                .value_parser(SORTS)
                .default_value("headroom")
                .help("What comes first: the least headroom, the most series"),
        )
        .arg(
            option("top")
                .value_name("N")
                .value_parser(clap::value_parser!(usize))
                .default_value(TOP_DEFAULT)
                .help("How many are printed; 0 is all"),
        )
        .arg(options::output_arg())
}
