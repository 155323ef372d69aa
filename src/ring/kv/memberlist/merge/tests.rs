//! The rules of the merge with numbers, and its laws.

use super::*;
use proptest::prelude::*;

use InstanceState::{Active, Joining, Leaving, Left};

const NOW_S: i64 = 1_800_000_000;

fn entry(state: InstanceState, timestamp_s: i64, tokens: &[u32]) -> Instance {
    Instance {
        addr: "10.0.0.1:9095".to_owned(),
        timestamp_s,
        state,
        tokens: tokens.iter().copied().map(Token).collect(),
        zone: "z".to_owned(),
        registered_timestamp_s: 7,
        unknown_fields: Vec::new(),
    }
}

fn ring(entries: &[(&str, Instance)]) -> RingModel {
    let instances = entries.iter().map(|(id, entry)| ((*id).to_owned(), entry.clone()));
    RingModel { instances: instances.collect(), unknown_fields: Vec::new() }
}

fn tell(ours: &mut RingModel, theirs: &RingModel) -> Option<Merged> {
    let mut theirs = theirs.clone();
    leave_out(ours, &mut theirs, NOW_S);
    merge(ours, theirs, Origin::Peer, NOW_S).expect("a sound ring")
}

fn names(merged: &Merged) -> Vec<&str> {
    merged.change.instances.keys().map(String::as_str).collect()
}

#[test]
fn the_newer_entry_counts_and_left_counts_at_the_same_time() {
    let check = |ours: Instance, theirs: Instance, takes: bool, is_move: bool| {
        let mut held = ring(&[("a", ours.clone()), ("b", entry(Active, 9, &[9]))]);
        let merged = tell(&mut held, &ring(&[("a", theirs.clone())]));
        let expect = if takes { &theirs } else { &ours };
        assert_eq!(&held.instances["a"], expect);
        assert_eq!(merged.as_ref().map(names), takes.then(|| vec!["a"]), "others need no news");
        assert_eq!(merged.is_some_and(|merged| merged.is_move), is_move);
    };
    check(entry(Active, 5, &[1]), entry(Active, 6, &[1]), true, false);
    check(entry(Active, 5, &[1]), entry(Active, 6, &[2]), true, true);
    check(entry(Active, 5, &[1]), entry(Leaving, 6, &[1]), true, true);
    check(entry(Active, 5, &[1]), entry(Active, 5, &[2]), false, false);
    check(entry(Active, 5, &[1]), entry(Active, 4, &[2]), false, false);
    check(entry(Active, 5, &[1]), entry(Left, 5, &[]), true, true);
    check(entry(Active, 5, &[1]), entry(Left, 4, &[]), false, false);
    check(entry(Left, 5, &[]), entry(Active, 5, &[1]), false, false);
    check(entry(Left, 5, &[]), entry(Active, 6, &[1]), true, true);
    check(entry(Left, 5, &[]), entry(Left, 5, &[]), false, false);
}

#[test]
fn tokens_are_sorted_unique_and_gone_with_who_has_left() {
    let mut held = RingModel::default();
    tell(&mut held, &ring(&[("a", entry(Active, 5, &[3, 1, 3, 2])), ("b", entry(Left, 5, &[4]))]));
    assert_eq!(held.instances["a"].tokens, [1, 2, 3].map(Token));
    assert_eq!(held.instances["b"].tokens, []);
    // The same tokens in another order are a heartbeat.
    let merged = tell(&mut held, &ring(&[("a", entry(Active, 6, &[2, 1, 3]))]));
    assert!(!merged.expect("newer").is_move);
}

#[test]
fn what_a_swap_leaves_out_becomes_left_now() {
    let mut held = ring(&[
        ("a", entry(Active, 5, &[1])),
        ("b", entry(Active, NOW_S + 5, &[2])),
        ("c", entry(Left, 3, &[])),
    ]);
    let new = ring(&[("a", entry(Active, 6, &[1]))]);
    let merged = merge(&mut held, new.clone(), Origin::OwnSwap, NOW_S).expect("sound");
    let merged = merged.expect("news");
    assert_eq!(names(&merged), ["a", "b"]);
    assert!(merged.is_move);
    let left = entry(Left, NOW_S + 5, &[]);
    assert_eq!(held.instances["b"], left, "or it would not be ended where its clock is known");
    let mut others = ring(&[("b", entry(Active, NOW_S + 5, &[2]))]);
    tell(&mut others, &merged.change);
    assert_eq!(others.instances["b"], left);
    assert_eq!(held.instances["c"].timestamp_s, 3);
    assert_eq!(merge(&mut held, new, Origin::OwnSwap, NOW_S), Ok(None), "once");
}

