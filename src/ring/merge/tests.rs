//! Merging against Cortex's rules, order by order.

use super::*;
use crate::ring::lifecycler::testing::{START_S, instance, ring_of};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use InstanceState::{Active, Joining, Leaving, Left, Pending, ReadOnly};

const NOW_S: i64 = START_S + 500;

fn rng() -> SmallRng {
    SmallRng::seed_from_u64(7)
}

fn tokens(values: &[u32]) -> Vec<Token> {
    values.iter().copied().map(Token).collect()
}

fn member(state: InstanceState, values: &[u32]) -> Member {
    Member {
        id: "me".to_owned(),
        addr: "new:1".to_owned(),
        zone: "z".to_owned(),
        num_tokens: 3,
        state,
        tokens: tokens(values),
        registered_timestamp_s: START_S - 7,
        resume_state: Active,
    }
}

/// Two others, and ourselves in `state` with `values` if given.
fn ring_with(entry: Option<(InstanceState, &[u32])>) -> RingModel {
    let mut ring = ring_of(&["other-0", "other-1"]);
    ring.unknown_fields = vec![9];
    if let Some((state, values)) = entry {
        let entry = Instance { unknown_fields: vec![1, 2], ..instance(state, values) };
        ring.instances.insert("me".to_owned(), entry);
    }
    ring
}

#[test]
fn an_entry_of_an_earlier_life_is_taken_up() {
    let check = |state: InstanceState, values: &[u32], becomes: InstanceState| {
        let mut ring = ring_with(Some((state, values)));
        let shown = apply(&Change::Register, &member(Pending, &[]), &mut ring, NOW_S, &mut rng());
        assert_eq!(
            (shown.state, &shown.tokens),
            (becomes, &tokens(values)),
            "{state:?} {values:?}"
        );
        assert_eq!(shown.registered_timestamp_s, START_S - 1000, "registered once");
        let entry = &ring.instances["me"];
        assert_eq!((entry.state, entry.tokens.as_slice()), (becomes, shown.tokens.as_slice()));
        assert_eq!((entry.addr.as_str(), entry.zone.as_str()), ("new:1", "z"));
        assert_eq!((entry.timestamp_s, entry.unknown_fields.as_slice()), (NOW_S, &[1_u8, 2][..]));
    };
    check(Active, &[10, 20, 30], Active);
    check(Active, &[10], Active);
    check(ReadOnly, &[10, 20, 30], ReadOnly);
    check(Leaving, &[10, 20, 30], Active);
    check(Joining, &[10, 20, 30], Pending);
    check(Pending, &[10, 20, 30], Pending);
    check(Pending, &[], Pending);
    // No state but the first has a meaning without tokens.
    check(Active, &[], Pending);
    check(Leaving, &[], Pending);
}

#[test]
fn leaving_resumes_the_mode_of_the_last_life() {
    let mut ring = ring_with(Some((Leaving, &[10, 20, 30])));
    let me = Member { resume_state: ReadOnly, ..member(Pending, &[]) };
    let shown = apply(&Change::Register, &me, &mut ring, NOW_S, &mut rng());
    assert_eq!(shown.state, ReadOnly);
}

#[test]
fn a_new_entry_is_pending_and_registered_now() {
    let check = |entry: Option<(InstanceState, &[u32])>, saved: &[u32], state: InstanceState| {
        let mut ring = ring_with(entry);
        let me = member(Pending, saved);
        let shown = apply(&Change::Register, &me, &mut ring, NOW_S, &mut rng());
        assert_eq!((shown.state, shown.registered_timestamp_s), (state, NOW_S));
        let entry = &ring.instances["me"];
        assert_eq!((entry.state, entry.registered_timestamp_s), (state, NOW_S));
        let shows_tokens = if state == Pending { 0 } else { saved.len() };
        assert_eq!(entry.tokens.len(), shows_tokens);
    };
    check(None, &[], Pending);
    check(Some((Left, &[])), &[], Pending);
    // Saved tokens save the joining if they are complete and still free.
    check(None, &[10, 20, 30], Active);
    check(None, &[10, 20], Pending);
    check(None, &[0, 20, 30], Pending);
}

#[test]
fn joining_keeps_tokens_and_fills_up() {
    let check = |entry: Option<(InstanceState, &[u32])>, own: &[u32], kept: &[u32]| {
        let mut ring = ring_with(entry);
        let change = Change::Join { target: Joining };
        let shown = apply(&change, &member(Pending, own), &mut ring, NOW_S, &mut rng());
        assert_eq!((shown.state, shown.tokens.len()), (Joining, 3));
        assert!(shown.tokens.is_sorted());
        assert!(tokens(kept).iter().all(|token| shown.tokens.contains(token)), "{kept:?}");
        assert_eq!(ring.instances["me"].tokens, shown.tokens);
    };
    check(Some((Pending, &[])), &[], &[]);
    check(Some((Pending, &[10, 20])), &[], &[10, 20]);
    check(Some((Pending, &[10, 20, 30])), &[], &[10, 20, 30]);
    // Saved ones, unless the ring shows some.
    check(Some((Pending, &[])), &[50], &[50]);
    check(Some((Pending, &[10])), &[50], &[10]);
    check(None, &[50], &[50]);
    check(Some((Pending, &[])), &[0, 50], &[50]);
    // 0 belongs to an ACTIVE member.
    check(Some((Pending, &[0, 20])), &[], &[20]);
}

