//! A whole Cortex, with a sidecar before each of its ingesters or without: real processes on
//! loopback.
//!
//! etcd holds the ring. An ingester with a sidecar puts the sidecar's port there, so that the
//! distributor and the querier reach it through the sidecar only. Children die with their handles.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::cluster::{
    Answer, PATIENCE, cortex_binary, free_port, http, unix_ms, until, write_request_at,
};
use crate::process::Process;
use crate::ring_stores::etcd_server::Etcd;

/// A client's wait before it tries a refused push again.
const RETRY: Duration = Duration::from_millis(100);

/// Tokens of each ingester.
const TOKENS_EACH: usize = 128;
/// The tokens leave room for so many ingesters.
const INGESTERS_MAX: usize = 6;

/// What a cluster is started with.
#[derive(Default)]
pub struct Setup {
    pub replication_factor: usize,
    pub distributor: Vec<String>,
    pub ingester: Vec<String>,
    pub sidecar: Vec<String>,
    /// The distributor is on its own with its ingesters.
    pub without_sidecars: bool,
    /// The ring is on gossip, Cortex's and ours, instead of in etcd.
    pub is_gossiped: bool,
}

pub struct Beside {
    pub pairs: Vec<Pair>,
    pub client: Client,
    setup: Setup,
    distributor: Cortex,
    querier: Cortex,
    etcd: Etcd,
    /// Where the distributor gossips, whom all others join.
    seed: u16,
    dir: tempfile::TempDir,
}

/// Who writes through the distributor.
#[derive(Clone, Copy)]
pub struct Client(u16);

/// A process of Cortex's that takes HTTP.
pub struct Cortex {
    pub http: u16,
    _process: Process,
}

/// An ingester of Cortex's and the sidecar before it.
pub struct Pair {
    id: String,
    dir: PathBuf,
    upstream_http: u16,
    sidecar_http: u16,
    ingester_flags: Vec<String>,
    sidecar_flags: Vec<String>,
    has_sidecar: bool,
    starts: usize,
    ingester: Option<Process>,
    sidecar: Option<Process>,
}

/// Values by time in milliseconds, by the series' number.
pub type Samples = BTreeMap<usize, BTreeMap<i64, f64>>;

impl Setup {
    /// `None`, said aloud, where there is no Cortex or no etcd.
    pub async fn start(self, ingesters: usize) -> Option<Beside> {
        cortex_binary()?;
        let etcd = Etcd::start().await?;
        let dir = tempfile::tempdir().expect("a directory");
        let seed = free_port();
        let start = |target: &str, more: &[String]| {
            let home = dir.path().join(target);
            Cortex::start(&home, target, &etcd, seed, &self, more)
        };
        let distributor = start("distributor", &self.distributor);
        let querier = start(
            "querier",
            // Everything is young enough to be in the ingesters.
            &["-querier.store-gateway-addresses=127.0.0.1:1".to_owned()],
        );
        for cortex in [&distributor, &querier] {
            until("the distributor and the querier are ready", async || {
                is_ready(cortex.http).await
            })
            .await;
        }
        let client = Client(distributor.http);
        let mut cluster = Beside {
            pairs: Vec::new(),
            client,
            setup: self,
            distributor,
            querier,
            etcd,
            seed,
            dir,
        };
        cluster.grow_to(ingesters).await;
        Some(cluster)
    }
}

