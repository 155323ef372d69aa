//! Who a request belongs to, its tenant and, below it, its client: parsed and validated once, at
//! the edge.

use std::fmt;
use std::sync::Arc;

/// The unit of isolation; cheap to clone.
///
/// The text is one that Cortex takes: ASCII letters and digits and `!-_.*'()`, not longer than
/// [`TENANT_ID_BYTES_MAX`], and none of the names that its object storage uses itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

/// Longest tenant id that Cortex accepts, in bytes.
pub const TENANT_ID_BYTES_MAX: usize = 150;

/// Names that Cortex keeps for files beside the tenants' directories.
const MARKERS_DIRECTORY: &str = "__markers__";
const USER_INDEX_FILE: &str = "user-index.json.gz";

/// Why a text is no tenant id. The texts are Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantIdError {
    #[error("no org id")]
    Missing,
    /// The character is the Latin-1 one of the first byte, as Cortex shows it.
    #[error("tenant ID '{tenant}' contains unsupported character '{character}'")]
    UnsupportedCharacter { tenant: String, character: char },
    #[error("tenant ID is too long: max {TENANT_ID_BYTES_MAX} characters")]
    TooLong,
    #[error("tenant ID '{MARKERS_DIRECTORY}' is not allowed")]
    Markers,
    #[error("tenant ID '{USER_INDEX_FILE}' is not allowed")]
    UserIndex,
    #[error("tenant ID is '.' or '..'")]
    Dots,
}

impl TenantId {
    /// Checks in Cortex's order, so that a text with two faults gets the same answer.
    pub fn parse(text: &str) -> Result<Self, TenantIdError> {
        if text.is_empty() {
            return Err(TenantIdError::Missing);
        }
        if let Some(at) = text.find(|c| !is_supported(c)) {
            return Err(TenantIdError::UnsupportedCharacter {
                tenant: text.to_owned(),
                character: char::from(text.as_bytes()[at]),
            });
        }
        match text {
            _ if text.len() > TENANT_ID_BYTES_MAX => Err(TenantIdError::TooLong),
            MARKERS_DIRECTORY => Err(TenantIdError::Markers),
            USER_INDEX_FILE => Err(TenantIdError::UserIndex),
            "." | ".." => Err(TenantIdError::Dots),
            _ => Ok(Self(text.into())),
        }
    }

    /// As [`parse`](Self::parse), for bytes off the wire. No byte outside ASCII is supported,
    /// so bytes that are not UTF-8 only ever end up in an error's text.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, TenantIdError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(_) => {
                let byte = bytes.iter().find(|byte| !is_supported(char::from(**byte)));
                Err(TenantIdError::UnsupportedCharacter {
                    tenant: String::from_utf8_lossy(bytes).into_owned(),
                    character: byte.map_or(char::REPLACEMENT_CHARACTER, |byte| (*byte).into()),
                })
            }
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_supported(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!-_.*'()".contains(c)
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

/// A writer or reader below its tenant, as a gateway names it; opaque and cheap to clone.
///
/// The text is printable ASCII, with spaces between other characters only, of 1 to
/// [`CLIENT_ID_BYTES_MAX`] bytes. So it fits a header, a log line and a page as it is, and no two
/// texts that look alike are two clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(Arc<str>);

/// Longest client id, in bytes. Host names have 253, certificates' subjects and digests in
/// hexadecimal fit too; whoever tracks a client keeps its name, so longer ones would only cost.
pub const CLIENT_ID_BYTES_MAX: usize = 256;

/// Why a text is no client id. The text of the id is not repeated: who sent it knows it, and it
/// may be of any length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientIdError {
    #[error("client ID is empty")]
    Empty,
    #[error("client ID is too long: max {CLIENT_ID_BYTES_MAX} characters")]
    TooLong,
    #[error("client ID contains unsupported byte 0x{byte:02x}")]
    UnsupportedByte { byte: u8 },
    #[error("client ID starts or ends with a space")]
    SpaceAtTheEdge,
}

