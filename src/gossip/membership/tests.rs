//! The rules of a member, one by one; `properties` holds what holds for all messages.

mod exchange;
mod probing;
mod properties;
mod spreading;

use super::*;
use crate::gossip::message::{self, Alive, Dead, Suspect, Versions};
use crate::gossip::wire;

/// Address of the peer of that number.
fn addr(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7000 + number))
}

fn settings() -> Settings {
    Settings::new("us", addr(0))
}

fn alive(number: u16, incarnation: u32) -> Alive {
    Alive {
        incarnation,
        name: format!("p{number}"),
        addr: addr(number),
        meta: Bytes::new(),
        versions: Versions(Some(VERSIONS)),
    }
}

fn suspect(name: &str, incarnation: u32, from: &str) -> Message {
    Message::Suspect(Suspect { incarnation, name: name.into(), from: from.into() })
}

fn dead(name: &str, incarnation: u32, from: &str) -> Message {
    Message::Dead(Dead { incarnation, name: name.into(), from: from.into() })
}

/// A member among `others`, all of them alive since 0, with nothing left to tell.
fn member(settings: Settings, others: u16) -> Membership {
    let mut member = Membership::new(settings, 1, 0);
    for number in 1..=others {
        hear(&mut member, Message::Alive(alive(number, 1)), 0);
    }
    member.rumours = Broadcasts::new(1_000_000);
    member.take_outputs();
    member
}

fn hear(member: &mut Membership, message: Message, now_ms: u64) {
    member.receive(addr(1), vec![message], now_ms);
}

fn state(member: &Membership, name: &str) -> (PeerState, u32) {
    let peer = member.peers.get(name).unwrap();
    (peer.state, peer.incarnation)
}

fn read(parts: &[Bytes]) -> Vec<Message> {
    let label = wire::Label::new("").unwrap();
    let rule = wire::LabelRule { label: label.clone(), is_verified: true };
    let packets = wire::packet(parts, &label, false, false);
    packets.iter().flat_map(|packet| wire::open_packet(packet, &rule).unwrap().messages).collect()
}

/// What goes out in packets, and where to.
fn sent(outputs: &[Output]) -> Vec<(SocketAddr, Message)> {
    let mut sent = Vec::new();
    for output in outputs {
        if let Output::Send { to, parts, .. } = output {
            sent.extend(read(parts).into_iter().map(|message| (*to, message)));
        }
    }
    sent
}

fn queued(member: &mut Membership) -> Vec<Message> {
    let mut parts = Vec::new();
    member.rumours.clone().fill(1_000_000, 100, &mut parts);
    read(&parts)
}

