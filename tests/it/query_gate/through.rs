//! What goes through, as it came, and what does not.

use std::time::Duration;

use bytes::Bytes;
use freehold::units::Millis;
use http_body_util::Full;
use hyper::{Method, Request};

use super::{Asker, metric, range, request, start, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_the_api_goes_through_as_it_came() {
    let (stub, gate) = start(|_| {}).await;
    stub.manner().headers = vec![("content-type", "application/json"), ("x-other", "kept")];
    let asker = Asker::new();
    for (method, path, body) in [
        (Method::GET, "/prometheus/api/v1/query?query=up&time=1", ""),
        (Method::POST, "/prometheus/api/v1/query_range", "query=up%7Ba%3D%22%20%22%7D&start=1"),
        (Method::GET, "/api/prom/api/v1/label/a%2Fb/values?match%5B%5D=up", ""),
        (Method::POST, "/api/prom/api/v1/series", "match[]=up"),
        (Method::GET, "/prometheus/api/v1/status/buildinfo", ""),
        (Method::DELETE, "/prometheus/api/v1/rules/x", ""),
    ] {
        let uri = format!("http://{}{path}", gate.http_address);
        let answer = asker.send(request(method.clone(), &uri, "grafana", body)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.headers["x-other"], "kept");
        let came = stub.came().pop().expect("it came");
        assert_eq!((came.method, came.target.as_str()), (method, path));
        assert_eq!(came.body, body);
        assert_eq!(came.headers["x-scope-orgid"], "team");
        assert_eq!(came.headers["x-scope-clientid"], "grafana");
        assert_eq!(came.headers["x-forwarded-for"], "127.0.0.1");
    }
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prefix_is_taken_off_for_a_prometheus() {
    let (stub, gate) = start(|config| {
        config.frontend.http_prefixes = "/team/metrics".into();
        config.frontend.strip_http_prefix = true;
    })
    .await;
    let asker = Asker::new();
    let uri = format!("http://{}/team/metrics/api/v1/query?query=up", gate.http_address);
    assert_eq!(asker.send(request(Method::GET, &uri, "", "")).await.status, 200);
    assert_eq!(stub.came()[0].target, "/api/v1/query?query=up");
    let uri = format!("http://{}/prometheus/api/v1/query?query=up", gate.http_address);
    assert_eq!(asker.send(request(Method::GET, &uri, "", "")).await.status, 404);
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_it_is_from_has_to_be_said() {
    let (stub, gate) = start(|_| {}).await;
    let asker = Asker::new();
    let uri = format!("http://{}/prometheus/api/v1/query?query=up", gate.http_address);
    let ask = |headers: &[(&str, &str)]| {
        let mut request = Request::builder().uri(&uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        asker.send(request.body(Full::default()).expect("a request"))
    };
    let answer = ask(&[]).await;
    assert_eq!((answer.status, answer.text()), (401, "no org id\n"));
    assert_eq!(ask(&[("x-scope-orgid", "a/b")]).await.status, 400);
    assert_eq!(ask(&[("x-scope-orgid", "a|")]).await.status, 400);
    let two = [("x-scope-orgid", "a"), ("x-scope-clientid", "b"), ("x-scope-clientid", "c")];
    let answer = ask(&two).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("more than one client ID"), "{}", answer.text());
    assert!(stub.came().is_empty());
    assert_eq!(ask(&[("x-scope-orgid", "b|a")]).await.status, 200);
    assert_eq!(stub.came()[0].headers["x-scope-orgid"], "b|a", "as it came");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_has_so_many_in_flight_and_no_more() {
    let (stub, gate) = start(|config| {
        config.frontend.max_inflight_requests_per_tenant = 3;
        config.frontend.share_identical_queries = false;
    })
    .await;
    stub.manner().takes = Duration::from_millis(700);
    let asker = Asker::new();
    let address = gate.http_address;
    let asking: Vec<_> = (0..3)
        .map(|_| {
            let asker = asker.clone();
            tokio::spawn(async move { asker.range(address, "", "slow").await })
        })
        .collect();
    until(|| stub.under_way() == 3).await;
    let answer = asker.range(address, "", "slow").await;
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert!(answer.text().contains("-frontend.max-inflight-requests-per-tenant"));
    let mut other = range(address, "", "slow");
    other.headers_mut().insert("x-scope-orgid", "other".parse().expect("a value"));
    assert_eq!(asker.send(other).await.status, 200);
    for one in asking {
        assert_eq!(one.await.expect("no panic").status, 200);
    }
    assert_eq!(asker.range(address, "", "slow").await.status, 200);
    let row = "cortex_rejected_queries_total{reason=\"too_many_inflight_requests\",\
               source=\"api\",user=\"team\"}";
    assert_eq!(metric(address, row).await, 1.0);
    assert_eq!(metric(address, "freehold_frontend_inflight_requests").await, 0.0);
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_behind_us_that_are_down_or_slow_are_told_of() {
    let (stub, gate) = start(|config| {
        config.frontend.downstream.response_timeout = Millis(300);
    })
    .await;
    let asker = Asker::new();
    stub.manner().takes = Duration::from_secs(60);
    let answer = asker.range(gate.http_address, "", "slow").await;
    assert_eq!(answer.status, 504, "{}", answer.text());
    assert!(answer.text().contains("\"errorType\":\"timeout\""), "{}", answer.text());
    drop(stub);
    let down = async {
        loop {
            let answer = asker.range(gate.http_address, "", "down").await;
            if answer.status == 503 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let answer = tokio::time::timeout(super::PATIENCE, down).await.expect("down");
    assert!(answer.headers.contains_key("retry-after"));
    assert!(answer.text().contains("nobody who answers queries can be reached"));
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_answers_stream_and_long_forms_are_refused() {
    let (stub, gate) = start(|config| config.frontend.max_body_size = 1000).await;
    stub.manner().pieces = vec![Bytes::from(vec![b'x'; 1 << 20]); 64];
    let asker = Asker::new();
    let answer = asker.range(gate.http_address, "", "long").await;
    assert_eq!((answer.status, answer.body.len()), (200, 64 << 20));
    let uri = format!("http://{}/prometheus/api/v1/query", gate.http_address);
    let long = format!("query={}", "x".repeat(2000));
    let answer = asker.send(request(Method::POST, &uri, "", &long)).await;
    assert_eq!(answer.status, 413, "{}", answer.text());
    gate.stop().await.expect("stops");
}
