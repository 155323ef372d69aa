//! The store as its callers see it: fidelity, retries, restarts, kills, retention, limits.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::labels::{IdentityHasher, Labels, LabelsBuf, ring_key};
use crate::tenant::TenantId;

const HOUR_MS: i64 = 3_600_000;
/// A fixed now: 2024-01-01, at the start of a block.
const NOW_MS: i64 = 1_704_067_200_000;
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

fn config(path: &Path) -> Config {
    // Small buffers, so that tests reach the disk's side of things.
    Config { path: path.to_owned(), write_buffer_bytes: 1 << 20, ..Config::default() }
}

fn open(path: &Path) -> Arc<Store> {
    Store::open(config(path)).expect("the store opens")
}

fn tenant(id: &str) -> TenantId {
    TenantId::parse(id).expect("a tenant")
}

fn labels(pairs: &[(&str, &str)]) -> LabelsBuf {
    let mut buf = LabelsBuf::new();
    for (name, value) in pairs {
        buf.push(name.as_bytes(), value.as_bytes());
    }
    buf
}

fn identity(store: &Store, labels: Labels<'_>) -> Identity {
    IdentityHasher::new(store.identity_secret()).identity(labels)
}

/// Writes one float with everything that a new series needs.
fn write(store: &Store, tenant: &TenantId, labels: &LabelsBuf, t_ms: i64, bits: u64) {
    let identity = identity(store, labels.as_labels());
    let mut writer = store.begin(tenant, NOW_MS, 3);
    writer.series(identity, labels.as_labels(), t_ms).expect("series");
    let key = ring_key(tenant.as_str(), labels.as_labels());
    writer.head(identity, key, SeriesKind::Float);
    writer.sample(identity, t_ms, bits, 0).expect("sample");
    writer.commit().expect("commit");
}

fn everything(store: &Store, tenant: &TenantId) -> Vec<SeriesSamples> {
    select(store, tenant, &[], TimeRange::ALL)
}

fn select(
    store: &Store,
    tenant: &TenantId,
    matchers: &[Matcher],
    range: TimeRange,
) -> Vec<SeriesSamples> {
    let selection = store.select(tenant, matchers, range).expect("select");
    selection.collect::<Result<_, _>>().expect("read")
}

fn heads(store: &Store) -> BTreeSet<(String, u128, u32, bool)> {
    let mut found = BTreeSet::new();
    store
        .for_each_head(|tenant, head| {
            let is_histogram = head.kind == SeriesKind::Histogram;
            let row = (tenant.to_string(), head.identity.0, head.ring_key.0, is_histogram);
            assert!(found.insert(row), "listed twice");
        })
        .expect("heads");
    found
}

fn float(t_ms: i64, bits: u64) -> Sample {
    Sample { t_ms, value: StoredValue::Float { bits, start_ms: 0 } }
}

/// What a kill at this moment would leave on the disk.
fn image_of(store: &Store) -> TempDir {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).expect("make");
        for entry in std::fs::read_dir(from).expect("list") {
            let entry = entry.expect("entry");
            let target = to.join(entry.file_name());
            if entry.file_type().expect("type").is_dir() {
                copy(&entry.path(), &target);
            } else {
                std::fs::copy(entry.path(), target).expect("copy");
            }
        }
    }
    let image = tempfile::tempdir().expect("tempdir");
    copy(&store.config.path, image.path());
    image
}

