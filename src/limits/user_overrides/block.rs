//! One tenant's block in the lines of a runtime file, as most are written: `overrides:` at the
//! start of a line, tenants below it at one depth, each with its limits deeper.
//!
//! Nothing here is sure of what it found: whoever calls reads the result again.

use serde_json::Value;

/// Depth of tenants in a block that has none yet.
const INDENT_DEFAULT: usize = 2;

/// The text with the tenant's limits in place of those that it has, or without the tenant.
/// `None` where the text is not written in lines like these.
pub(super) fn replaced(text: &str, tenant: &str, limits: Option<&Value>) -> Option<String> {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Some(start) = lines.iter().position(|line| is_key(line, 0, "overrides")) else {
        // Not in block style, or not there; the caller's second look tells.
        let limits = limits?;
        let line_end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let block = rendered(tenant, limits, INDENT_DEFAULT)?;
        return Some(format!("{text}{line_end}overrides:\n{block}"));
    };
    let body = start + 1;
    let end = body + lines[body..].iter().take_while(|line| is_below(line, 0)).count();
    let first = lines[body..end].iter().find(|line| !is_blank(line));
    let depth = first.map_or(INDENT_DEFAULT, |line| indent(line));
    let own = (body..end).find(|&at| is_key(lines[at], depth, tenant));
    let place = match own {
        Some(at) => {
            let limits = (at + 1..end).take_while(|&at| is_below(lines[at], depth));
            // Blank lines and comments behind the last limit belong to what follows.
            let last = limits.filter(|&at| !is_blank(lines[at])).last().unwrap_or(at);
            at..last + 1
        }
        None => {
            let last = (body..end).rev().find(|&at| !is_blank(lines[at]));
            let at = last.map_or(body, |last| last + 1);
            at..at
        }
    };
    let is_last =
        limits.is_none() && (body..end).all(|at| is_blank(lines[at]) || place.contains(&at));
    if is_last {
        // Nobody has overrides now, which is more than not to speak of them.
        lines.splice(place, []);
        lines[start] = "overrides: {}\n";
        return Some(lines.concat());
    }
    let made = match limits {
        Some(limits) => rendered(tenant, limits, depth)?,
        None => String::new(),
    };
    let (before, rest) = lines.split_at(place.start);
    let after = &rest[place.len()..];
    let before = before.concat();
    let line_end = if before.ends_with('\n') { "" } else { "\n" };
    Some(format!("{before}{line_end}{made}{}", after.concat()))
}

/// A tenant's lines. JSON is YAML too, so a value is written as such on one line.
fn rendered(tenant: &str, limits: &Value, depth: usize) -> Option<String> {
    let limits = limits.as_object()?;
    let outer = " ".repeat(depth);
    let tenant = Value::from(tenant);
    if limits.is_empty() {
        return Some(format!("{outer}{tenant}: {{}}\n"));
    }
    let mut block = format!("{outer}{tenant}:\n");
    for (name, value) in limits {
        block.push_str(&format!("{outer}  {}: {value}\n", plain(name)));
    }
    Some(block)
}

/// A name as it is where that is safe, else in quotes.
fn plain(name: &str) -> String {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    // Words that older YAML takes for switches.
    let is_word =
        matches!(name, "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null");
    if is_plain && !is_word { name.to_owned() } else { Value::from(name).to_string() }
}

/// Whether a line opens the block of that key at that depth, with nothing behind it.
fn is_key(line: &str, depth: usize, key: &str) -> bool {
    if indent(line) != depth {
        return false;
    }
    let line = line.trim();
    let quoted = [format!("\"{key}\""), format!("'{key}'"), key.to_owned()];
    quoted.iter().any(|key| {
        let rest = line.strip_prefix(key.as_str()).and_then(|rest| rest.strip_prefix(':'));
        rest.is_some_and(|rest| {
            let rest = rest.trim_start();
            rest.is_empty() || rest.starts_with('#')
        })
    })
}

/// Whether a line is part of the block that a line of that depth opened.
fn is_below(line: &str, depth: usize) -> bool {
    is_blank(line) || indent(line) > depth
}

/// Nothing, or a comment.
fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}