#[test]
fn an_entry_from_the_future_is_left_out_and_the_others_count() {
    let mut held = ring(&[("a", entry(Active, 5, &[1]))]);
    let ahead =
        |s: i64| ring(&[("a", entry(Active, 6, &[2])), ("b", entry(Active, NOW_S + s, &[3]))]);
    let mut theirs = ahead(AHEAD_MAX_S + 1);
    let left_out = leave_out(&held, &mut theirs, NOW_S);
    assert_eq!((left_out.future, left_out.crowded), (1, 0));
    assert_eq!(
        left_out.why.expect("one").to_string(),
        "ingester b timestamp in the future, expected max of 1800001800, got 1800001801"
    );
    assert_eq!(theirs, ring(&[("a", entry(Active, 6, &[2]))]));
    assert_eq!(leave_out(&held, &mut ahead(AHEAD_MAX_S), NOW_S), LeftOut::default());
    assert_eq!(names(&tell(&mut held, &ahead(AHEAD_MAX_S)).expect("news")), ["a", "b"]);
}

#[test]
fn of_a_crowd_only_those_are_heard_who_are_there_or_find_room() {
    let member = |n: usize| (format!("m{n:06}"), entry(Active, 5, &[]));
    let crowd = |range: std::ops::Range<usize>| RingModel {
        instances: range.map(member).collect(),
        unknown_fields: Vec::new(),
    };
    let mut held = RingModel::default();
    tell(&mut held, &crowd(0..MEMBERS_TOLD_MAX - 1));
    let mut theirs = crowd(MEMBERS_TOLD_MAX - 1..MEMBERS_TOLD_MAX + 9);
    theirs.instances.insert("m000003".to_owned(), entry(Active, 6, &[]));
    let left_out = leave_out(&held, &mut theirs, NOW_S);
    assert_eq!((left_out.future, left_out.crowded), (0, 9));
    let why = left_out.why.expect("one").to_string();
    assert_eq!(why, "the ring has 16384 members, and m016384 would be one more");
    let merged = tell(&mut held, &theirs).expect("news");
    assert_eq!(names(&merged), ["m000003", "m016383"]);
    // We ourselves may still register.
    let mut new = held.clone();
    new.instances.insert("us".to_owned(), entry(Joining, 7, &[]));
    let merged = merge(&mut held, new, Origin::OwnSwap, NOW_S).expect("room").expect("news");
    assert_eq!(names(&merged), ["us"]);
    assert!(tell(&mut held, &ring(&[("us", entry(Active, 8, &[]))])).is_some());
}

#[test]
fn of_two_claimants_the_leaving_one_loses_else_the_higher_name() {
    let check = |entries: &[(&str, Instance)], expect: &[(&str, &[u32])]| {
        // Whoever is heard of last.
        for last in 0..entries.len() {
            let mut held = RingModel::default();
            let others = entries.iter().enumerate().filter(|(at, _)| *at != last);
            for (_, (id, entry)) in others {
                tell(&mut held, &ring(&[(id, entry.clone())]));
            }
            let (id, entry) = &entries[last];
            tell(&mut held, &ring(&[(id, entry.clone())]));
            for (id, tokens) in expect {
                let tokens: Vec<Token> = tokens.iter().copied().map(Token).collect();
                assert_eq!(held.instances[*id].tokens, tokens, "{id}, {last} last");
            }
        }
    };
    check(
        &[("a", entry(Active, 5, &[1, 2])), ("b", entry(Active, 6, &[2, 3]))],
        &[("a", &[1, 2]), ("b", &[3])],
    );
    check(
        &[("a", entry(Leaving, 5, &[1, 2])), ("b", entry(Joining, 6, &[2, 3]))],
        &[("a", &[1]), ("b", &[2, 3])],
    );
    check(
        &[("a", entry(Leaving, 5, &[1])), ("b", entry(Leaving, 6, &[1]))],
        &[("a", &[1]), ("b", &[])],
    );
    check(
        &[("a", entry(Left, 5, &[1])), ("b", entry(Active, 6, &[1]))],
        &[("a", &[]), ("b", &[1])],
    );
    check(
        &[
            ("a", entry(Leaving, 5, &[1])),
            ("b", entry(Active, 5, &[1])),
            ("c", entry(Active, 5, &[1])),
        ],
        &[("a", &[]), ("b", &[1]), ("c", &[])],
    );
}

