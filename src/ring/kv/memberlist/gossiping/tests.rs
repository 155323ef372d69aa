//! Whole members on loopback.

use prometheus::Registry;

use super::*;
use crate::gossip::config::TransportConfig;
use crate::gossip::metrics::Count;
use crate::ring::kv::KvClient;
use crate::ring::kv::memberlist::value::ValueKind;
use crate::ring::model::{Instance, InstanceState, RingModel, Token};
use crate::units::Millis;
use crate::wire::ring_desc;

const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &str = "collectors/ring";

fn config(name: &str, seeds: &[&Gossiping]) -> MemberlistConfig {
    MemberlistConfig {
        node_name: name.to_owned(),
        randomize_node_name: false,
        gossip_interval: Millis(20),
        min_join_backoff: Millis(10),
        max_join_backoff: Millis(20),
        join_members: seeds.iter().map(|seed| seed.address().to_string()).collect(),
        transport: TransportConfig {
            bind_addr: vec!["127.0.0.1".into()],
            bind_port: 0,
            ..TransportConfig::default()
        },
        ..MemberlistConfig::default()
    }
}

fn clock() -> WallClock {
    let clock = crate::clock::Clock::start();
    Arc::new(move || clock.now().unix_ms)
}

async fn start(config: &MemberlistConfig) -> Gossiping {
    config.validate().expect("sound settings");
    let metrics = Metrics::register(&Registry::new()).expect("a fresh registry");
    Gossiping::start(config, clock(), metrics).await.expect("starts")
}

fn kv(member: &Gossiping) -> KvClient {
    KvClient::Memberlist(member.store().client(ValueKind::Ring))
}

async fn ring(member: &Gossiping) -> RingModel {
    let value = kv(member).get(KEY).await.expect("readable");
    value.bytes.map(|bytes| ring_desc::decode(&bytes).expect("a ring")).unwrap_or_default()
}

