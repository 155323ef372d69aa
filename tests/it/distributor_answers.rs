//! Pushes to a real Cortex distributor, made again to ours: status and body of the push handler.
//!
//! The cases are those of limits and of whole requests. What ingesters answer, and how many of
//! them have to, is the business of a ring of ingesters.

use std::sync::Arc;
use std::time::Duration;

use freehold::clock::{Clock, Now};
use freehold::distributor::{Distributor, DistributorConfig, Form, Parts, Peers, Received, Sink};
use freehold::limits::{InstanceLimits, Limits, Overrides};
use freehold::server::status::remote_write_answer;
use freehold::tenant::TenantId;
use freehold::upstream::distributor::Passed;
use freehold::wire::proto::cortexpb;
use freehold::wire::remote_write::Version;
use freehold::wire::write_request::check;
use futures_util::FutureExt as _;
use prost::Message as _;
use serde_json::Value;

use super::vectors;

/// Cases that speak of ingesters, or of a request that never becomes a push.
fn is_elsewhere(case: &Value) -> bool {
    let setup = &case["setup"];
    let of_ingesters = ["ingesters", "failing", "max_inflight_client_requests"];
    of_ingesters.iter().any(|key| !setup[key].is_null()) || case["name"] == "no tenant"
}

fn distributor(setup: &Value) -> Distributor {
    let number = |key: &str| setup[key].as_u64().unwrap_or(0);
    let mut config = DistributorConfig::default();
    config.instance_limits.max_inflight_push_requests = number("max_inflight_push_requests");
    config.instance_limits.max_ingestion_rate = number("max_ingestion_rate") as f64;
    let overrides = Overrides::new(Limits::default(), InstanceLimits::default());
    let limits = setup.as_object().expect("a setup").iter();
    let limits = limits.filter(|(name, _)| name.contains("ingestion_") && !name.contains("max_"));
    let limits: serde_json::Map<_, _> =
        limits.map(|(name, value)| (name.clone(), value.clone())).collect();
    let file = serde_json::json!({ "overrides": { "tenant-1": limits } });
    overrides.publish(overrides.parse(&file.to_string()).expect("limits"));
    Distributor::new(Parts {
        config,
        parity: true,
        overrides: Arc::new(overrides),
        peers: Peers::Alone,
        budgets: None,
        ha: freehold::distributor::ha::HaTracker::off(),
        names: freehold::labels::NameScheme::Legacy,
        sink: Sink::Local(Arc::new(|tenant, _| {
            Box::pin(async move {
                if tenant.as_str() == "held" {
                    std::future::pending::<()>().await;
                }
                Ok(())
            })
        })),
        clock: Clock::start(),
        recheck_period: Duration::from_secs(10),
    })
}

fn write(body: &[u8]) -> Received {
    Received {
        form: Form::RemoteWrite(Version::V1),
        body: snap::raw::Encoder::new().compress_vec(body).expect("packs").into(),
        trail: Default::default(),
        client: None,
        passed: Passed::default(),
        room: None,
    }
}

fn samples(count: usize) -> Vec<u8> {
    let name = cortexpb::LabelPair { name: "__name__".into(), value: "m".into() };
    let series = cortexpb::TimeSeries {
        labels: vec![name],
        samples: vec![cortexpb::Sample { timestamp_ms: 5, ..Default::default() }; count],
        ..Default::default()
    };
    cortexpb::WriteRequest { timeseries: vec![series], ..Default::default() }.encode_to_vec()
}

#[tokio::test]
async fn limits_and_whole_requests_are_answered_as_by_cortexs_distributor() {
    let file = vectors::read("errors");
    let tenant = |name: &str| TenantId::parse(name).expect("a tenant");
    let mut seen = 0;
    let cases = vectors::array(&file, "distributor_push").iter();
    for case in cases.filter(|case| !is_elsewhere(case)) {
        let (name, setup) = (vectors::text(case, "name"), &case["setup"]);
        let distributor = distributor(setup);
        let count = |key: &str| setup[key].as_u64().unwrap_or(0) as usize;
        let body = vectors::base64(&case["request_b64"]);
        // Samples are of the time of the recording, if there are any.
        let newest_ms = check(&body).map_or(0, |summary| summary.newest_ms);
        let now = Now { unix_ms: newest_ms.max(1_700_000_000_000), steady_ns: 1_000_000_000 };
        let (held, other) = (tenant("held"), tenant("other"));
        let mut in_flight: Vec<_> = (0..count("inflight_before"))
            .map(|_| Box::pin(distributor.push(&held, write(&samples(1)), now)))
            .collect();
        for push in &mut in_flight {
            assert!(push.now_or_never().is_none(), "it waits for its sink");
        }
        if count("rate_before") > 0 {
            let pushed = distributor.push(&other, write(&samples(count("rate_before"))), now).await;
            assert!(pushed.is_ok());
            distributor.tick();
        }
        let tenant = tenant(vectors::text(case, "tenant"));
        let outcome = distributor.push(&tenant, write(&body), now).await;
        let response = remote_write_answer(Version::V1, outcome);
        let status = u64::from(response.status().as_u16());
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        let body = String::from_utf8_lossy(&body).into_owned();
        let expect = &case["push_handler"];
        let is_same = (Some(status), Some(body.as_str()))
            == (expect["status"].as_u64(), expect["body"].as_str());
        assert!(is_same, "{name} {setup}: {status} {body}, not {expect}");
        seen += 1;
    }
    assert!(seen >= 15, "{seen}");
}
