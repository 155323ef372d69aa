//! The story, with a sink that remembers what came.

use std::sync::Mutex;

use super::*;
use crate::limits::{IngestionRateStrategy, InstanceLimits as IngesterLimits, Limits};
use crate::ratelimit::RECHECK_PERIOD;
use crate::trail::Trail;
use crate::upstream::distributor::Passed;
use crate::wire::remote_write::{Version, packed};
use crate::wire::write_request::check;

const SEC: i64 = 1_000_000_000;

/// What the sink got, and what it says.
#[derive(Default)]
struct Behind {
    bodies: Mutex<Vec<Vec<u8>>>,
    says: Mutex<Option<SinkError>>,
}

struct Bench {
    distributor: Distributor,
    behind: Arc<Behind>,
    overrides: Arc<Overrides>,
    limits: Limits,
}

struct Setup {
    limits: Limits,
    config: DistributorConfig,
    parity: bool,
}

fn setup(rate: f64, burst: u64) -> Setup {
    let limits = Limits { ingestion_rate: rate, ingestion_burst_size: burst, ..Limits::default() };
    Setup { limits, config: DistributorConfig::default(), parity: false }
}

impl Setup {
    fn start(self) -> Bench {
        let behind = Arc::<Behind>::default();
        let overrides = Arc::new(Overrides::new(self.limits.clone(), IngesterLimits::default()));
        let seen = Arc::clone(&behind);
        let sink: LocalPush = Arc::new(move |_, body| {
            let said = seen.says.lock().expect("lock").clone();
            if said.is_none() {
                seen.bodies.lock().expect("lock").push(body);
            }
            Box::pin(async move { said.map_or(Ok(()), Err) })
        });
        let distributor = Distributor::new(Parts {
            config: self.config,
            names: NameScheme::Legacy,
            parity: self.parity,
            overrides: Arc::clone(&overrides),
            peers: Peers::Alone,
            budgets: None,
            ha: HaTracker::off(),
            sink: Sink::Local(sink),
            clock: Clock::start(),
            recheck_period: RECHECK_PERIOD,
        });
        Bench { distributor, behind, overrides, limits: self.limits }
    }
}

fn tenant() -> TenantId {
    TenantId::parse("a").expect("a tenant")
}

fn at(steady_ns: i64) -> Now {
    Now { unix_ms: 1_700_000_000_000, steady_ns }
}

impl Bench {
    async fn push(&self, body: &[u8], steady_ns: i64) -> Result<Answer, PushError> {
        let write = Received {
            form: Form::RemoteWrite(Version::V1),
            body: packed(body).into(),
            trail: Trail::default(),
            client: None,
            passed: Passed::default(),
            room: None,
        };
        self.distributor.push(&tenant(), write, at(steady_ns)).await
    }

    /// Whether a whole request passed.
    async fn passes(&self, body: &[u8], steady_ns: i64) -> bool {
        matches!(self.push(body, steady_ns).await, Ok(Answer::Taken { partly: None, .. }))
    }

    async fn refused(&self, body: &[u8], steady_ns: i64) -> Refused {
        match self.push(body, steady_ns).await {
            Err(PushError::OverRate(refused)) => refused,
            other => panic!("{other:?}"),
        }
    }

    fn set_limits(&self, text: &str) {
        let file = self.overrides.parse(text).expect("a runtime file");
        self.overrides.publish(file);
    }

    fn says(&self, error: Option<SinkError>) {
        *self.behind.says.lock().expect("lock") = error;
    }

    fn credits(&self, steady_ns: i64) -> f64 {
        let view = self.distributor.rates.view(&tenant(), at(steady_ns));
        view.expect("has a bucket").credits
    }

    fn metrics(&self) -> String {
        let mut families = Families::default();
        self.distributor.read_metrics(&mut families);
        let encoder = prometheus::TextEncoder::new();
        encoder.encode_to_string(&families.into_vec()).expect("text")
    }

