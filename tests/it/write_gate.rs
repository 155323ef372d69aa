//! `-target=distributor` as a process has it, before a distributor that remembers what came.

mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse as _, Response};
use freehold::app::WriteGate;
use freehold::config::{Config, Target};
use freehold::ring::config::KvStoreKind;
use freehold::units::Millis;
use freehold::wire::proto::cortexpb;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::ports::Port;

const PATIENCE: Duration = Duration::from_secs(30);

/// A distributor's stand-in.
#[derive(Clone, Default)]
struct Stub {
    received: Arc<Mutex<Vec<Received>>>,
    /// What it answers next; after that 200.
    says: Arc<Mutex<Option<Said>>>,
    /// It never answers.
    hangs: Arc<Mutex<bool>>,
}

/// Status, body, and the value of a header of its own.
type Said = (u16, &'static str, &'static str);

#[derive(Clone, Debug)]
struct Received {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Stub {
    async fn listen(&self, address: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind(address).await.expect("bind");
        let address = listener.local_addr().expect("bound");
        let router = Router::new().fallback(take).with_state(self.clone());
        let serving = tokio::spawn(async move { axum_serve(listener, router).await });
        (address, serving)
    }

    fn last(&self) -> Received {
        self.received.lock().expect("lock").last().expect("something came").clone()
    }

    fn count(&self) -> usize {
        self.received.lock().expect("lock").len()
    }
}

/// Serves without axum's own server, which is not built in.
async fn axum_serve(listener: TcpListener, router: Router) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("accept");
        let router = router.clone();
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                use tower::Service as _;
                router.clone().call(request)
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
        });
    }
}

async fn take(
    State(stub): State<Stub>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    stub.received.lock().expect("lock").push(Received { method, path, headers, body });
    if *stub.hangs.lock().expect("lock") {
        std::future::pending::<()>().await;
    }
    match stub.says.lock().expect("lock").take() {
        None => ().into_response(),
        Some((status, text, header)) => {
            let mut response = text.to_owned().into_response();
            *response.status_mut() = status.try_into().expect("a status");
            response.headers_mut().insert("x-from-upstream", header.parse().expect("a value"));
            response
        }
    }
}

fn config(upstream: SocketAddr) -> Config {
    let mut config = Config::for_target(Target::Distributor);
    config.distributor.upstream.url = format!("http://{upstream}");
    config.distributor.upstream.connect_backoff_base_delay = Millis(50);
    config.distributor.upstream.connect_backoff_max_delay = Millis(50);
    config.server.http_listen_address = "127.0.0.1".into();
    config.server.http_listen_port = 0;
    config.admin.http_listen_address = "127.0.0.1:0".into();
    config.validate().expect("a good configuration");
    config
}

