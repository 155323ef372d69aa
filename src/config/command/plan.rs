//! `freehold plan`: what it is told.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches};

use super::Output;
use super::options::{self, text};
use super::settings::{config_file_arg, hidden_flags, settings};
use crate::config::{Config, ConfigError, flags, load};
use crate::plan::GrowthArgs;

pub(super) const NAME: &str = "plan";

/// Options that take a value; everything else there is one of the flags.
pub(super) const OPTIONS: [&str; 13] = [
    "bearer-token-file",
    "ring",
    "counts",
    "tls-ca",
    "to",
    "zones",
    "tokens",
    "seed",
    "new-series",
    "at",
    "tenant",
    "output",
    // As it was called before every command had it.
    "format",
];
/// The option that takes none.
pub(super) const INSTANCES: &str = "instances";

/// What `freehold plan` is told.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanArgs {
    /// File or URL of the ring.
    pub ring: String,
    /// File or URL of the tenants' counts.
    pub counts: String,
    /// Authorities that servers of https URLs are checked against; empty takes the host's.
    pub tls_ca: PathBuf,
    /// Has the bearer that the admin listener wants which the counts come from.
    pub bearer_token_file: Option<PathBuf>,
    pub growth: GrowthArgs,
    /// Series that each tenant creates until the heads drop what has moved.
    pub new_series: u64,
    /// When the members join: RFC 3339 or Unix seconds; absent is now.
    pub at: Option<String>,
    /// Only this one.
    pub tenant: Option<String>,
    /// The table has a row per instance too.
    pub instances: bool,
    pub output: Output,
    /// Limits and what the cluster's members agree on.
    pub config: Config,
}

/// The usual flags, over the defaults of an ingester in a cluster.
pub(super) fn read(given: &ArgMatches) -> Result<PlanArgs, ConfigError> {
    let text = |name: &str| text(given, name);
    let mut settings = settings(given)?;
    let target = flags::find("target").expect("the table has the target");
    settings.insert(0, load::flag_setting(target, "ingester")?);
    let zones = text("zones").unwrap_or_default();
    let zones = zones.split(',').map(str::trim).filter(|zone| !zone.is_empty());
    Ok(PlanArgs {
        ring: text("ring").expect("clap requires it"),
        counts: text("counts").expect("clap requires it"),
        tls_ca: text("tls-ca").unwrap_or_default().into(),
        bearer_token_file: text("bearer-token-file").map(PathBuf::from),
        growth: GrowthArgs {
            to: *given.get_one("to").expect("clap requires it"),
            zones: zones.map(str::to_owned).collect(),
            tokens: given.get_one("tokens").copied(),
            seed: *given.get_one("seed").expect("it has a default"),
        },
        new_series: *given.get_one("new-series").expect("it has a default"),
        at: text("at"),
        tenant: text("tenant"),
        instances: given.get_flag(INSTANCES),
        output: options::output(given),
        config: load::load(&settings)?,
    })
}

pub(super) fn command() -> clap::Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    let number = |name: &'static str| option(name).value_name("N");
    clap::Command::new(NAME)
        .about("Tell what another number of ingesters would do to tenants' limits")
        .after_help(
            "Limits, replication factor, zone awareness and sharding come from -config.file and \
             the usual flags, which may follow here; without them they are Cortex's defaults.\n\n\
             Ends with 3 when a tenant would be refused new series by the limits that those flags \
             put in force.",
        )
        .args_override_self(true)
        .arg(
            option("ring")
                .required(true)
                .value_name("FILE|URL")
                .help("The ring: a /ring page as JSON, or a stored ring as it is"),
        )
        .arg(option("counts").required(true).value_name("FILE|URL").help(
            "The tenants' series: a running instance, its /tenants or Cortex's \
             /distributor/all_user_stats as JSON, or lines of tenant,series[,global_limit]",
        ))
        .arg(option("tls-ca").value_name("FILE").help(
            "Authorities in PEM that servers of https URLs are checked against; default the host's",
        ))
        .arg(
            option("bearer-token-file")
                .value_name("FILE")
                .help("Has the bearer token that the process with the counts wants"),
        )
        .arg(
            number("to")
                .required(true)
                .value_parser(clap::value_parser!(usize))
                .help("Ingesters afterwards"),
        )
        .arg(
            option("zones")
                .value_name("ZONE,…")
                .help("Zones of new ingesters; default those of the ring"),
        )
        .arg(
            number("tokens")
                .value_parser(clap::value_parser!(usize))
                .help("Tokens of a new ingester; default as many as most have"),
        )
        .arg(
            number("seed")
                .value_parser(clap::value_parser!(u64))
                .default_value("1")
                .help("Draws the new tokens; try several"),
        )
        .arg(
            number("new-series")
                .value_parser(clap::value_parser!(u64))
                .default_value("0")
                .help("Series that each tenant creates while the heads are full"),
        )
        .arg(option("at").value_name("TIME").help("When they join; default now"))
        .arg(option("tenant").value_name("TENANT").help("Only this tenant"))
        .arg(
            option(INSTANCES)
                .action(ArgAction::SetTrue)
                .help("A row per instance beside the table"),
        )
        .arg(options::output_arg().alias("format"))
        .arg(config_file_arg())
        .args(hidden_flags())
}
