//! Over real sockets: what a member of Cortex sends, and what goes wrong on the way.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair, SanType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::*;

/// Longest that any step of a test may take.
const PATIENCE: Duration = Duration::from_secs(10);

fn config() -> TransportConfig {
    TransportConfig {
        bind_addr: vec!["127.0.0.1".into()],
        bind_port: 0,
        packet_dial_timeout: Millis(2000),
        packet_write_timeout: Millis(500),
        packet_read_timeout: Millis(2000),
        ..Default::default()
    }
}

async fn bind(config: &TransportConfig) -> (Transport, Inbound) {
    Transport::bind(config, None).await.expect("bound")
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("in time")
}

/// Waits until `count` has reached `value`.
#[track_caller]
fn reaches(transport: &Transport, count: Count, value: u64) -> impl Future<Output = ()> + use<'_> {
    let place = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + PATIENCE;
        while transport.metrics().value(count) < value {
            assert!(Instant::now() < deadline, "{place}: {count:?} stays below {value}");
            sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(transport.metrics().value(count), value, "{place}: {count:?}");
    }
}

/// What Cortex writes for a packet.
fn framed(from: &str, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(from.len()).expect("short");
    let digest = Md5::digest(payload);
    [&[1, length][..], from.as_bytes(), payload, &digest[..]].concat()
}

async fn write(to: SocketAddr, bytes: &[u8], piece: usize) {
    let mut stream = TcpStream::connect(to).await.expect("connected");
    stream.set_nodelay(true).expect("set");
    for piece in bytes.chunks(piece) {
        // It may have been closed on us already.
        if stream.write_all(piece).await.is_err() {
            return;
        }
    }
    let _ = stream.shutdown().await;
}

#[tokio::test]
async fn packets_go_there_and_back() {
    let (one, mut of_one) = bind(&config()).await;
    let (two, mut of_two) = bind(&config()).await;
    for number in 0..100_u8 {
        one.send(two.advertised(), Bytes::from(vec![number; 1000]));
    }
    for number in 0..100_u8 {
        let received = soon(of_two.packets.recv()).await.expect("open");
        if usize::from(number) < QUEUED_PER_PEER_MAX {
            assert_eq!(received.bytes, vec![number; 1000], "in their order");
        }
        assert_eq!(received.from, one.advertised());
        two.send(received.from, received.bytes);
        if one.metrics().value(Count::PacketsDropped) + u64::from(number) == 99 {
            break;
        }
    }
    let received = soon(of_one.packets.recv()).await.expect("open");
    assert_eq!(received.from, two.advertised());
    assert!(soon(one.drained(PATIENCE)).await);
    assert_eq!(one.metrics().value(Count::PacketsSent), 100);
    assert_eq!(one.metrics().value(Count::PacketsSentErrors), 0);
    assert_eq!(one.metrics().value(Count::PacketsSentBytes), 100_000);
}

#[tokio::test]
async fn packets_come_however_they_are_torn() {
    let (transport, mut inbound) = bind(&config()).await;
    let to = transport.advertised();
    let bytes = framed("10.0.0.1:7946", b"hello");
    for piece in [1, 3, 1000] {
        write(to, &bytes, piece).await;
        let received = soon(inbound.packets.recv()).await.expect("open");
        assert_eq!(received.bytes, "hello");
        assert_eq!(received.from, "10.0.0.1:7946".parse().expect("an address"));
    }
    reaches(&transport, Count::PacketsReceivedBytes, 15).await;
    // Who does not say who he is, is answered where he came from.
    write(to, &framed("nobody", b"x"), 1000).await;
    let received = soon(inbound.packets.recv()).await.expect("open");
    assert!(received.from.ip().is_loopback());
    let mut families = crate::exposition::Families::default();
    transport.metrics().read_metrics(&mut families);
    assert_eq!(families.into_vec().len(), 16);
}