async fn start(change: impl FnOnce(&mut Config)) -> (Stub, WriteGate) {
    let stub = Stub::default();
    let (address, _) = stub.listen(([127, 0, 0, 1], 0).into()).await;
    let mut config = config(address);
    change(&mut config);
    (stub, WriteGate::start(config).await.expect("starts"))
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

async fn send(address: SocketAddr, head: &str, body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.expect("connect");
    let head = format!("{head}Host: gate\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("write");
    let _ = stream.write_all(body).await;
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    let _ = tokio::time::timeout(PATIENCE, reading).await.expect("an answer");
    let text = String::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
    let headers = lines.filter_map(|line| line.split_once(": "));
    Answer {
        status: status.parse().expect("a number"),
        headers: headers.map(|(k, v)| (k.to_lowercase(), v.to_owned())).collect(),
        body: body.to_owned(),
    }
}

async fn push(gate: &WriteGate, body: &[u8]) -> Answer {
    let head = format!(
        "POST /api/v1/push HTTP/1.1\r\nX-Scope-OrgID: a\r\nContent-Encoding: snappy\r\n\
         Content-Type: application/x-protobuf\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\n\
         User-Agent: tester/1\r\nContent-Length: {}\r\n",
        body.len()
    );
    send(gate.http_address, &head, body).await
}

async fn metrics(gate: &WriteGate) -> String {
    send(gate.http_address, "GET /metrics HTTP/1.1\r\n", b"").await.body
}

fn series(labels: &[(&str, &str)]) -> cortexpb::TimeSeries {
    let label = |(name, value): &(&str, &str)| cortexpb::LabelPair {
        name: name.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    };
    cortexpb::TimeSeries {
        labels: labels.iter().map(label).collect(),
        samples: vec![cortexpb::Sample { value: 1.0, timestamp_ms: 5, ..Default::default() }],
        ..Default::default()
    }
}

fn packed(timeseries: Vec<cortexpb::TimeSeries>) -> Vec<u8> {
    let request = cortexpb::WriteRequest { timeseries, ..Default::default() };
    snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).expect("packs")
}

fn good() -> Vec<u8> {
    packed(vec![series(&[("__name__", "m"), ("a", "1")])])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admitted_writes_go_on_byte_for_byte_and_answers_come_back() {
    let (stub, gate) = start(|_| {}).await;
    // Not the shortest packing, and labels out of order: neither is ours to better.
    let mut body = packed(vec![series(&[("z", "1"), ("__name__", "m"), ("empty", "")])]);
    for path in ["/api/v1/push", "/api/prom/push"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nX-Scope-OrgID: a\r\nX-Other: kept\r\nContent-Length: {}\r\n",
            body.len()
        );
        let answer = send(gate.http_address, &head, &body).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
        let got = stub.last();
        assert_eq!((got.method, got.path.as_str()), (Method::POST, path));
        assert_eq!(got.body, body);
        assert_eq!(got.headers["x-scope-orgid"], "a");
        assert_eq!(got.headers["x-other"], "kept");
        assert!(!got.headers.contains_key("connection"));
    }
    *stub.says.lock().expect("lock") = Some((429, "slow down\n", "yes"));
    let answer = push(&gate, &body).await;
    assert_eq!((answer.status, answer.body.as_str()), (429, "slow down\n"));
    assert_eq!(answer.headers["x-from-upstream"], "yes");
    assert_eq!(stub.last().headers["user-agent"], "tester/1");
    body[0] ^= 0xff;
    assert_eq!(push(&gate, &body).await.status, 400, "what cannot be read goes nowhere");
    assert_eq!(stub.count(), 3);
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_named_to_the_distributor_behind_and_joins_the_gates_to_one_another() {
    let (stub, gate) = start(|config| {
        config.client_identity.enabled = true;
        config.client_identity.header = "X-Writer".into();
        config.distributor.ring.instance_id = "gate-1".into();
        config.distributor.ring.instance_addr = "127.0.0.1".into();
    })
    .await;
    let body = good();
    let head = |client: &str| {
        let len = body.len();
        format!(
            "POST /api/v1/push HTTP/1.1\r\nX-Scope-OrgID: a\r\nContent-Length: {len}\r\n{client}"
        )
    };
    let head_of_two = head("X-Writer: w 7\r\nX-Writer: w 7\r\nConnection: x-writer\r\n");
    assert_eq!(send(gate.http_address, &head_of_two, &body).await.status, 200);
    let named: Vec<_> = stub.last().headers.get_all("x-writer").iter().cloned().collect();
    assert_eq!(named, ["w 7"]);
    let answer = send(gate.http_address, &head("X-Writer: w\r\nX-Writer: v\r\n"), &body).await;
    let text = "the request has more than one client ID\n";
    assert_eq!((answer.status, answer.body.as_str()), (400, text));
    assert_eq!(stub.count(), 1);
    // Owners of budgets are members of the ring, whatever the strategy of the tenants' rates.
    let head = "GET /distributor/ring HTTP/1.1\r\nAccept: application/json\r\n";
    let joined = async {
        while !send(gate.http_address, head, b"").await.body.contains("gate-1") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, joined).await.expect("a member");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_two_goes_on_as_it_came() {
    let (stub, gate) = start(|_| {}).await;
    // symbols "", "__name__", "m"; one series with refs 1 and 2 and a sample.
    let request = [
        &[0x22, 0, 0x22, 8][..],
        b"__name__",
        &[0x22, 1],
        b"m",
        &[0x2a, 8, 0x0a, 2, 1, 2, 0x12, 2, 0x10, 5],
    ]
    .concat();
    let body = snap::raw::Encoder::new().compress_vec(&request).expect("packs");
    let kind = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    let head = format!(
        "POST /api/v1/push HTTP/1.1\r\nX-Scope-OrgID: a\r\nContent-Type: {kind}\r\n\
         Content-Encoding: snappy\r\nContent-Length: {}\r\n",
        body.len()
    );
    *stub.says.lock().expect("lock") = Some((204, "", "yes"));
    let answer = send(gate.http_address, &head, &body).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let got = stub.last();
    assert_eq!(
        (got.body.as_ref(), &got.headers["content-type"]),
        (&body[..], &kind.parse().unwrap())
    );
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_a_write_goes_on_packed_anew() {
    let (stub, gate) = start(|_| {}).await;
    let body = packed(vec![series(&[("no", "name")]), series(&[("__name__", "m")])]);
    let answer = push(&gate, &body).await;
    assert_eq!((answer.status, answer.body.as_str()), (400, "sample missing metric name\n"));
    let got = stub.last();
    let unpacked = snap::raw::Decoder::new().decompress_vec(&got.body).expect("snappy");
    let request = cortexpb::WriteRequest::decode(&unpacked[..]).expect("a request");
    assert_eq!(request.timeseries, [series(&[("__name__", "m")])]);
    assert_eq!(got.headers["content-length"], got.body.len().to_string());
    // What the distributor has against the rest comes first.
    *stub.says.lock().expect("lock") = Some((500, "disk full\n", "yes"));
    let answer = push(&gate, &body).await;
    assert_eq!((answer.status, answer.body.as_str()), (500, "disk full\n"));
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_distributor_that_is_down_costs_nobody_anything_and_is_found_again() {
    let stub = Stub::default();
    // Nobody listens there yet.
    let port = Port::new();
    let mut config = config(port.address);
    config.limits.ingestion_rate = 0.0;
    config.limits.ingestion_burst_size = 1;
    let gate = WriteGate::start(config).await.expect("starts without it");
    for _ in 0..5 {
        let answer = push(&gate, &good()).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        let told: u64 = answer.headers["retry-after"].parse().expect("whole seconds");
        assert!((1..=60).contains(&told));
        assert!(answer.body.contains("cannot be reached"), "{}", answer.body);
    }
    let shown = metrics(&gate).await;
    assert!(shown.contains("freehold_distributor_upstream_reachable 0"), "{shown}");
    let (_, _serving) = stub.listen(port.address).await;
    let found = async {
        while push(&gate, &good()).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("found again, with the one credit left");
    assert_eq!(push(&gate, &good()).await.status, 429);
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_distributor_that_hangs_is_waited_for_no_longer_than_told() {
    let (stub, gate) = start(|config| {
        config.distributor.upstream.timeout = Millis(50);
        config.distributor.upstream.max_inflight_requests = 1;
    })
    .await;
    *stub.hangs.lock().expect("lock") = true;
    assert_eq!(push(&gate, &good()).await.status, 504);
    let body = good();
    let both = tokio::join!(push(&gate, &body), push(&gate, &body));
    let mut statuses = [both.0.status, both.1.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [503, 504], "one at a time: the other is refused at once");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_are_left_to_the_distributor_behind_and_refusals_are_ours() {
    let (_stub, gate) = start(|config| {
        config.limits.ingestion_rate = 0.001;
        config.limits.ingestion_burst_size = 1;
    })
    .await;
    assert_eq!(push(&gate, &good()).await.status, 200);
    let answer = push(&gate, &good()).await;
    assert_eq!((answer.status, answer.headers["retry-after"].as_str()), (429, "60"));
    let shown = metrics(&gate).await;
    for left_out in ["_received_samples_total", "_samples_in_total", "_push_requests_total"] {
        assert!(!shown.contains(&format!("cortex_distributor{left_out}")), "{left_out}\n{shown}");
    }
    for ours in [
        "cortex_discarded_samples_total{reason=\"rate_limited\",user=\"a\"} 1",
        "freehold_distributor_upstream_answers_total{status=\"200\"} 1",
        "cortex_distributor_inflight_push_requests 0",
    ] {
        assert!(shown.contains(ours), "{ours}\n{shown}");
    }
    assert_eq!(send(gate.http_address, "GET /ready HTTP/1.1\r\n", b"").await.body, "ready");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_vain_is_not_told_to_come_back() {
    let (_stub, gate) = start(|config| {
        config.limits.ingestion_rate = 0.0;
        config.limits.ingestion_burst_size = 1;
    })
    .await;
    assert_eq!(push(&gate, &good()).await.status, 200);
    // Nothing flows in, so the bucket stays empty.
    let answer = push(&gate, &good()).await;
    assert_eq!(answer.status, 429);
    assert!(!answer.headers.contains_key("retry-after"), "{answer:?}");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_without_the_distributors_ring_names_the_store_that_it_cannot_reach() {
    let nobody = Port::new();
    let address = nobody.address;
    let check = async |kind: KvStoreKind, expect: String| {
        let (_stub, gate) = start(|config| {
            config.limits.ingestion_rate_strategy = freehold::limits::IngestionRateStrategy::Global;
            config.distributor.ring.instance_id = "gate-1".into();
            config.distributor.ring.instance_addr = "127.0.0.1".into();
            let store = &mut config.distributor.ring.kvstore;
            store.store = kind;
            store.etcd.endpoints = vec![address.to_string()];
            store.consul.host = format!("http://{address}");
        })
        .await;
        let ready = async || send(gate.http_address, "GET /ready HTTP/1.1\r\n", b"").await;
        let told = async {
            while !ready().await.body.contains(&expect) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, told).await.is_err() {
            panic!("{expect}, but {:?}", ready().await);
        }
        let answer = ready().await;
        assert_eq!((answer.status, answer.headers["retry-after"].as_str()), (503, "1"));
        gate.stop().await.expect("stops");
    };
    let begin = "Distributor not ready: error talking to the KV store: cannot ask";
    check(KvStoreKind::Etcd, format!("{begin} etcd at {address}: ")).await;
    check(KvStoreKind::Consul, format!("{begin} Consul at {address}: ")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_global_rates_the_gate_is_in_the_distributors_ring_and_shows_it() {
    let (_stub, gate) = start(|config| {
        config.limits.ingestion_rate_strategy = freehold::limits::IngestionRateStrategy::Global;
        config.distributor.ring.instance_id = "gate-1".into();
        config.distributor.ring.instance_addr = "127.0.0.1".into();
    })
    .await;
    let member = async {
        while !metrics(&gate).await.contains("freehold_distributor_healthy_distributors 1") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, member).await.expect("one member");
    let head = "GET /distributor/ring HTTP/1.1\r\nAccept: application/json\r\n";
    let page = send(gate.http_address, head, b"").await;
    assert!(page.body.contains("gate-1") && page.body.contains("ACTIVE"), "{}", page.body);
    assert_eq!(send(gate.http_address, "GET /ready HTTP/1.1\r\n", b"").await.body, "ready");
    gate.stop().await.expect("stops");
}
