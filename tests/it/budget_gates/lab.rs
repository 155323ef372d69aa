//! The gates, the store of their ring, what is behind them, and senders.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use freehold::wire::proto::cortexpb;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::process::{Freehold, now_ms, wait_for};
use crate::ring_stores::fake_consul::{FakeConsul, TOKEN};

const TENANT: &str = "team";
/// What a gate does not know of leases is over after their life.
pub const LEARNING: Duration = Duration::from_millis(3200);

/// Everything of one run; ends with it.
pub struct Lab {
    pub gates: Vec<Freehold>,
    flags: Vec<String>,
    dir: tempfile::TempDir,
    _consul: FakeConsul,
    _upstream: JoinSet<()>,
    starts: usize,
}

impl Lab {
    /// Gates that know each other and have learned what they have to. `overrides` are the
    /// tenant's.
    pub async fn start(gates: usize, overrides: &str, flags: &[&str]) -> Self {
        let lab = Self::start_unsettled(gates, overrides, flags).await;
        settled(&lab.gates).await;
        lab
    }

    /// Gates that may never get to know each other.
    pub async fn start_unsettled(gates: usize, overrides: &str, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("runtime.yaml");
        std::fs::write(&file, format!("overrides: {{{TENANT}: {{{overrides}}}}}\n"))
            .expect("write");
        let consul = FakeConsul::start().await;
        let (upstream, serving) = upstream().await;
        let own = [
            "-target=distributor".to_owned(),
            format!("-distributor.upstream-url=http://{upstream}"),
            "-distributor.ring.store=consul".to_owned(),
            format!("-distributor.ring.consul.hostname={}", consul.config().consul.host),
            format!("-distributor.ring.consul.acl-token={TOKEN}"),
            "-distributor.ring.instance-addr=127.0.0.1".to_owned(),
            format!("-runtime-config.file={}", file.display()),
        ];
        let flags = own.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
        let mut lab =
            Self { gates: Vec::new(), flags, dir, _consul: consul, _upstream: serving, starts: 0 };
        for at in 0..gates {
            let gate = lab.gate(at).await;
            lab.gates.push(gate);
        }
        lab
    }

    /// Starts the gate with this number, which may have run before.
    pub async fn gate(&mut self, at: usize) -> Freehold {
        self.starts += 1;
        let id = format!("-distributor.ring.instance-id=gate-{at}");
        let flags = self.flags.iter().map(String::as_str).chain([id.as_str()]);
        let dir = self.dir.path().join(format!("{}", self.starts));
        std::fs::create_dir(&dir).expect("a directory");
        Freehold::start(&dir, &flags.collect::<Vec<_>>()).await
    }

    /// Senders to the gates that there are now.
    pub fn driver(&self) -> Driver {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Driver { http, gates: self.gates.iter().map(|gate| gate.http).collect() }
    }

    /// The name of a client whose budget this gate keeps, by the gate's own count.
    pub async fn client_of(&self, at: usize, prefix: &str) -> String {
        let gate = &self.gates[at];
        let driver = self.driver();
        let body = body(1);
        for number in 0..1000 {
            let client = format!("{prefix}-{number}");
            let before = decisions(gate, "own").await;
            assert_eq!(driver.push(at, Some(&client), &body).await.status, 200);
            if decisions(gate, "own").await > before {
                return client;
            }
        }
        panic!("gate {at} owns nothing\n{}", gate.process.log());
    }
}

/// Decisions of a gate by what made them.
pub async fn decisions(gate: &Freehold, by: &str) -> f64 {
    let name = format!("freehold_client_decisions_total{{by=\"{by}\",ring=\"distributor\"}}");
    gate.metric(&name).await.expect("a count")
}

/// Waits until all gates reach all others, and for the life of a lease after that.
pub async fn settled(gates: &[Freehold]) {
    let others = gates.len() as f64 - 1.0;
    for gate in gates {
        gate.wait_ready().await;
        let explain = || gate.process.log();
        wait_for(explain, async || {
            let up =
                gate.metric("freehold_client_peers{ring=\"distributor\",state=\"up\"}").await?;
            let healthy = gate.metric("freehold_distributor_healthy_distributors").await?;
            (up == others && healthy == others + 1.0).then_some(())
        })
        .await;
    }
    tokio::time::sleep(LEARNING).await;
}

