//! The front door over real connections: a write gate before something that knows who may write.
//!
//! The gate trusts `127.0.0.1`, so a connection from there speaks for whatever address it names in
//! `X-Forwarded-For`; one from `127.0.0.2` is a stranger who lies.

mod answers;
mod edge;
mod gate;
mod secrecy;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use freehold::app::WriteGate;
use freehold::config::{Config, Target};
use freehold::front_door::networks::Network;
use freehold::units::Millis;
use freehold::wire::proto::cortexpb;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

/// Whom the gate trusts, and whom it does not.
pub const PROXY: [u8; 4] = [127, 0, 0, 1];
pub const STRANGER: [u8; 4] = [127, 0, 0, 2];

/// Stands behind the gate: tokens that begin with `good` may write, others are told 401.
#[derive(Clone, Default)]
pub struct Guarded {
    pub let_in: Arc<AtomicUsize>,
    pub turned_away: Arc<AtomicUsize>,
    /// What it says to who may write; 200 unless told.
    pub says: Arc<Mutex<Option<StatusCode>>>,
}

impl Guarded {
    async fn listen(&self, tasks: &mut JoinSet<()>) -> SocketAddr {
        let listener = TcpListener::bind(SocketAddr::from((PROXY, 0))).await.expect("bind");
        let address = listener.local_addr().expect("bound");
        let guarded = self.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accept");
                let guarded = guarded.clone();
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request: http::Request<_>| {
                        let guarded = guarded.clone();
                        async move {
                            let (head, body): (_, hyper::body::Incoming) = request.into_parts();
                            let _ = body.collect().await;
                            Ok::<_, std::convert::Infallible>(guarded.judge(&head.headers))
                        }
                    });
                    let serving = hyper::server::conn::http1::Builder::new();
                    let _ = serving.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        address
    }

    fn judge(&self, headers: &HeaderMap) -> Response {
        let token = headers.get("authorization").and_then(|value| value.to_str().ok());
        if token.is_some_and(|token| token.starts_with("Bearer good")) {
            self.let_in.fetch_add(1, Ordering::Relaxed);
            let says = self.says.lock().expect("lock").unwrap_or(StatusCode::OK);
            return says.into_response();
        }
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        (StatusCode::UNAUTHORIZED, "no").into_response()
    }

    pub fn turned_away(&self) -> usize {
        self.turned_away.load(Ordering::Relaxed)
    }

    pub fn let_in(&self) -> usize {
        self.let_in.load(Ordering::Relaxed)
    }
}

/// A gate, and what stands behind it.
pub struct Lab {
    pub gate: WriteGate,
    pub behind: Guarded,
    _tasks: JoinSet<()>,
}

impl Lab {
    pub async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let (behind, mut tasks) = (Guarded::default(), JoinSet::new());
        let mut config = config(behind.listen(&mut tasks).await);
        change(&mut config);
        config.validate().expect("a good configuration");
        let gate = WriteGate::start(config).await.expect("starts");
        Self { gate, behind, _tasks: tasks }
    }

    pub async fn sender(&self, from: [u8; 4]) -> Sender {
        Sender::connect(self.gate.http_address, from).await
    }

    pub async fn metrics(&self) -> String {
        let mut sender = self.sender(PROXY).await;
        sender.send("GET", "/metrics", &[], Bytes::new()).await.body
    }

    pub async fn stop(self) {
        self.gate.stop().await.expect("stops");
    }
}

/// A gate that trusts [`PROXY`] and has no limiter on.
pub fn config(upstream: SocketAddr) -> Config {
    let mut config = Config::for_target(Target::Distributor);
    config.distributor.upstream.url = format!("http://{upstream}");
    config.distributor.upstream.connect_backoff_base_delay = Millis(50);
    config.distributor.upstream.connect_backoff_max_delay = Millis(50);
    config.server.http_listen_address = "127.0.0.1".into();
    config.server.http_listen_port = 0;
    config.admin.http_listen_address = "127.0.0.1:0".into();
    config.front_door.trusted_proxies = vec![network("127.0.0.1")];
    config
}

pub fn network(text: &str) -> Network {
    Network::parse(text).expect("a network")
}

/// One connection; made anew when the other end closes it.
pub struct Sender {
    to: SocketAddr,
    from: [u8; 4],
    connection: SendRequest<Full<Bytes>>,
    driving: JoinSet<()>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }
}

impl Sender {
    pub async fn connect(to: SocketAddr, from: [u8; 4]) -> Self {
        let mut driving = JoinSet::new();
        let connection = connection(to, from, &mut driving).await;
        Self { to, from, connection, driving }
    }

    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Answer {
        for _ in 0..3 {
            if self.connection.ready().await.is_err() {
                self.connection = connection(self.to, self.from, &mut self.driving).await;
            }
            let mut request = hyper::Request::builder().method(method).uri(path);
            for (name, value) in [("host", "gate")].iter().chain(headers) {
                request = request.header(*name, *value);
            }
            let request = request.body(Full::new(body.clone())).expect("a request");
            let Ok(answer) = self.connection.send_request(request).await else { continue };
            let (head, body) = answer.into_parts();
            let Ok(body) = body.collect().await else { continue };
            let body = String::from_utf8(body.to_bytes().into()).expect("text");
            return Answer { status: head.status.as_u16(), headers: head.headers, body };
        }
        panic!("no answer in three attempts");
    }

    /// A write from an address with a token, as the trusted proxy passes it on.
    pub async fn write(&mut self, address: &str, token: &str) -> u16 {
        self.write_whole(address, token, good()).await.status
    }

    pub async fn write_whole(&mut self, address: &str, token: &str, body: Bytes) -> Answer {
        let token = format!("Bearer {token}");
        let headers = [
            ("x-forwarded-for", address),
            ("authorization", &token),
            ("x-scope-orgid", "a"),
            ("content-encoding", "snappy"),
            ("content-type", "application/x-protobuf"),
        ];
        self.send("POST", "/api/v1/push", &headers, body).await
    }
}

async fn connection(
    to: SocketAddr,
    from: [u8; 4],
    driving: &mut JoinSet<()>,
) -> SendRequest<Full<Bytes>> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((from, 0).into()).expect("an address of this machine");
    let stream = socket.connect(to).await.expect("connect");
    stream.set_nodelay(true).expect("set");
    let (connection, driver) = handshake(TokioIo::new(stream)).await.expect("HTTP");
    driving.spawn(async move {
        let _ = driver.await;
    });
    connection
}

/// A write of one series.
pub fn good() -> Bytes {
    let series = cortexpb::TimeSeries {
        labels: vec![cortexpb::LabelPair { name: b"__name__".into(), value: b"m".into() }],
        samples: vec![cortexpb::Sample { value: 1.0, timestamp_ms: 5, ..Default::default() }],
        ..Default::default()
    };
    let request = cortexpb::WriteRequest { timeseries: vec![series], ..Default::default() };
    let packed = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
    packed.expect("packs").into()
}

/// The value of one metric; its labels as they are written.
pub fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in {metrics}")).parse().expect("a number")
}
