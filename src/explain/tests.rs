//! Explanations against the decisions they explain.

use proptest::prelude::*;
use prost::Message as _;

use super::walking::walked;
use super::*;
use crate::clock::Clock;
use crate::config::{Config, Target};
use crate::distributor::fan_out::FanOut;
use crate::distributor::ha::HaTracker;
use crate::distributor::{Peers, RingSink, ShardingStrategy, Sink};
use crate::ingester::config::IngesterConfig;
use crate::ingester::{Parts, Role};
use crate::keys::RingKey;
use crate::labels::{IDENTITY_SECRET_BYTES, IdentityHasher};
use crate::limits::{InstanceLimits, Limits};
use crate::ratelimit::RECHECK_PERIOD;
use crate::ring::model::{Instance, InstanceState, RingModel, RingReading, Token};
use crate::ring::{Operation, OwnView, Ring, RingSettings, RingSnapshot, ShardRule};
use crate::upstream::ingesters::Ingesters;
use crate::wire::proto::cortexpb;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, steady_ns: 1_000_000_000 };

#[derive(Clone, Debug)]
struct Shape {
    members: Vec<(Vec<u32>, u8, usize, bool)>,
    replicas: usize,
    zone_awareness: bool,
    extend: bool,
}

fn shape() -> impl Strategy<Value = Shape> {
    // Few tokens, so that some stand twice and keys meet them exactly.
    let tokens = prop::collection::vec(prop_oneof![0_u32..40, any::<u32>()], 0..12);
    let member = (tokens, 0_u8..4, 0_usize..InstanceState::ALL.len(), any::<bool>());
    (prop::collection::vec(member, 0..14), 1_usize..5, any::<bool>(), any::<bool>()).prop_map(
        |(members, replicas, zone_awareness, extend)| Shape {
            members,
            replicas,
            zone_awareness,
            extend,
        },
    )
}

fn snapshot(shape: &Shape) -> RingSnapshot {
    let member = |(at, (tokens, zone, state, is_fresh)): (usize, &(Vec<u32>, u8, usize, bool))| {
        let mut tokens: Vec<_> = tokens.iter().copied().map(Token).collect();
        tokens.sort_unstable();
        tokens.dedup();
        let instance = Instance {
            addr: format!("h{at}:1"),
            timestamp_s: if *is_fresh { NOW.unix_ms / 1000 } else { 1 },
            state: InstanceState::ALL[*state],
            tokens,
            zone: if *zone == 0 { String::new() } else { format!("z{zone}") },
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        };
        (format!("i-{at}"), instance)
    };
    let instances = shape.members.iter().enumerate().map(member).collect();
    let settings = RingSettings {
        replication_factor: shape.replicas,
        zone_awareness_enabled: shape.zone_awareness,
        heartbeat_timeout_ms: 60_000,
        extend_writes: shape.extend,
        own_id: Some("i-0".to_owned()),
    };
    let model = RingModel { instances, unknown_fields: Vec::new() };
    RingSnapshot::build(&model, NOW.unix_ms, settings.into(), None)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Two hundred rings with a hundred keys each, whole and in a tenant's part.
    #[test]
    fn the_walk_that_is_told_is_the_walk_that_places(
        shape in shape(),
        keys in prop::collection::vec(prop_oneof![0_u32..45, any::<u32>()], 100),
        size in 1_i64..6,
    ) {
        let ring = snapshot(&shape);
        let op = ring.settings().write_operation();
        let subring = ring.subring("t", size, ShardRule::Balanced);
        for key in keys.into_iter().map(RingKey) {
            let told = walked(&ring, &ring.placement(), key, op);
            let ids: Vec<&str> = told.set.iter().map(|holder| holder.id.as_str()).collect();
            let walk = ring.walk(key, op);
            let expected: Vec<&str> =
                walk.iter().map(|member| &*ring.members()[member.index()].id).collect();
            prop_assert_eq!(&ids, &expected);
            let taken: Vec<&str> = told
                .step
                .walk
                .iter()
                .filter(|row| row.is_taken)
                .map(|row| row.member.as_str())
                .collect();
            prop_assert!(ids.starts_with(&taken), "rows are the head of the walk");
            prop_assert!(told.step.walk_left_out > 0 || taken.len() == ids.len());
            let live: Vec<&str> = told
                .set
                .iter()
                .filter(|holder| holder.serves)
                .map(|holder| holder.address.as_str())
                .collect();
            if let Ok(set) = ring.get(key, op) {
                let addresses: Vec<&str> = set.members.iter().map(|one| &*one.addr).collect();
                prop_assert_eq!(live, addresses);
            }
            if let OwnView::Known(owned) = ring.own() {
                prop_assert_eq!(owned.keys.contains(key), told.is_ours);
            }
            if let Some(subring) = &subring {
                let told = walked(&ring, &subring.placement(), key, op);
                let walk = subring.walk(key, op);
                prop_assert_eq!(told.set.len(), walk.len());
                for (holder, member) in told.set.iter().zip(walk) {
                    if let Some(member) = member {
                        prop_assert_eq!(holder.id.as_str(), &*member.id);
                    }
                }
            }
        }
    }
}