impl Beside {
    /// Starts ingesters and their sidecars until there are so many and all act on it.
    pub async fn grow_to(&mut self, ingesters: usize) {
        for index in self.pairs.len()..ingesters {
            let mut pair = Pair::new(index, self);
            pair.start_ingester();
            if pair.has_sidecar {
                pair.start_sidecar();
            }
            self.pairs.push(pair);
        }
        for pair in &self.pairs {
            pair.until_ready().await;
        }
        let mut all_active_at = None;
        until("the ring has all, and all have seen it since", async || {
            let Ok(page) = get(self.distributor.http, "/ring", "").await else { return false };
            let page: serde_json::Value = serde_json::from_str(&page.body).unwrap_or_default();
            let shards = page["shards"].as_array().cloned().unwrap_or_default();
            let active = shards.iter().filter(|shard| shard["state"] == "ACTIVE").count();
            if active < ingesters {
                return false;
            }
            // Members count the others when they heartbeat; the page tells that in seconds.
            let now = page["now"].as_str().unwrap_or_default().replace('T', " ");
            let second = |text: &str| text.get(..19).unwrap_or_default().to_owned();
            let since = all_active_at.get_or_insert_with(|| second(&now));
            shards
                .iter()
                .all(|shard| second(shard["timestamp"].as_str().unwrap_or_default()) > *since)
        })
        .await;
        for pair in self.pairs.iter().filter(|pair| pair.has_sidecar) {
            until("the sidecars have the ring", async || {
                pair.sidecar_metric("cortex_ring_members", &["state=\"ACTIVE\""]).await
                    == ingesters as f64
            })
            .await;
        }
    }

    /// Pushes all and notes what was acknowledged; all has to be.
    pub async fn push_all(
        &self,
        tenant: &str,
        series: std::ops::Range<usize>,
        step: usize,
        samples: &mut Samples,
    ) {
        for start in series.clone().step_by(step) {
            let part = start..(start + step).min(series.end);
            let at_ms = unix_ms();
            let (_, answer) = self.client.push_persistently(tenant, part.clone(), at_ms, 0.0).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            note(samples, part, at_ms, 0.0);
        }
    }

    /// All samples of the last minutes.
    pub async fn read(&self, tenant: &str) -> Samples {
        // Cortex takes the second that has begun for now, which leaves out what came since.
        let query = format!(
            "/api/v1/query?query=%7B__name__%3D~%22metric_.%2B%22%7D%5B20m%5D&time={}",
            unix_ms() / 1000 + 1
        );
        let answer = self.ask(&query, tenant).await;
        let mut samples = Samples::new();
        for series in answer["data"]["result"].as_array().expect("a list") {
            let number = series["metric"]["number"].as_str().expect("a label");
            let found = samples.entry(number.parse().expect("a number")).or_default();
            for sample in series["values"].as_array().expect("a list") {
                let at_s = sample[0].as_f64().expect("a time");
                let value = sample[1].as_str().expect("a value").parse().expect("a number");
                found.insert((at_s * 1000.0).round() as i64, value);
            }
        }
        samples
    }

    pub fn distributor_address(&self) -> String {
        format!("127.0.0.1:{}", self.distributor.http)
    }

    pub fn distributor_port(&self) -> u16 {
        self.distributor.http
    }

    /// One more of Cortex's distributors.
    pub async fn start_distributor(&self, name: &str, more: &[String]) -> Cortex {
        let home = self.dir.path().join(name);
        let distributor =
            Cortex::start(&home, "distributor", &self.etcd, self.seed, &self.setup, more);
        until("one more distributor is ready", async || is_ready(distributor.http).await).await;
        distributor
    }

    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// The directory of one more process.
    pub fn new_dir(&self, name: &str) -> PathBuf {
        let dir = self.dir.path().join(name);
        std::fs::create_dir(&dir).expect("a directory");
        dir
    }

    /// What the querier answers, which has to be 200.
    pub async fn ask(&self, path: &str, tenant: &str) -> serde_json::Value {
        let mut body = String::new();
        until(&format!("the querier answers {path}"), async || {
            let answer = get(self.querier.http, &format!("/prometheus{path}"), tenant).await;
            answer.is_ok_and(|answer| {
                body = answer.body;
                answer.status == 200
            })
        })
        .await;
        serde_json::from_str(&body).expect("JSON")
    }

    /// Series in memory of each ingester, and of its sidecar with the residue that it reports.
    pub async fn counts(&self) -> Vec<(u64, u64)> {
        let mut counts = Vec::new();
        for pair in &self.pairs {
            counts.push(pair.counts().await);
        }
        counts
    }

