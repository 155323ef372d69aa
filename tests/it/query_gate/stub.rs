//! Those who answer queries, as Cortex' query-frontend looks from outside.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What came.
#[derive(Clone, Debug)]
pub struct Came {
    pub method: Method,
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// How the stub behaves from now on.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Queries whose answers are in the results cache, as they stand in the address.
    pub cached: HashSet<String>,
    /// Says of everything that no querier has worked for it.
    pub lies: bool,
    /// Says nothing of that.
    pub is_silent: bool,
    pub takes: Duration,
    pub status: u16,
    /// Pieces of the body, and how long each takes.
    pub pieces: Vec<Bytes>,
    pub piece_takes: Duration,
    /// Breaks off after the pieces.
    pub breaks_off: bool,
    pub headers: Vec<(&'static str, &'static str)>,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            cached: HashSet::new(),
            lies: false,
            is_silent: false,
            takes: Duration::ZERO,
            status: 200,
            pieces: vec![Bytes::from_static(br#"{"status":"success","data":{"result":[]}}"#)],
            piece_takes: Duration::ZERO,
            breaks_off: false,
            headers: vec![("content-type", "application/json")],
        }
    }
}

/// See the head of the file.
pub struct Stub {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    manner: Mutex<Manner>,
    came: Mutex<Vec<Came>>,
    /// Answers under way.
    under_way: Mutex<usize>,
}

struct UnderWay(Arc<Shared>);

impl UnderWay {
    fn begin(shared: &Arc<Shared>) -> Self {
        *shared.under_way.lock().expect("lock") += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.0.under_way.lock().expect("lock") -= 1;
    }
}

impl Stub {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared::default());
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { address, shared, serving }
    }

    pub fn manner(&self) -> MutexGuard<'_, Manner> {
        self.shared.manner.lock().expect("lock")
    }

    /// What came of clients, without canaries.
    pub fn came(&self) -> Vec<Came> {
        let came = self.shared.came.lock().expect("lock");
        came.iter().filter(|one| !is_canary(&one.target)).cloned().collect()
    }

    pub fn canaries(&self) -> usize {
        let came = self.shared.came.lock().expect("lock");
        came.iter().filter(|one| is_canary(&one.target)).count()
    }

    pub fn under_way(&self) -> usize {
        *self.shared.under_way.lock().expect("lock")
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn is_canary(target: &str) -> bool {
    target.contains("count%28up%29")
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("accept");
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let answer = |request| answer(Arc::clone(&shared), request);
            let service = hyper::service::service_fn(answer);
            let io = TokioIo::new(stream);
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
        });
    }
}

type Pieces = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Pieces>, Infallible> {
    if request.uri().path() == "/ready" {
        // Whether it is well is no query.
        let nothing = http_body_util::Empty::new().map_err(|never| match never {});
        return Ok(Response::new(nothing.boxed_unsync()));
    }
    let under_way = UnderWay::begin(&shared);
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let target = head.uri.to_string();
    let came = Came {
        method: head.method,
        target: target.clone(),
        headers: head.headers.clone(),
        body: body.clone(),
    };
    shared.came.lock().expect("lock").push(came);
    let manner = shared.manner.lock().expect("lock").clone();
    tokio::time::sleep(manner.takes).await;
    let is_fresh = head.headers.get("cache-control").is_some_and(|value| value == "no-store");
    let form = String::from_utf8_lossy(&body).into_owned();
    let is_cached = !is_fresh
        && manner.cached.iter().any(|query| {
            let word = format!("query={query}&");
            target.contains(&word) || form.contains(&word)
        });
    let wall_ms = if is_cached || manner.lies { "0" } else { "12.5" };
    let mut response = Response::builder().status(manner.status);
    if !manner.is_silent {
        let timing = format!("querier_wall_time;dur={wall_ms}, response_time;dur=1.25");
        response = response.header("server-timing", timing);
    }
    for (name, value) in &manner.headers {
        response = response.header(*name, *value);
    }
    let end = manner.breaks_off.then(|| Err(std::io::Error::other("told to")));
    let pieces = manner.pieces.into_iter().map(|piece| Ok(Frame::data(piece))).chain(end);
    let piece_takes = manner.piece_takes;
    let pieces = stream::unfold((pieces, under_way), move |(mut pieces, under_way)| async move {
        let piece = pieces.next()?;
        tokio::time::sleep(piece_takes).await;
        Some((piece, (pieces, under_way)))
    });
    Ok(response.body(StreamBody::new(pieces).boxed_unsync()).expect("a response"))
}