    fn holds(&self, line: &str) {
        let metrics = self.metrics();
        assert!(metrics.lines().any(|have| have == line), "{line} is not in\n{metrics}");
    }
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).expect("short")];
    field.extend_from_slice(bytes);
    field
}

fn label(name: &str, value: &str) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat())
}

/// A series of its own with so many float samples and native histograms.
fn series(number: u32, samples: usize, histograms: usize) -> Vec<u8> {
    let mut message = [label("__name__", "m"), label("i", &number.to_string())].concat();
    for _ in 0..samples {
        message.extend(field(2, &[0x10, 5]));
    }
    for _ in 0..histograms {
        message.extend(field(4, &[0x78, 5]));
    }
    field(1, &message)
}

fn floats(count: u32) -> Vec<u8> {
    (0..count).flat_map(|number| series(number, 1, 0)).collect()
}

/// Ten float series and ten of native histograms.
fn mixed() -> Vec<u8> {
    let histograms = (10..20).flat_map(|number| series(number, 0, 1));
    floats(10).into_iter().chain(histograms).collect()
}

fn metadata() -> Vec<u8> {
    field(3, &field(2, b"m"))
}

#[tokio::test]
async fn what_needs_no_change_goes_on_byte_for_byte() {
    let bench = setup(1000.0, 1000).start();
    let body = [floats(3), metadata()].concat();
    let Ok(Answer::Taken { written, partly: None }) = bench.push(&body, SEC).await else {
        panic!("taken")
    };
    assert_eq!(written, Written { samples: 3, histograms: 0, exemplars: 0 });
    assert_eq!(*bench.behind.bodies.lock().expect("lock"), [body]);
    assert_eq!(bench.credits(SEC), 996.0, "metadata counts");
}

#[tokio::test]
async fn one_bad_series_does_not_sink_the_others() {
    let bench = setup(1000.0, 1000).start();
    let nameless = field(1, &[label("a", "1"), field(2, &[0x10, 5])].concat());
    let outcome = bench.push(&[nameless.clone(), floats(2)].concat(), SEC).await;
    let Ok(Answer::Taken { written, partly: Some(Partly::Invalid { text }) }) = outcome else {
        panic!("taken in part")
    };
    assert_eq!((written.samples, text.as_str()), (2, "sample missing metric name"));
    assert_eq!(bench.behind.bodies.lock().expect("lock")[0], floats(2));
    bench.holds("cortex_discarded_samples_total{reason=\"missing_metric_name\",user=\"a\"} 1");
    bench.holds("cortex_distributor_received_samples_total{type=\"float\",user=\"a\"} 2");
    // Alone it leaves nothing to be charged.
    let Ok(Answer::Taken { written, .. }) = bench.push(&nameless, SEC).await else {
        panic!("nothing was taken, and that is no refusal")
    };
    assert_eq!(written, Written::default());
    assert_eq!(bench.credits(SEC), 998.0);
}

#[tokio::test]
async fn case_c7_a_burst_is_no_rate() {
    let bench = setup(20.0, 100).start();
    let mut admitted = Vec::new();
    for tenth in 0..100 {
        if bench.passes(&floats(6), SEC + tenth * SEC / 10).await {
            admitted.push(tenth);
        }
    }
    let in_burst = admitted.iter().filter(|tenth| **tenth < 24).count();
    assert_eq!(in_burst, 24, "60 a second from a burst of 100 at 20 a second: 2.5 s");
    let later = admitted.iter().filter(|tenth| **tenth >= 30).count() * 6;
    assert!((130..=150).contains(&later), "then 20 a second for 7 s: {later}");
}

#[tokio::test]
async fn case_c14_what_came_in_is_counted_whatever_becomes_of_it() {
    let bench = setup(1.0, 5).start();
    let refused = bench.refused(&[floats(6), metadata()].concat(), SEC).await;
    assert_eq!(refused.reason, "burst_exceeded");
    bench.holds("cortex_distributor_samples_in_total{type=\"float\",user=\"a\"} 6");
    bench.holds("cortex_distributor_metadata_in_total{user=\"a\"} 1");
    bench.holds("cortex_distributor_received_samples_total{type=\"float\",user=\"a\"} 6");
    bench.holds("cortex_discarded_samples_total{reason=\"burst_exceeded\",user=\"a\"} 6");
    bench.holds("cortex_discarded_metadata_total{reason=\"burst_exceeded\",user=\"a\"} 1");
}

