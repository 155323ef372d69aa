//! Probes: our own, those made for others, and answers.

use super::*;
use crate::gossip::message::{Ack, IndirectPing, Nack};

fn probing(others: u16) -> (Membership, u64) {
    let settings = Settings { gossip_interval_ms: 0, push_pull_interval_ms: 0, ..settings() };
    let mut member = member(settings, others);
    let start_ms = member.next_deadline_ms().unwrap();
    member.tick(start_ms);
    (member, start_ms)
}

/// The ping that a probe began with.
fn ping(member: &mut Membership) -> (SocketAddr, Ping) {
    let sent = sent(&member.take_outputs());
    let [(to, Message::Ping(ping))] = &sent[..] else { panic!("one ping: {sent:?}") };
    (*to, ping.clone())
}

fn ack(sequence: u32) -> Message {
    Message::Ack(Ack { sequence, payload: Bytes::new() })
}

#[test]
fn one_peer_after_another_is_probed_and_each_once_per_lap() {
    let (mut member, mut now_ms) = probing(5);
    for _ in 0..4 {
        let mut targets: Vec<String> = Vec::new();
        for _ in 0..5 {
            let (to, ping) = ping(&mut member);
            assert_eq!(to, member.peers.get(&ping.target).unwrap().addr);
            assert_eq!(ping.source, Some(Source { name: "us".into(), addr: addr(0) }));
            targets.push(ping.target);
            hear(&mut member, ack(ping.sequence), now_ms + 20);
            assert!(member.probe.is_none());
            now_ms += 5_000;
            assert_eq!(member.next_deadline_ms(), Some(now_ms));
            member.tick(now_ms);
        }
        targets.sort();
        assert_eq!(targets, ["p1", "p2", "p3", "p4", "p5"]);
    }
    assert_eq!(member.counts().probes, 21);
}

#[test]
fn without_an_answer_others_are_asked_and_a_stream_is_tried() {
    let (mut member, start_ms) = probing(6);
    let (to, ping) = ping(&mut member);
    assert_eq!(member.next_deadline_ms(), Some(start_ms + 2_000));
    member.tick(start_ms + 2_000);
    let outputs = member.take_outputs();
    let asked = sent(&outputs);
    assert_eq!(asked.len(), 3);
    for (helper, message) in &asked {
        assert_ne!(*helper, to);
        let Message::IndirectPing(request) = message else { panic!("{message:?}") };
        assert_eq!((request.sequence, request.target_addr), (ping.sequence, to));
        assert!(request.target == ping.target && request.wants_nack);
    }
    let until_ms = start_ms + 5_000;
    assert_eq!(outputs.last(), Some(&Output::StreamPing { to, ping: ping.clone(), until_ms }));
    // A helper's answer is as good as the peer's.
    hear(&mut member, ack(ping.sequence), start_ms + 4_999);
    member.tick(start_ms + 4_999);
    assert!(member.probe.is_none());
    assert_eq!(state(&member, &ping.target).0, PeerState::Alive);
}

#[test]
fn who_answers_nobody_is_suspected_and_silent_helpers_speak_against_us() {
    let check = |nacks, expected_score| {
        let (mut member, start_ms) = probing(6);
        let (_, ping) = ping(&mut member);
        member.tick(start_ms + 2_000);
        member.take_outputs();
        for _ in 0..nacks {
            hear(&mut member, Message::Nack(Nack { sequence: ping.sequence }), start_ms + 4_000);
        }
        member.probe_pulse.delay(1_000_000);
        member.tick(start_ms + 4_999);
        assert_eq!(state(&member, &ping.target).0, PeerState::Alive);
        member.tick(start_ms + 5_000);
        assert_eq!(state(&member, &ping.target).0, PeerState::Suspect);
        assert_eq!(queued(&mut member), [suspect(&ping.target, 1, "us")]);
        assert_eq!(member.health_score(), expected_score);
        // An answer from now on is none.
        hear(&mut member, ack(ping.sequence), start_ms + 5_001);
        assert_eq!(state(&member, &ping.target).0, PeerState::Suspect);
        assert_eq!(member.counts().probes_failed, 1);
    };
    check(3, 0);
    check(4, 0);
    check(1, 2);
    check(0, 3);
}

#[test]
fn an_answer_that_waited_while_we_were_stopped_saves_the_peer_and_counts_against_us() {
    let (mut member, start_ms) = probing(3);
    let (_, ping) = ping(&mut member);
    hear(&mut member, ack(ping.sequence), start_ms + 60_000);
    member.tick(start_ms + 60_000);
    assert_eq!(state(&member, &ping.target).0, PeerState::Alive);
    assert_eq!((member.suspicions.count(), member.health_score()), (0, 1));
}

#[test]
fn alone_with_one_other_its_silence_counts_a_little_against_us() {
    let (mut member, start_ms) = probing(1);
    member.tick(start_ms + 2_000);
    member.tick(start_ms + 5_000);
    assert_eq!((state(&member, "p1").0, member.health_score()), (PeerState::Suspect, 1));
}

