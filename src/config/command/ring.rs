//! `freehold ring`: what it is told.

use clap::{Arg, ArgAction, ArgMatches};

use super::Output;
use super::options::{self, AskedArgs, text};

pub(super) const NAME: &str = "ring";

/// What `freehold ring` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingArgs {
    /// A path in its address is that of the ring's page; without one it is `/ring`.
    pub asked: AskedArgs,
    pub ask: RingAsk,
    pub output: Output,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingAsk {
    Show,
    Forget {
        instance: String,
        /// Nobody is asked.
        yes: bool,
    },
}

pub(super) fn read(given: &ArgMatches) -> RingArgs {
    let (ask, given) = given.subcommand().expect("clap requires it");
    RingArgs {
        asked: AskedArgs::read(given),
        ask: match ask {
            "forget" => RingAsk::Forget {
                instance: text(given, "INSTANCE").expect("clap requires it"),
                yes: given.get_flag("yes"),
            },
            _ => RingAsk::Show,
        },
        output: options::output(given),
    }
}

pub(super) fn command() -> clap::Command {
    let ask = |name: &'static str, about: &'static str| {
        let help = "Admin listener of a process that has the ring; with a path, the ring's page: \
                    http://HOST:PORT/distributor/ring, or any Cortex's http://HOST:PORT/ring";
        clap::Command::new(name)
            .about(about)
            .args(AskedArgs::options(options::ADMIN_ADDRESS, help))
            .arg(options::output_arg())
    };
    clap::Command::new(NAME)
        .about("Show the members of a ring, or take one out of it")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(ask("show", "The members: state, zone, heartbeat, share of the keys").after_help(
            "Ends with 3 when a member is not ACTIVE, its heartbeat is too old, or there is none.",
        ))
        .subcommand(
            ask("forget", "Take a member out of the ring; one that lives comes back by itself")
                .arg(Arg::new("INSTANCE").required(true).help("The member's id, as show names it"))
                .arg(
                    Arg::new("yes")
                        .long("yes")
                        .action(ArgAction::SetTrue)
                        .help("Do not ask; has to be given where there is no terminal"),
                ),
        )
}
