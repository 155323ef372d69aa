//! Debian's Prometheus with our `docs/prometheus.yml`, against the real binary.
//!
//! It scrapes itself and Freehold every second and remote-writes all of it. What must hold then:
//! its head and Freehold's tracker count the same series; and the store has exactly the samples
//! that Prometheus' own database answers with, bit for bit, and what it said of its metrics.
//!
//! Short: 15 scrapes. Long: two minutes. Skipped, saying so, where there is no `prometheus`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use freehold::store::{Config, MatchOp, Matcher, Store, StoredValue, TimeRange};
use freehold::tenant::TenantId;

use super::ports::Port;
use super::process::{Freehold, Process, http, is_long, wait_for};
use super::ring_stores::etcd_server::Etcd;

/// Everybody's tenant without authentication: Debian's build of 2.42 sends no `headers`.
const TENANT: &str = "fake";
/// A stale series' last sample; Prometheus' own answers leave it out.
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;
/// Scrapes that may be under way when Prometheus answers.
const MARGIN_MS: i64 = 3000;

/// Queries that a Prometheus without samples of its own answers by reading from here.
const PROMQL: [&str; 4] = [
    "sort(sum by (job) (count_over_time(up[5m])))",
    "sort(sum by (handler) (rate(prometheus_http_requests_total[1m])))",
    "histogram_quantile(0.9, sum by (le) (prometheus_http_request_duration_seconds_bucket))",
    "max_over_time(prometheus_tsdb_head_series[5m]) and on (job) up == 1",
];

/// Samples by time, by series' labels as text.
type Series = BTreeMap<String, BTreeMap<i64, u64>>;

/// A running one; ends with the value.
pub struct Prometheus {
    pub process: Process,
    address: SocketAddr,
}

impl Prometheus {
    pub async fn start(dir: &Path, name: &str, config: &str, port: u16) -> Self {
        let file = dir.join(format!("{name}.yml"));
        std::fs::write(&file, config).expect("the configuration");
        let mut command = Command::new("prometheus");
        command.args([
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", dir.join(name).display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ]);
        let process = Process::spawn(&mut command, &dir.join(format!("{name}.log")));
        let prometheus = Self { process, address: ([127, 0, 0, 1], port).into() };
        let explain = || prometheus.process.log();
        wait_for(explain, async || (prometheus.get("/-/ready").await?.0 == 200).then_some(()))
            .await;
        prometheus
    }

    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        let (status, body) = http(self.address, "GET", path, "", &[]).await.ok()?;
        Some((status, String::from_utf8(body).expect("text")))
    }

    /// The result of an instant query.
    pub async fn query(&self, query: &str, at_ms: i64) -> serde_json::Value {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let at = at_ms as f64 / 1000.0;
        let path = format!("/api/v1/query?query={query}&time={at:.3}");
        let (status, body) = self.get(&path).await.expect("an answer");
        assert_eq!(status, 200, "{body}");
        let mut answer: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        answer["data"]["result"].take()
    }

    /// A query's only number, if it has one.
    async fn number(&self, query: &str) -> Option<f64> {
        let result = self.query(query, now_ms()).await;
        result[0]["value"][1].as_str()?.parse().ok()
    }

    /// What Prometheus says of itself right now.
    async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await?;
        let found = text.lines().find(|line| line.starts_with(name))?;
        found.rsplit(' ').next()?.parse().ok()
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("in range")
}

pub fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir: PathBuf| dir.join("prometheus")).any(|p| p.is_file())
}