#[test]
fn a_saved_token_is_not_taken_back_from_whoever_holds_it() {
    for state in [Active, ReadOnly, Joining, Pending, Leaving] {
        let mut ring = ring_with(Some((Pending, &[])));
        ring.instances.insert("z".to_owned(), instance(state, &[50]));
        let change = Change::Join { target: Active };
        let shown = apply(&change, &member(Pending, &[50]), &mut ring, NOW_S, &mut rng());
        assert!(!shown.tokens.contains(&Token(50)), "{state:?}");
    }
}

#[test]
fn an_entry_with_more_tokens_than_asked_for_keeps_them() {
    let mut ring = ring_with(Some((Pending, &[10, 20, 30, 40])));
    let change = Change::Join { target: Active };
    let shown = apply(&change, &member(Pending, &[]), &mut ring, NOW_S, &mut rng());
    assert_eq!(shown.tokens, tokens(&[10, 20, 30, 40]));
}

#[test]
fn a_token_conflict_moves_exactly_one_of_the_two() {
    let check = |rival: &str, state: InstanceState, keeps: bool| {
        let mut ring = ring_with(Some((Joining, &[10, 20, 30])));
        ring.instances.insert(rival.to_owned(), instance(state, &[20]));
        let change = Change::Verify { target: Active };
        let me = member(Joining, &[10, 20, 30]);
        let shown = apply(&change, &me, &mut ring, NOW_S, &mut rng());
        assert_eq!(shown.tokens.contains(&Token(20)), keeps, "{rival} {state:?}");
        // Whoever took new tokens observes again.
        assert_eq!(shown.state, if keeps { Active } else { Joining });
        assert_eq!(shown.tokens.len(), 3);
        assert!(shown.tokens.contains(&Token(10)) && shown.tokens.contains(&Token(30)));
    };
    check("a", Joining, false);
    check("z", Joining, true);
    check("a", Active, false);
    check("z", Active, false);
    check("z", ReadOnly, false);
    check("a", Leaving, true);
    check("a", Left, true);
}

#[test]
fn tokens_that_the_ring_took_away_are_replaced_and_observed_again() {
    let mut ring = ring_with(Some((Joining, &[10, 30])));
    let me = member(Joining, &[10, 20, 30]);
    let verify = Change::Verify { target: Active };
    let shown = apply(&verify, &me, &mut ring, NOW_S, &mut rng());
    assert_eq!((shown.state, shown.tokens.len()), (Joining, 3));
    assert!(!shown.tokens.contains(&Token(20)));
    let again = apply(&verify, &shown, &mut ring, NOW_S, &mut rng());
    assert_eq!((again.state, &again.tokens), (Active, &shown.tokens));
}

#[test]
fn a_heartbeat_writes_what_we_say_and_keeps_the_rings_tokens() {
    let mut ring = ring_with(Some((Active, &[10, 20, 30])));
    let me = Member { registered_timestamp_s: NOW_S, ..member(ReadOnly, &[10, 20, 40]) };
    let shown = apply(&Change::Refresh, &me, &mut ring, NOW_S, &mut rng());
    assert_eq!(shown.tokens, tokens(&[10, 20, 30]));
    let entry = &ring.instances["me"];
    assert_eq!((entry.state, entry.timestamp_s), (ReadOnly, NOW_S));
    assert_eq!(entry.registered_timestamp_s, NOW_S);
}

#[test]
fn a_heartbeat_heals_a_ring_that_lost_us() {
    let check = |entry: Option<(InstanceState, &[u32])>| {
        let mut ring = ring_with(entry);
        let me = member(Active, &[10, 20]);
        let shown = apply(&Change::Refresh, &me, &mut ring, NOW_S, &mut rng());
        assert_eq!(shown, me, "the same tokens, no more");
        let entry = &ring.instances["me"];
        assert_eq!(entry.tokens, me.tokens);
        assert_eq!(entry.registered_timestamp_s, START_S - 7);
    };
    check(None);
    check(Some((Left, &[])));
    check(Some((Active, &[])));
}

#[test]
fn tokens_given_away_while_we_were_lost_are_replaced() {
    let mut ring = ring_with(None);
    let me = member(Active, &[0, 10, 20]);
    let shown = apply(&Change::Refresh, &me, &mut ring, NOW_S, &mut rng());
    assert_eq!(shown.tokens.len(), 3);
    assert!(!shown.tokens.contains(&Token(0)) && shown.tokens.contains(&Token(10)));
}

