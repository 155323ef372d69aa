//! A Consul agent as far as a ring needs one: pairs, indexes, blocking queries, check-and-set.
//!
//! Faithful in what clients get wrong: an answer carries the index of the store's state for that
//! key, a blocking query returns when the index has passed the one named or its time is up, a
//! store that was restored starts with lower indexes, and a missing key is 404 with an index.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use freehold::ring::config::{KvConfig, KvStoreKind};
use freehold::units::Millis;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ports::Port;

pub const TOKEN: &str = "b1gs3cr3t";

pub struct FakeConsul {
    port: Port,
    agent: Agent,
    serving: JoinSet<()>,
}

#[derive(Clone)]
struct Agent {
    store: Arc<Mutex<Store>>,
    /// Tells blocked queries that something has changed.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Store {
    index: u64,
    pairs: BTreeMap<String, Pair>,
    /// Deleted keys' indexes: Consul's tombstones.
    tombstones: BTreeMap<String, u64>,
    failing: bool,
    asked: Asked,
}

struct Pair {
    create_index: u64,
    modify_index: u64,
    value: Bytes,
}

/// What was asked since the last look.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub queries: usize,
    pub blocking: usize,
    pub stale: usize,
    pub consistent: usize,
    pub swaps: usize,
    /// Blocking queries with these indexes, in order.
    pub wait_indexes: Vec<u64>,
}

impl FakeConsul {
    pub async fn start() -> Self {
        let port = Port::new();
        let listener = TcpListener::bind(port.address).await.expect("its port");
        let store = Arc::new(Mutex::new(Store { index: 10, ..Store::default() }));
        let agent = Agent { store, changes: watch::Sender::new(0) };
        let mut consul = Self { port, agent, serving: JoinSet::new() };
        consul.serve(listener);
        consul
    }

    /// Stops answering, as a dead agent: connections are refused and those open break.
    pub async fn kill(&mut self) {
        self.serving.shutdown().await;
    }

    pub async fn restart(&mut self) {
        let listener = TcpListener::bind(self.port.address).await.expect("its port");
        self.serve(listener);
    }

    fn serve(&mut self, listener: TcpListener) {
        let routes = get(query).put(swap).delete(remove);
        let router = Router::new().route("/v1/kv/{*key}", routes).with_state(self.agent.clone());
        self.serving.spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
    }

    /// Restored from an old, empty snapshot: nothing is there, indexes start low.
    pub fn restore_empty(&self) {
        self.agent.change(|store| {
            *store = Store { index: 1, ..Store::default() };
        });
    }

    /// Without a leader: 500 to everything.
    pub fn set_failing(&self, failing: bool) {
        self.agent.change(|store| store.failing = failing);
    }

    pub fn asked(&self) -> Asked {
        std::mem::take(&mut self.agent.store.lock().expect("no panic").asked)
    }

    pub fn put(&self, key: &str, value: &[u8]) {
        self.agent.change(|store| store.write(key, Bytes::copy_from_slice(value)));
    }

    pub fn index(&self) -> u64 {
        self.agent.store.lock().expect("no panic").index
    }

    pub fn config(&self) -> KvConfig {
        let mut config = KvConfig { store: KvStoreKind::Consul, ..KvConfig::default() };
        config.consul.host = self.port.address.to_string();
        config.consul.acl_token = serde_json::from_value(TOKEN.into()).expect("a text");
        config.consul.http_client_timeout = Millis::from_secs(10);
        config.consul.watch_rate_limit = 0.0;
        config
    }
}

impl Agent {
    fn change(&self, change: impl FnOnce(&mut Store)) {
        change(&mut self.store.lock().expect("no panic"));
        self.changes.send_modify(|count| *count += 1);
    }

    fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        if headers.get("x-consul-token").is_none_or(|token| token != TOKEN) {
            return Some((StatusCode::FORBIDDEN, "ACL not found").into_response());
        }
        let failing = self.store.lock().expect("no panic").failing;
        failing.then(|| (StatusCode::INTERNAL_SERVER_ERROR, "No cluster leader").into_response())
    }
}

