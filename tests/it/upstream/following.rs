//! The follower over the wire: loads, drops, restarts and faults of an ingester behind it.

use std::sync::Arc;
use std::time::Duration;

use freehold::clock::{Clock, Now};
use freehold::exposition::Families;
use freehold::ingester::config::IngesterConfig;
use freehold::ingester::following::{FollowStatus, Follower, Pace};
use freehold::ingester::passes::PassLoop;
use freehold::ingester::{Ingester, Parts, PushError, Role};
use freehold::keys::RingKey;
use freehold::labels::{IDENTITY_SECRET_BYTES, IdentityHasher};
use freehold::limits::{InstanceLimits, Limits, Overrides};
use freehold::ring::model::{Instance, InstanceState, RingModel, RingReading};
use freehold::ring::{Ring, RingSettings, Token};
use freehold::series::Counts;
use freehold::tenant::TenantId;
use freehold::upstream::Upstream;
use freehold::upstream::config::UpstreamConfig;
use freehold::wire::proto::cortexpb;
use prost::Message as _;
use tokio::task::JoinHandle;

use super::ingester::{UpstreamIngester, labels};

/// A wait in these tests fails after so long; on a healthy machine none comes near it.
const PATIENCE: Duration = Duration::from_secs(30);
const LISTING: &str = "/cortex.Ingester/MetricsForLabelMatchersStream";
const POLL: &str = "/cortex.Ingester/AllUserStats";
const HOUR_MS: i64 = 60 * 60 * 1000;
const MINUTE_MS: i64 = 60 * 1000;

/// A minute in half a second.
fn pace() -> Pace {
    Pace {
        tick: Duration::from_millis(10),
        poll: Duration::from_millis(400),
        poll_while_due: Duration::from_millis(50),
        poll_after_change: Duration::from_millis(10),
        relist: Duration::from_secs(5),
        drift: Duration::from_millis(1200),
        small_drift: Duration::from_secs(30),
        retry: Duration::from_millis(10),
        retry_max: Duration::from_millis(250),
        empty: Duration::from_millis(500),
        ..Pace::default()
    }
}

struct Sidecar {
    ingester: Arc<Ingester>,
    ring: Arc<Ring>,
    clock: Clock,
    status: FollowStatus,
    follower: JoinHandle<()>,
    passes: PassLoop,
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

fn member(id: &str, tokens: impl IntoIterator<Item = u32>, now_ms: i64) -> (String, Instance) {
    let instance = Instance {
        addr: format!("{id}:9095"),
        timestamp_s: now_ms / 1000,
        state: InstanceState::Active,
        tokens: tokens.into_iter().map(Token).collect(),
        zone: String::new(),
        registered_timestamp_s: 0,
        unknown_fields: Vec::new(),
    };
    (id.to_owned(), instance)
}

impl Sidecar {
    fn before(upstream: &UpstreamIngester) -> Self {
        Self::with(upstream, Limits::default())
    }

    fn with(upstream: &UpstreamIngester, limits: Limits) -> Self {
        let clock = Clock::start();
        let settings = RingSettings {
            replication_factor: 1,
            zone_awareness_enabled: false,
            heartbeat_timeout_ms: 0,
            extend_writes: true,
            own_id: Some("ingester-0".to_owned()),
        };
        let ring = Arc::new(Ring::new(settings, 600_000));
        let config = IngesterConfig {
            owned_series_limit_enforcement_enabled: true,
            ..IngesterConfig::default()
        };
        let ingester = Arc::new(Ingester::new(Parts {
            config,
            role: Role {
                behind_distributors: true,
                shard_by_all_labels: true,
                shuffle_sharding: false,
                has_upstream: true,
            },
            ring: Arc::clone(&ring),
            overrides: Arc::new(Overrides::new(limits, InstanceLimits::default())),
            store: None,
            hasher: IdentityHasher::new([7; IDENTITY_SECRET_BYTES]),
        }));
        ingester.note_ring_state(InstanceState::Active);
        let passes = PassLoop::new(Arc::clone(&ingester), clock);
        let config = UpstreamConfig {
            address: upstream.address.to_string(),
            connect_backoff_base_delay: freehold::units::Millis(5),
            connect_backoff_max_delay: freehold::units::Millis(50),
            ..UpstreamConfig::default()
        };
        let way = Upstream::new(&config).expect("a config");
        let follower = Follower::new(Arc::clone(&ingester), way, clock, pace());
        let status = follower.status();
        let follower = tokio::spawn(follower.run(std::future::pending()));
        let mut sidecar = Self { ingester, ring, clock, status, follower, passes };
        sidecar.ring_of([("ingester-0", vec![1])]);
        sidecar
    }

