//! The large process whose pages are measured: its ring, its tenants, and who sends to it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use freehold::app::App;
use freehold::config::Config;
use freehold::front_door::networks::Network;
use freehold::keys::{KeySet, RingKey};
use freehold::labels::{fnv1_32, ring_key_of_tenant};
use freehold::ring::OwnView;
use freehold::ring::config::KvStoreKind;
use freehold::ring::model::{Instance, InstanceState, RingModel, Token};
use freehold::tenant::TenantId;
use freehold::units::Millis;
use freehold::wire::proto::cortexpb;
use freehold::wire::ring_desc;
use prost::Message as _;

use super::shared::{self, Numbers};
use super::{PATIENCE, PUSH_SERIES, ask};

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
pub const OWN_ID: &str = "ingester-001";
/// The tenant that pushes.
pub const BUSY: &str = "busy";
/// The tenant whose clients have budgets.
pub const SHARED: &str = "shared";
/// Of the cluster, for each tenant: five series here, and tenants have one to five.
pub const LIMIT_HERE: u64 = 5;

pub struct Scale {
    pub tenants: u64,
    pub members: u64,
    pub tokens: u64,
    pub clients: u64,
    /// Requests of 1000 series each that the pushing thread has.
    pub bodies: u64,
    /// Pairs of a round without the operator and one with them.
    pub rounds: usize,
    pub round: Duration,
    pub fetches: usize,
    /// Whether to wait until slopes are known, two minutes after the start.
    pub waits: bool,
}

pub fn config(scale: &Scale, dir: &Path) -> Config {
    let mut config = Config::default();
    let server = &mut config.server;
    server.http_listen_address = "127.0.0.1".into();
    server.grpc_listen_address = "127.0.0.1".into();
    (server.http_listen_port, server.grpc_listen_port) = (0, 0);
    config.admin.http_listen_address = "127.0.0.1:0".into();
    config.store.enabled = false;

    let lifecycler = &mut config.ingester.lifecycler;
    lifecycler.id = OWN_ID.into();
    lifecycler.ring.replication_factor = ZONES.len();
    lifecycler.ring.zone_awareness_enabled = true;
    lifecycler.ring.heartbeat_timeout = Millis::from_secs(24 * 3600);
    lifecycler.ring.kvstore.store = KvStoreKind::File;
    lifecycler.ring.kvstore.file.path = dir.join("ring");
    std::fs::write(dir.join("ring"), ring_of(scale)).expect("written");
    config.ingester.owned_series_metrics_enabled = true;
    config.ingester.owned_series_limit_enforcement_enabled = true;
    // A tenant's default rate is far below what is measured here.
    config.limits.ingestion_rate = 1e12;
    config.limits.ingestion_burst_size = 1 << 40;
    config.limits.max_series_per_user = 0;
    config.limits.max_series_per_metric = 0;
    config.limits.max_global_series_per_user =
        (LIMIT_HERE * scale.members / ZONES.len() as u64) as i64;
    let runtime_file = dir.join("runtime.yaml");
    let overrides = format!("overrides: {{{BUSY}: {{max_global_series_per_user: 100000000}}}}\n");
    std::fs::write(&runtime_file, overrides).expect("written");
    config.runtime_config.file = runtime_file.display().to_string();

    // Who pushes over HTTP is a client, by an address of its own.
    config.client_identity.enabled = true;
    config.limits.client_identity_ingestion_rate_limit = 1000.0;
    config.limits.client_identity_ingestion_burst_size = 100_000;
    for ring in [&mut config.distributor.ring, &mut config.frontend.ring] {
        ring.kvstore.store = KvStoreKind::InMemory;
        ring.instance_addr = "127.0.0.1".into();
    }
    config.front_door.trusted_proxies = vec![Network::parse("127.0.0.1").expect("a network")];
    config.front_door.write.failures_per_minute = 60;
    config.front_door.write.requests_per_address_per_minute = 6000;
    config.front_door.write.requests_per_credential_per_minute = 6000;
    config.validate().expect("a good configuration");
    config
}

/// The ring as its store has it.
fn ring_of(scale: &Scale) -> Vec<u8> {
    let mut numbers = Numbers::new(17);
    let now_s = now_ms() / 1000;
    let instances = (0..scale.members).map(|number| {
        let mut tokens: Vec<_> = (0..scale.tokens).map(|_| Token(numbers.next() as u32)).collect();
        tokens.sort_unstable();
        tokens.dedup();
        let instance = Instance {
            addr: format!("10.1.{}.{}:9095", number / 250, number % 250),
            timestamp_s: now_s,
            state: InstanceState::Active,
            tokens,
            zone: ZONES[number as usize % ZONES.len()].to_owned(),
            registered_timestamp_s: now_s - 86_400,
            unknown_fields: Vec::new(),
        };
        (format!("ingester-{number:03}"), instance)
    });
    let model = RingModel { instances: instances.collect(), unknown_fields: Vec::new() };
    ring_desc::encode(&model).expect("small enough")
}

