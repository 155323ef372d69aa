//! Serving HTTP connections of either version, until the drain and through it.
//!
//! Which version a client speaks is told by its first bytes, with TLS and without; what the
//! handshake has agreed on is what it then sends.
//!
//! What must hold: a connection without a request, or with half of one, ends; who takes no byte
//! of an answer loses it; a client that has gone is noticed while its request is at work. For
//! the last a client may not close its own side and then wait: that looks the same.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use http::{HeaderValue, Request, Version, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use tower::Service as _;

use crate::server::config::ServerConfig;
use crate::server::drain::Drain;
use crate::server::listen::{Connection, Listener};
use crate::server::status::http_error;
use crate::server::trails::Trails;
use crate::server::{Drained, connections};
use crate::sync::{AtomicU64, Ordering};

/// Largest request head, and the read buffer of a connection. Tenants, traces and proxies' notes
/// fit many times; a larger head is answered 431.
const HEAD_BYTES_MAX: usize = 128 << 10;
/// How long a client may take no byte of its answer: Go's servers are given as long for all of it.
const WRITE_STALL_MAX: Duration = Duration::from_secs(60);

/// How long a connection that was made before the drain may still take to its first byte: longer
/// than any way that it has already come.
const FIRST_BYTE_IN_DRAIN: Duration = Duration::from_secs(1);

/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Requests at once on one connection: Go's default, and what browsers and proxies count with.
const STREAMS_MAX: u32 = 250;
/// What one request may have sent that nobody has read, and all of a connection together. Bodies
/// beyond it stay with their senders until there is room for them.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// What one answer may have waiting for the socket.
const SEND_BUFFER_BYTES: usize = 256 << 10;
/// Requests of one connection that were given up before we had seen them. A dashboard that is
/// closed gives up its panels; who goes on so is only after our time, and loses the connection.
const RESETS_UNSEEN_MAX: usize = 100;
/// An HTTP/2 client has to show so often that it is there, and within so long.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Both versions, as this listener speaks them.
#[derive(Clone)]
struct Speaking {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    trails: Trails,
    /// How long a connection may be without a new request.
    idle_max: Duration,
}

/// Serves until the drain starts, then until all requests are answered or the drain's time is
/// over. A connection that is open after that is closed.
pub async fn serve(
    listener: Listener,
    router: Router,
    config: &ServerConfig,
    drain: Drain,
) -> Drained {
    serve_trailed(listener, router, Trails::default(), config, drain).await
}

