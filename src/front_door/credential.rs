//! What a request presents to prove who it is from, hashed at once.
//!
//! Nobody has checked it here. It only tells requests of one credential from those of another, and
//! whoever invents a new one for each request meets the budgets of the address.

use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, Engine as _};

use super::keys::{CredentialKey, CredentialKind};

/// Longest credential that is hashed. Tokens that carry groups and rights reach some kilobytes;
/// what is longer counts for none, so that nobody has us hash whole heads of requests.
const CREDENTIAL_BYTES_MAX: usize = 16 << 10;

/// The credential in the values of `Authorization`. None where there is none, or several: which of
/// them counts would be the sender's choice.
pub fn presented<'a>(
    mut lines: impl Iterator<Item = &'a [u8]>,
    takes_basic_user: bool,
) -> Option<CredentialKey> {
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    if line.len() > CREDENTIAL_BYTES_MAX {
        return None;
    }
    let line = line.trim_ascii();
    let at = line.iter().position(u8::is_ascii_whitespace)?;
    let (scheme, secret) = (&line[..at], line[at..].trim_ascii_start());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(CredentialKey::new(CredentialKind::BearerToken, secret));
    }
    if takes_basic_user && scheme.eq_ignore_ascii_case(b"basic") {
        let pair =
            BASE64_STANDARD.decode(secret).or_else(|_| BASE64_STANDARD_NO_PAD.decode(secret));
        let pair = pair.ok()?;
        let colon = pair.iter().position(|&byte| byte == b':')?;
        let user = &pair[..colon];
        return (!user.is_empty()).then(|| CredentialKey::new(CredentialKind::BasicUser, user));
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(line: &str, takes_basic_user: bool) -> Option<CredentialKey> {
        presented(std::iter::once(line.as_bytes()), takes_basic_user)
    }

    fn bearer(token: &str) -> Option<CredentialKey> {
        Some(CredentialKey::new(CredentialKind::BearerToken, token.as_bytes()))
    }

    #[test]
    fn one_bearer_token_is_a_credential() {
        for line in ["Bearer abc", "bearer   abc", " BEARER\tabc  "] {
            assert_eq!(one(line, false), bearer("abc"), "{line}");
        }
        assert_ne!(one("Bearer abd", false), bearer("abc"));
        for none in ["", "Bearer", "Bearer ", "abc", "Digest abc", "Basic dXNlcjpwdw=="] {
            assert_eq!(one(none, false), None, "{none}");
        }
        assert_eq!(presented([&b"Bearer a"[..], b"Bearer a"].into_iter(), false), None);
        assert_eq!(presented(std::iter::empty(), false), None);
        assert_eq!(one(&format!("Bearer {}", "x".repeat(CREDENTIAL_BYTES_MAX)), false), None);
    }

    #[test]
    fn a_user_of_basic_authentication_is_one_by_switch_whatever_the_password() {
        let user = Some(CredentialKey::new(CredentialKind::BasicUser, b"user"));
        // user:pw, user:other, user:pw without padding, user:pä
        for pair in ["dXNlcjpwdw==", "dXNlcjpvdGhlcg==", "dXNlcjpwdw", "dXNlcjpww6Q="] {
            assert_eq!(one(&format!("Basic {pair}"), true), user, "{pair}");
        }
        // :pw, no colon, no base64
        for pair in ["OnB3", "dXNlcg==", "!!"] {
            assert_eq!(one(&format!("Basic {pair}"), true), None, "{pair}");
        }
        assert_eq!(one("Bearer abc", true), bearer("abc"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(line in prop::collection::vec(any::<u8>(), 0..100)) {
            let with_scheme = [b"Basic ", &line[..]].concat();
            let _ = presented([&line[..]].into_iter(), true);
            let _ = presented([&with_scheme[..]].into_iter(), true);
        }
    }
}
