//! A sidecar between two networks that misbehave by a seed, before an ingester that dies now and
//! then and comes back with a part of its series, on a ring file that is empty for a while.
//!
//! ```text
//! pushes, push streams, questions ─► proxy ─► sidecar ─► proxy ─► ingester
//!                        └─ some of each ────────┘
//! ```
//!
//! Callers with a sound way to the sidecar are answered within a bound whatever lies behind it,
//! and their push streams never end. What must hold for all:
//!
//! * each message of a push stream is answered once and in order, and no stream ends with status
//!   OK before its client has half-closed it;
//! * the network healed, everybody gets through within seconds;
//! * in the end nothing is under way, no socket and little memory is left over, nothing that was
//!   acknowledged is missing upstream but what the upstream itself lost, and counts are its.
//!
//! Short: 8 seconds. Long (`FREEHOLD_LONG_TESTS=1`): 10 minutes. `FREEHOLD_CHAOS_SEED=N` replays,
//! `FREEHOLD_CHAOS_SECONDS=N` sets the time.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use freehold::labels::LabelsBuf;
use freehold::wire::proto::cortexpb;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message as _;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::faults::Proxy;
use super::pass_through::fake::{cut, framed};
use super::process::{Freehold, is_long, now_ms, wait_for};
use super::sidecar::{PUSH, PUSH_STREAM, ring_of_one};
use super::upstream::ingester::{self, UpstreamIngester};

const ALL_USER_STATS: &str = "/cortex.Ingester/AllUserStats";
const TENANT: &str = "chaos";
const METRIC: &str = "chaos_test";
/// Of each kind; every second one's way to the sidecar is sound.
const CALLERS: u64 = 4;
const SERIES_PER_PUSH: u64 = 20;
const SERIES_EACH_MAX: u64 = 1_000;
/// Messages that a stream sends before it waits for their answers.
const IN_A_ROW_MAX: usize = 3;
/// Cortex's `-distributor.remote-timeout`, and the sidecar's for each message of a stream.
const DEADLINE: Duration = Duration::from_secs(2);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(8);
const PACE: Duration = Duration::from_millis(20);
/// In which healed networks have to carry everything again.
const RECOVERY: Duration = Duration::from_secs(40);
const RECOVERED: u32 = 5;
const RSS_GROWTH_KIB_MAX: u64 = 150 * 1024;

/// What the callers were told.
#[derive(Default)]
struct Told {
    acknowledged: BTreeSet<u64>,
    answered: u64,
    refused: u64,
    /// Calls, or streams' messages, that got no answer on a bad way.
    lost: u64,
    streams_broken: u64,
    slowest: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sidecar_between_bad_networks_sticks_loses_and_leaks_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = number("FREEHOLD_CHAOS_SEED").unwrap_or(1);
    let span = number("FREEHOLD_CHAOS_SECONDS").unwrap_or(if is_long() { 600 } else { 8 });
    println!("seed {seed}, {span} s");
    let dir = tempfile::tempdir().expect("a directory");
    let ring = Ring::in_dir(dir.path());
    let mut upstream = UpstreamIngester::start().await;
    let behind = Proxy::start(upstream.address).await;
    let freehold = start(dir.path(), &ring, behind.address).await;
    freehold.wait_ready().await;
    let front = Proxy::start(freehold.grpc).await;
    let before = freehold.resources();

