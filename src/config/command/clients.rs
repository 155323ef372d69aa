//! `freehold clients`: what it is told.

use clap::{Arg, ArgAction, ArgMatches};

use super::Output;
use super::options::{self, AskedArgs, text};
use crate::clients::Gates;

pub(super) const NAME: &str = "clients";

/// What `freehold clients` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientsArgs {
    /// The admin listener of any gate.
    pub asked: AskedArgs,
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

pub(super) fn read(given: &ArgMatches) -> ClientsArgs {
    let (ask, given) = given.subcommand().expect("clap requires it");
    let text = |name: &str| text(given, name).expect("required or default");
    ClientsArgs {
        asked: AskedArgs::read(given),
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
        json: given.get_flag("json") || options::output(given) == Output::Json,
    }
}

pub(super) fn command() -> clap::Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    let ask = |name: &'static str, about: &'static str| {
        clap::Command::new(name)
            .about(about)
            .arg(option("tenant").required(true).value_name("TENANT").help("Whose clients"))
            .arg(option("kind").value_name("KIND").value_parser(["writes", "queries"]).help(
                "Budgets of writes, or of queries; of what the gate has, writes first, if not told",
            ))
            .args(AskedArgs::options(options::ADMIN_ADDRESS, "Admin listener of any gate"))
            .arg(options::output_arg())
            // As it was called before every command had --output.
            .arg(option("json").action(ArgAction::SetTrue).hide(true))
    };
    let client = || {
        let help = "Which client, as the gateway names it; '' is the tenant itself";
        option("client").required(true).value_name("CLIENT").help(help)
    };
    clap::Command::new(NAME)
        .about("Show who of a tenant's clients is at the limit, or reset a budget")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(ask("top", "The clients with the least credit, by all gates"))
        .subcommand(ask("show", "What the owner of a budget says of it").arg(client()))
        .subcommand(ask("reset", "Forgive what is owed of a budget").arg(client()))
}
