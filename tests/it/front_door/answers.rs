//! What senders are told, and who is asked nothing.

use axum::body::Bytes;
use freehold::app::{AppError, WriteGate};
use freehold::ratelimit::RateLimitHeaders;

use super::{Lab, PROXY, Sender, config, good, network, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_r41_a_refusal_says_when_to_come_back_and_nothing_of_credentials() {
    let lab = Lab::start(|config| {
        config.front_door.write.failures_per_minute = 600;
        config.front_door.write.requests_per_address_per_minute = 3;
        config.front_door.ratelimit_headers = RateLimitHeaders::Draft;
    })
    .await;
    let mut sender = lab.sender(PROXY).await;
    let mut answers = Vec::new();
    for token in ["good", "bad"] {
        let address = format!("198.51.100.{}", token.len());
        for _ in 0..3 {
            let answer = sender.write_whole(&address, token, good()).await;
            assert_ne!(answer.status, 429);
            let left = answer.header("ratelimit").expect("told");
            assert!(left.starts_with("\"address\";r="), "{left}");
        }
        let answer = sender.write_whole(&address, token, good()).await;
        assert_eq!(answer.status, 429);
        let wait: u64 = answer.header("retry-after").expect("told").parse().expect("seconds");
        assert!((1..=20).contains(&wait), "{wait}");
        assert_eq!(answer.header("ratelimit-policy"), Some("\"address\";q=3;w=60"));
        assert!(answer.header("ratelimit").expect("told").starts_with("\"address\";r=0;t="));
        let mut names: Vec<String> =
            answer.headers.keys().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        answers.push((names, answer.body));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].1, "too many requests from this address\n");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_watches_the_process_is_not_asked() {
    let lab = Lab::start(|config| {
        config.front_door.admin.requests_per_address_per_minute = 1;
        config.front_door.deny = vec![network("203.0.113.0/24")];
    })
    .await;
    let mut sender = lab.sender(PROXY).await;
    let from = |address| [("x-forwarded-for", address)];
    for (address, statuses) in [("198.51.100.7", [200, 429]), ("203.0.113.5", [403, 403])] {
        for status in statuses {
            let answer = sender.send("GET", "/config", &from(address), Bytes::new()).await;
            assert_eq!(answer.status, status, "{address}");
        }
        for path in ["/ready", "/metrics"] {
            let answer = sender.send("GET", path, &from(address), Bytes::new()).await;
            assert_eq!(answer.status, 200, "{address} {path}");
        }
    }
    // What there is no page for is no way around either.
    let answer = sender.send("GET", "/nothing", &from("203.0.113.5"), Bytes::new()).await;
    assert_eq!((answer.status, answer.body.as_str()), (403, "forbidden\n"));
    assert_eq!(value(&lab.metrics().await, "freehold_front_door_denied_total"), 3.0);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_are_refused_in_the_words_of_their_api() {
    let lab = Lab::start(|config| {
        config.front_door.query.failures_per_minute = 2;
        config.front_door.deny = vec![network("203.0.113.0/24")];
    })
    .await;
    let mut sender = lab.sender(PROXY).await;
    let path = "/prometheus/api/v1/query?query=up";
    let mut ask = async |address| {
        let answer = sender.send("GET", path, &[("x-forwarded-for", address)], Bytes::new()).await;
        (answer.status, answer.body)
    };
    // A write gate has no such page, which fails like a page that is not to be seen.
    assert_eq!(ask("198.51.100.7").await.0, 404);
    assert_eq!(ask("198.51.100.7").await.0, 404);
    let (status, body) = ask("198.51.100.7").await;
    assert_eq!(status, 429);
    let text = "too many failed requests from this address";
    let expect = serde_json::json!({
        "status": "error", "errorType": "too_many_requests", "error": text
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&body).expect("JSON"), expect);
    let (status, body) = ask("203.0.113.5").await;
    assert_eq!(status, 403);
    assert!(body.contains("\"errorType\":\"forbidden\""), "{body}");
    // Writes have budgets of their own.
    assert_eq!(sender.write("198.51.100.7", "good").await, 200);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_refuses_nobody_and_an_allowed_network_is_not_looked_at() {
    use freehold::front_door::config::Limiter;
    let lab = Lab::start(|config| {
        config.front_door.write.failures_per_minute = 5;
        config.front_door.write.shadow = vec![Limiter::Failures];
        config.front_door.allow = vec![network("192.0.2.0/24")];
    })
    .await;
    let mut sender = lab.sender(PROXY).await;
    for _ in 0..20 {
        assert_eq!(sender.write("198.51.100.7", "guess").await, 401);
        assert_eq!(sender.write("192.0.2.77", "guess").await, 401);
    }
    let metrics = lab.metrics().await;
    let shadow = "freehold_front_door_shadow_refused_total{class=\"write\",limiter=\"failures\"}";
    assert!((10.0..=15.0).contains(&value(&metrics, shadow)), "{metrics}");
    let refused = "freehold_front_door_refused_total{class=\"write\",limiter=\"failures\"}";
    assert_eq!(value(&metrics, refused), 0.0);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_target_has_it_before_its_pages() {
    use freehold::app::App;
    use freehold::config::{Config, Target};
    let directory = tempfile::tempdir().expect("a directory");
    for target in [Target::All, Target::Ingester] {
        let mut config = Config::for_target(target);
        config.store.path = directory.path().join(String::from(target));
        config.server.http_listen_address = "127.0.0.1".into();
        config.server.http_listen_port = 0;
        config.admin.http_listen_address = "127.0.0.1:0".into();
        config.server.grpc_listen_address = "127.0.0.1".into();
        config.server.grpc_listen_port = 0;
        config.front_door.admin.requests_per_address_per_minute = 2;
        let app = App::start(config).await.expect("starts");
        let mut sender = Sender::connect(app.http_address, PROXY).await;
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(sender.send("GET", "/config", &[], Bytes::new()).await.status);
        }
        assert_eq!(statuses, [200, 200, 429]);
        app.stop().await.expect("stops");
    }
}

#[tokio::test]
async fn a_salt_that_cannot_be_read_ends_the_start() {
    let mut config = config(([127, 0, 0, 1], 1).into());
    config.front_door.write.failures_per_minute = 60;
    config.front_door.salt_file = "/nowhere/salt".into();
    let Err(error) = WriteGate::start(config).await else { panic!("starts") };
    assert!(matches!(error, AppError::FrontDoorSalt { .. }));
    assert_eq!(error.to_string(), "cannot use -front-door.salt-file /nowhere/salt");
}
