//! The rules of keys with numbers, and their books.

use super::*;
use crate::ring::kv::memberlist::value::Value;
use crate::ring::model::{Instance, InstanceState, RingModel, Token};
use crate::wire::replica_desc::ElectedReplica;
use proptest::prelude::*;

const NOW_MS: i64 = 1_800_000_000_000;
const NOW_S: i64 = NOW_MS / 1000;
const RETENTION: Retention = Retention { left_ms: 60_000, deleted_ms: 60_000 };

fn ring(entries: &[(&str, InstanceState, i64)]) -> Value {
    let entry = |(at, (id, state, timestamp_s)): (usize, &(&str, InstanceState, i64))| {
        let entry = Instance {
            addr: String::new(),
            timestamp_s: *timestamp_s,
            state: *state,
            tokens: vec![Token(at as u32)],
            zone: String::new(),
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        };
        ((*id).to_owned(), entry)
    };
    let instances = entries.iter().enumerate().map(entry).collect();
    Value::Ring(RingModel { instances, unknown_fields: Vec::new() })
}

fn replica(name: &str, received_at_ms: i64) -> Value {
    Value::Replica(ElectedReplica { replica: name.to_owned(), received_at_ms, deleted_at_ms: 0 })
}

fn told(value: Value, deleted: bool, updated_at_ms: i64) -> Told {
    Told { value, deleted, updated_at_ms }
}

fn live(value: Value) -> Told {
    told(value, false, 0)
}

