//! Label sets as people read them, in Prometheus' notation and Go's quotes.
//!
//! Clients see these texts in errors, so they are a contract to the letter.

use std::fmt;

/// Writes labels as Prometheus does: `{__name__="up", "odd name"="say \"hi\""}`.
pub struct LabelSetText<I>(pub I);

impl<'a, I: Iterator<Item = (&'a [u8], &'a [u8])> + Clone> fmt::Display for LabelSetText<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "{";
        for (name, value) in self.0.clone() {
            f.write_str(separator)?;
            match std::str::from_utf8(name) {
                Ok(name) if is_plain_name(name) => f.write_str(name)?,
                _ => write_quoted(f, name)?,
            }
            f.write_str("=")?;
            write_quoted(f, value)?;
            separator = ", ";
        }
        f.write_str(if separator == "{" { "{}" } else { "}" })
    }
}

fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(plain)
}

/// Writes bytes as Go's `%q` does. Error texts quote label values, and they are a contract.
pub fn write_quoted(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str("\"")?;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            write_quoted_char(f, c)?;
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    f.write_str("\"")
}

fn write_quoted_char(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        '"' | '\\' => write!(f, "\\{c}"),
        '\x07' => f.write_str("\\a"),
        '\x08' => f.write_str("\\b"),
        '\x0b' => f.write_str("\\v"),
        '\x0c' => f.write_str("\\f"),
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        _ if is_printable(c) => write!(f, "{c}"),
        ..' ' | '\x7f' => write!(f, "\\x{:02x}", u32::from(c)),
        ..'\u{10000}' => write!(f, "\\u{:04x}", u32::from(c)),
        _ => write!(f, "\\U{:08x}", u32::from(c)),
    }
}

/// Letters, marks, numbers, punctuation, symbols and the ASCII space, as Go has it.
///
/// std keeps the same classes to itself and shows them only through its debug escapes. There a
/// mark counts as printable when another character stands before it, hence the space.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    let mut buffer = [b' '; 5];
    let len = 1 + c.encode_utf8(&mut buffer[1..]).len();
    std::str::from_utf8(&buffer[..len]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
}