/// An ingester that is one of three, each in a zone of its own, so that it owns everything.
fn explainer(limits: Limits, enforcement: bool) -> Explainer {
    let settings = RingSettings {
        replication_factor: 3,
        zone_awareness_enabled: true,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: Some("i-0".to_owned()),
    };
    let ring = Arc::new(Ring::new(settings, 600_000));
    let instance = |at: u32| {
        let instance = Instance {
            addr: format!("h{at}:1"),
            timestamp_s: NOW.unix_ms / 1000,
            state: InstanceState::Active,
            tokens: (0..8).map(|n| Token((at + n * 3).wrapping_mul(0x0aaa_aaab))).collect(),
            zone: format!("z{at}"),
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        };
        (format!("i-{at}"), instance)
    };
    let model = RingModel { instances: (0..3).map(instance).collect(), unknown_fields: vec![] };
    ring.publish(&RingReading::Whole(model), NOW.unix_ms);
    let overrides = Arc::new(Overrides::new(limits, InstanceLimits::default()));
    let config = IngesterConfig {
        owned_series_metrics_enabled: true,
        owned_series_limit_enforcement_enabled: enforcement,
        ..IngesterConfig::default()
    };
    let ingester = Ingester::new(Parts {
        config,
        role: Role {
            behind_distributors: true,
            shard_by_all_labels: true,
            shuffle_sharding: false,
            has_upstream: false,
        },
        ring,
        overrides: Arc::clone(&overrides),
        store: None,
        hasher: IdentityHasher::new([7; IDENTITY_SECRET_BYTES]),
    });
    ingester.note_ring_state(InstanceState::Active);
    ingester.run();
    Explainer::new(Some(Arc::new(ingester)), None, overrides, NameScheme::Legacy)
}

fn series(metric: &str, number: usize) -> (String, Vec<u8>) {
    let label = |name: &str, value: &str| cortexpb::LabelPair {
        name: name.to_owned().into(),
        value: value.to_owned().into(),
    };
    let series = cortexpb::TimeSeries {
        labels: vec![label("__name__", metric), label("n", &number.to_string())],
        samples: vec![cortexpb::Sample {
            value: 1.0,
            timestamp_ms: NOW.unix_ms,
            ..Default::default()
        }],
        ..Default::default()
    };
    let request =
        cortexpb::WriteRequest { timeseries: vec![series], ..Default::default() }.encode_to_vec();
    (format!("{metric}{{n=\"{number}\"}}"), request)
}

