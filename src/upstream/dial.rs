//! One connection: how it is made, kept alive and driven to its end, and the wait between tries.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Ping, PingPong};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::config::{UpstreamConfig, UpstreamConfigError};
use super::wire::{Heard, Overheard, Wire};
use crate::tls::ClientTls;

/// How much of one answer may be on its way to a reader that does not read. It is also what
/// one stream can move per round trip: 256 MiB/s at a millisecond, far more beside us.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// How much of all answers of one connection may be. Large enough that 256 readers which do not
/// read leave room for everybody else; a bound that they could use up would make them stop
/// pushes that share the connection.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// Largest frame we take. Go sends 16 KiB; larger ones cost less per byte.
const FRAME_BYTES_MAX: u32 = 256 << 10;
/// What one request may have waiting for the socket.
const SEND_BUFFER_BYTES: usize = 256 << 10;
/// Largest head of an answer: Go's default for what it sends, and more than Cortex uses.
const HEAD_BYTES_MAX: u32 = 1 << 20;
/// Calls given up in the last second or so whose late pieces are known for what they are.
const RESET_STREAMS_KEPT: usize = 1000;
/// Each further wait is so many times longer: gRPC's.
const BACKOFF_FACTOR: f64 = 1.6;
/// Waits are spread by this part up and down, so that many who lost the same upstream do not
/// come back at the same moment: gRPC's.
const BACKOFF_JITTER: f64 = 0.2;

/// After how long without an answer a call asks whether its connection still leads anywhere: half
/// of the time that Cortex's distributors wait, and ten times what a push takes on a bad day.
pub const SUSPICIOUS_AFTER: Duration = Duration::from_secs(1);
/// How long a connection that is suspected may leave a ping unanswered, and be silent altogether.
/// A sound process answers pings whatever its handlers do; three retransmissions of a lost packet
/// and the longest pauses of a garbage collector fit.
const SUSPECT_SILENT_MAX: Duration = Duration::from_secs(3);
/// A silence is waited for in so many parts. When we ourselves are stopped, or get no processor,
/// just one of them passes meanwhile, and the answer is read in the next.
const SILENCE_PARTS: u32 = 4;
/// Least time between two pings. Cortex's server hangs up on the third that comes less than 10 s
/// after another while it has nothing to say.
const PING_REST: Duration = Duration::from_secs(12);

/// What connections are made by.
pub struct Dialler {
    address: Arc<str>,
    connect_timeout: Duration,
    backoff_base: Duration,
    backoff_max: Duration,
    keepalive: Keepalive,
    tls: Option<Tls>,
}

/// Certificates, and the name that the other side's has to be for.
struct Tls {
    settings: Arc<ClientTls>,
    server_name: ServerName<'static>,
}

#[derive(Clone, Copy)]
struct Keepalive {
    time: Duration,
    timeout: Duration,
}

/// A connection whose other side has answered, so that its settings are known.
pub struct Dialled {
    pub requests: SendRequest<Bytes>,
    /// Told when a call has waited for long.
    pub suspicion: Arc<Notify>,
    pub driver: Driver,
}

/// Moves the bytes of a connection; nothing happens on it unless this runs.
pub struct Driver {
    connection: h2::client::Connection<Overheard, Bytes>,
    pulse: Pulse,
}

/// Finds out whether the other side is still there.
struct Pulse {
    pings: PingPong,
    heard: Heard,
    suspicion: Arc<Notify>,
    keepalive: Keepalive,
}

/// Why there is no connection, or no longer one. Clients see the texts, as the cause of theirs.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("{0}")]
    Connect(std::io::Error),
    #[error("no connection within {} ms", .0.as_millis())]
    ConnectTimeout(Duration),
    #[error("TLS: {0}")]
    Tls(std::io::Error),
    #[error("{0}")]
    Http2(h2::Error),
    #[error("it closed the connection")]
    Closed,
    #[error("a ping was not answered within {} ms", .0.as_millis())]
    PingTimeout(Duration),
}

impl Dialler {
    /// With `tls`, the other side has to show a certificate for the name that `config` tells.
    pub fn new(
        address: Arc<str>,
        config: &UpstreamConfig,
        tls: Option<Arc<ClientTls>>,
    ) -> Result<Self, UpstreamConfigError> {
        let tls = match tls {
            None => None,
            Some(settings) => Some(Tls { settings, server_name: config.server_name()? }),
        };
        Ok(Self {
            address,
            connect_timeout: config.connect_timeout.as_duration(),
            backoff_base: config.connect_backoff_base_delay.as_duration(),
            backoff_max: config.connect_backoff_max_delay.as_duration(),
            keepalive: Keepalive {
                time: config.keepalive_time.as_duration(),
                timeout: config.keepalive_timeout.as_duration(),
            },
            tls,
        })
    }

    /// The certificates, if the upstream speaks TLS.
    pub fn tls(&self) -> Option<&Arc<ClientTls>> {
        self.tls.as_ref().map(|tls| &tls.settings)
    }

