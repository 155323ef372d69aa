//! The command line: Cortex's flags with one dash or two, and the commands for people.
//!
//! Go's rules come first ([`go_rules`]), then clap reads what they leave. Each command has a file
//! with what it is told, how clap is told of it, and how that is read; a new one is a file here,
//! a variant of [`Command`], and a line in [`Command::parse`] and in [`clap_command`].

mod check_config;
mod clients;
mod explain;
mod generated;
mod go_rules;
mod load;
mod options;
mod plan;
mod query;
mod ring;
mod settings;
mod tenants;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::Styles;

use super::{Config, ConfigError, load as loading};
use crate::output::EXIT_CODES;

pub use clients::{ClientsArgs, ClientsAsk};
pub use explain::ExplainArgs;
pub use generated::write_manual;
pub use load::{LoadArgs, LoadTo};
pub use options::{AskedArgs, Output};
pub use plan::PlanArgs;
pub use query::QueryArgs;
pub use ring::{RingArgs, RingAsk};
pub use tenants::TenantsArgs;

/// What the command line asks for.
#[derive(Debug)]
pub enum Command {
    /// Run the services.
    Serve(Box<Config>),
    /// Say this on standard output and end: help, version, a checked configuration, completions.
    Print(String),
    /// Write the manual's pages.
    Manual { directory: PathBuf },
    /// Ask a running instance for a tenant's series.
    Query(QueryArgs),
    /// Ask a running gate for budgets of a tenant's clients.
    Clients(ClientsArgs),
    /// Ask a running instance why a series is taken or refused.
    Explain(ExplainArgs),
    /// Show the members of a ring, or take one out of it.
    Ring(RingArgs),
    /// Ask a running instance for its tenants.
    Tenants(TenantsArgs),
    /// Tell what another number of ingesters would do to tenants' limits.
    Plan(Box<PlanArgs>),
    /// Send made-up series.
    Load(Box<LoadArgs>),
}

const ABOUT: &str = "Admission control for Cortex: series limits on owned series";

const BEFORE_OPTIONS: &str = "\
Every option is also a key of the YAML file given by -config.file; options win over the file.
Names are Cortex's, with one dash or two. A boolean without a value is true.
`freehold COMMAND --help` tells more of a command; docs/cli.md has an example of each.";

impl Command {
    /// Reads the arguments, the program's name first.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ConfigError> {
        let matches = match clap_command().try_get_matches_from(go_rules::rewritten(arguments)?) {
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
            Some((check_config::NAME, given)) => Ok(Self::Print(check_config::checked(given)?)),
            Some((query::NAME, given)) => Ok(Self::Query(query::read(given))),
            Some((clients::NAME, given)) => Ok(Self::Clients(clients::read(given))),
            Some((explain::NAME, given)) => Ok(Self::Explain(explain::read(given))),
            Some((ring::NAME, given)) => Ok(Self::Ring(ring::read(given))),
            Some((tenants::NAME, given)) => Ok(Self::Tenants(tenants::read(given))),
            Some((plan::NAME, given)) => Ok(Self::Plan(Box::new(plan::read(given)?))),
            Some((load::NAME, given)) => Ok(Self::Load(Box::new(load::read(given)))),
            Some((generated::COMPLETIONS, given)) => {
                Ok(Self::Print(generated::completions(given, clap_command())))
            }
            Some((generated::MAN, given)) => Ok(generated::manual(given, clap_command())),
            _ => Ok(Self::Serve(Box::new(loading::load(&settings::settings(&matches)?)?))),
        }
    }
}

fn clap_command() -> clap::Command {
    let command = clap::Command::new("freehold")
        .about(ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .styles(Styles::plain())
        .after_help(format!("{BEFORE_OPTIONS}\n\n{EXIT_CODES}"))
        .override_usage(
            "freehold [-flag=value …]\n       freehold check-config FILE\n       \
             freehold plan --ring FILE|URL --counts FILE|URL --to N [-flag=value …]\n       \
             freehold ring show|forget [INSTANCE]\n       \
             freehold tenants [--filter TEXT] [--sort BY] [--top N]\n       \
             freehold clients top|show|reset --tenant TENANT [--client CLIENT] [--kind KIND]\n       \
             freehold explain [--tenant TENANT] 'SERIES or ERROR'\n       \
             freehold query --tenant TENANT 'MATCHERS'\n       \
             freehold load [--series N] [--rate N|max] [--duration TIME]\n       \
             freehold completions bash|zsh|fish\n       freehold man [--directory DIR]",
        )
        .help_template("{about}\n\n{usage-heading} {usage}{after-help}\n\n{all-args}\n")
        .args_override_self(true)
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .subcommands([
            check_config::command(),
            plan::command(),
            ring::command(),
            tenants::command(),
            clients::command(),
            explain::command(),
            query::command(),
            load::command(),
            generated::completions_command(),
            generated::man_command(),
        ]);
    settings::with_flags(command)
}