#[tokio::test]
async fn packets_that_are_damaged_are_counted_and_lost() {
    let config = TransportConfig { max_packet_size: 100, ..config() };
    let (transport, mut inbound) = bind(&config).await;
    let to = transport.advertised();
    let good = framed("10.0.0.1:7946", b"hello");
    for end in [1, 2, 5, 15, 20, good.len() - 1] {
        write(to, &good[..end], 1000).await;
    }
    let mut other = good.clone();
    other[16] ^= 1;
    write(to, &other, 1000).await;
    reaches(&transport, Count::PacketsReceivedErrors, 7).await;
    // 84 bytes and their digest are just right.
    write(to, &framed("a", &[7; 85]), 1000).await;
    reaches(&transport, Count::PacketsReceivedErrors, 8).await;
    write(to, &framed("a", &[7; 84]), 1000).await;
    assert_eq!(soon(inbound.packets.recv()).await.expect("open").bytes, vec![7; 84]);
    assert_eq!(transport.metrics().value(Count::PacketsReceived), 9);
    write(to, b"GET / HTTP/1.1\r\n\r\n", 1000).await;
    write(to, b"", 1000).await;
    reaches(&transport, Count::UnknownConnections, 2).await;
    assert!(inbound.packets.try_recv().is_err());
}

#[tokio::test]
async fn who_says_nothing_for_long_is_left() {
    let config = TransportConfig {
        packet_read_timeout: Millis(150),
        max_concurrent_connections: 2,
        ..config()
    };
    let (transport, mut inbound) = bind(&config).await;
    let to = transport.advertised();
    let mut silent = TcpStream::connect(to).await.expect("connected");
    let mut slow = TcpStream::connect(to).await.expect("connected");
    slow.write_all(&framed("10.0.0.1:7946", b"hello")[..20]).await.expect("written");
    // Both places are taken; a third is closed at once.
    let deadline = Instant::now() + PATIENCE;
    while transport.metrics().active_connections() < 2 {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(1)).await;
    }
    let mut third = TcpStream::connect(to).await.expect("connected");
    assert!(matches!(soon(third.read(&mut [0; 8])).await, Ok(0) | Err(_)));
    reaches(&transport, Count::RejectedConnections, 1).await;
    for stream in [&mut silent, &mut slow] {
        assert!(matches!(soon(stream.read(&mut [0; 8])).await, Ok(0) | Err(_)));
    }
    reaches(&transport, Count::UnknownConnections, 1).await;
    reaches(&transport, Count::PacketsReceivedErrors, 1).await;
    write(to, &framed("10.0.0.1:7946", b"later"), 1000).await;
    assert_eq!(soon(inbound.packets.recv()).await.expect("open").bytes, "later");
}

/// All places are held by one address that says nothing, or says what it is and no more.
#[tokio::test]
async fn who_holds_all_connections_makes_us_deaf_to_nobody_else() {
    let config = TransportConfig {
        packet_read_timeout: Millis(60_000),
        max_concurrent_connections: 32,
        ..config()
    };
    let (transport, mut inbound) = bind(&config).await;
    let to = transport.advertised();
    let mut crowd = Vec::new();
    for number in 0..40 {
        let mut stream = TcpStream::connect(to).await.expect("connected");
        if number % 2 == 0 {
            // It may be one of the eight that are closed at once.
            let _ = stream.write_all(&[[PACKET], [STREAM]][number / 2 % 2]).await;
        }
        crowd.push(stream);
    }
    reaches(&transport, Count::RejectedConnections, 8).await;
    for number in 1..=20_u8 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.2:0".parse().expect("an address")).expect("bound");
        let mut member = socket.connect(to).await.expect("connected");
        member.write_all(&framed("127.0.0.2:1", &[number])).await.expect("taken");
        member.shutdown().await.expect("ended");
        let received = soon(inbound.packets.recv()).await.expect("open");
        assert_eq!(received.bytes, [number][..]);
    }
    let crowding = transport.metrics().value(Count::RefusedCrowding);
    assert!((1..=20).contains(&crowding), "{crowding}");
    assert_eq!(transport.metrics().value(Count::RejectedConnections), 8);
}