    let told = Arc::new(Mutex::new(Told::default()));
    let (calm, is_calm) = watch::channel(false);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut calling = JoinSet::new();
    for at in 0..CALLERS * 3 {
        let is_sound = at % 2 == 0;
        let caller = Caller {
            told: Arc::clone(&told),
            address: if is_sound { freehold.grpc } else { front.address },
            is_sound,
            number: at,
            rng: SmallRng::seed_from_u64(rng.random()),
            next_series: 0,
            t_ms: now_ms() - 60_000,
            calm: is_calm.clone(),
        };
        match at / CALLERS {
            0 => calling.spawn(caller.push()),
            1 => calling.spawn(caller.stream()),
            _ => calling.spawn(caller.ask()),
        };
    }
    let mut world = World { front, behind, ring, faults: 0, dropped: BTreeSet::new() };
    let end = Instant::now() + Duration::from_secs(span);
    while Instant::now() < end {
        world.misbehave(&mut upstream, &mut rng).await;
        assert!(calling.try_join_next().is_none(), "a caller has ended early");
        tokio::time::sleep(Duration::from_millis(rng.random_range(100..500))).await;
    }
    world.check_acknowledged(&upstream, &told.lock().expect("no panic"));
    calm.send_replace(true);
    let recovered = async {
        while let Some(ended) = calling.join_next().await {
            ended.expect("a caller finds what it has to");
        }
    };
    timeout(RECOVERY, recovered).await.expect("everybody gets through healed networks");
    world.check_acknowledged(&upstream, &told.lock().expect("no panic"));
    check_settled(&freehold, &upstream).await;
    let faults = world.faults;
    drop(world);
    let explain = || format!("sockets {} again: {}", before.sockets, freehold.process.log());
    // Those to the upstream stay, and the proxy that they went to has gone.
    wait_for(explain, async || (freehold.resources().sockets <= before.sockets).then_some(()))
        .await;
    let after = freehold.resources();
    let told = told.lock().expect("no panic");
    println!(
        "{faults} faults; {} answers, {} refused, {} lost, {} streams broken, slowest {:?} on a \
         sound way; {} series; before {before:?}, after {after:?}",
        told.answered,
        told.refused,
        told.lost,
        told.streams_broken,
        told.slowest,
        upstream.count(TENANT),
    );
    assert!(after.rss_kib <= before.rss_kib + RSS_GROWTH_KIB_MAX, "{before:?} {after:?}");
    // The few faults of the short form may all be such that everybody gets his answer.
    let is_told = told.refused > 0 || span < 60;
    assert!(told.answered > 100 && is_told, "a chaos in which nothing happens");
}