/// As [`serve`], with spans over requests where they are traced; without it they only get names.
pub async fn serve_trailed(
    listener: Listener,
    router: Router,
    trails: Trails,
    config: &ServerConfig,
    drain: Drain,
) -> Drained {
    let idle_max = config.http_server_idle_timeout.as_duration();
    let mut http1 = http1::Builder::new();
    http1
        .timer(TokioTimer::new())
        .header_read_timeout(idle_max)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_header_size(HEAD_BYTES_MAX);
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(RESETS_UNSEEN_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let speaking = Speaking { http1, http2, trails, idle_max };
    let grace = config.graceful_shutdown_timeout.as_duration();
    connections::serve(listener, drain, grace, |connection, drain| {
        speaking.clone().serve_one(connection, router.clone(), drain)
    })
    .await
}

impl Speaking {
    async fn serve_one(self, mut connection: Connection, router: Router, drain: Drain) {
        connection.bound_writes(WRITE_STALL_MAX);
        let mut heard = drain.clone();
        let waited_in_drain = async move {
            heard.started().await;
            tokio::time::sleep(FIRST_BYTE_IN_DRAIN).await;
        };
        let preface = tokio::select! {
            // Both arms are cancel-safe, as the connection goes with either.
            preface = timeout(self.idle_max, starts_with_preface(&mut connection)) => preface,
            () = waited_in_drain => return,
        };
        let outcome = match preface {
            Ok(Ok(true)) => self.serve_http2(connection, router, drain).await,
            Ok(Ok(false)) => self.serve_http1(connection, router, drain).await,
            Ok(Err(error)) => {
                return tracing::debug!(%error, "HTTP connection ended before a request");
            }
            Err(_) => return tracing::debug!("HTTP connection without a request"),
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "HTTP connection ended early");
        }
    }

    async fn serve_http1(
        self,
        connection: Connection,
        router: Router,
        mut drain: Drain,
    ) -> hyper::Result<()> {
        let (peer, certificate) = (connection.peer_address(), connection.peer_certificate());
        let aged = connection.aged();
        let trails = self.trails;
        let service = service_fn(move |mut request: Request<Incoming>| {
            let mut router = router.clone();
            request.extensions_mut().insert(ConnectInfo(peer));
            if let Some(certificate) = certificate.clone() {
                request.extensions_mut().insert(certificate);
            }
            let entered = trails.enter(&mut request);
            async move {
                let mut response = match ambiguity(&request) {
                    Some((status, text)) => refused(status, text),
                    None => router.call(request).await?,
                };
                entered.leave(&mut response);
                Ok::<_, Infallible>(response)
            }
        });
        let serving = self.http1.serve_connection(TokioIo::new(connection), service);
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            outcome = serving.as_mut() => return outcome,
            () = drain.started() => {}
            () = aged => {}
        }
        serving.as_mut().graceful_shutdown();
        serving.await
    }

    async fn serve_http2(
        self,
        connection: Connection,
        router: Router,
        mut drain: Drain,
    ) -> hyper::Result<()> {
        let (peer, certificate) = (connection.peer_address(), connection.peer_certificate());
        let aged = connection.aged();
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        let trails = self.trails;
        let service = service_fn(move |mut request: Request<Incoming>| {
            // Relaxed: only whether it has moved is asked.
            counted.fetch_add(1, Ordering::Relaxed);
            request.extensions_mut().insert(ConnectInfo(peer));
            if let Some(certificate) = certificate.clone() {
                request.extensions_mut().insert(certificate);
            }
            let entered = trails.enter(&mut request);
            let answered = router.clone().call(request);
            async move {
                let mut response = answered.await?;
                entered.leave(&mut response);
                Ok::<_, Infallible>(response)
            }
        });
        let serving = self.http2.serve_connection(TokioIo::new(connection), service);
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            outcome = serving.as_mut() => return outcome,
            () = drain.started() => {}
            () = unused(&requests, self.idle_max) => {}
            () = aged => {}
        }
        // Requests under way are answered; a client with more comes by another connection.
        serving.as_mut().graceful_shutdown();
        serving.await
    }
}

/// Reads until it is plain whether the client speaks HTTP/2, and gives back what it has read.
async fn starts_with_preface(connection: &mut Connection) -> io::Result<bool> {
    let mut bytes = [0; PREFACE.len()];
    let mut len = 0;
    while len < bytes.len() && bytes[..len] == PREFACE[..len] {
        match connection.read(&mut bytes[len..]).await? {
            0 if len == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            0 => break,
            more => len += more,
        }
    }
    connection.unread(&bytes[..len]);
    Ok(bytes[..len] == *PREFACE)
}

/// Until no new request has come for all of a period.
async fn unused(requests: &AtomicU64, period: Duration) {
    let mut before = requests.load(Ordering::Relaxed);
    loop {
        tokio::time::sleep(period).await;
        let now = requests.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
    }
}

/// What hyper lets through and two parties could read in two ways, with the status for it.
///
/// Whom a request is for must be told, and once, in Go's words. And its body may come in chunks,
/// in no other coding besides: we would take the chunks off and leave the other coding on, and
/// nobody would know of it any more.
fn ambiguity(request: &Request<Incoming>) -> Option<(u16, &'static str)> {
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => {
            return Some((400, "400 Bad Request: missing required Host header"));
        }
        (_, Some(_)) => return Some((400, "400 Bad Request: too many Host headers")),
        _ => {}
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => None,
        (Some(coding), None) if is_chunked(coding) => None,
        _ => Some((501, "unsupported transfer encoding")),
    }
}

/// What follows on such a connection cannot be trusted to begin where we believe it does.
fn refused(status: u16, text: &str) -> Response<Body> {
    let mut response = http_error(status, text);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
