//! What a Cortex distributor was seen to answer over HTTP, sent again to ours over a socket.
//!
//! Cases are sent in the order of the recording, since some lean on what earlier ones left, to a
//! distributor in front of an ingester with a store, both at the recorded time. Cases with
//! ingesters that are down, and those at RF 3, need a ring of ingesters.
//!
//! A Cortex distributor wraps what an ingester says in which ingester said it; ours has the one
//! of this process behind it, and says what it says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use freehold::clock::{Clock, Now};
use freehold::config::{Command, Config};
use freehold::distributor::{Distributor, Parts, Peers, RateLimitHeaders, Sink};
use freehold::exposition::Families;
use freehold::ingester::{ChargedBy, Ingester, Role};
use freehold::labels::IdentityHasher;
use freehold::limits::{Limits, Overrides};
use freehold::ring::model::{Instance, InstanceState, RingModel, RingReading};
use freehold::ring::{Ring, RingSettings};
use freehold::server::drain::Drainer;
use freehold::server::http::{HttpEdge, RemoteWriteSettings, ShellCalls, router, serve};
use freehold::server::listen::Listener;
use freehold::server::room::Room;
use freehold::server::seam::{DistributorCalls, Work};
use freehold::server::tenancy::Tenancy;
use freehold::store::{self, Store};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::vectors;

const PATIENCE: Duration = Duration::from_secs(30);

/// A case of the recording that one process can answer.
fn is_ours(case: &Value) -> bool {
    vectors::text(case, "kind") == "push" && case["setup"]["ingester_state"].is_null()
}

struct Bench {
    ingester: Arc<Ingester>,
    overrides: Arc<Overrides>,
    /// Time of the case at hand, Unix milliseconds.
    now_ms: Arc<AtomicI64>,
    clock: Clock,
    parity: bool,
    _dir: tempfile::TempDir,
}

struct Served {
    address: std::net::SocketAddr,
    distributor: Arc<Distributor>,
    drainer: Drainer,
    serving: tokio::task::JoinHandle<freehold::server::Drained>,
    /// Pushes of the tenant `held` wait for it.
    release: Arc<Notify>,
}

fn config(flags: &str) -> Config {
    // Cortex's default is off.
    let default = "-distributor.remote-writev2-enabled=false";
    let arguments = ["freehold", default].into_iter().chain(flags.split_whitespace());
    match Command::parse(arguments.map(OsString::from)) {
        Ok(Command::Serve(config)) => *config,
        other => panic!("{flags}: {other:?}"),
    }
}

impl Bench {
    fn new(parity: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store::Config { path: dir.path().into(), ..store::Config::default() };
        let store = Store::open(store).expect("a store");
        let mut settings = config("").ingester;
        settings.limits_parity = parity;
        // The recorded Cortex had no limits of series of its own.
        let limits =
            Limits { max_series_per_user: 0, max_series_per_metric: 0, ..config("").limits };
        let overrides = Arc::new(Overrides::new(limits, settings.instance_limits.clone()));
        let ring = Ring::new(
            RingSettings {
                replication_factor: 1,
                zone_awareness_enabled: false,
                heartbeat_timeout_ms: 0,
                extend_writes: true,
                own_id: Some("ingester-1".to_owned()),
            },
            600_000,
        );
        let mut model = RingModel::default();
        let member = Instance {
            addr: "127.0.0.1:19301".to_owned(),
            timestamp_s: 1_795_994_398,
            state: InstanceState::Active,
            tokens: vec![freehold::ring::Token(1)],
            zone: String::new(),
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        };
        model.instances.insert("ingester-1".to_owned(), member);
        ring.publish(&RingReading::Whole(model), 1_795_994_398_000);
        let ingester = Arc::new(Ingester::new(freehold::ingester::Parts {
            config: settings,
            role: Role {
                behind_distributors: false,
                shard_by_all_labels: true,
                shuffle_sharding: false,
                has_upstream: false,
            },
            ring: Arc::new(ring),
            overrides: Arc::clone(&overrides),
            hasher: IdentityHasher::new(store.identity_secret()),
            store: Some(store),
        }));
        let clock = Clock::start();
        ingester.restore(Now { unix_ms: 1_795_994_398_000, ..clock.now() }).expect("restored");
        ingester.note_ring_state(InstanceState::Active);
        ingester.run();
        let now_ms = Arc::new(AtomicI64::new(0));
        Self { ingester, overrides, now_ms, clock, parity, _dir: dir }
    }

