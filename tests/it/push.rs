//! Pushes into a whole ingester with a store on the disk: what is kept, refused, charged.

use std::sync::Arc;

use freehold::clock::Now;
use freehold::ingester::config::{CheckIngestionLimits, IngesterConfig};
use freehold::ingester::counters::{DiscardReason, MetadataReason};
use freehold::ingester::tenants::Visit;
use freehold::ingester::{Ingester, Parts, PushError, Pushed, Role};
use freehold::labels::IdentityHasher;
use freehold::limits::{InstanceLimits, Limits, Overrides};
use freehold::ring::model::InstanceState;
use freehold::ring::{Ring, RingSettings};
use freehold::server::seam;
use freehold::store::{self, Store, TimeRange};
use freehold::tenant::TenantId;
use freehold::units::Millis;
use freehold::wire::proto::cortexpb::{self, histogram};
use prost::Message as _;
use tempfile::TempDir;

pub const HOUR_MS: i64 = 3_600_000;
/// Start of a block of the store, so that tests can cross one.
pub const T0_MS: i64 = 6 * HOUR_MS * 78_704;

/// An ingester and what it was made of.
pub struct Bench {
    pub ingester: Arc<Ingester>,
    pub now: Now,
    pub dir: TempDir,
}

pub struct Setup {
    pub limits: Limits,
    pub instance: InstanceLimits,
    pub config: IngesterConfig,
}

pub fn setup() -> Setup {
    let limits = Limits { enable_native_histograms: true, ..Limits::default() };
    let config = IngesterConfig {
        check_ingestion_limits: CheckIngestionLimits::On,
        ..IngesterConfig::default()
    };
    Setup { limits, instance: InstanceLimits::default(), config }
}

impl Setup {
    pub fn start(&self) -> Bench {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Now { unix_ms: T0_MS, steady_ns: 1_000_000_000 };
        Bench { ingester: self.open(&dir, now), now, dir }
    }

    pub fn open(&self, dir: &TempDir, now: Now) -> Arc<Ingester> {
        let config = store::Config { path: dir.path().into(), ..store::Config::default() };
        let store = Store::open(config).expect("a store");
        let ring = RingSettings {
            replication_factor: 1,
            zone_awareness_enabled: false,
            heartbeat_timeout_ms: 60_000,
            extend_writes: true,
            own_id: None,
        };
        let ingester = Ingester::new(Parts {
            config: self.config.clone(),
            role: Role {
                behind_distributors: false,
                shard_by_all_labels: true,
                shuffle_sharding: false,
                has_upstream: false,
            },
            ring: Arc::new(Ring::new(ring, 600_000)),
            overrides: Arc::new(Overrides::new(self.limits.clone(), self.instance.clone())),
            hasher: IdentityHasher::new(store.identity_secret()),
            store: Some(store),
        });
        ingester.restore(now).expect("restored");
        ingester.note_ring_state(InstanceState::Active);
        ingester.run();
        Arc::new(ingester)
    }
}

impl Bench {
    pub fn push(&self, series: &[cortexpb::TimeSeries]) -> Result<Pushed, PushError> {
        self.push_bytes(&request(series, &[]))
    }

    fn push_bytes(&self, body: &[u8]) -> Result<Pushed, PushError> {
        self.ingester.push(&tenant(), body, self.now)
    }

    pub fn tenant(&self) -> Visit {
        self.ingester.tenants.visit(&tenant()).expect("the tenant is there")
    }

    pub fn series(&self) -> u64 {
        self.tenant().series.counts().series.in_memory
    }

    fn store(&self) -> &Store {
        self.ingester.store.as_ref().expect("a store")
    }

    /// Number of stored series and samples, as a reader sees them.
    fn stored(&self) -> (usize, usize) {
        let selection = self.store().select(&tenant(), &[], TimeRange::ALL).expect("select");
        let all: Vec<_> = selection.map(|series| series.expect("read")).collect();
        (all.len(), all.iter().map(|series| series.samples.len()).sum())
    }

    fn head_rows(&self) -> u64 {
        let mut rows = 0;
        self.store().for_each_head(|_, _| rows += 1).expect("heads");
        rows
    }

