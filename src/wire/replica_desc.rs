//! An elected replica as the KV store keeps it: a snappy block of protobuf `ha.ReplicaDesc`, the
//! same bytes that Cortex's distributors read and write under the same key.

use prost::Message as _;

use super::proto::ha::ReplicaDesc;

/// Largest stored value once decompressed. A replica's name is a label's value, which is as long
/// as the tenant's limits let it be: this is thirty times the default.
pub const REPLICA_DESC_BYTES_MAX: usize = 64 << 10;

/// The replica of a cluster whose samples are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectedReplica {
    pub replica: String,
    /// Unix milliseconds of the sample that was last written down.
    pub received_at_ms: i64,
    /// Unix milliseconds; 0 while it is not marked for deletion.
    pub deleted_at_ms: i64,
}

/// Why stored bytes are no elected replica.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaDescError {
    #[error("decompress the stored replica")]
    Decompress(#[source] snap::Error),
    #[error("the stored replica has {claimed} bytes, more than {REPLICA_DESC_BYTES_MAX}")]
    TooLarge { claimed: usize },
    #[error("decode the stored replica")]
    Decode(#[from] prost::DecodeError),
}

pub fn decode(value: &[u8]) -> Result<ElectedReplica, ReplicaDescError> {
    let claimed = snap::raw::decompress_len(value).map_err(ReplicaDescError::Decompress)?;
    if claimed > REPLICA_DESC_BYTES_MAX {
        return Err(ReplicaDescError::TooLarge { claimed });
    }
    let message = snap::raw::Decoder::new().decompress_vec(value);
    let message = message.map_err(ReplicaDescError::Decompress)?;
    let ReplicaDesc { replica, received_at, deleted_at } = ReplicaDesc::decode(&message[..])?;
    Ok(ElectedReplica { replica, received_at_ms: received_at, deleted_at_ms: deleted_at })
}

pub fn encode(elected: &ElectedReplica) -> Vec<u8> {
    let message = ReplicaDesc {
        replica: elected.replica.clone(),
        received_at: elected.received_at_ms,
        deleted_at: elected.deleted_at_ms,
    };
    let compressed = snap::raw::Encoder::new().compress_vec(&message.encode_to_vec());
    compressed.expect("snappy takes what is shorter than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_those_of_the_protocol() {
        let elected =
            ElectedReplica { replica: "a".to_owned(), received_at_ms: 300, deleted_at_ms: 0 };
        // Length 6, one literal of 6 bytes: field 1 "a", field 2 varint 300.
        let expect = [6, 5 << 2, 0x0a, 1, b'a', 0x10, 0xac, 0x02];
        assert_eq!(encode(&elected), expect);
        assert_eq!(decode(&expect).expect("own bytes"), elected);
    }

    #[test]
    fn a_value_that_claims_too_much_gets_no_memory() {
        // A block that says it holds 4 GiB.
        let claimed = decode(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert!(matches!(claimed, Err(ReplicaDescError::TooLarge { .. })), "{claimed:?}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_junk_is_an_error(
            replica in ".{0,20}", received_at_ms: i64, deleted_at_ms: i64,
            junk in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let elected = ElectedReplica { replica, received_at_ms, deleted_at_ms };
            prop_assert_eq!(decode(&encode(&elected)).expect("own bytes"), elected);
            let _ = decode(&junk);
        }
    }
}