impl ClientId {
    pub fn parse(text: &str) -> Result<Self, ClientIdError> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(ClientIdError::Empty);
        }
        if bytes.len() > CLIENT_ID_BYTES_MAX {
            return Err(ClientIdError::TooLong);
        }
        if let Some(&byte) = bytes.iter().find(|byte| !matches!(byte, b' '..=b'~')) {
            return Err(ClientIdError::UnsupportedByte { byte });
        }
        if bytes.starts_with(b" ") || bytes.ends_with(b" ") {
            return Err(ClientIdError::SpaceAtTheEdge);
        }
        Ok(Self(text.into()))
    }

    /// As [`parse`](Self::parse), for bytes off the wire.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, ClientIdError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            _ if bytes.len() > CLIENT_ID_BYTES_MAX => Err(ClientIdError::TooLong),
            Err(_) => {
                // What is not UTF-8 has a byte outside ASCII; the first bad one is told, as above.
                let byte = bytes.iter().find(|byte| !matches!(byte, b' '..=b'~'));
                Err(ClientIdError::UnsupportedByte { byte: byte.copied().unwrap_or_default() })
            }
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for ClientId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_cortex_takes_are_tenants() {
        for text in ["a", "team-1", "A_b.c*'!()", "...", &"x".repeat(150)] {
            assert_eq!(TenantId::parse(text).expect(text).as_str(), text);
            assert_eq!(TenantId::parse_bytes(text.as_bytes()).expect(text).as_str(), text);
        }
    }

    #[test]
    fn other_texts_are_refused_in_cortex_words() {
        let check = |text: &str, expect: &str| {
            assert_eq!(TenantId::parse(text).expect_err(text).to_string(), expect);
            assert_eq!(TenantId::parse_bytes(text.as_bytes()).expect_err(text).to_string(), expect);
        };
        check("", "no org id");
        check("a/b", "tenant ID 'a/b' contains unsupported character '/'");
        check("a b", "tenant ID 'a b' contains unsupported character ' '");
        check("a|b", "tenant ID 'a|b' contains unsupported character '|'");
        check("é", "tenant ID 'é' contains unsupported character 'Ã'");
        check(".", "tenant ID is '.' or '..'");
        check("..", "tenant ID is '.' or '..'");
        check("__markers__", "tenant ID '__markers__' is not allowed");
        check("user-index.json.gz", "tenant ID 'user-index.json.gz' is not allowed");
        check(&"x".repeat(151), "tenant ID is too long: max 150 characters");
        let long = "/".repeat(151);
        check(&long, &format!("tenant ID '{long}' contains unsupported character '/'"));
    }

    #[test]
    fn bytes_that_are_not_text_are_refused() {
        let error = TenantId::parse_bytes(b"a\xffb").expect_err("not UTF-8");
        assert_eq!(error.to_string(), "tenant ID 'a\u{fffd}b' contains unsupported character 'ÿ'");
    }

    #[test]
    fn printable_texts_are_clients_as_they_are() {
        for text in ["a", "A", "host-7.example:9090", "CN=a b, O=c", "~!\"|/", &"x".repeat(256)] {
            let client = ClientId::parse_bytes(text.as_bytes()).expect(text);
            assert_eq!((client.as_str(), client.as_bytes()), (text, text.as_bytes()));
            assert_eq!(client, ClientId::parse(text).expect(text));
        }
        let [a, upper] = ["a", "A"].map(|text| ClientId::parse(text).expect(text));
        assert_ne!(a, upper, "an id is opaque");
    }

    #[test]
    fn other_texts_are_no_clients_and_are_not_repeated() {
        let check = |bytes: &[u8], expect: &str| {
            let error = ClientId::parse_bytes(bytes).expect_err(expect);
            assert_eq!(error.to_string(), expect);
        };
        check(b"", "client ID is empty");
        check(&[b'x'; 257], "client ID is too long: max 256 characters");
        check(&[0xff; 257], "client ID is too long: max 256 characters");
        check(b"a\tb", "client ID contains unsupported byte 0x09");
        check(b"a\x7f", "client ID contains unsupported byte 0x7f");
        check(b"a\0", "client ID contains unsupported byte 0x00");
        check("a\u{e9}".as_bytes(), "client ID contains unsupported byte 0xc3");
        check(b"a\xffb\x01", "client ID contains unsupported byte 0xff");
        check(b" a", "client ID starts or ends with a space");
        check(b"a ", "client ID starts or ends with a space");
        check(b" ", "client ID starts or ends with a space");
    }
}
