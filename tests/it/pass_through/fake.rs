//! A bare HTTP/2 upstream that does to each call what a test says, and an edge before it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use freehold::server::config::ServerConfig;
use freehold::server::drain::Drainer;
use freehold::server::grpc::{GrpcEdge, HealthSwitch, Settings, serve};
use freehold::server::listen::Listener;
use freehold::server::room::Room;
use freehold::server::seam::{Forward, IngesterCalls, Judged, Pushed, UserStats, Work};
use freehold::server::stream_auth::StreamKeys;
use freehold::server::tenancy::Tenancy;
use freehold::tls::ServerTls;
use freehold::upstream::Upstream;
use freehold::upstream::config::UpstreamConfig;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A wait in these tests fails after so long; on a healthy machine none comes near it.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("no answer")
}

type Calling = Pin<Box<dyn Future<Output = ()> + Send>>;
type Handler = dyn Fn(Request<RecvStream>, SendResponse<Bytes>) -> Calling + Send + Sync;

/// The upstream. Its connections end when it is dropped, as a killed process' do.
pub struct Fake {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// How the upstream speaks HTTP/2.
#[derive(Clone, Copy, Default)]
pub struct Speech {
    pub streams_max: Option<u32>,
    /// Says GOAWAY after so many calls of a connection.
    pub calls_per_connection: Option<usize>,
}

impl Fake {
    pub async fn start<H, F>(handler: H) -> Self
    where
        H: Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::speaking(Speech::default(), ([127, 0, 0, 1], 0).into(), handler).await
    }

    pub async fn speaking<H, F>(speech: Speech, address: SocketAddr, handler: H) -> Self
    where
        H: Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let handler: Arc<Handler> =
            Arc::new(move |request, respond| Box::pin(handler(request, respond)));
        let listener = TcpListener::bind(address).await.expect("bind");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accept");
                stream.set_nodelay(true).expect("nodelay");
                counted.fetch_add(1, Ordering::SeqCst);
                serving.spawn(speak(speech, stream, Arc::clone(&handler)));
            }
        });
        Self { address, connections, _tasks: tasks }
    }
}

async fn speak(speech: Speech, stream: TcpStream, handler: Arc<Handler>) {
    let mut builder = h2::server::Builder::new();
    if let Some(max) = speech.streams_max {
        builder.max_concurrent_streams(max);
    }
    let Ok(mut connection) = builder.handshake(stream).await else { return };
    let mut calls = JoinSet::new();
    let mut accepted = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        calls.spawn(handler(request, respond));
        accepted += 1;
        if Some(accepted) == speech.calls_per_connection {
            connection.graceful_shutdown();
        }
    }
}

/// The edge, with the upstream behind it.
pub struct Edge {
    pub address: SocketAddr,
    pub upstream: Upstream,
    pub health: HealthSwitch,
    pub drainer: Drainer,
    _tasks: JoinSet<()>,
}

pub fn config(address: SocketAddr) -> UpstreamConfig {
    UpstreamConfig { address: address.to_string(), ..UpstreamConfig::default() }
}

impl Edge {
    pub async fn before(address: SocketAddr) -> Self {
        Self::with(&config(address)).await
    }

    pub async fn with(config: &UpstreamConfig) -> Self {
        Self::start(settings_with(config), None).await
    }

    pub async fn start(settings: Settings, tls: Option<Arc<ServerTls>>) -> Self {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind");
        let listener = listener.with_tls(tls);
        let address = listener.local_address().expect("bound");
        let (drainer, drain) = Drainer::new();
        let health = HealthSwitch::new().await;
        health.set_serving(true).await;
        let upstream = settings.upstream.clone().expect("an upstream");
        let ingester = IngesterCalls {
            push: Arc::new(|_, _| Ok(Pushed::default())),
            judge: Arc::new(|_, _| {
                let settle = Box::new(|_| Ok(Pushed::default()));
                Ok(Judged { forward: Forward::Nothing, settle })
            }),
            user_stats: Arc::new(|_| UserStats::default()),
            all_user_stats: Arc::new(Vec::new),
        };
        let edge = GrpcEdge::new(settings, Some(ingester), Work::Inline, &health, drain.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            serve(listener, edge, &ServerConfig::default(), drain).await;
        });
        Self { address, upstream, health, drainer, _tasks: tasks }
    }
}

pub fn settings_with(config: &UpstreamConfig) -> Settings {
    Settings {
        tenancy: Tenancy::Header,
        clients: Default::default(),
        stream_keys: StreamKeys::default(),
        room: Room::new(64 << 20),
        receive_message_bytes_max: 4 << 20,
        send_message_bytes_max: 4 << 20,
        upstream: Some(Upstream::new(config).expect("config")),
        stream_answer_within: std::time::Duration::from_secs(10),
    }
}