#[tokio::test]
async fn a_connection_that_says_nothing_ends_long_before_a_slow_packet_does() {
    let config = TransportConfig { packet_read_timeout: Millis(60_000), ..config() };
    let (transport, mut inbound) = bind(&config).await;
    let mut slow = TcpStream::connect(transport.advertised()).await.expect("connected");
    let bytes = framed("10.0.0.1:7946", b"hello");
    slow.write_all(&bytes[..1]).await.expect("written");
    let mut silent = TcpStream::connect(transport.advertised()).await.expect("connected");
    assert!(matches!(soon(silent.read(&mut [0; 8])).await, Ok(0) | Err(_)));
    slow.write_all(&bytes[1..]).await.expect("still open");
    slow.shutdown().await.expect("ended");
    assert_eq!(soon(inbound.packets.recv()).await.expect("open").bytes, "hello");
}

#[tokio::test]
async fn a_dead_member_holds_up_nobody_and_nothing_without_end() {
    let (transport, _inbound) = bind(&config()).await;
    // Takes connections, as the kernel does for it, and never reads.
    let dead = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
    let dead = dead.local_addr().map(|address| (dead, address)).expect("bound");
    let (alive, mut inbound) = bind(&config()).await;
    let large = Bytes::from(vec![1; 4 << 20]);
    for _ in 0..20 {
        transport.send(dead.1, large.clone());
    }
    // 32 MiB wait at most; a packet may be under way meanwhile.
    let dropped = transport.metrics().value(Count::PacketsDropped);
    assert!((11..=13).contains(&dropped), "{dropped}");
    sleep(Duration::from_millis(20)).await;
    let started = Instant::now();
    transport.send(alive.advertised(), Bytes::from_static(b"hello"));
    let received = soon(inbound.packets.recv()).await.expect("open");
    assert_eq!(received.bytes, "hello");
    assert!(started.elapsed() < Duration::from_millis(400), "{:?}", started.elapsed());
    // After one time-out the rest is dropped with it.
    assert!(soon(transport.drained(PATIENCE)).await);
    reaches(&transport, Count::PacketsSentErrors, 20 - dropped).await;
}

#[tokio::test]
async fn a_member_that_refuses_costs_nothing() {
    let (transport, _inbound) = bind(&config()).await;
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
    let address = gone.local_addr().expect("bound");
    drop(gone);
    for _ in 0..10 {
        transport.send(address, Bytes::from_static(b"hello"));
    }
    assert!(soon(transport.drained(PATIENCE)).await);
    reaches(&transport, Count::PacketsSentErrors, 10).await;
    let error = transport.dial_stream(address, PATIENCE).await.expect_err("refused");
    assert!(matches!(error, DialError::Connect { .. }), "{error:?}");
    assert_eq!(transport.metrics().value(Count::OutgoingStreamErrors), 1);
}

async fn converse(one: &Transport, two: &Transport, of_two: &mut Inbound) {
    let question = vec![5; 300_000];
    let mut asking = soon(one.dial_stream(two.advertised(), PATIENCE)).await.expect("dialled");
    let (asked, answered) = tokio::join!(
        async {
            soon(asking.write_all(&question)).await.expect("written");
            let mut answer = Vec::new();
            soon(asking.read_to_end(&mut answer)).await.expect("read");
            answer
        },
        async {
            let mut stream = soon(of_two.streams.recv()).await.expect("open");
            let mut read = vec![0; question.len()];
            soon(stream.connection.read_exact(&mut read)).await.expect("read");
            soon(stream.connection.write_all(b"well")).await.expect("written");
            soon(stream.connection.finish()).await.expect("finished");
            read
        }
    );
    assert_eq!((asked, answered), (b"well".to_vec(), question.clone()));
}

