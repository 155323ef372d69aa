//! Upstreams that are down, silent, killed, restarted or shutting down.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use freehold::units::Millis;
use freehold::upstream::config::UpstreamConfig;
use h2::Reason;
use h2::server::SendResponse;
use http::Request;
use tokio::net::TcpListener;

use super::fake::{
    Client, Edge, Fake, Speech, answer_ok, channel, config, finish, framed, head, head_with,
    ok_head, patiently, piece,
};
use super::{HEALTH, QUERY};
use crate::faults::{Faults, Proxy, Side};
use crate::ports::Port;

#[tokio::test]
async fn an_upstream_that_is_down_is_named_at_once_and_tried_again_later() {
    // Nobody listens there yet.
    let port = Port::new();
    let address = port.address;
    let mut config = config(address);
    config.connect_backoff_base_delay = Millis(50);
    let edge = Edge::with(&config).await;
    assert!(!edge.upstream.is_reachable(), "nobody has tried");
    let mut client = Client::connect(edge.address).await;
    let asked = Instant::now();
    for _ in 0..20 {
        let answer = client.call(head(QUERY), framed(b"query")).await;
        assert_eq!(answer.code(), "14", "UNAVAILABLE");
        let text = answer.text();
        assert!(text.starts_with(&format!("upstream {address} cannot be reached: ")), "{text}");
    }
    assert!(asked.elapsed() < Duration::from_secs(5), "no call waits for the next dial");
    assert!(!edge.upstream.is_reachable());

    let _fake = Fake::speaking(Speech::default(), address, answer_ok).await;
    patiently(async {
        while client.call(head(QUERY), framed(b"query")).await.code() != "0" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(edge.upstream.is_reachable());
}

#[tokio::test]
async fn an_upstream_that_answers_nothing_holds_a_call_until_its_deadline() {
    let fake = Fake::start(
        |request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>| async move {
            let mut send = None;
            if request.uri().path() == QUERY {
                let mut open = respond.send_response(ok_head(), false).expect("send");
                open.send_data(framed(b"first"), false).expect("send");
                send = Some(open);
            }
            std::future::pending::<()>().await;
            drop((send, request));
        },
    )
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    for path in [HEALTH, QUERY] {
        let asked = Instant::now();
        let answer = client.call(head_with(path, "grpc-timeout", "300m"), framed(b"")).await;
        assert_eq!(answer.code(), "4", "{path}: DEADLINE_EXCEEDED");
        assert!(asked.elapsed() >= Duration::from_millis(300), "{path}: not before its time");
    }
}

#[tokio::test]
async fn a_dial_that_nobody_answers_ends_with_the_deadline_or_its_own() {
    // Accepted by the system, and never spoken to.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = silent.local_addr().expect("bound");
    let edge = Edge::with(&UpstreamConfig {
        connect_timeout: Millis(400),
        connect_backoff_base_delay: Millis(60_000),
        connect_backoff_max_delay: Millis(60_000),
        ..config(address)
    })
    .await;
    let mut client = Client::connect(edge.address).await;
    let answer = client.call(head_with(QUERY, "grpc-timeout", "100m"), framed(b"")).await;
    assert_eq!(answer.code(), "4", "the call's deadline comes first");
    let answer = client.call(head(QUERY), framed(b"")).await;
    assert_eq!(answer.code(), "14");
    let expect = format!("upstream {address} cannot be reached: no connection within 400 ms");
    assert_eq!(answer.text(), expect);
}

#[tokio::test]
async fn an_answer_that_is_cut_off_never_ends_well() {
    let (tell, mut told) = channel();
    let fake =
        Fake::start(move |request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>| {
            let tell = tell.clone();
            async move {
                let mut send = respond.send_response(ok_head(), false).expect("send");
                send.send_data(framed(b"first"), false).expect("send");
                tell(());
                std::future::pending::<()>().await;
                drop((send, request));
            }
        })
        .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    // One with its request whole, one that still sends.
    let mut streams = Vec::new();
    for is_sent in [true, false] {
        let mut open = client.open(head(QUERY)).await;
        open.send.send_data(framed(b"query"), is_sent).expect("send");
        patiently(told.recv()).await;
        let mut response = patiently(open.response).await.expect("response");
        assert_eq!(piece(response.body_mut()).await, framed(b"first"));
        streams.push((response, open.send));
    }
    let mut waiting = client.open(head("/a.B/C")).await;
    waiting.send.send_data(framed(b""), true).expect("send");
    let address = fake.address;
    drop(fake);
    for (response, send) in streams {
        let ended = finish(response).await;
        assert_eq!(ended.code(), "14", "UNAVAILABLE");
        assert!(ended.trailers.is_some());
        let text = ended.text();
        assert!(text.starts_with(&format!("the connection to upstream {address} broke")), "{text}");
        drop(send);
    }
    let ended = finish(patiently(waiting.response).await.expect("response")).await;
    assert_eq!(ended.code(), "14");
}

#[tokio::test]
async fn a_call_that_the_upstream_resets_ends_as_grpc_go_would_say_it() {
    let fake = Fake::start(
        |request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>| async move {
            let reason = match request.uri().path() {
                "/a.B/Refused" => Reason::REFUSED_STREAM,
                "/a.B/Cancel" => Reason::CANCEL,
                "/a.B/Calm" => Reason::ENHANCE_YOUR_CALM,
                _ => Reason::INTERNAL_ERROR,
            };
            if request.uri().query().is_some() {
                let mut send = respond.send_response(ok_head(), false).expect("send");
                send.send_data(framed(b"first"), false).expect("send");
                let _ = std::future::poll_fn(|cx| {
                    send.reserve_capacity(1);
                    send.poll_capacity(cx)
                })
                .await;
                send.send_reset(reason);
            } else {
                respond.send_reset(reason);
            }
        },
    )
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    for (path, code) in
        [("/a.B/Refused", "14"), ("/a.B/Cancel", "1"), ("/a.B/Calm", "8"), ("/a.B/Other", "13")]
    {
        for query in ["", "?mid-stream"] {
            let answer = client.call(head(&format!("{path}{query}")), framed(b"")).await;
            assert_eq!(answer.code(), code, "{path}{query}: {}", answer.text());
            assert!(answer.text().contains("reset the call"), "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn an_upstream_that_shuts_down_in_order_is_redialled_and_no_call_is_lost() {
    let speech = Speech { calls_per_connection: Some(3), ..Speech::default() };
    let fake = Fake::speaking(speech, ([127, 0, 0, 1], 0).into(), answer_ok).await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    let mut lost = 0;
    for _ in 0..60 {
        let answer = client.call(head(QUERY), framed(b"query")).await;
        // A call may cross the upstream's word on the wire; what was refused is said to be.
        lost += usize::from(answer.code() != "0");
    }
    assert_eq!(lost, 0);
    assert!(fake.connections.load(Ordering::SeqCst) >= 20);
    assert!(edge.upstream.is_reachable());
}

#[tokio::test]
async fn a_connection_that_went_silent_is_given_up_by_its_pings() {
    let (tell, mut told) = channel();
    // A proxy that can stop moving bytes, as a cut cable does.
    let fake = Fake::start(answer_ok).await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = proxy.local_addr().expect("bound");
    let (cut, is_cut) = tokio::sync::watch::channel(false);
    let behind = fake.address;
    tokio::spawn(async move {
        loop {
            let (mut near, _) = proxy.accept().await.expect("accept");
            tell(());
            let mut far = tokio::net::TcpStream::connect(behind).await.expect("connect");
            let mut is_cut = is_cut.clone();
            tokio::spawn(async move {
                let cut = async { is_cut.wait_for(|is_cut| *is_cut).await.is_ok() };
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
                    _ = cut => {}
                }
                // Both ends stay open, and nothing moves.
                std::future::pending::<()>().await;
            });
        }
    });
    let edge = Edge::with(&UpstreamConfig {
        keepalive_time: Millis(100),
        keepalive_timeout: Millis(200),
        connect_timeout: Millis(300),
        ..config(address)
    })
    .await;
    let mut client = Client::connect(edge.address).await;
    // On a busy machine these pings may take a connection for silent that is not.
    patiently(async {
        while client.call(head(QUERY), framed(b"")).await.code() != "0" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    patiently(told.recv()).await;
    cut.send_replace(true);
    // No deadline: only the pings can end it.
    let answer = client.call(head(QUERY), framed(b"")).await;
    assert_eq!(answer.code(), "14", "{}", answer.text());
    cut.send_replace(false);
    patiently(async {
        while client.call(head(QUERY), framed(b"")).await.code() != "0" {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// With keepalive's defaults, which alone need half a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_is_replaced_soon_after_a_call_passed_its_deadline() {
    let fake = Fake::start(answer_ok).await;
    let proxy = Proxy::start(fake.address).await;
    let edge = Edge::before(proxy.address).await;
    let mut client = Client::connect(edge.address).await;
    assert_eq!(client.call(head(QUERY), framed(b"")).await.code(), "0");
    proxy.vanish(Side::Server);
    let began = Instant::now();
    let call = || head_with(QUERY, "grpc-timeout", "200m");
    patiently(async {
        // What is under way may be a moment ahead of the loss.
        while client.call(call(), framed(b"")).await.code() == "0" {
            tokio::task::yield_now().await;
        }
        // Calls end at their deadlines until the connection is given up, and then one does well.
        while client.call(call(), framed(b"")).await.code() != "0" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(fake.connections.load(Ordering::SeqCst), 2, "one new connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_of_one_way_is_noticed_and_its_end_too() {
    let fake = Fake::start(answer_ok).await;
    let proxy = Proxy::start(fake.address).await;
    let edge =
        Edge::with(&UpstreamConfig { connect_timeout: Millis(500), ..config(proxy.address) }).await;
    let mut client = Client::connect(edge.address).await;
    for stalls_to_server in [true, false] {
        let call = head_with(QUERY, "grpc-timeout", "10S");
        assert_eq!(client.call(call, framed(b"")).await.code(), "0");
        proxy.set(Faults {
            stalls_to_server,
            stalls_to_client: !stalls_to_server,
            ..Faults::default()
        });
        let began = Instant::now();
        patiently(async {
            while edge.upstream.is_reachable() {
                let call = head_with(QUERY, "grpc-timeout", "200m");
                assert_ne!(client.call(call, framed(b"")).await.code(), "0");
            }
        })
        .await;
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        proxy.heal();
        patiently(async {
            let call = || head_with(QUERY, "grpc-timeout", "2S");
            while client.call(call(), framed(b"")).await.code() != "0" {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
}

/// A process whose handlers are stuck answers pings all the same, and other calls may do well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_is_only_slow_keeps_its_connection() {
    let (tell, mut told) = channel();
    let fake = Fake::start(move |request: Request<_>, respond: SendResponse<Bytes>| {
        let tell = tell.clone();
        async move {
            if request.uri().path() == "/a.B/Slow" {
                tell(());
                // Longer than a silent connection would be left open.
                tokio::time::sleep(Duration::from_secs(5)).await;
            } else if request.uri().path() == "/a.B/Stuck" {
                std::future::pending::<()>().await;
            }
            answer_ok(request, respond).await;
        }
    })
    .await;
    let edge = Edge::before(fake.address).await;
    let mut client = Client::connect(edge.address).await;
    let mut slow = client.open(head("/a.B/Slow")).await;
    slow.send.send_data(framed(b""), true).expect("send");
    patiently(told.recv()).await.expect("called");
    for _ in 0..20 {
        let call = head_with("/a.B/Stuck", "grpc-timeout", "100m");
        assert_ne!(client.call(call, framed(b"")).await.code(), "0");
    }
    let answer = finish(patiently(slow.response).await.expect("a response")).await;
    assert_eq!(answer.code(), "0", "{}", answer.text());
    assert_eq!(fake.connections.load(Ordering::SeqCst), 1);
}
