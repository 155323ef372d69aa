//! `docs/errors.md`, printed from the table.

use std::fmt::Write as _;

use super::{Entry, GROUPS, Group, Piece, pieces};

const HEAD: &str = "\
# Errors

<!-- Generated from src/explain/catalogue: FREEHOLD_BLESS=1 cargo test --lib explain -->

Every error text that a sender, a reader or a log can show, by a stable id.
Paste a text into [`/explain` or `freehold explain`](explain.md) to be led here, and to have the decision replayed.
`<limit>` and the like stand for what varies.
Texts are Cortex's wherever Cortex has the error; where a text has several forms, the longest that is there is meant.
";

/// The page.
pub fn markdown() -> String {
    let mut out = String::from(HEAD);
    for group in GROUPS {
        push_group(&mut out, group);
    }
    out
}

fn push_group(out: &mut String, group: &Group) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\n## {}\n\n{}\n", group.title, group.about);
    for entry in group.entries {
        push_entry(out, entry);
    }
}

fn push_entry(out: &mut String, entry: &Entry) {
    let Entry { id, texts, status, cause, effect, cure, metric, keys } = entry;
    let _ = write!(out, "\n### {id}\n\n```text\n");
    for text in *texts {
        let _ = writeln!(out, "{}", shown(text));
    }
    let _ = write!(
        out,
        "```\n\nStatus: {status}.\n\n- Cause: {cause}\n- Consequence: {effect}\n- What to do: \
         {cure}\n"
    );
    if !metric.is_empty() {
        let _ = writeln!(out, "- Counted by: `{metric}`");
    }
    if !keys.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        let _ = writeln!(out, "- Settings: {}", keys.join(", "));
    }
}

/// A text with its holes as people write them.
pub(super) fn shown(text: &'static str) -> String {
    let mut out = String::new();
    for piece in pieces(text) {
        match piece {
            Piece::Given(given) => out.push_str(given),
            Piece::Number(name) | Piece::Open(name) => {
                let _ = write!(out, "<{name}>");
            }
            Piece::Quoted(name) => {
                let _ = write!(out, "\"<{name}>\"");
            }
        }
    }
    out
}
