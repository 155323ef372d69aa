//! Limits of series and metadata: `limits.json`.

use freehold::limits::{
    ADMIN_LIMIT_MESSAGE, LabelSets, Limits, LocalLimit, LocalLimits, NO_LIMIT, Numbers, Refusal,
    RefusalKind, Shape,
};
use serde_json::{Value, json};

use crate::vectors::{array, labels, read, text};

#[test]
fn limits() {
    let vectors = read("limits");
    assert_eq!(number(&vectors, "max_int32"), NO_LIMIT);
    for (i, case) in array(&vectors, "grid").iter().enumerate() {
        let local = local_limits(case);
        for (kind, actual) in case["actual_local"].as_object().expect("limits by kind") {
            assert_eq!(Some(by_kind(&local, kind).0), actual.as_i64(), "grid {i}, {kind}: {case}");
        }
    }
    for (i, case) in array(&vectors, "asserts").iter().enumerate() {
        let kind = text(case, "kind");
        let current = number(case, "current") as u64;
        let reached = by_kind(&local_limits(case), kind).is_reached_by(current);
        let error = reached.then(|| refusal_kind(kind, &"", "").to_string());
        assert_eq!(error.as_deref(), case["error"].as_str(), "assert {i}: {case}");
    }
    for (i, case) in array(&vectors, "error_texts").iter().enumerate() {
        check_texts(case, &format!("error text {i}: {case}"));
    }
    for (i, case) in array(&vectors, "per_label_set").iter().enumerate() {
        check_label_sets(case, &format!("per label set {i}"));
    }
}

fn check_texts(case: &Value, context: &str) {
    let kind = text(case, "kind").strip_prefix("max_").expect("kind of a limit");
    let series = labels(case, "labels");
    let metric = series.iter().find(|(name, _)| name == b"__name__");
    let metric = metric.map_or("", |(_, value)| std::str::from_utf8(value).expect("UTF-8"));
    let (set_id, numbers) = match case.get("labelset") {
        Some(set) => {
            let actual_local = LocalLimit(number(set, "actual_local_limit"));
            (
                text(set, "id"),
                Numbers { local: 0, global: number(set, "global_limit"), actual_local },
            )
        }
        None => {
            let limits = &case["limits"];
            let numbers = Numbers {
                local: number(limits, &format!("max_{kind}")),
                global: number(limits, &format!("max_global_{kind}")),
                actual_local: by_kind(&local_limits(case), kind),
            };
            ("", numbers)
        }
    };
    let admin_message = text(case, "admin_limit_message");
    assert_eq!(admin_message, ADMIN_LIMIT_MESSAGE, "{context}");
    let kind = refusal_kind(kind, &metric, set_id);
    let refusal = Refusal { kind, numbers, admin_message, counts: None };
    assert_eq!(kind.error_type(), text(case, "error_type"), "{context}");
    assert_eq!(refusal.to_string(), text(case, "format_error"), "{context}");
    // The series is given by whoever prints labels; here it is what Cortex put there.
    let series = text(case, "validation_error").split_once(" for series ");
    let series = series.map_or("", |(_, series)| series);
    let body = format!("user={}: {}", text(case, "user"), refusal.text(&series));
    assert_eq!(body, text(case, "with_user"), "{context}");
    assert_eq!(
        body.split_once(": ").map(|(_, rest)| rest),
        Some(text(case, "validation_error")),
        "{context}"
    );
}

