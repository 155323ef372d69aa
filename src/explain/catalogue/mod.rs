//! Every error text that a client can see, with a stable id: what it means and what to do.
//!
//! One table, of which `docs/errors.md` is printed, which the page `/explain` reads, and by which
//! a log line names the id. Texts stand here as their senders word them, with holes for what varies:
//! `{limit#}` is a number, `{metric"}` a text in Go's quotes, `{advice}` anything.
//!
//! What must hold: an id never changes its meaning and is never used again; every text has one
//! entry. `tests.rs` looks through the sources and Cortex's own answers for texts that have none.

mod door;
mod markdown;
mod queries;
mod requests;
mod samples;
mod series;
#[cfg(test)]
mod tests;
mod validation;
mod ways;
mod writes;

use std::ops::Range;
use std::sync::OnceLock;

use regex::{Captures, Regex};

pub use markdown::markdown;

/// One error.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub id: &'static str,
    /// How it reads, in each of its forms.
    pub texts: &'static [&'static str],
    /// The HTTP status that the sender gets, or several.
    pub status: &'static str,
    pub cause: &'static str,
    /// What became of the request, and of its sender.
    pub effect: &'static str,
    pub cure: &'static str,
    /// What counts it; empty where nothing does.
    pub metric: &'static str,
    /// Settings that it hangs on, as keys of the configuration or of a tenant's limits.
    pub keys: &'static [&'static str],
}

/// Errors of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub title: &'static str,
    pub about: &'static str,
    pub entries: &'static [Entry],
}

/// All errors, in the order in which a write meets them; then what readers are told.
pub const GROUPS: &[Group] = &[
    series::GROUP,
    samples::GROUP,
    series::INSTANCE,
    writes::RATES,
    validation::GROUP,
    writes::REPLICAS,
    ways::GROUP,
    requests::IDENTITY,
    requests::BODIES,
    door::GROUP,
    queries::GATE,
    queries::API,
    door::OVERRIDES,
];

/// Most errors that are named of one text: a line of a log wraps two or three.
pub const RECOGNISED_MAX: usize = 8;

/// The table, ready to read texts with.
pub struct Catalogue {
    forms: Vec<Form>,
}

/// One way in which an error reads.
struct Form {
    entry: &'static Entry,
    /// Built when a text first has `literal`: a hundred patterns take a second to build, and few
    /// are ever needed.
    pattern: OnceLock<Regex>,
    source: String,
    /// The longest given piece; a text without it is no such error.
    literal: &'static str,
    /// Characters that are given: of two errors at one place the one that says more is meant.
    given: usize,
    /// Holes with their names, in order.
    holes: Vec<&'static str>,
    ends_in_hole: bool,
}

/// An error that a text holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recognised {
    pub entry: &'static str,
    /// Where it stands, up to what the text leaves open at its end.
    pub place: Range<usize>,
    /// What fills its holes, with where it stands.
    pub holes: Vec<(&'static str, Range<usize>)>,
}

/// The entry of an id.
pub fn entry(id: &str) -> Option<&'static Entry> {
    entries().find(|entry| entry.id == id)
}

pub fn entries() -> impl Iterator<Item = &'static Entry> {
    GROUPS.iter().flat_map(|group| group.entries)
}

impl Catalogue {
    pub fn new() -> Self {
        let texts = entries().flat_map(|entry| entry.texts.iter().map(move |text| (entry, *text)));
        Self { forms: texts.map(|(entry, text)| Form::new(entry, text)).collect() }
    }

    /// The errors in a text, in their order. Linear in it, whatever it holds.
    pub fn recognise(&self, text: &str) -> Vec<Recognised> {
        let mut found: Vec<(usize, Recognised)> =
            self.forms.iter().filter_map(|form| Some((form.given, form.find(text)?))).collect();
        // Of an error within another the one that says more is meant. Among equals the first of
        // the table, since the sort is stable.
        found.sort_by_key(|(given, _)| std::cmp::Reverse(*given));
        let mut kept: Vec<Recognised> = Vec::new();
        for (_, one) in found {
            let overlaps = |other: &Recognised| {
                one.place.start < other.place.end && other.place.start < one.place.end
            };
            let is_known = kept.iter().any(|other| other.entry == one.entry || overlaps(other));
            if kept.len() < RECOGNISED_MAX && !is_known {
                kept.push(one);
            }
        }
        kept.sort_by_key(|one| one.place.start);
        kept
    }