fn ask(explainer: &Explainer, tenant: &str, text: &str) -> Explanation {
    let asked = Asked { tenant, text, kind: Kind::Float };
    explainer.explain(asked, NOW).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Every push is explained before it is made, under limits that begin to refuse on the way.
#[test]
fn a_verdict_is_what_the_push_then_meets() {
    for enforcement in [false, true] {
        let limits = Limits {
            max_global_series_per_user: 14,
            max_global_series_per_metric: 5,
            ..Limits::default()
        };
        let explainer = explainer(limits, enforcement);
        let ingester = explainer.ingester.clone().expect("there is one");
        let tenant = TenantId::parse("t").expect("a tenant");
        let (mut admitted, mut refused) = (0, 0);
        // Half of them are one metric's, which meets its own limit before the tenant's; the
        // first ones come again at the end, when they are known.
        for number in (0..40).chain(0..4) {
            let (text, body) = match number % 2 {
                0 => series("a", number / 2),
                _ => series(["b", "c", "d", "e"][number / 2 % 4], number / 8),
            };
            let told = ask(&explainer, "t", &text);
            match ingester.push(&tenant, &body, NOW) {
                Ok(_) => {
                    admitted += 1;
                    assert_eq!(told.verdict, Verdict::Admitted, "{text}: {told:#?}");
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(told.verdict, Verdict::Refused, "{text}: {told:#?}");
                    assert_eq!(told.says, error.to_string(), "the very words of the sender");
                    // What the sender reads leads to the same place.
                    let again = ask(&explainer, "", &told.says);
                    assert_eq!(again.tenant, "t");
                    assert!(again.errors[0].id.starts_with("series-limit-"), "{again:#?}");
                    if again.errors[0].id == "series-limit-metric" {
                        assert_eq!(again.verdict, Verdict::Refused);
                        assert_eq!(again.series, told.series);
                    }
                }
            }
            let again = ask(&explainer, "t", &text);
            let is_known = again
                .steps
                .iter()
                .any(|step| step.id == "known" && step.outcome == Outcome::Passed);
            assert_eq!(is_known, told.verdict == Verdict::Admitted, "{text}");
        }
        assert!(admitted > 10 && refused > 5, "{admitted} admitted, {refused} refused");
    }
}

#[test]
fn asking_changes_nothing() {
    let explainer = explainer(Limits::default(), true);
    let ingester = explainer.ingester.clone().expect("there is one");
    for number in 0..50 {
        ask(&explainer, "t", &format!("up{{n=\"{number}\"}}"));
    }
    assert_eq!(ingester.tenants.len(), 0);
    assert_eq!(ingester.totals.count().in_memory, 0);
    assert_eq!(ingester.admission.in_flight_peak(), 0);
}

#[test]
fn the_steps_are_there_in_their_order() {
    let limits = Limits { max_global_series_per_user: 3, ..Limits::default() };
    let told = ask(&explainer(limits, true), "t", "up{job=\"a\"}");
    let ids: Vec<&str> = told.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "series",
            "validation",
            "ingester",
            "tenant",
            "ingester-rate",
            "labels",
            "ring-key",
            "walk",
            "ownership",
            "known",
            "limit-instance",
            "limit-tenant",
            "limit-metric",
        ]
    );
    let step = |id: &str| told.steps.iter().find(|step| step.id == id).expect("a step");
    let key = crate::labels::ring_key(
        "t",
        crate::labels::LabelsBuf::from_pairs([("__name__", "up"), ("job", "a")]).as_labels(),
    );
    assert_eq!(step("ring-key").facts[0].value, key.0.to_string());
    assert_eq!(step("walk").walk.iter().filter(|row| row.is_taken).count(), 3);
    assert!(step("walk").walk.iter().any(|row| row.is_own && row.is_taken));
    let from = step("limit-tenant").facts.iter().find(|fact| fact.name == "comes from");
    assert_eq!(from.expect("told").value, "3 for the cluster / 3 instances x 3 replicas");
}

#[test]
fn a_series_that_no_distributor_lets_through_is_refused_by_its_rule() {
    let explainer = explainer(Limits::default(), false);
    let check = |text: &str, expect: &str| {
        let told = ask(&explainer, "t", text);
        assert_eq!((told.verdict, told.says.as_str()), (Verdict::Refused, expect), "{text}");
        let again = ask(&explainer, "t", &told.says);
        assert_eq!(again.errors.len(), 1, "{again:#?}");
    };
    check("{job=\"a\"}", "sample missing metric name");
    check("{\"a b\"}", "sample invalid metric name: \"a b\"");
    check("up{\"a b\"=\"x\"}", "sample invalid label: \"a b\" metric \"up{a b=\\\"x\\\"}\"");
}