#[test]
fn every_kind_of_row_comes_back_as_it_went_in() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let a = tenant("a");
    let set = labels(&[("__name__", "up"), ("job", "x")]);
    let id = identity(&store, set.as_labels());
    let histogram: Vec<u8> = (0..=255).cycle().take(6000).collect();
    let exemplars = [b"one".to_vec(), b"two".to_vec(), Vec::new()];
    let metadata = Metadata { metric: b"up", kind: 2, help: b"h\0\xff", unit: b"" };

    let mut writer = store.begin(&a, NOW_MS, 10);
    writer.series(id, set.as_labels(), NOW_MS).expect("series");
    let float_bits =
        [STALE_BITS, f64::NAN.to_bits() | 77, (-0.0_f64).to_bits(), 1.5_f64.to_bits(), u64::MAX];
    for (t_ms, bits) in (NOW_MS..).zip(float_bits) {
        writer.sample(id, t_ms, bits, 0).expect("sample");
    }
    writer.sample(id, NOW_MS + 10, 7, -3).expect("sample with a start");
    writer.histogram(id, NOW_MS + 20, &histogram).expect("histogram");
    writer.histogram(id, NOW_MS + 21, b"").expect("histogram");
    for raw in &exemplars {
        writer.exemplar(id, NOW_MS + 5, raw).expect("exemplar");
    }
    writer.metadata(&metadata).expect("metadata");
    let committed = writer.commit().expect("commit");
    assert_eq!(committed, Committed { samples: 8, series: 1, exemplars: 3, metadata: 1 });

    let mut expect: Vec<Sample> =
        (NOW_MS..).zip(float_bits).map(|(t_ms, bits)| float(t_ms, bits)).collect();
    let value = StoredValue::Float { bits: 7, start_ms: -3 };
    expect.push(Sample { t_ms: NOW_MS + 10, value });
    expect.push(Sample { t_ms: NOW_MS + 20, value: StoredValue::Histogram(histogram.into()) });
    expect.push(Sample { t_ms: NOW_MS + 21, value: StoredValue::Histogram([].into()) });

    let image = image_of(&store);
    drop(store);
    for path in [dir.path(), image.path()] {
        let store = open(path);
        let found = everything(&store, &a);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].labels.as_labels().as_bytes(), set.as_labels().as_bytes());
        assert_eq!(found[0].samples, expect);
        let found = store.exemplars(&a, &[], TimeRange::ALL).expect("exemplars");
        let raws: BTreeSet<_> = found[0].exemplars.iter().map(|e| (e.t_ms, &*e.raw)).collect();
        assert_eq!(raws, exemplars.iter().map(|raw| (NOW_MS + 5, raw.as_slice())).collect());
        let early = TimeRange { start_ms: 0, end_ms: NOW_MS + 4 };
        assert_eq!(store.exemplars(&a, &[], early).expect("exemplars"), []);
        let owned = OwnedMetadata {
            metric: b"up".to_vec(),
            kind: 2,
            help: b"h\0\xff".to_vec(),
            unit: Vec::new(),
        };
        for metric in [None, Some(&b"up"[..])] {
            let found = store.metadata(&a, metric).expect("metadata");
            assert_eq!(found, std::slice::from_ref(&owned));
        }
        assert_eq!(store.metadata(&a, Some(b"u")).expect("metadata"), []);
        assert_eq!(store.metadata(&tenant("b"), None).expect("metadata"), []);
    }
}

#[test]
fn a_retried_push_changes_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let (a, set) = (tenant("a"), labels(&[("__name__", "up")]));
    let metadata = Metadata { metric: b"up", kind: 1, help: b"h", unit: b"s" };
    let push = || {
        write(&store, &a, &set, NOW_MS, STALE_BITS);
        let id = identity(&store, set.as_labels());
        let mut writer = store.begin(&a, NOW_MS, 2);
        writer.exemplar(id, NOW_MS, b"trace").expect("exemplar");
        writer.metadata(&metadata).expect("metadata");
        // Twice in one batch, too.
        writer.sample(id, NOW_MS, STALE_BITS, 0).expect("sample");
        writer.sample(id, NOW_MS, STALE_BITS, 0).expect("sample");
        writer.commit().expect("commit");
    };
    let state = || {
        (
            everything(&store, &a),
            heads(&store),
            store.exemplars(&a, &[], TimeRange::ALL).expect("exemplars"),
            store.metadata(&a, None).expect("metadata"),
        )
    };
    push();
    let first = state();
    assert_eq!(first.0[0].samples, [float(NOW_MS, STALE_BITS)]);
    push();
    assert_eq!(state(), first);
}

