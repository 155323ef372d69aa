//! Each message against its bytes, taken apart; and there and back for all that can be said.
//!
//! The bytes are written by hand after memberlist's description of its fields, and agree with what
//! a running member of Cortex's version writes. How to read them: `\x85` a map of five fields,
//! `\xa4Node` a text of four bytes, `\xcd\x1f\x0a` a number of sixteen bits, `\xc0` nothing.

use std::net::SocketAddr;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::message::*;
use super::stream::{self, Decoder, StreamMessage};
use super::*;

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn source() -> Option<Source> {
    Some(Source { name: "a".into(), addr: addr("10.0.0.1:7946") })
}

fn any_label() -> LabelRule {
    LabelRule { label: Label::default(), is_verified: true }
}

fn named(label: &str, is_verified: bool) -> LabelRule {
    LabelRule { label: Label::new(label).expect("short"), is_verified }
}

fn open_one(bytes: Bytes) -> Message {
    let mut opened = open_packet(&bytes, &any_label()).expect("a packet");
    assert_eq!((opened.refused, opened.messages.len()), (0, 1), "{opened:?}");
    opened.messages.remove(0)
}

#[track_caller]
fn check(message: Message, parts: &[&[u8]]) {
    let bytes = Bytes::from(parts.concat());
    assert_eq!(encode(&message), bytes, "written");
    assert_eq!(open_one(bytes), message, "read");
}

fn alive() -> Message {
    Message::Alive(Alive {
        incarnation: 1,
        name: "a".into(),
        addr: addr("10.0.0.1:7946"),
        meta: Bytes::new(),
        versions: Versions(Some([1, 5, 2, 0, 0, 0])),
    })
}

fn suspect() -> Message {
    Message::Suspect(Suspect { incarnation: 3, name: "b".into(), from: "a".into() })
}

const SUSPECT: &[u8] = b"\x03\x83\xa4From\xa1a\xabIncarnation\x03\xa4Node\xa1b";

#[test]
fn a_ping_says_who_asks_in_three_fields_that_may_be_left_out() {
    check(
        Message::Ping(Ping { sequence: 7, target: "b".into(), source: source() }),
        &[
            b"\x00",                               // kind 0, a ping
            b"\x85",                               // a map of five fields, sorted by name
            b"\xa4Node\xa1b",                      // for whom it is
            b"\xa5SeqNo\x07",                      // 7 fits the marker itself
            b"\xaaSourceAddr\xa4\x0a\x00\x00\x01", // four raw bytes: 10.0.0.1
            b"\xaaSourceNode\xa1a",
            b"\xaaSourcePort\xcd\x1f\x0a", // 7946 in sixteen bits
        ],
    );
    check(
        Message::Ping(Ping {
            sequence: 300,
            target: "a-name-that-is-longer-than-thirty-one-bytes".into(),
            source: None,
        }),
        &[
            b"\x00\x82",
            // 43 bytes: the old raw form has no length of eight bits, so there are sixteen.
            b"\xa4Node\xda\x00\x2ba-name-that-is-longer-than-thirty-one-bytes",
            b"\xa5SeqNo\xcd\x01\x2c",
        ],
    );
}

#[test]
fn an_indirect_ping_says_whom_to_ask_and_whether_silence_is_told() {
    check(
        Message::IndirectPing(IndirectPing {
            sequence: 70_000,
            target: "b".into(),
            target_addr: addr("10.0.0.2:7946"),
            wants_nack: true,
            source: source(),
        }),
        &[
            b"\x01\x88",
            b"\xa4Nack\xc3", // true
            b"\xa4Node\xa1b",
            b"\xa4Port\xcd\x1f\x0a",
            b"\xa5SeqNo\xce\x00\x01\x11\x70", // 70000 in thirty-two bits
            b"\xaaSourceAddr\xa4\x0a\x00\x00\x01",
            b"\xaaSourceNode\xa1a",
            b"\xaaSourcePort\xcd\x1f\x0a",
            b"\xa6Target\xa4\x0a\x00\x00\x02",
        ],
    );
}