    pub fn discarded(&self, reason: DiscardReason) -> u64 {
        self.tenant().counters.discarded_samples(reason)
    }

    /// Counts and store agree, and nothing is in between.
    #[track_caller]
    pub fn check_holds(&self, series: u64, samples: usize) {
        assert_eq!((self.series(), self.head_rows()), (series, series));
        assert_eq!(self.stored(), (series as usize, samples));
        assert_eq!(self.tenant().series.counts().pending, 0);
    }
}

pub fn tenant() -> TenantId {
    TenantId::parse("a").expect("a tenant")
}

fn label(name: &str, value: &str) -> cortexpb::LabelPair {
    cortexpb::LabelPair { name: name.into(), value: value.into() }
}

fn bare(number: u64) -> cortexpb::TimeSeries {
    let labels = vec![label("__name__", "up"), label("i", &number.to_string())];
    cortexpb::TimeSeries { labels, ..Default::default() }
}

pub fn float(number: u64, timestamp_ms: i64, value: f64) -> cortexpb::TimeSeries {
    let sample = cortexpb::Sample { value, timestamp_ms, start_timestamp_ms: 0 };
    cortexpb::TimeSeries { samples: vec![sample], ..bare(number) }
}

/// Two observations in one bucket, said to be `count`.
pub fn native(number: u64, timestamp_ms: i64, count: u64) -> cortexpb::TimeSeries {
    let histogram = cortexpb::Histogram {
        count: Some(histogram::Count::CountInt(count)),
        zero_count: Some(histogram::ZeroCount::ZeroCountInt(0)),
        sum: 3.0,
        positive_spans: vec![cortexpb::BucketSpan { offset: 0, length: 1 }],
        positive_deltas: vec![2],
        timestamp_ms,
        ..Default::default()
    };
    cortexpb::TimeSeries { histograms: vec![histogram], ..bare(number) }
}

pub fn floats(numbers: std::ops::Range<u64>, timestamp_ms: i64) -> Vec<cortexpb::TimeSeries> {
    numbers.map(|number| float(number, timestamp_ms, 1.0)).collect()
}

fn metadata(metric: &str) -> cortexpb::MetricMetadata {
    let help = b"help".to_vec();
    cortexpb::MetricMetadata {
        r#type: 1,
        metric_family_name: metric.into(),
        help,
        ..Default::default()
    }
}

pub fn request(series: &[cortexpb::TimeSeries], metadata: &[cortexpb::MetricMetadata]) -> Vec<u8> {
    let request = cortexpb::WriteRequest {
        timeseries: series.to_vec(),
        metadata: metadata.to_vec(),
        ..Default::default()
    };
    request.encode_to_vec()
}

/// Code and text as the sender gets them; 2 is a plain error.
pub fn refusal(outcome: Result<Pushed, PushError>) -> (u16, String) {
    match seam::PushError::from(outcome.expect_err("refused")) {
        seam::PushError::Rejected { code, text } => (code, text),
        seam::PushError::RateLimited { text, .. } => (429, text),
        seam::PushError::Plain { text } => (2, text),
        seam::PushError::Unavailable { text } => (14, text),
        seam::PushError::Malformed { text } => (13, text),
    }
}

#[test]
fn case_e3_known_series_pass_at_the_limit_and_the_first_failure_is_named() {
    let mut setup = setup();
    setup.limits.max_series_per_user = 100;
    let bench = setup.start();
    bench.push(&floats(0..100, T0_MS)).expect("room for all");
    let (code, text) = refusal(bench.push(&floats(0..105, T0_MS + 1)));
    // Case E8: one form for all limits; case E1: no retry helps, so 400.
    assert_eq!(
        (code, &*text),
        (
            400,
            "user=a: per-user series limit of 100 exceeded, please contact administrator to \
             raise it (local limit: 100 global limit: 0 actual local limit: 100)"
        )
    );
    bench.check_holds(100, 200);
    assert_eq!(bench.discarded(DiscardReason::PerUserSeriesLimit), 5);
    assert_eq!(bench.ingester.counters.samples_failed.get(), 5);
}

