//! What commands say: tables for people, JSON for scripts, and how a command ends.
//!
//! Only a terminal gets colours, cut columns and a line that rewrites itself; what goes into a
//! file or a pipe is the same everywhere. Texts that came over the network never reach a terminal
//! as they are: a client's name could otherwise be a terminal's command.
//!
//! A command ends with one of four codes, which [`EXIT_CODES`] tells people.

mod screen;
mod table;

use std::error::Error;

use serde::Serialize;

pub use screen::{Screen, Style, clean, is_confirmed, terminal_width};
pub use table::{Cell, Column, Table};

/// What the program ends with, as help and manual say it.
pub const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed, why is on standard error; 2 the command line cannot be read; \
3 done, and something in the answer needs a look.";

/// The code of an answer that needs a look.
pub const FINDING: u8 = 3;
/// The code of a command line that cannot be read, as clap has it.
pub const USAGE: u8 = 2;

/// What a command has to say on standard output, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub text: String,
    /// Whether something in it needs a look.
    pub is_finding: bool,
}

impl Told {
    /// An answer in which there is nothing to find.
    pub fn plain(text: String) -> Self {
        Self { text, is_finding: false }
    }
}

/// An error with its causes, a line each unless it has some itself. Whatever a file or an answer
/// put into it, no terminal takes it for a command.
pub fn fault(error: &dyn Error) -> String {
    let mut text = format!("error: {error}\n");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!("  caused by: {error}\n"));
        cause = error.source();
    }
    text.lines().map(|line| clean(line) + "\n").collect()
}

/// A value as scripts read it: indented, a line break at the end.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// A number of things with its digits in groups of three: `1 234 567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// A span of time by its two largest units: `2d 3h`, `4m 5s`, `12s`.
pub fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, ..) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_with_its_causes_and_gives_a_terminal_no_command() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read \u{1b}[31mred")]
        struct Outer(#[source] std::io::Error);
        let inner = std::io::Error::other("line 1:\n  a\u{9b}b\r\n");
        assert_eq!(
            fault(&Outer(inner)),
            "error: cannot read \\u{1b}[31mred\n  caused by: line 1:\n  a\\u{9b}b\n\n"
        );
    }

    #[test]
    fn numbers_and_spans_are_short_and_exact() {
        let check = |number, expect: &str| assert_eq!(grouped(number), expect);
        check(0, "0");
        check(999, "999");
        check(1000, "1 000");
        check(1_234_567, "1 234 567");
        let check = |seconds, expect: &str| assert_eq!(span(seconds), expect);
        check(0, "0s");
        check(59, "59s");
        check(61, "1m 1s");
        check(3600, "1h 0m");
        check(90_000, "1d 1h");
    }
}