#[test]
fn who_is_unwell_waits_longer_and_misses_no_probe() {
    let (mut member, start_ms) = probing(3);
    member.take_outputs();
    member.probe = None;
    member.awareness.worsen(2);
    member.tick(start_ms + 5_000);
    let (_, ping) = ping(&mut member);
    let probe = member.probe.clone().unwrap();
    assert_eq!(probe.direct_until_ms, start_ms + 7_000);
    assert_eq!(probe.until_ms, start_ms + 20_000);
    // Two probes fell due in the meantime; one follows at once, the next in its time.
    for at_ms in [7_000, 10_000, 15_000, 19_999] {
        member.tick(start_ms + at_ms);
    }
    hear(&mut member, ack(ping.sequence), start_ms + 19_999);
    assert_ne!(member.probe.as_ref().unwrap().sequence, ping.sequence);
    assert_eq!(member.health_score(), 1);
}

#[test]
fn an_answer_over_a_stream_alone_saves_the_peer_and_is_a_warning() {
    let (mut member, start_ms) = probing(4);
    let (_, ping) = ping(&mut member);
    member.stream_answered(ping.sequence + 1);
    member.tick(start_ms + 2_000);
    member.stream_answered(ping.sequence);
    member.take_outputs();
    member.tick(start_ms + 5_000);
    assert_eq!(state(&member, &ping.target).0, PeerState::Alive);
    let text = format!(
        "{} answers over streams and not to packets; the network may be misconfigured",
        ping.target
    );
    assert_eq!(warnings(&member.take_outputs()), [text]);
}

#[test]
fn a_suspect_is_told_with_its_ping() {
    let (mut member, start_ms) = probing(1);
    member.take_outputs();
    member.probe = None;
    hear(&mut member, suspect("p1", 1, "p2"), start_ms);
    member.tick(start_ms + 5_000);
    let sent = sent(&member.take_outputs());
    assert!(matches!(&sent[..], [(_, Message::Ping(_)), (_, accusation)]
        if *accusation == suspect("p1", 1, "us")));
}

#[test]
fn pings_meant_for_us_are_answered_where_they_say() {
    let mut member = member(settings(), 1);
    let check = |member: &mut Membership, target: &str, source: Option<Source>, expected| {
        let ping = Ping { sequence: 5, target: target.into(), source };
        hear(member, Message::Ping(ping.clone()), 0);
        let answers = sent(&member.take_outputs());
        let to: Vec<SocketAddr> = answers.iter().map(|(to, _)| *to).collect();
        assert_eq!(to, expected);
        assert!(answers.iter().all(|(_, answer)| *answer == ack(5)));
        assert_eq!(member.answer_stream_ping(addr(1), &ping).is_some(), !to.is_empty());
        member.take_outputs();
    };
    let source = Source { name: "p9".into(), addr: addr(9) };
    check(&mut member, "us", None, vec![addr(1)]);
    check(&mut member, "", None, vec![addr(1)]);
    check(&mut member, "us", Some(source.clone()), vec![addr(9)]);
    check(&mut member, "them", Some(source), vec![]);
}

#[test]
fn probes_for_others_bring_them_the_answer_or_its_absence() {
    let mut member = member(Settings { probe_interval_ms: 0, ..settings() }, 2);
    let request = IndirectPing {
        sequence: 77,
        target: "p2".into(),
        target_addr: addr(2),
        wants_nack: true,
        source: None,
    };
    let mut ours = Vec::new();
    for _ in 0..3 {
        hear(&mut member, Message::IndirectPing(request.clone()), 100);
        let sent = sent(&member.take_outputs());
        let [(to, Message::Ping(ping))] = &sent[..] else { panic!("{sent:?}") };
        assert!(*to == addr(2) && ping.target == "p2");
        ours.push(ping.sequence);
    }
    hear(&mut member, ack(ours[1]), 200);
    assert_eq!(sent(&member.take_outputs()), [(addr(1), ack(77))]);
    let quiet = IndirectPing { wants_nack: false, ..request };
    hear(&mut member, Message::IndirectPing(quiet), 100);
    member.take_outputs();
    assert_eq!(member.next_deadline_ms(), Some(2_100));
    member.tick(2_099);
    assert_eq!(member.take_outputs(), []);
    member.tick(2_100);
    let nack = Message::Nack(Nack { sequence: 77 });
    let expected = [(addr(1), nack.clone()), (addr(1), nack)];
    assert_eq!(sent(&member.take_outputs()), expected);
    hear(&mut member, ack(ours[0]), 2_101);
    assert_eq!(member.take_outputs(), [], "too late");
}

#[test]
fn a_flood_of_strangers_pings_is_answered_to_a_few_and_members_always() {
    let mut member = member(settings(), 1);
    let ask = |member: &mut Membership, name: &str, from: u16, now_ms| {
        let source = Some(Source { name: name.into(), addr: addr(from) });
        let ping = Ping { sequence: 5, target: "us".into(), source };
        hear(member, Message::Ping(ping), now_ms);
        sent(&member.take_outputs()).len()
    };
    let answered: usize =
        (0..500).map(|stranger| ask(&mut member, "stranger", 1000 + stranger, 0)).sum();
    assert_eq!((answered, member.counts().pings_unanswered), (20, 480));
    assert_eq!(ask(&mut member, "p1", 1, 0), 1, "a member has its answer");
    assert_eq!(ask(&mut member, "p1", 9, 0), 0, "one that is not where it is known is a stranger");
    assert_eq!(ask(&mut member, "stranger", 1000, 1000), 1, "in the next second again");
}
