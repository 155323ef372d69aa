//! Queries through the gate's listener and its way to what answers them, byte by byte: a client
//! and a downstream that speak HTTP as badly as they like.

mod addresses;
mod answers;
mod front;
mod http2;
mod requests;
mod streams;
mod wire;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse as _, Response};
use freehold::exposition::Families;
use freehold::server::Drained;
use freehold::server::config::ServerConfig;
use freehold::server::drain::Drainer;
use freehold::server::http::serve;
use freehold::server::listen::Listener;
use freehold::units::Millis;
use freehold::upstream::queries::config::DownstreamConfig;
use freehold::upstream::queries::{Downstreams, Query};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tokio::task::JoinHandle;

use self::wire::{Answer, Wire};

const PATIENCE: Duration = Duration::from_secs(30);

/// The listener, and behind it nothing but the way on.
struct Gate {
    address: SocketAddr,
    downstreams: Downstreams,
    drainer: Drainer,
    serving: JoinHandle<Drained>,
    checking: Option<JoinHandle<()>>,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.serving.abort();
        if let Some(checking) = &self.checking {
            checking.abort();
        }
    }
}

struct Setup {
    downstream: DownstreamConfig,
    server: ServerConfig,
    /// Posts that may be asked twice.
    is_repeatable: bool,
}

fn setup(url: impl Into<String>) -> Setup {
    let downstream = DownstreamConfig {
        url: url.into(),
        // Each test that looks at checks turns them on.
        health_check_path: String::new(),
        connect_backoff_base_delay: Millis(20),
        connect_backoff_max_delay: Millis(50),
        ..Default::default()
    };
    Setup { downstream, server: ServerConfig::default(), is_repeatable: false }
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

impl Setup {
    async fn start(self) -> Gate {
        self.listen(listener().await).await
    }

    async fn listen(self, listener: Listener) -> Gate {
        let address = listener.local_address().expect("bound");
        let downstreams = Downstreams::new(&self.downstream).expect("settings");
        let has_checks = !self.downstream.health_check_path.is_empty();
        let checking = has_checks.then(|| tokio::spawn(downstreams.clone().run()));
        let router = Router::new()
            .fallback(pass)
            .with_state(Passing { to: downstreams.clone(), is_repeatable: self.is_repeatable });
        let (drainer, drain) = Drainer::new();
        let config = self.server;
        let serving = tokio::spawn(async move { serve(listener, router, &config, drain).await });
        Gate { address, downstreams, drainer, serving, checking }
    }
}

async fn listener() -> Listener {
    Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind")
}

#[derive(Clone)]
struct Passing {
    to: Downstreams,
    is_repeatable: bool,
}

/// What an edge does: a short body is held whole, so that it can be sent twice; others stream.
async fn pass(State(passing): State<Passing>, request: Request<Body>) -> Response {
    let (mut head, body) = request.into_parts();
    let ConnectInfo(peer): ConnectInfo<SocketAddr> = *head.extensions.get().expect("a peer");
    let is_whole = head.headers.remove("x-test-whole").is_some();
    let query = match is_whole {
        true => Query::with_bytes(head, body.collect().await.expect("a body").to_bytes()),
        false => Query::streaming(head, body),
    };
    let mut query = match query {
        Ok(query) => query,
        Err(error) => return refused(error.http_status(), error.to_string()),
    };
    query.came_from(peer.ip());
    if passing.is_repeatable {
        query.set_repeatable();
    }
    match passing.to.send(query).await {
        Ok(reply) => reply.into_response().map(Body::new),
        Err(error) => refused(error.http_status(), error.to_string()),
    }
}

fn refused(status: u16, text: String) -> Response {
    (StatusCode::from_u16(status).expect("a status"), text).into_response()
}

impl Gate {
    async fn connect(&self) -> Wire {
        Wire::connect(self.address).await
    }

    /// One request on a connection of its own.
    async fn ask(&self, request: &str) -> Answer {
        let mut wire = self.connect().await;
        wire.write(request.as_bytes()).await;
        wire.answer("GET").await.expect("an answer")
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: gate\r\n\r\n")).await
    }

    /// The sum of a metric's samples that have all of these labels.
    fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let mut families = Families::default();
        self.downstreams.read_metrics(&mut families);
        let mut sum = 0.0;
        for family in families.into_vec().iter().filter(|family| family.name() == name) {
            for metric in family.get_metric() {
                let has = |(name, value): &(&str, &str)| {
                    let pairs = metric.get_label();
                    pairs.iter().any(|pair| pair.name() == *name && pair.value() == *value)
                };
                if labels.iter().all(has) {
                    sum += metric.get_counter().get_value() + metric.get_gauge().get_value();
                }
            }
        }
        sum
    }
}

/// Waits until it holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}
