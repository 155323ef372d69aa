//! What nobody well-meaning sends: cut off, turned over, made up, nested, and lying about sizes.
//!
//! None of it may panic, and none may make us hold more than the bounds say.

use bytes::Bytes;
use proptest::prelude::*;

use super::super::message::{Ack, Message, PeerReport, PeerState, PushPull, Versions};
use super::compression::{UnpackError, pack};
use super::msgpack::Writer;
use super::stream::{Decoder, StreamError, StreamMessage};
use super::*;

fn rule() -> LabelRule {
    LabelRule { label: Label::new("prod").expect("short"), is_verified: false }
}

/// What a packet has become in memory, at least.
fn held(opened: &Opened) -> usize {
    let payload = |message: &Message| match message {
        Message::User(bytes) => bytes.len(),
        Message::Ack(ack) => ack.payload.len(),
        Message::Alive(alive) => alive.meta.len() + alive.name.capacity(),
        Message::Ping(ping) => ping.target.capacity(),
        _ => 0,
    };
    opened.messages.capacity() * size_of::<Message>()
        + opened.messages.iter().map(payload).sum::<usize>()
}

/// Opens whatever it is, and holds the outcome to the bounds.
fn open(packet: &[u8]) -> Option<Opened> {
    let opened = open_packet(&Bytes::copy_from_slice(packet), &rule()).ok()?;
    assert!(opened.messages.len() <= MESSAGES_MAX);
    let messages_max = MESSAGES_MAX * size_of::<Message>() * 2;
    assert!(held(&opened) <= messages_max + UNPACKED_BYTES_MAX + packet.len());
    assert_eq!(opened.refused > 0, opened.first_error.is_some());
    Some(opened)
}

fn read(bytes: &[u8], piece: usize) -> Result<Option<StreamMessage>, StreamError> {
    let mut decoder = Decoder::opened(rule());
    let mut came = 0;
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        came += piece.len();
        let read = decoder.decode();
        // A buffer may double as it grows.
        let unpacked = if bytes.contains(&kind::COMPRESSED) { stream::STREAM_BYTES_MAX } else { 0 };
        assert!(decoder.held_bytes() <= 2 * came + 128 + unpacked, "{}", decoder.held_bytes());
        match read {
            Ok(None) => {}
            outcome => return outcome,
        }
    }
    Ok(None)
}

fn samples() -> Vec<Vec<u8>> {
    let ack = |sequence| {
        encode(&Message::Ack(Ack { sequence, payload: Bytes::from("payload ".repeat(8)) }))
    };
    let parts: Vec<_> = (0..4).map(ack).collect();
    let label = rule().label;
    let mut samples = Vec::new();
    for (compress, with_checksum) in [(false, false), (true, false), (false, true), (true, true)] {
        samples.push(packet(&parts, &label, compress, with_checksum).remove(0).to_vec());
    }
    let report = |name: &str| PeerReport {
        name: name.into(),
        addr: "10.0.0.1:7946".parse().expect("an address"),
        meta: Bytes::new(),
        incarnation: 9,
        state: PeerState::Alive,
        versions: Versions(Some([1, 5, 2, 0, 0, 0])),
    };
    let user_state = Bytes::from("state ".repeat(20));
    let state = PushPull { join: true, peers: vec![report("a"), report("b")], user_state };
    for compress in [false, true] {
        let message = StreamMessage::PushPull(state.clone());
        samples.push(stream::encode(&message, Some(&label), compress).to_vec());
    }
    samples
}

#[test]
fn every_beginning_is_refused_or_waited_on() {
    for sample in samples() {
        assert!(open(&sample).is_some());
        for end in 0..sample.len() {
            open(&sample[..end]);
            for piece in [1, 1000] {
                let outcome = read(&sample[..end], piece);
                assert!(!matches!(outcome, Ok(Some(StreamMessage::PushPull(_)))), "{end}");
            }
        }
    }
}

#[test]
fn every_turned_bit_and_every_other_byte_is_survived() {
    for sample in samples() {
        for at in 0..sample.len() {
            let turned = (0..8).map(|bit| sample[at] ^ 1 << bit);
            for byte in turned.chain([0, 0x7f, 0x80, 0xc1, 0xc6, 0xdb, 0xdd, 0xdf, 0xff]) {
                let mut damaged = sample.clone();
                damaged[at] = byte;
                open(&damaged);
                let _ = read(&damaged, 64);
            }
        }
    }
}

#[test]
fn nests_have_a_floor() {
    // A compound of one compound of one, and so on.
    let mut nest = vec![kind::USER];
    for _ in 0..200 {
        let length = u16::try_from(nest.len()).expect("short").to_be_bytes();
        nest = [&[kind::COMPOUND, 1][..], &length, &nest].concat();
    }
    let opened = open(&nest).expect("a packet");
    assert_eq!(opened.first_error, Some(PacketError::TooDeep));
    // Compression of compression.
    let mut nest = vec![kind::USER; 1000];
    for _ in 0..20 {
        nest = pack(&nest).unwrap_or(nest);
        nest.extend([0; 300]);
    }
    open(&nest);
    // An unknown field that is arrays all the way down.
    let mut field = b"\x03\x81\xa1x".to_vec();
    field.extend([0x91].repeat(100_000));
    field.push(0xc0);
    assert_eq!(open(&field).expect("a packet").refused, 1);
}

/// `bytes` zeros, which compress to some thousandth.
fn bomb(bytes: usize) -> Vec<u8> {
    pack(&vec![0; bytes]).expect("zeros compress")
}