#[test]
fn tenants_with_equal_labels_share_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let set = labels(&[("__name__", "up")]);
    write(&store, &tenant("a"), &set, NOW_MS, 1);
    write(&store, &tenant("b"), &set, NOW_MS, 2);
    write(&store, &tenant("b"), &set, NOW_MS + 1, 3);
    drop(store);
    let store = open(dir.path());
    assert_eq!(everything(&store, &tenant("a"))[0].samples, [float(NOW_MS, 1)]);
    let found = everything(&store, &tenant("b"));
    assert_eq!(found[0].samples, [float(NOW_MS, 2), float(NOW_MS + 1, 3)]);
    assert_eq!(everything(&store, &tenant("c")), []);
    store.forget_tenant_head(&tenant("a")).expect("forget");
    assert_eq!(heads(&store).len(), 1);
    assert_eq!(store.head_range(&tenant("a")), None);
}

#[test]
fn a_writer_that_is_dropped_wrote_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let set = labels(&[("__name__", "up")]);
    let id = identity(&store, set.as_labels());
    let mut writer = store.begin(&tenant("a"), NOW_MS, 3);
    writer.series(id, set.as_labels(), NOW_MS).expect("series");
    writer.sample(id, NOW_MS, 1, 0).expect("sample");
    drop(writer);
    assert_eq!(everything(&store, &tenant("a")), []);
    drop(store);
    assert_eq!(open(dir.path()).tenant_ids(), []);
}

#[test]
fn a_series_is_one_across_blocks_and_in_the_order_of_time() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let (a, set) = (tenant("a"), labels(&[("__name__", "up")]));
    let times = [-1, 0, 1, -BLOCK_MS, BLOCK_MS - 1, -2 * BLOCK_MS].map(|d| NOW_MS + d);
    for (t_ms, bits) in times.into_iter().zip(0..) {
        write(&store, &a, &set, t_ms, bits);
    }
    let mut expect: Vec<Sample> =
        times.into_iter().zip(0..).map(|(t_ms, bits)| float(t_ms, bits)).collect();
    expect.sort_by_key(|sample| sample.t_ms);
    let found = everything(&store, &a);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].samples, expect);

    let range = TimeRange { start_ms: NOW_MS - 1, end_ms: NOW_MS };
    assert_eq!(select(&store, &a, &[], range)[0].samples, expect[2..4]);
    let range = TimeRange { start_ms: NOW_MS + 2, end_ms: NOW_MS + 3 };
    assert_eq!(select(&store, &a, &[], range), []);
    let range = TimeRange { start_ms: 1, end_ms: 0 };
    assert_eq!(select(&store, &a, &[], range), []);

    let id = identity(&store, set.as_labels());
    assert_eq!(store.newest_sample(&a, id).expect("read"), expect.last().cloned());
    assert_eq!(store.sample_at(&a, id, NOW_MS).expect("read"), Some(float(NOW_MS, 1)));
    assert_eq!(store.sample_at(&a, id, NOW_MS + 2).expect("read"), None);
    assert_eq!(store.sample_at(&a, Identity(1), NOW_MS).expect("read"), None);
    assert_eq!(store.newest_sample(&tenant("b"), id).expect("read"), None);
}

#[test]
fn case_b20_a_killed_store_knows_exactly_which_series_are_in_the_head() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let sets: Vec<LabelsBuf> =
        (0..500).map(|i| labels(&[("__name__", "up"), ("i", &i.to_string())])).collect();
    for (i, set) in sets.iter().enumerate() {
        write(&store, &tenant(["a", "b"][i % 2]), set, NOW_MS + i as i64, 1);
    }
    // A quarter leaves the head; one of them has come back before its row was dropped.
    let a = tenant("a");
    let ids: Vec<Identity> =
        sets.iter().step_by(4).map(|set| identity(&store, set.as_labels())).collect();
    let back = ids[7];
    let dropped = store.drop_heads(&a, &ids, Some(NOW_MS + 10), |id| id != back).expect("drop");
    assert_eq!(dropped, ids.len() - 1);
    // One series becomes a histogram.
    let histogram = identity(&store, sets[2].as_labels());
    let mut writer = store.begin(&a, NOW_MS, 1);
    writer.head(histogram, RingKey(9), SeriesKind::Histogram);
    writer.commit().expect("commit");

    let expect = heads(&store);
    assert_eq!(expect.len(), 500 - 124);
    assert!(expect.contains(&(
        "a".to_owned(),
        back.0,
        ring_key("a", sets[28].as_labels()).0,
        false
    )));
    assert!(expect.contains(&("a".to_owned(), histogram.0, 9, true)));
    let image = image_of(&store);
    let secret = store.identity_secret();
    drop(store);
    for path in [dir.path(), image.path()] {
        let store = open(path);
        assert_eq!(heads(&store), expect);
        assert_eq!(store.identity_secret(), secret);
        let range = HeadRange { oldest_ms: NOW_MS + 10, newest_ms: NOW_MS + 498 };
        assert_eq!(store.head_range(&a), Some(range));
        let mut seen = BTreeSet::new();
        let missing = store
            .for_each_head_series(&a, |id, labels| {
                assert_eq!(id, identity(&store, labels));
                assert!(seen.insert(("a".to_owned(), id.0)));
            })
            .expect("labels");
        assert_eq!(missing, 0);
        let listed = expect.iter().filter(|row| row.0 == "a");
        assert_eq!(seen, listed.map(|row| (row.0.clone(), row.1)).collect());
    }
}

