//! Who may write for whom on a push stream.
//!
//! A distributor opens its streams under a made-up name and puts the tenant into each message.
//! Such a name is no proof, everybody can make it up: where keys are configured, a stream has to
//! carry a signature of its name under one of them. The rule and the signature are Cortex's.

use hmac::Mac as _;

use crate::tenant::{TenantId, TenantIdError};
use crate::wire::signature::{sign_stream, stream_mac};

/// Keys that open a push stream (`-distributor.sign-write-requests-keys`, effective with
/// `-distributor.sign-write-requests`). All are accepted, so that keys can be changed one side
/// at a time. No keys, no check.
#[derive(Clone, Default)]
pub struct StreamKeys(Vec<String>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamAuthError {
    #[error("signature not present")]
    SignatureMissing,
    #[error("signature mismatch")]
    SignatureMismatch,
    #[error(transparent)]
    Name(#[from] TenantIdError),
    #[error(
        "tenant ID mismatch: stream authenticated as {stream:?} but request specifies {message:?}"
    )]
    TenantMismatch { stream: String, message: String },
}

impl StreamKeys {
    /// Keys as written in the flag: separated by commas.
    pub fn parse(list: &str) -> Self {
        Self(list.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks a stream's signatures (values of `x-stream-signature`) over its name.
    pub fn check(&self, name: &str, signatures: &[&[u8]]) -> Result<(), StreamAuthError> {
        if self.is_empty() {
            return Ok(());
        }
        let [signature] = signatures else {
            return Err(StreamAuthError::SignatureMissing);
        };
        TenantId::parse(name)?;
        let digest = decode_hex(signature).ok_or(StreamAuthError::SignatureMismatch)?;
        // In constant time.
        let opens = |key: &String| stream_mac(key, name).verify_slice(&digest).is_ok();
        if self.0.iter().any(opens) { Ok(()) } else { Err(StreamAuthError::SignatureMismatch) }
    }

    /// The signature that a stream of this name carries, made with the first key.
    pub fn sign(&self, name: &str) -> Option<String> {
        Some(sign_stream(self.0.first()?, name))
    }
}

/// Whether a message for `message` may come on a stream opened as `stream` (`None`: unnamed).
///
/// Stricter than Cortex in one point: there a name that is no tenant id passes for everybody.
pub fn check_message_tenant(stream: Option<&str>, message: &str) -> Result<(), StreamAuthError> {
    match stream {
        Some(name) if name != message && !is_worker_name(name) => {
            Err(StreamAuthError::TenantMismatch {
                stream: name.to_owned(),
                message: message.to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// `ingester-<address>-stream-push-worker-<number>`
fn is_worker_name(name: &str) -> bool {
    const MIDDLE: &str = "-stream-push-worker-";
    let Some(rest) = name.strip_prefix("ingester-") else {
        return false;
    };
    let Some((address, number)) = rest.rsplit_once(MIDDLE) else {
        return false;
    };
    !address.is_empty()
        && !address.contains('\n')
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    // Cortex compares texts, and writes lower case.
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "ingester-10.0.0.1-9095-stream-push-worker-7";

    #[test]
    fn only_names_of_distributor_workers_speak_for_other_tenants() {
        let check = |stream: Option<&str>, allowed: bool| {
            assert_eq!(check_message_tenant(stream, "a").is_ok(), allowed, "{stream:?}");
        };
        check(None, true);
        check(Some("a"), true);
        check(Some(NAME), true);
        check(Some("ingester-10.0.0.1:9095-stream-push-worker-0"), true);
        check(Some("b"), false);
        check(Some("a/b"), false);
        check(Some("ingester--stream-push-worker-0"), false);
        check(Some("ingester-x-stream-push-worker-"), false);
        check(Some("ingester-x-stream-push-worker-1a"), false);
        check(Some("xingester-x-stream-push-worker-1"), false);
    }

    #[test]
    fn case_e4_a_stream_needs_a_signature_under_any_of_the_keys() {
        let keys = StreamKeys::parse("new,old");
        let old = StreamKeys::parse("old").sign(NAME).expect("one key");
        assert_eq!(keys.check(NAME, &[old.as_bytes()]), Ok(()));
        let new = keys.sign(NAME).expect("a first key");
        assert_ne!(new, old);
        assert_eq!(keys.check(NAME, &[new.as_bytes()]), Ok(()));

        let check = |name: &str, signatures: &[&[u8]], error| {
            assert_eq!(keys.check(name, signatures), Err(error));
        };
        check(NAME, &[], StreamAuthError::SignatureMissing);
        check(NAME, &[new.as_bytes(), new.as_bytes()], StreamAuthError::SignatureMissing);
        check("other", &[new.as_bytes()], StreamAuthError::SignatureMismatch);
        check(NAME, &[new.to_uppercase().as_bytes()], StreamAuthError::SignatureMismatch);
        check(NAME, &[&new.as_bytes()[..62]], StreamAuthError::SignatureMismatch);
        check(NAME, &[b"zz"], StreamAuthError::SignatureMismatch);
        assert_eq!(StreamKeys::default().check(NAME, &[]), Ok(()));
    }

    #[test]
    fn signatures_are_hmac_sha256_in_hex() {
        // The second test vector of RFC 4231.
        assert_eq!(
            StreamKeys::parse("Jefe").sign("what do ya want for nothing?").as_deref(),
            Some("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
        );
    }
}
