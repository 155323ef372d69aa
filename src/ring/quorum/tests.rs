//! The quorum against answers in every order, and against a model that counts anew.

use proptest::prelude::*;

use super::*;
use crate::keys::RingKey;
use crate::ring::model::{Instance, InstanceState, RingModel, Token};
use crate::ring::{Operation, RingSettings, RingSnapshot};

fn ring(tokens: &[Vec<u32>], replication_factor: usize) -> RingSnapshot {
    let instance = |(at, tokens): (usize, &Vec<u32>)| {
        let instance = Instance {
            addr: format!("host-{at}:9095"),
            timestamp_s: 0,
            state: InstanceState::Active,
            tokens: tokens.iter().copied().map(Token).collect(),
            zone: "z".to_owned(),
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        };
        (format!("i-{at:02}"), instance)
    };
    let model = RingModel {
        instances: tokens.iter().enumerate().map(instance).collect(),
        unknown_fields: Vec::new(),
    };
    let settings = RingSettings {
        replication_factor,
        zone_awareness_enabled: false,
        heartbeat_timeout_ms: 0,
        extend_writes: true,
        own_id: None,
    };
    RingSnapshot::build(&model, 0, settings.into(), None)
}

fn refused(text: &str) -> Failure {
    Failure { code: Some(400), message: text.into(), http: Some(400) }
}

fn failed(text: &str) -> Failure {
    Failure { code: Some(14), message: text.into(), http: None }
}

/// The verdict on one item with these answers of its three replicas, and after which it fell.
fn of_three(answers: [Result<(), Failure>; 3]) -> (usize, Result<(), QuorumError>) {
    let ring = ring(&[vec![10], vec![20], vec![30]], 3);
    let mut batches = Batches::default();
    let place = ring.placement();
    batches.assign(&place, Operation::Write, [RingKey(1)].into_iter()).expect("three");
    let members: Vec<_> = batches.iter().map(|b| &place.members[b.member().index()]).collect();
    let mut quorum = Quorum::new(&batches);
    let mut verdict = None;
    for (at, answer) in answers.into_iter().enumerate() {
        if let Some(fell) = quorum.record(at, members[at], answer) {
            assert!(verdict.replace((at + 1, fell)).is_none(), "once");
        }
    }
    verdict.expect("at the latest with the last")
}

#[test]
fn case_e2_the_family_with_the_quorum_decides_whatever_the_order() {
    let ok = || Ok(());
    let no = || Err(refused("no"));
    let down = || Err(failed("down"));
    let check = |answers, after: usize, expect: Option<(u16, &str)>| {
        let (fell, verdict) = of_three(answers);
        assert_eq!(fell, after);
        let shown = verdict.err().map(|error| (error.code, error.text));
        assert_eq!(shown, expect.map(|(code, text)| (code, text.to_owned())));
    };
    check([ok(), ok(), down()], 2, None);
    check([ok(), no(), ok()], 3, None);
    check([down(), ok(), ok()], 3, None);
    const REFUSED: &str = "maxFailure (quorum) on a given error family, addr=host-2:9095 \
                           state=ACTIVE zone=z, rpc error: code = Code(400) desc = no";
    check([no(), down(), no()], 3, Some((400, REFUSED)));
    check([down(), no(), no()], 3, Some((400, REFUSED)));
    check([no(), no(), down()], 2, Some((400, &REFUSED.replace("host-2", "host-1"))));
    const FAILED: &str = "maxFailure (quorum) on a given error family, addr=host-2:9095 \
                          state=ACTIVE zone=z, rpc error: code = Unavailable desc = down";
    check([down(), no(), down()], 3, Some((500, FAILED)));
    check([down(), ok(), down()], 3, Some((500, FAILED)));
    const NONE_LEFT: &str = "not enough remaining instances to try, addr=host-2:9095 \
                             state=ACTIVE zone=z, rpc error: code = Code(400) desc = no";
    check([no(), down(), ok()], 3, Some((400, NONE_LEFT)));
    check([ok(), down(), no()], 3, Some((400, NONE_LEFT)));
}

#[test]
fn failures_are_printed_as_go_prints_them() {
    let check = |code, text: &str| {
        let failure = Failure { code, message: "why".into(), http: None };
        assert_eq!(failure.to_string(), text);
    };
    check(None, "why");
    check(Some(429), "rpc error: code = Code(429) desc = why");
    check(Some(14), "rpc error: code = Unavailable desc = why");
    check(Some(16), "rpc error: code = Unauthenticated desc = why");
    check(Some(17), "rpc error: code = Code(17) desc = why");
    check(Some(-1), "rpc error: code = Code(-1) desc = why");
}