#[test]
fn bombs_are_put_out_at_the_bound() {
    let one = bomb(64 << 20);
    assert!(one.len() < 200_000, "{}", one.len());
    let opened = open(&one).expect("a packet");
    let error = UnpackError::TooLong { bytes_max: UNPACKED_BYTES_MAX };
    assert_eq!(opened.first_error, Some(PacketError::Unpack(error)));
    let outcome = read(&one, 64 << 10);
    let error = UnpackError::TooLong { bytes_max: stream::STREAM_BYTES_MAX };
    assert_eq!(outcome, Err(StreamError::Unpack(error)));
    // Many small ones share one bound.
    let mut user = vec![0; 3 << 20];
    user[0] = kind::USER;
    let small = Bytes::from(pack(&user).expect("zeros compress"));
    let packet = packet(&vec![small; 20], &Label::default(), false, false).remove(0);
    let opened = open(&packet).expect("a packet");
    assert_eq!((opened.messages.len(), opened.refused), (2, 18));
}

#[test]
fn many_small_messages_are_as_many_as_are_kept() {
    let part = Bytes::from_static(&[kind::USER]);
    let compounds: Vec<_> = (0..20)
        .map(|_| packet(&vec![part.clone(); 255], &Label::default(), false, false).remove(0))
        .collect();
    let opened = open(&packet(&compounds, &Label::default(), false, false)[0]).expect("a packet");
    assert_eq!(opened.messages.len(), MESSAGES_MAX);
    // The rest of the compound at the bound, and one for each that was not opened.
    assert_eq!(opened.refused, 5 * 255 - MESSAGES_MAX + 15);
    assert_eq!(opened.first_error, Some(PacketError::TooMany));
}

#[test]
fn lengths_that_lie_are_refused_before_anything_is_held() {
    let header = |peers: u64, user: u64| {
        let mut out = vec![kind::PUSH_PULL];
        Writer::map(&mut out, 3).bool("Join", true).uint("Nodes", peers).uint("UserStateLen", user);
        out
    };
    let too_long = |read: Result<_, _>| matches!(read, Err(StreamError::TooLong { .. }));
    assert_eq!(read(&header(1 << 40, 0), 9), Err(StreamError::TooManyPeers { peers: 1 << 40 }));
    assert!(too_long(read(&header(0, (20 << 20) + 1), 9)));
    assert_eq!(read(&header(0, 20 << 20), 9), Ok(None), "as much as may be, and none of it here");
    assert_eq!(read(&header(16_384, 0), 9), Ok(None));
    assert!(too_long(read(b"\x09\x82\xa4Algo\x00\xa3Buf\xdb\xff\xff\xff\xff", 9)));
    assert!(too_long(read(b"\x0d\x81\xa5Error\xda\xff\xff", 9)));
    assert!(too_long(read(b"\x06\x83\xa1x\xdb\x00\x10\x00\x00", 9)));
    assert!(read(b"\x06\xdf\xff\xff\xff\xff", 9).is_err());
    assert!(read(b"\x06\x81\xa1x\xdd\xff\xff\xff\xff", 9).is_err());
    assert_eq!(read(b"\x0a\x00\x00\x00\x01", 9), Err(StreamError::Encrypted));
    assert_eq!(read(b"\x07\x01\x00\x01\x08", 9), Err(StreamError::Kind { kind: kind::COMPOUND }));
    // Compressed twice, and cut off inside.
    let inner = pack(&header(3, 9)).unwrap_or_else(|| header(3, 9));
    let mut cut = Vec::new();
    cut.extend(inner);
    cut.extend([0_u8; 3]);
    assert!(read(&cut, 9).is_err());
    // Reports of peers in good form, and more of them than may be.
    let mut many = header(16_384, 0);
    let mut report = Vec::new();
    Writer::map(&mut report, 1).bytes("Meta", &[0; 2000]);
    for _ in 0..3000 {
        many.extend_from_slice(&report);
    }
    assert!(too_long(read(&many, 64 << 10)));
}

proptest! {
    #[test]
    fn noise_is_survived(noise in proptest::collection::vec(any::<u8>(), 0..2000), first in 0..14_u8) {
        open(&noise);
        let _ = read(&noise, 100);
        let typed = [&[first][..], &noise].concat();
        open(&typed);
        let _ = read(&typed, 100);
    }

    #[test]
    fn compression_of_anything_comes_back(
        noise in proptest::collection::vec(any::<u8>(), 0..3000),
        times in 1..30_usize,
    ) {
        let mut message = noise.repeat(times);
        message.insert(0, kind::USER);
        let packet = pack(&message).unwrap_or(message.clone());
        let opened = open(&packet).expect("a packet");
        prop_assert_eq!(opened.messages, [Message::User(Bytes::from(message).slice(1..))]);
    }
}

#[test]
fn bad_parts_count_as_much_as_good_ones() {
    // Compounds of compounds of parts that cannot be read, and no compression that they would need.
    let bad = [kind::COMPRESSED, 0x80];
    let mut inner = vec![kind::COMPOUND, 255];
    inner.extend(std::iter::repeat_n([0, 2], 255).flatten());
    inner.extend(std::iter::repeat_n(bad, 255).flatten());
    let length = u16::try_from(inner.len()).expect("short").to_be_bytes();
    let mut outer = vec![kind::COMPOUND, 40];
    outer.extend(std::iter::repeat_n(length, 40).flatten());
    outer.extend(std::iter::repeat_n(&inner[..], 40).flatten());
    let opened =
        open_packet(&outer.into(), &LabelRule { label: Label::default(), is_verified: true });
    let opened = opened.expect("a packet");
    assert!(opened.messages.is_empty());
    // Those looked at, and then one for each compound that was not.
    assert!(opened.refused >= MESSAGES_MAX, "{}", opened.refused);
}