#[test]
fn answers_name_the_question() {
    check(
        Message::Ack(Ack { sequence: 7, payload: Bytes::new() }),
        &[b"\x02\x82", b"\xa7Payload\xc0", b"\xa5SeqNo\x07"],
    );
    check(
        Message::Ack(Ack { sequence: 200, payload: Bytes::from_static(&[1, 2, 3]) }),
        &[b"\x02\x82", b"\xa7Payload\xa3\x01\x02\x03", b"\xa5SeqNo\xcc\xc8"],
    );
    check(
        Message::Nack(Nack { sequence: u32::MAX }),
        &[b"\x0b\x81", b"\xa5SeqNo\xce\xff\xff\xff\xff"],
    );
}

#[test]
fn rumours_tell_of_whom_and_since_when() {
    check(suspect(), &[SUSPECT]);
    check(
        Message::Dead(Dead { incarnation: 65_536, name: "b".into(), from: "b".into() }),
        &[b"\x05\x83", b"\xa4From\xa1b", b"\xabIncarnation\xce\x00\x01\x00\x00", b"\xa4Node\xa1b"],
    );
    check(
        alive(),
        &[
            b"\x04\x86",
            b"\xa4Addr\xa4\x0a\x00\x00\x01",
            b"\xabIncarnation\x01",
            b"\xa4Meta\xc0",
            b"\xa4Node\xa1a",
            b"\xa4Port\xcd\x1f\x0a",
            b"\xa3Vsn\xa6\x01\x05\x02\x00\x00\x00", // raw bytes: least, most, spoken; twice
        ],
    );
    check(
        Message::Alive(Alive {
            incarnation: 1,
            name: "a".into(),
            addr: addr("[fd00::1]:80"),
            meta: Bytes::from_static(b"m"),
            versions: Versions(None),
        }),
        &[
            b"\x04\x86",
            b"\xa4Addr\xb0\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01",
            b"\xabIncarnation\x01",
            b"\xa4Meta\xa1m",
            b"\xa4Node\xa1a",
            b"\xa4Port\x50",
            b"\xa3Vsn\xc0",
        ],
    );
}

#[test]
fn what_the_layer_above_says_is_itself_behind_its_kind() {
    check(Message::User(Bytes::from_static(b"ring")), &[b"\x08", b"ring"]);
    check(Message::User(Bytes::new()), &[b"\x08"]);
}

#[test]
fn any_form_of_the_same_message_is_read() {
    // Other order, newer texts and bytes, wider numbers, a field of tomorrow, one twice.
    let forms: &[&[u8]] = &[
        b"\x83\xa4Node\xd9\x01b\xabIncarnation\xcf\0\0\0\0\0\0\0\x03\xa4From\xc4\x01a",
        b"\xde\x00\x03\xda\x00\x04Node\xda\x00\x01b\xa4From\xc5\x00\x01a\xabIncarnation\xd1\x00\x03",
        b"\x84\xa4From\xa1a\xa3New\x82\xa1x\x93\xc0\xc3\xcb\0\0\0\0\0\0\0\0\xa1y\xd6\x05abcd\xabIncarnation\xd0\x03\xa4Node\xa1b",
        b"\x84\xa4From\xa1z\xa4From\xa1a\xabIncarnation\xd2\0\0\0\x03\xa4Node\xa1bmore",
        b"\xdf\0\0\0\x03\xdb\0\0\0\x04From\xdb\0\0\0\x01a\xabIncarnation\xd3\0\0\0\0\0\0\0\x03\xa4Node\xc6\0\0\0\x01b",
    ];
    for form in forms {
        let bytes = Bytes::from([b"\x03", *form].concat());
        assert_eq!(open_one(bytes), suspect(), "{form:02x?}");
    }
    // What is missing is zero or empty.
    let bare =
        Message::Suspect(Suspect { incarnation: 0, name: String::new(), from: String::new() });
    assert_eq!(open_one(Bytes::from_static(b"\x03\x80")), bare);
    let old = Message::Ping(Ping { sequence: 1, target: String::new(), source: None });
    assert_eq!(open_one(Bytes::from_static(b"\x00\x81\xa5SeqNo\x01")), old);
}