/// A bare client.
#[derive(Clone)]
pub struct Client(SendRequest<Bytes>);

/// A call whose body is still being sent.
pub struct Open {
    pub send: SendStream<Bytes>,
    pub response: ResponseFuture,
}

pub struct Ended {
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Ended {
    /// Trailers, or the headers of an answer that is nothing but a status.
    pub fn status(&self) -> &HeaderMap {
        self.trailers.as_ref().unwrap_or(&self.headers)
    }

    pub fn code(&self) -> &str {
        self.status()["grpc-status"].to_str().expect("a number")
    }

    pub fn text(&self) -> &str {
        let text = self.status().get("grpc-message");
        text.map_or("", |text| text.to_str().expect("ASCII"))
    }
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        Self::over(stream).await.expect("handshake")
    }

    pub async fn over<S>(stream: S) -> Result<Self, h2::Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // A window as clients of many streams have it: h2 counts small frames that nobody has read
        // yet against half of it, and hangs up beyond.
        let mut builder = h2::client::Builder::new();
        builder.initial_connection_window_size(1 << 20);
        let (client, connection) = builder.handshake(stream).await?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self(client))
    }

    pub async fn open(&mut self, request: Request<()>) -> Open {
        let mut client = self.0.clone().ready().await.expect("connection");
        let (response, send) = client.send_request(request, false).expect("send");
        Open { send, response }
    }

    /// None where the connection turns out to be broken.
    pub async fn try_call(&mut self, request: Request<()>, body: Bytes) -> Option<Ended> {
        let mut client = patiently(self.0.clone().ready()).await.ok()?;
        let (response, mut send) = client.send_request(request, false).ok()?;
        send.send_data(body, true).ok()?;
        Some(finish(patiently(response).await.ok()?).await)
    }

    pub async fn call(&mut self, request: Request<()>, body: Bytes) -> Ended {
        let mut open = self.open(request).await;
        open.send.send_data(body, true).expect("send");
        finish(patiently(open.response).await.expect("response")).await
    }
}

/// A call as Cortex's clients head it.
pub fn head(path: &str) -> Request<()> {
    Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a request")
}

pub fn head_with(path: &str, name: &'static str, value: &str) -> Request<()> {
    let mut head = head(path);
    head.headers_mut().insert(name, value.parse().expect("a value"));
    head
}

pub async fn finish(response: Response<RecvStream>) -> Ended {
    let (head, mut stream) = response.into_parts();
    let mut body = BytesMut::new();
    while let Some(chunk) = patiently(stream.data()).await {
        let chunk = chunk.expect("data");
        stream.flow_control().release_capacity(chunk.len()).expect("capacity");
        body.extend_from_slice(&chunk);
    }
    let trailers = patiently(stream.trailers()).await.expect("trailers");
    Ended { headers: head.headers, body: body.freeze(), trailers }
}

/// The next piece of a body.
pub async fn piece(stream: &mut RecvStream) -> Bytes {
    let piece = patiently(stream.data()).await.expect("a piece").expect("data");
    stream.flow_control().release_capacity(piece.len()).expect("capacity");
    piece
}

pub fn framed(payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(payload.len()).expect("short"));
    bytes.put_slice(payload);
    bytes.freeze()
}

/// Takes the first frame off `held`, header and all, once it is whole.
pub fn cut(held: &mut BytesMut) -> Option<Bytes> {
    let len = 5 + u32::from_be_bytes(held.get(1..5)?.try_into().expect("four")) as usize;
    (held.len() >= len).then(|| held.split_to(len).freeze())
}

pub fn ok_head() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).expect("a head")
}

pub fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().expect("a value"));
    trailers
}

/// Reads the request to its end and answers one message and OK.
pub async fn answer_ok(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let mut body = request.into_body();
    while let Some(Ok(chunk)) = body.data().await {
        let _ = body.flow_control().release_capacity(chunk.len());
    }
    let Ok(mut send) = respond.send_response(ok_head(), false) else { return };
    let _ = send.send_data(framed(b"answer"), false);
    let _ = send.send_trailers(ok_trailers());
}

/// What a handler tells its test.
pub fn channel<T: Send>() -> (impl Fn(T) + Clone + Send + Sync, tokio::sync::mpsc::Receiver<T>) {
    let (sender, receiver) = tokio::sync::mpsc::channel(10_000);
    (move |told| sender.try_send(told).expect("room"), receiver)
}

pub type Shared<T> = Arc<Mutex<T>>;