impl Store {
    fn write(&mut self, key: &str, value: Bytes) {
        self.index += 1;
        let create_index = self.pairs.get(key).map_or(self.index, |pair| pair.create_index);
        let pair = Pair { create_index, modify_index: self.index, value };
        self.pairs.insert(key.to_owned(), pair);
    }

    /// What a query for the key carries: the key's own index, or how far the store is.
    fn index_of(&self, key: &str) -> u64 {
        let pair = self.pairs.get(key).map(|pair| pair.modify_index);
        pair.or_else(|| self.tombstones.get(key).copied()).unwrap_or(self.index)
    }

    /// The same for a list of all keys under a prefix.
    fn index_under(&self, prefix: &str) -> u64 {
        let under = |key: &&String| key.starts_with(prefix);
        let pairs = self.pairs.iter().filter(|(key, _)| under(key)).map(|(_, p)| p.modify_index);
        let gone = self.tombstones.iter().filter(|(key, _)| under(key)).map(|(_, index)| *index);
        pairs.chain(gone).max().unwrap_or(self.index)
    }
}

async fn query(
    State(agent): State<Agent>,
    Path(key): Path<String>,
    Query(parameters): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = agent.refusal(&headers) {
        return refusal;
    }
    let index = parameters.get("index").map_or(0, |index| index.parse().expect("a number"));
    let is_list = parameters.contains_key("recurse");
    let index_of = |store: &Store| match is_list {
        true => store.index_under(&key),
        false => store.index_of(&key),
    };
    {
        let mut store = agent.store.lock().expect("no panic");
        store.asked.queries += 1;
        store.asked.stale += usize::from(parameters.contains_key("stale"));
        store.asked.consistent += usize::from(parameters.contains_key("consistent"));
        if index > 0 {
            store.asked.blocking += 1;
            store.asked.wait_indexes.push(index);
        }
    }
    if index > 0 {
        let wait = parameters.get("wait").and_then(|wait| wait.strip_suffix("ms"));
        let wait: u64 = wait.expect("a wait").parse().expect("milliseconds");
        let mut changes = agent.changes.subscribe();
        // A state that fell behind the index is not passed, so the query waits its time out:
        // only the answer's lower index tells the client.
        let passed = async {
            while index_of(&agent.store.lock().expect("no panic")) <= index {
                changes.changed().await.expect("the agent lives");
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(wait), passed).await;
        if let Some(refusal) = agent.refusal(&headers) {
            return refusal;
        }
    }
    let store = agent.store.lock().expect("no panic");
    let index = [("x-consul-index", index_of(&store).to_string())];
    let is_asked = |name: &str| if is_list { name.starts_with(&key) } else { name == key };
    let pairs: Vec<serde_json::Value> = store
        .pairs
        .iter()
        .filter(|(name, _)| is_asked(name))
        .map(|(name, pair)| {
            serde_json::json!({
                "LockIndex": 0, "Key": name, "Flags": 0,
                "Value": BASE64_STANDARD.encode(&pair.value),
                "CreateIndex": pair.create_index, "ModifyIndex": pair.modify_index,
            })
        })
        .collect();
    if pairs.is_empty() {
        return (StatusCode::NOT_FOUND, index, "").into_response();
    }
    (index, serde_json::Value::from(pairs).to_string()).into_response()
}

async fn swap(
    State(agent): State<Agent>,
    Path(key): Path<String>,
    Query(parameters): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    value: Bytes,
) -> Response {
    if let Some(refusal) = agent.refusal(&headers) {
        return refusal;
    }
    let expected: u64 = parameters["cas"].parse().expect("a number");
    let mut is_done = false;
    agent.change(|store| {
        store.asked.swaps += 1;
        let present = store.pairs.get(&key).map_or(0, |pair| pair.modify_index);
        is_done = present == expected;
        if is_done {
            store.write(&key, value);
        }
    });
    is_done.to_string().into_response()
}

async fn remove(
    State(agent): State<Agent>,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = agent.refusal(&headers) {
        return refusal;
    }
    agent.change(|store| {
        store.index += 1;
        store.pairs.remove(&key);
        let index = store.index;
        store.tombstones.insert(key, index);
    });
    "true".into_response()
}
