//! The stored ring value, read and written.

use proptest::prelude::*;

use super::*;

fn instance(state: InstanceState, tokens: &[u32]) -> Instance {
    Instance {
        addr: "10.0.0.1:9095".to_owned(),
        timestamp_s: 1_700_000_000,
        state,
        tokens: tokens.iter().copied().map(Token).collect(),
        zone: "zone-a".to_owned(),
        registered_timestamp_s: 1_600_000_000,
        unknown_fields: Vec::new(),
    }
}

fn ring(instances: &[(&str, Instance)]) -> RingModel {
    let instances = instances.iter().map(|(id, instance)| ((*id).to_owned(), instance.clone()));
    RingModel { instances: instances.collect(), unknown_fields: Vec::new() }
}

fn compressed(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).unwrap()
}

/// One map entry with these bytes as its value.
fn entry(id: &str, value: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    encode_bytes(ENTRY_KEY, id.as_bytes(), &mut body);
    encode_bytes(ENTRY_VALUE, value, &mut body);
    let mut message = Vec::new();
    encode_bytes(DESC_INGESTERS, &body, &mut message);
    message
}

fn whole(reading: RingReading) -> RingModel {
    match reading {
        RingReading::Whole(model) => model,
        RingReading::Heartbeats(_) => panic!("heartbeats instead of a whole reading"),
    }
}

fn any_model() -> impl Strategy<Value = RingModel> {
    let instance = (
        ("[a-zé:0-9]{0,9}", any::<i64>(), prop::sample::select(InstanceState::ALL.to_vec())),
        prop::collection::vec(any::<u32>(), 0..20),
        ("[a-z-]{0,5}", any::<i64>(), any::<bool>()),
    );
    let instance = instance.prop_map(|((addr, timestamp_s, state), tokens, rest)| Instance {
        addr,
        timestamp_s,
        state,
        tokens: tokens.into_iter().map(Token).collect(),
        zone: rest.0,
        registered_timestamp_s: rest.1,
        // Field 9, a varint.
        unknown_fields: if rest.2 { vec![0x48, 0x05] } else { Vec::new() },
    });
    (prop::collection::btree_map("[a-z0-9]{0,6}", instance, 0..8), any::<bool>()).prop_map(
        |(instances, unknown)| RingModel {
            instances,
            // Field 3, two bytes.
            unknown_fields: if unknown { vec![0x1a, 0x02, 0xff, 0x00] } else { Vec::new() },
        },
    )
}

proptest! {
    #[test]
    fn a_ring_comes_back_as_it_was_stored(model in any_model()) {
        let stored = encode(&model).unwrap();
        prop_assert_eq!(&decode(&stored).unwrap(), &model);
        prop_assert_eq!(whole(RingDescReader::new().read(&stored).unwrap()), model);
    }

    #[test]
    fn any_bytes_are_a_ring_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = RingDescReader::new().read(&compressed(&bytes));
        // Past the outer message, where random bytes seldom get.
        let _ = decode(&compressed(&entry("a", &bytes)));
    }

    #[test]
    fn a_damaged_ring_is_a_ring_or_an_error(
        model in any_model(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let stored = encode(&model).unwrap();
        let message = snap::raw::Decoder::new().decompress_vec(&stored).unwrap();
        for (mut bytes, is_message) in [(stored, false), (message, true)] {
            if bytes.is_empty() {
                continue;
            }
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            let value = if is_message { compressed(&bytes) } else { bytes };
            let mut reader = RingDescReader::new();
            // What one of the two readers takes the other takes, and to the same ring.
            match (decode(&value), reader.read(&value)) {
                (Ok(model), Ok(reading)) => prop_assert_eq!(whole(reading), model),
                (Err(_), Err(_)) => {}
                (left, right) => prop_assert!(false, "{:?} {:?}", left, right),
            }
        }
    }
}

#[test]
fn heartbeats_are_told_from_moves_without_the_tokens() {
    let mut model = ring(&[
        ("a", instance(InstanceState::Active, &[1, 2])),
        ("b", instance(InstanceState::Active, &[3])),
    ]);
    let mut reader = RingDescReader::new();
    assert_eq!(whole(reader.read(&encode(&model).unwrap()).unwrap()), model);

    let member = model.instances.get_mut("b").unwrap();
    member.timestamp_s += 5;
    member.addr = "10.0.0.2:9095".to_owned();
    let reading = reader.read(&encode(&model).unwrap()).unwrap();
    let RingReading::Heartbeats(heartbeats) = reading else { panic!("{reading:?}") };
    let got: Vec<_> = heartbeats.iter().map(|h| (h.id.as_str(), h.timestamp_s)).collect();
    assert_eq!(got, [("a", 1_700_000_000), ("b", 1_700_000_005)]);
    assert_eq!(heartbeats[1].addr, "10.0.0.2:9095");

    // The order of a map's entries has no meaning.
    let b = entry("b", &[]);
    let mut swapped = Vec::new();
    for (id, instance) in model.instances.iter().rev() {
        let mut value = Vec::new();
        encode_instance(instance, &mut value);
        swapped.extend(entry(id, &value));
    }
    let reading = reader.read(&compressed(&swapped)).unwrap();
    assert!(matches!(reading, RingReading::Heartbeats(_)));

    // A member named twice is read whole, and keeps its last value.
    let twice = [swapped.clone(), b].concat();
    let read = whole(reader.read(&compressed(&twice)).unwrap());
    assert_eq!(read.instances["b"].tokens, []);

    let changes: [fn(&mut Instance); 3] = [
        |i| i.state = InstanceState::Leaving,
        |i| i.zone = "zone-b".to_owned(),
        |i| i.tokens.push(Token(9)),
    ];
    for change in changes {
        change(model.instances.get_mut("a").unwrap());
        assert_eq!(whole(reader.read(&encode(&model).unwrap()).unwrap()), model);
    }
    reader.forget();
    assert_eq!(whole(reader.read(&encode(&model).unwrap()).unwrap()), model);
}

