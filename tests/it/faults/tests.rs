//! The proxy itself: what it is told to do is what both sides see.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Faults, Proxy, Side};

/// Longer than anything that works takes here.
const PATIENCE: Duration = Duration::from_secs(30);
/// For seeing that nothing happens.
const A_WHILE: Duration = Duration::from_millis(100);

/// Sends back what comes; tells how each connection ended.
struct Echo {
    ended: tokio::sync::mpsc::UnboundedReceiver<Option<ErrorKind>>,
    proxy: Proxy,
    _echoing: JoinSet<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let proxy = Proxy::start(listener.local_addr().expect("bound")).await;
        let (tell, ended) = tokio::sync::mpsc::unbounded_channel();
        let mut echoing = JoinSet::new();
        echoing.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let tell = tell.clone();
                open.spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let outcome = tokio::io::copy(&mut read, &mut write).await;
                    let _ = write.shutdown().await;
                    let _ = tell.send(outcome.err().map(|error| error.kind()));
                });
            }
        });
        Self { ended, proxy, _echoing: echoing }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address).await.expect("a connection")
    }

    async fn end(&mut self) -> Option<ErrorKind> {
        timeout(PATIENCE, self.ended.recv()).await.expect("in time").expect("it runs")
    }
}

async fn echoed(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).await.expect("sent");
    let mut back = vec![0; bytes.len()];
    timeout(PATIENCE, stream.read_exact(&mut back)).await.expect("in time").expect("back");
    assert_eq!(back, bytes);
}

#[tokio::test]
async fn without_faults_every_byte_and_the_close_arrive() {
    let mut echo = Echo::start().await;
    let mut stream = echo.connect().await;
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut read, mut write) = stream.split();
    let mut back = Vec::new();
    let (sent, _) = tokio::join!(
        async {
            write.write_all(&bytes).await?;
            write.shutdown().await
        },
        async { read.read_to_end(&mut back).await.expect("to the end") }
    );
    sent.expect("sent");
    assert!(back == bytes);
    assert_eq!(echo.end().await, None);
}

#[tokio::test]
async fn a_delay_is_waited_in_both_directions() {
    let echo = Echo::start().await;
    let mut stream = echo.connect().await;
    echoed(&mut stream, b"warm").await;
    echo.proxy.set(Faults { delay: Duration::from_millis(60), ..Faults::default() });
    let start = tokio::time::Instant::now();
    echoed(&mut stream, b"slow").await;
    assert!(start.elapsed() >= Duration::from_millis(120), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_stalled_direction_delivers_when_it_is_healed() {
    let echo = Echo::start().await;
    for to_server in [true, false] {
        let mut stream = echo.connect().await;
        echoed(&mut stream, b"warm").await;
        echo.proxy.set(Faults {
            stalls_to_server: to_server,
            stalls_to_client: !to_server,
            ..Faults::default()
        });
        stream.write_all(b"held").await.expect("the kernel takes it");
        let mut back = [0; 4];
        assert!(timeout(A_WHILE, stream.read_exact(&mut back)).await.is_err(), "{to_server}");
        echo.proxy.heal();
        // The read that was given up had nothing to lose.
        timeout(PATIENCE, stream.read_exact(&mut back)).await.expect("in time").expect("back");
        assert_eq!(&back, b"held");
    }
}

#[tokio::test]
async fn a_reset_is_seen_by_both_sides_and_later_connections_are_spared() {
    let mut echo = Echo::start().await;
    let mut stream = echo.connect().await;
    echoed(&mut stream, b"warm").await;
    echo.proxy.reset_all();
    let read = timeout(PATIENCE, stream.read_u8()).await.expect("in time");
    assert_eq!(read.expect_err("reset").kind(), ErrorKind::ConnectionReset);
    assert_eq!(echo.end().await, Some(ErrorKind::ConnectionReset));
    echoed(&mut echo.connect().await, b"fresh").await;
}

#[tokio::test]
async fn who_is_left_behind_hears_nothing() {
    let mut echo = Echo::start().await;
    let mut client = echo.connect().await;
    echoed(&mut client, b"warm").await;
    echo.proxy.vanish(Side::Server);
    assert_eq!(echo.end().await, Some(ErrorKind::ConnectionReset));
    client.write_all(b"anybody?").await.expect("the kernel takes it");
    assert!(timeout(A_WHILE, client.read_u8()).await.is_err());
    assert_eq!(echo.proxy.open(), 1);
    let mut gone = echo.connect().await;
    echoed(&mut gone, b"warm").await;
    echo.proxy.vanish(Side::Client);
    let read = timeout(PATIENCE, gone.read_u8()).await.expect("in time");
    assert_eq!(read.expect_err("reset").kind(), ErrorKind::ConnectionReset);
    assert!(timeout(A_WHILE, echo.ended.recv()).await.is_err(), "the server was not told");
}

#[tokio::test]
async fn refused_connections_are_reset_and_a_new_aim_is_taken() {
    let echo = Echo::start().await;
    echo.proxy.set(Faults { refuses: true, ..Faults::default() });
    let mut stream = echo.connect().await;
    let read = timeout(PATIENCE, stream.read_u8()).await.expect("in time");
    assert_eq!(read.expect_err("reset").kind(), ErrorKind::ConnectionReset);
    echo.proxy.heal();
    let other = Echo::start().await;
    echo.proxy.aim(other.proxy.address);
    echoed(&mut echo.connect().await, b"through two").await;
    assert_eq!(other.proxy.open(), 1);
}
