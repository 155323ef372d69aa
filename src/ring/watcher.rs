//! Follows a ring's key and hands every reading to a sink that publishes it.
//!
//! Health is judged against the time of the reading, so a reading is repeated while nothing
//! changes: members that died without a word grow old although nobody writes.
//!
//! Invariants: the sink hears of every reading in order, failed ones included, and decides what
//! the last good ring is still worth; a store that fails is asked in growing, bounded pauses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::exposition::Families;
use crate::ring::kv::ring_page;
use crate::ring::kv::{KvClient, KvCodec, KvError, KvValue, KvWatch, jittered_by_half};
use crate::ring::lifecycler::WallClock;
use crate::ring::model::RingReading;

/// Longest time between two readings of a store that answers. A sixth of the default heartbeat
/// timeout: a dead member is noticed late by no more than that.
pub const REREAD_MS: u64 = 10_000;

/// First pause after a failure; doubled for each in a row, jittered by half.
const BACK_OFF_MIN_MS: u64 = 500;
/// Longest pause: a store that is back is used again within this.
const BACK_OFF_MAX_MS: u64 = 16_000;
/// A read that takes longer has failed; without an end the ring would age unnoticed.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// While a store fails, another reason than the one logged last is logged after this at the
/// earliest: a cluster's servers may fail in turns, each in its own way.
const REASON_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// One reading of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingRead {
    Ok {
        reading: RingReading,
        /// When the store held this, Unix milliseconds.
        read_at_ms: i64,
    },
    /// The key is not there, or holds no members.
    Empty,
    /// The store did not answer, or what it holds cannot be understood.
    Failed(String),
}

/// What a sink says of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    InStep,
    /// The heartbeats are not of the ring that the sink has: it wants this value whole.
    OutOfStep,
}

/// Reads the values of one key in order, and may tell what is new from what it has read before.
/// A value, so that this room needs no format.
pub trait ReadRing: Send + 'static {
    /// Heartbeats speak of the last whole reading.
    fn read(&mut self, value: &[u8]) -> Result<RingReading, String>;

    /// Makes the next reading whole.
    fn forget(&mut self);
}

/// Every reading is whole.
impl ReadRing for KvCodec {
    fn read(&mut self, value: &[u8]) -> Result<RingReading, String> {
        (self.decode)(value).map(RingReading::Whole)
    }

    fn forget(&mut self) {}
}

/// A running watcher. It ends when this is stopped or dropped.
#[derive(Debug)]
pub struct Watcher {
    task: JoinHandle<()>,
    counts: Arc<Counts>,
}

/// How often a watcher has read, for those who outlive it.
#[derive(Debug, Default)]
pub struct Counts {
    reads: AtomicU64,
    failures: AtomicU64,
}

impl Counts {
    /// Readings so far, failed ones included.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Adds the families of a ring's watcher; `name` is the ring's label.
    pub fn read_metrics(&self, name: &str, families: &mut Families) {
        let mut reads = families.counters(
            "freehold_ring_reads_total",
            "Readings of the ring's stored value, failed ones included.",
        );
        reads.sample([("name", name)], self.reads() as f64);
        let mut failures = families.counters(
            "freehold_ring_read_failures_total",
            "Readings that brought no ring: no answer, or a value that cannot be understood.",
        );
        failures.sample([("name", name)], self.failures() as f64);
    }
}

impl Watcher {
    /// Starts the task `ring-watcher`, which owns `sink`.
    pub fn spawn(
        kv: KvClient,
        key: String,
        reader: impl ReadRing,
        clock: WallClock,
        sink: impl FnMut(RingRead) -> Taken + Send + 'static,
    ) -> Self {
        let counts = Arc::new(Counts::default());
        let run = Run { watch: kv.watch(&key), kv, key, reader, clock, counts: counts.clone() };
        #[expect(
            clippy::disallowed_methods,
            reason = "`Watcher` owns its one task, and `stop` ends it"
        )]
        let task = tokio::spawn(run.run(sink));
        Self { task, counts }
    }

    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// After this the sink is not called again.
    pub async fn stop(mut self) {
        self.task.abort();
        // Cancelled is what we asked for; a panic was reported by the panic hook.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Run<R> {
    kv: KvClient,
    key: String,
    reader: R,
    clock: WallClock,
    watch: KvWatch,
    counts: Arc<Counts>,
}

