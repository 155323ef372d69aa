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

#[test]
fn what_is_encoded_is_kept_until_it_changes() {
    let mut pairs = Pairs::new(RETENTION);
    let bytes = Bytes::from_static(b"x");
    pairs.merge("k", live(replica("a", 1)), NOW_MS).expect("sound");
    pairs.keep_encoded("k", 1, &bytes);
    assert_eq!(pairs.visible("k").form, VisibleForm::Encoded(bytes.clone()));
    pairs.merge("k", live(replica("a", 1)), NOW_MS).expect("sound");
    assert_eq!(pairs.visible("k").form, VisibleForm::Encoded(bytes.clone()));
    pairs.merge("k", live(replica("a", 2)), NOW_MS).expect("sound");
    assert_eq!(pairs.visible("k").form, VisibleForm::Value(replica("a", 2)));
    pairs.keep_encoded("k", 1, &bytes);
    assert_eq!(pairs.visible("k").form, VisibleForm::Value(replica("a", 2)), "an old one");
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
    assert_eq!(version(pairs.merge("one-more", one_more, NOW_MS)), Some(1));
    for n in pairs.len()..KEYS_MAX {
        pairs.merge(&format!("r/{n}"), live(replica("a", 1)), NOW_MS).expect("room");
    }
    let refused = pairs.merge("r", live(replica("a", 1)), NOW_MS);
    assert_eq!(refused, Err(PairsError::TooManyKeys));
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
            prop_assert_eq!(pairs.rings, pairs.entries.len());
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
