//! The gate of a process that keeps samples itself.

use freehold::app::App;
use freehold::clients::config::ColdStart;
use freehold::config::{Config, Target};
use freehold::limits::QueryRate;
use hyper::Method;

use super::stub::Stub;
use super::{Asker, NEVER, metric, owns_all, request, until};

async fn start(dir: &tempfile::TempDir, change: impl FnOnce(&mut Config)) -> App {
    let mut config = Config::for_target(Target::All);
    config.store.path = dir.path().join("data");
    let server = &mut config.server;
    server.http_listen_address = "127.0.0.1".into();
    server.grpc_listen_address = "127.0.0.1".into();
    (server.http_listen_port, server.grpc_listen_port) = (0, 0);
    for ring in [&mut config.distributor.ring, &mut config.frontend.ring] {
        ring.instance_id = "gate-0".into();
        ring.instance_addr = "127.0.0.1".into();
    }
    config.ingester.lifecycler.address = "127.0.0.1".into();
    config.client_identity.cold_start = ColdStart::Full;
    change(&mut config);
    config.validate().expect("a good configuration");
    App::start(config).await.expect("starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_store_answers_is_paid_too_and_expressions_are_somebody_elses() {
    let dir = tempfile::tempdir().expect("a directory");
    let app = start(&dir, |config| {
        config.client_identity.enabled = true;
        config.limits.client_identity_query_rate_limit = QueryRate::PerSecond(NEVER);
        config.limits.client_identity_query_burst_size = 3;
    })
    .await;
    until(|| app.query_budgets().is_some_and(|budgets| owns_all(budgets, "gate-0"))).await;
    let asker = Asker::new();
    let ask = async |path: &str| {
        let uri = format!("http://{}{path}", app.http_address);
        asker.send(request(Method::GET, &uri, "grafana", "")).await
    };
    for path in ["/api/v1/labels", "/prometheus/api/v1/labels"] {
        let answer = ask(path).await;
        assert_eq!((answer.status, answer.text()), (200, r#"{"status":"success","data":[]}"#));
    }
    let answer = ask("/api/prom/api/v1/query?query=up").await;
    assert_eq!(answer.status, 501, "{}", answer.text());
    assert!(answer.text().contains("remote_read"), "{}", answer.text());
    assert_eq!(ask("/api/v1/labels").await.status, 429);
    let row = "cortex_rejected_queries_total{reason=\"client_rate_limited\",source=\"api\",\
               user=\"team\"}";
    assert_eq!(metric(app.http_address, row).await, 1.0);
    // Both kinds of budgets are told apart.
    for ring in ["distributor", "query-frontend"] {
        let row = format!("freehold_client_peers{{ring=\"{ring}\",state=\"up\"}}");
        assert_eq!(metric(app.http_address, &row).await, 0.0);
    }
    app.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_go_to_those_behind_and_the_rest_stays_here() {
    let (dir, stub) = (tempfile::tempdir().expect("a directory"), Stub::start().await);
    let app = start(&dir, |config| {
        config.frontend.downstream.url = format!("http://{}", stub.address);
    })
    .await;
    let asker = Asker::new();
    for (path, is_theirs) in [
        ("/api/v1/query?query=up", true),
        ("/prometheus/api/v1/query_range?query=up", true),
        ("/prometheus/api/v1/series?match[]=up", false),
        ("/api/v1/metadata", false),
    ] {
        let before = stub.came().len();
        let uri = format!("http://{}{path}", app.http_address);
        assert_eq!(asker.send(request(Method::GET, &uri, "", "")).await.status, 200, "{path}");
        assert_eq!(stub.came().len() > before, is_theirs, "{path}");
    }
    app.stop().await.expect("stops");
}