    /// The ids of the errors in a text, from the outermost to the cause, with commas between them.
    pub fn ids(&self, text: &str) -> Option<String> {
        let ids: Vec<&str> = self.recognise(text).into_iter().map(|one| one.entry).collect();
        (!ids.is_empty()).then(|| ids.join(","))
    }
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::new()
    }
}

/// A piece of a text as the table writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Given(&'static str),
    Number(&'static str),
    Quoted(&'static str),
    Open(&'static str),
}

/// Splits a text at its holes. Braces that hold no name stand for themselves.
fn pieces(text: &'static str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut given, mut at) = (0, 0);
    while let Some(open) = text[at..].find('{').map(|offset| at + offset) {
        let name_len = text[open + 1..].find(|c: char| !c.is_ascii_lowercase() && c != '_');
        let name_end = open + 1 + name_len.unwrap_or(0);
        let name = &text[open + 1..name_end];
        let rest = &text[name_end..];
        let hole = match (name, rest) {
            ("", _) => None,
            (name, rest) if rest.starts_with("#}") => Some((Piece::Number(name), 2)),
            (name, rest) if rest.starts_with("\"}") => Some((Piece::Quoted(name), 2)),
            (name, rest) if rest.starts_with('}') => Some((Piece::Open(name), 1)),
            _ => None,
        };
        at = open + 1;
        if let Some((hole, len)) = hole {
            if given < open {
                pieces.push(Piece::Given(&text[given..open]));
            }
            pieces.push(hole);
            at = name_end + len;
            given = at;
        }
    }
    if given < text.len() {
        pieces.push(Piece::Given(&text[given..]));
    }
    pieces
}

/// As Go prints numbers of every kind.
const NUMBER: &str = r"[-+]?(?:[0-9][0-9.]*(?:e[-+]?[0-9]+)?|Inf)|NaN";

impl Form {
    fn new(entry: &'static Entry, text: &'static str) -> Self {
        let pieces = pieces(text);
        let mut pattern = String::from("(?s)");
        let (mut given, mut holes, mut literal) = (0, Vec::new(), "");
        for (index, piece) in pieces.iter().enumerate() {
            let is_edge = index == 0 || index + 1 == pieces.len();
            let part = match piece {
                Piece::Given(text) => {
                    given += text.len();
                    if text.len() > literal.len() {
                        literal = text;
                    }
                    regex::escape(text)
                }
                Piece::Number(name) => format!("(?P<{name}>{NUMBER})"),
                Piece::Quoted(name) => format!(r#""(?P<{name}>(?:[^"\\]|\\.)*)""#),
                // Where nothing says where it begins or ends, a word begins it and all ends it.
                Piece::Open(name) if index == 0 => format!(r"(?P<{name}>\S+)"),
                Piece::Open(name) if is_edge => format!("(?P<{name}>.*)"),
                Piece::Open(name) => format!("(?P<{name}>.*?)"),
            };
            pattern.push_str(&part);
            match piece {
                Piece::Given(_) => {}
                Piece::Number(name) | Piece::Quoted(name) | Piece::Open(name) => holes.push(*name),
            }
        }
        Self {
            entry,
            pattern: OnceLock::new(),
            source: pattern,
            literal,
            given,
            holes,
            ends_in_hole: matches!(pieces.last(), Some(Piece::Open(_))),
        }
    }

    fn find(&self, text: &str) -> Option<Recognised> {
        if !text.contains(self.literal) {
            return None;
        }
        let build = || Regex::new(&self.source).expect("a test builds the whole table");
        let found = self.pattern.get_or_init(build).captures(text)?;
        let place = self.place(&found)?;
        let holes = self.holes.iter().filter_map(|name| Some((*name, found.name(name)?.range())));
        Some(Recognised { entry: self.entry.id, place, holes: holes.collect() })
    }

    fn place(&self, found: &Captures<'_>) -> Option<Range<usize>> {
        let whole = found.get(0)?.range();
        let last = self.holes.last().filter(|_| self.ends_in_hole);
        let open = last.and_then(|name| found.name(name)).map(|hole| hole.start());
        Some(whole.start..open.unwrap_or(whole.end))
    }
}
