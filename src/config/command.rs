//! The command line: Cortex's flags with one dash or two, and the commands for people.
//!
//! Go's rules come first (one dash, a boolean takes its value only after `=`, the last of two
//! wins), then clap reads what they leave. Clap alone cannot: `-ingester.x` is nine short
//! flags to it.

mod explain;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::Styles;
use clap::{Arg, ArgAction, ArgMatches};

use super::flags::{self, Kind};
use super::{Config, ConfigError, effective_yaml, load, table};
use crate::clients::Gates;
use crate::plan::GrowthArgs;

pub use explain::{ExplainArgs, ExplainOutput};

/// What the command line asks for.
#[derive(Debug)]
pub enum Command {
    /// Run the services.
    Serve(Box<Config>),
    /// Say this on standard output and end: help, version, a checked configuration.
    Print(String),
    /// Ask a running instance for a tenant's series.
    Query(QueryArgs),
    /// Ask a running gate for budgets of a tenant's clients.
    Clients(ClientsArgs),
    /// Ask a running instance why a series is taken or refused.
    Explain(ExplainArgs),
    /// Tell what another number of ingesters would do to tenants' limits.
    Plan(Box<PlanArgs>),
}

/// What `freehold query` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryArgs {
    /// Host and port of the HTTP listener.
    pub addr: String,
    pub tenant: String,
    /// A series selector as PromQL writes it.
    pub matchers: String,
    /// RFC 3339 or Unix seconds; absent is an hour before `end`.
    pub start: Option<String>,
    /// RFC 3339 or Unix seconds; absent is now.
    pub end: Option<String>,
}

/// What `freehold clients` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientsArgs {
    /// Host and port of the HTTP listener of any gate.
    pub addr: String,
    pub tenant: String,
    /// Whose budgets: of writes, or of queries; `None` is what the gate has, writes first.
    pub kind: Option<Gates>,
    pub ask: ClientsAsk,
    pub json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientsAsk {
    /// Who has the least credit.
    Top,
    /// An empty client is the tenant itself.
    Show {
        client: String,
    },
    Reset {
        client: String,
    },
}

/// What `freehold plan` is told.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanArgs {
    /// File or URL of the ring.
    pub ring: String,
    /// File or URL of the tenants' counts.
    pub counts: String,
    /// Authorities that servers of https URLs are checked against; empty takes the host's.
    pub tls_ca: PathBuf,
    pub growth: GrowthArgs,
    /// Series that each tenant creates until the heads drop what has moved.
    pub new_series: u64,
    /// When the members join: RFC 3339 or Unix seconds; absent is now.
    pub at: Option<String>,
    /// Only this one.
    pub tenant: Option<String>,
    /// The table has a row per instance too.
    pub instances: bool,
    pub format: PlanFormat,
    /// Limits and what the cluster's members agree on.
    pub config: Config,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanFormat {
    #[default]
    Text,
    Json,
}

/// Options of `freehold plan` that take a value; everything else there is one of the flags.
const PLAN_OPTIONS: [&str; 11] = [
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
    "format",
];
/// Its option that takes none.
const PLAN_INSTANCES: &str = "instances";

const CONFIG_FILE: &str = "config.file";

const ABOUT: &str = "Admission control for Cortex: series limits on owned series";

const BEFORE_OPTIONS: &str = "\
Every option is also a key of the YAML file given by -config.file; options win over the file.
Names are Cortex's, with one dash or two. A boolean without a value is true.";

impl Command {
    /// Reads the arguments, the program's name first.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ConfigError> {
        let matches = match clap_command().try_get_matches_from(go_rules(arguments)?) {
            Ok(matches) => matches,
            Err(error) if error.use_stderr() => {
                let text = error.render().to_string();
                let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned();
                return Err(ConfigError::Usage { text });
            }
            // Help and version come as errors too.
            Err(help) => return Ok(Self::Print(help.render().to_string())),
        };
        match matches.subcommand() {
            Some(("check-config", given)) => {
                let file: &PathBuf = given.get_one("FILE").expect("clap requires it");
                let config = load::load(&load::file_settings(file)?)?;
                Ok(Self::Print(effective_yaml(&config)))
            }
            Some(("query", given)) => Ok(Self::Query(query_args(given))),
            Some(("clients", given)) => Ok(Self::Clients(clients_args(given))),
            Some(("explain", given)) => Ok(Self::Explain(explain::args(given))),
            Some(("plan", given)) => Ok(Self::Plan(Box::new(plan_args(given)?))),
            _ => Ok(Self::Serve(Box::new(load::load(&settings(&matches)?)?))),
        }
    }
}