/// Our ready configuration with this test's ports: the half that writes, the half that reads.
fn configurations(freehold: &Freehold, port: u16) -> (String, String) {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/prometheus.yml"))
        .expect("docs/prometheus.yml")
        .replace("127.0.0.1:8080", &freehold.http.to_string())
        .replace("127.0.0.1:9090", &format!("127.0.0.1:{port}"))
        .replace("scrape_interval: 5s", "scrape_interval: 1s");
    let (writes, reads) = text.split_once("\nremote_read:").expect("a remote_read block");
    (writes.to_owned(), format!("remote_read:{reads}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_finds_in_the_store_what_it_wrote() {
    if !is_installed() {
        println!("skipped: no prometheus on PATH (apt-get install prometheus)");
        return;
    }
    let scrapes = if is_long() { 120.0 } else { 15.0 };
    let dir = tempfile::tempdir().expect("a directory");
    let mut freehold = Freehold::start(dir.path(), &["-auth.enabled=false"]).await;
    freehold.wait_ready().await;
    let (port, reads_port) = (Port::new(), Port::new());
    let (writes, reads) = configurations(&freehold, port.number());
    let prometheus = Prometheus::start(dir.path(), "writer", &writes, port.number()).await;

    let explain = || prometheus.process.log() + &freehold.process.log();
    let count = "count_over_time(up{job=\"freehold\"}[10m])";
    wait_for(explain, async || prometheus.number(count).await.filter(|&n| n >= scrapes)).await;

    // Both sides move on while we read them, so they are read until they agree.
    let owned = format!("cortex_ingester_owned_series{{user=\"{TENANT}\"}}");
    let series = wait_for(explain, async || {
        let head = prometheus.metric("prometheus_tsdb_head_series ").await?;
        let owned = freehold.metric(&owned).await?;
        let memory = freehold.metric("cortex_ingester_memory_series").await?;
        (owned == head && memory == head).then_some(head)
    })
    .await;

    let end_ms = now_ms();
    let theirs = scraped(&prometheus.query("{__name__=~\".+\"}[10m]", end_ms).await);
    let sent = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds";
    let all_sent = (end_ms + MARGIN_MS) as f64 / 1000.0;
    wait_for(explain, async || prometheus.metric(sent).await.filter(|&at| at >= all_sent)).await;
    let failed = prometheus.metric("prometheus_remote_storage_samples_failed_total").await;
    assert_eq!(failed, Some(0.0), "{}", prometheus.process.log());
    let reader = Prometheus::start(dir.path(), "reader", &reads, reads_port.number()).await;
    for query in PROMQL {
        let (theirs, ours) =
            (prometheus.query(query, end_ms).await, reader.query(query, end_ms).await);
        assert!(theirs.as_array().is_some_and(|series| !series.is_empty()), "{query}");
        assert_eq!(theirs, ours, "{query}");
    }
    freehold.process.kill();

    let store = Store::open(Config { path: dir.path().join("data"), ..Config::default() });
    let store = store.expect("the store opens");
    let ours = stored(&store, end_ms);
    let samples = compare(&theirs, &ours, end_ms);
    let tenant = TenantId::parse(TENANT).expect("a tenant");
    let metadata = store.metadata(&tenant, Some(b"prometheus_tsdb_head_series"));
    assert_eq!(metadata.expect("metadata").len(), 1, "Prometheus describes its metrics");
    println!("{series} series in both; {samples} samples of {} series are equal", theirs.len());
}

/// A gate before three ingesters with all of it at RF 3: processes that share a ring in etcd.
/// One ingester is killed and comes back; whatever two of the three have must be all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_gate_acknowledges_is_in_any_two_of_three_ingesters() {
    if !is_installed() {
        println!("skipped: no prometheus on PATH (apt-get install prometheus)");
        return;
    }
    let Some(etcd) = Etcd::start().await else { return };
    let scrapes = if is_long() { 60.0 } else { 12.0 };
    let dir = tempfile::tempdir().expect("a directory");
    let endpoints = format!("-etcd.endpoints={}", etcd.address());
    let ring = [
        "-auth.enabled=false",
        "-ring.store=etcd",
        &endpoints,
        "-distributor.replication-factor=3",
    ];
    let home = |index: usize| dir.path().join(format!("ingester-{index}"));
    let start = async |index: usize| {
        std::fs::create_dir_all(home(index)).expect("a directory");
        let id = format!("-ingester.lifecycler.ID=ingester-{index}");
        let own = [
            "-target=ingester",
            &id,
            "-ingester.lifecycler.addr=127.0.0.1",
            "-ingester.min-ready-duration=0s",
            "-ingester.final-sleep=0s",
            "-ingester.join-after=0s",
            "-ingester.heartbeat-period=1s",
        ];
        let ingester = Freehold::start(&home(index), &[&own[..], &ring[..]].concat()).await;
        ingester.wait_ready().await;
        ingester
    };
    let mut ingesters = Vec::new();
    for index in 0..3 {
        ingesters.push(start(index).await);
    }
    let own = ["-target=distributor", "-distributor.client-cleanup-period=1s"];
    let gate = Freehold::start(dir.path(), &[&own[..], &ring[..]].concat()).await;
    let explain = || gate.process.log();
    let members = "freehold_ring_healthy_instances{name=\"ingester\"}";
    wait_for(explain, async || gate.metric(members).await.filter(|&active| active == 3.0)).await;
    gate.wait_ready().await;

    let port = Port::new();
    let (writes, _) = configurations(&gate, port.number());
    let prometheus = Prometheus::start(dir.path(), "writer", &writes, port.number()).await;
    let explain = || prometheus.process.log() + &gate.process.log();
    let scraped_times = async |wanted: f64| {
        let count = "count_over_time(up{job=\"freehold\"}[10m])";
        wait_for(explain, async || prometheus.number(count).await.filter(|&n| n >= wanted)).await;
    };
    scraped_times(scrapes / 3.0).await;
    ingesters[2].process.kill();
    scraped_times(scrapes * 2.0 / 3.0).await;
    ingesters[2] = start(2).await;
    scraped_times(scrapes).await;

    let end_ms = now_ms();
    let theirs = scraped(&prometheus.query("{__name__=~\".+\"}[10m]", end_ms).await);
    let sent = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds";
    let all_sent = (end_ms + MARGIN_MS) as f64 / 1000.0;
    wait_for(explain, async || prometheus.metric(sent).await.filter(|&at| at >= all_sent)).await;
    let failed = prometheus.metric("prometheus_remote_storage_samples_failed_total").await;
    assert_eq!(failed, Some(0.0), "{}", prometheus.process.log());
    drop(ingesters);

    let stores: Vec<_> = (0..3)
        .map(|index| {
            let config = Config { path: home(index).join("data"), ..Config::default() };
            stored(&Store::open(config).expect("the store opens"), end_ms)
        })
        .collect();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let mut both = stores[one].clone();
        for (labels, samples) in &stores[other] {
            both.entry(labels.clone()).or_default().extend(samples);
        }
        let samples = compare(&theirs, &both, end_ms);
        println!("ingesters {one} and {other}: {samples} samples of {} series", theirs.len());
    }
    let held: Vec<usize> =
        stores.iter().map(|store| store.values().map(|s| s.len()).sum()).collect();
    println!("samples of each ingester: {held:?}");
    assert!(held[2] < held[0], "the third was away: {held:?}");
}