#[test]
fn case_d2_at_the_instance_limit_nothing_is_kept_and_the_next_block_gets_its_labels() {
    let mut setup = setup();
    setup.instance.max_series = 9;
    let mut bench = setup.start();
    bench.now.unix_ms = T0_MS - 1;
    bench.push(&floats(0..9, T0_MS - 1)).expect("room for all");
    // The known ones cross into the next block when the tenth fails the push.
    bench.now.unix_ms = T0_MS;
    let body = request(&floats(0..10, T0_MS), &[metadata("up")]);
    let (code, text) = refusal(bench.push_bytes(&body));
    let expect = "user=a: cannot add series: ingesters's max series limit reached";
    assert_eq!((code, &*text), (2, expect));
    bench.check_holds(9, 9);
    assert!(bench.tenant().metadata.is_empty(), "a retry must bring it to the store");
    // The next push is plain, and what it stores is found without the block before.
    bench.push(&floats(0..9, T0_MS + 15_000)).expect("known");
    let retention_ms = store::Config::default().retention.0 as i64;
    assert_eq!(bench.store().apply_retention(T0_MS + retention_ms).expect("dropped"), 1);
    assert_eq!(bench.stored(), (9, 9));
}

#[test]
fn case_r22_a_push_that_fails_as_a_whole_is_not_charged() {
    let mut setup = setup();
    setup.instance.max_series = 1;
    setup.limits.ingestion_rate = 1.0;
    setup.limits.ingestion_burst_size = 4;
    setup.limits.native_histogram_ingestion_rate = 1.0;
    setup.limits.native_histogram_ingestion_burst_size = 2;
    let bench = setup.start();
    for _ in 0..5 {
        let failing = [float(0, T0_MS, 1.0), native(1, T0_MS, 2), native(2, T0_MS, 2)];
        assert_eq!(refusal(bench.push(&failing)).0, 2);
        assert_eq!(bench.series(), 0);
    }
    bench.push(&[native(0, T0_MS, 2)]).expect("both buckets are full still");
    bench.push(&floats(0..1, T0_MS + 1)).expect("three left");
    setup.config.limits_parity = true;
    let cortex = setup.start();
    assert_eq!(refusal(cortex.push(&floats(0..4, T0_MS))).0, 2);
    assert_eq!(refusal(cortex.push(&floats(0..1, T0_MS))).0, 429, "Cortex keeps the charge");
}

#[test]
fn case_r47_a_refused_sample_is_paid_for() {
    let mut setup = setup();
    setup.limits.ingestion_rate = 1.0;
    setup.limits.ingestion_burst_size = 3;
    let bench = setup.start();
    bench.push(&floats(0..1, T0_MS)).expect("the first");
    for _ in 0..2 {
        assert_eq!(refusal(bench.push(&floats(0..1, T0_MS - 1))).0, 400);
    }
    let (code, text) = refusal(bench.push(&floats(0..1, T0_MS + 1)));
    let expect = "ingestion rate limit (1) exceeded while adding 1 samples and 0 metadata; the rate \
                  is used up (local limit: 1 global limit: 0 actual local limit: 1 burst: 3), \
                  please contact administrator to raise it";
    assert_eq!((code, &*text), (429, expect));
    bench.check_holds(1, 1);
    assert_eq!(bench.discarded(DiscardReason::RateLimited), 1, "case C14: they are counted");
}

#[test]
fn case_c15_over_the_histogram_rate_floats_are_stored_and_only_they_are_charged() {
    let mut setup = setup();
    setup.limits.ingestion_rate = 1.0;
    setup.limits.ingestion_burst_size = 30;
    setup.limits.native_histogram_ingestion_rate = 1000.0; // case C17: and a burst of 0
    let bench = setup.start();
    let mut series = floats(0..10, T0_MS);
    series.extend((10..20).map(|number| native(number, T0_MS, 2)));
    // Cases C16 and R48: dropping some is not success.
    let (code, text) = refusal(bench.push(&series));
    assert_eq!(code, 429);
    assert!(text.starts_with("native histogram ingestion rate limit (1000)"), "{text}");
    assert!(text.contains("above the burst"), "{text}");
    bench.check_holds(10, 10);
    assert_eq!(bench.discarded(DiscardReason::NativeHistogramRateLimited), 10);
    // Case C18: ten of thirty are gone.
    bench.push(&floats(0..20, T0_MS + 1)).expect("twenty are left");
    assert_eq!(refusal(bench.push(&floats(0..1, T0_MS + 2))).0, 429);
}