    pub fn address(&self) -> &Arc<str> {
        &self.address
    }

    pub async fn dial(&self) -> Result<Dialled, WireError> {
        match timeout(self.connect_timeout, self.connect()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(WireError::ConnectTimeout(self.connect_timeout)),
        }
    }

    /// How long to wait after so many failures in a row.
    pub fn backoff(&self, failures: u32) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = self.backoff_base.as_secs_f64() * BACKOFF_FACTOR.powi(exponent);
        let wait = grown.min(self.backoff_max.as_secs_f64());
        let spread: f64 = rand::random_range(-BACKOFF_JITTER..=BACKOFF_JITTER);
        Duration::from_secs_f64(wait * (1.0 + spread))
    }

    async fn connect(&self) -> Result<Dialled, WireError> {
        let stream = TcpStream::connect(&*self.address).await.map_err(WireError::Connect)?;
        // Without it each request waits for the delayed acknowledgement of the last one, 40 ms.
        stream.set_nodelay(true).map_err(WireError::Connect)?;
        let wire: Box<dyn Wire> = match &self.tls {
            None => Box::new(stream),
            Some(Tls { settings, server_name }) => {
                let connector = TlsConnector::from(settings.current());
                let secured = connector.connect(server_name.clone(), stream).await;
                Box::new(secured.map_err(WireError::Tls)?)
            }
        };
        let wire = Overheard::new(wire);
        let heard = wire.heard();
        let (requests, mut connection) = h2::client::Builder::new()
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX)
            .enable_push(false)
            .max_concurrent_reset_streams(RESET_STREAMS_KEPT)
            // It counts over the life of a connection, and what comes late for a call that was
            // given up may count: after a thousand of them all calls would be broken off.
            .max_local_error_reset_streams(None)
            .handshake(wire)
            .await
            .map_err(WireError::Http2)?;
        let mut pings = connection.ping_pong().expect("taken once");
        // The answer comes after the settings, so from here on the bound of streams is known,
        // and the other side is known to speak HTTP/2.
        tokio::select! {
            ended = &mut connection => Err(ended.map_or_else(WireError::Http2, |()| WireError::Closed)),
            pong = pings.ping(Ping::opaque()) => pong.map(|_| ()).map_err(WireError::Http2),
        }?;
        let suspicion = Arc::new(Notify::new());
        let keepalive = self.keepalive;
        let pulse = Pulse { pings, heard, suspicion: Arc::clone(&suspicion), keepalive };
        Ok(Dialled { requests, suspicion, driver: Driver { connection, pulse } })
    }
}

impl Driver {
    /// Until the connection has ended; `Ok` when both sides meant it to.
    pub async fn run(self) -> Result<(), WireError> {
        // Neither arm is polled again after the other.
        tokio::select! {
            ended = self.connection => ended.map_err(WireError::Http2),
            error = self.pulse.lost() => Err(error),
        }
    }
}

impl Pulse {
    /// Pings now and then, and when somebody suspects that nobody is there; ends when that is so.
    async fn lost(mut self) -> WireError {
        let Keepalive { time, timeout } = self.keepalive;
        let rest = PING_REST.min(time);
        loop {
            // Both arms only wait.
            let silent_max = tokio::select! {
                () = tokio::time::sleep(time.saturating_sub(rest)) => timeout,
                () = self.suspicion.notified() => timeout.min(SUSPECT_SILENT_MAX),
            };
            if let Err(error) = self.ping(silent_max).await {
                return error;
            }
            tokio::time::sleep(rest).await;
        }
    }

    /// Waits for the answer as long as anything at all comes: it may be behind a long one.
    async fn ping(&mut self, silent_max: Duration) -> Result<(), WireError> {
        self.pings.send_ping(Ping::opaque()).map_err(WireError::Http2)?;
        let mut heard = self.heard.bytes();
        let mut silent_parts = 0;
        while silent_parts < SILENCE_PARTS {
            let pong = poll_fn(|cx| self.pings.poll_pong(cx));
            if let Ok(answered) = timeout(silent_max / SILENCE_PARTS, pong).await {
                return answered.map(|_| ()).map_err(WireError::Http2);
            }
            let bytes = self.heard.bytes();
            silent_parts = if bytes == heard { silent_parts + 1 } else { 0 };
            heard = bytes;
        }
        Err(WireError::PingTimeout(silent_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_most_and_are_spread() {
        let dialler =
            Dialler::new("up:1".into(), &UpstreamConfig::default(), None).expect("no TLS");
        let check = |failures, least_ms, most_ms| {
            for _ in 0..100 {
                let wait_ms = dialler.backoff(failures).as_millis();
                assert!((least_ms..=most_ms).contains(&wait_ms), "{failures}: {wait_ms}");
            }
        };
        check(1, 80, 120);
        check(2, 128, 192);
        check(100, 4000, 6000);
        check(u32::MAX, 4000, 6000);
    }
}