#[tokio::test]
async fn case_c10_rate_and_burst_have_their_own_texts_and_reasons() {
    let bench = setup(1.0, 5).start();
    assert!(bench.refused(&floats(6), SEC).await.text.contains("above the burst"));
    assert!(bench.passes(&floats(5), SEC).await);
    let refused = bench.refused(&floats(2), SEC).await;
    assert_eq!(refused.reason, "rate_limited");
    assert!(refused.text.contains("the rate is used up"), "{}", refused.text);
    assert_eq!(refused.wait_ns, Some(2_000_000_000));
}

#[tokio::test]
async fn parity_has_cortexs_texts_and_reasons() {
    let bench = Setup { parity: true, ..setup(1.0, 5) }.start();
    let refused = bench.refused(&floats(6), SEC).await;
    let text = "ingestion rate limit (1) exceeded while adding 6 samples and 0 metadata";
    assert_eq!((refused.text.as_str(), refused.reason), (text, "rate_limited"));
}

#[tokio::test]
async fn case_c15_c16_c18_over_the_histogram_rate_floats_are_stored_and_paid_for() {
    let mut setup = setup(1.0, 20);
    // Case C17: a finite rate and the default burst of 0.
    setup.limits.native_histogram_ingestion_rate = 1000.0;
    let bench = setup.start();
    let outcome = bench.push(&mixed(), SEC).await;
    let Ok(Answer::Taken { written, partly: Some(Partly::Refused(refused)) }) = outcome else {
        panic!("taken in part")
    };
    assert_eq!(written, Written { samples: 10, histograms: 0, exemplars: 0 });
    assert_eq!(refused.reason, "native_histogram_burst_exceeded");
    let stored = check(&bench.behind.bodies.lock().expect("lock")[0]).expect("sound");
    assert_eq!((stored.samples, stored.histograms), (10, 0));
    assert_eq!(bench.credits(SEC), 10.0, "histograms are not paid for");
    bench.holds(
        "cortex_discarded_samples_total{reason=\"native_histogram_burst_exceeded\",user=\"a\"} 10",
    );
    // Case C17: pushes without histograms pass. Case R48: only histograms is no success.
    assert!(bench.passes(&floats(10), SEC).await);
    let only: Vec<u8> = (0..2).flat_map(|number| series(number, 0, 1)).collect();
    let later = SEC + 10 * SEC;
    bench.refused(&only, later).await;
    assert_eq!(bench.credits(later), 10.0);
}

#[tokio::test]
async fn parity_keeps_the_charge_for_dropped_histograms() {
    let mut setup = Setup { parity: true, ..setup(1.0, 20) };
    setup.limits.native_histogram_ingestion_rate = 1000.0;
    let bench = setup.start();
    assert!(bench.push(&mixed(), SEC).await.is_ok());
    assert_eq!(bench.credits(SEC), 0.0);
}

#[tokio::test]
async fn case_c19_a_lower_override_is_in_force_within_ten_seconds() {
    let bench = setup(1.0, 100).start();
    assert!(bench.passes(&floats(1), SEC).await);
    bench.set_limits("overrides: {a: {ingestion_burst_size: 5}}");
    assert!(bench.passes(&floats(20), SEC + 10 * SEC - 1).await, "not yet");
    bench.refused(&floats(6), SEC + 10 * SEC).await;
    assert!(bench.credits(SEC + 10 * SEC) <= 5.0, "credits are cut to the new burst");
    assert_eq!(bench.limits.ingestion_burst_size, 100);
}