/// The keys that the ring gives us, once it has been read and pushes are taken.
pub fn own_keys(app: &App) -> Arc<KeySet> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let OwnView::Known(owned) = app.ring.load().own() {
            let keys = Arc::clone(&owned.keys);
            if push(app, BUSY, &request([owned_series(&keys, BUSY, 0)])).is_ok() {
                return keys;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no ring, or no pushes");
}

pub fn push(app: &App, tenant: &str, body: &[u8]) -> Result<(), String> {
    let id = TenantId::parse(tenant).expect("a tenant");
    let pushed = app.ingester.push(&id, body, app.clock.now());
    pushed.map(drop).map_err(|error| error.to_string())
}

pub fn name_of(tenant: u64) -> String {
    format!("tenant-{tenant:06}")
}

/// Labels of the series with this number, the last value such that the ring gives it to us.
pub fn owned_labels(keys: &KeySet, tenant: &str, number: u64) -> Vec<(String, String)> {
    let mut labels = shared::labels(number);
    let (last, before) = labels.split_last_mut().expect("ten labels");
    let hash = before.iter().fold(ring_key_of_tenant(tenant).0, |hash, (name, value)| {
        fnv1_32(fnv1_32(hash, name.as_bytes()), value.as_bytes())
    });
    let hash = fnv1_32(hash, last.0.as_bytes());
    let start = last.1[..10].to_owned();
    let mut found = (0u64..).map(|attempt| format!("{start}{attempt:010}"));
    let is_ours = |value: &String| keys.contains(RingKey(fnv1_32(hash, value.as_bytes())));
    last.1 = found.find(is_ours).expect("some key is ours");
    labels
}

fn owned_series(keys: &KeySet, tenant: &str, number: u64) -> cortexpb::TimeSeries {
    let pair = |(name, value): (String, String)| cortexpb::LabelPair {
        name: name.into(),
        value: value.into(),
    };
    let labels = owned_labels(keys, tenant, number).into_iter().map(pair).collect();
    let sample = cortexpb::Sample { value: 1.0, timestamp_ms: now_ms(), start_timestamp_ms: 0 };
    cortexpb::TimeSeries { labels, samples: vec![sample], ..Default::default() }
}

fn request(series: impl IntoIterator<Item = cortexpb::TimeSeries>) -> Vec<u8> {
    let timeseries = series.into_iter().collect();
    cortexpb::WriteRequest { timeseries, ..Default::default() }.encode_to_vec()
}

/// Every tenant with one series up to as many as it may have; some are refused one more.
pub fn fill(app: &App, keys: &KeySet, scale: &Scale) {
    for tenant in 0..scale.tenants {
        let name = name_of(tenant);
        let series = (0..=tenant % LIMIT_HERE).map(|number| owned_series(keys, &name, number));
        push(app, &name, &request(series)).expect("within the limit");
    }
    be_refused(app, keys, scale);
}

/// Every fiftieth tenant has a series refused.
pub fn be_refused(app: &App, keys: &KeySet, scale: &Scale) {
    for tenant in (LIMIT_HERE - 1..scale.tenants).step_by(50) {
        let name = name_of(tenant);
        let one_more = request([owned_series(keys, &name, 1000)]);
        push(app, &name, &one_more).expect_err("above the limit");
    }
}

pub fn bodies_of_busy(keys: &KeySet, scale: &Scale) -> Vec<Vec<u8>> {
    let body = |at: u64| {
        let numbers = at * PUSH_SERIES..(at + 1) * PUSH_SERIES;
        request(numbers.map(|number| owned_series(keys, BUSY, number)))
    };
    (0..scale.bodies).map(body).collect()
}

/// One write of each client over HTTP, each from an address and with a credential of its own.
pub fn send_by_clients(app: &App, scale: &Scale) {
    let body = shared::request([1], now_ms());
    let body = snap::raw::Encoder::new().compress_vec(&body).expect("packs");
    for client in 0..scale.clients {
        let head = format!(
            "POST /api/v1/push HTTP/1.1\r\nContent-Type: application/x-protobuf\r\n\
             Content-Encoding: snappy\r\nX-Scope-OrgID: {SHARED}\r\nX-Scope-ClientID: c-{client}\r\n\
             X-Forwarded-For: 198.18.{}.{}\r\nAuthorization: Bearer t-{client:032}\r\n\
             Content-Length: {}\r\n",
            client / 250,
            client % 250,
            body.len()
        );
        let answer = ask(app.http_address, &head, &body);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("in range")
}
