//! Identical queries in flight: one downstream request, one charge, no matter who leaves.

use std::time::Duration;

use bytes::Bytes;
use freehold::limits::QueryRate;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request};

use super::{Asker, NEVER, metric, range, request, start, until};

fn limited(config: &mut freehold::config::Config) {
    config.limits.client_identity_query_rate_limit = QueryRate::PerSecond(NEVER);
    config.limits.client_identity_query_burst_size = 1;
    config.frontend.cached_answers = freehold::frontend::config::CachedAnswers::Charged;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_ask_the_same_are_one_query_and_one_charge() {
    let (stub, gate) = start(limited).await;
    stub.manner().takes = Duration::from_millis(500);
    let asker = Asker::new();
    // Fewer than a client may try.
    let asking: Vec<_> = (0..8)
        .map(|at| {
            let (asker, address) = (asker.clone(), gate.http_address);
            // Traces differ, and so do clients; neither is asked for.
            let client = if at % 2 == 0 { "grafana" } else { "other" };
            let mut request = range(address, client, "same");
            let trace = format!("00-{at:032x}-0000000000000001-01");
            request.headers_mut().insert("traceparent", trace.parse().expect("a value"));
            tokio::spawn(async move { asker.send(request).await })
        })
        .collect();
    for one in asking {
        let answer = one.await.expect("no panic");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.text(), r#"{"status":"success","data":{"result":[]}}"#);
    }
    assert_eq!(stub.came().len(), 1);
    let shared = "freehold_frontend_queries_total{from=\"shared\"}";
    assert_eq!(metric(gate.http_address, shared).await, 7.0);
    stub.manner().takes = Duration::ZERO;
    let mut refused = 0;
    for client in ["grafana", "other"] {
        refused += u32::from(asker.range(gate.http_address, client, "next").await.status == 429);
    }
    assert_eq!(refused, 1, "one of the two has paid");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_differs_in_anything_is_asked_for_itself() {
    let (stub, gate) = start(|config| {
        limited(config);
        config.limits.client_identity_query_rate_limit = QueryRate::PerSecond(0.0);
    })
    .await;
    stub.manner().takes = Duration::from_millis(500);
    let asker = Asker::new();
    let base = || range(gate.http_address, "", "same");
    let with = |name: &'static str, value: &'static str| {
        let mut request = base();
        request.headers_mut().insert(name, value.parse().expect("a value"));
        request
    };
    let uri = format!("http://{}/prometheus/api/v1/query_range", gate.http_address);
    let form = "query=same&start=0&end=60&step=15";
    let mut other_tenant = base();
    other_tenant.headers_mut().insert("x-scope-orgid", "other".parse().expect("a value"));
    let different = [
        base(),
        with("accept-encoding", "gzip"),
        with("authorization", "Bearer a"),
        with("authorization", "Bearer b"),
        with("cache-control", "no-store"),
        with("cache-control", "no-store"),
        other_tenant,
        range(gate.http_address, "", "other"),
        request(Method::POST, &uri, "", form),
        request(Method::POST, &uri, "", "query=same&start=0&end=60&step=30"),
    ];
    let count = different.len();
    let asking: Vec<_> = different
        .into_iter()
        .map(|request| {
            let asker = asker.clone();
            tokio::spawn(async move { asker.send(request).await })
        })
        .collect();
    for one in asking {
        assert_eq!(one.await.expect("no panic").status, 200);
    }
    assert_eq!(stub.came().len(), count);
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaver_takes_nothing_from_the_others_and_the_last_one_ends_it() {
    let (stub, gate) = start(limited).await;
    stub.manner().takes = Duration::from_millis(800);
    let address = gate.http_address;
    let ask = || {
        let asker = Asker::new();
        tokio::spawn(async move { asker.range(address, "grafana", "same").await })
    };
    let first = ask();
    until(|| stub.came().len() == 1).await;
    let second = ask();
    let shared = "freehold_frontend_queries_total{from=\"shared\"}";
    let joined = async {
        while metric(address, shared).await != 1.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::PATIENCE, joined).await.expect("joins");
    first.abort();
    assert_eq!(second.await.expect("no panic").status, 200);
    assert_eq!(stub.came().len(), 1);
    stub.manner().takes = Duration::from_secs(600);
    let alone = tokio::spawn(async move { Asker::new().range(address, "other", "same").await });
    until(|| stub.under_way() == 1).await;
    alone.abort();
    until(|| stub.under_way() == 0).await;
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_while_the_body_is_on_its_way_gets_all_of_it() {
    let (stub, gate) = start(limited).await;
    let pieces: Vec<_> = (0..5).map(|at| Bytes::from(format!("piece {at};"))).collect();
    let whole: String = pieces.iter().map(|piece| String::from_utf8_lossy(piece)).collect();
    stub.manner().pieces = pieces;
    stub.manner().piece_takes = Duration::from_millis(200);
    let asker = Asker::new();
    let early = asker.0.request(range(gate.http_address, "grafana", "same")).await;
    let early = early.expect("a head");
    let late = asker.range(gate.http_address, "grafana", "same").await;
    assert_eq!(late.text(), whole);
    assert_eq!(early.into_body().collect().await.expect("whole").to_bytes(), whole);
    assert_eq!(stub.came().len(), 1);
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_breaks_off_is_broken_off_for_all() {
    let (stub, gate) = start(|_| {}).await;
    stub.manner().pieces = vec![Bytes::from_static(b"half of")];
    stub.manner().piece_takes = Duration::from_millis(100);
    stub.manner().breaks_off = true;
    let asker = Asker::new();
    let answers = (0..3).map(|_| {
        let request: Request<Full<Bytes>> = range(gate.http_address, "", "same");
        asker.0.request(request)
    });
    for answer in futures_util::future::join_all(answers).await {
        let answer = answer.expect("a head");
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.expect_err("half is not whole");
    }
    let failed = "freehold_frontend_queries_failed_total";
    assert!(metric(gate.http_address, failed).await >= 1.0);
    gate.stop().await.expect("stops");
}
