//! Many large messages at once, half sent or before a slow upstream: what is held stays under its
//! bound, others are answered meanwhile, and afterwards all is as before.

use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use freehold::wire::proto::cortexpb;
use prost::Message as _;

use super::cluster::request;
use super::pass_through::fake::{Client, framed, head_with, patiently};
use super::process::{Freehold, wait_for};
use super::sidecar::{PUSH, Sidecar, Stream, TENANT};
use super::upstream::ingester::UpstreamIngester;

const STREAMS: usize = 100;
const CONNECTIONS: usize = 4;
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// A frame of a push stream, but for the last so many bytes of it, which mean nothing to anybody.
fn beginning(series: u64, bytes: usize) -> Bytes {
    let request = request([series], 1_000);
    let mut message = cortexpb::StreamWriteRequest {
        tenant_id: TENANT.into(),
        request: Some(cortexpb::WriteRequest::decode(&request[..]).expect("sound")),
        ..Default::default()
    }
    .encode_to_vec();
    message.put_u8(15 << 3 | 2);
    prost::encoding::encode_varint(bytes as u64, &mut message);
    let mut frame = vec![0];
    frame.put_u32(u32::try_from(message.len() + bytes).expect("it fits a frame"));
    frame.extend_from_slice(&message);
    frame.into()
}

/// Half of a frame on each of a hundred streams, and the halves that are still to come.
///
/// What has found room has to arrive within half a minute, so nothing large is made here for each.
async fn half_sent(address: std::net::SocketAddr, bytes: usize) -> Vec<(Stream, Bytes)> {
    let meaningless = Bytes::from(vec![0; bytes]);
    let mut streams = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::connect(address).await);
    }
    for at in 0..STREAMS {
        let mut stream = Stream::on(&mut clients[at % CONNECTIONS]).await;
        stream.send_bytes(beginning(at as u64, bytes));
        stream.send_bytes(meaningless.slice(..bytes / 2));
        streams.push((stream, meaningless.slice(bytes / 2..)));
    }
    streams
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_sent_messages_are_held_within_the_bound_and_all_are_answered() {
    const BOUND: usize = 1 << 20;
    const EACH: usize = 250 << 10;
    let upstream = UpstreamIngester::start().await;
    upstream.knobs().push_delay = Duration::from_millis(20);
    let sidecar = Sidecar::with(upstream.address, |config| {
        config.ingester.upstream.max_inflight_bytes = BOUND;
    });
    let mut sidecar = sidecar.await.running().await;
    let streams = half_sent(sidecar.app.grpc_address, EACH).await;
    let full = async {
        // Four have their room, so many wait as may, and the others have been refused.
        while sidecar.metric("freehold_server_refused_requests_total").await < 32.0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    patiently(full).await;
    let held = sidecar.metric("freehold_server_inflight_bytes").await as usize;
    assert!((BOUND * 3 / 4..=BOUND).contains(&held), "{held}");
    // Who asks whether we live is not kept waiting, and no call that is passed through is.
    let ended = patiently(sidecar.client.call(head_with(HEALTH, "te", "trailers"), framed(b"")));
    assert_eq!(ended.await.code(), "0");
    // A unary push is refused within its own deadline.
    let mut head = head_with(PUSH, "x-scope-orgid", TENANT);
    head.headers_mut().insert("grpc-timeout", "50m".parse().expect("a value"));
    let push = sidecar.client.call(head, framed(&request([1], 1_000)));
    let ended = patiently(push).await;
    assert!(["14", "4"].contains(&ended.code()), "{} {}", ended.code(), ended.text());

    let mut codes = std::collections::BTreeMap::<i32, usize>::new();
    let mut after = Vec::new();
    for (mut stream, rest) in streams {
        stream.send_bytes(rest);
        after.push(stream);
    }
    for stream in &mut after {
        let answer = stream.answer().await.expect("an answer");
        assert!([200, 503].contains(&answer.code), "{answer:?}");
        *codes.entry(answer.code).or_default() += 1;
        let held = sidecar.metric("freehold_server_inflight_bytes").await as usize;
        assert!(held <= BOUND, "{held}");
    }
    assert!(codes[&200] >= 4 && codes[&503] >= 32, "{codes:?}");
    // Each stream goes on, whatever became of its first message.
    for (at, stream) in after.iter_mut().enumerate() {
        let answer = stream.exchange([at as u64]).await;
        assert_eq!(answer.code, 200, "{answer:?}");
    }
    drop(after);
    sidecar.until_idle().await;
    assert_eq!(sidecar.metric("freehold_server_inflight_bytes").await, 0.0);
    assert_eq!(upstream.count(TENANT), STREAMS as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_of_a_process_stays_under_the_bound_in_a_flood() {
    const BOUND: usize = 16 << 20;
    const EACH: usize = 6 << 20;
    // What a stream's window holds of a message that waits or was passed over, and what the
    // allocator and the connections need.
    const WINDOWS_KIB: u64 = STREAMS as u64 * 512;
    const SLACK_KIB: u64 = 40 << 10;
    let upstream = UpstreamIngester::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        "-target=ingester".to_owned(),
        "-store.enabled=false".to_owned(),
        format!("-ingester.upstream-address={}", upstream.address),
        "-ingester.instance-id=ingester-0".to_owned(),
        format!("-ingester.upstream.max-inflight-bytes={BOUND}"),
        "-server.grpc-max-recv-msg-size-bytes=16777216".to_owned(),
        "-ring.store=file".to_owned(),
        format!("-ring.file.path={}", dir.path().join("ring").display()),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let freehold = Freehold::start(dir.path(), &flags).await;
    let explain = || freehold.process.log();
    let loaded = "freehold_ingester_loading{count=\"in_memory\"}";
    wait_for(explain, async || (freehold.metric(loaded).await == Some(0.0)).then_some(())).await;
    let before_kib = freehold.resources().peak_kib;
    let streams = half_sent(freehold.grpc, EACH).await;
    let refused = "freehold_server_refused_requests_total";
    wait_for(explain, async || (freehold.metric(refused).await? >= 98.0).then_some(())).await;
    let mut after = Vec::new();
    for (mut stream, rest) in streams {
        stream.send_bytes(rest);
        after.push(stream);
    }
    for stream in &mut after {
        let answer = stream.answer().await.expect("an answer");
        assert!([200, 503].contains(&answer.code), "{answer:?}");
    }
    for (at, stream) in after.iter_mut().enumerate() {
        assert_eq!(stream.exchange([at as u64]).await.code, 200);
    }
    let grown_kib = freehold.resources().peak_kib - before_kib;
    println!("{grown_kib} KiB more at the peak");
    let bound_kib = (BOUND as u64 >> 10) + WINDOWS_KIB + SLACK_KIB;
    assert!(grown_kib <= bound_kib, "{grown_kib} of {bound_kib} KiB");
}
