//! What the output goes to: whether it may be coloured, and how wide it is.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use unicode_width::UnicodeWidthStr as _;

/// Narrowest terminal that a table is cut for; below it lines wrap, which still reads.
const WIDTH_MIN: usize = 40;

/// Where standard output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns of the terminal; `None` is no terminal, and nothing is cut.
    pub width: Option<usize>,
    pub is_coloured: bool,
}

/// What a text is to the reader. Colour only repeats what the words say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Plain,
    Heading,
    Good,
    Warn,
    Bad,
    Quiet,
}

impl Screen {
    /// A file or a pipe.
    pub const FILE: Self = Self { width: None, is_coloured: false };

    /// Standard output as it is: a terminal is asked for its width, and coloured unless
    /// `NO_COLOR` is set or it is said to be a dumb one.
    pub fn of_stdout() -> Self {
        if !std::io::stdout().is_terminal() {
            return Self::FILE;
        }
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            width: terminal_width().map(|width| width.max(WIDTH_MIN)),
            is_coloured: !is_set("NO_COLOR") && !is_dumb,
        }
    }

    pub fn paint(&self, style: Style, text: &str) -> String {
        let code = match style {
            _ if !self.is_coloured => return text.to_owned(),
            Style::Plain => return text.to_owned(),
            Style::Heading => "1",
            Style::Good => "32",
            Style::Warn => "33",
            Style::Bad => "31",
            Style::Quiet => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Columns of the terminal that any of the standard streams is.
pub fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// A text from outside as it may stand on a terminal: what would move the cursor, colour or turn
/// the writing round is shown by its number.
pub fn clean(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Cells that a text takes on a terminal.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Asks the operator; `None` where nobody can be asked.
pub fn is_confirmed(question: &str) -> Option<bool> {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return None;
    }
    let mut answer = String::new();
    let asked = write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush());
    asked.and_then(|()| stdin.lock().read_line(&mut answer)).ok()?;
    Some(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_never_coloured() {
        assert_eq!(Screen::FILE.paint(Style::Bad, "a"), "a");
        let screen = Screen { width: Some(80), is_coloured: true };
        assert_eq!(screen.paint(Style::Bad, "a"), "\x1b[31ma\x1b[0m");
        assert_eq!(screen.paint(Style::Plain, "a"), "a");
    }

    #[test]
    fn a_name_cannot_command_a_terminal() {
        assert_eq!(clean("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(clean("a\u{202e}b\n"), "a\\u{202e}b\\u{a}");
        assert_eq!(clean("zone-ä 中"), "zone-ä 中");
    }
}
