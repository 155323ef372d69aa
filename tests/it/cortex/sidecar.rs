//! Sidecars before unmodified ingesters, behind an unmodified distributor and querier.
//!
//! What must hold: what was acknowledged can be read back; a sidecar counts what its ingester
//! has; a scale-up refuses nothing once the limit is on owned series; who restarts, ingester or
//! sidecar, costs the client tries and nothing else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::beside::{Beside, Client, Samples, Setup, note};
use super::cluster::{unix_ms, until};
use super::{ONE_AT_A_TIME, flags};
use crate::process::is_long;

/// Counts agree again within this, whatever was killed: a poll, a listing, a poll.
const EXACT_WITHIN: Duration = Duration::from_secs(60);

/// In the ring after so many and in the memory of the first three only.
const FULL: usize = 2400;
const NEW: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pushed_through_sidecars_reads_back_equal_and_is_counted_equal() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for stream in [false, true] {
        let setup = Setup {
            replication_factor: 3,
            distributor: vec![
                format!("-distributor.use-stream-push={stream}"),
                "-ingester.client.grpc-compression=snappy-block".to_owned(),
            ],
            ..Setup::default()
        };
        let Some(mut cluster) = setup.start(4).await else { return };
        let mut samples = Samples::new();
        cluster.push_all("t1", 0..3000, 500, &mut samples).await;
        cluster.push_all("t1", 0..3000, 700, &mut samples).await;
        println!("streams {stream}:");
        cluster.until_exact(EXACT_WITHIN).await;
        let counts = cluster.counts().await;
        assert_eq!(counts.iter().map(|(theirs, _)| theirs).sum::<u64>(), 9000, "{counts:?}");
        let read = cluster.read("t1").await;
        let count = |samples: &Samples| samples.values().map(BTreeMap::len).sum::<usize>();
        println!("  {} samples of {} series read back", count(&read), read.len());
        assert!(read == samples, "{} and {} samples", count(&read), count(&samples));

        if stream {
            differing_settings_are_told(&mut cluster).await;
        }
    }
}