#[test]
fn what_is_no_write_request_changes_nothing() {
    let bench = setup().start();
    bench.push(&floats(0..1, T0_MS)).expect("the first");
    let good = request(&floats(1..3, T0_MS), &[metadata("up")]);
    for cut in [1, 5, good.len() / 2, good.len() - 1] {
        assert_eq!(refusal(bench.push_bytes(&good[..cut])).0, 13, "{cut}");
    }
    // A length beyond the end, one beyond 64 bits, and a field of the wrong kind.
    for bad in [&b"\x0a\xff\xff\xff\xff\x0f"[..], &[0x0a; 11], &[0xff; 20], b"\x08\x01"] {
        let mut body = good.clone();
        body.extend_from_slice(bad);
        let (code, text) = refusal(bench.push_bytes(&body));
        assert!(code == 13 && !text.is_empty(), "{bad:?}: {text}");
    }
    bench.check_holds(1, 1);
    assert!(bench.tenant().metadata.is_empty());
}

#[test]
fn strange_labels_are_answered_as_by_cortex_and_leave_nothing() {
    let bench = setup().start();
    bench.push(&floats(0..1, T0_MS)).expect("the first");
    let labelled = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(name, value)| label(name, value)).collect();
        cortexpb::TimeSeries { labels, ..float(0, T0_MS, 1.0) }
    };
    for (labels, expect) in [
        (
            &[("b", "1"), ("__name__", "x")][..],
            "user=a: out-of-order label set found when push: {b=\"1\", __name__=\"x\"}",
        ),
        (&[("job", "x")], "user=a: no metric name label"),
        (&[], "user=a: empty labelset: invalid sample"),
    ] {
        // A good series in front goes with it.
        let pushed = bench.push(&[float(7, T0_MS, 1.0), labelled(labels)]);
        assert_eq!(refusal(pushed), (2, expect.to_owned()));
        bench.check_holds(1, 1);
    }
    let twice = labelled(&[("__name__", "up"), ("i", "1"), ("i", "2")]);
    bench.push(&[twice]).expect("Cortex's ingesters take a name twice");
    bench.check_holds(2, 2);
}

#[test]
fn histograms_count_by_their_latest_kind_and_an_invalid_one_makes_no_series() {
    let mut setup = setup();
    setup.limits.max_native_histogram_series_per_user = 1;
    let bench = setup.start();
    let histograms = |bench: &Bench| bench.tenant().series.counts().native_histogram.in_memory;
    let (code, text) = refusal(bench.push(&[native(0, T0_MS, 9)]));
    assert!(code == 400 && text.contains("observations found in buckets"), "{text}");
    assert_eq!(bench.series(), 0);
    bench.push(&[float(0, T0_MS, 1.0)]).expect("a float");
    bench.push(&[native(0, T0_MS + 1, 2)]).expect("it becomes a histogram");
    assert_eq!(histograms(&bench), 1);
    assert_eq!(refusal(bench.push(&[native(1, T0_MS, 2)])).0, 400);
    bench.push(&[float(1, T0_MS, 1.0)]).expect("the limit names histograms");
    bench.push(&[float(0, T0_MS + 2, 1.0)]).expect("and back");
    assert_eq!(histograms(&bench), 0);
    bench.check_holds(2, 4);
    assert_eq!(bench.discarded(DiscardReason::PerUserNativeHistogramSeriesLimit), 1);
    setup.config.limits_parity = true;
    let cortex = setup.start();
    cortex.push(&[native(0, T0_MS, 2)]).expect("the first");
    assert_eq!(refusal(cortex.push(&[float(1, T0_MS, 1.0)])).0, 400, "floats too");
}

