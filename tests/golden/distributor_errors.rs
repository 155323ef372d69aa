//! What ingesters' answers come to at a distributor: the fan-out's part of `errors.json`.
//!
//! Each case is placed on a ring of its size by the real batches, and its ingesters' answers go
//! through the real quorum, in every order: which ingesters fail, and when, must not matter.

use std::collections::BTreeSet;

use freehold::distributor::fan_out::FanOutError;
use freehold::keys::RingKey;
use freehold::labels::{LabelsBuf, ring_key};
use freehold::ring::model::{Instance, InstanceState, RingModel, Token};
use freehold::ring::{Batches, Failure, Member, Operation, Quorum, RingSettings, RingSnapshot};
use freehold::wire::write_request::WriteRequest;
use serde_json::{Value, json};

use crate::vectors::{array, base64, read, text};

/// Settings of a case that ask more than the fan-out.
const OTHER_ROOMS: [&str; 9] = [
    "inflight_before",
    "ingestion_burst_size",
    "ingestion_rate",
    "max_inflight_client_requests",
    "max_inflight_push_requests",
    "max_ingestion_rate",
    "native_histogram_ingestion_burst_size",
    "native_histogram_ingestion_rate",
    "rate_before",
];

/// Cases that are refused, in whole or in part, before anything is sent.
const REFUSED_BEFORE: [&str; 6] = [
    "duplicate label",
    "metadata without a name",
    "no tenant",
    "only an invalid series",
    "series without labels: whole request refused",
    "series without metric name: others are written",
];

#[test]
fn ingesters_answers_come_to_what_cortex_makes_of_them() {
    let vectors = read("errors");
    let mut refused_before = BTreeSet::new();
    let mut seen = 0;
    for case in array(&vectors, "distributor_push") {
        let name = text(case, "name");
        let setup = case["setup"].as_object().expect("a map");
        if setup.keys().any(|key| OTHER_ROOMS.contains(&key.as_str())) {
            continue;
        }
        if REFUSED_BEFORE.contains(&name) {
            refused_before.insert(name);
            continue;
        }
        seen += 1;
        for order in orders(number(setup.get("ingesters"), 3)) {
            check(case, &order);
        }
    }
    assert_eq!(refused_before, REFUSED_BEFORE.into(), "what is left out is in the vectors");
    assert!(seen >= 20, "{seen} cases");
}

/// The answers of a case come in this order; the first ingesters of it fail.
fn check(case: &Value, order: &[usize]) {
    let name = text(case, "name");
    let setup = &case["setup"];
    let failing = number(setup.get("failing"), 0);
    let ring = ring(order.len(), number(setup.get("replication_factor"), 3));
    for fail_first in [true, false] {
        let fails = |place: usize| {
            if fail_first { place < failing } else { place >= order.len() - failing }
        };
        let answer = |place: usize| match fails(place) {
            true => Err(failure(text(setup, "ingester_error"))),
            false => Ok(()),
        };
        let (outcome, by) = push(case, &ring, order, answer);
        let address = by.map_or(String::new(), |by| by.addr.to_string());
        let expect = |value: &Value| value.as_str().map(|text| text.replace("{ADDR}", &address));
        let Err(error) = outcome else {
            assert_eq!(case["error"], Value::Null, "{name}");
            continue;
        };
        let shown = match error.code() {
            Some(code) => format!("rpc error: code = Code({code}) desc = {error}"),
            None => error.to_string(),
        };
        assert_eq!(Some(shown), expect(&case["error"]), "{name}");
        assert_eq!(case["grpc_code"], json!(error.code().unwrap_or(2)), "{name}");
        assert_eq!(Some(error.to_string()), expect(&case["grpc_message"]), "{name}");
        let http = case["http"].as_object();
        assert_eq!(http.map(|http| http["code"].clone()), error.code().map(Value::from), "{name}");
        let body = http.and_then(|http| expect(&http["body"]));
        assert_eq!(body, error.code().map(|_| error.to_string()), "{name}");
    }
}

/// Pushes a case's request; with the verdict comes whose answer it fell with.
fn push<'a>(
    case: &Value,
    ring: &'a RingSnapshot,
    order: &[usize],
    answer: impl Fn(usize) -> Result<(), Failure>,
) -> (Result<(), FanOutError>, Option<&'a Member>) {
    let keys = keys(text(case, "tenant"), &base64(&case["request_b64"]));
    let place = ring.placement();
    let mut batches = Batches::default();
    if let Err(error) = batches.assign(&place, Operation::Write, keys.into_iter()) {
        return (Err(error.into()), None);
    }
    let mut quorum = Quorum::new(&batches);
    if quorum.is_empty() {
        return (Ok(()), None);
    }
    let members: Vec<_> =
        batches.iter().map(|batch| &place.members[batch.member().index()]).collect();
    for (place, &batch) in order.iter().enumerate() {
        if let Some(verdict) = quorum.record(batch, members[batch], answer(place)) {
            return (verdict.map_err(FanOutError::from), Some(members[batch]));
        }
    }
    panic!("no verdict after the last answer");
}

/// Ring keys of the series and metadata of a request.
fn keys(tenant: &str, body: &[u8]) -> Vec<RingKey> {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena).expect("small");
    let mut keys = Vec::new();
    while let Some(series) = request.next_series().expect("sound") {
        let labels = LabelsBuf::from_pairs(series.raw_labels(body));
        keys.push(ring_key(tenant, labels.as_labels()));
    }
    keys
}

fn failure(text: &str) -> Failure {
    let Some(rest) = text.strip_prefix("rpc error: code = ") else {
        return Failure { code: None, message: text.to_owned(), http: None };
    };
    let (code, message) = rest.split_once(" desc = ").expect("as Go prints it");
    let number = code.strip_prefix("Code(").and_then(|code| code.strip_suffix(')'));
    let code = match (number, code) {
        (Some(number), _) => number.parse().expect("a number"),
        (None, "Unavailable") => 14,
        (None, "ResourceExhausted") => 8,
        (None, other) => panic!("the vectors know a new code: {other}"),
    };
    let http = number.is_some().then_some(code as u16);
    Failure { code: Some(code), message: message.to_owned(), http }
}

fn ring(ingesters: usize, replication_factor: usize) -> RingSnapshot {
    let instance = |at: usize| {
        let tokens =
            (0..32_u32).map(|token| Token((at as u32 * 32 + token).wrapping_mul(0x9e37_79b9)));
        let instance = Instance {
            addr: format!("10.0.0.{at}:9095"),
            timestamp_s: 1_700_000_000,
            state: InstanceState::Active,
            tokens: tokens.collect(),
            zone: String::new(),
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        };
        (format!("ingester-{at}"), instance)
    };
    let model =
        RingModel { instances: (0..ingesters).map(instance).collect(), unknown_fields: Vec::new() };
    let settings = RingSettings {
        replication_factor,
        zone_awareness_enabled: false,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: None,
    };
    RingSnapshot::build(&model, 1_700_000_000_000, settings.into(), None)
}

fn number(value: Option<&Value>, default: usize) -> usize {
    value.map_or(default, |value| value.as_u64().expect("a number") as usize)
}

/// Every order of so many.
fn orders(len: usize) -> Vec<Vec<usize>> {
    if len == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in orders(len - 1) {
        for at in 0..len {
            let mut order = shorter.clone();
            order.insert(at, len - 1);
            all.push(order);
        }
    }
    all
}
