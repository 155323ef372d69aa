//! What holds for any messages in any order.

use proptest::prelude::*;

use super::*;

/// Something said of peer 1, whom we know alive at 1.
fn said(
    kinds: &'static [u8],
    incarnations: std::ops::Range<u32>,
) -> impl Strategy<Value = Message> {
    (prop::sample::select(kinds), incarnations, 2..5u16).prop_map(|(kind, incarnation, voice)| {
        let voice = format!("p{voice}");
        match kind {
            0 => Message::Alive(alive(1, incarnation)),
            1 => suspect("p1", incarnation, &voice),
            2 => dead("p1", incarnation, &voice),
            _ => dead("p1", incarnation, "p1"),
        }
    })
}

/// Anything, of anybody, of us as well.
fn anything() -> impl Strategy<Value = Message> {
    let incarnation = prop_oneof![0..6u32, Just(u32::MAX - 1)];
    let name = prop::sample::select(vec!["us", "p1", "p2", "p3", "p4", ""]);
    let from = prop::sample::select(vec!["us", "p1", "p2", "stranger"]);
    (0..6u8, incarnation, name, from, 0..6u16).prop_map(
        |(kind, incarnation, name, from, number)| {
            let (name, from): (String, String) = (name.into(), from.into());
            match kind {
                0 | 1 => Message::Alive(Alive { name, ..alive(number, incarnation) }),
                2 => suspect(&name, incarnation, &from),
                3 => dead(&name, incarnation, &from),
                4 => Message::Ping(Ping { sequence: incarnation, target: name, source: None }),
                _ => Message::Ack(crate::gossip::message::Ack {
                    sequence: incarnation,
                    payload: Bytes::new(),
                }),
            }
        },
    )
}

fn told(messages: &[Message]) -> (PeerState, u32) {
    let mut member = member(settings(), 5);
    messages.iter().for_each(|message| hear(&mut member, message.clone(), 1));
    state(&member, "p1")
}

fn shuffled(messages: Vec<Message>) -> impl Strategy<Value = (Vec<Message>, Vec<Message>)> {
    (Just(messages.clone()), Just(messages).prop_shuffle())
}

proptest! {
    #[test]
    fn saying_it_twice_says_nothing_new(
        messages in prop::collection::vec(said(&[0, 1, 2, 3], 0..5), 1..8)
    ) {
        let mut member = member(settings(), 5);
        for message in messages {
            hear(&mut member, message.clone(), 1);
            let known = state(&member, "p1");
            member.take_outputs();
            member.rumours = Broadcasts::new(1_000_000);
            hear(&mut member, message, 1);
            prop_assert_eq!(state(&member, "p1"), known);
            prop_assert_eq!(member.take_outputs(), vec![]);
            prop_assert!(member.rumours.is_empty());
        }
    }

    /// Of one life the worst news win, whatever came first; between a death by others' word and
    /// one by its own, the first.
    #[test]
    fn within_an_incarnation_the_order_does_not_matter(
        (one, other) in prop::collection::vec(said(&[0, 1, 2], 1..2), 1..8).prop_flat_map(shuffled)
    ) {
        prop_assert_eq!(told(&one), told(&other));
    }

    #[test]
    fn of_lives_alone_the_latest_wins_in_any_order(
        (one, other) in prop::collection::vec(said(&[0], 0..9), 1..8).prop_flat_map(shuffled)
    ) {
        prop_assert_eq!(told(&one), told(&other));
    }

    /// Beyond that memberlist depends on the order until the peer itself speaks up: its
    /// refutation is above all that was said, and then all agree.
    #[test]
    fn a_refutation_above_all_wins_in_any_order(
        (mut one, mut other) in
            prop::collection::vec(said(&[0, 1, 2, 3], 0..5), 0..8).prop_flat_map(shuffled),
        at in any::<prop::sample::Index>(),
    ) {
        one.push(Message::Alive(alive(1, 5)));
        let place = at.index(other.len() + 1);
        other.insert(place, Message::Alive(alive(1, 5)));
        prop_assert_eq!(told(&one), (PeerState::Alive, 5));
        prop_assert_eq!(told(&other), (PeerState::Alive, 5));
    }

    #[test]
    fn nobody_makes_us_say_that_we_are_gone(
        messages in prop::collection::vec(anything(), 0..40),
        steps in prop::collection::vec(0..4_000u64, 40),
    ) {
        let mut member = Membership::new(settings(), 3, 0);
        let mut now_ms = 0;
        let mut incarnation = 1;
        for (message, step_ms) in messages.into_iter().zip(steps) {
            now_ms += step_ms;
            hear(&mut member, message, now_ms);
            if member.next_deadline_ms().is_some_and(|at_ms| at_ms <= now_ms) {
                member.tick(now_ms);
            }
            member.take_outputs();
            let us = member.peers().us();
            prop_assert_eq!(us.state, PeerState::Alive);
            prop_assert_eq!(us.addr, addr(0));
            prop_assert!(us.incarnation >= incarnation);
            incarnation = us.incarnation;
            prop_assert!(member.suspicions.count() < member.peers.count());
            prop_assert!(member.rumours.len() <= member.peers.count());
        }
    }

    #[test]
    fn before_the_deadline_there_is_nothing_to_do(
        messages in prop::collection::vec((anything(), 0..9_000u64), 0..20),
    ) {
        let mut member = Membership::new(settings(), 3, 0);
        let mut now_ms = 0;
        for (message, step_ms) in messages {
            now_ms += step_ms;
            hear(&mut member, message, now_ms);
            member.take_outputs();
            let deadline_ms = member.next_deadline_ms().unwrap();
            if deadline_ms > now_ms {
                member.tick(deadline_ms - 1);
                prop_assert_eq!(member.take_outputs(), vec![]);
                prop_assert_eq!(member.next_deadline_ms(), Some(deadline_ms));
            }
            member.tick(deadline_ms.max(now_ms));
            now_ms = now_ms.max(deadline_ms);
        }
    }
}