#[test]
fn histograms_of_a_tenant_without_them_are_dropped_and_counted() {
    let mut setup = setup();
    setup.limits.enable_native_histograms = false;
    let bench = setup.start();
    let pushed = bench.push(&[native(0, T0_MS, 2), float(1, T0_MS, 1.0)]).expect("no error");
    assert_eq!((pushed.samples, pushed.histograms), (1, 0));
    assert_eq!(bench.discarded(DiscardReason::NativeHistogramSample), 1);
    bench.check_holds(1, 1);
}

#[test]
fn a_retry_changes_nothing_before_and_after_a_restart() {
    let setup = setup();
    let mut bench = setup.start();
    let body = request(&[float(0, T0_MS, 1.0), native(1, T0_MS, 2)], &[]);
    bench.push_bytes(&body).expect("the first time");
    bench.push_bytes(&body).expect("again");
    bench.check_holds(2, 2);
    let Bench { ingester, now, dir } = bench;
    drop(ingester);
    bench = Bench { ingester: setup.open(&dir, now), now, dir };
    bench.push_bytes(&body).expect("newest times are unknown now");
    bench.check_holds(2, 2);
    let (code, text) = refusal(bench.push(&[float(0, T0_MS, 2.0)]));
    assert!(code == 400 && text.contains("existing 1, new value 2"), "{text}");
    assert_eq!(bench.discarded(DiscardReason::NewValueForTimestamp), 1);
}

#[test]
fn one_series_twice_in_a_request_is_one_series() {
    let bench = setup().start();
    let twice = [float(0, T0_MS, 1.0), float(0, T0_MS + 1, 1.0)];
    bench.push(&twice).expect("new");
    bench.check_holds(1, 2);
    bench.push(&[float(0, T0_MS + 3, 1.0), float(0, T0_MS + 2, 1.0)]).expect("known");
    bench.check_holds(1, 4);
}

#[test]
fn inside_the_window_late_samples_are_stored() {
    let mut setup = setup();
    setup.limits.out_of_order_time_window = Millis(60_000);
    let bench = setup.start();
    bench.push(&floats(0..1, T0_MS)).expect("the first");
    bench.push(&floats(0..2, T0_MS - 60_000)).expect("late, in the block before");
    bench.check_holds(2, 3);
    let (code, text) = refusal(bench.push(&floats(0..1, T0_MS - 60_001)));
    assert!(code == 400 && text.contains("too old sample"), "{text}");
    assert_eq!(bench.discarded(DiscardReason::TooOld), 1);
}

#[test]
fn metadata_is_limited_and_counted_as_in_cortex_and_outlives_its_block() {
    let mut setup = setup();
    setup.limits.max_metadata_per_user = 2;
    let mut bench = setup.start();
    let all = ["a", "b", "c"].map(metadata);
    bench.push_bytes(&request(&[], &all)).expect("never an error");
    let refused = bench.tenant().counters.discarded_metadata(MetadataReason::PerUserLimit);
    assert_eq!((bench.tenant().metadata.len(), refused), (2, 1));
    assert_eq!(bench.ingester.counters.metadata.get(), 2);
    assert_eq!(bench.ingester.counters.metadata_failed.get(), 1);
    // Seen again in the next block, it is stored there too.
    bench.now.unix_ms += 6 * HOUR_MS;
    bench.push_bytes(&request(&[], &all)).expect("never an error");
    let retention_ms = store::Config::default().retention.0 as i64;
    bench.store().apply_retention(bench.now.unix_ms + retention_ms).expect("dropped");
    assert_eq!(bench.store().metadata(&tenant(), None).expect("read").len(), 2);
    assert_eq!(bench.tenant().counters.metadata_created.get(), 2);
}

#[test]
fn sixteen_threads_never_pass_the_limit_by_one() {
    let mut setup = setup();
    setup.limits.max_series_per_user = 500;
    setup.config.check_ingestion_limits = CheckIngestionLimits::Off;
    let bench = setup.start();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..8 {
                    let first = (thread * 8 + round) * 10;
                    // Refused or not: the limit decides, and every push overlaps others.
                    let _ = bench.push(&floats(first..first + 20, T0_MS));
                    assert!(bench.series() <= 500);
                }
            });
        }
    });
    assert_eq!((bench.series(), bench.head_rows()), (500, 500));
    assert_eq!(bench.stored().0, 500);
}
