//! A TCP proxy that misbehaves when told to: delay, a direction that stalls, one side gone without
//! a word, connections cut in mid-stream, or none taken.
//!
//! Faults that last are set and healed; strikes hit the connections that are open at that moment.
//! What must hold: without a fault every byte arrives in order and a close is passed on; dropping
//! the proxy ends everything it had open.

mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::SmallRng;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Bytes that are carried, and delayed, together.
const PIECE_BYTES: usize = 16 * 1024;

/// What lasts until it is healed. The default is a sound network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Each piece of either direction waits this long.
    pub delay: Duration,
    /// What is lost for a while: nothing arrives, nothing is refused. One of the two alone is a
    /// partition of one way.
    pub stalls_to_server: bool,
    pub stalls_to_client: bool,
    /// New connections are reset.
    pub refuses: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

/// What befalls every open connection at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strike {
    Reset,
    /// One side is gone and the other is not told: its connection is half open.
    Vanish(Side),
}

pub struct Proxy {
    pub address: SocketAddr,
    faults: watch::Sender<Faults>,
    strikes: watch::Sender<Option<Strike>>,
    target: Arc<Mutex<SocketAddr>>,
    open: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

/// What each connection is carried by.
#[derive(Clone)]
struct Way {
    faults: watch::Receiver<Faults>,
    strikes: watch::Receiver<Option<Strike>>,
    target: Arc<Mutex<SocketAddr>>,
    open: Arc<AtomicUsize>,
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (faults, faults_seen) = watch::channel(Faults::default());
        let (strikes, strikes_seen) = watch::channel(None);
        let target = Arc::new(Mutex::new(target));
        let open = Arc::new(AtomicUsize::new(0));
        let way = Way {
            faults: faults_seen,
            strikes: strikes_seen,
            target: Arc::clone(&target),
            open: Arc::clone(&open),
        };
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, way));
        Self { address, faults, strikes, target, open, _accepting: accepting }
    }

    /// New connections go to this address from now on.
    pub fn aim(&self, target: SocketAddr) {
        *self.target.lock().expect("no panic under this lock") = target;
    }

    pub fn set(&self, faults: Faults) {
        self.faults.send_replace(faults);
    }

    pub fn heal(&self) {
        self.set(Faults::default());
    }

    /// Both sides of every open connection see a reset, in the middle of whatever it carries.
    pub fn reset_all(&self) {
        self.strikes.send_replace(Some(Strike::Reset));
    }

    /// One side of every open connection is gone; the other hears nothing more, ever.
    pub fn vanish(&self, side: Side) {
        self.strikes.send_replace(Some(Strike::Vanish(side)));
    }

    /// One fault of those that there are, by the dice. One that lasts does until it is healed.
    pub fn misbehave(&self, rng: &mut SmallRng) {
        let mut faults = Faults::default();
        match rng.random_range(0..8) {
            0 => faults.delay = Duration::from_millis(rng.random_range(5..300)),
            1 => faults.stalls_to_server = true,
            2 => faults.stalls_to_client = true,
            3 => (faults.stalls_to_server, faults.stalls_to_client) = (true, true),
            4 => self.reset_all(),
            5 => self.vanish(Side::Server),
            6 => self.vanish(Side::Client),
            _ => {
                faults.refuses = true;
                self.reset_all();
            }
        }
        self.set(faults);
    }

    /// Connections that are carried or left half open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, way: Way) {
    // Its connections end with this task.
    let mut carried = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while carried.try_join_next().is_some() {}
        if way.faults.borrow().refuses {
            reset(client);
            continue;
        }
        let mut way = way.clone();
        // Only strikes from here on hit this connection.
        way.strikes.mark_unchanged();
        carried.spawn(async move {
            way.open.fetch_add(1, Ordering::Relaxed);
            carry(client, &mut way).await;
            way.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn carry(mut client: TcpStream, way: &mut Way) {
    let target = *way.target.lock().expect("no panic under this lock");
    let Ok(mut server) = TcpStream::connect(target).await else {
        reset(client);
        return;
    };
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("an open connection");
    }
    let strike = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let (up, down) = (way.faults.clone(), way.faults.clone());
        let pumps = async {
            tokio::try_join!(
                pump(from_client, to_server, up, |faults| faults.stalls_to_server),
                pump(from_server, to_client, down, |faults| faults.stalls_to_client),
            )
        };
        // Losing the pumps in mid-piece is what a strike does.
        tokio::select! {
            outcome = pumps => match outcome {
                Ok(_) => return,
                Err(_) => Strike::Reset,
            },
            strike = next_strike(&mut way.strikes) => strike,
        }
    };
    let mut left = match strike {
        Strike::Reset => {
            reset(client);
            reset(server);
            return;
        }
        Strike::Vanish(Side::Client) => {
            reset(client);
            server
        }
        Strike::Vanish(Side::Server) => {
            reset(server);
            client
        }
    };
    // Whoever is left may send what it likes until it gives up.
    let mut piece = vec![0; PIECE_BYTES];
    while left.read(&mut piece).await.is_ok_and(|bytes| bytes > 0) {}
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut faults: watch::Receiver<Faults>,
    stalls: impl Fn(&Faults) -> bool,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let bytes = from.read(&mut piece).await?;
        // A close travels like any piece.
        let delay = faults.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let flowing = faults.wait_for(|faults| !stalls(faults)).await.is_ok();
        if !flowing || bytes == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..bytes]).await?;
    }
}

async fn next_strike(strikes: &mut watch::Receiver<Option<Strike>>) -> Strike {
    while strikes.changed().await.is_ok() {
        if let Some(strike) = *strikes.borrow_and_update() {
            return strike;
        }
    }
    // The proxy is being dropped, and this task with it.
    std::future::pending().await
}

/// Closes with a reset in place of an orderly end.
fn reset(stream: TcpStream) {
    // One that is closed already needs no more.
    let _ = stream.set_zero_linger();
}