    /// Waits until each sidecar counts what its ingester does, and says how long that took.
    pub async fn until_exact(&self, within: Duration) -> Duration {
        let started = tokio::time::Instant::now();
        loop {
            let counts = self.counts().await;
            if counts.iter().all(|(theirs, ours)| theirs == ours) {
                println!("  exact after {:.1?}: {counts:?}", started.elapsed());
                return started.elapsed();
            }
            assert!(started.elapsed() < within, "ingester and sidecar differ: {counts:?}");
            tokio::time::sleep(RETRY).await;
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for log in ["distributor/log", "querier/log"].map(|name| self.dir.path().join(name)) {
            eprintln!("{}:\n{}", log.display(), last_lines(&log));
        }
        for pair in &self.pairs {
            for name in ["ingester", "sidecar"] {
                let log = pair.dir.join(format!("{name}-{}.log", pair.starts));
                eprintln!("{}:\n{}", log.display(), last_lines(&log));
            }
        }
    }
}

impl Cortex {
    fn start(
        home: &std::path::Path,
        target: &str,
        etcd: &Etcd,
        seed: u16,
        setup: &Setup,
        more: &[String],
    ) -> Self {
        let http = free_port();
        std::fs::create_dir(home).expect("a directory");
        let mut command = Command::new(cortex_binary().expect("looked for before"));
        command.current_dir(home).args(common(etcd, setup, http, free_port()));
        // The first of them is the seed.
        let own = if target == "distributor" { seed } else { free_port() };
        command.arg(format!("-target={target}")).args(cortex_flags(setup, own, seed)).args(more);
        let _process = Process::spawn(&mut command, &home.join("log"));
        Self { http, _process }
    }

    /// What a page says as JSON.
    pub async fn page(&self, path: &str) -> serde_json::Value {
        let answer = get(self.http, path, "").await.expect("a page");
        serde_json::from_str(&answer.body).expect("JSON")
    }
}

impl Client {
    /// Remote write of one sample for each series.
    pub async fn push(
        self,
        tenant: &str,
        series: std::ops::Range<usize>,
        at_ms: i64,
        offset: f64,
    ) -> std::io::Result<Answer> {
        let body = write_request_at(series, at_ms, offset);
        let body = snap::raw::Encoder::new().compress_vec(&body).expect("packed");
        let headers = [
            ("X-Scope-OrgID", tenant),
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "snappy"),
            ("X-Prometheus-Remote-Write-Version", "0.1.0"),
        ];
        http(self.0, "POST", "/api/v1/push", &headers, &body).await
    }

    /// Pushes as Prometheus does: what may be tried again is. The statuses before the last, and it.
    pub async fn push_persistently(
        self,
        tenant: &str,
        series: std::ops::Range<usize>,
        at_ms: i64,
        offset: f64,
    ) -> (Vec<u16>, Answer) {
        let mut retried = Vec::new();
        let mut last = String::new();
        let started = tokio::time::Instant::now();
        while started.elapsed() < PATIENCE {
            match self.push(tenant, series.clone(), at_ms, offset).await {
                Ok(answer) if answer.status < 500 => return (retried, answer),
                Ok(answer) => {
                    retried.push(answer.status);
                    last = answer.body;
                }
                Err(error) => panic!("the distributor is gone: {error}"),
            }
            tokio::time::sleep(RETRY).await;
        }
        panic!("tried in vain, {} times: {last}", retried.len());
    }
}