#[tokio::test]
async fn streams_are_handed_over_and_hold_their_place() {
    let narrow = TransportConfig { max_concurrent_connections: 1, ..config() };
    let (one, _of_one) = bind(&config()).await;
    let (two, mut of_two) = bind(&narrow).await;
    converse(&one, &two, &mut of_two).await;
    let held = one.dial_stream(two.advertised(), PATIENCE).await.expect("dialled");
    let stream = soon(of_two.streams.recv()).await.expect("open");
    write(two.advertised(), &framed("a", b"no"), 1000).await;
    reaches(&two, Count::RejectedConnections, 1).await;
    drop((held, stream));
    write(two.advertised(), &framed("a", b"yes"), 1000).await;
    assert_eq!(soon(of_two.packets.recv()).await.expect("open").bytes, "yes");
    assert_eq!(two.metrics().value(Count::IncomingStreams), 2);
}

/// Files of an authority's member for 127.0.0.1, or for another name.
struct Papers {
    authority: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

impl Papers {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("signed");
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("ca.pem"), authority.pem()).expect("written");
        Self { authority, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A transport's settings with a certificate of this authority, which trusts `ca`.
    fn config(&self, ca: &Path, verify_peers: bool) -> TransportConfig {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.authority).expect("signed");
        std::fs::write(self.path("cert.pem"), certificate.pem()).expect("written");
        std::fs::write(self.path("key.pem"), key.serialize_pem()).expect("written");
        TransportConfig {
            tls_enabled: true,
            tls_cert_path: self.path("cert.pem"),
            tls_key_path: self.path("key.pem"),
            tls_ca_path: ca.to_owned(),
            tls_verify_peers: verify_peers,
            ..config()
        }
    }
}

#[tokio::test]
async fn members_speak_under_tls_and_strangers_do_not() {
    let (ours, others) = (Papers::new(), Papers::new());
    let (one, mut of_one) = bind(&ours.config(&ours.path("ca.pem"), true)).await;
    let (two, mut of_two) = bind(&ours.config(&ours.path("ca.pem"), true)).await;
    for number in 0..20_u8 {
        one.send(two.advertised(), Bytes::from(vec![number; 50_000]));
    }
    for number in 0..20_u8 {
        let received = soon(of_two.packets.recv()).await.expect("open");
        assert_eq!(received.bytes, vec![number; 50_000]);
    }
    converse(&one, &two, &mut of_two).await;
    assert_eq!(one.metrics().value(Count::PacketsSentErrors), 0);

    // Another authority's member: we do not believe it, nor it us.
    let (stranger, mut of_stranger) = bind(&others.config(&others.path("ca.pem"), false)).await;
    one.send(stranger.advertised(), Bytes::from_static(b"hello"));
    reaches(&one, Count::PacketsSentErrors, 1).await;
    reaches(&stranger, Count::RefusedCertificate, 1).await;
    // It believes us, but cannot show what we ask of it.
    let (spy, _of_spy) = bind(&others.config(&ours.path("ca.pem"), false)).await;
    spy.send(one.advertised(), Bytes::from_static(b"hello"));
    reaches(&one, Count::RefusedCertificate, 1).await;
    // One that speaks plainly.
    let (plain, _of_plain) = bind(&config()).await;
    plain.send(one.advertised(), Bytes::from_static(b"hello"));
    reaches(&one, Count::RefusedCertificate, 2).await;
    assert!(of_stranger.packets.try_recv().is_err());
    assert!(of_one.packets.try_recv().is_err());
}

#[tokio::test]
async fn without_a_check_of_peers_any_caller_is_heard_as_in_cortex() {
    let (ours, others) = (Papers::new(), Papers::new());
    let (one, mut of_one) = bind(&ours.config(&ours.path("ca.pem"), false)).await;
    let (spy, _of_spy) = bind(&others.config(&ours.path("ca.pem"), false)).await;
    spy.send(one.advertised(), Bytes::from_static(b"hello"));
    assert_eq!(soon(of_one.packets.recv()).await.expect("open").bytes, "hello");
    assert!(one.tls().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_log_hears_of_strangers_once_in_a_while() {
    let seldom = strangers::Seldom::default();
    assert!(seldom.is_due());
    assert!(!seldom.is_due());
    tokio::time::advance(LOG_INTERVAL).await;
    assert!(seldom.is_due());
    assert!(!seldom.is_due());
}
