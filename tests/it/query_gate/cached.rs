//! What a client pays: nothing for what came from the results cache, if that is true.

use std::time::Duration;

use freehold::frontend::config::CachedAnswers;
use freehold::limits::QueryRate;

use super::{Asker, NEVER, metric, start, until};

const BUDGET: u64 = 4;

fn limited(config: &mut freehold::config::Config) {
    config.limits.client_identity_query_rate_limit = QueryRate::PerSecond(NEVER);
    config.limits.client_identity_query_burst_size = BUDGET;
    config.frontend.canary_tenant = "watched".into();
    config.frontend.share_identical_queries = false;
}

const BELIEVED: &str = "freehold_frontend_cached_answers_believed";

async fn believed(gate: std::net::SocketAddr) {
    let seen = async {
        while metric(gate, BELIEVED).await != 1.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::PATIENCE, seen).await.expect("a canary comes back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_f15_cached_refreshes_are_free_and_misses_are_paid() {
    let (stub, gate) = start(limited).await;
    stub.manner().cached.insert("hot".into());
    believed(gate.http_address).await;
    let asker = Asker::new();
    for _ in 0..30 {
        let answer = asker.range(gate.http_address, "grafana", "hot").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.headers["server-timing"].starts_with("querier_wall_time;dur=0,"));
    }
    for at in 0..BUDGET {
        let answer = asker.range(gate.http_address, "grafana", "cold").await;
        assert_eq!(answer.status, 200, "{at}: {}", answer.text());
    }
    let refused = asker.range(gate.http_address, "grafana", "cold").await;
    assert_eq!(refused.status, 429);
    let told: serde_json::Value = serde_json::from_slice(&refused.body).expect("JSON");
    assert_eq!(
        (&told["status"], &told["errorType"]),
        (&"error".into(), &"too_many_requests".into())
    );
    let text = told["error"].as_str().expect("text");
    assert!(text.contains("client grafana of tenant team"), "{text}");
    assert!(refused.headers["retry-after"].parse::<u64>().expect("seconds") >= 1);
    let row = "cortex_rejected_queries_total{reason=\"client_rate_limited\",source=\"api\",\
               user=\"team\"}";
    assert_eq!(metric(gate.http_address, row).await, 1.0);
    let other = asker.range(gate.http_address, "other", "cold").await;
    assert_eq!(other.status, 200, "another has a budget of its own");
    assert_eq!(asker.range(gate.http_address, "", "cold").await.status, 200, "nobody's is free");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_good_range_says_that_it_was_cached() {
    let (stub, gate) = start(limited).await;
    believed(gate.http_address).await;
    let asker = Asker::new();
    stub.manner().lies = true;
    stub.manner().status = 422;
    for _ in 0..2 {
        assert_eq!(asker.range(gate.http_address, "grafana", "bad").await.status, 422);
    }
    // The canaries have seen no good answer meanwhile, which proves nothing.
    stub.manner().status = 200;
    let instant = format!("http://{}/prometheus/api/v1/query?query=x", gate.http_address);
    for _ in 0..2 {
        let request = super::request(hyper::Method::GET, &instant, "grafana", "");
        assert_eq!(asker.send(request).await.status, 200);
    }
    let answer = asker.range(gate.http_address, "grafana", "bad").await;
    assert_eq!(answer.status, 429, "failures and other calls were paid");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_catches_a_signal_that_is_always_zero() {
    let (stub, gate) = start(limited).await;
    stub.manner().lies = true;
    let asker = Asker::new();
    until(|| stub.canaries() >= 1).await;
    let disproved = "freehold_frontend_canaries_total{finding=\"false\"}";
    let seen = async {
        while metric(gate.http_address, disproved).await == 0.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::PATIENCE, seen).await.expect("found out");
    assert_eq!(metric(gate.http_address, BELIEVED).await, 0.0);
    for _ in 0..BUDGET {
        assert_eq!(asker.range(gate.http_address, "grafana", "any").await.status, 200);
    }
    assert_eq!(asker.range(gate.http_address, "grafana", "any").await.status, 429);
    // Once it is mended, it is believed again.
    stub.manner().lies = false;
    believed(gate.http_address).await;
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_canary_nothing_is_believed_unless_it_is_told_to_be() {
    for (told, free) in [
        (CachedAnswers::Verified, false),
        (CachedAnswers::Charged, false),
        (CachedAnswers::Trusted, true),
    ] {
        let (stub, gate) = start(|config| {
            limited(config);
            config.frontend.canary_tenant = String::new();
            config.frontend.cached_answers = told;
        })
        .await;
        stub.manner().cached.insert("hot".into());
        let asker = Asker::new();
        let mut last = 0;
        for _ in 0..=BUDGET {
            last = asker.range(gate.http_address, "grafana", "hot").await.status;
        }
        assert_eq!(last, if free { 200 } else { 429 }, "{told:?}");
        assert_eq!(stub.canaries(), 0);
        gate.stop().await.expect("stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_credit_may_try_what_was_cached_and_owes_what_misses() {
    let (stub, gate) = start(limited).await;
    stub.manner().cached.insert("hot".into());
    believed(gate.http_address).await;
    let asker = Asker::new();
    assert_eq!(asker.range(gate.http_address, "grafana", "hot").await.status, 200);
    for _ in 0..BUDGET {
        assert_eq!(asker.range(gate.http_address, "grafana", "cold").await.status, 200);
    }
    assert_eq!(asker.range(gate.http_address, "grafana", "cold").await.status, 429);
    for _ in 0..5 {
        assert_eq!(asker.range(gate.http_address, "grafana", "hot").await.status, 200);
    }
    let owed = "freehold_frontend_tries_owed_total";
    assert_eq!(metric(gate.http_address, owed).await, 0.0);
    // It leaves the cache: the first one to find out is owed, and nobody tries again.
    stub.manner().cached.clear();
    assert_eq!(asker.range(gate.http_address, "grafana", "hot").await.status, 200);
    assert_eq!(metric(gate.http_address, owed).await, 1.0);
    assert_eq!(asker.range(gate.http_address, "grafana", "hot").await.status, 429);
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_is_given_up_is_owed_too() {
    let (stub, gate) = start(limited).await;
    stub.manner().cached.insert("hot".into());
    believed(gate.http_address).await;
    let asker = Asker::new();
    assert_eq!(asker.range(gate.http_address, "grafana", "hot").await.status, 200);
    for _ in 0..BUDGET {
        assert_eq!(asker.range(gate.http_address, "grafana", "cold").await.status, 200);
    }
    stub.manner().takes = Duration::from_secs(60);
    let came = stub.came().len();
    let asking = tokio::spawn({
        let (asker, address) = (asker.clone(), gate.http_address);
        async move { asker.range(address, "grafana", "hot").await }
    });
    until(|| stub.came().len() > came).await;
    asking.abort();
    let seen = async {
        while metric(gate.http_address, "freehold_frontend_tries_owed_total").await != 1.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::PATIENCE, seen).await.expect("it is owed");
    stub.manner().takes = Duration::ZERO;
    let again = asker.range(gate.http_address, "grafana", "hot").await;
    assert_eq!(again.status, 429, "nothing is tried again on the word of before");
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ceiling_holds_whatever_is_free() {
    let (stub, gate) = start(limited).await;
    stub.manner().cached.insert("hot".into());
    believed(gate.http_address).await;
    let asker = Asker::new();
    let mut admitted = 0;
    for _ in 0..10 * BUDGET + 10 {
        admitted += u64::from(asker.range(gate.http_address, "grafana", "hot").await.status == 200);
    }
    assert_eq!(admitted, 10 * BUDGET);
    gate.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_that_comes_late_comes_to_nothing() {
    let (stub, gate) = start(limited).await;
    stub.manner().cached.insert("hot".into());
    believed(gate.http_address).await;
    stub.manner().takes = Duration::from_millis(700);
    let asker = Asker::new();
    for _ in 0..BUDGET {
        assert_eq!(asker.range(gate.http_address, "grafana", "hot").await.status, 200);
    }
    stub.manner().takes = Duration::ZERO;
    assert_eq!(asker.range(gate.http_address, "grafana", "cold").await.status, 429);
    gate.stop().await.expect("stops");
}