#[test]
fn a_failed_read_changes_nothing() {
    let model = ring(&[("a", instance(InstanceState::Active, &[1]))]);
    let stored = encode(&model).unwrap();
    let mut reader = RingDescReader::new();
    reader.read(&stored).unwrap();
    assert!(reader.read(b"no snappy").is_err());
    assert!(reader.read(&compressed(&entry("a", &[0x18, 0x09]))).is_err());
    assert!(matches!(reader.read(&stored).unwrap(), RingReading::Heartbeats(_)));
}

#[test]
fn an_empty_ring_is_always_whole() {
    let mut reader = RingDescReader::new();
    for _ in 0..2 {
        assert_eq!(whole(reader.read(&[0]).unwrap()), RingModel::default());
    }
}

#[test]
fn tokens_may_come_packed_or_one_by_one() {
    // Packed 1 and 300, then 2 unpacked, then an empty packed field.
    let value = [0x32, 0x03, 0x01, 0xac, 0x02, 0x30, 0x02, 0x32, 0x00];
    let model = decode(&compressed(&entry("a", &value))).unwrap();
    assert_eq!(model.instances["a"].tokens, [1, 300, 2].map(Token));
}

#[test]
fn unknown_fields_are_written_back() {
    // In an instance: field 4 (reserved) as fixed32, field 12 a group. In the ring: field 5.
    let unknown = [0x25, 1, 2, 3, 4, 0x63, 0x08, 0x01, 0x64];
    let mut message = entry("a", &unknown);
    message.extend([0x2a, 0x01, 0x07]);
    let model = decode(&compressed(&message)).unwrap();
    assert_eq!(model.instances["a"].unknown_fields, unknown);
    assert_eq!(model.unknown_fields, [0x2a, 0x01, 0x07]);
    let again = snap::raw::Decoder::new().decompress_vec(&encode(&model).unwrap()).unwrap();
    assert_eq!(again, message);
}

#[test]
fn bad_values_say_what_is_wrong() {
    let check = |value: &[u8], text: &str| {
        assert_eq!(decode(value).unwrap_err().to_string(), text);
    };
    let claim = |len: u64| {
        let mut value = Vec::new();
        encode_varint(len, &mut value);
        value.push(0);
        value
    };
    check(&[], "decompress the stored ring");
    check(&claim(17 << 20), "the stored ring has 17825792 bytes, more than 16777216");
    check(&claim(16 << 20), "the stored ring claims 16777216 bytes from 5");
    check(&compressed(&[0x0a, 0x7f, 0x00]), "a length in the stored ring runs past its end");
    check(&compressed(&[0x08, 0x01]), "a field of the stored ring has the wrong wire type");
    check(&compressed(&[0x0f]), "decode the stored ring");
    check(
        &compressed(&entry("a", &[0x18, 0x06])),
        "an instance of the stored ring has the unknown state 6",
    );
    check(&compressed(&entry("a", &[0x0a, 0x01, 0xff])), "a text in the stored ring is not UTF-8");
    check(&compressed(&entry("a", &[0x32, 0x01, 0x80])), "decode the stored ring");
    let many = [0x0a, 0x00].repeat(INSTANCES_MAX + 1);
    let error = RingDescReader::new().read(&compressed(&many)).unwrap_err();
    assert_eq!(error.to_string(), "the stored ring has more than 65536 instances");
}

#[test]
fn the_best_snappy_can_do_is_within_the_growth_bound() {
    for len in [1, 64, 1000, 1 << 20] {
        let value = compressed(&vec![0; len]);
        assert!(len <= value.len() * SNAPPY_GROWTH_MAX, "{len}");
    }
}

#[test]
fn one_odd_entry_hides_no_other_where_many_write() {
    let odd_state = entry("odd", &[0x18, 0x09]);
    let odd_text = entry("text", &[0x0a, 0x01, 0xff]);
    let good = entry("good", &[0x18, 0x01]);
    let (ring, left_out) =
        decode_known(&compressed(&[odd_state, odd_text, good].concat())).unwrap();
    assert_eq!((ring.instances.len(), left_out), (1, 2));
    assert_eq!(ring.instances["good"].state, InstanceState::Leaving);
    assert!(decode_known(&compressed(&[0x0a, 0x7f, 0x00])).is_err(), "broken bytes are no ring");
}

/// What a liar makes of a few bytes: entries of two, or as many under one name.
#[test]
fn a_ring_of_crumbs_is_refused_where_many_write() {
    let check = |entry: &[u8], count: usize, expect: Result<usize, &str>| {
        let told = decode_known(&compressed(&entry.repeat(count)));
        let told = told.map(|(ring, _)| ring.instances.len()).map_err(|error| error.to_string());
        assert_eq!(told, expect.map_err(str::to_owned));
    };
    let few = SHORT_ENTRIES_MAX;
    check(&[0x0a, 0x00], few, Ok(1));
    check(&[0x0a, 0x00], 1000, Err("the stored ring has more than 189 entries in 2000 bytes"));
    let shortest = entry("a23456789", &[0x10, 0x01]);
    assert!(shortest.len() >= ENTRY_BYTES_MIN, "{}", shortest.len());
    check(&shortest, 10_000, Ok(1));
    let text = format!("the stored ring has more than 65536 entries in {} bytes", 70_000 * 17);
    check(&shortest, 70_000, Err(&text));
    // Fields beside the entries are looked at, too.
    check(&[0x10, 0x01], 1000, Err("the stored ring has more than 189 entries in 2000 bytes"));
}