#[test]
fn what_is_no_message_is_refused_for_its_reason() {
    let check = |bytes: &[u8], part: &str| {
        let opened = open_packet(&Bytes::copy_from_slice(bytes), &any_label()).expect("a packet");
        assert_eq!((opened.refused, opened.messages.len()), (1, 0), "{bytes:02x?}");
        let error = opened.first_error.expect("a reason");
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        assert!(text.contains(part), "{bytes:02x?}: {text}");
    };
    check(b"\x03\x81\xabIncarnation\xff", "a number within its bounds");
    check(b"\x03\x81\xabIncarnation\xcf\0\0\0\x01\0\0\0\0", "a number within its bounds");
    check(b"\x03\x81\xabIncarnation\xa1x", "a number within its bounds");
    check(b"\x03\x81\xa4Node\x01", "a text or bytes");
    check(b"\x03\x81\xa4Node\xa1\xff", "UTF-8");
    check(b"\x03\x93", "a map was expected");
    check(b"\x04\x80", "an address of 0 bytes");
    check(b"\x04\x81\xa4Addr\xa3abc", "an address of 3 bytes");
    check(b"\x06\x80", "kind 6 is not known here");
    check(b"\x0d\x80", "kind 13 is not known here");
    check(b"\x63", "kind 99 is not known here");
    check(b"\x09\x82\xa4Algo\x01\xa3Buf\xa0", "algorithm that is not known: 1");
    check(b"\x09\x82\xa4Algo\x00\xa3Buf\xa2\xff\xff", "not compressed as it says");
}

#[test]
fn a_compound_tells_lengths_first() {
    let parts = [encode(&suspect()), encode(&alive())];
    let lengths = parts.each_ref().map(|part| u8::try_from(part.len()).expect("short"));
    let expect = [
        &[7, 2, 0, lengths[0], 0, lengths[1]][..], // kind, how many, lengths of sixteen bits
        &parts[0],
        &parts[1],
    ]
    .concat();
    let packets = packet(&parts, &Label::default(), false, false);
    assert_eq!(packets, std::slice::from_ref(&expect));
    let opened = open_packet(&packets[0], &any_label()).expect("a packet");
    assert_eq!(opened.messages, [suspect(), alive()]);

    // One bad part, then one that is cut off.
    let mut bad = expect.clone();
    bad[6] = 99;
    let opened = open_packet(&bad.into(), &any_label()).expect("a packet");
    assert_eq!((opened.messages, opened.refused), (vec![alive()], 1));
    let cut = Bytes::from(expect).slice(..40);
    let opened = open_packet(&cut, &any_label()).expect("a packet");
    assert_eq!((opened.messages, opened.refused), (vec![suspect()], 1));
    assert_eq!(opened.first_error, Some(PacketError::CutOff));
}

#[test]
fn more_than_a_compound_holds_goes_in_several_packets() {
    let message = |number: u32| Message::Nack(Nack { sequence: number });
    let mut parts: Vec<_> = (0..600).map(|number| encode(&message(number))).collect();
    let long = Message::User(vec![1; 70_000].into());
    parts.insert(300, encode(&long));
    let packets = packet(&parts, &Label::default(), false, true);
    assert_eq!(packets.len(), 4, "255, 255, 90, and the long one");
    let mut messages = Vec::new();
    for packet in &packets {
        messages.extend(open_packet(packet, &any_label()).expect("a packet").messages);
    }
    assert_eq!(messages[0], long);
    assert_eq!(messages[1..], (0..600).map(message).collect::<Vec<_>>());
    assert!(packet(&[], &Label::default(), true, true).is_empty());
}

