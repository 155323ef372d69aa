//! Gossip: to whom, how often, and what fits.

use super::*;

fn gossiping(others: u16) -> Membership {
    let settings = Settings { probe_interval_ms: 0, push_pull_interval_ms: 0, ..settings() };
    member(settings, others)
}

fn tell(member: &mut Membership, name: &str, version: u64, bytes: &'static str) {
    member.broadcast("ring", &[name.to_owned()], version, bytes.into()).unwrap();
}

#[test]
fn a_few_peers_are_told_at_each_interval_until_all_was_said_often_enough() {
    let mut member = gossiping(20);
    assert_eq!(member.next_deadline_ms(), None, "nothing to tell, no reason to wake up");
    tell(&mut member, "a", 1, "change");
    let mut times = Vec::new();
    let mut copies = 0;
    while let Some(at_ms) = member.next_deadline_ms() {
        member.tick(at_ms);
        let outputs = member.take_outputs();
        let mut to: Vec<_> = sent(&outputs).into_iter().map(|(to, _)| to).collect();
        copies += to.len();
        to.sort();
        to.dedup();
        assert!(to.len() <= 3 && !to.contains(&addr(0)));
        times.push(at_ms);
    }
    // 4 · ⌈log₁₀ 22⌉ copies, three a round.
    assert_eq!((copies, times.len()), (8, 3));
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 200), "{times:?}");
}

#[test]
fn news_of_peers_go_before_changes_and_all_within_the_packet() {
    let mut member = gossiping(3);
    member.settings.packet_bytes_max = 200;
    tell(&mut member, "a", 1, "a change that is as long as what is said of a peer, or longer");
    tell(&mut member, "b", 1, "short");
    hear(&mut member, suspect("p1", 1, "p2"), 0);
    member.take_outputs();
    let parts = member.riders(75);
    assert!(parts.iter().map(|part| part.len() + PART_OVERHEAD).sum::<usize>() <= 75);
    let told = read(&parts);
    assert_eq!(told, [suspect("p1", 1, "p2"), Message::User("short".into())]);
}

#[test]
fn what_is_to_be_told_rides_on_answers_too() {
    let mut member = gossiping(3);
    tell(&mut member, "a", 1, "change");
    let ping = Ping { sequence: 5, target: "us".into(), source: None };
    hear(&mut member, Message::Ping(ping), 0);
    let sent = sent(&member.take_outputs());
    assert!(matches!(&sent[..], [(_, Message::Ack(_)), (_, Message::User(bytes))]
        if bytes == "change"));
}

#[test]
fn a_newer_change_replaces_the_older_one() {
    let mut member = gossiping(3);
    tell(&mut member, "a", 1, "old");
    tell(&mut member, "a", 2, "new");
    tell(&mut member, "b", 3, "other");
    assert_eq!(member.changes().len(), 2);
}

#[test]
fn a_change_that_no_packet_holds_is_refused() {
    let settings = Settings { packet_bytes_max: 100, ..settings() };
    let mut member = Membership::new(settings, 1, 0);
    let refused = member.broadcast("ring", &[], 1, vec![0; 98].into());
    assert_eq!(refused, Err(TooBig { bytes: 99, bytes_max: 98 }));
    assert_eq!(member.broadcast("ring", &[], 1, vec![0; 97].into()), Ok(()));
}

#[test]
fn the_dead_are_told_for_a_while_and_who_left_is_not() {
    let check = |from: &str, at_ms, expected: usize| {
        let mut member = gossiping(1);
        hear(&mut member, dead("p1", 1, from), 1_000);
        member.rumours = Broadcasts::new(1_000_000);
        tell(&mut member, "a", 1, "change");
        member.take_outputs();
        member.gossip(at_ms);
        assert_eq!(member.take_outputs().len(), expected, "{from} {at_ms}");
    };
    check("p2", 31_000, 1);
    check("p2", 31_001, 0);
    check("p1", 1_000, 0);
}

#[test]
fn what_was_gone_for_long_is_forgotten_at_the_end_of_a_lap() {
    let mut member = member(settings(), 2);
    hear(&mut member, dead("p1", 1, "p2"), 1_000);
    let mut now_ms = 1_000;
    while member.peers.get("p1").is_some() {
        assert!(now_ms < 60_000);
        now_ms = member.next_deadline_ms().unwrap();
        // p2 answers whatever it is asked.
        member.tick(now_ms);
        let outputs = member.take_outputs();
        for (_, message) in sent(&outputs) {
            if let Message::Ping(Ping { sequence, .. }) = message {
                let ack = crate::gossip::message::Ack { sequence, payload: Bytes::new() };
                hear(&mut member, Message::Ack(ack), now_ms);
            }
        }
    }
    assert!(now_ms > 31_000, "{now_ms}");
    assert_eq!((member.peers.count(), state(&member, "p2").0), (2, PeerState::Alive));
}