    /// The limits of a case: its tenant's, and those of the ingester.
    fn set_limits(&self, known: &mut BTreeMap<String, Value>, case: &Value) {
        let tenant = case["request"]["headers"]["X-Scope-OrgID"].as_str().unwrap_or("nobody");
        let setup = &case["setup"];
        known.insert(tenant.to_owned(), setup["tenant_limits"].clone());
        let mut file = serde_json::json!({ "overrides": known });
        if !setup["runtime_ingester_limits"].is_null() {
            file["ingester_limits"] = setup["runtime_ingester_limits"].clone();
        }
        let parsed = self.overrides.parse(&file.to_string()).expect("a runtime file");
        self.overrides.publish(parsed);
        // What applies to tenants that are there is worked out anew.
        let clock = self.clock;
        freehold::ingester::passes::PassLoop::new(Arc::clone(&self.ingester), clock)
            .renew(Now { unix_ms: self.now_ms.load(Ordering::Relaxed), ..clock.now() });
        self.ingester.admission.tick();
    }

    async fn serve(&self, flags: &str) -> Served {
        let config = config(flags);
        let release = Arc::new(Notify::new());
        let (ingester, gate) = (Arc::clone(&self.ingester), Arc::clone(&release));
        let (now_ms, clock) = (Arc::clone(&self.now_ms), self.clock);
        let now = move || Now { unix_ms: now_ms.load(Ordering::Relaxed), ..clock.now() };
        let at = now.clone();
        let work = Work::blocking(2);
        let sink = Sink::Local(Arc::new(move |tenant, body| {
            let (ingester, gate, now) = (Arc::clone(&ingester), Arc::clone(&gate), at());
            let work = work.clone();
            Box::pin(async move {
                if tenant.as_str() == "held" {
                    gate.notified().await;
                }
                let push = move || ingester.push_from(ChargedBy::Distributor, &tenant, &body, now);
                work.run(push).await??;
                Ok(())
            })
        }));
        let distributor = Arc::new(Distributor::new(Parts {
            config: config.distributor.clone(),
            parity: self.parity,
            overrides: Arc::clone(&self.overrides),
            peers: Peers::Alone,
            budgets: None,
            ha: freehold::distributor::ha::HaTracker::off(),
            names: freehold::labels::NameScheme::Legacy,
            sink,
            clock: self.clock,
            recheck_period: Duration::from_secs(10),
        }));
        let [pushed, asked, counted] = std::array::from_fn(|_| Arc::clone(&distributor));
        let calls = DistributorCalls {
            push: Arc::new(move |tenant, write| {
                let (distributor, now) = (Arc::clone(&pushed), now());
                Box::pin(async move { distributor.push(&tenant, write, now).await })
            }),
            budget: Arc::new(move |tenant| asked.budget(tenant)),
            came: Arc::new(move |kind| counted.came(kind)),
        };
        let nothing = Arc::new(|_| String::new());
        let edge = HttpEdge {
            tenancy: Tenancy::Header,
            clients: Default::default(),
            shell: ShellCalls {
                ready: Arc::new(|| Ok(None)),
                metrics: Arc::new(String::new),
                config: nothing.clone(),
                runtime_config: nothing,
            },
            distributor: Some(calls),
            remote_write: RemoteWriteSettings {
                v2_enabled: config.distributor.remote_writev2_enabled,
                accept_unknown_content_type: config
                    .distributor
                    .accept_unknown_remote_write_content_type,
                body_bytes_max: config.distributor.max_recv_msg_size,
                otlp_body_bytes_max: config.distributor.max_recv_msg_size,
                body_wait: PATIENCE,
                ratelimit_headers: RateLimitHeaders::Off,
            },
            room: Room::new(1 << 30),
        };
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind");
        let address = listener.local_address().expect("bound");
        let (drainer, drain) = Drainer::new();
        let serving = tokio::spawn(async move {
            serve(listener, router(edge, Router::new()), &config.server, drain).await
        });
        Served { address, distributor, drainer, serving, release }
    }
}

