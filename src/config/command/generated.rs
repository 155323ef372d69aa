//! Completions and manual pages, made from the very commands that are parsed.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches};
use clap_complete::Shell;
use clap_mangen::Man;

use super::Command;
use super::options::text;
use crate::output::EXIT_CODES;

pub(super) const COMPLETIONS: &str = "completions";
pub(super) const MAN: &str = "man";

const PROGRAM: &str = "freehold";

pub(super) fn completions_command() -> clap::Command {
    clap::Command::new(COMPLETIONS).about("Print completions of this command line for a shell").arg(
        Arg::new("SHELL")
            .required(true)
            .value_parser(["bash", "zsh", "fish"])
            .help("Whose; `source <(freehold completions bash)` tries them"),
    )
}

pub(super) fn man_command() -> clap::Command {
    clap::Command::new(MAN).about("Print the manual page, or write those of all commands").arg(
        Arg::new("directory")
            .long("directory")
            .value_name("DIR")
            .value_parser(clap::builder::NonEmptyStringValueParser::new())
            .help("Write freehold.1, freehold-plan.1 and the others there"),
    )
}

/// The completions that `given` asks for, of `command`.
pub(super) fn completions(given: &ArgMatches, mut command: clap::Command) -> String {
    let shell = match text(given, "SHELL").as_deref() {
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, PROGRAM, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Prints the first page, or has all of them written.
pub(super) fn manual(given: &ArgMatches, command: clap::Command) -> Command {
    match text(given, "directory") {
        Some(directory) => Command::Manual { directory: directory.into() },
        None => {
            let first = pages(command).into_iter().next().expect("the program has a page");
            Command::Print(String::from_utf8_lossy(&first.text).into_owned())
        }
    }
}

/// Writes every page into a directory, which is made if need be, and says what it wrote.
pub fn write_manual(directory: &Path) -> io::Result<String> {
    let named = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(directory).map_err(|error| named(directory, error))?;
    let mut said = String::new();
    for page in pages(super::clap_command()) {
        let path: PathBuf = directory.join(format!("{}.1", page.name));
        std::fs::write(&path, &page.text).map_err(|error| named(&path, error))?;
        said.push_str(&format!("{}\n", path.display()));
    }
    Ok(said)
}

struct Page {
    /// `freehold-ring-show`
    name: String,
    text: Vec<u8>,
}

/// The program's page, then those of its commands, in their order.
fn pages(mut command: clap::Command) -> Vec<Page> {
    command.build();
    let mut pages = Vec::new();
    add_pages(&mut pages, PROGRAM.to_owned(), &command);
    pages
}

fn add_pages(pages: &mut Vec<Page>, name: String, command: &clap::Command) {
    let is_program = pages.is_empty();
    let mut text = Vec::new();
    page(&mut text, &name, command, is_program).expect("memory takes all that is written");
    pages.push(Page { name: name.clone(), text });
    for inner in command.get_subcommands() {
        add_pages(pages, format!("{name}-{}", inner.get_name()), inner);
    }
}

fn page(
    out: &mut Vec<u8>,
    name: &str,
    command: &clap::Command,
    is_program: bool,
) -> io::Result<()> {
    let man = Man::new(command.clone())
        .title(name)
        .section("1")
        .source(format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION")))
        .manual("Freehold");
    man.render_title(out)?;
    man.render_name_section(out)?;
    match is_program {
        // Three hundred options in a row tell nobody anything.
        true => out.extend_from_slice(
            b".SH SYNOPSIS\n\\fBfreehold\\fR [\\-flag=value ...]\n.br\n\\fBfreehold\\fR \
              \\fICOMMAND\\fR ...\n",
        ),
        false => man.render_synopsis_section(out)?,
    }
    man.render_description_section(out)?;
    if command.get_subcommands().next().is_some() {
        man.render_subcommands_section(out)?;
    }
    man.render_options_section(out)?;
    man.render_extra_section(out)?;
    out.extend_from_slice(format!(".SH \"EXIT STATUS\"\n{EXIT_CODES}\n").as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_that_names_it() {
        let pages = pages(super::super::clap_command());
        let names: Vec<_> = pages.iter().map(|page| page.name.as_str()).collect();
        for name in ["freehold", "freehold-plan", "freehold-ring-show", "freehold-load"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        for page in &pages {
            let text = String::from_utf8_lossy(&page.text);
            assert!(text.contains(".TH ") && text.contains("EXIT STATUS"), "{}", page.name);
            assert!(text.contains(&page.name.replace('-', "\\-")), "{}: {text}", page.name);
        }
        assert!(pages[0].text.len() > 10_000, "the flags are in the first one");
    }

    #[test]
    fn completions_know_commands_and_flags() {
        for shell in ["bash", "zsh", "fish"] {
            let arguments = ["freehold", "completions", shell].map(std::ffi::OsString::from);
            let Ok(Command::Print(text)) = Command::parse(arguments) else {
                panic!("completions of {shell}");
            };
            for word in ["check-config", "ring", "forget", "load", "ingester.max-series-per-user"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }
}