#[test]
fn a_series_created_while_its_old_row_is_dropped_keeps_its_new_row() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let (a, id) = (tenant("a"), Identity(7));
    let create = || {
        let mut writer = store.begin(&a, NOW_MS, 1);
        writer.head(id, RingKey(1), SeriesKind::Float);
        writer.commit().expect("commit");
    };
    create();
    std::thread::scope(|scope| {
        let (committed, is_committed) = std::sync::mpsc::sync_channel(1);
        let is_gone = |_| {
            // The tracker creates the series anew right after it was asked.
            let committed = committed.clone();
            scope.spawn(move || {
                create();
                committed.send(()).expect("somebody listens");
            });
            let early = is_committed.recv_timeout(std::time::Duration::from_millis(50));
            assert!(early.is_err(), "the new row must not come before the delete");
            true
        };
        assert_eq!(store.drop_heads(&a, &[id], None, is_gone).expect("drop"), 1);
        is_committed.recv().expect("the push goes on");
    });
    assert_eq!(heads(&store).len(), 1);
}

const WRITER_STORE: &str = "FREEHOLD_TEST_WRITER_STORE";
const PUSH_SERIES: u64 = 100;

/// Not a test of its own: the process that the next tests kill or starve. Writes pushes, says so,
/// and ends at the first that is refused.
#[test]
#[ignore = "started by the tests that follow"]
fn endless_writer() {
    let Ok(path) = std::env::var(WRITER_STORE) else { return };
    let store = open(Path::new(&path));
    let a = tenant("a");
    let commit = |push: u64| {
        let mut writer = store.begin(&a, NOW_MS, 300);
        for i in 0..PUSH_SERIES {
            let number = push * PUSH_SERIES + i;
            let set = labels(&[("__name__", "up"), ("i", &number.to_string())]);
            let id = identity(&store, set.as_labels());
            writer.series(id, set.as_labels(), NOW_MS).expect("series");
            writer.head(id, RingKey(i as u32), SeriesKind::Float);
            writer.sample(id, NOW_MS, push, 0).expect("sample");
        }
        writer.commit()
    };
    let say = |text: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}").expect("stdout");
        out.flush().expect("stdout");
    };
    let mut push = 0;
    while commit(push).is_ok() {
        push += 1;
        say(format!("acknowledged {push}"));
    }
    assert!(matches!(commit(push), Err(StoreError::Stopped)));
    assert!(!store.is_writable());
    assert_eq!(everything(&store, &a).len() as u64, push * PUSH_SERIES, "reads go on");
    say(format!("refused after {push}"));
}

/// Checks that the first pushes are there; returns how many are, each of them whole.
fn count_whole_pushes(store: &Store, acknowledged: u64) -> u64 {
    let found = everything(store, &tenant("a"));
    let mut by_push: BTreeMap<u64, u64> = BTreeMap::new();
    for series in &found {
        let [Sample { value: StoredValue::Float { bits, .. }, .. }] = &series.samples[..] else {
            panic!("one float is written per series");
        };
        *by_push.entry(*bits).or_default() += 1;
    }
    for push in 0..acknowledged {
        assert_eq!(by_push.get(&push), Some(&PUSH_SERIES), "push {push} of {acknowledged}");
    }
    // What was under way is there whole or not at all, with its heads.
    assert!(by_push.values().all(|&samples| samples == PUSH_SERIES));
    assert_eq!(heads(store).len(), found.len());
    by_push.len() as u64
}

