//! Callers that break the protocol, and gates that cannot be one cluster.

use freehold::clients::exchange::{Batch, Item};
use freehold::upstream::{AskError, Upstream};
use freehold::wire::budgets::{Hello, VERSION, encode_batch, encode_hello};

use super::*;

const EXCHANGE: &str = "/freehold.budgets.v1.Budgets/Exchange";
const FAILED_PRECONDITION: i32 = 9;
const INVALID_ARGUMENT: i32 = 3;
const UNIMPLEMENTED: i32 = 12;

fn upstream(address: std::net::SocketAddr) -> Upstream {
    connector(UpstreamConfig::default(), None)(&address.to_string()).expect("an address")
}

/// What a stream of these messages ends with.
async fn end_of(upstream: &Upstream, messages: &[Vec<u8>]) -> (i32, String) {
    let (first, rest) = messages.split_first().expect("a message");
    let talk = async {
        let (questions, mut answers) = upstream.converse(EXCHANGE, first).await?;
        for message in rest {
            answers.next().await?;
            questions.send(message).expect("the one before has been answered");
        }
        loop {
            answers.next().await?.expect("it does not end well");
        }
    };
    let outcome: Result<(), AskError> = tokio::time::timeout(PATIENCE, talk).await.expect("an end");
    match outcome.expect_err("an end") {
        AskError::Status { code, message } => (code, message),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_its_stream_with_the_reason() {
    let gate = Gate::start("gate-0", &Setup::default()).await;
    let upstream = upstream(gate.proxy.address);
    let gates = Gates::Distributors;
    let hello = |id: &str, version, placement| {
        encode_hello(&Hello { id: id.into(), incarnation: 1, version, placement, gates })
    };
    let placement =
        hasher(7).hash(Key { kind: Kind::TenantWrites, tenant: "placement", client: "" }).0;
    let good = hello("gate-1", VERSION, placement);
    let item = Item {
        key: client("a").to_owned(),
        wish: Default::default(),
        holding: Some(1),
        refund: None,
        debt: 0,
    };
    let batch = |sequence, len| encode_batch(&Batch { sequence, items: vec![item.clone(); len] });
    let check = async |messages: &[Vec<u8>], code, text: &str| {
        let (found, told) = end_of(&upstream, messages).await;
        assert!(told.contains(text), "{told}");
        assert_eq!(found, code, "{told}");
    };
    let failed = FAILED_PRECONDITION;
    check(&[batch(1, 1)], failed, "a batch before the hello").await;
    check(&[good.clone(), good.clone()], failed, "a second hello").await;
    check(&[hello("gate-1", 2, placement)], failed, "version 2 is not spoken here").await;
    let (id, gates) = ("gate-1".into(), Gates::QueryFrontends);
    let queries = encode_hello(&Hello { id, incarnation: 1, version: VERSION, placement, gates });
    check(&[queries], failed, "this gate is not in the ring query-frontend").await;
    check(&[hello("gate-1", VERSION, 5)], failed, "-client-identity.secret-file").await;
    check(&[hello("gate-0", VERSION, placement)], failed, "this gate's own id").await;
    check(&[good.clone(), batch(5, 1), batch(4, 1)], failed, "batch 4 comes too late").await;
    check(&[good.clone(), batch(6, 1001)], INVALID_ARGUMENT, "1001 items").await;
    check(&[good.clone(), batch(0, 1)], INVALID_ARGUMENT, "the sequence").await;
    check(&[good.clone(), vec![255; 9]], INVALID_ARGUMENT, "cannot read the message").await;
    check(&[hello("", VERSION, placement)], INVALID_ARGUMENT, "name of a gate").await;
    // Longer than any message is.
    let (code, _) = end_of(&upstream, &[good, vec![0; (1 << 20) + 1]]).await;
    assert_eq!(code, 8);
    let unknown = "/freehold.budgets.v1.Budgets/Other";
    let other = upstream.ask_encoded(unknown, &[], PATIENCE).await;
    let Err(AskError::Status { code, message }) = other else { panic!("{other:?}") };
    assert_eq!(code, UNIMPLEMENTED);
    assert_eq!(message, "unknown method Other for service freehold.budgets.v1.Budgets");
}

#[tokio::test]
async fn a_gate_that_shares_no_budgets_says_that_it_does_not() {
    let (address, _drainer, _serving) = start_edge(None, None).await;
    let (code, text) = end_of(&upstream(address), &[vec![]]).await;
    assert_eq!(code, UNIMPLEMENTED);
    assert_eq!(text, "unknown service freehold.budgets.v1.Budgets");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_that_place_keys_differently_do_not_talk() {
    let setup = Setup::default();
    let mut cluster = Cluster::start(1, &setup).await;
    cluster.0.push(Gate::start("gate-1", &Setup { secret: 9, ..Setup::default() }).await);
    cluster.publish(&cluster[0], &[0, 1]);
    until("refused", || !cluster[0].budgets.is_up("gate-1")).await;
    assert_eq!(cluster[1].budgets.counts().served, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_has_changed_hands_is_not_believed() {
    let setup = Setup::default();
    let cluster = Cluster::start(3, &setup).await;
    let name = cluster.clients_of(0, 1).remove(0);
    cluster[1].charge(client(&name), 1, setup.terms).await.expect("the owner answers");
    cluster[0].proxy.aim(cluster[2].proxy.address);
    cluster[0].proxy.reset_all();
    until("refused", || !cluster[1].budgets.is_up("gate-0")).await;
}