#[test]
fn case_a7_a_pending_member_shows_no_tokens() {
    let mut ring = ring_with(None);
    let mut me = apply(&Change::Register, &member(Pending, &[5]), &mut ring, NOW_S, &mut rng());
    for _ in 0..3 {
        me = apply(&Change::Refresh, &me, &mut ring, NOW_S, &mut rng());
        let entry = &ring.instances["me"];
        assert_eq!((entry.state, entry.tokens.len()), (Pending, 0));
    }
    assert_eq!(me.tokens, tokens(&[5]), "kept for joining");
    ring.instances.clear();
    apply(&Change::Refresh, &me, &mut ring, NOW_S, &mut rng());
    assert_eq!(ring.instances["me"].tokens, []);
}

#[test]
fn only_the_named_entry_is_taken_out() {
    let check = |change: Change, gone: &str| {
        let mut ring = ring_with(Some((Active, &[10])));
        let mut expected = ring.clone();
        apply(&change, &member(Active, &[10]), &mut ring, NOW_S, &mut rng());
        assert!(expected.instances.remove(gone).is_some());
        assert_eq!(ring, expected);
    };
    check(Change::Unregister, "me");
    check(Change::Forget { id: "other-1".to_owned() }, "other-1");
}

/// Yields one number for ever.
struct Stuck(u32);

impl rand::TryRng for Stuck {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(self.0)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(u64::from(self.0))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.fill(self.0 as u8);
        Ok(())
    }
}

#[test]
fn tokens_are_found_whatever_the_generator_yields() {
    let mut ring = ring_with(Some((Pending, &[])));
    let change = Change::Join { target: Active };
    let me = member(Pending, &[]);
    let shown = apply(&change, &me, &mut ring, NOW_S, &mut Stuck(u32::MAX));
    // 0 and 1 are taken by the others, and the ring is round.
    assert_eq!(shown.tokens, tokens(&[2, 3, u32::MAX]));
}

fn states() -> impl Strategy<Value = InstanceState> {
    prop::sample::select(vec![Active, Leaving, Pending, Joining, Left, ReadOnly])
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Register),
        prop::sample::select(vec![Joining, Active, ReadOnly])
            .prop_map(|target| Change::Join { target }),
        prop::sample::select(vec![Active, ReadOnly]).prop_map(|target| Change::Verify { target }),
        Just(Change::Refresh),
        Just(Change::Unregister),
        Just(Change::Forget { id: "a".to_owned() }),
    ]
}

fn rings() -> impl Strategy<Value = RingModel> {
    let entry = (states(), prop::collection::vec(0..40_u32, 0..6));
    let ids = prop::sample::select(vec!["a", "b", "me", "z"]);
    prop::collection::btree_map(ids, entry, 0..5).prop_map(|entries| {
        let instances = entries
            .into_iter()
            .map(|(id, (state, values))| (id.to_owned(), instance(state, &values)))
            .collect();
        RingModel { instances, unknown_fields: vec![3] }
    })
}

proptest! {
    #[test]
    fn others_stay_and_a_second_application_changes_nothing(
        before in rings(),
        change in changes(),
        state in prop::sample::select(vec![Active, Leaving, Pending, Joining, ReadOnly]),
        own in prop::collection::btree_set(0..40_u32, 0..6),
        seed: u64,
    ) {
        let own: Vec<u32> = own.into_iter().collect();
        let me = member(state, &own);
        let mut ring = before.clone();
        let first = apply(&change, &me, &mut ring, NOW_S, &mut SmallRng::seed_from_u64(seed));
        let touched = match &change {
            Change::Forget { id } => id.clone(),
            _ => "me".to_owned(),
        };
        for (id, entry) in before.instances.iter().filter(|(id, _)| **id != touched) {
            prop_assert_eq!(ring.instances.get(id), Some(entry));
        }
        prop_assert!(ring.instances.len() <= before.instances.len() + 1);
        prop_assert_eq!(&ring.unknown_fields, &before.unknown_fields);

        // A swap whose answer was lost: the same member applies the same change once more.
        let once = ring.clone();
        let mut rng = SmallRng::seed_from_u64(!seed);
        let second = apply(&change, &me, &mut ring, NOW_S, &mut rng);
        if matches!(change, Change::Verify { .. }) {
            // New tokens have to be observed again by one who knows of them.
            prop_assert_eq!(ring.instances.get("me").map(|e| &e.tokens),
                once.instances.get("me").map(|e| &e.tokens));
        } else {
            prop_assert_eq!(&ring, &once);
            prop_assert_eq!(second.state, first.state);
        }
    }

    #[test]
    fn new_tokens_are_held_by_nobody_else(before in rings(), seed: u64) {
        let mut ring = before.clone();
        let change = Change::Join { target: Active };
        let me = member(Pending, &[]);
        let shown = apply(&change, &me, &mut ring, NOW_S, &mut SmallRng::seed_from_u64(seed % 50));
        prop_assert!(shown.tokens.len() >= 3);
        prop_assert!(shown.tokens.windows(2).all(|pair| pair[0] < pair[1]));
        let had = before.instances.get("me").map(|e| e.tokens.clone()).unwrap_or_default();
        for token in shown.tokens.iter().filter(|token| !had.contains(token)) {
            let holders = ring.instances.values().filter(|e| e.state != Left);
            prop_assert_eq!(holders.filter(|e| e.tokens.contains(token)).count(), 1);
        }
    }
}
