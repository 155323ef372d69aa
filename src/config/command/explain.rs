//! `freehold explain` on the command line.

use clap::{Arg, ArgAction, ArgMatches};

use super::Output;
use super::options::{self, AskedArgs, text};

pub(super) const NAME: &str = "explain";

/// What `freehold explain` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainArgs {
    pub asked: AskedArgs,
    /// Empty where the text names it.
    pub tenant: String,
    /// A series, or an error from a log.
    pub text: String,
    /// The series' sample would be a native histogram.
    pub histogram: bool,
    pub output: Output,
}

pub(super) fn command() -> clap::Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    clap::Command::new(NAME)
        .about("Tell why a series is taken or refused, or what an error text means")
        .after_help("Ends with 3 when the series would be refused, or the process cannot tell.")
        .args(AskedArgs::options(options::ADMIN_ADDRESS, "Admin listener of the process asked"))
        .arg(
            option("tenant")
                .value_name("TENANT")
                .default_value("")
                .hide_default_value(true)
                .help("Whose series; may be left out where the text names the tenant"),
        )
        .arg(
            option("histogram")
                .action(ArgAction::SetTrue)
                .help("Ask as for a sample that is a native histogram"),
        )
        .arg(options::output_arg())
        .arg(Arg::new("TEXT").required(true).help(
            "A series, such as 'up{job=\"a\"}' or its labels as JSON, or an error from a log",
        ))
}

pub(super) fn read(given: &ArgMatches) -> ExplainArgs {
    ExplainArgs {
        asked: AskedArgs::read(given),
        tenant: text(given, "tenant").unwrap_or_default(),
        text: text(given, "TEXT").unwrap_or_default(),
        histogram: given.get_flag("histogram"),
        output: options::output(given),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::config::Command;

    #[test]
    fn a_question_is_read_with_its_defaults() {
        let parse = |arguments: &[&str]| {
            let arguments = ["freehold", "explain"].iter().chain(arguments).map(OsString::from);
            Command::parse(arguments)
        };
        let asked = |arguments: &[&str]| match parse(arguments) {
            Ok(Command::Explain(args)) => args,
            other => panic!("{arguments:?}: {other:?}"),
        };
        let plain = asked(&["up{a=\"b\"}"]);
        assert_eq!((plain.tenant.as_str(), plain.output), ("", Output::Table));
        assert_eq!(plain.asked.address, "http://127.0.0.1:8081");
        assert_eq!((plain.text.as_str(), plain.histogram), ("up{a=\"b\"}", false));
        let all = asked(&[
            "--tenant=t",
            "--output",
            "json",
            "--address",
            "h:1",
            "--histogram",
            "--bearer-token-file=/f",
            "--",
            "-x",
        ]);
        assert_eq!((all.tenant.as_str(), all.text.as_str()), ("t", "-x"));
        assert_eq!((all.output, all.histogram), (Output::Json, true));
        assert_eq!(all.asked.bearer_token_file, Some("/f".into()));
        assert!(parse(&[]).is_err() && parse(&["--output=yaml", "up"]).is_err());
    }
}