    fn ring_of<const N: usize>(&mut self, members: [(&str, Vec<u32>); N]) {
        let now = self.clock.now();
        let members = members.into_iter().map(|(id, tokens)| member(id, tokens, now.unix_ms));
        let model = RingModel { instances: members.collect(), unknown_fields: Vec::new() };
        self.ring.publish(&RingReading::Whole(model), now.unix_ms);
        self.passes.renew(now);
    }

    async fn loaded(self) -> Self {
        self.wait("loaded", |sidecar| sidecar.status.is_loaded()).await;
        self
    }

    async fn wait(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let waiting = async {
            while !done(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "{what} in vain: {:?}", self.status.readiness());
    }

    /// Last seen is kept in whole seconds.
    async fn turn_second(&self) {
        let second = self.clock.now().steady_s();
        self.wait("a second", |sidecar| sidecar.clock.now().steady_s() > second).await;
    }

    fn counts(&self, id: &str) -> Counts {
        let visit = self.ingester.tenants.visit(&tenant(id));
        visit.map_or_else(Counts::default, |tenant| tenant.series.counts())
    }

    fn count(&self, id: &str) -> u64 {
        self.counts(id).series.in_memory
    }

    /// What a push through us does on both sides.
    fn push(
        &self,
        upstream: &UpstreamIngester,
        id: &str,
        series: impl IntoIterator<Item = u64>,
        at_ms: i64,
    ) -> Result<(), PushError> {
        let body = request(series, at_ms);
        self.ingester.push(&tenant(id), &body, self.clock.now())?;
        upstream.push(id, &body).expect("the upstream takes it");
        Ok(())
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    fn metrics(&self) -> String {
        let mut families = Families::default();
        self.ingester.read_metrics(&self.clock, &mut families);
        self.status.read_metrics(&mut families);
        let encoder = prometheus::TextEncoder::new();
        encoder.encode_to_string(&families.into_vec()).expect("text")
    }

    fn metric(&self, line_start: &str) -> f64 {
        let text = self.metrics();
        let line = text.lines().find(|line| line.starts_with(line_start));
        let line = line.unwrap_or_else(|| panic!("{line_start} in {text}"));
        line.rsplit(' ').next().expect("a value").parse().expect("a number")
    }
}

fn tenant(id: &str) -> TenantId {
    TenantId::parse(id).expect("a tenant")
}

pub fn request(series: impl IntoIterator<Item = u64>, timestamp_ms: i64) -> Vec<u8> {
    let timeseries = series.into_iter().map(|number| {
        let labels = labels("m", number);
        let labels = labels
            .as_labels()
            .iter()
            .map(|(name, value)| cortexpb::LabelPair { name: name.into(), value: value.into() });
        let sample = cortexpb::Sample { value: 1.0, timestamp_ms, start_timestamp_ms: 0 };
        cortexpb::TimeSeries {
            labels: labels.collect(),
            samples: vec![sample],
            ..Default::default()
        }
    });
    cortexpb::WriteRequest { timeseries: timeseries.collect(), ..Default::default() }
        .encode_to_vec()
}

fn now_ms() -> i64 {
    Clock::start().now().unix_ms
}

/// An upstream that has taken these series of tenant `a` half an hour ago.
async fn upstream_with(series: u64) -> UpstreamIngester {
    let upstream = UpstreamIngester::start().await;
    upstream.push("a", &request(0..series, now_ms() - 30 * MINUTE_MS)).expect("taken");
    upstream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_b20_a_restarted_sidecar_knows_what_is_upstream_before_it_is_ready() {
    let upstream = UpstreamIngester::start().await;
    for (id, series) in [("a", 3000), ("b", 1), ("c", 129)] {
        upstream.push(id, &request(0..series, now_ms())).expect("taken");
    }
    let sidecar = Sidecar::before(&upstream).loaded().await;
    for (id, series) in [("a", 3000), ("b", 1), ("c", 129)] {
        assert_eq!(sidecar.count(id), series);
        let known = sidecar.ingester.tenants.visit(&tenant(id)).expect("a tenant");
        for number in 0..series {
            let identity = IdentityHasher::new([7; IDENTITY_SECRET_BYTES])
                .identity(labels("m", number).as_labels());
            assert!(known.series.contains(identity), "{id} {number}");
        }
    }
    assert_eq!(upstream.calls(LISTING), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_b20_while_loading_a_full_tenant_gets_nothing_on_top() {
    let upstream = upstream_with(1000).await;
    upstream.knobs().message_delay = Duration::from_millis(200);
    let limits = Limits { max_series_per_user: 1000, ..Limits::default() };
    let sidecar = Sidecar::with(&upstream, limits);
    sidecar.wait("the first message", |sidecar| sidecar.count("a") > 0).await;
    assert!(sidecar.status.readiness().is_err(), "not ready while loading");
    assert!((sidecar.metric("freehold_ingester_loading{count=\"in_memory\"}") - 1.0).abs() < 0.1);
    let refused = sidecar.push(&upstream, "a", [5000], now_ms()).expect_err("the tenant is full");
    assert!(matches!(refused, PushError::Partial { .. }), "{refused}");
    let sidecar = sidecar.loaded().await;
    assert_eq!(sidecar.count("a"), 1000);
    assert_eq!(sidecar.status.readiness(), Ok(()));
    assert!(sidecar.metric("freehold_ingester_loading{count=\"in_memory\"}").abs() < 0.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_b4_active_series_are_marked_as_incomplete_after_a_start() {
    let upstream = upstream_with(10).await;
    let sidecar = Sidecar::before(&upstream).loaded().await;
    assert_eq!(sidecar.counts("a").active, 0, "nothing has been touched yet");
    assert!((sidecar.metric("freehold_ingester_loading{count=\"active\"}") - 1.0).abs() < 0.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_are_served_while_a_slow_listing_goes_on() {
    let upstream = upstream_with(2000).await;
    // Sixteen messages: a listing of three seconds and more.
    upstream.knobs().message_delay = Duration::from_millis(200);
    let sidecar = Sidecar::before(&upstream);
    sidecar.wait("the first message", |sidecar| sidecar.count("a") > 0).await;
    let mut pushes = 0;
    while !sidecar.status.is_loaded() {
        // New ones, ones that are listed and ones that are not yet.
        let at_ms = sidecar.now().unix_ms;
        let new = 10_000 + pushes * 10;
        sidecar.push(&upstream, "a", (new..new + 10).chain(0..2000), at_ms).expect("taken");
        pushes += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(pushes > 1, "{pushes}");
    assert_eq!(sidecar.count("a"), 2000 + pushes * 10);
    assert_eq!(upstream.calls(LISTING), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_is_down_at_the_start_lets_no_push_pass() {
    let mut upstream = upstream_with(100).await;
    upstream.kill().await;
    let sidecar = Sidecar::before(&upstream);
    sidecar
        .wait("some tries", |sidecar| {
            sidecar.metric("freehold_ingester_upstream_poll_failures_total") > 3.0
        })
        .await;
    let refused = sidecar.push(&upstream, "a", [1], now_ms()).expect_err("not running");
    assert!(matches!(refused, PushError::NotRunning { .. }), "{refused}");
    assert!(sidecar.status.readiness().is_err());
    upstream.restart(|_, _| {}).await;
    let sidecar = sidecar.loaded().await;
    assert_eq!(sidecar.count("a"), 100);
    sidecar.push(&upstream, "a", [1], now_ms()).expect("taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_of_the_head_is_followed_by_the_series_times_alone() {
    let upstream = UpstreamIngester::start().await;
    let sidecar = Sidecar::before(&upstream).loaded().await;
    let live_ms = sidecar.now().unix_ms;
    // Half of the series stop two hours ago; the others are written all along.
    let old_ms = live_ms - 3 * HOUR_MS - 5 * MINUTE_MS;
    sidecar.push(&upstream, "a", 0..200, old_ms).expect("taken");
    for hour in 1..=3 {
        sidecar.push(&upstream, "a", 0..100, old_ms + hour * HOUR_MS).expect("taken");
    }
    sidecar.push(&upstream, "a", 0..100, live_ms).expect("taken");
    let polls = upstream.calls(POLL);
    sidecar.wait("polls while a drop is due", |_| upstream.calls(POLL) > polls + 10).await;
    assert_eq!(sidecar.count("a"), 200, "nothing goes before the upstream drops it");
    let range_ms = 2 * HOUR_MS;
    upstream.cut_head("a", (old_ms / range_ms + 1) * range_ms);
    assert_eq!(upstream.count("a"), 100);
    sidecar.wait("the cut", |sidecar| sidecar.count("a") == 100).await;
    assert_eq!(upstream.calls(LISTING), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_is_followed() {
    let upstream = upstream_with(100).await;
    let sidecar = Sidecar::before(&upstream).loaded().await;
    sidecar.push(&upstream, "a", 0..50, sidecar.now().unix_ms).expect("taken");
    sidecar.turn_second().await;
    upstream.flush("a");
    sidecar.wait("an empty tenant", |sidecar| sidecar.count("a") == 0).await;
    let at_ms = sidecar.now().unix_ms;
    sidecar.push(&upstream, "a", 0..20, at_ms).expect("taken");
    assert_eq!(sidecar.count("a"), 20);
    assert_eq!(upstream.calls(LISTING), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_b19_a_tenant_closed_upstream_takes_its_series_and_metrics_with_it() {
    let upstream = upstream_with(100).await;
    let sidecar = Sidecar::before(&upstream).loaded().await;
    assert!(sidecar.metrics().contains("freehold_ingester_upstream_series{user=\"a\"} 100"));
    // While it closes it says that it has nothing, and still counts it.
    upstream.tenants().get_mut("a").expect("a tenant").is_closing = true;
    let polls = upstream.calls(POLL);
    sidecar.wait("some polls", |_| upstream.calls(POLL) > polls + 2).await;
    assert_eq!(sidecar.count("a"), 100);
    upstream.close("a");
    sidecar.wait("no tenant", |sidecar| sidecar.ingester.tenants.is_empty()).await;
    assert!(!sidecar.metrics().contains("user=\"a\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_b3_an_upstream_restarted_with_less_is_followed_and_counts_no_dead_series() {
    let mut upstream = upstream_with(500).await;
    let sidecar = Sidecar::before(&upstream).loaded().await;
    sidecar.push(&upstream, "a", 0..100, sidecar.now().unix_ms).expect("taken");
    sidecar.turn_second().await;
    upstream.kill().await;
    sidecar
        .wait("its loss", |sidecar| sidecar.metric("freehold_ingester_upstream_reached") < 0.5)
        .await;
    assert_eq!(sidecar.count("a"), 500, "no answer is no evidence");
    upstream
        .restart(|_, tenant| {
            // The log held half of the series, and some that never had a sample.
            let dead: Vec<_> = tenant.series.keys().take(250).cloned().collect();
            tenant.series.retain(|labels, _| !dead.contains(labels));
            tenant.bare.extend(dead.into_iter().take(10));
        })
        .await;
    sidecar.wait("what is left", |sidecar| sidecar.count("a") == 250).await;
    sidecar
        .wait("the residue", |sidecar| {
            let residue = "freehold_ingester_upstream_residue_series{user=\"a\"}";
            (sidecar.metric(residue) - 10.0).abs() < 0.1
        })
        .await;
    assert_eq!(upstream.count("a"), 260);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_is_starting_is_waited_for() {
    let upstream = upstream_with(100).await;
    upstream.knobs().is_not_running = true;
    let sidecar = Sidecar::before(&upstream);
    sidecar.wait("some polls", |_| upstream.calls(POLL) > 3).await;
    assert!(!sidecar.ingester.is_running());
    upstream.knobs().is_not_running = false;
    let sidecar = sidecar.loaded().await;
    assert_eq!(sidecar.count("a"), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_breaks_off_is_made_again() {
    let upstream = upstream_with(1000).await;
    upstream.knobs().break_listing_after = Some(3);
    let sidecar = Sidecar::before(&upstream);
    sidecar.wait("some tries", |_| upstream.calls(LISTING) > 3).await;
    assert!(!sidecar.status.is_loaded());
    upstream.knobs().break_listing_after = None;
    let sidecar = sidecar.loaded().await;
    assert_eq!(sidecar.count("a"), 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_head_is_listed_although_the_call_reaches_into_blocks() {
    let upstream = UpstreamIngester::start().await;
    let now_ms = now_ms();
    upstream.push("a", &request(0..300, now_ms - 4 * HOUR_MS)).expect("taken");
    upstream.push("a", &request(0..100, now_ms - 10)).expect("taken");
    upstream.cut_head("a", now_ms - HOUR_MS);
    assert_eq!(upstream.count("a"), 100);
    let sidecar = Sidecar::before(&upstream).loaded().await;
    assert_eq!(sidecar.count("a"), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_ranges_taken_by_the_letter_is_loaded_from_where_its_head_should_begin() {
    let upstream = upstream_with(100).await;
    upstream.knobs().ranges_are_literal = true;
    let sidecar = Sidecar::before(&upstream).loaded().await;
    assert_eq!(sidecar.count("a"), 100);
    assert_eq!(upstream.calls(LISTING), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_by_metric_are_known_once_the_series_are() {
    let upstream = upstream_with(100).await;
    let limits = Limits { max_series_per_metric: 1000, ..Limits::default() };
    let sidecar = Sidecar::with(&upstream, limits).loaded().await;
    let known = sidecar.ingester.tenants.visit(&tenant("a")).expect("a tenant");
    let count = known.series.metric_count(b"m").expect("known");
    assert_eq!(count.in_memory, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_b1_listed_series_that_move_away_leave_owned_and_stay_in_memory() {
    let upstream = upstream_with(400).await;
    let mut sidecar = Sidecar::before(&upstream).loaded().await;
    assert_eq!(sidecar.counts("a").series.owned, 400);
    sidecar.ring_of([("ingester-0", vec![0x4000_0000]), ("ingester-1", vec![0xc000_0000])]);
    let counts = sidecar.counts("a");
    assert_eq!(counts.series.in_memory, 400);
    assert!((100..300).contains(&counts.series.owned), "{counts:?}");
    assert_eq!(counts.created_not_owned_total, 0, "what was listed is no evidence on settings");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_b13_dropping_what_has_moved_away_leaves_owned_alone() {
    let upstream = UpstreamIngester::start().await;
    let mut sidecar = Sidecar::before(&upstream).loaded().await;
    let at_ms = sidecar.now().unix_ms;
    sidecar.push(&upstream, "a", 0..10, at_ms).expect("taken");
    sidecar.ring_of([("ingester-0", vec![0x4000_0000]), ("ingester-1", vec![0xc000_0000])]);
    let is_owned = |number: &u64| {
        let RingKey(key) = freehold::labels::ring_key("a", labels("m", *number).as_labels());
        !(0x4000_0000..0xc000_0000).contains(&key)
    };
    let owned: Vec<_> = (0..10).filter(is_owned).collect();
    assert_eq!(sidecar.counts("a").series.owned, owned.len() as u64);
    sidecar.turn_second().await;
    // What moved away falls silent and goes; what is ours goes on.
    let polls = upstream.calls(POLL);
    sidecar.wait("a poll", |_| upstream.calls(POLL) > polls).await;
    upstream.flush("a");
    let at_ms = sidecar.now().unix_ms;
    sidecar.push(&upstream, "a", owned.iter().copied(), at_ms).expect("taken");
    sidecar.wait("the rest", |sidecar| sidecar.count("a") == owned.len() as u64).await;
    assert_eq!(sidecar.counts("a").series.owned, owned.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_upstream_under_pushes_leaves_exact_counts() {
    let mut upstream = upstream_with(300).await;
    let sidecar = Sidecar::before(&upstream).loaded().await;
    for round in 0..3 {
        let at_ms = sidecar.now().unix_ms;
        let new = 1000 * (round + 1);
        sidecar.push(&upstream, "a", (0..300).chain(new..new + 50), at_ms).expect("taken");
        upstream.kill().await;
        sidecar
            .wait("its loss", |sidecar| sidecar.metric("freehold_ingester_upstream_reached") < 0.5)
            .await;
        upstream.restart(|_, _| {}).await;
        sidecar
            .wait("its return", |sidecar| {
                sidecar.metric("freehold_ingester_upstream_reached") > 0.5
            })
            .await;
    }
    assert_eq!(sidecar.count("a"), 450);
    assert_eq!(upstream.count("a"), 450);
    assert_eq!(upstream.calls(LISTING), 1, "nothing was lost, so nothing is listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_a13_case_a25_a_ring_that_fails_once_keeps_a_full_tenant_at_its_limit() {
    let upstream = upstream_with(100).await;
    let limits = Limits { max_global_series_per_user: 100, ..Limits::default() };
    let mut sidecar = Sidecar::with(&upstream, limits).loaded().await;
    let refused = |sidecar: &Sidecar| {
        let pushed = sidecar.push(&upstream, "a", [5000], sidecar.now().unix_ms);
        matches!(pushed, Err(PushError::Partial { .. }))
    };
    assert!(refused(&sidecar));
    let now = sidecar.now();
    let nobody = RingModel { instances: Default::default(), unknown_fields: Vec::new() };
    sidecar.ring.publish(&RingReading::Whole(nobody), now.unix_ms);
    sidecar.passes.renew(now);
    assert!(refused(&sidecar), "a ring without members is no ring");
    sidecar.ring.read_failed(now.unix_ms, "out of reach");
    sidecar.passes.renew(now);
    assert!(refused(&sidecar));
    assert_eq!(sidecar.counts("a").series.owned, 100);
}
