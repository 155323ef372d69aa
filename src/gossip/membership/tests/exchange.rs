//! Full exchanges: what is taken over, and what of nothing.

use super::*;
use crate::gossip::message::PeerReport;

fn report(number: u16, incarnation: u32, state: PeerState) -> PeerReport {
    let Alive { name, addr, meta, versions, .. } = alive(number, incarnation);
    PeerReport { name, addr, meta, incarnation, state, versions }
}

#[test]
fn each_state_is_merged_by_its_rule_and_the_dead_get_time_to_refute() {
    let mut member = member(settings(), 4);
    let reports = vec![
        report(1, 2, PeerState::Alive),
        report(2, 1, PeerState::Suspect),
        report(3, 1, PeerState::Dead),
        report(4, 1, PeerState::Left),
        report(5, 1, PeerState::Alive),
        report(6, 1, PeerState::Dead),
    ];
    member.merge(reports, 5).unwrap();
    assert_eq!(state(&member, "p1"), (PeerState::Alive, 2));
    assert_eq!(state(&member, "p2").0, PeerState::Suspect);
    assert_eq!(state(&member, "p3").0, PeerState::Suspect);
    assert_eq!(state(&member, "p4").0, PeerState::Left);
    assert_eq!(state(&member, "p5").0, PeerState::Alive);
    assert!(member.peers.get("p6").is_none(), "who died before we knew it needs no burial");
}

#[test]
fn our_half_is_all_we_know_and_another_takes_it_over() {
    let mut member = member(settings(), 5);
    hear(&mut member, dead("p5", 1, "p5"), 1);
    assert_eq!(member.reports().len(), 6);
    let mut other = Membership::new(Settings::new("p9", addr(9)), 2, 0);
    other.merge(member.reports(), 1).unwrap();
    // p5 left before the other one came.
    assert_eq!(other.peers().live(), 6);
    assert_eq!(state(&other, "us"), (PeerState::Alive, 1));
}

#[test]
fn who_speaks_what_not_all_understand_spoils_the_whole_exchange() {
    let check = |versions: Versions, expected: &str| {
        let mut member = member(settings(), 1);
        let strange = PeerReport { versions, ..report(3, 1, PeerState::Alive) };
        let reports = vec![report(2, 1, PeerState::Alive), strange];
        let error = member.merge(reports, 0).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!((member.peers().count(), member.take_outputs()), (2, vec![]));
    };
    let [least, most, _, d_least, d_most, _] = VERSIONS;
    check(
        Versions(Some([least, most, 6, d_least, d_most, 0])),
        "Node 'p3' protocol version (6) is incompatible: [1, 5]",
    );
    check(
        Versions(Some([least, most, 2, 1, 1, 1])),
        "Node 'p2' delegate protocol version (0) is incompatible: [1, 0]",
    );
    check(Versions(None), "Node 'p3' protocol version (0) is incompatible: [1, 5]");
}

#[test]
fn now_and_then_everything_is_compared_with_one_who_is_alive() {
    let settings =
        Settings { probe_interval_ms: 0, gossip_interval_ms: 0, dead_reclaim_ms: 0, ..settings() };
    let mut member = member(settings, 2);
    hear(&mut member, dead("p1", 1, "p2"), 0);
    member.take_outputs();
    let mut times = Vec::new();
    for _ in 0..4 {
        let at_ms = member.next_deadline_ms().unwrap();
        times.push(at_ms);
        member.tick(at_ms);
        let expected = Output::PushPullWith { to: addr(2), is_join: false };
        assert_eq!(member.take_outputs(), [expected]);
    }
    assert!((30_001..=60_000).contains(&times[0]), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 30_000), "{times:?}");
    // In a larger cluster, less often; from the time on that is set already.
    for number in 3..=40 {
        hear(&mut member, Message::Alive(alive(number, 1)), times[3]);
    }
    for expected in [30_000, 90_000] {
        let at_ms = member.next_deadline_ms().unwrap();
        assert_eq!(at_ms - times[3], expected);
        member.tick(at_ms);
    }
}

#[test]
fn who_speaks_another_version_is_not_taken_in_by_gossip_either() {
    for versions in [[1, 5, 2, 0, 0, 9], [1, 5, 2, 1, 1, 0], [1, 5, 6, 0, 0, 0], [3, 5, 3, 0, 0, 0]]
    {
        let mut member = member(settings(), 1);
        let alive = Alive {
            incarnation: 1,
            name: "poison".into(),
            addr: addr(9),
            meta: Bytes::new(),
            versions: Versions(Some(versions)),
        };
        hear(&mut member, Message::Alive(alive), 0);
        assert!(member.peers.get("poison").is_none(), "{versions:?}");
        let reports = member.reports();
        assert_eq!(member.merge(reports, 0), Ok(()), "exchanges go on");
    }
}