/// Takes every write.
async fn upstream() -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("bound");
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("accept");
            connections.spawn(async move {
                let take = |request: hyper::Request<hyper::body::Incoming>| async move {
                    request.into_body().collect().await?;
                    Ok::<_, hyper::Error>(hyper::Response::new(Full::<Bytes>::default()))
                };
                let service = hyper::service::service_fn(take);
                let builder = hyper::server::conn::http1::Builder::new();
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, serving)
}

/// A write of one series with so many samples.
pub fn body(samples: u64) -> Bytes {
    let now_ms = now_ms();
    let sample = |at: u64| cortexpb::Sample {
        value: at as f64,
        timestamp_ms: now_ms - at as i64,
        ..Default::default()
    };
    let series = cortexpb::TimeSeries {
        labels: vec![cortexpb::LabelPair { name: b"__name__".into(), value: b"m".into() }],
        samples: (0..samples).map(sample).collect(),
        ..Default::default()
    };
    let request = cortexpb::WriteRequest { timeseries: vec![series], ..Default::default() };
    let packed = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
    packed.expect("packs").into()
}

/// Sends; cheap to clone.
#[derive(Clone)]
pub struct Driver {
    http: Client<HttpConnector, Full<Bytes>>,
    gates: Vec<SocketAddr>,
}

/// What somebody sends, evenly in time and to its gates in turn.
#[derive(Clone)]
pub struct Load {
    pub client: Option<String>,
    pub gates: Vec<usize>,
    pub requests_per_s: f64,
    pub samples: u64,
}

/// What a sender was told; status 0 where the gate is not there.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub gate: usize,
    pub status: u16,
    /// Since the run began.
    pub at: Duration,
    pub took: Duration,
}

impl Driver {
    pub async fn push(&self, gate: usize, client: Option<&str>, body: &Bytes) -> Told {
        let began = Instant::now();
        let mut request = hyper::Request::post(format!("http://{}/api/v1/push", self.gates[gate]))
            .header("X-Scope-OrgID", TENANT)
            .header("Content-Encoding", "snappy")
            .header("Content-Type", "application/x-protobuf");
        if let Some(client) = client {
            request = request.header("X-Scope-ClientID", client);
        }
        let request = request.body(Full::new(body.clone())).expect("a request");
        let status = match self.http.request(request).await {
            Err(_) => 0,
            Ok(answer) => {
                let status = answer.status().as_u16();
                match answer.into_body().collect().await {
                    Ok(_) => status,
                    Err(_) => 0,
                }
            }
        };
        Told { gate, status, at: Duration::ZERO, took: began.elapsed() }
    }

    /// Sends all loads for `span`; answers in the order in which they came, by load.
    pub async fn run(&self, loads: &[Load], span: Duration) -> Vec<Vec<Told>> {
        let began = Instant::now();
        let mut running = JoinSet::new();
        for (at, load) in loads.iter().enumerate() {
            let (driver, load) = (self.clone(), load.clone());
            running.spawn(async move { (at, driver.send(&load, began, span).await) });
        }
        let mut told = vec![Vec::new(); loads.len()];
        for (at, answers) in running.join_all().await {
            told[at] = answers;
        }
        told
    }

    async fn send(&self, load: &Load, began: Instant, span: Duration) -> Vec<Told> {
        let body = body(load.samples);
        // Late ticks come in a burst, so that a slow machine sends as much.
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / load.requests_per_s));
        let mut sending = JoinSet::new();
        let mut told = Vec::new();
        for turn in 0.. {
            ticks.tick().await;
            if began.elapsed() >= span {
                break;
            }
            let (driver, client, body) = (self.clone(), load.client.clone(), body.clone());
            let gate = load.gates[turn % load.gates.len()];
            sending.spawn(async move {
                let told = driver.push(gate, client.as_deref(), &body).await;
                Told { at: began.elapsed(), ..told }
            });
            while let Some(answer) = sending.try_join_next() {
                told.push(answer.expect("no panic"));
            }
        }
        told.extend(sending.join_all().await);
        told
    }
}

/// Answers with this status.
pub fn with(status: u16, told: &[Told]) -> usize {
    told.iter().filter(|told| told.status == status).count()
}

pub fn slowest(told: &[Told]) -> Duration {
    told.iter().map(|told| told.took).max().unwrap_or_default()
}

pub fn last_at(told: &[Told]) -> Duration {
    told.iter().map(|told| told.at).max().unwrap_or_default()
}
