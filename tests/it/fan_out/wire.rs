//! What goes over the wire to an ingester.

use bytes::{Buf as _, Bytes, BytesMut};
use freehold::clock::Clock;
use freehold::distributor::ha::HaTracker;
use freehold::distributor::{Distributor, Form, Parts, Peers, Received, RingSink, Sink};
use freehold::labels::NameScheme;
use freehold::ratelimit::RECHECK_PERIOD;
use freehold::ring::model::RingReading;
use freehold::tenant::ClientId;
use freehold::units::Millis;
use freehold::upstream::distributor::Passed;
use freehold::wire::encoding::Encoding;
use freehold::wire::proto::cortexpb;
use freehold::wire::remote_write::{Version, packed};
use freehold::wire::signature;
use http::HeaderMap;
use prost::Message as _;
use tokio::sync::mpsc::Receiver;

use super::super::pass_through::fake::{Fake, channel, ok_head, ok_trailers};
use super::*;

/// One unary push as an ingester sees it.
struct Seen {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// An ingester that takes everything, and what it sees.
async fn ingester() -> (Fake, Receiver<Seen>) {
    let (tell, told) = channel();
    let fake = Fake::start(move |request: http::Request<h2::RecvStream>, mut respond| {
        let tell = tell.clone();
        async move {
            let (head, mut body) = request.into_parts();
            let mut bytes = BytesMut::new();
            while let Some(Ok(chunk)) = body.data().await {
                let _ = body.flow_control().release_capacity(chunk.len());
                bytes.extend_from_slice(&chunk);
            }
            let path = head.uri.path().to_owned();
            tell(Seen { path, headers: head.headers, body: bytes.freeze() });
            let Ok(mut send) = respond.send_response(ok_head(), false) else { return };
            let _ = send.send_data(Bytes::from_static(&[0; 5]), false);
            let _ = send.send_trailers(ok_trailers());
        }
    })
    .await;
    (fake, told)
}

async fn seen(setup: &Setup, pushing: &Pushing<'_>, body: &[u8]) -> Seen {
    let (fake, mut told) = ingester().await;
    let gate = setup.start();
    let ring = ring_of(&[fake.address], 1, |_| String::new());
    let prepared = prepared(TENANT, body);
    patiently(gate.fan_out.push(pushing, &prepared, &ring, 0)).await.expect("stored");
    told.recv().await.expect("a push")
}

fn message(seen: &Seen, encoding: Encoding) -> Bytes {
    let mut frame = seen.body.clone();
    let flag = frame.get_u8();
    let len = frame.get_u32() as usize;
    assert_eq!((flag, len), (u8::from(encoding != Encoding::Identity), frame.len()));
    encoding.decompress(&frame, 1 << 20).expect("sound")
}

const NOBODY: Pushing<'_> =
    Pushing { tenant: TENANT, client: None, request_metadata: &[], source_ips: None, trail: None };

#[tokio::test]
async fn a_push_is_headed_as_cortex_heads_it() {
    let metadata = [("x-cortex-request-id", "7"), ("x-cortex-request-source", "api")];
    let pushing = Pushing {
        tenant: TENANT,
        client: Some("writer 7"),
        request_metadata: &metadata,
        source_ips: Some("10.1.2.3, 127.0.0.1"),
        trail: None,
    };
    let distributor =
        DistributorConfig { sign_write_requests: true, ..DistributorConfig::default() };
    let setup = Setup { distributor, ..Setup::default() };
    let body = request(0..3, UNIX_MS);
    let seen = seen(&setup, &pushing, &body).await;
    assert_eq!(seen.path, "/cortex.Ingester/Push");
    let header = |name: &str| seen.headers[name].to_str().expect("ASCII");
    assert_eq!(header("content-type"), "application/grpc");
    assert_eq!(header("te"), "trailers");
    assert_eq!(header("x-scope-orgid"), TENANT);
    assert_eq!(header("x-scope-clientid"), "writer 7");
    assert_eq!(header("grpc-encoding"), "snappy-block");
    assert_eq!(header("extract-forwarded-x-forwarded-for"), "10.1.2.3, 127.0.0.1");
    let timeout = header("grpc-timeout").strip_suffix('m').expect("milliseconds");
    assert!((1..=2000).contains(&timeout.parse::<u64>().expect("a number")), "{timeout}");
    let told: Vec<_> =
        seen.headers.get_all("x-request-metadata-propagation-string").iter().collect();
    assert_eq!(told, ["x-cortex-request-id", "7", "x-cortex-request-source", "api"]);
    let message = message(&seen, Encoding::SnappyBlock);
    assert_eq!(header("x-req-signature"), signature::sign(TENANT, &message).expect("sound"));

    let sent = cortexpb::WriteRequest::decode(&message[..]).expect("sound");
    let expect = cortexpb::WriteRequest::decode(&body[..]).expect("sound");
    assert_eq!(sent.timeseries, expect.timeseries);
    assert!(sent.r#ref.is_some(), "as Cortex writes it");
}

#[tokio::test]
async fn a_push_that_names_no_client_has_no_header_for_one() {
    let metadata = [("x-cortex-request-id", "7")];
    let pushing = Pushing { request_metadata: &metadata, ..NOBODY };
    let seen = seen(&Setup::default(), &pushing, &request(0..3, UNIX_MS)).await;
    let mut names: Vec<_> = seen.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    let expect = [
        "content-type",
        "grpc-accept-encoding",
        "grpc-encoding",
        "grpc-timeout",
        "te",
        "user-agent",
        "x-request-metadata-propagation-string",
        "x-scope-orgid",
    ];
    assert_eq!(names, expect);
}

#[tokio::test]
async fn a_write_names_its_client_to_ingesters_in_unary_pushes_alone() {
    let mut streams = Setup::streams();
    // They are not answered.
    streams.distributor.remote_timeout = Millis(200);
    for (setup, expect) in [
        (Setup::default(), Some("writer 7")),
        // A stream is opened by one push and carries those of others.
        (streams, None),
    ] {
        let (fake, mut told) = ingester().await;
        let distributor = distributor(&setup, fake.address);
        let client = ClientId::parse("writer 7").expect("a client");
        for (client, expect) in [(Some(client), expect), (None, None)] {
            let write = Received {
                form: Form::RemoteWrite(Version::V1),
                body: packed(&request(0..3, UNIX_MS)).into(),
                trail: Default::default(),
                client,
                passed: Passed::default(),
                room: None,
            };
            let _ = patiently(distributor.push(&tenant(TENANT), write, NOW)).await;
            let seen = told.recv().await.expect("a push");
            let named = seen.headers.get("x-scope-clientid");
            assert_eq!(named.map(|name| name.to_str().expect("ASCII")), expect, "{}", seen.path);
        }
    }
}

/// Before a ring of one ingester.
fn distributor(setup: &Setup, address: SocketAddr) -> Distributor {
    let instance = Instance {
        addr: address.to_string(),
        timestamp_s: UNIX_MS / 1000,
        state: InstanceState::Active,
        tokens: vec![Token(7)],
        zone: String::new(),
        registered_timestamp_s: 0,
        unknown_fields: Vec::new(),
    };
    let model = RingModel {
        instances: [("ingester-0".to_owned(), instance)].into(),
        unknown_fields: Vec::new(),
    };
    let settings = RingSettings {
        replication_factor: 1,
        zone_awareness_enabled: false,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: None,
    };
    let ring = Arc::new(Ring::new(settings, 600_000));
    ring.publish(&RingReading::Whole(model), UNIX_MS);
    Distributor::new(Parts {
        config: setup.distributor.clone(),
        names: NameScheme::Legacy,
        parity: false,
        overrides: Arc::new(Overrides::new(Limits::default(), InstanceLimits::default())),
        peers: Peers::Alone,
        budgets: None,
        ha: HaTracker::off(),
        sink: Sink::Ring(RingSink { ring, fan_out: setup.start().fan_out }),
        clock: Clock::start(),
        recheck_period: RECHECK_PERIOD,
    })
}

#[tokio::test]
async fn every_compression_of_cortex_can_be_asked_for() {
    for encoding in Encoding::ALL {
        let mut setup = Setup::default();
        let name = if encoding == Encoding::Identity { "" } else { encoding.name() };
        setup.client.grpc_client_config.grpc_compression = name.to_owned();
        let body = request(0..3, UNIX_MS);
        let seen = seen(&setup, &NOBODY, &body).await;
        let named = seen.headers.get("grpc-encoding").map(|name| name.to_str().expect("ASCII"));
        assert_eq!(named, Some(name).filter(|name| !name.is_empty()));
        assert!(seen.headers.get("x-req-signature").is_none());
        let sent = cortexpb::WriteRequest::decode(message(&seen, encoding)).expect("sound");
        assert_eq!(sent.timeseries.len(), 3);
        // And our own ingesters understand it.
        let gate = setup.start();
        let node = Node::start().await;
        let ring = ring_of(&[node.address], 1, |_| String::new());
        gate.push(&ring, 0..3).await.expect("stored");
        assert_eq!(node.series(TENANT), 3);
    }
}

#[tokio::test]
async fn a_message_over_the_bound_is_not_sent() {
    let mut setup = Setup::default();
    setup.client.grpc_client_config.max_send_msg_size = 100;
    setup.client.grpc_client_config.grpc_compression = String::new();
    let gate = setup.start();
    let node = Node::start().await;
    let ring = ring_of(&[node.address], 1, |_| String::new());
    // Ten series are ten messages.
    gate.push(&ring, 0..10).await.expect("small enough");
    assert_eq!((node.series(TENANT), gate.appends(0)), (10, 10.0));
    let error = gate.push_body(&ring, &wide(1, 200)).await.expect_err("too large alone");
    assert_eq!(error.code(), Some(413), "no reason to try again: {error}");
    let middle = "rpc error: code = Code(413) desc = trying to send message larger than max (";
    let text = error.to_string();
    assert!(text.contains(middle) && text.ends_with(" vs. 100)"), "{text}");
}

/// A request of so many series, each with a label of so many bytes.
fn wide(series: u64, label_bytes: usize) -> Vec<u8> {
    let pair = |name: &str, value: String| cortexpb::LabelPair {
        name: name.to_owned().into(),
        value: value.into(),
    };
    let timeseries = (0..series).map(|number| cortexpb::TimeSeries {
        labels: vec![
            pair("__name__", format!("wide_{number}")),
            pair("wide", "x".repeat(label_bytes)),
        ],
        samples: vec![cortexpb::Sample {
            value: 1.0,
            timestamp_ms: UNIX_MS,
            start_timestamp_ms: 0,
        }],
        ..Default::default()
    });
    cortexpb::WriteRequest { timeseries: timeseries.collect(), ..Default::default() }
        .encode_to_vec()
}

#[tokio::test]
async fn what_is_larger_than_an_ingesters_messages_goes_in_several() {
    // 12 MB, of which the default of an ingester's messages takes 4 MiB, unpacked.
    let body = wide(120, 100_000);
    for setup in Setup::both() {
        let gate = setup.start();
        let nodes = nodes(3).await;
        let ring = ring(&addresses(&nodes));
        gate.push_body(&ring, &body).await.expect("stored");
        gate.until_idle().await;
        for (at, node) in nodes.iter().enumerate() {
            assert_eq!(node.series(TENANT), 120);
            assert_eq!(gate.appends(at), 3.0, "as few messages as it takes");
        }
    }
}

#[tokio::test]
async fn a_series_that_no_ingester_takes_is_refused_and_the_others_are_stored() {
    let body = [request(0..10, UNIX_MS), wide(1, 5 << 20), request(10..20, UNIX_MS)].concat();
    for setup in Setup::both() {
        let gate = setup.start();
        let nodes = nodes(3).await;
        let ring = ring(&addresses(&nodes));
        let error = gate.push_body(&ring, &body).await.expect_err("one is too large");
        assert_eq!(error.code(), Some(413), "{error}");
        let end = "desc = grpc: received message after decompression larger than max 4194304";
        assert!(error.to_string().ends_with(end), "{error}");
        gate.until_idle().await;
        assert!(nodes.iter().all(|node| node.series(TENANT) == 20), "the others are stored");
    }
}

#[tokio::test]
async fn case_e4_streams_are_signed_where_there_are_keys() {
    let node = Node::with(0, StreamKeys::parse("new,old")).await;
    let ring = ring_of(&[node.address], 1, |_| String::new());
    let with = |keys: &str, signs: bool| {
        let mut setup = Setup::streams();
        setup.distributor.sign_write_requests = signs;
        // As it comes from a file: there is no other way to make a secret.
        let keys = serde_json::from_value(serde_json::json!(keys));
        setup.distributor.sign_write_requests_keys = keys.expect("a text");
        setup.start()
    };
    let stored = async |gate: Gate| gate.push(&ring, 0..5).await.map_err(|e| e.to_string());
    stored(with("new,old", true)).await.expect("the first key");
    stored(with("old", true)).await.expect("another of the ingester's keys");
    let refused = stored(with("other", true)).await.expect_err("a stranger's key");
    assert!(refused.ends_with("rpc error: code = Unknown desc = signature mismatch"), "{refused}");
    let refused = stored(with("new", false)).await.expect_err("not signed");
    assert!(refused.ends_with("desc = signature not present"), "{refused}");
    assert_eq!(node.series(TENANT), 5);
}
