//! A small cluster of whole processes under a Prometheus that scrapes them: an ingester, two gates
//! that share budgets of clients, and a query gate in front of that Prometheus.
//!
//! Every process keeps its name and its ports when it is started again, so that its series go on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use prost::Message as _;

use crate::ports::Port;
use crate::process::{Label, Process, Sample, TimeSeries, WriteRequest, http, wait_for};
use crate::prometheus::Prometheus;
use crate::ring_stores::etcd_server::Etcd;

/// Who is scraped as which instance.
pub const INGESTER: &str = "ingester-0";
pub const GATES: [&str; 2] = ["gate-1", "gate-2"];
pub const QUERY_GATE: &str = "query-gate";
/// Tenants that keep within their limits.
const TEAMS: u64 = 10;
const TEAM_SERIES: u64 = 30;
/// Whose series and limit are the test's to change.
const CROWD: &str = "crowd";
/// A push or a query that takes longer has failed, and the next second goes on.
const PUSH_WAIT: Duration = Duration::from_secs(5);

/// One process that can be started again at the same place.
struct Member {
    name: &'static str,
    flags: Vec<String>,
    http: Port,
    grpc: Port,
    starts: usize,
    process: Option<Process>,
}

/// One more process than the everyday ones. In its flags `@gate-1` stands for that gate's HTTP
/// address, `@prometheus` for Prometheus'.
pub struct Extra {
    pub name: &'static str,
    pub flags: Vec<String>,
}

/// Where the rings are kept: `etcd` or `consul`, and its settings as flags without their owner.
pub struct Store {
    pub kind: &'static str,
    pub settings: Vec<String>,
}

/// Series and limit of the crowd.
#[derive(Clone, Copy)]
pub struct Crowd {
    pub series: u64,
    pub limit: u64,
}

pub struct Lab {
    dir: PathBuf,
    program: PathBuf,
    pub prometheus: Prometheus,
    members: Vec<Member>,
    crowd: Crowd,
    seconds: u64,
    /// What senders were told, by status; 0 where nobody answered.
    pub told: BTreeMap<u16, u64>,
}

impl Lab {
    /// Starts everything. `scrape` is how often, and `rules` goes into Prometheus' configuration
    /// as it is.
    pub async fn start(
        dir: &Path,
        program: &Path,
        store: &Store,
        (scrape, rules): (&str, &str),
        extras: Vec<Extra>,
    ) -> Self {
        let port = Port::new();
        let mut members = members(dir, store, &port);
        let gate = members.iter().find(|member| member.name == GATES[0]).expect("a gate");
        let gate = gate.http.address.to_string();
        for extra in extras {
            let flags = extra.flags.iter().map(|flag| {
                flag.replace("@gate-1", &gate).replace("@prometheus", &port.address.to_string())
            });
            let flags: Vec<_> = flags.collect();
            members.push(member(dir, extra.name, flags.iter()));
        }
        let config = scrape_config(&members, scrape) + rules;
        let prometheus = Prometheus::start(dir, "prometheus", &config, port.number()).await;
        let mut lab = Self {
            dir: dir.to_owned(),
            program: program.to_owned(),
            prometheus,
            members,
            crowd: Crowd { series: 0, limit: 0 },
            seconds: 0,
            told: BTreeMap::new(),
        };
        lab.set_crowd(Crowd { series: 300, limit: 500 });
        for at in 0..lab.members.len() {
            lab.run(at).await;
        }
        lab
    }

    /// SIGKILL.
    pub fn kill(&mut self, name: &str) {
        let at = self.at(name);
        self.members[at].process = None;
    }

    pub async fn start_again(&mut self, name: &str) {
        let at = self.at(name);
        self.run(at).await;
    }

    /// One after the other, each in order, as a new version is rolled out.
    pub async fn roll(&mut self) {
        for at in 0..self.members.len() {
            let process = self.members[at].process.take().expect("it runs");
            let ended = Command::new("kill").arg(process.id().to_string()).status();
            assert!(ended.is_ok_and(|status| status.success()), "a signal");
            let stat = format!("/proc/{}/stat", process.id());
            wait_for(
                || process.log(),
                async || {
                    let stat = std::fs::read_to_string(&stat).ok()?;
                    // Its parent, we, have not asked for its end yet.
                    stat.rsplit(')').next()?.trim_start().starts_with('Z').then_some(())
                },
            )
            .await;
            drop(process);
            self.run(at).await;
        }
    }