#[test]
fn wraps_lie_in_each_other_in_one_order() {
    let label = Label::new("prod").expect("short");
    let wrapped = packet(&[Bytes::from_static(SUSPECT)], &label, false, true).remove(0);
    let expect = [
        &b"\xf4\x04prod"[..],    // 244, the label's length, the label
        b"\x0c\x60\xdd\x60\x59", // kind 12, CRC-32 (IEEE) of what follows
        SUSPECT,
    ]
    .concat();
    assert_eq!(wrapped, expect);
    // It takes the label off, whether or not it is checked; another, and none, are strangers'.
    for rule in [named("prod", true), named("other", false), named("", false)] {
        assert_eq!(open_packet(&wrapped, &rule).expect("ours").messages, [suspect()]);
    }
    let stranger = Err(PacketError::Label(LabelError::Stranger));
    for rule in [named("other", true), named("", true), named("prod2", true)] {
        assert_eq!(open_packet(&wrapped, &rule), stranger);
    }
    assert_eq!(open_packet(&Bytes::from_static(SUSPECT), &named("prod", true)), stranger);
    let open = |bytes: &'static [u8]| open_packet(&Bytes::from_static(bytes), &any_label());
    assert_eq!(open(b"\xf4\x00\x00"), Err(LabelError::Empty.into()));
    assert_eq!(open(b"\xf4\x04pro"), Err(LabelError::CutOff.into()));
    assert_eq!(open(b"\xf4"), Err(LabelError::CutOff.into()));
    assert_eq!(open(b""), Err(LabelError::CutOff.into()));
    assert_eq!(open(b"\x0c\0\0\0\0\x08"), Err(PacketError::Checksum));
    // What begins like a ping and goes on like noise, and what says so itself.
    assert_eq!(
        open(b"\x01\x33\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b"),
        Err(PacketError::Encrypted)
    );
    assert_eq!(open(b"\x0a\x00\x00\x00\x05"), Err(PacketError::Encrypted));
    assert_eq!(Label::new("x".repeat(256)), Err(LabelError::TooLong { bytes: 256 }));
}

#[test]
fn compression_is_used_where_it_is_of_use() {
    let long = Message::User(Bytes::from("abcabcabd".repeat(20)));
    let [wrapped] = &packet(&[encode(&long)], &Label::default(), true, false)[..] else {
        panic!("one packet");
    };
    let expect = [
        &b"\x09\x82\xa4Algo\x00"[..], // kind 9, a map of two; 0 is LZW
        b"\xa3Buf\xda\x00\x35", // 53 bytes of codes, the first of nine bits: 256 clears the table
        b"\x00\x11\x84\x11\x33\x66\x60\x41\x31\x64\x0c\x2a\x44\xb8\xf0\x60\x42\x82",
        b"\x0b\x1f\x1e\x74\xd8\x70\xa0\xc4\x88\x15\x19\x42\xdc\x78\x91\x63\xc6\x8e",
        b"\x14\x37\x86\x9c\x68\xf1\xa3\x49\x91\x25\x51\x6a\x24\xb9\x32\x62\x40",
    ]
    .concat();
    assert_eq!(wrapped, &expect);
    assert_eq!(open_one(wrapped.clone()), long);
    let short = packet(&[encode(&suspect())], &Label::default(), true, false);
    assert_eq!(short, [SUSPECT]);
}

#[test]
fn a_long_message_is_not_compressed_for_its_beginning() {
    let mut state = exchange();
    state.peers = vec![state.peers[0].clone(); 300];
    let mut word = 1_u64;
    let words = (0..20_000).flat_map(|_| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 32).to_le_bytes().into_iter().take(4)
    });
    state.user_state = words.collect::<Vec<u8>>().into();
    let message = StreamMessage::PushPull(state);
    assert_eq!(stream::encode(&message, None, true), stream::encode(&message, None, false));
}

fn exchange() -> PushPull {
    let peer = |name: &str, ip: &str, meta: &'static [u8], incarnation, state| PeerReport {
        name: name.into(),
        addr: addr(ip),
        meta: Bytes::from_static(meta),
        incarnation,
        state,
        versions: Versions(Some([1, 5, 2, 0, 0, 0])),
    };
    PushPull {
        join: true,
        peers: vec![
            peer("a", "10.0.0.1:7946", b"", 1, PeerState::Alive),
            peer("b", "10.0.0.2:7946", b"m", 2, PeerState::Left),
        ],
        user_state: Bytes::from_static(b"state"),
    }
}

/// Reads a stream that comes in pieces of `piece` bytes.
fn read_stream(
    mut decoder: Decoder,
    bytes: &[u8],
    piece: usize,
) -> Result<Option<StreamMessage>, stream::StreamError> {
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        if let Some(message) = decoder.decode()? {
            return Ok(Some(message));
        }
    }
    Ok(None)
}

