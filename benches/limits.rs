//! What a request pays for its limits.
//!
//! Bars: a bucket take costs at most 30 ns, one of 10,000 tenants on two threads 40 ns. Rival: a
//! mutex around the plainest bucket there is.
//!
//! Tenants are met in the order in which their names lie in memory, since a request has just read
//! its own; their buckets lie anywhere. Two threads either meet all tenants, each of which the
//! other has met last, or halves of their own, as senders that keep their connections do.
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use freehold::limits::{
    InstanceLimits, LabelSets, Limits, LocalLimits, Overrides, RuntimeFile, Shape,
};
use freehold::ratelimit::{Bucket, Budget, Ewma, RECHECK_PERIOD, TenantLimiter};
use freehold::tenant::TenantId;

/// Time between two takes; the rate is such that about every second one is refused.
const STEP_NS: i64 = 1_000;
const RATE: f64 = 500_000.0;

fn buckets(c: &mut Criterion) {
    let mut group = c.benchmark_group("limits/take");
    group.bench_function("bucket", |b| {
        let mut bucket = Bucket::new(RATE, 1_000);
        let mut now_ns = 0;
        b.iter(|| {
            now_ns += STEP_NS;
            bucket.take(black_box(1), black_box(now_ns))
        });
    });
    group.bench_function("rival_mutex", |b| {
        // (credits, time of the last take)
        let bucket = Mutex::new((1_000.0_f64, 0_i64));
        let mut now_ns = 0;
        b.iter(|| {
            now_ns += STEP_NS;
            let (n, now_ns) = (black_box(1.0), black_box(now_ns));
            let mut bucket = bucket.lock().expect("no panic");
            let credits = bucket.0 + (now_ns - bucket.1) as f64 / 1e9 * RATE;
            let credits = credits.min(1_000.0) - n;
            let admitted = credits >= 0.0;
            if admitted {
                *bucket = (credits, now_ns);
            }
            admitted
        });
    });
    let tenants: Vec<TenantId> =
        (0..10_000).map(|i| TenantId::parse(&format!("tenant-{i}")).expect("valid")).collect();
    group.bench_function("tenant_of_10k", |b| {
        let limiter = TenantLimiter::new(RECHECK_PERIOD);
        let mut now_ns = 0;
        let mut met = tenants.iter().cycle();
        b.iter(|| {
            now_ns += STEP_NS;
            take(&limiter, met.next().expect("endless"), now_ns)
        });
    });
    let (first, second) = tenants.split_at(tenants.len() / 2);
    group.bench_function("tenant_of_10k_two_threads", |b| {
        let limiter = TenantLimiter::new(RECHECK_PERIOD);
        let turned = [second, first].concat();
        b.iter_custom(|takes| two_threads(&limiter, [&tenants, &turned], takes));
    });
    group.bench_function("tenant_of_10k_two_threads_of_5k_each", |b| {
        let limiter = TenantLimiter::new(RECHECK_PERIOD);
        b.iter_custom(|takes| two_threads(&limiter, [first, second], takes));
    });
    group.bench_function("ewma_add", |b| {
        let ewma = Ewma::new(0.2, std::time::Duration::from_secs(1));
        b.iter(|| ewma.add(black_box(1_000)));
    });
    group.finish();
}

fn take(limiter: &TenantLimiter, tenant: &TenantId, now_ns: i64) -> bool {
    let budget = || Budget { rate: RATE, burst: 1_000 };
    limiter.take(tenant, black_box(1), now_ns, budget).is_ok()
}

/// Time of the slower of two threads that each take so often, at once.
fn two_threads(limiter: &TenantLimiter, met: [&[TenantId]; 2], takes: u64) -> Duration {
    std::thread::scope(|scope| {
        let running = met.map(|tenants| {
            scope.spawn(move || {
                let start = Instant::now();
                let mut now_ns = 0;
                for (_, tenant) in (0..takes).zip(tenants.iter().cycle()) {
                    now_ns += STEP_NS;
                    black_box(take(limiter, tenant, now_ns));
                }
                start.elapsed()
            })
        });
        running.map(|thread| thread.join().expect("no panic")).into_iter().max().unwrap_or_default()
    })
}

fn of_a_tenant(c: &mut Criterion) {
    let mut group = c.benchmark_group("limits/tenant");
    let overrides = Overrides::new(Limits::default(), InstanceLimits::default());
    let text: String = (0..10_000).map(|i| format!("  t{i}: {{ingestion_rate: {i}}}\n")).collect();
    let text = format!("overrides:\n{text}");
    overrides.publish(overrides.parse(&text).expect("valid"));
    let tenant = TenantId::parse("t5000").expect("valid");
    group.bench_function("load_and_find", |b| {
        b.iter(|| overrides.load().limits(black_box(&tenant)).ingestion_rate);
    });
    let shape = Shape {
        healthy_instances: 100,
        zones_count: 3,
        zone_awareness: true,
        replication_factor: 3,
        shard_by_all_labels: true,
        shard_size: 6.0,
        share: None,
    };
    let limits = Limits { max_global_series_per_user: 1_000_000, ..Limits::default() };
    group.bench_function("local_limits", |b| {
        b.iter(|| LocalLimits::new(black_box(&limits), black_box(&shape)));
    });
    group.bench_function("match_10_label_sets", |b| {
        let sets = (0..10).map(|i| ([("job".to_owned(), format!("job-{i}"))].into(), 100));
        let sets = LabelSets::new(sets.collect()).expect("unique");
        let series: [(&[u8], &[u8]); 3] =
            [(b"__name__", b"up"), (b"instance", b"i-1"), (b"job", b"job-7")];
        let label = |name: &[u8]| {
            series.iter().find(|(known, _)| *known == name).map_or(&b""[..], |(_, value)| value)
        };
        let mut matched = Vec::new();
        b.iter(|| {
            sets.matches(label, &mut matched);
            matched.len()
        });
    });
    group.sample_size(10);
    group.bench_function("parse_10k_tenants", |b| {
        let (limits, instance) = (Limits::default(), InstanceLimits::default());
        b.iter(|| RuntimeFile::parse(black_box(&text), &limits, &instance).expect("valid"));
    });
    group.finish();
}

criterion_group!(benches, buckets, of_a_tenant);
criterion_main!(benches);
