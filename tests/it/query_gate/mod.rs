//! `-target=query-frontend` as a process has it, before a stand-in of those who answer queries.

mod cached;
mod gates;
mod here;
mod kept;
mod promql;
mod shared;
mod stub;
mod through;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use freehold::app::QueryGate;
use freehold::clients::config::ColdStart;
use freehold::config::{Config, Target};
use freehold::units::Millis;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use stub::Stub;

/// A wait in these tests fails after so long; on a healthy machine none comes near it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Too little for a credit to come back while a test runs.
const NEVER: f64 = 0.0001;

/// An answer, whole.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Bytes,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

/// Asks over connections that stay open.
#[derive(Clone)]
struct Asker(Client<HttpConnector, Full<Bytes>>);

impl Asker {
    fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let answering = async {
            let (head, body) = self.0.request(request).await.expect("an answer").into_parts();
            let text =
                |value: &hyper::header::HeaderValue| value.to_str().unwrap_or("?").to_owned();
            Answer {
                status: head.status.as_u16(),
                headers: head.headers.iter().map(|(k, v)| (k.to_string(), text(v))).collect(),
                body: body.collect().await.expect("a whole answer").to_bytes(),
            }
        };
        tokio::time::timeout(PATIENCE, answering).await.expect("in time")
    }

    /// Asks for a range of `query`, as `client`.
    async fn range(&self, gate: SocketAddr, client: &str, query: &str) -> Answer {
        self.send(range(gate, client, query)).await
    }
}

fn range(gate: SocketAddr, client: &str, query: &str) -> Request<Full<Bytes>> {
    let uri =
        format!("http://{gate}/prometheus/api/v1/query_range?query={query}&start=0&end=60&step=15");
    request(Method::GET, &uri, client, "")
}

fn request(method: Method, uri: &str, client: &str, body: &str) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(uri).header("x-scope-orgid", "team");
    if !client.is_empty() {
        request = request.header("x-scope-clientid", client);
    }
    if !body.is_empty() {
        request = request.header("content-type", "application/x-www-form-urlencoded");
    }
    request.body(Full::from(body.to_owned())).expect("a request")
}

fn config(stub: SocketAddr) -> Config {
    let mut config = Config::for_target(Target::QueryFrontend);
    let server = &mut config.server;
    server.http_listen_address = "127.0.0.1".into();
    server.grpc_listen_address = "127.0.0.1".into();
    (server.http_listen_port, server.grpc_listen_port) = (0, 0);
    config.frontend.downstream.url = format!("http://{stub}");
    config.frontend.ring.instance_id = "gate-0".into();
    config.frontend.ring.instance_addr = "127.0.0.1".into();
    config.client_identity.enabled = true;
    config.client_identity.cold_start = ColdStart::Full;
    config.client_identity.owner_timeout = Millis::from_secs(5);
    config.frontend.canary_period = Millis::from_secs(1);
    config
}

/// A gate that has found its place in the ring.
async fn start(change: impl FnOnce(&mut Config)) -> (Stub, QueryGate) {
    let stub = Stub::start().await;
    let mut config = config(stub.address);
    change(&mut config);
    config.validate().expect("a good configuration");
    let gate = QueryGate::start(config).await.expect("starts");
    until(|| gate.budgets.as_ref().is_none_or(|budgets| owns_all(budgets, "gate-0"))).await;
    (stub, gate)
}

fn owns_all(budgets: &freehold::clients::Budgets, us: &str) -> bool {
    use freehold::clients::{Key, Kind};
    let key = Key { kind: Kind::ClientQueries, tenant: "team", client: "anybody" };
    budgets.owner_of(key).is_some_and(|owner| &*owner == us)
}

/// Waits for what has to come true.
async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it comes true");
}

async fn metric(gate: SocketAddr, name: &str) -> f64 {
    let request = Request::builder().uri(format!("http://{gate}/metrics"));
    let shown = Asker::new().send(request.body(Full::default()).expect("a request")).await;
    let lines = shown.text().lines().filter(|line| !line.starts_with('#'));
    let values = lines.filter_map(|line| line.rsplit_once(' ')).filter(|(row, _)| *row == name);
    values.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
}
