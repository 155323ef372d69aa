//! Buckets per tenant with changing limits: `rate_limiter.json`.

use std::collections::HashMap;
use std::time::Duration;

use freehold::ratelimit::{RATE_UNLIMITED, Strategy, TenantLimiter};
use freehold::tenant::TenantId;
use serde_json::Value;

use crate::vectors::{array, bits, read, text};

#[test]
fn rate_limiter() {
    let vectors = read("rate_limiter");
    assert_eq!(vectors["rate_inf"].as_f64(), Some(RATE_UNLIMITED));
    for trace in array(&vectors, "traces") {
        replay(trace);
    }
}

fn replay(trace: &Value) {
    let name = text(trace, "name");
    let strategy = match text(trace, "strategy") {
        "local" | "local_native_histogram" => Strategy::Local,
        "global" | "global_native_histogram" => Strategy::Global,
        "infinite" => Strategy::Infinite,
        other => panic!("unknown strategy {other}"),
    };
    let recheck_ns = trace["recheck_period_ns"].as_u64().expect("recheck period");
    let limiter = TenantLimiter::new(Duration::from_nanos(recheck_ns));
    let mut healthy = count(&trace["initial_healthy"]);
    let mut limits = HashMap::new();
    for initial in array(trace, "initial") {
        set(&mut limits, initial);
    }
    for (i, step) in array(trace, "steps").iter().enumerate() {
        if step.get("set").is_some() {
            set(&mut limits, &step["set"]);
        }
        if step.get("set_healthy").is_some() {
            healthy = count(&step["set_healthy"]);
        }
        let tenant = TenantId::parse(text(step, "tenant")).expect("tenant");
        let now_ns = step["t_ns"].as_i64().expect("time");
        let n = step["n"].as_u64().expect("n");
        let taken = limiter.take(&tenant, n, now_ns, || {
            let (rate, burst) = limits[tenant.as_str()];
            strategy.budget(rate, burst, healthy)
        });
        let context = format!("{name}, step {i}: {step}");
        assert_eq!(Some(taken.is_ok()), step["allowed"].as_bool(), "{context}");
        let view = limiter.view(&tenant, now_ns).expect("the tenant has a bucket");
        assert_eq!(view.credits.to_bits(), bits(&step["tokens_after_bits"]), "{context}");
        assert_eq!(Some(view.rate), step["limit_after"].as_f64(), "{context}");
        assert_eq!(Some(view.burst), step["burst_after"].as_u64(), "{context}");
    }
}

fn set(limits: &mut HashMap<String, (f64, u64)>, values: &Value) {
    let rate = values["rate"].as_f64().expect("rate");
    let burst = values["burst"].as_u64().expect("burst");
    limits.insert(text(values, "tenant").to_owned(), (rate, burst));
}

fn count(value: &Value) -> usize {
    value.as_u64().and_then(|n| usize::try_from(n).ok()).expect("count")
}
