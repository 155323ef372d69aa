//! The tenants' pages of a whole process, and what their history makes of a ring that grows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use freehold::app::App;
use freehold::clock::Now;
use freehold::config::Config;
use freehold::ingester::Ingester;
use freehold::ingester::history::ToLimit;
use freehold::ingester::listing::{TenantOrder, Wanted};
use freehold::ingester::recounts::RecountReason;
use freehold::ingester::views::TenantView;
use freehold::ingester::what_if::{Asked, WhatIf};
use freehold::limits::LabelSets;
use freehold::ring::model::InstanceState;
use freehold::wire::proto::cortexpb;
use prost::Message as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::cluster::{Cluster, Setup, tenant};

const PATIENCE: Duration = Duration::from_secs(30);
const SECOND_NS: i64 = 1_000_000_000;

struct Running {
    app: App,
    _dir: tempfile::TempDir,
}

struct Answer {
    status: u16,
    body: String,
}

impl Running {
    /// Everything in one process on free ports.
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.server.http_listen_address = "127.0.0.1".into();
        config.server.http_listen_port = 0;
        config.admin.http_listen_address = "127.0.0.1:0".into();
        config.server.grpc_listen_address = "127.0.0.1".into();
        config.server.grpc_listen_port = 0;
        config.store.path = dir.path().join("data");
        config.ingester.lifecycler.num_tokens = 8;
        config.limits.max_series_per_user = 0;
        change(&mut config);
        let app = App::start(config).await.expect("start");
        Self { app, _dir: dir }
    }

    async fn get(&self, path: &str, accept: &str) -> Answer {
        let pages = self.app.admin_address.expect("pages are on");
        let exchange = async {
            let mut stream = TcpStream::connect(pages).await.expect("connect");
            let request = format!(
                "GET {path} HTTP/1.1\r\nAccept: {accept}\r\nHost: localhost\r\n\
                 Connection: close\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.expect("write");
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("text");
            text
        };
        let text = tokio::time::timeout(PATIENCE, exchange).await.expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        Answer { status, body: body.to_owned() }
    }

    async fn html(&self, path: &str) -> String {
        let answer = self.get(path, "text/html").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(answer.body.contains("</html>") && !answer.body.contains("style=\""), "{path}");
        answer.body
    }

    async fn json(&self, path: &str) -> Value {
        let answer = self.get(path, "application/json").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// Waits until our state in the ring lets tenants in.
    async fn becomes_active(&self) {
        let asking = async {
            while self.json("/ring").await["shards"][0]["state"] != "ACTIVE" {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("ACTIVE");
        let pushing = async {
            while self.push("first", "m", 0..1).is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, pushing).await.expect("tenants are let in");
    }

    /// Pushes these series of a metric. The text of a refusal, if there is one.
    fn push(
        &self,
        id: &str,
        metric: &str,
        numbers: impl IntoIterator<Item = u32>,
    ) -> Result<(), String> {
        let now = self.app.clock.now();
        let pair = |name: &str, value: &str| cortexpb::LabelPair {
            name: name.to_owned().into(),
            value: value.to_owned().into(),
        };
        let timeseries = numbers.into_iter().map(|number| cortexpb::TimeSeries {
            labels: vec![pair("__name__", metric), pair("n", &number.to_string())],
            samples: vec![cortexpb::Sample {
                value: 1.0,
                timestamp_ms: now.unix_ms,
                start_timestamp_ms: 0,
            }],
            ..Default::default()
        });
        let request =
            cortexpb::WriteRequest { timeseries: timeseries.collect(), ..Default::default() };
        let pushed = self.app.ingester.push(&tenant(id), &request.encode_to_vec(), now);
        pushed.map(drop).map_err(|error| error.to_string())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_grows_to_its_limit_is_told_about_on_its_page() {
    // One instance of one replica: the cluster's limit is the one here.
    let running = Running::start(|config| config.limits.max_global_series_per_user = 30).await;
    running.becomes_active().await;
    running.push("alpha", "up", 0..4).expect("taken");
    running.push("alpha", "requests_total", 0..2).expect("taken");
    let page = running.json("/tenants/tenant?id=alpha").await;
    let row = &page["here"]["row"];
    assert_eq!((&row["owned"], &row["limit"]), (&6.into(), &30.into()), "{row}");
    assert_eq!((&row["headroom"], &row["used_percent"]), (&24.into(), &20.0.into()));
    assert_eq!(row["time_to_limit"]["state"], "unknown");
    let metrics = &page["here"]["metrics"];
    assert_eq!((&metrics["total"], &metrics["limit"]), (&2.into(), &50_000.into()));
    assert_eq!(metrics["largest"][0]["metric"], "up");
    assert_eq!(metrics["largest"][0]["owned"], 4);
    assert_eq!(page["here"]["refused"], serde_json::json!([]));

    let asked = running.json("/tenants/tenant?id=alpha&global_limit=6&instances=").await;
    let answer = &asked["here"]["what_if"]["answer"];
    assert_eq!((&answer["limit"], &answer["owned"]["refused"]), (&6.into(), &true.into()));
    let asked = running.json("/tenants/tenant?id=alpha&global_limit=30&instances=3").await;
    let answer = &asked["here"]["what_if"]["answer"];
    assert_eq!((&answer["limit"], &answer["owned"]["refused"]), (&10.into(), &false.into()));

    let refusal = running.push("alpha", "up", 0..40).expect_err("beyond the limit");
    assert!(refusal.contains("per-user series limit of 30 exceeded"), "{refusal}");
    let page = running.json("/tenants/tenant?id=alpha").await;
    assert_eq!(page["here"]["row"]["time_to_limit"]["state"], "reached");
    let refused = &page["here"]["refused"][0];
    assert_eq!(
        (&refused["what"], &refused["reason"], &refused["total"]),
        (&"samples".into(), &"per_user_series_limit".into(), &12.into())
    );
    let series = &page["here"]["local_limits"][0];
    assert_eq!((&series["used"], &series["headroom"]), (&30.into(), &0.into()));

    let html = running.html("/tenants/tenant?id=alpha&global_limit=36").await;
    for text in ["requests_total", "per_user_series_limit", "the limit here would be", "36 series"]
    {
        assert!(html.contains(text), "{text}");
    }
    let list = running.json("/tenants?sort=time_to_limit").await;
    assert_eq!(list["tenants"][0]["tenant"], "alpha", "the most urgent comes first");
    let list = running.html("/tenants?sort=used").await;
    assert!(list.contains("href=\"/tenants/tenant?id=alpha\""));
    running.app.stop().await.expect("stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_limits_are_told_with_what_set_them() {
    let running = Running::start(|config| config.limits.max_global_series_per_user = 10).await;
    running.becomes_active().await;
    let overrides = &running.app.ingester.overrides;
    let file = "overrides:\n  alpha: {max_global_series_per_user: 20}\n\
                hard_overrides:\n  alpha: {max_global_series_per_user: 50}\n\
                api_allowed_limits: [max_global_series_per_user]\n";
    overrides.publish(overrides.parse(file).expect("a runtime file"));
    running.push("beta", "m", 0..1).expect("taken");
    let limit = |page: &Value| {
        let limits = page["limits"].as_array().expect("limits").iter();
        let found = limits.clone().find(|limit| limit["name"] == "max_global_series_per_user");
        found.expect("listed").clone()
    };
    // Nothing of it is here, and what would apply is told all the same.
    let alpha = running.get("/tenants/tenant?id=alpha", "application/json").await;
    assert_eq!(alpha.status, 404);
    let alpha: Value = serde_json::from_str(&alpha.body).expect("JSON");
    assert_eq!(alpha["is_here"], false);
    let expect = serde_json::json!({
        "name": "max_global_series_per_user", "value": 20, "origin": "override", "default": 10,
        "hard_limit": 50, "is_open_to_api": true,
    });
    assert_eq!(limit(&alpha), expect);
    let beta = limit(&running.json("/tenants/tenant?id=beta").await);
    assert_eq!((&beta["origin"], &beta["value"]), (&"default".into(), &10.into()));
    assert_eq!(beta["hard_limit"], Value::Null);
    running.app.stop().await.expect("stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_are_shown_and_never_obeyed() {
    const TENANT: &str = "a'(b)*!";
    let metrics = [
        "<script>alert(1)</script>".to_owned(),
        "\"><img src=x onerror=alert(2)>'".to_owned(),
        "\u{202e}{{ 7*7 }}</td>&lt;".to_owned(),
        "x".repeat(64 << 10),
    ];
    let running = Running::start(|config| {
        let set = |value: &str| BTreeMap::from([("n".to_owned(), value.to_owned())]);
        let sets = vec![(set("<script>alert(3)</script>"), 5), (set("'\"&"), 5)];
        config.limits.limits_per_label_set = LabelSets::new(sets).expect("unique");
    })
    .await;
    running.becomes_active().await;
    for metric in &metrics {
        running.push(TENANT, metric, 0..1).expect("taken");
    }
    for path in [
        "/tenants",
        "/tenants?tenant=%27",
        "/tenants/tenant?id=a%27(b)*!",
        "/tenants/tenant?id=a%27(b)*!&global_limit=%3Cscript%3E&instances=%22%3E%3Cscript%3E",
    ] {
        let html = running.html(path).await;
        for raw in ["<script>alert", "<img", "</td>&lt;", "value=\"\"><script", "a'(b)"] {
            assert!(!html.contains(raw), "{path} holds {raw}");
        }
        assert!(html.len() < 100_000, "{path}: {} bytes", html.len());
    }
    let html = running.html("/tenants/tenant?id=a%27(b)*!").await;
    assert!(html.contains("&#60;script&#62;alert(1)"), "it is shown: {html}");
    assert!(html.contains("&#60;script&#62;alert(3)"), "it is shown: {html}");
    let page = running.json("/tenants/tenant?id=a%27(b)*!").await;
    let largest = page["here"]["metrics"]["largest"].as_array().expect("metrics");
    assert_eq!(largest.len(), metrics.len());
    let shown: Vec<_> = largest.iter().filter_map(|metric| metric["metric"].as_str()).collect();
    assert!(shown.contains(&&*metrics[0]) && shown.iter().any(|name| name.ends_with("x…")));
    // What cannot be a tenant's name is refused in plain text.
    let refused = running.get("/tenants/tenant?id=%3Cscript%3E", "text/html").await;
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("unsupported character"), "{}", refused.body);
    assert_eq!(running.get("/tenants/tenant", "text/html").await.status, 400);
    running.app.stop().await.expect("stop");
}

#[test]
fn a_trend_shows_growth_and_not_what_the_ring_moves() {
    let id = tenant("a");
    // Six instances of three replicas: 3,000 series on each.
    let mut cluster = Cluster::new(Setup::new(6_000, true), 6);
    let start = cluster.now;
    let mut pushed = 0;
    let mut goes_on = |cluster: &mut Cluster, seconds: std::ops::Range<i64>| {
        for second in seconds {
            cluster.now = Now { steady_ns: start.steady_ns + second * SECOND_NS, ..start };
            if second % 20 == 0 {
                cluster.spread();
                cluster.push(&id, pushed..pushed + 10, 0);
                pushed += 10;
            }
            for node in cluster.nodes.values_mut() {
                node.passes.tick(cluster.now);
            }
        }
    };
    goes_on(&mut cluster, 0..600);
    let own = |cluster: &Cluster| cluster.nodes["ingester-0"].ingester.clone();
    let ingester = own(&cluster);
    let detail = ingester.tenant_detail(&id, cluster.now).expect("it is here");
    let slope = detail.trend.slope.expect("known");
    // Half a series a second, of which this instance holds about half.
    assert!((0.15..0.35).contains(&slope.per_s), "{slope:?}");
    assert!((400..600).contains(&slope.over_s), "{slope:?}");
    let ToLimit::In(seconds) = detail.to_limit else { panic!("{:?}", detail.to_limit) };
    let expect = detail.view.headroom().expect("limited") as f64 / slope.per_s;
    assert_eq!(seconds, expect as u64);
    assert!(detail.recounts.is_empty() || detail.recounts.iter().all(|(_, moved)| moved.is_none()));
    assert_eq!(detail.metrics, None, "no limit per metric is set, so nobody counts them");
    let doubled = Asked { instances: Some(12), ..Asked::default() };
    let foretold = WhatIf::new(&detail.standing, detail.view.counts.series, doubled);

    for _ in 0..6 {
        cluster.join(InstanceState::Active);
    }
    cluster.spread();
    let after = ingester.tenant_detail(&id, cluster.now).expect("it is here");
    assert_eq!(after.view.limit, foretold.limit, "what was foretold has come");
    let owned = after.view.counts.series.owned;
    assert!(owned.abs_diff(foretold.owned.count) < owned / 2, "{owned}: {foretold:?}");
    let (pass, moved) = after.recounts[0];
    let moved = moved.expect("series have moved");
    assert_eq!(moved.reason, RecountReason::RingChanged);
    assert_eq!(u64::from(moved.owned_before), detail.view.counts.series.owned);
    assert_eq!(u64::from(moved.owned_after), owned);
    assert_eq!((pass.owned_after, pass.tenants[0]), (owned, 1));
    assert_eq!(after.to_limit, ToLimit::Unknown, "what has moved is no fall");
    assert!(after.trend.samples.len() > 5, "what was before is shown");

    goes_on(&mut cluster, 600..800);
    let detail = ingester.tenant_detail(&id, cluster.now).expect("it is here");
    let slope = detail.trend.slope.expect("known again");
    assert!(slope.per_s > 0.0 && slope.over_s <= 200, "{slope:?}");
}

/// A hundred thousand tenants in the long form.
#[test]
fn pages_of_every_order_are_the_whole_order() {
    let tenants = match std::env::var_os("FREEHOLD_LONG_TESTS") {
        Some(_) => 100_000,
        None => 5_000,
    };
    let cluster = Cluster::new(Setup::new(6_000, true), 3);
    let bodies = [1, 3, 7].map(|series| super::cluster::request(0..series, cluster.now.unix_ms));
    for number in 0..tenants {
        let body = &bodies[number * 7 % 3];
        cluster.push_to("ingester-0", &tenant(&format!("tenant-{number}")), body).expect("taken");
    }
    let ingester = &cluster.nodes["ingester-0"].ingester;
    let views = ingester.tenant_views(cluster.now);
    assert_eq!(views.len(), tenants);
    let time_to_limit = |view: &TenantView| {
        ingester.tenant_detail(&view.tenant, cluster.now).expect("it is here").to_limit
    };
    type Least<'a> = &'a dyn Fn(&TenantView) -> i128;
    let orders: [(TenantOrder, Least<'_>); 7] = [
        (TenantOrder::Tenant, &|_| 0),
        (TenantOrder::InMemory, &|view| -i128::from(view.counts.series.in_memory)),
        (TenantOrder::Active, &|view| -i128::from(view.counts.active)),
        (TenantOrder::Owned, &|view| -i128::from(view.counts.series.owned)),
        (TenantOrder::Headroom, &|view| view.headroom().expect("limited").into()),
        // All have one limit.
        (TenantOrder::Used, &|view| -i128::from(view.used())),
        (TenantOrder::Refused, &|view| -i128::from(view.refused_samples_total)),
    ];
    for (order, least) in orders {
        let mut expect = views.clone();
        expect.sort_by_cached_key(|view| (least(view), view.tenant.clone()));
        check_pages(ingester, order, cluster.now, &expect);
    }
    let mut expect = views.clone();
    expect.sort_by_cached_key(|view| (time_to_limit(view), view.tenant.clone()));
    check_pages(ingester, TenantOrder::TimeToLimit, cluster.now, &expect);
    let wanted = Wanted { name_part: "no-such", order: TenantOrder::Used, page: 3, page_len: 500 };
    let none = ingester.tenant_page(wanted, cluster.now);
    assert_eq!((none.page, none.pages, none.matching, none.total), (1, 1, 0, tenants));
}

/// The pages of an order, one after the other, are the whole of it.
fn check_pages(ingester: &Ingester, order: TenantOrder, now: Now, expect: &[TenantView]) {
    const PAGE_LEN: usize = 499;
    let mut told = Duration::ZERO;
    let pages = expect.len().div_ceil(PAGE_LEN);
    for (at, rows) in expect.chunks(PAGE_LEN).enumerate() {
        #[expect(clippy::disallowed_methods, reason = "a figure to look at, not to decide by")]
        let started = Instant::now();
        let wanted = Wanted { name_part: "tenant", order, page: at + 1, page_len: PAGE_LEN };
        let page = ingester.tenant_page(wanted, now);
        told = told.max(started.elapsed());
        assert_eq!((page.page, page.pages, page.matching), (at + 1, pages, expect.len()));
        let listed = page.tenants.iter().map(|(view, _)| &view.tenant);
        assert!(listed.eq(rows.iter().map(|view| &view.tenant)), "{order:?}, page {}", at + 1);
        assert!(page.tenants.iter().all(|(_, trend)| !trend.samples.is_empty()));
    }
    println!("a page of {} tenants by {order:?} in {told:?} at most", expect.len());
}
