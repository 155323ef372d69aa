//! Ring keys and label hashes as Cortex computes them.

use freehold::keys::RingKey;
use freehold::labels::{
    LabelsBuf, METRIC_NAME, Placement, prepare, ring_key, ring_key_of_metric, ring_key_of_tenant,
};
use serde_json::Value;

use crate::vectors;

#[test]
fn tokens_are_cortex_tokens() {
    let file = vectors::read("tokens");
    let series = vectors::array(&file, "series");
    let metadata = vectors::array(&file, "metadata");
    series.iter().for_each(check_series);
    metadata.iter().for_each(check_metadata);
    assert!(!series.is_empty() && !metadata.is_empty());
}

fn check_series(case: &Value) {
    let tenant = vectors::text(case, "tenant");
    let received = vectors::labels(case, "labels");
    let mut prepared = received.clone();
    prepare(&mut prepared);
    let same = case["prepared_labels"].is_null() && case["prepared_labels_b64"].is_null();
    let expect = if same { received.clone() } else { vectors::labels(case, "prepared_labels") };
    assert_eq!(prepared, expect, "{case}");

    let received_labels = LabelsBuf::from_pairs(received.iter().cloned());
    let labels = LabelsBuf::from_pairs(prepared);
    let labels = labels.as_labels();
    let check = |key: RingKey, field: &str| {
        assert_eq!(Some(u64::from(key.0)), case[field].as_u64(), "{field} of {case}");
    };
    check(ring_key_of_tenant(tenant), "shard_by_user");
    check(ring_key(tenant, received_labels.as_labels()), "shard_by_all_labels");
    check(ring_key(tenant, labels), "shard_by_all_labels_prepared");
    assert_eq!(Some(labels.hash64()), case["labels_hash"].as_u64(), "{case}");

    match received.iter().find(|(name, _)| name == METRIC_NAME) {
        Some((_, metric)) => {
            check(ring_key_of_metric(tenant, metric), "shard_by_metric_name");
            let key = |placement: Placement| placement.metadata_ring_key(tenant, metric);
            check(key(Placement::ByAllLabels), "token_for_metadata_all_labels");
            check(key(Placement::ByMetric), "token_for_metadata_default");
        }
        None => assert!(case["shard_by_metric_name"].is_null(), "{case}"),
    }
    for (placement, field) in [
        (Placement::ByAllLabels, "token_for_labels_all_labels"),
        (Placement::ByMetric, "token_for_labels_default"),
    ] {
        match placement.ring_key(tenant, labels) {
            Ok(key) => check(key, field),
            Err(error) => {
                assert!(case[field].is_null(), "{case}");
                assert_eq!(error.to_string(), vectors::text(case, "token_for_labels_error"));
            }
        }
    }
}

fn check_metadata(case: &Value) {
    let (tenant, metric) = (vectors::text(case, "tenant"), vectors::text(case, "metric"));
    for (placement, field) in
        [(Placement::ByAllLabels, "all_labels"), (Placement::ByMetric, "default")]
    {
        let key = placement.metadata_ring_key(tenant, metric.as_bytes());
        assert_eq!(Some(u64::from(key.0)), case[field].as_u64(), "{field} of {case}");
    }
}