fn warnings(outputs: &[Output]) -> Vec<String> {
    let texts = outputs.iter().filter_map(|output| match output {
        Output::Warning(warning) => Some(warning.to_string()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn who_is_new_is_announced_and_passed_on_once() {
    let mut member = member(settings(), 0);
    let news = Message::Alive(alive(1, 3));
    hear(&mut member, news.clone(), 7);
    let outputs = member.take_outputs();
    assert!(matches!(&outputs[..], [Output::Joined(peer)] if *peer.name == *"p1"));
    assert_eq!(queued(&mut member), std::slice::from_ref(&news));
    assert_eq!(state(&member, "p1"), (PeerState::Alive, 3));

    member.rumours = Broadcasts::new(1_000_000);
    hear(&mut member, news, 8);
    hear(&mut member, Message::Alive(alive(1, 2)), 8);
    assert_eq!((member.take_outputs(), queued(&mut member)), (vec![], vec![]));
    // A newer life with other things to say of itself is an update.
    hear(&mut member, Message::Alive(Alive { meta: "x".into(), ..alive(1, 4) }), 9);
    assert!(matches!(&member.take_outputs()[..], [Output::Updated(peer)] if peer.meta == "x"));
}

#[test]
fn at_one_incarnation_the_worse_news_win_and_a_higher_one_beats_them() {
    let mut member = member(settings(), 3);
    hear(&mut member, suspect("p1", 0, "p2"), 1);
    assert_eq!(state(&member, "p1"), (PeerState::Alive, 1), "older than what we know");
    hear(&mut member, suspect("p1", 1, "p2"), 1);
    assert_eq!(state(&member, "p1"), (PeerState::Suspect, 1));
    hear(&mut member, Message::Alive(alive(1, 1)), 2);
    assert_eq!(state(&member, "p1"), (PeerState::Suspect, 1));
    hear(&mut member, Message::Alive(alive(1, 2)), 2);
    assert_eq!((state(&member, "p1"), member.suspicions.count()), ((PeerState::Alive, 2), 0));
    hear(&mut member, dead("p1", 1, "p2"), 3);
    assert_eq!(state(&member, "p1"), (PeerState::Alive, 2));
    hear(&mut member, dead("p1", 2, "p2"), 3);
    hear(&mut member, suspect("p1", 2, "p2"), 3);
    hear(&mut member, dead("p1", 5, "p1"), 3);
    assert_eq!(state(&member, "p1"), (PeerState::Dead, 2), "who is dead stays as it is");
    hear(&mut member, Message::Alive(alive(1, 3)), 4);
    assert_eq!(state(&member, "p1"), (PeerState::Alive, 3));
    hear(&mut member, dead("p1", 3, "p1"), 5);
    assert_eq!(state(&member, "p1"), (PeerState::Left, 3), "its own word");
    assert_eq!(member.peers.live(), 3);

    hear(&mut member, suspect("nobody", 9, "p2"), 6);
    hear(&mut member, dead("nobody", 9, "p2"), 6);
    assert!(member.peers.get("nobody").is_none());
}

#[test]
fn we_refute_what_is_said_of_us_and_do_worse_for_it() {
    let mut member = member(settings(), 2);
    hear(&mut member, suspect("us", 7, "p1"), 1);
    assert_eq!((state(&member, "us"), member.health_score()), ((PeerState::Alive, 8), 1));
    assert_eq!(warnings(&member.take_outputs()), ["refuting that we are suspect, said by p1"]);
    hear(&mut member, dead("us", 8, "p1"), 1);
    assert_eq!((state(&member, "us"), member.health_score()), ((PeerState::Alive, 9), 2));
    let queued = queued(&mut member);
    assert!(matches!(&queued[..], [Message::Alive(us)] if us.incarnation == 9 && us.name == "us"));
    // Old accusations need no answer.
    hear(&mut member, suspect("us", 8, "p1"), 1);
    assert_eq!(state(&member, "us"), (PeerState::Alive, 9));
}

/// At the last incarnation of all nobody could ever refute it.
#[test]
fn nobody_is_lifted_to_where_it_cannot_speak_for_itself() {
    let last = u32::MAX;
    let far = 1 + (1 << 16) + 1;
    let check = |name: &str, message: Message| {
        let mut member = member(settings(), 3);
        hear(&mut member, message, 1);
        assert_eq!(state(&member, name), (PeerState::Alive, 1));
        assert_eq!(member.counts().leaps, 1);
        assert_eq!((member.health_score(), queued(&mut member)), (0, vec![]));
        // What it says next is still heard, or said.
        hear(&mut member, suspect(name, 1, "p2"), 1);
        let expected = if name == "us" { (PeerState::Alive, 2) } else { (PeerState::Suspect, 1) };
        assert_eq!(state(&member, name), expected);
    };
    let us = || Alive { name: "us".into(), ..alive(0, 1) };
    for incarnation in [last, last - 1, far] {
        for name in ["us", "p1"] {
            check(name, suspect(name, incarnation, "p3"));
            check(name, dead(name, incarnation, "p3"));
        }
        check("p1", dead("p1", incarnation, "p1"));
        check("p1", Message::Alive(alive(1, incarnation)));
        check("us", Message::Alive(Alive { incarnation, ..us() }));
    }
    // In a full exchange as well.
    let mut member = member(settings(), 1);
    let report = |state| message::PeerReport {
        name: "p1".into(),
        addr: addr(1),
        meta: Bytes::new(),
        incarnation: last,
        state,
        versions: Versions(Some(VERSIONS)),
    };
    for state in [PeerState::Alive, PeerState::Suspect, PeerState::Dead, PeerState::Left] {
        member.merge(vec![report(state)], 1).expect("all speak the same");
    }
    assert_eq!((state(&member, "p1"), member.counts().leaps), ((PeerState::Alive, 1), 4));
    // An earlier life of many refutations is no leap, nor is a member first heard of late in one.
    hear(&mut member, suspect("us", far - 1, "p1"), 2);
    assert_eq!(state(&member, "us"), (PeerState::Alive, far));
    hear(&mut member, Message::Alive(alive(9, 1 << 20)), 2);
    assert_eq!(state(&member, "p9"), (PeerState::Alive, 1 << 20));
    hear(&mut member, Message::Alive(alive(8, last)), 2);
    assert!(member.peers.get("p8").is_none());
}

#[test]
fn an_earlier_life_of_ours_is_refuted_only_where_it_differs() {
    let mut member = member(settings(), 1);
    let ours = Alive { name: "us".into(), addr: addr(0), ..alive(0, 1) };
    hear(&mut member, Message::Alive(ours.clone()), 1);
    assert_eq!(state(&member, "us").1, 1);
    hear(&mut member, Message::Alive(Alive { meta: "old".into(), ..ours.clone() }), 1);
    assert_eq!(state(&member, "us").1, 2);
    hear(&mut member, Message::Alive(Alive { incarnation: 40, ..ours }), 1);
    assert_eq!(state(&member, "us").1, 41);
}

#[test]
fn a_name_in_use_is_not_given_away_and_one_that_left_is() {
    let moved = Alive { addr: addr(99), ..alive(1, 9) };
    let mut member = member(settings(), 2);
    hear(&mut member, Message::Alive(moved.clone()), 1);
    assert_eq!(
        warnings(&member.take_outputs()),
        ["conflicting address for p1: mine 10.0.0.1:7001, theirs 10.0.0.1:7099"]
    );
    assert_eq!(state(&member, "p1"), (PeerState::Alive, 1));
    hear(&mut member, dead("p1", 1, "p1"), 2);
    // Even with an older incarnation: the new life counts from the start.
    hear(&mut member, Message::Alive(Alive { incarnation: 1, ..moved }), 2);
    assert_eq!(member.peers.get("p1").unwrap().addr, addr(99));
    assert_eq!(state(&member, "p1"), (PeerState::Alive, 1));
    // Our own name at another address is a conflict as well, and nothing to refute.
    let impostor = Alive { name: "us".into(), ..alive(7, 9) };
    hear(&mut member, Message::Alive(impostor), 3);
    assert_eq!(state(&member, "us"), (PeerState::Alive, 1));
}

#[test]
fn the_name_of_a_dead_one_is_free_after_the_reclaim_time_if_there_is_one() {
    let check = |dead_reclaim_ms, at_ms, expected: bool| {
        let mut member = member(Settings { dead_reclaim_ms, ..settings() }, 2);
        hear(&mut member, dead("p1", 1, "p2"), 1_000);
        hear(&mut member, Message::Alive(Alive { addr: addr(99), ..alive(1, 1) }), at_ms);
        let is_reclaimed = member.peers.get("p1").unwrap().addr == addr(99);
        assert_eq!(is_reclaimed, expected, "{dead_reclaim_ms} {at_ms}");
    };
    check(0, 900_000, false);
    check(30_000, 31_000, false);
    check(30_000, 31_001, true);
}

#[test]
fn who_speaks_another_protocol_or_has_no_name_is_not_taken_in() {
    let check = |versions| {
        let mut member = member(settings(), 0);
        hear(&mut member, Message::Alive(Alive { versions, ..alive(1, 1) }), 0);
        assert_eq!(member.peers.count(), 1);
        assert_eq!(warnings(&member.take_outputs()).len(), 1);
    };
    check(Versions(None));
    check(Versions(Some([0, 5, 2, 0, 0, 0])));
    check(Versions(Some([5, 1, 2, 0, 0, 0])));
    check(Versions(Some([3, 5, 3, 0, 0, 0])));
    check(Versions(Some([1, 1, 1, 0, 0, 0])));
    check(Versions(Some([1, 9, 6, 0, 0, 0])));

    let mut member = member(settings(), 0);
    let long = "x".repeat(600);
    for name in ["", &long] {
        hear(&mut member, Message::Alive(Alive { name: name.into(), ..alive(1, 1) }), 0);
    }
    hear(&mut member, Message::Alive(Alive { meta: vec![0; 513].into(), ..alive(1, 1) }), 0);
    assert_eq!((member.peers.count(), member.counts().peers_refused), (1, 3));
    hear(&mut member, Message::Alive(alive(1, 0)), 0);
    assert_eq!(member.peers.count(), 1, "no life begins with 0");

    // Nor are accusers kept whose names have no end.
    hear(&mut member, suspect("us", 9, &long), 0);
    hear(&mut member, dead("us", 9, &long), 0);
    assert_eq!(state(&member, "us"), (PeerState::Alive, 1));
}

#[test]
fn a_suspect_that_runs_out_of_time_is_dead_and_sooner_if_others_confirm() {
    let check = |voices: &[&str], expected_ms| {
        let mut member = member(settings(), 9);
        hear(&mut member, suspect("p1", 1, "p2"), 1_000);
        for voice in voices {
            hear(&mut member, suspect("p1", 1, voice), 1_000);
        }
        member.end_suspicions(expected_ms - 1);
        assert_eq!(state(&member, "p1").0, PeerState::Suspect, "{voices:?}");
        member.end_suspicions(expected_ms);
        assert_eq!(state(&member, "p1").0, PeerState::Dead, "{voices:?}");
        let outputs = member.take_outputs();
        assert!(matches!(outputs.last(), Some(Output::Gone(peer)) if *peer.name == *"p1"));
    };
    // Ten members: 20 s at least, six times that at most, two confirmations wanted.
    check(&[], 121_000);
    check(&["p2"], 121_000);
    check(&["p3"], 57_907);
    check(&["p3", "p4"], 21_000);
    check(&["p3", "p4", "p5"], 21_000);
}

#[test]
fn confirmations_are_passed_on_while_they_shorten_the_time() {
    let mut member = member(settings(), 9);
    for (voice, expected) in [("p2", 1), ("p2", 0), ("p3", 1), ("p4", 1), ("p5", 0)] {
        member.rumours = Broadcasts::new(1_000_000);
        hear(&mut member, suspect("p1", 1, voice), 0);
        assert_eq!(queued(&mut member).len(), expected, "{voice}");
    }
}

#[test]
fn in_a_small_cluster_nobody_is_there_to_confirm() {
    let mut member = member(settings(), 2);
    hear(&mut member, suspect("p1", 1, "p2"), 0);
    assert_eq!(member.suspicions.next_ms(), Some(20_000));
}

#[test]
fn who_leaves_says_so_and_is_not_called_back() {
    let mut member = member(Settings { probe_interval_ms: 0, ..settings() }, 3);
    member.leave(10);
    member.leave(10);
    assert_eq!(state(&member, "us"), (PeerState::Left, 1));
    assert_eq!(queued(&mut member), [dead("us", 1, "us")]);
    hear(
        &mut member,
        Message::Alive(Alive { name: "us".into(), addr: addr(0), ..alive(0, 5) }),
        10,
    );
    hear(&mut member, suspect("us", 5, "p1"), 10);
    hear(&mut member, dead("us", 5, "p1"), 10);
    assert_eq!(state(&member, "us"), (PeerState::Left, 1));
    // Four transmits among four: three in the first round, one in the second.
    let mut rounds = 0;
    while !member.take_outputs().contains(&Output::LeaveSpread) {
        rounds += 1;
        let deadline_ms = member.next_deadline_ms().unwrap();
        member.tick(deadline_ms);
    }
    assert_eq!(rounds, 2);
}

#[test]
fn who_is_alone_may_leave_at_once() {
    let mut member = member(settings(), 0);
    member.leave(10);
    assert_eq!(member.take_outputs(), [Output::LeaveSpread]);
}

#[test]
fn joining_asks_each_seed_but_ourselves() {
    let mut member = member(settings(), 0);
    assert_eq!(member.join(&[addr(0), addr(5)]), 1);
    let expected = Output::PushPullWith { to: addr(5), is_join: true };
    assert_eq!(member.take_outputs(), [expected]);
}
