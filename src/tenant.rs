//! Who a request belongs to: parsed and validated once, at the edge.

use std::fmt;
use std::sync::Arc;

/// The unit of isolation; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

/// Longest tenant id that Cortex accepts, in bytes.
pub const TENANT_ID_BYTES_MAX: usize = 150;

/// Why a text is no tenant id. The texts are Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantIdError {
    #[error("no org id")]
    Missing,
    #[error("tenant ID is too long: max {TENANT_ID_BYTES_MAX} characters")]
    TooLong,
    #[error("tenant ID '{id}' contains unsupported character '{character}'")]
    UnsupportedCharacter { id: String, character: char },
    #[error("tenant ID is '.' or '..'")]
    DotPath,
    #[error("tenant ID '{0}' is not allowed")]
    Reserved(&'static str),
}

/// Names that Cortex's object storage keeps for itself.
const RESERVED: [&str; 2] = ["__markers__", "user-index.json.gz"];

impl TenantId {
    pub fn parse(text: &str) -> Result<Self, TenantIdError> {
        if text.is_empty() {
            return Err(TenantIdError::Missing);
        }
        if let Some(character) = text.chars().find(|&c| !is_supported(c)) {
            // Cortex prints the byte where the character starts, as if it were a character.
            let start = text.find(character).expect("it was found a line ago");
            let character = char::from(text.as_bytes()[start]);
            return Err(TenantIdError::UnsupportedCharacter { id: text.to_owned(), character });
        }
        if text.len() > TENANT_ID_BYTES_MAX {
            return Err(TenantIdError::TooLong);
        }
        if let Some(reserved) = RESERVED.into_iter().find(|&name| name == text) {
            return Err(TenantIdError::Reserved(reserved));
        }
        if text == "." || text == ".." {
            return Err(TenantIdError::DotPath);
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_supported(character: char) -> bool {
    character.is_ascii_alphanumeric() || "!-_.*'()".contains(character)
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for TenantId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_outside_cortex_rules_are_refused_in_its_words() {
        let check = |text: &str, error: &str| {
            assert_eq!(TenantId::parse(text).unwrap_err().to_string(), error, "{text}");
        };
        check("", "no org id");
        check("a/b", "tenant ID 'a/b' contains unsupported character '/'");
        check("a|b", "tenant ID 'a|b' contains unsupported character '|'");
        check("é", "tenant ID 'é' contains unsupported character 'Ã'");
        check(".", "tenant ID is '.' or '..'");
        check("..", "tenant ID is '.' or '..'");
        check("__markers__", "tenant ID '__markers__' is not allowed");
        check("user-index.json.gz", "tenant ID 'user-index.json.gz' is not allowed");
        check(&"a".repeat(151), "tenant ID is too long: max 150 characters");
        for text in ["a!-_.*'()b", &"a".repeat(150), "..."] {
            assert_eq!(TenantId::parse(text).expect(text).as_str(), text);
        }
    }
}
