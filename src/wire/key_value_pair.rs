//! What Cortex's gossiping store tells its like: one key with its value as a message, and all of
//! them as a state.
//!
//! ```text
//! message  KeyValuePair as protobuf
//! state    ([length of the pair, four bytes, the highest first] [pair])*
//! ```
//!
//! Must hold: bad bytes are an error, never a panic, and no length is believed that the bytes
//! received do not back.

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message as _;

use super::proto::memberlist::KeyValuePair;

/// Bytes of a pair's length in a state.
const LEN_BYTES: usize = 4;

/// One key as its teller holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    pub key: String,
    /// In the form that `codec` names.
    pub value: Bytes,
    pub codec: String,
    /// The key has been deleted; the value is what it held last.
    pub deleted: bool,
    /// Unix milliseconds of the last write or deletion; 0 is unknown.
    pub updated_at_ms: i64,
}

/// Why bytes are no pair, or no state. The texts are Cortex's.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    #[error("failed to parse KV Pair")]
    Decode(#[from] prost::DecodeError),
    #[error("not enough data left for another KV Pair: {left}")]
    NoLength { left: usize },
    #[error("not enough data left for next KV Pair, expected {expected}, remaining {left} bytes")]
    Truncated { expected: usize, left: usize },
}

pub fn decode(message: Bytes) -> Result<Pair, PairError> {
    let KeyValuePair { key, value, codec, deleted, updated_at } = KeyValuePair::decode(message)?;
    Ok(Pair { key, value, codec, deleted, updated_at_ms: updated_at })
}

pub fn encode(pair: &Pair) -> Bytes {
    message(pair).encode_to_vec().into()
}

/// Adds a pair to a state.
pub fn append(pair: &Pair, state: &mut Vec<u8>) {
    let message = message(pair);
    let len = message.encoded_len();
    state.reserve(LEN_BYTES + len);
    state.put_u32(u32::try_from(len).expect("a value is shorter than 4 GiB"));
    message.encode(state).expect("a vector takes any length");
}

/// The pairs of a state with the bytes that each takes, up to the first that cannot be read.
#[derive(Debug)]
pub struct State {
    rest: Bytes,
}

impl State {
    pub fn new(state: Bytes) -> Self {
        Self { rest: state }
    }

    fn take(&mut self) -> Result<(Pair, usize), PairError> {
        if self.rest.len() < LEN_BYTES {
            return Err(PairError::NoLength { left: self.rest.len() });
        }
        let len = self.rest.get_u32() as usize;
        if self.rest.len() < len {
            return Err(PairError::Truncated { expected: len, left: self.rest.len() });
        }
        Ok((decode(self.rest.split_to(len))?, len))
    }
}

impl Iterator for State {
    type Item = Result<(Pair, usize), PairError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            // Where the next one would begin is not known any more.
            self.rest.clear();
        }
        Some(taken)
    }
}

fn message(pair: &Pair) -> KeyValuePair {
    KeyValuePair {
        key: pair.key.clone(),
        value: pair.value.clone(),
        codec: pair.codec.clone(),
        deleted: pair.deleted,
        updated_at: pair.updated_at_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(key: &str) -> Pair {
        Pair {
            key: key.to_owned(),
            value: Bytes::from_static(b"v"),
            codec: "c".to_owned(),
            deleted: true,
            updated_at_ms: 300,
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_protocol() {
        let message = [0x0a, 1, b'k', 0x12, 1, b'v', 0x1a, 1, b'c', 0x20, 1, 0x28, 0xac, 0x02];
        assert_eq!(&encode(&pair("k"))[..], message);
        assert_eq!(decode(Bytes::copy_from_slice(&message)).expect("own bytes"), pair("k"));
        let mut state = Vec::new();
        append(&pair("k"), &mut state);
        assert_eq!(state, [&[0, 0, 0, 14][..], &message].concat());
    }

    #[test]
    fn a_state_is_read_up_to_where_it_breaks() {
        let mut state = Vec::new();
        append(&pair("a"), &mut state);
        append(&pair("b"), &mut state);
        let check = |state: &[u8], expect: &[&str], error: Option<&str>| {
            let mut keys = Vec::new();
            let mut failure = None;
            for taken in State::new(Bytes::copy_from_slice(state)) {
                match taken {
                    Ok((pair, len)) => {
                        assert_eq!(len, 14);
                        keys.push(pair.key);
                    }
                    Err(error) => failure = Some(error.to_string()),
                }
            }
            assert_eq!(keys, expect);
            assert_eq!(failure.as_deref(), error);
        };
        check(&[], &[], None);
        check(&state, &["a", "b"], None);
        check(&state[..18], &["a"], None);
        check(&state[..20], &["a"], Some("not enough data left for another KV Pair: 2"));
        check(
            &state[..30],
            &["a"],
            Some("not enough data left for next KV Pair, expected 14, remaining 8 bytes"),
        );
        check(&[0, 0, 0, 1, 0xff, 0, 0, 0, 0], &[], Some("failed to parse KV Pair"));
    }

    proptest! {
        #[test]
        fn junk_is_an_error_or_a_pair(junk in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(junk.clone().into());
            prop_assert!(State::new(junk.into()).count() <= 60);
        }
    }
}
