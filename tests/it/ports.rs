//! Ports that stay ours while nobody listens there.
//!
//! A port that was found free and let go, or whose listener was killed, may be another test's by
//! the time it is listened to again, or connected to in vain; then a test speaks with a stranger.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port of this host. Connections are refused until somebody listens there who asks for
/// `SO_REUSEADDR`, as tokio does and Go too; and again once that one is gone.
pub struct Port {
    pub address: SocketAddr,
    /// Bound, and never listening.
    _held: TcpSocket,
}

impl Port {
    pub fn new() -> Self {
        let held = TcpSocket::new_v4().expect("a socket");
        // Alone when it is taken; only then may a listener be beside it.
        held.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        held.set_reuseaddr(true).expect("an option");
        Self { address: held.local_addr().expect("bound"), _held: held }
    }

    pub fn number(&self) -> u16 {
        self.address.port()
    }
}

#[tokio::test]
async fn a_port_is_refused_and_listened_to_in_turns_and_nobody_elses() {
    use tokio::net::{TcpListener, TcpStream};

    let port = Port::new();
    for _ in 0..2 {
        let refused = TcpStream::connect(port.address).await.expect_err("nobody listens");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let listener = TcpListener::bind(port.address).await.expect("ours");
        let (accepted, connected) =
            tokio::join!(listener.accept(), TcpStream::connect(port.address));
        drop((accepted.expect("accepted"), connected.expect("connected")));
    }
    let stranger = TcpSocket::new_v4().expect("a socket");
    assert!(stranger.bind(port.address).is_err(), "nobody gets it who does not ask for it");
}