    /// The limit is in force once the runtime file is read again, 10 s later at the most.
    pub fn set_crowd(&mut self, crowd: Crowd) {
        self.crowd = crowd;
        let text =
            format!("overrides: {{{CROWD}: {{max_global_series_per_user: {}}}}}\n", crowd.limit);
        let file = self.dir.join("runtime.yaml");
        // Whole or not at all, whoever reads it meanwhile.
        let new = file.with_extension("new");
        std::fs::write(&new, text).expect("written");
        std::fs::rename(new, file).expect("renamed");
    }

    /// One second of everyday life: every tenant writes once, and somebody asks.
    pub async fn second(&mut self) {
        for team in 0..TEAMS {
            let tenant = format!("team-{team}");
            let writer = format!("writer-{}", self.seconds % 3);
            self.push(&tenant, &writer, TEAM_SERIES).await;
        }
        let series = self.crowd.series;
        if self.seconds.is_multiple_of(2) {
            self.push(CROWD, "writer-0", series).await;
        }
        self.query("up").await;
        self.seconds += 1;
    }

    /// Pushes by one gate, or by the other where that one is not there, as a balancer would.
    pub async fn push(&mut self, tenant: &str, client: &str, series: u64) -> u16 {
        let body = body(series);
        let headers = format!(
            "X-Scope-OrgID: {tenant}\r\nX-Scope-ClientID: {client}\r\n\
             Content-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n"
        );
        let mut status = 0;
        for turn in 0..GATES.len() {
            let gate = GATES[(self.seconds as usize + turn) % GATES.len()];
            let address = self.members[self.at(gate)].http.address;
            let sent = http(address, "POST", "/api/v1/push", &headers, &body);
            status = match tokio::time::timeout(PUSH_WAIT, sent).await {
                Ok(Ok((status, _))) => status,
                _ => 0,
            };
            if status != 0 && status < 500 {
                break;
            }
        }
        *self.told.entry(status).or_default() += 1;
        status
    }

    /// Where a process of this name listens.
    pub fn http(&self, name: &str) -> SocketAddr {
        self.members[self.at(name)].http.address
    }

    pub fn grpc(&self, name: &str) -> SocketAddr {
        self.members[self.at(name)].grpc.address
    }

    /// Asks through the query gate; 0 where nobody answered.
    pub async fn query(&self, query: &str) -> u16 {
        let address = self.members[self.at(QUERY_GATE)].http.address;
        let path = format!("/prometheus/api/v1/query?query={query}");
        let headers = "X-Scope-OrgID: team-0\r\nX-Scope-ClientID: dashboard\r\n";
        let asked = http(address, "GET", &path, headers, &[]);
        match tokio::time::timeout(PUSH_WAIT, asked).await {
            Ok(Ok((status, _))) => status,
            _ => 0,
        }
    }

    /// The logs of all, for a test that fails.
    pub fn logs(&self) -> String {
        let log = |member: &Member| {
            let log = member.process.as_ref().map(Process::log).unwrap_or_default();
            format!("== {}\n{log}\n", member.name)
        };
        self.members.iter().map(log).collect()
    }

    async fn run(&mut self, at: usize) {
        let member = &mut self.members[at];
        member.starts += 1;
        let log = self.dir.join(format!("{}-{}.log", member.name, member.starts));
        let mut command = Command::new(&self.program);
        command.args(&member.flags);
        let process = member.process.insert(Process::spawn(&mut command, &log));
        let address = member.http.address;
        wait_for(
            || process.log(),
            async || {
                let answer = http(address, "GET", "/ready", "", &[]).await.ok()?;
                (answer.0 == 200).then_some(())
            },
        )
        .await;
    }

    fn at(&self, name: &str) -> usize {
        self.members.iter().position(|member| member.name == name).expect("a member's name")
    }
}

impl Store {
    pub fn etcd(etcd: &Etcd) -> Self {
        Self { kind: "etcd", settings: vec![format!("etcd.endpoints={}", etcd.address())] }
    }

    /// For the ring of the ingesters, whose flags have no owner, or of `distributor.` and
    /// `frontend.`.
    fn flags(&self, owner: &str) -> Vec<String> {
        let ring = if owner.is_empty() { String::new() } else { format!("{owner}ring.") };
        let settings = self.settings.iter().map(|setting| format!("-{ring}{setting}"));
        settings.chain([format!("-{owner}ring.store={}", self.kind)]).collect()
    }
}