#[test]
fn who_loses_a_token_is_no_news_of_its_own() {
    let mut held = ring(&[("b", entry(Active, 5, &[1, 2]))]);
    let merged = tell(&mut held, &ring(&[("a", entry(Joining, 6, &[2]))])).expect("news");
    assert_eq!(names(&merged), ["a"], "each finds out by itself, as with Cortex");
    assert_eq!(held.instances["b"].tokens, [Token(1)]);
    // The loser claims it again until it looks at the ring, and loses again.
    let merged = tell(&mut held, &ring(&[("b", entry(Active, 6, &[1, 2]))])).expect("news");
    assert_eq!(merged.change.instances["b"].tokens, [Token(1)]);
}

#[test]
fn tombstones_go_once_they_are_old() {
    let mut held = ring(&[
        ("a", entry(Active, 1, &[1])),
        ("b", entry(Left, 10, &[])),
        ("c", entry(Left, 20, &[])),
    ]);
    let kept = |kept, removed| Tombstones { kept, removed };
    assert_eq!(remove_tombstones(&mut held, Some(10_000)), kept(2, 0));
    assert_eq!(remove_tombstones(&mut held, Some(10_001)), kept(1, 1));
    assert_eq!(remove_tombstones(&mut held, None), kept(0, 1));
    assert_eq!(held.instances.len(), 1, "who lives is not looked at");
}

#[test]
fn fields_that_we_do_not_know_stay() {
    let mut held = RingModel::default();
    let mut theirs = ring(&[("a", entry(Active, 5, &[1]))]);
    theirs.unknown_fields = vec![1, 2];
    if let Some(entry) = theirs.instances.get_mut("a") {
        entry.unknown_fields = vec![3];
    }
    let merged = tell(&mut held, &theirs).expect("news");
    assert_eq!(merged.change, theirs);
    assert_eq!(held, theirs);
    theirs.unknown_fields = vec![9];
    tell(&mut held, &theirs);
    assert_eq!(held.unknown_fields, [1, 2], "the first that came");
}

#[test]
fn a_ring_does_not_grow_without_end() {
    let member = |n: usize| (format!("{n:09}"), entry(Active, 5, &[]));
    let mut held = RingModel::default();
    for copy in 0..2 {
        let members = (0..MEMBERS_MAX / 2).map(|n| member(copy * MEMBERS_MAX / 2 + n));
        let crowd = RingModel { instances: members.collect(), unknown_fields: Vec::new() };
        merge(&mut held, crowd, Origin::Peer, NOW_S).expect("room");
    }
    let one_more = RingModel {
        instances: [member(MEMBERS_MAX)].into_iter().collect(),
        unknown_fields: Vec::new(),
    };
    let refused = merge(&mut held, one_more, Origin::Peer, NOW_S);
    assert_eq!(refused, Err(RingMergeError::TooManyMembers { members: MEMBERS_MAX + 1 }));

    let tokens = (RING_BYTES_MAX / TOKEN_BYTES / 3) as u32;
    let crowd = |id: &str, at: u32, timestamp_s| {
        let tokens: Vec<u32> = (at * tokens..(at + 1) * tokens).collect();
        ring(&[(id, entry(Active, timestamp_s, &tokens))])
    };
    let mut held = RingModel::default();
    tell(&mut held, &crowd("a", 0, 5));
    tell(&mut held, &crowd("b", 1, 5));
    let refused = merge(&mut held, crowd("c", 2, 5), Origin::Peer, NOW_S);
    assert!(matches!(refused, Err(RingMergeError::TooLarge { .. })));
    assert!(tell(&mut held, &crowd("b", 2, 6)).is_some(), "what takes another's place has room");
}