#[track_caller]
fn check_stream(message: StreamMessage, parts: &[&[u8]]) {
    let bytes = parts.concat();
    assert_eq!(stream::encode(&message, None, false), bytes, "written");
    let label = Label::new("prod").expect("short");
    let opening = stream::encode(&message, Some(&label), false);
    assert_eq!(opening, [b"\xf4\x04prod", &bytes[..]].concat(), "with its label");
    for piece in [1, 2, 7, bytes.len() + 10] {
        let read = read_stream(Decoder::answer(), &bytes, piece);
        assert_eq!(read, Ok(Some(message.clone())), "an answer by {piece}");
        let read = read_stream(Decoder::opened(named("prod", true)), &opening, piece);
        assert_eq!(read, Ok(Some(message.clone())), "opened by {piece}");
        let read = read_stream(Decoder::opened(named("other", true)), &opening, piece);
        assert_eq!(read, Err(LabelError::Stranger.into()), "by {piece}");
    }
}

#[test]
fn an_exchange_is_a_header_the_peers_and_the_state_above() {
    check_stream(
        StreamMessage::PushPull(exchange()),
        &[
            b"\x06\x83",
            b"\xa4Join\xc3",
            b"\xa5Nodes\x02",
            b"\xacUserStateLen\x05",
            b"\x87\xa4Addr\xa4\x0a\x00\x00\x01\xabIncarnation\x01\xa4Meta\xc0\xa4Name\xa1a",
            b"\xa4Port\xcd\x1f\x0a\xa5State\x00\xa3Vsn\xa6\x01\x05\x02\x00\x00\x00",
            b"\x87\xa4Addr\xa4\x0a\x00\x00\x02\xabIncarnation\x02\xa4Meta\xa1m\xa4Name\xa1b",
            b"\xa4Port\xcd\x1f\x0a\xa5State\x03\xa3Vsn\xa6\x01\x05\x02\x00\x00\x00",
            b"state",
        ],
    );
    let empty = PushPull { join: false, peers: Vec::new(), user_state: Bytes::new() };
    check_stream(
        StreamMessage::PushPull(empty),
        &[b"\x06\x83\xa4Join\xc2\xa5Nodes\x00\xacUserStateLen\x00"],
    );
}

#[test]
fn streams_carry_pings_errors_and_long_messages() {
    check_stream(
        StreamMessage::User(Bytes::from_static(b"hello")),
        &[b"\x08\x81\xaaUserMsgLen\x05hello"],
    );
    check_stream(
        StreamMessage::Ping(Ping { sequence: 7, target: "b".into(), source: None }),
        &[b"\x00\x82\xa4Node\xa1b\xa5SeqNo\x07"],
    );
    check_stream(
        StreamMessage::Ack(Ack { sequence: 7, payload: Bytes::new() }),
        &[b"\x02\x82\xa7Payload\xc0\xa5SeqNo\x07"],
    );
    check_stream(StreamMessage::Error("no".into()), &[b"\x0d\x81\xa5Error\xa2no"]);
}

#[test]
fn a_peer_without_an_address_is_left_out_of_an_exchange() {
    let bytes = [
        &b"\x06\x83\xa4Join\xc2\xa5Nodes\x03\xacUserStateLen\x01"[..],
        b"\x81\xa4Name\xa1x",
        b"\x83\xa4Addr\xa4\x0a\x00\x00\x02\xa4Name\xa1b\xa5State\x01",
        b"\x83\xa4Addr\xa4\x0a\x00\x00\x02\xa4Name\xa1c\xa5State\x09",
        b"s",
    ]
    .concat();
    let mut decoder = Decoder::answer();
    decoder.push(&bytes);
    let Ok(Some(StreamMessage::PushPull(state))) = decoder.decode() else { panic!("an exchange") };
    assert_eq!(decoder.refused_peers(), 2);
    assert_eq!(state.peers.len(), 1);
    assert_eq!((&*state.peers[0].name, state.peers[0].state), ("b", PeerState::Suspect));
    assert_eq!(state.user_state, "s");
}