fn check_label_sets(case: &Value, context: &str) {
    let configured = &case["limits_per_label_set"];
    let sets = match serde_json::from_value::<LabelSets>(configured.clone()) {
        Ok(sets) => sets,
        Err(error) => {
            assert_eq!(case["load_error"].as_str(), Some(&*error.to_string()), "{context}");
            return;
        }
    };
    assert!(case.get("load_error").is_none(), "{context}: should not load");
    let loaded: Vec<Value> = sets
        .iter()
        .map(|set| json!({ "id": set.id, "hash": set.hash, "max_series": set.max_series }))
        .collect();
    assert_eq!(loaded, array(case, "loaded"), "{context}");

    let limits = Limits { limits_per_label_set: sets.clone(), ..Limits::default() };
    let local = LocalLimits::new(&limits, &shape(&case["config"]));
    let mut matched = Vec::new();
    for series in array(case, "series") {
        let context = format!("{context}, series {series}");
        let labels = labels(series, "labels");
        let label = |name: &[u8]| {
            let found = labels.iter().find(|(known, _)| known == name);
            found.map_or(&b""[..], |(_, value)| value)
        };
        sets.matches(label, &mut matched);
        let set = |index: u16| sets.get(index).expect("a matched set exists");
        let ids: Vec<&str> = matched.iter().map(|&index| &*set(index).id).collect();
        assert_eq!(json!(ids), series["matched"], "{context}");

        let current = |index: u16| {
            let of_set = |count: &&Value| text(count, "id") == set(index).id;
            let count = array(series, "current").iter().find(of_set).expect("a count per match");
            number(count, "current") as u64
        };
        let limit = |index: u16| local.label_sets[usize::from(index)];
        let reached = matched.iter().find(|index| limit(**index).is_reached_by(current(**index)));
        let exceeded = reached.map(|&index| {
            let actual_local = limit(index);
            let global = set(index).max_series;
            let id = &set(index).id;
            let refusal = Refusal {
                kind: RefusalKind::SeriesPerLabelSet { id },
                numbers: Numbers { local: 0, global, actual_local },
                admin_message: ADMIN_LIMIT_MESSAGE,
                counts: None,
            };
            json!({
                "id": id,
                "actual_local_limit": actual_local.0,
                "global_limit": global,
                "text": refusal.to_string(),
            })
        });
        assert_eq!(exceeded.unwrap_or(Value::Null), series["exceeded"], "{context}");
    }
}

fn local_limits(case: &Value) -> LocalLimits {
    let limits: Limits = serde_json::from_value(case["limits"].clone()).expect("limits by name");
    LocalLimits::new(&limits, &shape(&case["config"]))
}

fn shape(config: &Value) -> Shape {
    let count = |field| usize::try_from(number(config, field)).expect("count");
    let flag = |field: &str| config[field].as_bool().expect("flag");
    let shuffle_sharding = text(config, "sharding_strategy") == "shuffle-sharding";
    let shard_size = config["ingestion_tenant_shard_size"].as_f64().expect("shard size");
    Shape {
        healthy_instances: count("healthy_instances"),
        zones_count: count("zones"),
        zone_awareness: flag("zone_awareness_enabled"),
        replication_factor: count("replication_factor"),
        shard_by_all_labels: flag("shard_by_all_labels"),
        shard_size: if shuffle_sharding { shard_size } else { 0.0 },
        share: None,
    }
}

fn by_kind(local: &LocalLimits, kind: &str) -> LocalLimit {
    match kind {
        "series_per_user" => local.series,
        "series_per_metric" => local.series_per_metric,
        "native_histogram_series_per_user" => local.native_histogram_series,
        "metadata_per_user" => local.metadata,
        "metadata_per_metric" => local.metadata_per_metric,
        other => panic!("unknown kind {other}"),
    }
}

fn refusal_kind<'a>(kind: &str, metric: &'a dyn std::fmt::Display, id: &'a str) -> RefusalKind<'a> {
    match kind {
        "series_per_user" => RefusalKind::SeriesPerUser,
        "series_per_metric" => RefusalKind::SeriesPerMetric { metric },
        "native_histogram_series_per_user" => RefusalKind::NativeHistogramSeriesPerUser,
        "metadata_per_user" => RefusalKind::MetadataPerUser,
        "metadata_per_metric" => RefusalKind::MetadataPerMetric { metric },
        "series_per_labelset" => RefusalKind::SeriesPerLabelSet { id },
        other => panic!("unknown kind {other}"),
    }
}

fn number(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or_else(|| panic!("{field} is no number in {value:.80}"))
}