async fn start(dir: &Path, ring: &Ring, upstream: SocketAddr) -> Freehold {
    let flags = [
        "-target=ingester".to_owned(),
        "-store.enabled=false".to_owned(),
        format!("-ingester.upstream-address={upstream}"),
        "-ingester.instance-id=ingester-0".to_owned(),
        "-ingester.upstream.push-stream-timeout=2s".to_owned(),
        // A peer that vanished is noticed within the short form's time.
        "-ingester.upstream.keepalive.time=1s".to_owned(),
        "-ingester.upstream.keepalive.timeout=1s".to_owned(),
        "-ingester.upstream.connect-timeout=1s".to_owned(),
        "-ingester.upstream.connect-backoff-max-delay=500ms".to_owned(),
        "-server.grpc.keepalive.time=1s".to_owned(),
        "-server.grpc.keepalive.timeout=2s".to_owned(),
        "-ring.store=file".to_owned(),
        format!("-ring.file.path={}", ring.path.display()),
        "-ring.file.poll-interval=100ms".to_owned(),
        "-ring.heartbeat-timeout=0s".to_owned(),
        "-distributor.replication-factor=1".to_owned(),
        "-ingester.max-global-series-per-user=1000000".to_owned(),
        "-ingester.owned-series-limit-enforcement-enabled=true".to_owned(),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Freehold::start(dir, &flags).await
}

/// Once everybody has written all of its series again: the counts are the upstream's, and
/// nothing is under way.
async fn check_settled(freehold: &Freehold, upstream: &UpstreamIngester) {
    let count = upstream.count(TENANT) as f64;
    let user = |name: &str| format!("{name}{{user=\"{TENANT}\"}}");
    for (name, expected) in [
        (user("freehold_ingester_memory_series"), count),
        (user("cortex_ingester_owned_series"), count),
        (user("freehold_ingester_pending_series"), 0.0),
        ("freehold_upstream_inflight_requests".to_owned(), 0.0),
        ("freehold_upstream_inflight_bytes".to_owned(), 0.0),
        ("freehold_upstream_streams".to_owned(), 0.0),
    ] {
        let check = async {
            let mut found = None;
            for _ in 0..100 {
                found = freehold.metric(&name).await;
                if found == Some(expected) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            panic!("{name} is {found:?}, not {expected}");
        };
        check.await;
    }
}

/// The ring in its file, with the one member that owns all.
struct Ring {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Ring {
    fn in_dir(dir: &Path) -> Self {
        let ring = Self { path: dir.join("ring"), bytes: ring_of_one() };
        ring.write(&ring.bytes);
        ring
    }

    fn write(&self, bytes: &[u8]) {
        std::fs::write(&self.path, bytes).expect("written");
    }
}

/// Everything about the sidecar.
struct World {
    front: Proxy,
    behind: Proxy,
    ring: Ring,
    faults: u64,
    /// Series that the upstream has forgotten in some restart.
    dropped: BTreeSet<Vec<u8>>,
}

impl World {
    /// One fault, for its time.
    async fn misbehave(&mut self, upstream: &mut UpstreamIngester, rng: &mut SmallRng) {
        self.faults += 1;
        let lasting = Duration::from_millis(rng.random_range(50..3_000));
        match rng.random_range(0..10) {
            0 => {
                upstream.kill().await;
                tokio::time::sleep(lasting).await;
                let keeps_all = rng.random_bool(0.5);
                let (dropped, mut dice) =
                    (&mut self.dropped, SmallRng::seed_from_u64(rng.random()));
                upstream
                    .restart(|_, tenant| {
                        tenant.series.retain(|labels, _| {
                            let stays = keeps_all || dice.random_bool(0.5);
                            if !stays {
                                dropped.insert(labels.clone());
                            }
                            stays
                        });
                    })
                    .await;
                return;
            }
            1 => {
                self.ring.write(b"");
                tokio::time::sleep(lasting).await;
                self.ring.write(&self.ring.bytes);
                return;
            }
            2 => {
                upstream.knobs().push_delay = Duration::from_millis(rng.random_range(1..2_500));
                tokio::time::sleep(lasting).await;
                upstream.knobs().push_delay = Duration::ZERO;
                return;
            }
            3 => {
                upstream.knobs().is_silent = true;
                tokio::time::sleep(lasting).await;
                upstream.knobs().is_silent = false;
                return;
            }
            _ => {}
        }
        let proxy = if rng.random_bool(0.6) { &self.behind } else { &self.front };
        proxy.misbehave(rng);
        tokio::time::sleep(lasting).await;
        proxy.heal();
    }

    fn check_acknowledged(&self, upstream: &UpstreamIngester, told: &Told) {
        let tenants = upstream.tenants();
        let Some(tenant) = tenants.get(TENANT) else { return };
        for number in &told.acknowledged {
            let labels = labels(*number).as_labels().as_bytes().to_vec();
            let is_there = tenant.series.contains_key(&labels) || self.dropped.contains(&labels);
            assert!(is_there, "series {number} was acknowledged and is not there");
        }
    }
}

fn labels(number: u64) -> LabelsBuf {
    ingester::labels(METRIC, number)
}

/// One client of the sidecar.
struct Caller {
    told: Arc<Mutex<Told>>,
    address: SocketAddr,
    /// There is no fault between it and the sidecar.
    is_sound: bool,
    number: u64,
    rng: SmallRng,
    next_series: u64,
    /// Each caller has its own series, so that their times only grow.
    t_ms: i64,
    calm: watch::Receiver<bool>,
}

/// A connection; it ends when dropped.
struct Connection {
    requests: SendRequest<Bytes>,
    _driving: JoinSet<()>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Option<Self> {
        let opening = async {
            let stream = TcpStream::connect(address).await.ok()?;
            stream.set_nodelay(true).ok()?;
            h2::client::handshake(stream).await.ok()
        };
        let (requests, connection) = timeout(DEADLINE, opening).await.ok()??;
        let mut driving = JoinSet::new();
        driving.spawn(async move {
            let _ = connection.await;
        });
        Some(Self { requests, _driving: driving })
    }

    async fn call(
        &self,
        path: &str,
        name: &str,
        deadline: Option<Duration>,
    ) -> Option<(ResponseFuture, SendStream<Bytes>)> {
        let mut request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("x-scope-orgid", name);
        if let Some(deadline) = deadline {
            request = request.header("grpc-timeout", format!("{}m", deadline.as_millis()));
        }
        let mut requests = self.requests.clone().ready().await.ok()?;
        requests.send_request(request.body(()).expect("a request"), false).ok()
    }

    /// The answer's code; `None` if the connection or the stream broke.
    async fn unary(&self, path: &str, message: &[u8]) -> Option<i32> {
        let (response, mut send) = self.call(path, TENANT, Some(DEADLINE)).await?;
        send.send_data(framed(message), true).ok()?;
        let (head, mut body) = response.await.ok()?.into_parts();
        while let Some(chunk) = body.data().await {
            body.flow_control().release_capacity(chunk.ok()?.len()).ok()?;
        }
        code(&body.trailers().await.ok()?.unwrap_or(head.headers))
    }
}

fn code(status: &http::HeaderMap) -> Option<i32> {
    status.get("grpc-status")?.to_str().ok()?.parse().ok()
}

impl Caller {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("no panic under this lock")
    }

    fn is_calm(&self) -> bool {
        *self.calm.borrow()
    }

    /// A caller whose way is sound is answered in time, whatever lies behind the sidecar.
    fn check_time(&self, what: &str, took: Duration, bound: Duration) {
        if self.is_sound {
            assert!(took <= bound + SLACK, "{what} took {took:?}");
            let mut told = self.told();
            told.slowest = told.slowest.max(took);
        }
    }

    async fn push(mut self) {
        self.calls(PUSH).await;
    }

    async fn ask(mut self) {
        self.calls(ALL_USER_STATS).await;
    }

    /// Calls until all is calm, then until some in a row did well; a push then writes all that
    /// this caller ever wrote.
    async fn calls(&mut self, path: &str) {
        let (mut connection, mut in_a_row) = (None, 0);
        let mut pace = tokio::time::interval(PACE);
        while !self.is_calm() || in_a_row < RECOVERED {
            pace.tick().await;
            let Some(open) = &connection else {
                connection = Connection::open(self.address).await;
                assert!(connection.is_some() || !self.is_sound, "no connection on a sound way");
                continue;
            };
            // Only what was told after the last fault counts as recovered.
            let is_calm = self.is_calm();
            let batch = match path {
                PUSH if is_calm => (0..self.next_series).collect(),
                PUSH => self.batch(),
                _ => BTreeSet::new(),
            };
            let message = if path == PUSH { self.encode(&batch) } else { Vec::new() };
            let began = Instant::now();
            let answered = timeout(DEADLINE + SLACK * 2, open.unary(path, &message)).await;
            self.check_time(path, began.elapsed(), DEADLINE);
            let code = answered.ok().flatten();
            assert!(code.is_some() || !self.is_sound, "{path}: no answer on a sound way");
            self.note(code.map(|code| if code == 0 { 200 } else { code }), &batch);
            in_a_row = if is_calm && code == Some(0) { in_a_row + 1 } else { 0 };
            if code.is_none() {
                connection = None;
            }
        }
    }

    fn note(&self, code: Option<i32>, batch: &BTreeSet<u64>) {
        let mut told = self.told();
        match code {
            Some(200) => {
                told.answered += 1;
                told.acknowledged.extend(batch.iter().map(|index| self.series(*index)));
            }
            Some(code) => {
                assert!(code / 100 != 4, "told that it was our fault: {code}");
                told.answered += 1;
                told.refused += 1;
            }
            None => told.lost += 1,
        }
    }

    /// One stream after the other, as long as each lasts.
    async fn stream(mut self) {
        let mut is_over = false;
        while !is_over {
            tokio::time::sleep(PACE).await;
            let Some(connection) = Connection::open(self.address).await else {
                assert!(!self.is_sound, "no connection on a sound way");
                continue;
            };
            let name = format!("ingester-127.0.0.1-9095-stream-push-worker-{}", self.number);
            let Some((response, send)) = connection.call(PUSH_STREAM, &name, None).await else {
                assert!(!self.is_sound, "no stream on a sound way");
                continue;
            };
            let stream =
                Stream { send, response: Some(response), answers: None, bytes: BytesMut::new() };
            is_over = self.use_stream(stream).await;
            if !is_over {
                self.told().streams_broken += 1;
                assert!(!self.is_sound, "a stream broke on a sound way");
            }
        }
    }

    /// True when the stream has served until all was calm and ended as it should.
    async fn use_stream(&mut self, mut stream: Stream) -> bool {
        let mut in_a_row = 0;
        while !self.is_calm() || in_a_row < RECOVERED {
            tokio::time::sleep(PACE).await;
            let mut sent = VecDeque::new();
            let number = self.rng.random_range(1..=IN_A_ROW_MAX);
            let is_calm = self.is_calm();
            for _ in 0..number {
                let is_for_nobody = self.rng.random_bool(0.2);
                let batch = match is_calm {
                    true => (0..self.next_series).collect(),
                    false => self.batch(),
                };
                let message = cortexpb::StreamWriteRequest {
                    tenant_id: if is_for_nobody { "a/b".into() } else { TENANT.into() },
                    request: Some(self.request(&batch)),
                    ..Default::default()
                };
                let message = framed(&message.encode_to_vec());
                if stream.send.send_data(message, false).is_err() {
                    return false;
                }
                sent.push_back((batch, is_for_nobody));
            }
            let began = Instant::now();
            let bound = DEADLINE * u32::try_from(number).expect("few");
            while let Some((batch, is_for_nobody)) = sent.pop_front() {
                let answer = timeout(bound + SLACK * 2, stream.answer()).await;
                let Some(answer) = answer.ok().flatten() else {
                    // An end with status OK would be taken for the answer.
                    let ended = stream.end_if_told().await;
                    assert_ne!(ended, Some(0), "ended with OK while messages wait");
                    self.told().lost += 1 + sent.len() as u64;
                    return false;
                };
                if is_for_nobody {
                    assert!(answer.message.contains("tenant ID"), "another's answer: {answer:?}");
                    continue;
                }
                assert!(!answer.message.contains("tenant ID"), "another's answer: {answer:?}");
                self.note(Some(answer.code), &batch);
                in_a_row = if is_calm && answer.code == 200 { in_a_row + 1 } else { 0 };
            }
            self.check_time("messages of a stream", began.elapsed(), bound);
        }
        if stream.send.send_data(Bytes::new(), true).is_err() {
            return false;
        }
        let rest = timeout(SLACK, stream.answer()).await.expect("an end in time");
        assert_eq!(rest, None, "an answer to nothing");
        assert_eq!(stream.end_if_told().await, Some(0));
        true
    }

    fn series(&self, index: u64) -> u64 {
        index * CALLERS * 3 + self.number
    }

    fn batch(&mut self) -> BTreeSet<u64> {
        let mut batch = BTreeSet::new();
        for _ in 0..SERIES_PER_PUSH {
            let is_new = self.next_series < SERIES_EACH_MAX
                && (self.next_series == 0 || self.rng.random_bool(0.25));
            self.next_series += u64::from(is_new);
            batch.insert(match is_new {
                true => self.next_series - 1,
                false => self.rng.random_range(0..self.next_series),
            });
        }
        batch
    }

    fn request(&mut self, batch: &BTreeSet<u64>) -> cortexpb::WriteRequest {
        self.t_ms += 1;
        let pair = |name: &str, value: String| cortexpb::LabelPair {
            name: name.to_owned().into(),
            value: value.into(),
        };
        let series = batch.iter().map(|index| cortexpb::TimeSeries {
            labels: vec![
                pair("__name__", METRIC.to_owned()),
                pair("i", self.series(*index).to_string()),
            ],
            samples: vec![cortexpb::Sample {
                value: 1.0,
                timestamp_ms: self.t_ms,
                start_timestamp_ms: 0,
            }],
            ..Default::default()
        });
        cortexpb::WriteRequest { timeseries: series.collect(), ..Default::default() }
    }

    fn encode(&mut self, batch: &BTreeSet<u64>) -> Vec<u8> {
        self.request(batch).encode_to_vec()
    }
}

struct Stream {
    send: SendStream<Bytes>,
    response: Option<ResponseFuture>,
    answers: Option<RecvStream>,
    bytes: BytesMut,
}

impl Stream {
    /// The next answer; `None` when the stream has ended or broken.
    async fn answer(&mut self) -> Option<cortexpb::WriteResponse> {
        if let Some(response) = &mut self.response {
            let response = response.await.ok();
            self.response = None;
            let response = response?;
            assert_ne!(code(response.headers()), Some(0), "OK and nothing else");
            self.answers = Some(response.into_body());
        }
        let answers = self.answers.as_mut()?;
        loop {
            if let Some(frame) = cut(&mut self.bytes) {
                return Some(cortexpb::WriteResponse::decode(&frame[5..]).expect("sound"));
            }
            let chunk = answers.data().await?.ok()?;
            answers.flow_control().release_capacity(chunk.len()).ok()?;
            self.bytes.extend_from_slice(&chunk);
        }
    }

    /// The status that the stream has ended with, if it has.
    async fn end_if_told(&mut self) -> Option<i32> {
        let trailers = timeout(Duration::from_secs(1), self.answers.as_mut()?.trailers()).await;
        code(&trailers.ok()?.ok()??)
    }
}