/// A ring in which an entry is told by its member and its time, and tokens have one claimant.
fn lawful() -> impl Strategy<Value = RingModel> {
    proptest::collection::btree_map(0..6_u32, 1..6_i64, 0..6).prop_map(|times| {
        let entries = times.into_iter().map(|(member, timestamp_s)| {
            let kind = (member as i64 * 7 + timestamp_s * 3) % 5;
            let state = InstanceState::ALL[kind as usize];
            let tokens = [member * 100, member * 100 + kind as u32];
            (format!("m{member}"), entry(state, timestamp_s, &tokens))
        });
        RingModel { instances: entries.collect(), unknown_fields: Vec::new() }
    })
}

/// Any ring over few members and few tokens, so that tokens are contested.
fn contested_ring() -> impl Strategy<Value = RingModel> {
    let fields = (0..4_usize, 1..5_i64, proptest::collection::vec(0..12_u32, 0..6));
    proptest::collection::btree_map(0..5_u32, fields, 0..5).prop_map(|entries| {
        let entries = entries.into_iter().map(|(member, (state, timestamp_s, tokens))| {
            let state = [Active, Leaving, Joining, Left][state];
            (format!("m{member}"), entry(state, timestamp_s, &tokens))
        });
        RingModel { instances: entries.collect(), unknown_fields: Vec::new() }
    })
}

fn merged(mut ours: RingModel, theirs: &RingModel) -> RingModel {
    tell(&mut ours, theirs);
    ours
}

/// Cortex's way: who holds a token is settled for all tokens of the ring, whoever is new.
fn naive(mut ours: RingModel, theirs: &RingModel) -> RingModel {
    for (id, entry) in &theirs.instances {
        if is_newer(ours.instances.get(id), entry) {
            let mut entry = entry.clone();
            normalise(&mut entry);
            ours.instances.insert(id.clone(), entry);
        }
    }
    let mut holders: std::collections::BTreeMap<Token, (bool, String)> = Default::default();
    for (id, entry) in &ours.instances {
        for token in &entry.tokens {
            let claim = (entry.state == Leaving, id.clone());
            let holder = holders.entry(*token).or_insert_with(|| claim.clone());
            if claim < *holder {
                *holder = claim;
            }
        }
    }
    for (id, entry) in &mut ours.instances {
        entry.tokens.retain(|token| holders[token].1 == *id);
    }
    ours
}

proptest! {
    #[test]
    fn merging_is_idempotent_commutative_and_associative(
        a in lawful(), b in lawful(), c in lawful(),
    ) {
        let [a, b, c] = [a, b, c].map(|ring| merged(RingModel::default(), &ring));
        let ab = merged(a.clone(), &b);
        prop_assert_eq!(&merged(ab.clone(), &b), &ab);
        prop_assert_eq!(&merged(b.clone(), &a), &ab);
        prop_assert_eq!(merged(ab, &c), merged(a, &merged(b, &c)));
    }

    #[test]
    fn any_merge_is_idempotent_and_its_change_brings_another_copy_as_far(
        a in contested_ring(), b in contested_ring(),
    ) {
        let ours = merged(RingModel::default(), &a);
        let mut after = ours.clone();
        let change = tell(&mut after, &b).map(|merged| merged.change);
        prop_assert_eq!(tell(&mut after, &b), None);
        prop_assert_eq!(merged(ours, &change.unwrap_or_default()), after);
    }

    #[test]
    fn conflicts_are_found_as_by_looking_at_every_token(
        rings in proptest::collection::vec(contested_ring(), 1..5),
    ) {
        let (mut ours, mut rival) = (RingModel::default(), RingModel::default());
        for ring in &rings {
            tell(&mut ours, ring);
            rival = naive(rival, ring);
            prop_assert_eq!(&ours, &rival);
        }
    }

    #[test]
    fn who_has_left_does_not_come_back_by_what_was_told_before(
        rings in proptest::collection::vec(contested_ring(), 1..6),
    ) {
        let mut held = RingModel::default();
        for ring in &rings {
            tell(&mut held, ring);
        }
        // All that is still under way is older than the end of everybody.
        merge(&mut held, RingModel::default(), Origin::OwnSwap, 5).expect("sound");
        for ring in &rings {
            tell(&mut held, ring);
        }
        prop_assert!(held.instances.values().all(|entry| entry.state == Left));
    }
}