fn writer_command(program: &str, path: &Path) -> Command {
    let mut command = Command::new(program);
    command.env(WRITER_STORE, path).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

const WRITER_ARGS: [&str; 4] =
    ["store::tests::endless_writer", "--exact", "--ignored", "--nocapture"];

#[test]
fn a_kill_loses_no_acknowledged_sample() {
    let dir = tempfile::tempdir().expect("tempdir");
    let binary = std::env::current_exe().expect("this binary");
    let mut whole = 0;
    // Killed and started again over the same directory; the pushes begin anew each time.
    for least in [3, 40, 200] {
        let mut child = writer_command(&binary.to_string_lossy(), dir.path())
            .args(WRITER_ARGS)
            .spawn()
            .expect("the writer starts");
        let out = child.stdout.take().expect("piped");
        let mut acknowledged = 0;
        // Reading goes on after the kill: what is in the pipe was acknowledged before it.
        for line in BufReader::new(out).lines() {
            let line = line.expect("a line");
            if let Some((_, pushes)) = line.rsplit_once("acknowledged ") {
                acknowledged = pushes.parse().expect("a number");
                if acknowledged == least {
                    child.kill().expect("killed");
                }
            }
        }
        child.wait().expect("ended");
        assert!(acknowledged >= least, "the writer ended by itself");
        whole = count_whole_pushes(&open(dir.path()), acknowledged.max(whole));
    }
}

#[test]
fn a_full_disk_refuses_a_push_whole_and_keeps_the_rest() {
    let dir = tempfile::tempdir().expect("tempdir");
    drop(open(dir.path()));
    // No file may grow past a megabyte, which stops the journal as a full disk would.
    let script = "trap '' XFSZ; ulimit -f 2000; exec \"$0\" \"$@\"";
    let output = writer_command("sh", dir.path())
        .args(["-c", script])
        .arg(std::env::current_exe().expect("this binary"))
        .args(WRITER_ARGS)
        .output()
        .expect("the writer ran");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let (_, refused) = text.rsplit_once("refused after ").expect("refused in the end");
    let pushes: u64 = refused.lines().next().and_then(|n| n.parse().ok()).expect("a number");
    assert!(pushes > 10);

    let store = open(dir.path());
    // The push that was refused may have reached the disk in the end, but then whole.
    let whole = count_whole_pushes(&store, pushes);
    assert!(whole <= pushes + 1);
    write(&store, &tenant("a"), &labels(&[("__name__", "next")]), NOW_MS, 1);
}

#[test]
fn a_batch_cut_short_is_discarded_whole() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let a = tenant("a");
    write(&store, &a, &labels(&[("__name__", "kept")]), NOW_MS, 1);
    let journal_len = |image: &TempDir| {
        let bytes = std::fs::read(image.path().join("0.jnl")).expect("journal");
        bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
    };
    let before = journal_len(&image_of(&store));
    write(&store, &a, &labels(&[("__name__", "cut")]), NOW_MS, 2);
    let after = journal_len(&image_of(&store));
    assert!(after > before + 50);
    for cut in (before..after).step_by(7) {
        let image = image_of(&store);
        let journal = File::options().write(true).open(image.path().join("0.jnl")).expect("open");
        journal.set_len(cut as u64).expect("cut");
        let store = open(image.path());
        let found = everything(&store, &a);
        assert_eq!((found.len(), heads(&store).len()), (1, 1), "cut at {cut} of {after}");
        write(&store, &a, &labels(&[("__name__", "next")]), NOW_MS, 3);
        drop(store);
        assert_eq!(everything(&open(image.path()), &a).len(), 2, "cut at {cut}");
    }
}