/// Members that users see, with their times.
fn seen(pairs: &Pairs, key: &str) -> Option<Vec<(String, i64)>> {
    match pairs.visible(key).form {
        VisibleForm::Nothing => None,
        VisibleForm::Value(Value::Ring(ring)) => {
            Some(ring.instances.into_iter().map(|(id, entry)| (id, entry.timestamp_s)).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn version(outcome: Result<Outcome, PairsError>) -> Option<u64> {
    outcome.expect("sound").change.map(|change| change.version)
}

use InstanceState::{Active, Leaving, Left};

#[test]
fn news_make_a_version_and_only_what_is_new_is_told_on() {
    let mut pairs = Pairs::new(RETENTION);
    let first = ring(&[("a", Active, NOW_S), ("b", Active, NOW_S)]);
    assert_eq!(version(pairs.merge("k", live(first.clone()), NOW_MS)), Some(1));
    assert_eq!(version(pairs.merge("k", live(first), NOW_MS)), None);
    let second = ring(&[("a", Active, NOW_S), ("b", Active, NOW_S + 1)]);
    let outcome = pairs.merge("k", live(second), NOW_MS).expect("sound");
    let change = outcome.change.expect("news");
    assert_eq!((change.version, change.value.content()), (2, vec!["b".to_owned()]));
    assert_eq!(pairs.visible("k").version, 2);
    assert_eq!(pairs.visible("other"), Visible { version: 0, form: VisibleForm::Nothing });
}

/// Cortex's TestSendingOldTombstoneShouldNotForwardMessage.
#[test]
fn tombstones_are_hidden_and_old_ones_neither_kept_nor_told_on() {
    let mut pairs = Pairs::new(RETENTION);
    let value = ring(&[("a", Active, NOW_S), ("b", Left, NOW_S - 60), ("c", Left, NOW_S - 61)]);
    let outcome = pairs.merge("k", live(value.clone()), NOW_MS).expect("sound");
    assert_eq!(outcome.tombstones, Some(Tombstones { kept: 1, removed: 1 }));
    assert_eq!(outcome.change.expect("news").value.content(), ["a", "b"]);
    assert_eq!(seen(&pairs, "k"), Some(vec![("a".to_owned(), NOW_S)]));
    assert_eq!(version(pairs.merge("k", live(value), NOW_MS)), None, "an old one again");
    let stranger = ring(&[("d", Left, NOW_S - 61)]);
    assert_eq!(version(pairs.merge("other", live(stranger), NOW_MS)), None);
    assert_eq!(pairs.len(), 1, "a ring of the long gone is none");
}

#[test]
fn a_swap_holds_on_to_what_it_was_made_from() {
    let base = ring(&[("a", Active, NOW_S), ("b", Active, NOW_S)]);
    let check = |between: Option<Value>, swap: Value, expect: Result<&[&str], PairsError>| {
        let mut pairs = Pairs::new(RETENTION);
        let made_from = version(pairs.merge("k", live(base.clone()), NOW_MS)).expect("news");
        if let Some(between) = between {
            assert!(version(pairs.merge("k", live(between), NOW_MS)).is_some());
        }
        let outcome = pairs.swap("k", made_from, swap, NOW_MS + 5000);
        let names = outcome.map(|outcome| outcome.change.expect("news").value.content());
        assert_eq!(names, expect.map(|names| names.iter().map(|n| (*n).to_owned()).collect()));
    };
    let lost = Err(PairsError::VersionMismatch);
    let beat = ring(&[("a", Active, NOW_S + 5), ("b", Active, NOW_S)]);
    let without_b = ring(&[("a", Active, NOW_S + 5)]);
    check(None, beat.clone(), Ok(&["a"]));
    check(None, without_b.clone(), Ok(&["a", "b"]));
    // The other's heartbeat came in between: ours takes nothing from it.
    let others_beat = ring(&[("a", Active, NOW_S), ("b", Active, NOW_S + 1)]);
    check(Some(others_beat.clone()), beat.clone(), Ok(&["a"]));
    // It lives after all.
    check(Some(others_beat), without_b.clone(), lost.clone());
    // Somebody came, whom we do not mean to take out.
    let newcomer = ring(&[("c", Active, NOW_S)]);
    check(Some(newcomer), beat.clone(), lost.clone());
    let moved = ring(&[("a", Active, NOW_S), ("b", Leaving, NOW_S + 1)]);
    check(Some(moved), beat, lost);
}

#[test]
fn a_swap_from_nothing_merges_and_one_from_a_key_that_went_fails() {
    let mut pairs = Pairs::new(RETENTION);
    let ours = ring(&[("a", Active, NOW_S)]);
    assert_eq!(version(pairs.swap("k", 0, ours.clone(), NOW_MS)), Some(1));
    let others = ring(&[("x", Active, NOW_S), ("b", Active, NOW_S)]);
    assert_eq!(version(pairs.swap("k", 0, others, NOW_MS)), Some(2));
    assert_eq!(seen(&pairs, "k").expect("there").len(), 3, "nobody was taken out");
    assert_eq!(pairs.swap("gone", 7, ours, NOW_MS), Err(PairsError::VersionMismatch));
}

/// Cortex's TestDeleteIsPropagatedToOtherNodes, TestDeleteIdempotencyAndList, TestDeleteAndCAS
/// and TestResurrectDeletedKeyWithNewerMetadata.
#[test]
fn the_latest_word_says_whether_a_key_is_deleted() {
    let mut pairs = Pairs::new(RETENTION);
    assert_eq!(version(pairs.delete("k", NOW_MS)), None);
    assert!(pairs.is_empty());
    let first = told(ring(&[("a", Active, NOW_S)]), false, NOW_MS);
    assert_eq!(version(pairs.merge("k", first.clone(), NOW_MS)), Some(1));
    let deleted = pairs.delete("k", NOW_MS).expect("sound").change.expect("news");
    assert!(deleted.deleted);
    assert_eq!((deleted.version, deleted.updated_at_ms), (2, NOW_MS));
    assert_eq!(deleted.value, first.value, "it is told with its value");
    assert_eq!(pairs.visible("k"), Visible { version: 2, form: VisibleForm::Nothing });
    assert_eq!(pairs.under("").count(), 0);
    assert_eq!(version(pairs.delete("k", NOW_MS + 1)), None, "once");

    // An older write does not bring it back, even one with news.
    let older = told(ring(&[("b", Active, NOW_S)]), false, NOW_MS - 1);
    assert_eq!(version(pairs.merge("k", older, NOW_MS)), Some(3));
    assert_eq!(seen(&pairs, "k"), None);
    let newer = told(ring(&[("b", Active, NOW_S)]), false, NOW_MS + 1);
    assert_eq!(version(pairs.merge("k", newer, NOW_MS)), Some(4));
    assert_eq!(seen(&pairs, "k").expect("back").len(), 2);

    // A swap that saw the deletion ends it, though it comes within the same millisecond.
    assert_eq!(version(pairs.delete("k", NOW_MS + 2)), Some(5));
    let new = ring(&[("a", Active, NOW_S + 1)]);
    let outcome = pairs.swap("k", 5, new, NOW_MS + 2).expect("sound");
    assert_eq!(outcome.change.expect("news").updated_at_ms, NOW_MS + 3);
    assert_eq!(seen(&pairs, "k"), Some(vec![("a".to_owned(), NOW_S + 1)]));
}

/// Cortex's TestSweepTombstones.
#[test]
fn deleted_keys_go_after_their_time() {
    let mut pairs = Pairs::new(RETENTION);
    pairs.merge("a", told(replica("r", 5), false, NOW_MS), NOW_MS).expect("sound");
    pairs.merge("b", told(replica("r", 5), false, NOW_MS), NOW_MS).expect("sound");
    pairs.delete("a", NOW_MS).expect("sound");
    assert!(pairs.sweep(NOW_MS + 60_000).is_empty());
    assert_eq!(pairs.sweep(NOW_MS + 60_001), ["a"]);
    assert_eq!(pairs.len(), 1);
    assert_eq!(pairs.changed_since("", 0).map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["b"]);
    let mut for_ever = Pairs::new(Retention { deleted_ms: 0, ..RETENTION });
    for_ever.merge("a", told(replica("r", 5), true, NOW_MS), NOW_MS).expect("sound");
    assert!(for_ever.sweep(i64::MAX).is_empty());
}

#[test]
fn changes_are_numbered_and_moves_told_apart() {
    let mut pairs = Pairs::new(RETENTION);
    assert_eq!(pairs.changed_at("k"), ChangedAt { any: 0, moved: 0 });
    let mut tell = |key: &str, value: Value| {
        pairs.merge(key, live(value), NOW_MS).expect("sound");
        pairs.changed_at(key)
    };
    assert_eq!(tell("k", ring(&[("a", Active, 1)])), ChangedAt { any: 1, moved: 1 });
    assert_eq!(tell("r/1", replica("x", 1)), ChangedAt { any: 2, moved: 2 });
    assert_eq!(tell("k", ring(&[("a", Active, 2)])), ChangedAt { any: 3, moved: 1 });
    assert_eq!(tell("k", ring(&[("a", Active, 2)])), ChangedAt { any: 3, moved: 1 });
    assert_eq!(tell("r/2", replica("x", 1)), ChangedAt { any: 4, moved: 4 });
    assert_eq!(tell("k", ring(&[("a", Leaving, 3)])), ChangedAt { any: 5, moved: 5 });
    let since = |prefix, change| -> Vec<_> {
        pairs.changed_since(prefix, change).map(|(key, _)| key.as_str()).collect()
    };
    assert_eq!(since("", 0), ["r/1", "r/2", "k"]);
    assert_eq!(since("r/", 2), ["r/2"]);
    assert!(since("r/", 4).is_empty());
}

fn encoded(bytes: &'static [u8], version: u64, change: u64) -> Encoded {
    Encoded { bytes: Bytes::from_static(bytes), version, change, at_ms: NOW_MS }
}

#[test]
fn what_is_encoded_is_kept_until_it_changes() {
    let mut pairs = Pairs::new(RETENTION);
    let bytes = Bytes::from_static(b"x");
    pairs.merge("k", live(replica("a", 1)), NOW_MS).expect("sound");
    pairs.keep_encoded("k", encoded(b"x", 1, 1));
    assert_eq!(pairs.visible("k").form, VisibleForm::Encoded(bytes.clone()));
    pairs.merge("k", live(replica("a", 1)), NOW_MS).expect("sound");
    assert_eq!(pairs.visible("k").form, VisibleForm::Encoded(bytes.clone()));
    pairs.merge("k", live(replica("a", 2)), NOW_MS).expect("sound");
    assert_eq!(pairs.visible("k").form, VisibleForm::Value(replica("a", 2)));
    pairs.keep_encoded("k", encoded(b"x", 1, 1));
    assert_eq!(pairs.visible("k").form, VisibleForm::Value(replica("a", 2)), "an old one");
}

#[test]
fn what_one_had_encoded_lately_serves_others_until_something_moves() {
    let mut pairs = Pairs::new(RETENTION);
    let tell = |pairs: &mut Pairs, state, timestamp_s| {
        pairs.merge("k", live(ring(&[("a", state, timestamp_s)])), NOW_MS).expect("sound");
    };
    let lately = |pairs: &Pairs, seen, age_ms: i64| {
        pairs.lately_encoded("k", seen, 1000, NOW_MS + age_ms).map(|encoded| encoded.change)
    };
    tell(&mut pairs, Active, 1);
    assert_eq!(lately(&pairs, 0, 0), None, "nobody had it encoded");
    pairs.keep_encoded("k", encoded(b"x", 1, 1));
    assert_eq!(lately(&pairs, 0, 0), Some(1));
    tell(&mut pairs, Active, 2);
    assert_eq!(lately(&pairs, 0, 999), Some(1), "but for a heartbeat");
    assert_eq!(lately(&pairs, 0, 1000), None, "too old");
    assert_eq!(lately(&pairs, 0, -1), None, "by a clock that went back");
    assert_eq!(lately(&pairs, 1, 0), None, "no news");
    pairs.keep_encoded("k", encoded(b"y", 2, 2));
    pairs.keep_encoded("k", encoded(b"x", 1, 1));
    assert_eq!(lately(&pairs, 1, 0), Some(2), "the newest stays");
    tell(&mut pairs, Leaving, 3);
    assert_eq!(lately(&pairs, 0, 0), None);
    // Who vanishes without a version of its own, long LEFT, is not shown either.
    pairs.keep_encoded("k", encoded(b"z", 3, 3));
    tell(&mut pairs, Left, 4);
    assert_eq!(lately(&pairs, 0, 0), None);
    assert_eq!(seen(&pairs, "k"), Some(Vec::new()));
}

/// A forged entry, or one of a time when our clock was ahead.
#[test]
fn what_we_write_counts_though_what_is_held_is_stamped_ahead() {
    let ahead_s = 20;
    let base = ring(&[("a", Active, NOW_S + ahead_s), ("b", Active, NOW_S + ahead_s)]);
    let write = |pairs: &mut Pairs, version, value: Value, now_ms| {
        let change = pairs.swap("k", version, value, now_ms).expect("sound").change;
        change.map(|change| match change.value {
            Value::Ring(ring) => ring
                .instances
                .into_iter()
                .map(|(id, entry)| (id, entry.state, entry.timestamp_s - NOW_S))
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        })
    };
    let mut pairs = Pairs::new(RETENTION);
    pairs.merge("k", live(base.clone()), NOW_MS).expect("sound");
    // A heartbeat right behind another; "b" is as it was read.
    for (version, later_s) in [(1, 1), (2, 2)] {
        let beat = ring(&[("a", Active, NOW_S), ("b", Active, NOW_S + ahead_s)]);
        let told = write(&mut pairs, version, beat, NOW_MS).expect("news");
        assert_eq!(told, [("a".to_owned(), Active, ahead_s + later_s)]);
    }
    // One who reads the whole ring and goes.
    let Value::Ring(mut gone) = base.clone() else { panic!("a ring") };
    gone.instances.remove("a");
    let gone = Value::Ring(gone);
    let told = write(&mut pairs, 3, gone, NOW_MS).expect("news");
    assert_eq!(told, [("a".to_owned(), Left, ahead_s + 2)]);
    // And comes back, though its tombstone is not to be seen.
    let back = ring(&[("a", Active, NOW_S), ("b", Active, NOW_S + ahead_s)]);
    let told = write(&mut pairs, 4, back, NOW_MS).expect("news");
    assert_eq!(told, [("a".to_owned(), Active, ahead_s + 3)]);

    // What came since the read was not seen: the copy of "b" in the value is an old one.
    let others_beat = ring(&[("a", Active, NOW_S), ("b", Active, NOW_S + ahead_s + 9)]);
    pairs.merge("k", live(others_beat), NOW_MS).expect("sound");
    let beat = ring(&[("a", Leaving, NOW_S), ("b", Active, NOW_S + ahead_s)]);
    let told = write(&mut pairs, 5, beat, NOW_MS).expect("news");
    assert_eq!(told, [("a".to_owned(), Leaving, ahead_s + 4)]);
    let Some(Entry { value: Value::Ring(held), .. }) = pairs.get("k") else { panic!("a ring") };
    assert_eq!(held.instances["b"].timestamp_s, NOW_S + ahead_s + 9);

    // Not farther ahead than others believe; a second later there is room again.
    let most = ring(&[("a", Active, NOW_S + 1800)]);
    let mut pairs = Pairs::new(RETENTION);
    pairs.merge("k", live(most), NOW_MS).expect("sound");
    let beat = ring(&[("a", Leaving, NOW_S)]);
    assert_eq!(write(&mut pairs, 1, beat.clone(), NOW_MS), None);
    let told = write(&mut pairs, 1, beat, NOW_MS + 1000).expect("news");
    assert_eq!(told, [("a".to_owned(), Leaving, 1801)]);
    // Of the present second it stays as it was: no news before the next.
    let mut pairs = Pairs::new(RETENTION);
    pairs.merge("k", live(ring(&[("a", Active, NOW_S)])), NOW_MS).expect("sound");
    assert_eq!(write(&mut pairs, 1, ring(&[("a", Leaving, NOW_S)]), NOW_MS), None);
}

#[test]
fn one_odd_entry_does_not_hide_the_others() {
    let mut pairs = Pairs::new(RETENTION);
    let told = ring(&[("a", Active, NOW_S), ("b", Active, NOW_S + 1801)]);
    let outcome = pairs.merge("k", live(told), NOW_MS).expect("sound");
    assert_eq!(outcome.left_out.future, 1);
    assert_eq!(outcome.change.expect("news").value.content(), ["a"]);
    let outcome = pairs.merge("k", live(ring(&[("b", Active, NOW_S + 1801)])), NOW_MS);
    let outcome = outcome.expect("sound");
    assert_eq!((outcome.change, outcome.left_out.future), (None, 1), "told also of no news");
}

#[test]
fn keys_and_rings_are_counted() {
    let mut pairs = Pairs::new(RETENTION);
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let refused = pairs.merge(&long, live(replica("a", 1)), NOW_MS);
    assert_eq!(refused, Err(PairsError::KeyTooLong { bytes: KEY_BYTES_MAX + 1 }));
    for n in 0..RINGS_MAX {
        let value = told(ring(&[("a", Active, 1)]), n == 0, NOW_MS);
        assert!(version(pairs.merge(&format!("ring-{n}"), value, NOW_MS)).is_some());
    }
    let one_more = live(ring(&[("a", Active, 1)]));
    let refused = pairs.merge("one-more", one_more.clone(), NOW_MS);
    assert_eq!(refused, Err(PairsError::TooManyRings));
    assert!(version(pairs.merge("ring-1", live(ring(&[("a", Active, 2)])), NOW_MS)).is_some());
    assert_eq!(pairs.sweep(NOW_MS + 100_000), ["ring-0"]);
    assert_eq!(version(pairs.merge("one-more", one_more.clone(), NOW_MS)), Some(1));
    for n in pairs.len()..KEYS_TOLD_MAX {
        pairs.merge(&format!("r/{n}"), live(replica("a", 1)), NOW_MS).expect("room");
    }
    let refused = pairs.merge("r", live(replica("a", 1)), NOW_MS);
    assert_eq!(refused, Err(PairsError::TooManyKeys));
    // An election of ours has room, and what others say of it then is heard.
    assert_eq!(version(pairs.swap("r", 0, replica("b", 1), NOW_MS)), Some(1));
    assert_eq!(version(pairs.merge("r", live(replica("a", 1)), NOW_MS)), Some(2));
    for n in pairs.len()..KEYS_MAX {
        pairs.swap(&format!("own/{n}"), 0, replica("a", 1), NOW_MS).expect("room");
    }
    let refused = pairs.swap("own", 0, replica("a", 1), NOW_MS);
    assert_eq!(refused, Err(PairsError::TooManyOwnKeys));
    // A ring of ours has its room all the same, whoever speaks of it first, and as a ring.
    pairs.claim_ring("ours");
    assert_eq!(pairs.merge("one-more-yet", one_more.clone(), NOW_MS), Err(PairsError::TooManyKeys));
    let refused = pairs.merge("ours", live(replica("a", 1)), NOW_MS);
    assert!(matches!(refused, Err(PairsError::Merge(MergeError::Kind { .. }))), "{refused:?}");
    assert_eq!(version(pairs.merge("ours", one_more.clone(), NOW_MS)), Some(1));
    pairs.claim_ring("ring-2");
    pairs.claim_ring("ring-2");
    assert_eq!(pairs.strange_rings, RINGS_MAX - 1, "it was one of the others");
    assert_eq!(version(pairs.swap("ring-2", 1, ring(&[("a", Active, 9)]), NOW_MS)), Some(2));
    // What somebody has put in the place of a ring of ours goes.
    let before = pairs.len();
    pairs.claim_ring("r/100");
    assert_eq!((pairs.len(), pairs.order.len()), (before - 1, before - 1));
    assert_eq!(version(pairs.merge("r/100", one_more, NOW_MS)), Some(1));
    // Room is not kept without end.
    (0..20).for_each(|n| pairs.claim_ring(&format!("more-{n}")));
    assert_eq!(pairs.own_rings.len(), OWN_RINGS_MAX);
}

#[test]
fn long_texts_of_others_do_not_fill_memory() {
    let mut pairs = Pairs::new(RETENTION);
    let key = |n: usize| format!("{n:0>16000}");
    let held = (0..).take_while(|n| pairs.merge(&key(*n), live(replica("a", 1)), NOW_MS).is_ok());
    let held = held.count();
    assert_eq!(held, TEXT_BYTES_TOLD_MAX / (2 * 16_000 + 1));
    let refused = pairs.merge("short", live(replica("a", 1)), NOW_MS);
    assert_eq!(version(refused), Some(1), "what fits is heard");
    let longer = replica(&"b".repeat(60_000), 2);
    let refused = pairs.merge(&key(0), live(longer.clone()), NOW_MS);
    assert!(matches!(refused, Err(PairsError::TooLongTexts { .. })), "{refused:?}");
    assert_eq!(version(pairs.merge(&key(0), live(replica("b", 2)), NOW_MS)), Some(2));
    // What we write ourselves has its place, and a ring of ours too.
    assert_eq!(version(pairs.swap("own", 0, longer, NOW_MS)), Some(1));
    pairs.claim_ring("ring");
    assert_eq!(version(pairs.merge("ring", live(ring(&[("a", Active, NOW_S)])), NOW_MS)), Some(1));
    // What is deleted and swept is no longer counted.
    for n in 0..held {
        pairs.delete(&key(n), NOW_MS).expect("sound");
    }
    pairs.sweep(NOW_MS + 60_001);
    let expect = text_bytes("short", &replica("a", 1))
        + text_bytes("own", &replica(&"b".repeat(60_000), 2))
        + text_bytes("ring", &ring(&[]));
    assert_eq!(pairs.text_bytes, expect);
}

#[test]
fn a_ring_in_the_place_of_an_election_gives_way_to_our_own() {
    let mut pairs = Pairs::new(RETENTION);
    pairs.merge("ha/t/c", live(ring(&[("a", Active, NOW_S)])), NOW_MS).expect("sound");
    assert!(pairs.is_of_another_kind("ha/t/c", ValueKind::Replica));
    assert_eq!(version(pairs.swap("ha/t/c", 0, replica("r", NOW_MS), NOW_MS)), Some(1));
    assert_eq!(pairs.visible("ha/t/c").form, VisibleForm::Value(replica("r", NOW_MS)));
    assert_eq!((pairs.strange_rings, pairs.order.len()), (0, 1));
    // A ring that is ours gives way to nothing.
    pairs.claim_ring("ring");
    pairs.swap("ring", 0, ring(&[("a", Active, NOW_S)]), NOW_MS).expect("sound");
    assert!(pairs.swap("ring", 0, replica("r", NOW_MS), NOW_MS).is_err());
    assert!(!pairs.is_of_another_kind("ring", ValueKind::Replica));
}

#[test]
fn a_word_from_too_far_ahead_deletes_nothing_and_hides_nothing() {
    let mut pairs = Pairs::new(RETENTION);
    let first = ring(&[("a", Active, NOW_S)]);
    pairs.merge("k", told(first.clone(), false, NOW_MS), NOW_MS).expect("sound");
    let max_ms = NOW_MS + 30 * 60 * 1000;
    for updated_at_ms in [max_ms + 1, i64::MAX] {
        let outcome = pairs.merge("k", told(first.clone(), true, updated_at_ms), NOW_MS);
        let outcome = outcome.expect("sound");
        assert_eq!((outcome.change, outcome.left_out.future), (None, 1));
    }
    // What goes with it is heard.
    let beat = ring(&[("a", Active, NOW_S + 1)]);
    assert_eq!(version(pairs.merge("k", told(beat, false, i64::MAX), NOW_MS)), Some(2));
    // One within bounds deletes, and what we write after it brings the key back.
    assert_eq!(version(pairs.merge("k", told(first, true, max_ms), NOW_MS)), Some(3));
    assert_eq!(seen(&pairs, "k"), None);
    let ours = ring(&[("a", Active, NOW_S + 2)]);
    assert_eq!(version(pairs.swap("k", 3, ours, NOW_MS)), Some(4));
    assert_eq!(seen(&pairs, "k"), Some(vec![("a".to_owned(), NOW_S + 2)]));
}

#[test]
fn rings_of_ours_come_first() {
    let mut pairs = Pairs::new(RETENTION);
    for key in ["a", "m", "z"] {
        pairs.merge(key, live(ring(&[("a", Active, NOW_S)])), NOW_MS).expect("sound");
    }
    pairs.claim_ring("m");
    pairs.claim_ring("not-there");
    let keys: Vec<_> = pairs.own_first().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["m", "a", "z"]);
}

#[derive(Clone, Debug)]
enum Step {
    Tell { key: usize, member: usize, state: usize, age_s: i64, deleted: bool, lag_ms: i64 },
    Delete { key: usize },
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let tell = (0..3_usize, 0..4_usize, 0..3_usize, 0..90_i64, any::<bool>(), 0..5_i64);
    prop_oneof![
        6 => tell.prop_map(|(key, member, state, age_s, deleted, lag_ms)| {
            Step::Tell { key, member, state, age_s, deleted, lag_ms }
        }),
        1 => (0..3_usize).prop_map(|key| Step::Delete { key }),
        1 => Just(Step::Sweep),
    ]
}

proptest! {
    #[test]
    fn the_books_agree_with_the_keys(steps in proptest::collection::vec(step(), 0..60)) {
        let mut pairs = Pairs::new(RETENTION);
        for (at, step) in steps.into_iter().enumerate() {
            let now_ms = NOW_MS + at as i64 * 10_000;
            let changes = pairs.changes();
            let outcome = match step {
                Step::Tell { key, member, state, age_s, deleted, lag_ms } => {
                    let id = format!("m{member}");
                    let state = [Active, Leaving, Left][state];
                    let value = ring(&[(&id, state, now_ms / 1000 - age_s)]);
                    let told = told(value, deleted, now_ms - lag_ms);
                    pairs.merge(&format!("k{key}"), told, now_ms).expect("sound")
                }
                Step::Delete { key } => pairs.delete(&format!("k{key}"), now_ms).expect("sound"),
                Step::Sweep => {
                    pairs.sweep(now_ms);
                    Outcome::default()
                }
            };
            prop_assert_eq!(pairs.changes() - changes, u64::from(outcome.change.is_some()));
            prop_assert_eq!(pairs.order.len(), pairs.entries.len());
            prop_assert_eq!(pairs.strange_rings, pairs.entries.len());
            let texts = pairs.entries.iter().map(|(key, entry)| text_bytes(key, &entry.value));
            prop_assert_eq!(pairs.text_bytes, texts.sum::<usize>());
            for (key, entry) in &pairs.entries {
                prop_assert_eq!(pairs.order.get(&entry.changed_at.any), Some(key));
                prop_assert!(entry.moved_version <= entry.version);
                prop_assert!(entry.changed_at.moved <= entry.changed_at.any);
                let Value::Ring(ring) = &entry.value else { panic!("only rings are told") };
                prop_assert!(ring.instances.keys().all(|id| entry.touched.contains_key(id)));
            }
        }
    }
}