async fn differing_settings_are_told(cluster: &mut Beside) {
    let differ = "freehold_ingester_settings_differ";
    for pair in &cluster.pairs {
        assert_eq!(pair.sidecar_metric(differ, &[]).await, 0.0);
        assert_eq!(pair.sidecar_metric("freehold_ingester_settings_check_failing", &[]).await, 0.0);
    }
    let pair = &mut cluster.pairs[0];
    pair.kill_sidecar();
    pair.with_sidecar_flag("-distributor.extend-writes=false");
    pair.start_sidecar();
    let label = "setting=\"-distributor.extend-writes\"";
    until("the setting is named", async || pair.sidecar_metric(differ, &[label]).await == 1.0)
        .await;
    assert_eq!(pair.sidecar_metric(differ, &[]).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_refuses_nothing_once_the_limit_is_on_owned_series() {
    scale_up(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_refuses_nothing_where_the_ring_is_on_gossip() {
    scale_up(true).await;
}

async fn scale_up(is_gossiped: bool) {
    let _alone = ONE_AT_A_TIME.lock().await;
    let limits = tempfile::tempdir().expect("a directory");
    let file = |name: &str, limit: usize| {
        let path = limits.path().join(name);
        let text = format!("overrides:\n  cortex:\n    max_global_series_per_user: {limit}\n");
        std::fs::write(&path, text).expect("written");
        format!("-runtime-config.file={}", path.display())
    };
    // The tenant `cortex` is left to the ingesters' own limits: what they refuse is the measure.
    let setup = Setup {
        replication_factor: 1,
        ingester: vec![file("ingester.yaml", 3000)],
        sidecar: vec![file("sidecar.yaml", 0), "-ingester.max-global-series-per-user=3000".into()],
        is_gossiped,
        ..Setup::default()
    };
    let Some(mut cluster) = setup.start(3).await else { return };
    let mut samples = Samples::new();
    for tenant in ["cortex", "unenforced", "enforced"] {
        cluster.push_all(tenant, 0..FULL, 400, &mut samples).await;
    }
    cluster.grow_to(6).await;
    let alone = refused(cluster.client, "cortex").await;
    let unenforced = refused(cluster.client, "unenforced").await;
    for pair in &mut cluster.pairs {
        pair.kill_sidecar();
        pair.with_sidecar_flag("-ingester.owned-series-limit-enforcement-enabled=true");
        pair.start_sidecar();
    }
    cluster.grow_to(6).await;
    let enforced = refused(cluster.client, "enforced").await;
    println!(
        "refused of {NEW}: {} by Cortex alone, {} by sidecars without enforcement, {} with it",
        alone.len(),
        unenforced.len(),
        enforced.len(),
    );
    assert_eq!(enforced, Vec::<String>::new());
    assert!((100..=200).contains(&alone.len()), "{alone:?}");
    assert!(unenforced.len().abs_diff(alone.len()) <= 40, "{unenforced:?}");
    let texts = |refused: &[String]| {
        let text = refused[0].split("desc = ").nth(1).unwrap_or(&refused[0]);
        text.replace("user=cortex", "user=_").replace("user=unenforced", "user=_")
    };
    println!("  {}\n  {}", texts(&alone), texts(&unenforced));
    let limit = "per-user series limit of 3000 exceeded";
    assert!(alone.iter().chain(&unenforced).all(|text| text.contains(limit)), "{unenforced:?}");
    cluster.until_exact(EXACT_WITHIN).await;
}

/// What refused the tenant's new series, pushed one by one.
async fn refused(client: Client, tenant: &str) -> Vec<String> {
    let mut refused = Vec::new();
    for number in FULL..FULL + NEW {
        let (_, answer) =
            client.push_persistently(tenant, number..number + 1, unix_ms(), 0.0).await;
        match answer.status {
            200 => {}
            400 => refused.push(answer.body),
            other => panic!("{other}: {}", answer.body),
        }
    }
    refused
}

/// Writers that go on until stopped, each with series of its own, and what they were told.
#[derive(Default)]
struct Load {
    stopped: AtomicBool,
    acknowledged: AtomicUsize,
    samples: Mutex<Samples>,
    /// How often each status came.
    statuses: Mutex<BTreeMap<u16, usize>>,
}

impl Load {
    async fn write(&self, client: Client, series: Range<usize>) {
        for round in 0.. {
            // New ones come in all the time, so that some are under way whatever is killed when.
            let end = (series.start + 50 + 10 * round).min(series.end);
            let (at_ms, offset) = (unix_ms(), round as f64 / 8.0);
            let part = series.start..end;
            let (retried, answer) =
                client.push_persistently("t1", part.clone(), at_ms, offset).await;
            let mut statuses = self.statuses.lock().expect("sound");
            for status in retried.into_iter().chain([answer.status]) {
                *statuses.entry(status).or_default() += 1;
            }
            if answer.status == 200 {
                note(&mut self.samples.lock().expect("sound"), part, at_ms, offset);
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    async fn until_more(&self, pushes: usize) -> Duration {
        let started = tokio::time::Instant::now();
        let target = self.acknowledged.load(Ordering::Relaxed) + pushes;
        until("pushes are acknowledged", async || {
            self.acknowledged.load(Ordering::Relaxed) >= target
        })
        .await;
        started.elapsed()
    }
}

/// Both of a pair are killed under load, one after the other.
async fn killed_under_load(stream: bool) {
    const WRITERS: usize = 3;
    let setup = Setup {
        replication_factor: 1,
        distributor: vec![
            format!("-distributor.use-stream-push={stream}"),
            // The load is what the machine bears, not what a tenant may.
            "-distributor.ingestion-rate-limit=1e9".to_owned(),
            "-distributor.ingestion-burst-size=1000000000".to_owned(),
        ],
        ..Setup::default()
    };
    let Some(mut cluster) = setup.start(2).await else { return };
    let series_each = if is_long() { 3000 } else { 600 };
    let load = Arc::new(Load::default());
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (load, client) = (Arc::clone(&load), cluster.client);
        let series = writer * series_each..(writer + 1) * series_each;
        writers.spawn(async move { load.write(client, series).await });
    }
    println!("streams {stream}:");
    for _ in 0..if is_long() { 8 } else { 1 } {
        load.until_more(30).await;
        let pair = &mut cluster.pairs[0];
        pair.kill_ingester();
        // Long enough for pushes to fail.
        tokio::time::sleep(Duration::from_millis(500)).await;
        pair.start_ingester();
        pair.until_ready().await;
        let resumed = load.until_more(30).await;
        println!("  30 pushes acknowledged {resumed:.1?} after the ingester was ready again");

        let pair = &mut cluster.pairs[0];
        pair.kill_sidecar();
        tokio::time::sleep(Duration::from_millis(500)).await;
        pair.start_sidecar();
        pair.until_ready().await;
        let resumed = load.until_more(30).await;
        println!("  30 pushes acknowledged {resumed:.1?} after the sidecar was ready again");
    }
    load.stopped.store(true, Ordering::Relaxed);
    while let Some(ended) = writers.join_next().await {
        ended.expect("no panic");
    }
    cluster.until_exact(EXACT_WITHIN).await;
    let statuses = load.statuses.lock().expect("sound").clone();
    let samples = load.samples.lock().expect("sound").clone();
    let read = cluster.read("t1").await;
    let lost = samples.iter().flat_map(|(number, acknowledged)| {
        let read = read.get(number);
        acknowledged
            .iter()
            .filter(move |&(at_ms, value)| read.and_then(|read| read.get(at_ms)) != Some(value))
    });
    let lost = lost.count();
    let acknowledged = samples.values().map(BTreeMap::len).sum::<usize>();
    println!("  {lost} of {acknowledged} acknowledged samples lost; answers {statuses:?}");
    assert_eq!(lost, 0);
    assert!(statuses.keys().all(|status| *status == 200 || *status >= 500), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_killed_under_load_costs_tries_and_no_acknowledged_sample() {
    let _alone = ONE_AT_A_TIME.lock().await;
    killed_under_load(false).await;
    killed_under_load(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_starts_lists_its_ingester_and_follows_its_flush() {
    let setup = Setup {
        replication_factor: 1,
        sidecar: flags(&["-ingester.max-global-series-per-user=4000"]),
        ..Setup::default()
    };
    let alone = ONE_AT_A_TIME.lock().await;
    let Some(mut cluster) = setup.start(1).await else { return };
    let mut samples = Samples::new();
    for tenant in ["t1", "t2"] {
        cluster.push_all(tenant, 0..4000, 1000, &mut samples).await;
    }
    let pair = &mut cluster.pairs[0];
    pair.kill_sidecar();
    pair.kill_ingester();
    pair.start_sidecar();
    until("readiness says what it waits for", async || {
        pair.ready()
            .await
            .is_some_and(|ready| ready.status == 503 && ready.body.contains("upstream"))
    })
    .await;
    pair.start_ingester();
    pair.until_ready().await;
    assert_eq!(cluster.counts().await, [(8000, 8000)]);
    let pair = &cluster.pairs[0];
    let listings = pair
        .sidecar_metric("freehold_ingester_upstream_listings_total", &["reason=\"load\""])
        .await;
    println!("counted 8000 of 8000 when ready, {listings} listings");
    assert_eq!(listings, 2.0);
    // At the limit what is there passes, and what is new does not.
    let (_, answer) = cluster.client.push_persistently("t1", 0..4000, unix_ms(), 0.5).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let (_, answer) = cluster.client.push_persistently("t1", 4000..4001, unix_ms(), 0.0).await;
    assert_eq!(answer.status, 400, "{}", answer.body);

    let status = pair.flush().await;
    assert!((200..300).contains(&status), "{status}");
    until("the head is empty", async || {
        pair.upstream_metric("cortex_ingester_memory_series").await == 0.0
    })
    .await;
    // From here on only time passes.
    drop(alone);
    println!("flushed:");
    cluster.until_exact(EXACT_WITHIN + Duration::from_secs(15)).await;
    let (_, answer) = cluster.client.push_persistently("t1", 4000..4001, unix_ms(), 0.0).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}