#[test]
fn a_page_lost_with_the_machine_costs_only_what_came_after_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let a = tenant("a");
    for i in 0..200 {
        let set = labels(&[("__name__", "up"), ("i", &format!("{i:03}"))]);
        write(&store, &a, &set, NOW_MS, i);
    }
    for page in [1_usize, 4, 7] {
        let image = image_of(&store);
        let path = image.path().join("0.jnl");
        let mut bytes = std::fs::read(&path).expect("journal");
        assert!(bytes[page << 12..(page + 2) << 12].iter().any(|&byte| byte != 0));
        // The file system wrote later pages but not this one.
        bytes[page << 12..(page + 1) << 12].fill(0);
        std::fs::write(&path, bytes).expect("journal");
        let store = open(image.path());
        let found = everything(&store, &a);
        assert!((10..190).contains(&found.len()), "{} of 200", found.len());
        assert_eq!(heads(&store).len(), found.len());
        for (series, i) in found.iter().zip(0..) {
            assert_eq!(series.samples, [float(NOW_MS, i)]);
        }
    }
}

#[test]
fn retention_drops_whole_blocks_and_their_files() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let a = tenant("a");
    let (old, new) = (labels(&[("__name__", "old")]), labels(&[("__name__", "new")]));
    write(&store, &a, &old, NOW_MS - 1, 1);
    write(&store, &a, &new, NOW_MS + 1, 2);
    let mut writer = store.begin(&a, NOW_MS - 1, 1);
    writer.metadata(&Metadata { metric: b"old", kind: 0, help: b"", unit: b"" }).expect("row");
    writer.commit().expect("commit");
    let keyspaces = || std::fs::read_dir(dir.path().join("keyspaces")).expect("list").count();
    let before = keyspaces();

    let retention_ms = 72 * HOUR_MS;
    assert_eq!(store.apply_retention(NOW_MS + retention_ms - 1).expect("retention"), 0);
    let reader = store.select(&a, &[], TimeRange::ALL).expect("select");
    assert_eq!(store.apply_retention(NOW_MS + retention_ms).expect("retention"), 1);
    assert_eq!(reader.count(), 2, "a reader that was there before finishes undisturbed");
    let found = everything(&store, &a);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].samples, [float(NOW_MS + 1, 2)]);
    assert_eq!(store.metadata(&a, None).expect("metadata"), []);
    assert_eq!(keyspaces(), before - 3);
    drop(store);
    let store = open(dir.path());
    assert_eq!(everything(&store, &a).len(), 1);
    // A late sample makes the block anew.
    write(&store, &a, &old, NOW_MS - 1, 3);
    drop(store);
    assert_eq!(everything(&open(dir.path()), &a).len(), 2);
}

#[test]
fn strange_times_make_a_bounded_number_of_blocks() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let (a, id) = (tenant("a"), Identity(1));
    let write_at = |t_ms: i64| {
        let mut writer = store.begin(&a, NOW_MS, 1);
        writer.sample(id, t_ms, 1, 0)?;
        writer.commit()
    };
    let far = |i: i64| 1 + i * 10 * BLOCK_MS;
    for i in 0..16 {
        assert!(store.accepts(far(i), NOW_MS));
        write_at(far(i)).expect("room for some");
    }
    for t_ms in [far(17), i64::MAX, i64::MIN, NOW_MS + 2 * BLOCK_MS] {
        assert!(!store.accepts(t_ms, NOW_MS));
        let refused = write_at(t_ms);
        assert!(matches!(refused, Err(StoreError::TimeOutOfReach { .. })), "{refused:?}");
    }
    for t_ms in [NOW_MS, NOW_MS - 72 * HOUR_MS, NOW_MS + BLOCK_MS, far(3) + 1] {
        assert!(store.accepts(t_ms, NOW_MS));
        write_at(t_ms).expect("current times always have room");
    }
    assert_eq!(store.apply_retention(NOW_MS).expect("retention"), 16);
    write_at(i64::MAX).expect("there is room again");
    assert_eq!(store.newest_sample(&a, id).expect("read"), Some(float(i64::MAX, 1)));
}

