//! Field cases of answers by quorum: what a client makes of the codes that our replicas send.
//!
//! The client here is a distributor's: per series it waits for answers until one family of them
//! (stored, 4xx, anything else) has a majority, and tells apart by `grpc-status / 100` alone.

use std::collections::BTreeMap;

use freehold::ingester::PushError;
use freehold::ring::Operation;
use freehold::server::seam;
use freehold::server::status::GrpcStatus;
use freehold::tenant::TenantId;
use http::HeaderMap;

use super::cluster::{Cluster, Setup, labels, request, tenant};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Stored,
    Client,
    Server,
}

/// What travels for an outcome, read back as a distributor reads it.
fn family(outcome: Result<(), PushError>) -> Family {
    let Err(error) = outcome else { return Family::Stored };
    let mut trailers = HeaderMap::new();
    GrpcStatus::from(seam::PushError::from(error)).write_to(&mut trailers);
    let code = trailers["grpc-status"].to_str().expect("text").parse::<u32>().expect("a number");
    if code / 100 == 4 { Family::Client } else { Family::Server }
}

/// The answer to one new series, and those of its replicas by instance.
fn by_quorum(cluster: &Cluster, id: &TenantId, number: u64) -> (Family, BTreeMap<String, Family>) {
    let key = freehold::labels::ring_key(id.as_str(), labels(number).as_labels());
    let replicas = cluster.seen.get(key, Operation::Write).expect("enough replicas");
    let body = request([number], cluster.now.unix_ms);
    let answers: BTreeMap<_, _> = replicas
        .members
        .iter()
        .map(|member| (member.id.to_string(), family(cluster.push_to(&member.id, id, &body))))
        .collect();
    let majority = answers.len() / 2 + 1;
    let has_majority =
        |family: &Family| answers.values().filter(|answer| *answer == family).count() >= majority;
    let families = [Family::Stored, Family::Client, Family::Server];
    let answer = families.into_iter().find(has_majority);
    // No two agree: a retry may go better.
    (answer.unwrap_or(Family::Server), answers)
}

#[test]
fn case_e2_two_refusals_and_one_replica_down_are_answered_as_a_refusal() {
    let id = tenant("a");
    let mut cluster = Cluster::new(Setup::new(100, true), 3);
    assert_eq!(cluster.push(&id, 0..100, 0).refused, 0);
    for down in ["ingester-0", "ingester-1", "ingester-2"] {
        cluster.nodes[down].ingester.stop();
        let (answer, answers) = by_quorum(&cluster, &id, 1_000);
        assert_eq!(answers[down], Family::Server);
        let refusals = answers.values().filter(|answer| **answer == Family::Client).count();
        assert_eq!((answer, refusals), (Family::Client, 2), "{down}: {answers:?}");
        // What every replica knows is still taken by the two that run.
        assert_eq!(by_quorum(&cluster, &id, 5).0, Family::Stored);
        cluster.nodes[down].ingester.run();
    }
}

#[test]
fn case_e9_a_refusal_by_one_replica_is_outvoted_and_counted() {
    let id = tenant("a");
    let cluster = Cluster::new(Setup::new(100, true), 3);
    // One replica has had the tenant's whole limit, most of it by itself.
    let full = "ingester-1";
    let body = request(0..100, cluster.now.unix_ms);
    cluster.push_to(full, &id, &body).expect("up to the limit");
    for number in 500..520 {
        let (answer, answers) = by_quorum(&cluster, &id, number);
        assert_eq!((answer, answers[full]), (Family::Stored, Family::Client));
    }
    let refused = |node: &str| cluster.view(node, &id).refused_samples_total;
    assert_eq!((refused(full), refused("ingester-0"), refused("ingester-2")), (20, 0, 0));
    // Two full replicas make it the sender's business.
    cluster.push_to("ingester-0", &id, &request(1_000..1_080, cluster.now.unix_ms)).expect("room");
    let (answer, _) = by_quorum(&cluster, &id, 2_000);
    assert_eq!(answer, Family::Client);
}