impl Pair {
    fn new(index: usize, cluster: &Beside) -> Self {
        let id = format!("ingester-{index}");
        let dir = cluster.dir.path().join(&id);
        std::fs::create_dir(&dir).expect("a directory");
        let tokens = even_tokens(index);
        let tokens = serde_json::json!({ "previousState": "ACTIVE", "tokens": tokens });
        std::fs::write(dir.join("tokens"), tokens.to_string()).expect("written");
        let (upstream_http, upstream_grpc) = (free_port(), free_port());
        let (sidecar_http, sidecar_grpc) = (free_port(), free_port());
        let setup = &cluster.setup;
        let mut ingester_flags = common(&cluster.etcd, setup, upstream_http, upstream_grpc);
        ingester_flags.extend(cortex_flags(setup, free_port(), cluster.seed));
        ingester_flags.extend([
            "-target=ingester".to_owned(),
            format!("-ingester.lifecycler.ID={id}"),
            "-ingester.lifecycler.addr=127.0.0.1".to_owned(),
            format!(
                "-ingester.lifecycler.port={}",
                if setup.without_sidecars { upstream_grpc } else { sidecar_grpc }
            ),
            "-ingester.heartbeat-period=500ms".to_owned(),
            format!("-ingester.num-tokens={TOKENS_EACH}"),
            "-ingester.tokens-file-path=tokens".to_owned(),
            "-ingester.min-ready-duration=0s".to_owned(),
            "-ingester.final-sleep=0s".to_owned(),
            "-ingester.join-after=0s".to_owned(),
            "-ingester.max-global-series-per-user=0".to_owned(),
            "-ingester.max-series-per-user=0".to_owned(),
        ]);
        ingester_flags.extend(setup.ingester.iter().cloned());
        let mut sidecar_flags = common(&cluster.etcd, setup, sidecar_http, sidecar_grpc);
        sidecar_flags.extend([
            "-target=ingester".to_owned(),
            format!("-ingester.instance-id={id}"),
            format!("-ingester.upstream-address=127.0.0.1:{upstream_grpc}"),
            format!("-ingester.distributor-address={}", cluster.distributor_address()),
            "-ingester.client-cleanup-period=1s".to_owned(),
            "-ingester.drain-announce-period=0s".to_owned(),
        ]);
        if setup.is_gossiped {
            sidecar_flags.extend(gossip_flags(free_port(), cluster.seed));
        }
        sidecar_flags.extend(setup.sidecar.iter().cloned());
        Self {
            id,
            dir,
            upstream_http,
            sidecar_http,
            ingester_flags,
            sidecar_flags,
            has_sidecar: !setup.without_sidecars,
            starts: 0,
            ingester: None,
            sidecar: None,
        }
    }

    /// Over its data where there are any.
    pub fn start_ingester(&mut self) {
        let mut command = Command::new(cortex_binary().expect("looked for before"));
        command.current_dir(&self.dir).args(&self.ingester_flags);
        self.ingester = Some(self.spawn(command, "ingester"));
    }

    pub fn start_sidecar(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
        command.args(&self.sidecar_flags);
        self.sidecar = Some(self.spawn(command, "sidecar"));
    }

    /// SIGKILL.
    pub fn kill_ingester(&mut self) {
        self.ingester = None;
    }

    /// SIGKILL.
    pub fn kill_sidecar(&mut self) {
        self.sidecar = None;
    }

    /// A later start has these too; of a flag that is there already the last one counts.
    pub fn with_sidecar_flag(&mut self, flag: &str) {
        self.sidecar_flags.push(flag.to_owned());
    }

    pub async fn until_ready(&self) {
        let both = [("ingester", self.upstream_http), ("sidecar", self.sidecar_http)];
        for (what, port) in both.into_iter().take(1 + usize::from(self.has_sidecar)) {
            until(&format!("the {what} of {} is ready", self.id), async || is_ready(port).await)
                .await;
        }
    }

    pub async fn ready(&self) -> Option<Answer> {
        get(self.sidecar_http, "/ready", "").await.ok()
    }

    pub async fn flush(&self) -> u16 {
        let answer = http(self.upstream_http, "POST", "/ingester/flush?wait=true", &[], b"").await;
        answer.expect("an answer").status
    }

    pub async fn sidecar_metric(&self, name: &str, labels: &[&str]) -> f64 {
        metric(self.sidecar_http, name, labels).await
    }

    pub async fn upstream_metric(&self, name: &str) -> f64 {
        self.upstream_metric_of(name, &[]).await
    }

    pub async fn upstream_metric_of(&self, name: &str, labels: &[&str]) -> f64 {
        metric(self.upstream_http, name, labels).await
    }