/// In Cortex each success of an item beyond its quorum stands for another item.
#[test]
fn an_item_with_all_its_replicas_does_not_stand_for_one_without_any() {
    let ring = ring(&[vec![10], vec![20], vec![30], vec![40], vec![50], vec![60]], 3);
    let mut batches = Batches::default();
    let place = ring.placement();
    let keys = [RingKey(1), RingKey(31)];
    batches.assign(&place, Operation::Write, keys.into_iter()).expect("three each");
    let members: Vec<_> = batches.iter().map(|b| &place.members[b.member().index()]).collect();
    let mut quorum = Quorum::new(&batches);
    for (at, member) in members.iter().enumerate().take(4) {
        assert_eq!(quorum.record(at, member, Ok(())), None, "the second item has one");
    }
    assert_eq!(quorum.record(4, members[4], Ok(())), Some(Ok(())));
    assert_eq!(quorum.record(5, members[5], Err(failed("late"))), None);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Ok,
    Refused,
    Failed,
}

/// Cortex's rules for each item alone, from the answers so far: (verdict, deciding family).
fn naive_item(
    replicas: &[usize],
    max_errors: usize,
    answers: &[(usize, Answer)],
) -> Option<Result<(), Answer>> {
    let count = |kind| {
        answers.iter().filter(|(by, answer)| replicas.contains(by) && *answer == kind).count()
    };
    let (ok, refused, failed) = (count(Answer::Ok), count(Answer::Refused), count(Answer::Failed));
    let deciding = if failed > refused { Answer::Failed } else { Answer::Refused };
    if ok >= replicas.len() - max_errors {
        Some(Ok(()))
    } else if refused > max_errors || failed > max_errors || ok + refused + failed == replicas.len()
    {
        Some(Err(deciding))
    } else {
        None
    }
}

proptest! {
    #[test]
    fn the_machine_answers_as_a_model_that_counts_again_each_time(
        tokens in prop::collection::vec(prop::collection::vec(any::<u32>(), 1..5), 1..9),
        keys in prop::collection::vec(any::<u32>(), 1..30),
        replication_factor in 1..6usize,
        answers in prop::collection::vec(
            prop::sample::select(vec![Answer::Ok, Answer::Ok, Answer::Refused, Answer::Failed]), 9,
        ),
        order in Just((0..9_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let ring = ring(&tokens, replication_factor);
        let place = ring.placement();
        let keys: Vec<_> = keys.into_iter().map(RingKey).collect();
        let mut batches = Batches::default();
        prop_assume!(batches.assign(&place, Operation::Write, keys.iter().copied()).is_ok());
        let members: Vec<_> = batches.iter().map(|b| b.member().index()).collect();
        let mut quorum = Quorum::new(&batches);

        let items: Vec<(Vec<usize>, usize)> = keys.iter().map(|key| {
            let set = ring.get(*key, Operation::Write).expect("placed");
            let index = |member: &&Member| ring.member_index(&member.id).expect("known").index();
            (set.members.iter().map(index).collect(), set.max_errors)
        }).collect();
        let mut so_far = Vec::new();
        let mut is_decided = false;
        for batch in order.into_iter().filter(|batch| *batch < members.len()) {
            let by = members[batch];
            let answer = answers[by];
            so_far.push((by, answer));
            let told = quorum.record(batch, &place.members[by], match answer {
                Answer::Ok => Ok(()),
                Answer::Refused => Err(refused("no")),
                Answer::Failed => Err(failed("down")),
            });
            if is_decided {
                prop_assert_eq!(told, None);
                continue;
            }
            let items: Vec<_> = items.iter()
                .map(|(replicas, max_errors)| naive_item(replicas, *max_errors, &so_far))
                .collect();
            let expect = match items.iter().flatten().find_map(|item| item.err()) {
                Some(family) => Some(Err(if family == Answer::Refused { 400 } else { 500 })),
                None if items.iter().all(Option::is_some) => Some(Ok(())),
                None => None,
            };
            is_decided = expect.is_some();
            let address = &place.members[by].addr;
            if let Some(Err(error)) = &told {
                let named = format!("addr={address} state=ACTIVE zone=z, ");
                prop_assert!(error.text.contains(&named), "{}", error);
            }
            prop_assert_eq!(told.map(|told| told.map_err(|error| error.code)), expect);
        }
        prop_assert!(is_decided, "at the latest with the last answer");
    }
}