#[test]
fn a_compressed_exchange_is_unpacked_once_it_is_whole() {
    let mut state = exchange();
    state.user_state = Bytes::from("ring ring ring ".repeat(10_000));
    let message = StreamMessage::PushPull(state);
    let bytes = stream::encode(&message, None, true);
    assert_eq!(bytes[0], 9);
    assert!(bytes.len() < 20_000, "{}", bytes.len());
    for piece in [11, 4096, bytes.len()] {
        assert_eq!(read_stream(Decoder::answer(), &bytes, piece), Ok(Some(message.clone())));
    }
}

fn socket() -> impl Strategy<Value = SocketAddr> {
    let ip =
        prop_oneof![any::<[u8; 4]>().prop_map(Into::into), any::<[u8; 16]>().prop_map(Into::into)];
    (ip, any::<u16>())
        .prop_map(|(ip, port): (std::net::IpAddr, u16)| SocketAddr::new(ip.to_canonical(), port))
}

fn sources() -> impl Strategy<Value = Option<Source>> {
    let source = (".{0,40}", socket()).prop_map(|(name, addr)| Source { name, addr });
    proptest::option::of(source).prop_map(|source| source.filter(|source| source.addr.port() != 0))
}

fn bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn messages() -> impl Strategy<Value = Message> {
    let name = || ".{0,40}";
    prop_oneof![
        (any::<u32>(), name(), sources()).prop_map(|(sequence, target, source)| {
            Message::Ping(Ping { sequence, target, source })
        }),
        (any::<u32>(), name(), socket(), any::<bool>(), sources()).prop_map(
            |(sequence, target, target_addr, wants_nack, source)| {
                Message::IndirectPing(IndirectPing {
                    sequence,
                    target,
                    target_addr,
                    wants_nack,
                    source,
                })
            }
        ),
        (any::<u32>(), bytes())
            .prop_map(|(sequence, payload)| Message::Ack(Ack { sequence, payload })),
        any::<u32>().prop_map(|sequence| Message::Nack(Nack { sequence })),
        (any::<u32>(), name(), name()).prop_map(|(incarnation, name, from)| {
            Message::Suspect(Suspect { incarnation, name, from })
        }),
        (any::<u32>(), name(), name()).prop_map(|(incarnation, name, from)| Message::Dead(Dead {
            incarnation,
            name,
            from
        })),
        (any::<u32>(), name(), socket(), bytes(), any::<Option<[u8; 6]>>()).prop_map(
            |(incarnation, name, addr, meta, versions)| {
                Message::Alive(Alive {
                    incarnation,
                    name,
                    addr,
                    meta,
                    versions: Versions(versions),
                })
            }
        ),
        bytes().prop_map(Message::User),
    ]
}

proptest! {
    #[test]
    fn packets_come_back_as_they_went(
        messages in proptest::collection::vec(messages(), 1..20),
        label in "[a-z]{0,20}",
        compress: bool,
        with_checksum: bool,
    ) {
        let rule = named(&label, true);
        let parts: Vec<_> = messages.iter().map(encode).collect();
        let packets = packet(&parts, &rule.label, compress, with_checksum);
        prop_assert_eq!(packets.len(), 1);
        let opened = open_packet(&packets[0], &rule).expect("a packet");
        prop_assert_eq!(opened.refused, 0);
        prop_assert_eq!(opened.messages, messages);
    }

    #[test]
    fn exchanges_come_back_as_they_went(
        join: bool,
        peers in proptest::collection::vec(
            (".{0,40}", socket(), bytes(), any::<u32>(), 0..4_usize, any::<Option<[u8; 6]>>()),
            0..30,
        ),
        user_state in bytes(),
        compress: bool,
        piece in 1..5000_usize,
    ) {
        let states = [PeerState::Alive, PeerState::Suspect, PeerState::Dead, PeerState::Left];
        let peers = peers.into_iter().map(|(name, addr, meta, incarnation, state, versions)| {
            PeerReport { name, addr, meta, incarnation, state: states[state], versions: Versions(versions) }
        });
        let state = PushPull { join, peers: peers.collect(), user_state };
        let message = StreamMessage::PushPull(state);
        let bytes = stream::encode(&message, None, compress);
        prop_assert_eq!(read_stream(Decoder::answer(), &bytes, piece), Ok(Some(message)));
    }
}