#[test]
fn queries_are_bounded_and_say_by_what() {
    let dir = tempfile::tempdir().expect("tempdir");
    let a = tenant("a");
    let check = |change: fn(&mut Config), expect: &str| {
        let mut config = config(dir.path());
        change(&mut config);
        let store = Store::open(config).expect("open");
        for i in 0..3 {
            let set = labels(&[("__name__", "up"), ("i", &i.to_string())]);
            write(&store, &a, &set, NOW_MS, 1);
            write(&store, &a, &set, NOW_MS + 1, 1);
        }
        let error = store
            .select(&a, &[], TimeRange::ALL)
            .and_then(|selection| selection.collect::<Result<Vec<_>, _>>())
            .expect_err("over the bound");
        assert!(error.is_query_limit());
        assert_eq!(error.to_string(), expect);
    };
    check(
        |config| config.max_series_per_query = 2,
        "the query selects more than 2 series; narrow it or raise -store.max-series-per-query",
    );
    check(
        |config| config.max_samples_per_query = 5,
        "the query selects more than 5 samples; narrow it or raise -store.max-samples-per-query",
    );
    check(
        |config| config.max_bytes_per_query = 60,
        "the query selects more than 60 bytes; narrow it or raise -store.max-bytes-per-query",
    );
}

#[test]
fn a_store_in_use_or_from_the_future_is_refused_clearly() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let refused = Store::open(config(dir.path())).map(drop).expect_err("in use");
    assert!(matches!(refused, StoreError::Locked { .. }), "{refused:?}");
    assert!(refused.to_string().ends_with("is in use by another process"), "{refused}");
    store.meta.insert(FORMAT_KEY, 9_u32.to_be_bytes()).expect("write");
    drop(store);
    let refused = Store::open(config(dir.path())).map(drop).expect_err("newer");
    let found = matches!(refused, StoreError::NewerFormat { found: 9, supported: FORMAT, .. });
    assert!(found, "{refused:?}");

    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("write");
    let refused = Store::open(config(&file)).map(drop).expect_err("no directory");
    assert!(matches!(refused, StoreError::Directory { .. }), "{refused:?}");
}

#[test]
fn a_store_whose_making_was_cut_short_is_made_anew() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("0.jnl"), "").expect("write");
    let store = open(dir.path());
    write(&store, &tenant("a"), &labels(&[("__name__", "up")]), NOW_MS, 1);
}

#[test]
fn after_a_failed_write_the_store_reads_on_and_says_why_it_does_not_write() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let (a, set) = (tenant("a"), labels(&[("__name__", "up")]));
    write(&store, &a, &set, NOW_MS, 1);
    store.writable.store(false, Ordering::Release);
    let mut writer = store.begin(&a, NOW_MS, 1);
    writer.sample(identity(&store, set.as_labels()), NOW_MS, 2, 0).expect("row");
    assert!(matches!(writer.commit(), Err(StoreError::Stopped)));
    assert!(!store.is_writable());
    assert_eq!(everything(&store, &a)[0].samples, [float(NOW_MS, 1)]);
}

#[test]
fn absurd_settings_are_refused() {
    let check = |change: fn(&mut Config)| {
        let mut config = Config::default();
        assert_eq!(config.validate(), Ok(()));
        change(&mut config);
        assert!(config.validate().is_err());
    };
    check(|config| config.path = PathBuf::new());
    check(|config| config.retention = crate::units::Millis(1000));
    check(|config| config.sync_interval = crate::units::Millis(0));
    check(|config| config.write_buffer_bytes = 1);
}