/// Rewrites flags to the one form that clap reads: `--name=value`, by the flag's main name.
fn go_rules(arguments: impl IntoIterator<Item = OsString>) -> Result<Vec<String>, ConfigError> {
    let mut arguments = arguments.into_iter().map(|argument| {
        argument.into_string().map_err(|argument| ConfigError::NotUtf8 { argument })
    });
    let mut rewritten: Vec<String> = arguments.next().transpose()?.into_iter().collect();
    let mut is_plan = false;
    while let Some(argument) = arguments.next() {
        let argument = argument?;
        let is_flag = argument.len() > 1 && argument.starts_with('-') && argument != "--";
        if !is_flag && !is_plan && argument == "plan" {
            // It takes flags too, so they follow the same rules behind it.
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
        if is_plan && name == PLAN_INSTANCES && value.is_none() {
            rewritten.push(format!("--{PLAN_INSTANCES}"));
            continue;
        }
        let option = PLAN_OPTIONS.into_iter().find(|option| is_plan && *option == name);
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

/// What the file sets, then what the flags set.
fn settings(matches: &ArgMatches) -> Result<Vec<load::Setting>, ConfigError> {
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

/// The usual flags, over the defaults of an ingester in a cluster.
fn plan_args(given: &ArgMatches) -> Result<PlanArgs, ConfigError> {
    let text = |name: &str| given.get_one::<String>(name).cloned();
    let mut settings = settings(given)?;
    let target = flags::find("target").expect("the table has the target");
    settings.insert(0, load::flag_setting(target, "ingester")?);
    let zones = text("zones").unwrap_or_default();
    let zones = zones.split(',').map(str::trim).filter(|zone| !zone.is_empty());
    Ok(PlanArgs {
        ring: text("ring").expect("clap requires it"),
        counts: text("counts").expect("clap requires it"),
        tls_ca: text("tls-ca").unwrap_or_default().into(),
        growth: GrowthArgs {
            to: *given.get_one("to").expect("clap requires it"),
            zones: zones.map(str::to_owned).collect(),
            tokens: given.get_one("tokens").copied(),
            seed: *given.get_one("seed").expect("it has a default"),
        },
        new_series: *given.get_one("new-series").expect("it has a default"),
        at: text("at"),
        tenant: text("tenant"),
        instances: given.get_flag(PLAN_INSTANCES),
        format: match text("format").as_deref() {
            Some("json") => PlanFormat::Json,
            _ => PlanFormat::Text,
        },
        config: load::load(&settings)?,
    })
}

fn query_args(given: &ArgMatches) -> QueryArgs {
    let text = |name: &str| given.get_one::<String>(name).cloned();
    QueryArgs {
        addr: text("addr").expect("it has a default"),
        tenant: text("tenant").expect("clap requires it"),
        matchers: text("MATCHERS").expect("clap requires it"),
        start: text("start"),
        end: text("end"),
    }
}

fn clients_args(given: &ArgMatches) -> ClientsArgs {
    let (ask, given) = given.subcommand().expect("clap requires it");
    let text = |name: &str| given.get_one::<String>(name).cloned().expect("required or default");
    ClientsArgs {
        addr: text("addr"),
        tenant: text("tenant"),
        kind: given.get_one::<String>("kind").map(|kind| match kind.as_str() {
            "queries" => Gates::QueryFrontends,
            _ => Gates::Distributors,
        }),
        ask: match ask {
            "show" => ClientsAsk::Show { client: text("client") },
            "reset" => ClientsAsk::Reset { client: text("client") },
            _ => ClientsAsk::Top,
        },
        json: given.get_flag("json"),
    }
}

fn clap_command() -> clap::Command {
    let defaults = flags::default_tree();
    let mut command = clap::Command::new("freehold")
        .about(ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .styles(Styles::plain())
        .after_help(BEFORE_OPTIONS)
        .override_usage(
            "freehold [-flag=value …]\n       freehold check-config FILE\n       \
             freehold query --tenant TENANT 'MATCHERS'\n       \
             freehold clients top|show|reset --tenant TENANT [--client CLIENT] [--kind KIND]\n       \
             freehold plan --ring FILE|URL --counts FILE|URL --to N [-flag=value …]",
        )
        .help_template("{about}\n\n{usage-heading} {usage}{after-help}\n\n{all-args}\n")
        .args_override_self(true)
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .subcommand(check_config_command())
        .subcommand(query_command())
        .subcommand(clients_command())
        .subcommand(explain::command())
        .subcommand(plan_command())
        .next_help_heading("General")
        .arg(config_file_arg());
    for group in table::FLAGS {
        command = command.next_help_heading(group.heading);
        command = command.args(group.flags.iter().map(|flag| flag_arg(flag, &defaults)));
    }
    command
}

fn config_file_arg() -> Arg {
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

fn check_config_command() -> clap::Command {
    clap::Command::new("check-config")
        .about("Validate a YAML file and print the effective values")
        .arg(
            Arg::new("FILE")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("The file that -config.file would be given"),
        )
}

fn plan_command() -> clap::Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    let number = |name: &'static str| option(name).value_name("N");
    let defaults = flags::default_tree();
    let flags = flags::all().map(|flag| flag_arg(flag, &defaults).hide(true));
    clap::Command::new("plan")
        .about("Tell what another number of ingesters would do to tenants' limits")
        .after_help(
            "Limits, replication factor, zone awareness and sharding come from -config.file and \
             the usual flags, which may follow here; without them they are Cortex's defaults.",
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
            option(PLAN_INSTANCES)
                .action(ArgAction::SetTrue)
                .help("A row per instance beside the table"),
        )
        .arg(
            option("format")
                .value_parser(["text", "json"])
                .default_value("text")
                .help("A table, or everything as JSON"),
        )
        .arg(config_file_arg())
        .args(flags)
}

fn query_command() -> clap::Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    clap::Command::new("query")
        .about("Print what a running instance holds of a tenant's series")
        .arg(option("tenant").required(true).value_name("TENANT").help("Whose series"))
        .arg(addr_arg("127.0.0.1:8080", "HTTP listener of the running instance"))
        .arg(option("start").value_name("TIME").help("RFC 3339 or Unix seconds; default end - 1h"))
        .arg(option("end").value_name("TIME").help("RFC 3339 or Unix seconds; default now"))
        .arg(
            Arg::new("MATCHERS")
                .required(true)
                .help("A series selector, such as 'up{job=\"node\"}'"),
        )
}

fn clients_command() -> clap::Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    let ask = |name: &'static str, about: &'static str| {
        clap::Command::new(name)
            .about(about)
            .arg(option("tenant").required(true).value_name("TENANT").help("Whose clients"))
            .arg(option("kind").value_name("KIND").value_parser(["writes", "queries"]).help(
                "Budgets of writes, or of queries; of what the gate has, writes first, if not told",
            ))
            .arg(addr_arg("127.0.0.1:8081", "Listener for operators of the running instance"))
            .arg(option("json").action(ArgAction::SetTrue).help("The page as JSON"))
    };
    let client = || {
        let help = "Which client, as the gateway names it; '' is the tenant itself";
        option("client").required(true).value_name("CLIENT").help(help)
    };
    clap::Command::new("clients")
        .about("Show who of a tenant's clients is at the limit, or reset a budget")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(ask("top", "The clients with the least credit, by all gates"))
        .subcommand(ask("show", "What the owner of a budget says of it").arg(client()))
        .subcommand(ask("reset", "Forgive what is owed of a budget").arg(client()))
}

fn addr_arg(default: &'static str, help: &'static str) -> Arg {
    Arg::new("addr").long("addr").value_name("HOST:PORT").default_value(default).help(help)
}