fn members(dir: &Path, store: &Store, prometheus: &Port) -> Vec<Member> {
    let mut ring = store.flags("");
    ring.push("-distributor.replication-factor=1".to_owned());
    let ingester = [
        "-target=ingester".to_owned(),
        format!("-ingester.lifecycler.ID={INGESTER}"),
        "-ingester.lifecycler.addr=127.0.0.1".to_owned(),
        "-ingester.min-ready-duration=0s".to_owned(),
        "-ingester.final-sleep=0s".to_owned(),
        "-ingester.join-after=0s".to_owned(),
        "-ingester.owned-series-limit-enforcement-enabled=true".to_owned(),
        "-ingester.max-global-series-per-user=1000".to_owned(),
        "-ingester.instance-limits.max-series=100000".to_owned(),
        format!("-store.path={}", dir.join("data").display()),
    ];
    let mut members = vec![member(dir, INGESTER, ring.iter().chain(&ingester))];
    for gate in GATES {
        let own = [
            "-target=distributor".to_owned(),
            "-client-identity.enabled=true".to_owned(),
            "-distributor.ring.prefix=freehold/".to_owned(),
            format!("-distributor.ring.instance-id={gate}"),
            "-distributor.ring.instance-addr=127.0.0.1".to_owned(),
            "-distributor.client-identity-ingestion-rate-limit=1000".to_owned(),
            "-distributor.client-identity-ingestion-burst-size=5000".to_owned(),
            "-distributor.client-cleanup-period=1s".to_owned(),
        ];
        let store = store.flags("distributor.");
        members.push(member(dir, gate, ring.iter().chain(&own).chain(&store)));
    }
    let own = [
        "-target=query-frontend".to_owned(),
        "-client-identity.enabled=true".to_owned(),
        format!("-frontend.downstream-url=http://{}", prometheus.address),
        "-frontend.strip-http-prefix=true".to_owned(),
        "-frontend.downstream.health-check-path=/-/ready".to_owned(),
        "-frontend.ring.prefix=freehold/".to_owned(),
        format!("-frontend.ring.instance-id={QUERY_GATE}"),
        "-frontend.ring.instance-addr=127.0.0.1".to_owned(),
        "-frontend.client-identity-query-rate-limit=20".to_owned(),
        "-frontend.client-identity-query-burst-size=100".to_owned(),
    ];
    members.push(member(dir, QUERY_GATE, own.iter().chain(&store.flags("frontend."))));
    members
}

fn member<'a>(dir: &Path, name: &'static str, flags: impl Iterator<Item = &'a String>) -> Member {
    let (http, grpc) = (Port::new(), Port::new());
    let own = [
        "-server.http-listen-address=127.0.0.1".to_owned(),
        format!("-server.http-listen-port={}", http.number()),
        "-server.grpc-listen-address=127.0.0.1".to_owned(),
        format!("-server.grpc-listen-port={}", grpc.number()),
        format!("-runtime-config.file={}", dir.join("runtime.yaml").display()),
        "-admin.http-listen-address=127.0.0.1:0".to_owned(),
        "-log.format=json".to_owned(),
    ];
    let flags = flags.cloned().chain(own).collect();
    Member { name, flags, http, grpc, starts: 0, process: None }
}

fn scrape_config(members: &[Member], every: &str) -> String {
    let mut text = format!(
        "global:\n  scrape_interval: {every}\n  evaluation_interval: {every}\n\
         scrape_configs:\n  - job_name: freehold\n    static_configs:\n"
    );
    for member in members {
        text += &format!(
            "      - targets: [\"{}\"]\n        labels: {{cluster: lab, instance: {}}}\n",
            member.http.address, member.name
        );
    }
    text
}

/// A write of so many series, packed as remote write 1.0 wants it.
pub fn body(count: u64) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(&request(count).encode_to_vec()).expect("packs")
}

/// So many series with one sample each, now.
pub fn request(count: u64) -> WriteRequest {
    let now_ms = crate::process::now_ms();
    let label = |name: &str, value: String| Label { name: name.to_owned(), value };
    let series = |number: u64| TimeSeries {
        labels: vec![
            label("__name__", "lab_things".to_owned()),
            label("number", number.to_string()),
        ],
        samples: vec![Sample { value: number as f64, timestamp_ms: now_ms }],
    };
    WriteRequest { timeseries: (0..count).map(series).collect() }
}
