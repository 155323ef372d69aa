//! `freehold explain` on the command line.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches};

/// What `freehold explain` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainArgs {
    /// Host and port of the admin listener; `http://` before it is taken.
    pub address: String,
    /// Empty where the text names it.
    pub tenant: String,
    /// A series, or an error from a log.
    pub text: String,
    /// The series' sample would be a native histogram.
    pub histogram: bool,
    pub output: ExplainOutput,
    pub bearer_token_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExplainOutput {
    #[default]
    Table,
    Json,
}

pub(super) fn command() -> clap::Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    clap::Command::new("explain")
        .about("Tell why a series is taken or refused, or what an error text means")
        .after_help(
            "Exit codes: 0 the series would be taken, or the text is told of and names no series; \
             1 there is no answer; 2 the series would be refused.",
        )
        .arg(
            option("tenant")
                .value_name("TENANT")
                .default_value("")
                .hide_default_value(true)
                .help("Whose series; may be left out where the text names the tenant"),
        )
        .arg(
            option("address")
                .value_name("URL")
                .default_value("http://127.0.0.1:8081")
                .help("Admin listener of the running instance"),
        )
        .arg(
            option("output")
                .value_name("FORM")
                .value_parser(["table", "json"])
                .default_value("table")
                .help("Text for people, or the page as JSON"),
        )
        .arg(
            option("histogram")
                .action(ArgAction::SetTrue)
                .help("Ask as for a sample that is a native histogram"),
        )
        .arg(
            option("bearer-token-file")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("File with the token that the admin listener asks for"),
        )
        .arg(Arg::new("TEXT").required(true).help(
            "A series, such as 'up{job=\"a\"}' or its labels as JSON, or an error from a log",
        ))
}

pub(super) fn args(given: &ArgMatches) -> ExplainArgs {
    let text = |name: &str| given.get_one::<String>(name).cloned().unwrap_or_default();
    ExplainArgs {
        address: text("address"),
        tenant: text("tenant"),
        text: text("TEXT"),
        histogram: given.get_flag("histogram"),
        output: match text("output").as_str() {
            "json" => ExplainOutput::Json,
            _ => ExplainOutput::Table,
        },
        bearer_token_file: given.get_one("bearer-token-file").cloned(),
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
        assert_eq!((plain.tenant.as_str(), plain.output), ("", ExplainOutput::Table));
        assert_eq!(plain.address, "http://127.0.0.1:8081");
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
        assert_eq!((all.output, all.histogram), (ExplainOutput::Json, true));
        assert_eq!(all.bearer_token_file, Some(PathBuf::from("/f")));
        assert!(parse(&[]).is_err() && parse(&["--output=yaml", "up"]).is_err());
    }
}