#[tokio::test]
async fn case_r19_refused_calls_do_not_count_when_the_limit_is_raised() {
    let bench = setup(0.0, 10).start();
    assert!(bench.passes(&floats(10), SEC).await);
    for _ in 0..40 {
        bench.refused(&floats(1), SEC).await;
    }
    bench.set_limits("overrides: {a: {ingestion_burst_size: 20, ingestion_rate: 10}}");
    // The bucket learns of it at its recheck, and fills from then on.
    bench.refused(&floats(20), SEC + 10 * SEC).await;
    assert!(bench.passes(&floats(20), SEC + 13 * SEC).await);
}

#[tokio::test]
async fn case_c8_r22_what_was_never_processed_is_given_back() {
    let bench = setup(0.0, 10).start();
    let text = || "stopping".to_owned();
    bench.says(Some(SinkError::Unavailable { text: text() }));
    for _ in 0..10 {
        assert!(bench.push(&floats(8), SEC).await.is_err());
    }
    bench.says(Some(SinkError::Refused { status: 500, text: text(), wait_ns: None }));
    assert!(bench.push(&floats(8), SEC).await.is_err());
    bench.says(None);
    assert!(bench.passes(&floats(10), SEC).await, "nothing was paid");
    // Cortex keeps the charge.
    let cortex = Setup { parity: true, ..setup(0.0, 10) }.start();
    cortex.says(Some(SinkError::Unavailable { text: text() }));
    assert!(cortex.push(&floats(8), SEC).await.is_err());
    cortex.says(None);
    cortex.refused(&floats(3), SEC).await;
}

#[tokio::test]
async fn case_r46_r47_what_may_have_been_processed_stays_paid() {
    let text = || "out of order".to_owned();
    for said in [
        SinkError::Told { status: 400, text: text(), wait_ns: None },
        SinkError::Told { status: 500, text: text(), wait_ns: None },
        SinkError::Failed { text: text() },
    ] {
        let bench = setup(0.0, 10).start();
        bench.says(Some(said));
        assert!(bench.push(&floats(8), SEC).await.is_err());
        bench.refused(&floats(3), SEC).await;
    }
}

#[tokio::test]
async fn case_r21_a_spammer_costs_the_broad_rule_what_the_narrow_one_let_through() {
    let mut setup = setup(0.0, 10);
    setup.limits.native_histogram_ingestion_rate = 1.0;
    setup.limits.native_histogram_ingestion_burst_size = 2;
    let bench = setup.start();
    let mut passed = 0;
    for number in 0..100 {
        passed += u32::from(bench.passes(&series(number, 0, 1), SEC).await);
    }
    assert_eq!(passed, 2);
    assert_eq!(bench.credits(SEC), 8.0);
}

#[tokio::test]
async fn instance_limits_refuse_before_anything_is_read_or_charged() {
    let mut setup = setup(0.0, 10);
    setup.config.instance_limits.max_ingestion_rate = 5.0;
    let bench = setup.start();
    assert!(bench.passes(&floats(6), SEC).await);
    bench.distributor.tick();
    let error = bench.push(b"no request at all", SEC).await.expect_err("over the rate");
    assert!(matches!(error, PushError::Overload(Overload::Rate { .. })), "{error}");
    assert_eq!(bench.credits(SEC), 4.0);
    bench.holds("freehold_distributor_requests_refused_total{limit=\"max_ingestion_rate\"} 1");
    bench.holds("cortex_distributor_instance_limits{limit=\"max_ingestion_rate\"} 5");
    bench.holds("cortex_distributor_ingestion_rate_samples_per_second 6");
}

#[tokio::test]
async fn the_strategy_is_the_defaults_and_its_text_names_both_numbers() {
    let mut setup = setup(2000.0, 10);
    setup.limits.ingestion_rate_strategy = IngestionRateStrategy::Global;
    let bench = setup.start();
    assert!(bench.passes(&floats(10), SEC).await);
    let text = bench.refused(&floats(1), SEC).await.text;
    let numbers = "(local limit: 0 global limit: 2000 actual local limit: 2000 burst: 10)";
    assert!(text.contains(numbers), "case C9: {text}");
}
