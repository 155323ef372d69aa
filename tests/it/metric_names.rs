//! The distributor's metrics against those that a Cortex distributor was seen to export.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use freehold::clock::Clock;
use freehold::distributor::{
    Distributor, DistributorConfig, Form, Parts, Peers, Received, RequestKind, Sink,
};
use freehold::exposition::Families;
use freehold::limits::{InstanceLimits, Limits, Overrides};
use freehold::tenant::TenantId;
use freehold::upstream::distributor::Passed;
use freehold::wire::proto::cortexpb;
use freehold::wire::remote_write::Version;
use prost::Message as _;

/// Families that are about a distributor's own work; the rest is the process', the ring's and the
/// KV store's, which have tests of their own.
const OURS: &[&str] = &[
    "cortex_discarded_",
    "cortex_distributor_",
    "cortex_ha_tracker_",
    "cortex_ingester_client_",
    "cortex_label",
];

struct Row {
    kind: String,
    labels: BTreeSet<String>,
    help: String,
}

/// Cortex's families by name.
fn recorded() -> BTreeMap<String, Row> {
    let dir = std::env::var_os("FREEHOLD_VECTORS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors"),
        PathBuf::from,
    );
    let text = std::fs::read_to_string(dir.join("cortex_metrics.txt")).expect("the list");
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [name, kind, labels, by, help] =
            line.splitn(5, " | ").collect::<Vec<_>>()[..].try_into().expect("five columns");
        if by.contains("distributor") && OURS.iter().any(|start| name.starts_with(start)) {
            let labels = labels.split(',').filter(|label| *label != "-");
            let row = Row {
                kind: kind.to_owned(),
                labels: labels.map(str::to_owned).collect(),
                help: help.to_owned(),
            };
            rows.insert(name.to_owned(), row);
        }
    }
    assert!(rows.len() > 20, "{}", rows.len());
    rows
}

/// What a distributor exports after a request of each kind, good and bad.
async fn exported() -> Vec<prometheus::proto::MetricFamily> {
    let limits = Limits { ingestion_rate: 0.0, ingestion_burst_size: 10, ..Limits::default() };
    let distributor = Distributor::new(Parts {
        config: DistributorConfig::default(),
        parity: false,
        overrides: Arc::new(Overrides::new(limits, InstanceLimits::default())),
        peers: Peers::Alone,
        budgets: None,
        ha: freehold::distributor::ha::HaTracker::off(),
        names: freehold::labels::NameScheme::Legacy,
        sink: Sink::Local(Arc::new(|_, _| Box::pin(async { Ok(()) }))),
        clock: Clock::start(),
        recheck_period: Duration::from_secs(10),
    });
    let label =
        |name: &str, value: &str| cortexpb::LabelPair { name: name.into(), value: value.into() };
    let one = cortexpb::TimeSeries {
        labels: vec![label("__name__", "m")],
        samples: vec![cortexpb::Sample { timestamp_ms: 5, ..Default::default() }],
        exemplars: vec![cortexpb::Exemplar {
            labels: vec![label("trace", "1")],
            timestamp_ms: 5,
            ..Default::default()
        }],
        ..Default::default()
    };
    let metadata =
        cortexpb::MetricMetadata { metric_family_name: "m".into(), ..Default::default() };
    for count in [1, 20] {
        let request = cortexpb::WriteRequest {
            timeseries: vec![one.clone(); count],
            metadata: vec![metadata.clone()],
            ..Default::default()
        };
        let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
        let write = Received {
            form: Form::RemoteWrite(Version::V1),
            body: body.expect("packs").into(),
            trail: Default::default(),
            client: None,
            passed: Passed::default(),
            room: None,
        };
        let tenant = TenantId::parse("a").expect("a tenant");
        distributor.came(RequestKind::V1);
        let _ = distributor.push(&tenant, write, Clock::start().now()).await;
    }
    let mut families = Families::default();
    distributor.read_metrics(&mut families);
    families.into_vec()
}

#[tokio::test]
async fn what_cortex_exports_is_exported_alike_or_listed_with_its_reason() {
    let recorded = recorded();
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/compatibility.md");
    let docs = std::fs::read_to_string(docs).expect("docs");
    let exported = exported().await;
    let mut wrong = Vec::new();
    for family in &exported {
        let Some(row) = recorded.get(family.name()) else {
            if !family.name().starts_with("freehold_") {
                wrong.push(format!("{}: Cortex has no such metric", family.name()));
            }
            continue;
        };
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        let labels: BTreeSet<String> = family.get_metric()[0]
            .get_label()
            .iter()
            .map(|label| label.name().to_owned())
            .collect();
        if (&kind, &labels, family.help()) != (&row.kind, &row.labels, row.help.as_str()) {
            wrong.push(format!("{}: {kind} {labels:?} {}", family.name(), family.help()));
        }
    }
    let names: BTreeSet<&str> = exported.iter().map(|family| family.name()).collect();
    for name in recorded.keys().filter(|name| !names.contains(name.as_str())) {
        if !docs.contains(&format!("`{name}`")) {
            wrong.push(format!("{name}: export it, or list it in docs/compatibility.md"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
