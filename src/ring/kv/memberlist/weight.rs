//! What the messages of one packet may have the store do.
//!
//! Packets are read by the loop that answers probes, so none may hold it up for long; an exchange
//! runs beside it. Bytes on the wire say little of the work behind them: values are snappy blocks
//! in LZW in a packet, and each of the two makes a hundred bytes of a few. What a value comes to
//! stands at its beginning, so it is weighed before anything is unpacked.

use crate::gossip::message::Message;
use crate::wire::key_value_pair;

/// Most bytes of all values of a packet, unpacked: twice what a member can put into a packet, whose
/// parts are a MiB before anything is packed, except for the rings in them. Those of ingesters are
/// tokens, which do not pack; the ten thousand members of a ring without tokens take 0.8 MB. What
/// is beyond is left out and counted, and the next full exchange brings it.
///
/// In time: members of the fewest bytes are the dearest; a packet of 130,000 of them takes 0.1 to
/// 0.2 s of a core (`cargo bench --bench gossip`, "worst"), where there was no bound before.
pub const VALUE_BYTES_MAX: usize = 2 << 20;

/// Values that are not unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its values are longer than {VALUE_BYTES_MAX} bytes, and {left_out} of them are left out")]
pub struct TooHeavy {
    pub left_out: usize,
}

/// Takes out the messages that are too much for one packet.
pub fn lighten(messages: &mut Vec<Message>) -> Result<(), TooHeavy> {
    let mut room = VALUE_BYTES_MAX;
    let before = messages.len();
    messages.retain(|message| {
        let Message::User(bytes) = message else { return true };
        // What cannot be read costs nothing, and is told of by who reads it.
        let Ok(pair) = key_value_pair::decode(bytes.clone()) else { return true };
        let Ok(bytes) = snap::raw::decompress_len(&pair.value) else { return true };
        let fits = bytes <= room;
        if fits {
            room -= bytes;
        }
        fits
    });
    match before - messages.len() {
        0 => Ok(()),
        left_out => Err(TooHeavy { left_out }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gossip::message::Nack;
    use crate::wire::key_value_pair::Pair;
    use bytes::Bytes;

    fn user(value_bytes: usize) -> Message {
        let value = snap::raw::Encoder::new().compress_vec(&vec![0; value_bytes]);
        let value = value.expect("short enough").into();
        let pair = Pair { key: "k".to_owned(), value, ..Pair::default() };
        Message::User(key_value_pair::encode(&pair))
    }

    #[test]
    fn values_beyond_the_bound_are_left_out_and_nothing_else_is() {
        let check = |mut messages: Vec<Message>, left_out: usize| {
            let before = messages.len();
            let expect = if left_out == 0 { Ok(()) } else { Err(TooHeavy { left_out }) };
            assert_eq!(lighten(&mut messages), expect);
            assert_eq!(messages.len(), before - left_out);
        };
        check(vec![user(VALUE_BYTES_MAX)], 0);
        check(vec![user(VALUE_BYTES_MAX + 1)], 1);
        check(vec![user(VALUE_BYTES_MAX - 10), user(11), user(10), user(1)], 2);
        check((0..1024).map(|_| user(2048)).collect(), 0);
        check((0..1024).map(|_| user(4096)).collect(), 512);
        let odd = Message::User(Bytes::from_static(b"\xff\xff"));
        check(vec![odd, Message::Nack(Nack { sequence: 1 }), user(VALUE_BYTES_MAX)], 0);
    }
}