/// Every sample that one side has the other has, with the same bits.
fn compare(theirs: &Series, ours: &Series, end_ms: i64) -> usize {
    let mut samples = 0;
    for (labels, theirs) in theirs {
        let ours = ours.get(labels).unwrap_or_else(|| panic!("{labels} is not in the store"));
        for (t_ms, bits) in theirs {
            assert!(ours.get(t_ms).is_some_and(|ours| is_same(*ours, *bits)), "{labels} at {t_ms}");
            samples += 1;
        }
    }
    for (labels, ours) in ours {
        for t_ms in ours.range(..end_ms - MARGIN_MS).map(|(t_ms, _)| t_ms) {
            let known = theirs.get(labels).is_some_and(|theirs| theirs.contains_key(t_ms));
            assert!(known, "{labels} at {t_ms} is not in Prometheus");
        }
    }
    samples
}

/// As text a number that is none has lost its payload.
fn is_same(a: u64, b: u64) -> bool {
    a == b || (f64::from_bits(a).is_nan() && f64::from_bits(b).is_nan())
}

fn scraped(result: &serde_json::Value) -> Series {
    let each = result.as_array().expect("series").iter().map(|series| {
        let labels = series["metric"].as_object().expect("labels");
        let labels: BTreeMap<_, _> = labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str().expect("text")))
            .collect();
        let samples = series["values"].as_array().expect("samples").iter().map(|sample| {
            let t_ms = (sample[0].as_f64().expect("a time") * 1000.0).round() as i64;
            let value: f64 = sample[1].as_str().expect("text").parse().expect("a number");
            (t_ms, value.to_bits())
        });
        (format!("{labels:?}"), samples.collect())
    });
    each.collect()
}

fn stored(store: &Store, end_ms: i64) -> Series {
    let tenant = TenantId::parse(TENANT).expect("a tenant");
    let matcher = Matcher::new(MatchOp::Regex, b"__name__", b".+").expect("a matcher");
    let range = TimeRange { start_ms: i64::MIN, end_ms };
    let mut found = Series::new();
    for series in store.select(&tenant, &[matcher], range).expect("a selection") {
        let series = series.expect("a series");
        let text = |bytes| std::str::from_utf8(bytes).expect("text");
        let labels = series.labels.as_labels();
        let labels: BTreeMap<_, _> = labels.iter().map(|(n, v)| (text(n), text(v))).collect();
        let samples = series.samples.iter().filter_map(|sample| match sample.value {
            StoredValue::Float { bits: STALE_BITS, .. } => None,
            StoredValue::Float { bits, .. } => Some((sample.t_ms, bits)),
            StoredValue::Histogram(_) => panic!("Prometheus 2.42 scrapes none by default"),
        });
        found.insert(format!("{labels:?}"), samples.collect());
    }
    found
}