async fn register(member: &Gossiping, id: &str, tokens: std::ops::Range<u32>) {
    let now_s = clock()() / 1000;
    let instance = Instance {
        addr: format!("{id}:9095"),
        timestamp_s: now_s,
        state: InstanceState::Active,
        tokens: tokens.map(|token| Token(token * 1000)).collect(),
        zone: String::new(),
        registered_timestamp_s: now_s,
        unknown_fields: Vec::new(),
    };
    kv(member)
        .cas(KEY, |bytes| {
            let mut ring = match bytes {
                Some(bytes) => ring_desc::decode(&bytes).map_err(|error| error.to_string())?,
                None => RingModel::default(),
            };
            ring.instances.insert(id.to_owned(), instance.clone());
            Ok(Some(ring_desc::encode(&ring).map_err(|error| error.to_string())?.into()))
        })
        .await
        .expect("written");
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let polling = async {
        while !holds().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, polling).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

fn state_of(member: &Gossiping, name: &str) -> Option<PeerState> {
    member.view().peers().into_iter().find(|peer| peer.name == name).map(|peer| peer.state)
}

#[tokio::test]
async fn what_one_writes_all_have_and_who_joins_has_it_at_once() {
    let first = start(&config("first", &[])).await;
    register(&first, "a", 0..512).await;
    let second = start(&config("second", &[&first])).await;
    assert!(ring(&second).await.instances.contains_key("a"), "the exchange of joining told it");
    let third = start(&config("third", &[&second])).await;
    register(&third, "c", 1000..1512).await;
    register(&second, "b", 2000..2512).await;
    for member in [&first, &second, &third] {
        until("all have all", async || ring(member).await.instances.len() == 3).await;
        assert_eq!(member.view().peers().len(), 3);
        assert!(matches!(member.view().joined(), Joined::Yes));
    }
}

#[tokio::test]
async fn who_leaves_tells_its_last_change_and_counts_as_left() {
    let stays = start(&config("stays", &[])).await;
    let goes = start(&config("goes", &[&stays])).await;
    until("they know each other", async || state_of(&stays, "goes").is_some()).await;
    register(&goes, "last words", 0..8).await;
    goes.stop().await;
    until("it has left", async || state_of(&stays, "goes") == Some(PeerState::Left)).await;
    assert!(ring(&stays).await.instances.contains_key("last words"));
}

fn labelled(label: &str, config: MemberlistConfig) -> MemberlistConfig {
    MemberlistConfig {
        cluster_label: label.to_owned(),
        max_join_retries: 0,
        abort_if_cluster_join_fails: false,
        ..config
    }
}

#[tokio::test]
async fn a_stranger_by_its_label_is_not_listened_to_and_counted() {
    let ours = start(&labelled("ours", config("ours", &[]))).await;
    register(&ours, "a", 0..8).await;
    for stranger in ["", "theirs"] {
        let before = ours.shared.transport.metrics().value(Count::RefusedLabel);
        let stranger = start(&labelled(stranger, config("stranger", &[&ours]))).await;
        assert!(matches!(stranger.view().joined(), Joined::NotYet(_)), "nobody answered it");
        assert!(ring(&stranger).await.instances.is_empty());
        assert!(ours.shared.transport.metrics().value(Count::RefusedLabel) > before);
        stranger.stop().await;
    }
    assert_eq!(state_of(&ours, "stranger"), None);
    let friend = start(&labelled("ours", config("friend", &[&ours]))).await;
    assert!(ring(&friend).await.instances.contains_key("a"));
    // While a cluster is given its label nobody is a stranger.
    let mut lenient = labelled("ours", config("lenient", &[]));
    lenient.cluster_label_verification_disabled = true;
    let lenient = start(&lenient).await;
    let unlabelled = start(&labelled("", config("unlabelled", &[&lenient]))).await;
    until("it is taken", async || state_of(&lenient, "unlabelled").is_some()).await;
    drop(unlabelled);
}

/// Takes connections, as the kernel does for it, and never says a word.
fn silent_seed() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

#[tokio::test]
async fn one_answer_is_enough_to_start_whoever_else_hangs() {
    let good = start(&config("good", &[])).await;
    register(&good, "a", 0..8).await;
    let silent: Vec<_> = (0..ASKED_BEFORE).map(|_| silent_seed()).collect();
    let mut config = config("joins", &[]);
    config.join_members = silent.iter().map(|(_, address)| address.clone()).collect();
    config.join_members.push(good.address().to_string());
    let started = Instant::now();
    let joins = start(&config).await;
    assert!(started.elapsed() < config.stream_timeout.as_duration() / 2);
    assert!(matches!(joins.view().joined(), Joined::Yes));
    assert!(ring(&joins).await.instances.contains_key("a"), "it has the ring all the same");
}

/// More than were once asked at a time.
const ASKED_BEFORE: usize = 12;

#[tokio::test]
async fn without_an_answer_the_start_waits_for_one_stream_and_goes_on_asking() {
    let (silent, address) = silent_seed();
    let mut config = config("waits", &[]);
    config.stream_timeout = Millis(300);
    config.max_join_retries = 10_000;
    config.join_members = vec![address.clone()];
    let waits = start(&config).await;
    let Joined::NotYet(_) = waits.view().joined() else { panic!("nobody answered") };
    assert!(waits.view().loneliness().is_some_and(|why| why.contains("was reached: ")));
    // Its place is taken by somebody who speaks.
    drop(silent);
    let mut seed = self::config("seed", &[]);
    seed.transport.bind_port = address.rsplit_once(':').expect("a port").1.parse().expect("one");
    let _seed = start(&seed).await;
    until("it is found", async || matches!(waits.view().joined(), Joined::Yes)).await;
}

#[tokio::test]
async fn who_reaches_nobody_goes_on_or_gives_up_as_is_set() {
    let gone = start(&config("gone", &[])).await;
    let mut config = config("alone", &[&gone]);
    gone.stop().await;
    config.max_join_retries = 2;
    config.abort_if_cluster_join_fails = false;
    let patient = start(&config).await;
    let view = patient.view();
    let waits = timeout(Duration::from_millis(500), view.join_failed()).await;
    assert!(waits.is_err(), "it goes on");
    let Joined::NotYet(reason) = patient.view().joined() else { panic!("nobody is there") };
    assert!(reason.contains("no connection: "), "{reason}");

    config.abort_if_cluster_join_fails = true;
    let strict = start(&config).await;
    let failed = timeout(PATIENCE, strict.view().join_failed()).await.expect("it gives up");
    assert_eq!((failed.tries, failed.members.as_str()), (3, &*config.join_members[0]));
}

#[tokio::test]
async fn members_that_start_before_their_seed_find_it_later() {
    let seed = start(&config("seed", &[])).await;
    let address = seed.address();
    let early = config("early", &[&seed]);
    seed.stop().await;
    let early = start(&early).await;
    assert!(matches!(early.view().joined(), Joined::NotYet(_)));
    register(&early, "early", 0..8).await;
    let mut again = config("seed", &[]);
    again.transport.bind_port = address.port();
    let mut found = None;
    until("the port is free again", async || {
        let metrics = Metrics::register(&Registry::new()).expect("a fresh registry");
        found = Gossiping::start(&again, clock(), metrics).await.ok();
        found.is_some()
    })
    .await;
    let seed = found.expect("started");
    until("it is found", async || matches!(early.view().joined(), Joined::Yes)).await;
    until("the ring is told", async || ring(&seed).await.instances.contains_key("early")).await;
}