impl<R: ReadRing> Run<R> {
    async fn run(mut self, mut sink: impl FnMut(RingRead) -> Taken + Send + 'static) {
        let mut failures_in_row = 0_u32;
        let mut log = FailureLog::default();
        let mut reread_at = Instant::now() + Duration::from_millis(REREAD_MS);
        loop {
            let value = self.next(reread_at).await;
            reread_at = Instant::now() + Duration::from_millis(REREAD_MS);
            let is_answer = value.is_ok();
            self.counts.reads.fetch_add(1, Ordering::Relaxed);
            let read = self.understand(&value);
            if let RingRead::Failed(reason) = &read {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                log.failed(&self.key, reason);
            } else {
                log.read(&self.key);
            }
            if sink(read) == Taken::OutOfStep {
                self.reader.forget();
                // Whole, so it cannot be out of step again.
                sink(self.understand(&value));
            }
            if is_answer {
                // A value that cannot be understood needs no pause: the next one comes when
                // somebody writes it, or at the next rereading.
                failures_in_row = 0;
                continue;
            }
            let pause_ms = BACK_OFF_MIN_MS << failures_in_row.min(8);
            failures_in_row += 1;
            sleep(jittered_by_half(pause_ms.min(BACK_OFF_MAX_MS))).await;
        }
    }

    /// The next change, or the present value once `reread_at` has come.
    async fn next(&mut self, reread_at: Instant) -> Result<KvValue, KvError> {
        // The watch is cancel-safe: a change that the deadline cuts off is still there later.
        if let Ok(changed) = timeout_at(reread_at, self.watch.next()).await {
            return changed;
        }
        match tokio::time::timeout(READ_TIMEOUT, self.kv.get(&self.key)).await {
            Ok(value) => value,
            Err(_) => Err(self.kv.silent(READ_TIMEOUT)),
        }
    }

    fn understand(&mut self, value: &Result<KvValue, KvError>) -> RingRead {
        let value = match value {
            Ok(value) => value,
            Err(e) => return RingRead::Failed(e.to_string()),
        };
        let Some(bytes) = value.bytes.as_ref().filter(|bytes| !bytes.is_empty()) else {
            return RingRead::Empty;
        };
        match self.read(bytes) {
            Ok((RingReading::Whole(model), _)) if model.instances.is_empty() => RingRead::Empty,
            Ok((reading, copied_at_ms)) => RingRead::Ok {
                reading,
                // A copy of the ring is as old as the copying, however often it is read.
                read_at_ms: copied_at_ms.or(value.stored_at_ms).unwrap_or_else(|| (self.clock)()),
            },
            Err(reason) => RingRead::Failed(KvError::Value(reason).to_string()),
        }
    }

    /// A raw value, or a saved page, which tells when it was copied.
    fn read(&mut self, bytes: &Bytes) -> Result<(RingReading, Option<i64>), String> {
        if !ring_page::may_be_page(bytes) {
            return self.reader.read(bytes).map(|reading| (reading, None));
        }
        match ring_page::parse(bytes) {
            Ok(page) => {
                // What the reader remembers is of another ring from here on.
                self.reader.forget();
                Ok((RingReading::Whole(page.ring), page.stored_at_ms))
            }
            Err(page_error) => {
                let raw = self.reader.read(bytes).map(|reading| (reading, None));
                raw.map_err(|_| page_error.to_string())
            }
        }
    }
}

/// Says once that reading fails, and once that it goes on.
#[derive(Default)]
struct FailureLog {
    failing: Option<Logged>,
}

struct Logged {
    since: Instant,
    reason: String,
    at: Instant,
}