#[test]
fn a_line_of_a_log_is_explained_whatever_its_escapes() {
    let explainer = explainer(Limits::default(), false);
    let error = "user=team: err: out of order sample. timestamp=2023-11-14T22:13:19.999Z, \
                 series={__name__=\"up\", job=\"a\"}";
    let json = format!("{{\"level\":\"error\",\"err\":{}}}", serde_json::json!(error));
    let logfmt =
        format!("level=error err={:?}", format!("rpc error: code = Code(400) desc = {error}"));
    for line in [error.to_owned(), json, logfmt] {
        let told = ask(&explainer, "", &line);
        assert_eq!(told.errors[0].id, "sample-out-of-order", "{line}");
        assert_eq!(told.tenant, "team", "{line}");
        assert_eq!(told.series.as_deref(), Some("{__name__=\"up\", job=\"a\"}"), "{line}");
        assert_eq!(told.verdict, Verdict::Admitted);
    }
    let told = ask(&explainer, "", "forbidden");
    assert_eq!((told.verdict, told.errors[0].id.as_str()), (Verdict::Told, "front-door-denied"));
}

#[test]
fn questions_without_an_answer_say_what_is_missing() {
    let explainer = explainer(Limits::default(), false);
    let check = |tenant: &str, text: &str, expect: &str| {
        let asked = Asked { tenant, text, kind: Kind::Float };
        let error = explainer.explain(asked, NOW).expect_err(text).to_string();
        assert!(error.contains(expect), "{text:.40}: {error}");
    };
    check("", "", "paste a series");
    check("", "up", "name the tenant");
    check("a b", "up", "unsupported character");
    check("t", "nobody knows this", "docs/errors.md");
    check("t", "up{job=~\"a\"}", "write = in place of =~");
    check("t", &"x".repeat(TEXT_BYTES_MAX + 1), "more than 65536");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_question_panics(tenant in "\\PC{0,10}|t", text in "\\PC{0,300}|[{}\"'`=,\\\\a_0: ]{0,120}") {
        thread_local! {
            static EXPLAINER: Explainer = explainer(Limits::default(), true);
        }
        EXPLAINER.with(|explainer| {
            for kind in [Kind::Float, Kind::NativeHistogram] {
                let _ = explainer.explain(Asked { tenant: &tenant, text: &text, kind }, NOW);
            }
        });
    }
}

/// A gate that sends to the ingesters of a ring.
fn gate(shape: &Shape, limits: Limits, sharding: ShardingStrategy) -> (Explainer, Arc<Ring>) {
    let ring = snapshot(shape);
    let settings = RingSettings { own_id: None, ..RingSettings::clone(ring.settings()) };
    let members = ring.members().iter().enumerate().map(|(at, member)| {
        let tokens = ring.tokens_of(crate::ring::MemberIndex(at as u32)).to_vec();
        let instance = Instance {
            addr: member.addr.to_string(),
            timestamp_s: member.timestamp_s,
            state: member.state,
            tokens,
            zone: member.zone.to_string(),
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        };
        (member.id.to_string(), instance)
    });
    let model = RingModel { instances: members.collect(), unknown_fields: Vec::new() };
    let ring = Arc::new(Ring::new(settings, 600_000));
    ring.publish(&RingReading::Whole(model), NOW.unix_ms);
    let config = Config::for_target(Target::Distributor);
    let clients = Ingesters::new(&config.ingester_client, config.distributor.ingesters());
    let fan_out = FanOut::new(clients.expect("clients"), sharding, true);
    let overrides = Arc::new(Overrides::new(limits, InstanceLimits::default()));
    let distributor = Distributor::new(crate::distributor::Parts {
        config: config.distributor,
        names: NameScheme::Legacy,
        parity: false,
        overrides: Arc::clone(&overrides),
        peers: Peers::Alone,
        budgets: None,
        ha: HaTracker::off(),
        sink: Sink::Ring(RingSink { ring: Arc::clone(&ring), fan_out }),
        clock: Clock::start(),
        recheck_period: RECHECK_PERIOD,
    });
    (Explainer::new(None, Some(Arc::new(distributor)), overrides, NameScheme::Legacy), ring)
}