    async fn counts(&self) -> (u64, u64) {
        let theirs = self.upstream_metric("cortex_ingester_memory_series").await;
        let ours = self.sidecar_metric("freehold_ingester_memory_series", &[]).await;
        let residue = self.sidecar_metric("freehold_ingester_upstream_residue_series", &[]).await;
        (theirs as u64, (ours + residue) as u64)
    }

    fn spawn(&mut self, mut command: Command, name: &str) -> Process {
        self.starts += 1;
        Process::spawn(&mut command, &self.dir.join(format!("{name}-{}.log", self.starts)))
    }
}

/// Tokens that share the ring out evenly among three ingesters, and evenly again among six, so
/// that which series are whose is the same in every run.
fn even_tokens(index: usize) -> Vec<u32> {
    assert!(index < INGESTERS_MAX, "the tokens are for {INGESTERS_MAX} ingesters");
    // Around the ring: 0 3 1 4 2 5, so each later one halves the ranges of an earlier one.
    let seat = 2 * (index % 3) + index / 3;
    let step = (1 << 32) / (TOKENS_EACH * INGESTERS_MAX) as u64;
    let token = |round: usize| ((round * INGESTERS_MAX + seat) as u64 * step) as u32;
    (0..TOKENS_EACH).map(token).collect()
}

pub fn note(samples: &mut Samples, series: std::ops::Range<usize>, at_ms: i64, offset: f64) {
    for number in series {
        samples.entry(number).or_default().insert(at_ms, number as f64 + offset);
    }
}

/// What every process gets, ours and Cortex's.
fn common(etcd: &Etcd, setup: &Setup, http: u16, grpc: u16) -> Vec<String> {
    vec![
        "-server.http-listen-address=127.0.0.1".to_owned(),
        format!("-server.http-listen-port={http}"),
        "-server.grpc-listen-address=127.0.0.1".to_owned(),
        format!("-server.grpc-listen-port={grpc}"),
        "-ring.store=etcd".to_owned(),
        format!("-etcd.endpoints={}", etcd.address()),
        "-distributor.shard-by-all-labels=true".to_owned(),
        format!("-distributor.replication-factor={}", setup.replication_factor),
    ]
}

/// The same for Cortex and for us; the last of a flag counts.
pub fn gossip_flags(own: u16, seed: u16) -> Vec<String> {
    vec![
        "-ring.store=memberlist".to_owned(),
        "-memberlist.bind-addr=127.0.0.1".to_owned(),
        format!("-memberlist.bind-port={own}"),
        format!("-memberlist.join=127.0.0.1:{seed}"),
        "-memberlist.abort-if-join-fails=false".to_owned(),
    ]
}

/// Every process of Cortex's gossips, also where its ring is elsewhere.
fn cortex_flags(setup: &Setup, own: u16, seed: u16) -> Vec<String> {
    let mut flags = match setup.is_gossiped {
        true => gossip_flags(own, seed),
        false => vec![
            "-memberlist.bind-addr=127.0.0.1".to_owned(),
            format!("-memberlist.bind-port={own}"),
        ],
    };
    flags.extend(
        [
            "-distributor.ring.store=inmemory",
            "-distributor.ring.instance-addr=127.0.0.1",
            "-distributor.client-cleanup-period=1s",
            "-blocks-storage.backend=filesystem",
            "-blocks-storage.filesystem.dir=blocks",
            "-blocks-storage.tsdb.dir=tsdb",
        ]
        .map(str::to_owned),
    );
    flags
}

pub async fn get(port: u16, path: &str, tenant: &str) -> std::io::Result<Answer> {
    let headers = [("Accept", "application/json"), ("X-Scope-OrgID", tenant)];
    let headers = if tenant.is_empty() { &headers[..1] } else { &headers };
    http(port, "GET", path, headers, b"").await
}

async fn is_ready(port: u16) -> bool {
    get(port, "/ready", "").await.is_ok_and(|answer| answer.status == 200)
}

/// Sum of the samples with these labels.
async fn metric(port: u16, name: &str, labels: &[&str]) -> f64 {
    let Ok(answer) = get(port, "/metrics", "").await else { return f64::NAN };
    let lines = answer.body.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn last_lines(log: &std::path::Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().collect::<Vec<_>>();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