impl FailureLog {
    fn failed(&mut self, key: &str, reason: &str) {
        let now = Instant::now();
        let is_known =
            |logged: &Logged| logged.reason == reason || now - logged.at < REASON_LOG_INTERVAL;
        if self.failing.as_ref().is_some_and(is_known) {
            return;
        }
        tracing::warn!(key, reason, "the ring could not be read");
        let since = self.failing.as_ref().map_or(now, |logged| logged.since);
        self.failing = Some(Logged { since, reason: reason.to_owned(), at: now });
    }

    fn read(&mut self, key: &str) {
        if let Some(logged) = self.failing.take() {
            let failed_s = logged.since.elapsed().as_secs();
            tracing::info!(key, failed_s, "the ring is read again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::kv::file::FileKv;
    use crate::ring::kv::inmemory::InMemoryKv;
    use crate::ring::lifecycler::testing::{CODEC, clock, ring_of};
    use crate::ring::model::RingModel;
    use tokio::sync::mpsc;

    fn follow(kv: KvClient) -> (Watcher, mpsc::Receiver<RingRead>) {
        let (reads_tx, reads_rx) = mpsc::channel(1024);
        let sink = move |read| {
            reads_tx.try_send(read).expect("the test listens");
            Taken::InStep
        };
        (Watcher::spawn(kv, "ring".to_owned(), CODEC, clock(), sink), reads_rx)
    }

    fn put(kv: &InMemoryKv, bytes: Vec<u8>) {
        assert!(kv.replace("ring", kv.read("ring").version, bytes.into()));
    }

    fn at_ms(read: RingRead) -> i64 {
        match read {
            RingRead::Ok { read_at_ms, .. } => read_at_ms,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_reading_reaches_the_sink_and_quiet_rings_are_read_again() {
        let kv = InMemoryKv::default();
        let (watcher, mut reads) = follow(KvClient::InMemory(kv.clone()));
        assert_eq!(reads.recv().await, Some(RingRead::Empty));
        put(&kv, (CODEC.encode)(&ring_of(&["a"])));
        let first_ms = at_ms(reads.recv().await.unwrap());
        let again_ms = at_ms(reads.recv().await.unwrap());
        assert_eq!(again_ms - first_ms, REREAD_MS as i64);
        put(&kv, (CODEC.encode)(&RingModel::default()));
        assert_eq!(reads.recv().await, Some(RingRead::Empty), "a ring of nobody is empty");
        assert_eq!((watcher.counts().reads(), watcher.counts().failures()), (4, 0));
        watcher.stop().await;
        assert_eq!(reads.recv().await, None, "the sink went with the task");
    }

    #[tokio::test(start_paused = true)]
    async fn case_a25_a_failed_read_is_told_with_its_reason_and_tried_again() {
        let kv = InMemoryKv::default();
        put(&kv, (CODEC.encode)(&ring_of(&["a"])));
        let (watcher, mut reads) = follow(KvClient::InMemory(kv.clone()));
        at_ms(reads.recv().await.unwrap());
        kv.set_unreachable(true);
        let RingRead::Failed(reason) = reads.recv().await.unwrap() else { panic!("no failure") };
        assert!(reason.contains("unreachable"), "{reason}");
        kv.set_unreachable(false);
        let read = reads.recv().await.unwrap();
        assert!(matches!(read, RingRead::Ok { .. }), "{read:?}");
        assert_eq!(watcher.counts().failures(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_garbled_value_is_a_failure_until_a_good_one_comes() {
        let kv = InMemoryKv::default();
        put(&kv, b"garbage".to_vec());
        let (watcher, mut reads) = follow(KvClient::InMemory(kv.clone()));
        assert!(matches!(reads.recv().await.unwrap(), RingRead::Failed(_)));
        put(&kv, (CODEC.encode)(&ring_of(&["a"])));
        assert!(matches!(reads.recv().await.unwrap(), RingRead::Ok { .. }));
        assert_eq!(watcher.counts().failures(), 1);
    }

    /// Whole once after each `forget`, then heartbeats.
    struct Remembering {
        knows: bool,
    }

    impl ReadRing for Remembering {
        fn read(&mut self, value: &[u8]) -> Result<RingReading, String> {
            let model = (CODEC.decode)(value)?;
            let known = std::mem::replace(&mut self.knows, true);
            Ok(if known { RingReading::Heartbeats(Vec::new()) } else { RingReading::Whole(model) })
        }

        fn forget(&mut self) {
            self.knows = false;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_is_out_of_step_gets_the_same_value_whole() {
        let kv = InMemoryKv::default();
        put(&kv, (CODEC.encode)(&ring_of(&["a"])));
        let (reads_tx, mut reads) = mpsc::channel(1024);
        let sink = move |read: RingRead| {
            let RingRead::Ok { reading, .. } = read else { panic!("{read:?}") };
            let is_whole = matches!(reading, RingReading::Whole(_));
            reads_tx.try_send(is_whole).expect("the test listens");
            if is_whole { Taken::InStep } else { Taken::OutOfStep }
        };
        let (kv, reader) = (KvClient::InMemory(kv), Remembering { knows: false });
        let watcher = Watcher::spawn(kv, "ring".to_owned(), reader, clock(), sink);
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(reads.recv().await.unwrap());
        }
        assert_eq!(seen, [true, false, true, false, true]);
        assert_eq!(watcher.counts().reads(), 3, "a value that is read again was fetched once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_raw_value_that_starts_like_a_page_is_told_apart_by_content() {
        struct Braced;
        impl ReadRing for Braced {
            fn read(&mut self, value: &[u8]) -> Result<RingReading, String> {
                match value {
                    b"{raw" => Ok(RingReading::Whole(ring_of(&["a"]))),
                    _ => Err("not raw".to_owned()),
                }
            }

            fn forget(&mut self) {}
        }
        let kv = InMemoryKv::default();
        let (reads_tx, mut reads) = mpsc::channel(1024);
        let sink = move |read| {
            reads_tx.try_send(read).expect("the test listens");
            Taken::InStep
        };
        let client = KvClient::InMemory(kv.clone());
        let _watcher = Watcher::spawn(client, "ring".to_owned(), Braced, clock(), sink);
        assert_eq!(reads.recv().await, Some(RingRead::Empty));
        let mut check = async |bytes: &[u8], expect: &str| {
            put(&kv, bytes.to_vec());
            match reads.recv().await.unwrap() {
                RingRead::Failed(reason) => assert!(reason.contains(expect), "{reason}"),
                read => assert_eq!(expect, "", "{read:?}"),
            }
        };
        check(b"{raw", "").await;
        check(b"garbage", "not raw").await;
        check(b"{garbage", "/ring page").await;
    }

    #[tokio::test]
    async fn a_saved_page_and_a_raw_value_are_read_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let page = r#"{"shards":[{"id":"a","state":"ACTIVE","address":"a:1","zone":"",
            "timestamp":"2026-11-29 23:16:15 +0000 UTC","tokens":[1]}],
            "storageLastUpdated":"2026-11-29T23:16:33Z"}"#;
        std::fs::write(&path, page).unwrap();
        let poll = Duration::from_millis(5);
        let (_watcher, mut reads) = follow(KvClient::File(FileKv::new(path.clone(), poll)));
        let wait = Duration::from_secs(20);
        let read = tokio::time::timeout(wait, reads.recv()).await.unwrap().unwrap();
        assert_eq!(at_ms(read), 1_795_994_193_000, "as old as the page says");
        std::fs::write(dir.path().join("new"), (CODEC.encode)(&ring_of(&["b"]))).unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        let read = tokio::time::timeout(wait, reads.recv()).await.unwrap().unwrap();
        let RingRead::Ok { reading: RingReading::Whole(model), .. } = read else {
            panic!("{read:?}")
        };
        assert!(model.instances.contains_key("b"));
    }
}