#[derive(Debug, PartialEq)]
struct Answer {
    status: u64,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Served {
    async fn send(&self, request: &Value) -> Answer {
        let body = vectors::base64(&request["body_base64"]);
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n",
            vectors::text(request, "method"),
            vectors::text(request, "path"),
            body.len()
        );
        for (name, value) in request["headers"].as_object().expect("headers") {
            head += &format!("{name}: {}\r\n", value.as_str().expect("text"));
        }
        let mut stream = TcpStream::connect(self.address).await.expect("connect");
        stream.write_all((head + "\r\n").as_bytes()).await.expect("write");
        // It may be answered and closed before all is taken.
        let _ = stream.write_all(&body).await;
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

    /// Counters of the distributor, as the recording names them.
    fn counters(&self) -> BTreeMap<String, f64> {
        let mut families = Families::default();
        self.distributor.read_metrics(&mut families);
        let encoder = prometheus::TextEncoder::new();
        let text = encoder.encode_to_string(&families.into_vec()).expect("text");
        let lines = text.lines().filter(|line| line.contains("_total") && !line.starts_with('#'));
        let split = lines.map(|line| line.rsplit_once(' ').expect("a value"));
        split
            .filter(|(name, _)| name.starts_with("cortex_"))
            .map(|(name, value)| (format!("distributor {name}"), value.parse().expect("number")))
            .collect()
    }

    async fn stop(self) {
        self.drainer.start();
        self.serving.await.expect("served");
    }
}

/// The recorded answer, less the words in which a distributor hands on an ingester's.
fn expected(case: &Value) -> Answer {
    let response = &case["response"];
    let body = vectors::text(response, "body");
    let (wrapped, said) = match body.strip_prefix("maxFailure (quorum) on a given error family, ") {
        Some(rest) => (true, rest.split_once(" desc = ").expect("an error").1),
        None => (false, body),
    };
    let headers = response["headers"].as_object().expect("headers").iter();
    let headers = headers.filter(|(name, _)| !wrapped || *name != "Content-Length");
    Answer {
        status: response["status"].as_u64().expect("a status"),
        headers: headers
            .map(|(k, v)| (k.to_lowercase(), v.as_str().expect("text").to_owned()))
            .collect(),
        body: said.to_owned(),
    }
}

/// Sends all cases; with `parity` the texts and counters of rate limits are Cortex's too.
async fn replay(parity: bool) {
    let file = vectors::read("http_behaviour");
    let bench = Bench::new(parity);
    let mut limits = BTreeMap::new();
    let mut seen = 0;
    let mut wrong = Vec::new();
    let mut served: Option<(String, Served)> = None;
    for case in vectors::array(&file, "records").iter().filter(|case| is_ours(case)) {
        let name = vectors::text(case, "name");
        if case["request"]["body_base64"].is_null() {
            continue;
        }
        let flags = vectors::text(&case["setup"], "flags");
        if served.as_ref().is_none_or(|(of, _)| of != flags) {
            if let Some((_, last)) = served.take() {
                last.stop().await;
            }
            served = Some((flags.to_owned(), bench.serve(flags).await));
        }
        let (_, server) = served.as_ref().expect("served above");
        bench.now_ms.store(case["recorded_at_ms"].as_i64().expect("a time"), Ordering::Relaxed);
        bench.set_limits(&mut limits, case);
        for earlier in case["before"].as_array().into_iter().flatten() {
            server.send(earlier).await;
        }
        let before = server.counters();
        let answer = server.send(&case["request"]).await;
        let expect = expected(case);

        let is_rate_limit = expect.status == 429 && !parity;
        let same_body = match is_rate_limit {
            // Cortex's sentence, then ours.
            true => answer.body.starts_with(expect.body.trim_end()),
            false => answer.body == expect.body,
        };
        let same_headers = expect.headers.iter().all(|(name, value)| {
            (is_rate_limit && name == "content-length") || answer.headers.get(name) == Some(value)
        });
        let same_counts = is_rate_limit || counts_match(case, &before, &server.counters());
        let is_same = answer.status == expect.status && same_body && same_headers && same_counts;
        if !is_same {
            let after = server.counters();
            let moved: BTreeMap<_, _> = after
                .iter()
                .map(|(name, value)| (name, value - before.get(name).unwrap_or(&0.0)))
                .filter(|(_, moved)| *moved != 0.0)
                .collect();
            wrong.push(format!(
                "{name}:\n  {answer:?}\nexpected\n  {expect:?}\n  {moved:?}\nexpected\n  {}",
                case["counter_deltas"]
            ));
        }
        // All that were recorded are larger than the burst: no time lets them through.
        if answer.status == 429 {
            assert!(!answer.headers.contains_key("retry-after"), "{name}");
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "{} of {seen} differ:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(seen > 60, "{seen}");
    if let Some((_, last)) = served {
        last.stop().await;
    }
}

/// Whether the counters of the distributor moved as the recording says.
fn counts_match(
    case: &Value,
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) -> bool {
    let Some(deltas) = case["counter_deltas"].as_object() else { return true };
    let ours = |name: &str| name.starts_with("distributor ");
    let moved: BTreeMap<&str, f64> = after
        .iter()
        // The recording leaves these out.
        .filter(|(name, _)| !name.contains("_in_total"))
        .map(|(name, value)| (name.as_str(), value - before.get(name).unwrap_or(&0.0)))
        .filter(|(_, moved)| *moved != 0.0)
        .collect();
    let expect: BTreeMap<&str, f64> = deltas
        .iter()
        .filter(|(name, _)| ours(name))
        .map(|(name, value)| (name.as_str(), value.as_f64().expect("a number")))
        .collect();
    moved == expect
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_is_answered_as_cortex_was_seen_to() {
    replay(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_parity_rate_limits_say_more_and_all_else_is_the_same() {
    replay(false).await;
}

/// The one case that takes several clients at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_the_inflight_limit_are_answered_as_cortex_was_seen_to() {
    let file = vectors::read("http_behaviour");
    let cases = vectors::array(&file, "records");
    let named = |name: &str| {
        cases.iter().find(|case| case["name"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    let case = named("push_distributor_max_inflight");
    let bench = Bench::new(false);
    let server = Arc::new(bench.serve(vectors::text(&case["setup"], "flags")).await);
    let mut held = named("push_ok_one_sample").clone();
    bench.now_ms.store(held["recorded_at_ms"].as_i64().expect("a time"), Ordering::Relaxed);
    held["request"]["headers"]["X-Scope-OrgID"] = "held".into();
    let first = {
        let (server, request) = (Arc::clone(&server), held["request"].clone());
        tokio::spawn(async move { server.send(&request).await })
    };
    let in_flight = || {
        let mut families = Families::default();
        server.distributor.read_metrics(&mut families);
        let encoder = prometheus::TextEncoder::new();
        let text = encoder.encode_to_string(&families.into_vec()).expect("text");
        text.contains("cortex_distributor_inflight_push_requests 1\n")
    };
    let waiting = async {
        while !in_flight() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the first is in flight");
    let answer = server.send(&named("push_ok_one_sample")["request"]).await;
    let expect = expected(case);
    assert_eq!((answer.status, &answer.body), (expect.status, &expect.body));
    assert!(answer.headers.contains_key("retry-after"));
    server.release.notify_one();
    assert_eq!(first.await.expect("sent").status, 200);
}