/// Label sets over few names and values, so that matchers hit and miss.
fn any_labels() -> impl Strategy<Value = Vec<(String, String)>> {
    let value = prop::sample::select(vec!["", "a", "b", "ab", "x\0y"]);
    prop::collection::btree_map(
        prop::sample::select(vec!["__name__", "job", "z"]),
        value.prop_map(str::to_owned),
        0..4,
    )
    .prop_map(|map| map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn any_matcher() -> impl Strategy<Value = (MatchOp, &'static str, &'static str)> {
    use MatchOp::{Equal, NotEqual, NotRegex, Regex};
    (
        prop::sample::select(vec![Equal, NotEqual, Regex, NotRegex]),
        prop::sample::select(vec!["__name__", "job", "z", "none"]),
        prop::sample::select(vec!["", "a", "b", "a|b", "a.*", ".+", ".*", "a|", "x.y"]),
    )
}

#[test]
fn selections_agree_with_a_filter_over_everything() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let runs = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 60,
        ..ProptestConfig::default()
    });
    let sets = prop::collection::vec((any_labels(), -2..2_i64), 0..12);
    let matchers = prop::collection::vec(prop::collection::vec(any_matcher(), 0..3), 1..8);
    let result = runner.run(&(sets, matchers), |(sets, queries)| {
        // A fresh tenant per run is a fresh, empty set of series.
        runs.set(runs.get() + 1);
        let tenant = tenant(&format!("t{}", runs.get()));
        let mut expect: BTreeMap<OwnedLabels, BTreeSet<i64>> = BTreeMap::new();
        for (pairs, block) in &sets {
            let mut buf = LabelsBuf::new();
            for (name, value) in pairs {
                buf.push(name.as_bytes(), value.as_bytes());
            }
            let t_ms = NOW_MS + block * BLOCK_MS;
            write(&store, &tenant, &buf, t_ms, 5);
            expect.entry(owned(buf.as_labels())).or_default().insert(t_ms);
        }
        for query in queries {
            let parse = |(op, name, value): &(MatchOp, &str, &str)| {
                Matcher::new(*op, name.as_bytes(), value.as_bytes()).expect("valid")
            };
            let parsed: Vec<Matcher> = query.iter().map(parse).collect();
            let range = TimeRange { start_ms: NOW_MS - BLOCK_MS, end_ms: NOW_MS };
            let found: Vec<_> = select(&store, &tenant, &parsed, range)
                .iter()
                .map(|series| {
                    let times = series.samples.iter().map(|sample| sample.t_ms).collect();
                    (owned(series.labels.as_labels()), times)
                })
                .collect();
            let naive: Vec<(_, Vec<i64>)> = expect
                .iter()
                .filter(|(labels, _)| query.iter().all(|matcher| naive_match(*matcher, labels)))
                .map(|(labels, times)| {
                    let times = times.iter().copied();
                    let inside = |t: &i64| (range.start_ms..=range.end_ms).contains(t);
                    (labels.clone(), times.filter(inside).collect::<Vec<_>>())
                })
                .filter(|(_, times)| !times.is_empty())
                .collect();
            prop_assert_eq!(&found, &naive);

            let names: BTreeSet<&Vec<u8>> =
                naive.iter().flat_map(|(labels, _)| labels.iter().map(|(name, _)| name)).collect();
            let found = store.label_names(&tenant, &parsed, range).expect("names");
            prop_assert_eq!(found.iter().collect::<BTreeSet<_>>(), names);
            let values: Vec<Vec<u8>> = naive
                .iter()
                .flat_map(|(labels, _)| labels.iter())
                .filter(|(name, _)| name == b"job")
                .map(|(_, value)| value.clone())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
            let found = store.label_values(&tenant, b"job", &parsed, range).expect("values");
            prop_assert_eq!(found, values);
            prop_assert_eq!(
                store.series(&tenant, &parsed, range).expect("series").len(),
                naive.len()
            );
        }
        Ok(())
    });
    result.expect("agreement");
}

/// Names and values; they order as labels do.
type OwnedLabels = Vec<(Vec<u8>, Vec<u8>)>;

fn owned(labels: Labels<'_>) -> OwnedLabels {
    labels.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// The matchers' meaning, by a look at each of the patterns above.
fn naive_match((op, name, pattern): (MatchOp, &str, &str), labels: &[(Vec<u8>, Vec<u8>)]) -> bool {
    let value = labels
        .iter()
        .find(|(label, _)| label == name.as_bytes())
        .map_or(&b""[..], |(_, value)| value);
    let regex = match pattern {
        "a|b" => value == b"a" || value == b"b",
        "a.*" => value.starts_with(b"a"),
        ".+" => !value.is_empty(),
        ".*" => true,
        "a|" => value == b"a" || value.is_empty(),
        "x.y" => value == b"x\0y",
        exact => value == exact.as_bytes(),
    };
    match op {
        MatchOp::Equal => value == pattern.as_bytes(),
        MatchOp::NotEqual => value != pattern.as_bytes(),
        MatchOp::Regex => regex,
        MatchOp::NotRegex => !regex,
    }
}
