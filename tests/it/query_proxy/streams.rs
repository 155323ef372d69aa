//! Long bodies: what is on its way between a sender and a reader stays small.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::front::{FRONTS, Front, Running};
use super::wire::{A_WHILE, Stub, Wire};

const STREAM_BYTES: u64 = 1 << 30;
static CHUNK: [u8; 64 << 10] = [b'x'; 64 << 10];
/// What the gate itself may hold of a stream: read buffers, write buffers, and a few pieces.
const HELD_MAX: u64 = 2 << 20;

/// What may be between one who sends and one who does not read: what the system lets the buffers
/// of four sockets grow to, and what the gate holds.
fn between_max() -> u64 {
    let most = |name: &str| -> u64 {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let text = std::fs::read_to_string(path).expect("the system's bounds");
        text.split_whitespace().nth(2).expect("three numbers").parse().expect("a number")
    };
    2 * (most("tcp_rmem") + most("tcp_wmem")) + HELD_MAX
}

/// Sends the stream, and counts what was taken of it.
async fn send(wire: &mut Wire, sent: &AtomicU64) {
    while sent.load(Ordering::Relaxed) < STREAM_BYTES && wire.write_patiently(&CHUNK).await {
        sent.fetch_add(CHUNK.len() as u64, Ordering::Relaxed);
    }
}

/// Waits until the sender is stuck; how much is between it and the reader then.
async fn stuck(sent: &AtomicU64, read: u64) -> u64 {
    loop {
        let before = sent.load(Ordering::Relaxed);
        tokio::time::sleep(A_WHILE).await;
        let now = sent.load(Ordering::Relaxed);
        if now == before && now > read {
            return now - read;
        }
    }
}

/// Reads the stream with pauses, in each of which what is between both is looked at.
async fn read(wire: &mut Wire, sent: &AtomicU64) {
    let (mut read, between_max) = (0, between_max());
    assert!(between_max < STREAM_BYTES / 2, "this would show nothing");
    while read < STREAM_BYTES {
        if read % (STREAM_BYTES / 4) == 0 && read < STREAM_BYTES / 2 {
            let between = stuck(sent, read).await;
            assert!(between < between_max, "{between} bytes on their way after {read}");
        }
        assert!(wire.skip(CHUNK.len()).await, "it broke off after {read}");
        read += CHUNK.len() as u64;
    }
}

fn head(start: &str) -> String {
    format!("{start}\r\nHost: g\r\nContent-Length: {STREAM_BYTES}\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_a_gibibyte_is_never_held() {
    for front in FRONTS {
        answer(front).await;
    }
}

async fn answer(front: Front) {
    let sent = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&sent);
    let stub = Stub::start(move |mut wire, notes, _| {
        let sent = Arc::clone(&counting);
        async move {
            notes.add(wire.request().await.expect("a request"));
            wire.write(head("HTTP/1.1 200 OK").as_bytes()).await;
            send(&mut wire, &sent).await;
            wire.is_closed().await;
        }
    })
    .await;
    let running = front.start(stub.url()).await;
    let mut wire = running.connect().await;
    wire.write(running.request("GET /g HTTP/1.1\r\nHost: g\r\n\r\n").as_bytes()).await;
    let told = wire.head().await.expect("a head");
    assert!(told.contains(&format!("content-length: {STREAM_BYTES}")), "{told}");
    read(&mut wire, &sent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_a_gibibyte_is_never_held() {
    for front in FRONTS {
        request(front).await;
    }
}

async fn request(front: Front) {
    let sent = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&sent);
    let stub = Stub::start(move |mut wire, notes, _| {
        let sent = Arc::clone(&counting);
        async move {
            let seen = wire.head().await.expect("a request");
            assert!(seen.contains(&format!("content-length: {STREAM_BYTES}")), "{seen}");
            read(&mut wire, &sent).await;
            notes.add(Default::default());
            wire.write(super::wire::OK.as_bytes()).await;
            wire.is_closed().await;
        }
    })
    .await;
    let running = front.start(stub.url()).await;
    let mut wire = running.connect().await;
    wire.write(running.request(&head("POST /p HTTP/1.1")).as_bytes()).await;
    send(&mut wire, &sent).await;
    assert_eq!(wire.answer("POST").await.expect("an answer").status, 200);
    assert_eq!(stub.seen().len(), 1, "it was read to its end");
}

#[tokio::test]
async fn an_answer_before_the_bodys_end_is_heard() {
    let answer = "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";
    for front in FRONTS {
        let stub = Stub::start(move |mut wire: Wire, _, _| async move {
            wire.head().await.expect("a request");
            wire.write(answer.as_bytes()).await;
            wire.is_closed().await;
        })
        .await;
        let running: Running = front.start(stub.url()).await;
        let mut wire = running.connect().await;
        wire.write(running.request(&head("POST /p HTTP/1.1")).as_bytes()).await;
        wire.write(&CHUNK).await;
        let answer = wire.answer("POST").await.expect("an answer");
        assert_eq!((answer.status, answer.text()), (413, "no"), "{front:?}");
    }
}