fn six() -> Shape {
    let member = |at: u32| {
        let tokens = (0..16).map(|n| (at * 16 + n).wrapping_mul(0x9e37_79b9)).collect();
        (tokens, (at % 3) as u8 + 1, InstanceState::Active as usize, true)
    };
    let members = (0..6).map(member).collect();
    Shape { members, replicas: 3, zone_awareness: true, extend: true }
}

#[tokio::test]
async fn a_gate_names_the_ingesters_that_get_the_series() {
    let limits = Limits { drop_labels: vec!["pod".to_owned()], ..Limits::default() };
    let (explainer, ring) = gate(&six(), limits, ShardingStrategy::Default);
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..40 {
        let told = ask(&explainer, "t", &format!("up{{n=\"{number}\", pod=\"p-{number}\"}}"));
        assert_eq!(told.verdict, Verdict::Admitted, "{told:#?}");
        let labels = [("__name__", "up".to_owned()), ("n", number.to_string())];
        let labels = crate::labels::LabelsBuf::from_pairs(labels);
        let key = crate::labels::ring_key("t", labels.as_labels());
        let set = ring.load().get(key, Operation::Write).map(|set| {
            set.members.iter().map(|member| member.addr.to_string()).collect::<Vec<_>>().join(", ")
        });
        let step = told.steps.last().expect("steps");
        assert_eq!(step.says, format!("it is sent to {}; 1 of them may fail", set.expect("three")));
        seen.insert(step.says.clone());
    }
    assert!(seen.len() > 1, "series are spread: {seen:?}");
}

#[tokio::test]
async fn a_gate_refuses_in_the_words_of_its_senders() {
    let refused = |shape: &Shape, limits: Limits, text: &str| {
        let (explainer, _) = gate(shape, limits, ShardingStrategy::Default);
        let told = ask(&explainer, "t", text);
        assert_eq!(told.verdict, Verdict::Refused, "{told:#?}");
        told.says
    };
    let says = refused(
        &six(),
        Limits { max_label_names_per_series: 1, ..Limits::default() },
        "up{a=\"b\"}",
    );
    assert_eq!(says, "series has too many labels (actual: 2, limit: 1) series: 'up{a=\"b\"}'");
    let no_burst = Limits { ingestion_burst_size: 0, ..Limits::default() };
    assert!(refused(&six(), no_burst, "up").contains("the burst is 0"));
    let mut dead = six();
    dead.members.iter_mut().for_each(|member| member.3 = false);
    let says = refused(&dead, Limits::default(), "up");
    assert!(says.starts_with("at least 2 live replicas required"), "{says}");
    let (explainer, _) = gate(&dead, Limits::default(), ShardingStrategy::Default);
    assert_eq!(ask(&explainer, "t", &says).errors[0].id, "too-few-live-replicas");
}

#[tokio::test]
async fn a_gate_walks_in_the_tenants_part_of_the_ring() {
    let limits = Limits { ingestion_tenant_shard_size: 3.0, ..Limits::default() };
    let (explainer, ring) = gate(&six(), limits, ShardingStrategy::ShuffleSharding);
    let part = ring.load().subring("t", 3, ShardRule::Balanced).expect("a part");
    let ids: Vec<&str> = part.members().iter().map(|member| &*member.id).collect();
    for number in 0..20 {
        let told = ask(&explainer, "t", &format!("up{{n=\"{number}\"}}"));
        let walk = told.steps.iter().find(|step| step.id == "walk").expect("a walk");
        assert!(!walk.walk.is_empty());
        for row in walk.walk.iter().filter(|row| row.is_taken) {
            assert!(ids.contains(&row.member.as_str()), "{row:?} is not of {ids:?}");
        }
    }
}

#[test]
fn a_process_without_writes_or_series_tells_errors_alone() {
    let overrides = Arc::new(Overrides::new(Limits::default(), InstanceLimits::default()));
    let explainer = Explainer::new(None, None, overrides, NameScheme::Legacy);
    assert_eq!(ask(&explainer, "t", "up").verdict, Verdict::Unknown);
    let told = ask(&explainer, "", "too many requests from this address");
    assert_eq!((told.verdict, told.errors[0].id.as_str()), (Verdict::Told, "front-door-address"));
}
