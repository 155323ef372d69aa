//! Debian's Prometheus behind the gate: real PromQL, and answers to the byte.

use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use freehold::app::QueryGate;
use http_body_util::Full;
use hyper::{Method, Request};

use super::{Asker, config};
use crate::ports::Port;
use crate::process::{Process, wait_for};

/// What is asked of both: (method, path, parameters).
const ASKED: [(&str, &str, &str); 9] = [
    ("GET", "query", "query=up&time=NOW"),
    ("POST", "query", "query=sum%20by%20(handler)(prometheus_http_requests_total)&time=NOW"),
    (
        "GET",
        "query_range",
        "query=rate(prometheus_http_requests_total[10s])&start=AGO&end=NOW&step=1",
    ),
    (
        "POST",
        "query_range",
        "query=histogram_quantile(0.9,prometheus_http_request_duration_seconds_bucket)&start=AGO&end=NOW&step=1",
    ),
    ("GET", "series", "match[]=up&start=AGO&end=NOW"),
    ("GET", "labels", "start=AGO&end=NOW"),
    ("GET", "label/job/values", "start=AGO&end=NOW"),
    ("GET", "query", "query=nonsense(&time=NOW"),
    ("GET", "metadata", "metric=prometheus_build_info"),
];

fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join("prometheus").is_file())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prometheus_behind_the_gate_answers_to_the_byte() {
    if !is_installed() {
        println!("skipped: no prometheus on PATH (apt-get install prometheus)");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let port = Port::new();
    let address = port.address;
    let file = dir.path().join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: itself\n  static_configs:\n  \
         - targets: ['{address}']\n"
    );
    std::fs::write(&file, text).expect("the configuration");
    let mut command = Command::new("prometheus");
    command.args([
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", dir.path().join("data").display()),
        format!("--web.listen-address={address}"),
    ]);
    let process = Process::spawn(&mut command, &dir.path().join("log"));
    let asker = Asker::new();
    let mut settings = config(address);
    settings.frontend.strip_http_prefix = true;
    settings.frontend.downstream.health_check_path = "/-/ready".into();
    settings.client_identity.enabled = false;
    settings.validate().expect("a good configuration");
    let gate = QueryGate::start(settings).await.expect("starts");
    let ask = async |base: &str, (method, call, parameters): (&str, &str, &str), encoding: &str| {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let (uri, body) = match method {
            Method::POST => (format!("{base}/api/v1/{call}"), parameters.to_owned()),
            _ => (format!("{base}/api/v1/{call}?{parameters}"), String::new()),
        };
        let request = Request::builder()
            .method(&method)
            .uri(uri)
            .header("x-scope-orgid", "team")
            .header("accept-encoding", encoding)
            .header("content-type", "application/x-www-form-urlencoded");
        asker.send(request.body(Full::from(Bytes::from(body))).expect("a request")).await
    };
    // Until it has scraped itself some times; then its past does not change.
    let through = format!("http://{}/prometheus", gate.http_address);
    let has_data = async || {
        let answer = ask(&through, ("GET", "query", "query=count_over_time(up[1m])"), "").await;
        let told: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
        let scrapes: f64 = told["data"]["result"][0]["value"][1].as_str()?.parse().ok()?;
        (scrapes >= 5.0).then_some(())
    };
    wait_for(|| process.log(), has_data).await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("time");
    let (now, ago) = (now.as_secs() - 1, now.as_secs() - 4);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let direct = format!("http://{address}");
    for (method, call, parameters) in ASKED {
        let parameters =
            parameters.replace("NOW", &now.to_string()).replace("AGO", &ago.to_string());
        for encoding in ["identity", "gzip"] {
            let asked = (method, call, parameters.as_str());
            let (expect, got) =
                tokio::join!(ask(&direct, asked, encoding), ask(&through, asked, encoding));
            assert_eq!(got.status, expect.status, "{asked:?}");
            assert_eq!(got.body, expect.body, "{asked:?} {encoding}");
            for name in ["content-type", "content-encoding", "content-length"] {
                assert_eq!(got.headers.get(name), expect.headers.get(name), "{asked:?} {name}");
            }
        }
    }
    gate.stop().await.expect("stops");
}
