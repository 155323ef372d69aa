//! Labels, canonical bytes and keys, against what Cortex computes.

use proptest::prelude::*;

use super::*;

fn hasher() -> IdentityHasher {
    let mut secret = [0; IDENTITY_SECRET_BYTES];
    for (i, byte) in secret.iter_mut().enumerate() {
        *byte = (i * 7 + 3) as u8;
    }
    IdentityHasher::new(secret)
}

fn labels(pairs: &[(&str, &str)]) -> LabelsBuf {
    LabelsBuf::from_pairs(pairs.iter().copied())
}

#[test]
fn label_sets_print_as_in_prometheus() {
    let check = |pairs: &[(&[u8], &[u8])], expect: &str| {
        let buf = LabelsBuf::from_pairs(pairs.iter().copied());
        assert_eq!(buf.as_labels().to_string(), expect);
    };
    check(&[], "{}");
    check(&[(b"__name__", b"x"), (b"i", b"1")], r#"{__name__="x", i="1"}"#);
    check(&[(b"a-b", b"1"), (b"2x", b"2"), (b"", b"3")], r#"{"a-b"="1", "2x"="2", ""="3"}"#);
    check(&[(b"a", b"\x00\x07\x08\x0b\x0c\n\r\t\x7f")], r#"{a="\x00\a\b\v\f\n\r\t\x7f"}"#);
    check(&[(b"a", b"say \"hi\" \\ 'x'")], r#"{a="say \"hi\" \\ 'x'"}"#);
    check(&[(b"a", b"\xff\xc3")], r#"{a="\xff\xc3"}"#);
    check(&[("naïve".as_bytes(), "é\u{301} 😀".as_bytes())], "{\"naïve\"=\"é\u{301} 😀\"}");
    check(
        &[(b"a", "\u{301}\u{a0}\u{feff}\u{85}".as_bytes())],
        "{a=\"\u{301}\\u00a0\\ufeff\\u0085\"}",
    );
    check(
        &[(b"a", "\u{e000}\u{10ffff}\u{e0001}".as_bytes())],
        r#"{a="\ue000\U0010ffff\U000e0001"}"#,
    );
}

#[test]
fn labels_with_empty_values_are_left_out() {
    assert_eq!(labels(&[("a", ""), ("b", "1")]), labels(&[("b", "1")]));
    assert!(labels(&[("a", "")]).as_labels().is_empty());
}

#[test]
fn order_and_duplicates_are_seen() {
    let sorted = labels(&[("__name__", "m"), ("a", "1"), ("a", "2"), ("b", "1")]);
    assert!(sorted.as_labels().is_sorted());
    assert_eq!(sorted.as_labels().duplicate_name(), Some(&b"a"[..]));
    let unsorted = labels(&[("b", "1"), ("a", "1")]);
    assert!(!unsorted.as_labels().is_sorted());
    assert_eq!(unsorted.as_labels().duplicate_name(), None);
    assert!(labels(&[]).as_labels().is_sorted());
}

#[test]
fn the_metric_name_is_the_first_of_its_label() {
    let named = labels(&[("a", "1"), ("__name__", "m"), ("__name__", "n")]);
    assert_eq!(named.as_labels().metric_name(), b"m");
    assert_eq!(labels(&[("a", "1")]).as_labels().metric_name(), b"");
}

/// Cortex's own 64-bit hash of these two collides; a known pair from Prometheus' tests.
#[test]
fn case_b11_label_sets_with_one_64_bit_hash_stay_two_series() {
    let pairs = [("HFnEaGl", "RqcXatm"), ("qeYKm3", "2fUczT"), ("l6CQyI", "v7uDlF")];
    let colliding = pairs.into_iter().find_map(|(one, other)| {
        [&[("__name__", "metric")][..], &[("__name__", "metric"), ("lbl1", "value")]]
            .into_iter()
            .flat_map(|first| ["lbl", "lbl2"].map(|name| (first, name)))
            .map(|(first, name)| {
                let set = |value| labels(&[first, &[(name, value)]].concat());
                (set(one), set(other))
            })
            .find(|(one, other)| one.as_labels().hash64() == other.as_labels().hash64())
    });
    let (one, other) = colliding.expect("a pair with one hash");
    let hasher = hasher();
    assert_ne!(hasher.identity(one.as_labels()), hasher.identity(other.as_labels()));
}

#[test]
fn case_b12_names_and_values_that_run_together_share_a_token_only() {
    let (one, other) = (labels(&[("ab", "c")]), labels(&[("a", "bc")]));
    let (one, other) = (one.as_labels(), other.as_labels());
    assert_eq!(ring_key("t", one), ring_key("t", other));
    let hasher = hasher();
    assert_ne!(hasher.identity(one), hasher.identity(other));
}

#[test]
fn case_a33_a_metric_is_placed_as_one() {
    let (one, other) = (labels(&[("__name__", "m"), ("i", "1")]), labels(&[("__name__", "m")]));
    let key =
        |placement: Placement, labels: &LabelsBuf| placement.ring_key("t", labels.as_labels());
    assert_eq!(key(Placement::ByMetric, &one), key(Placement::ByMetric, &other));
    assert_ne!(key(Placement::ByAllLabels, &one), key(Placement::ByAllLabels, &other));
    assert_eq!(key(Placement::ByMetric, &labels(&[("a", "1")])), Err(MetricNameMissing));
}

#[test]
fn bytes_that_are_not_canonical_are_no_labels() {
    let check = |bytes: &[u8]| assert_eq!(Labels::parse(bytes), None, "{bytes:?}");
    check(&[0x0a, 0x06, 0x0a, 0x01, b'a', 0x12, 0x01]);
    // Value before name.
    check(&[0x0a, 0x06, 0x12, 0x01, b'1', 0x0a, 0x01, b'a']);
    // Empty value, written and left out.
    check(&[0x0a, 0x05, 0x0a, 0x01, b'a', 0x12, 0x00]);
    check(&[0x0a, 0x03, 0x0a, 0x01, b'a']);
    check(&[0x0a, 0x00]);
    // Empty name, written.
    check(&[0x0a, 0x05, 0x0a, 0x00, 0x12, 0x01, b'1']);
    // Lengths longer than needed.
    check(&[0x0a, 0x86, 0x00, 0x0a, 0x01, b'a', 0x12, 0x01, b'1']);
    check(&[0x0a, 0x07, 0x0a, 0x81, 0x00, b'a', 0x12, 0x01, b'1']);
    check(&[0x0a, 0x07, 0x0a, 0x01, b'a', 0x12, 0x81, 0x00, b'1']);
    // An unknown field, inside and behind.
    check(&[0x0a, 0x08, 0x0a, 0x01, b'a', 0x12, 0x01, b'1', 0x18, 0x01]);
    check(&[0x0a, 0x06, 0x0a, 0x01, b'a', 0x12, 0x01, b'1', 0x18, 0x01]);
    // Lengths that lie.
    check(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x0a, 0x01, b'a']);
    check(&[0x0a, 0x07, 0x0a, 0x01, b'a', 0x12, 0x01, b'1', b'2']);
}

proptest! {
    #[test]
    fn what_is_pushed_is_canonical_and_comes_back(
        pairs in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..200), prop::collection::vec(any::<u8>(), 0..300)),
            0..12,
        ),
        long in 0..3_usize,
    ) {
        let mut pairs = pairs;
        if let Some((_, value)) = pairs.first_mut() {
            value.resize(value.len() + [0, 20_000, 3_000_000][long], b'x');
        }
        let buf = LabelsBuf::from_pairs(pairs.iter().cloned());
        let labels = Labels::parse(buf.as_labels().as_bytes());
        prop_assert_eq!(labels, Some(buf.as_labels()));
        let kept: Vec<_> = pairs.iter().filter(|(_, value)| !value.is_empty()).collect();
        let read: Vec<_> = buf.as_labels().iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
        prop_assert_eq!(read.iter().collect::<Vec<_>>(), kept);
    }

    #[test]
    fn any_bytes_are_labels_or_are_not(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let end = canonical_prefix(&bytes);
        let labels = Labels::parse(&bytes[..end]).expect("the prefix is canonical");
        let buf = LabelsBuf::from_pairs(labels);
        prop_assert_eq!(buf.as_labels().as_bytes(), &bytes[..end]);
    }

    #[test]
    fn prepared_labels_are_sorted_and_keep_the_order_of_equals(
        pairs in prop::collection::vec(("[a-c]", "[0-9]?"), 0..30),
    ) {
        let mut prepared = pairs.clone();
        prepare(&mut prepared);
        prop_assert!(prepared.is_sorted_by(|(a, _), (b, _)| a <= b));
        for name in ["a", "b", "c"] {
            let of = |pairs: &[(String, String)]| -> Vec<String> {
                let wanted = pairs.iter().filter(|(n, value)| n == name && !value.is_empty());
                wanted.map(|(_, value)| value.clone()).collect()
            };
            prop_assert_eq!(of(&prepared), of(&pairs));
        }
    }
}
