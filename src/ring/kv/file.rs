//! A ring kept in a file: a raw value or a saved page, put there by whoever can reach the store.
//!
//! Read only. The file is looked at in an interval rather than through the system's change
//! notices, which do not reach across the network and container mounts such files come from.
//!
//! Invariant: a file that vanishes is an error once it has been there, not an empty ring; the
//! reader keeps the last good one.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior};

use crate::ring::kv::{KvError, KvValue};

/// Largest ring that is read. 1000 members of 512 tokens are 3 MB raw and 6 MB as a page.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A file changed less than this before it was read may change again under the same time stamp;
/// file systems keep stamps as coarse as two seconds.
const STAMP_RESOLUTION: Duration = Duration::from_secs(2);

/// Clones share the one look at the file that may be under way.
#[derive(Clone, Debug)]
pub struct FileKv {
    path: PathBuf,
    poll_interval: Duration,
    /// A look at a dead mount never ends and cannot be ended. One at a time, so that it costs
    /// one thread and not one for each time that we wanted to look.
    looking: Arc<Semaphore>,
}

#[derive(Debug)]
pub struct FileWatch {
    kv: FileKv,
    ticks: tokio::time::Interval,
    last: Option<Seen>,
    /// The last look failed, so the next good one is news even if the content is not.
    has_failed: bool,
}

/// What the last good read found.
#[derive(Debug)]
struct Seen {
    stamp: Stamp,
    value: KvValue,
    /// The stamp was old enough when we read, so an equal stamp means equal content.
    is_settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    len: u64,
}

impl FileKv {
    pub fn new(path: PathBuf, poll_interval: Duration) -> Self {
        Self { path, poll_interval, looking: Arc::new(Semaphore::new(1)) }
    }

    pub(super) async fn get(&self) -> Result<KvValue, KvError> {
        let seen = self.read_off_thread().await?;
        Ok(seen.map(|seen| seen.value).unwrap_or_default())
    }

    pub(super) fn watch(&self) -> FileWatch {
        let mut ticks = tokio::time::interval_at(Instant::now(), self.poll_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        FileWatch { kv: self.clone(), ticks, last: None, has_failed: false }
    }

    async fn stamp(&self) -> Option<Stamp> {
        let look = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some(Stamp { modified: meta.modified().ok()?, len: meta.len() })
        };
        self.off_thread(look).await.ok()?
    }

    async fn read_off_thread(&self) -> Result<Option<Seen>, KvError> {
        self.off_thread(read).await?
    }

    /// Looking may block for as long as a network mount likes.
    async fn off_thread<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Result<T, KvError> {
        let failed = |e: String| read_error(&self.path, e);
        let looking = Arc::clone(&self.looking).acquire_owned().await;
        let looking = looking.map_err(|e| failed(e.to_string()))?;
        let path = self.path.clone();
        let seen = tokio::task::spawn_blocking(move || {
            let seen = look(&path);
            drop(looking);
            seen
        });
        seen.await.map_err(|e| failed(e.to_string()))
    }
}

impl FileWatch {
    pub(super) async fn next(&mut self) -> Result<KvValue, KvError> {
        loop {
            self.ticks.tick().await;
            if self.is_unchanged().await {
                continue;
            }
            let seen = match self.kv.read_off_thread().await {
                Ok(Some(seen)) => seen,
                Ok(None) if self.last.is_none() && !self.has_failed => {
                    // Said once; from then on a missing file is one that has gone.
                    self.has_failed = true;
                    return Ok(KvValue::default());
                }
                Ok(None) => {
                    self.has_failed = true;
                    return Err(read_error(&self.kv.path, "there is no such file".to_owned()));
                }
                Err(e) => {
                    self.has_failed = true;
                    return Err(e);
                }
            };
            let was_failing = std::mem::take(&mut self.has_failed);
            let is_new = self.last.as_ref().is_none_or(|last| last.value != seen.value);
            let value = seen.value.clone();
            self.last = Some(seen);
            if is_new || was_failing {
                return Ok(value);
            }
        }
    }

    async fn is_unchanged(&self) -> bool {
        match &self.last {
            Some(last) if last.is_settled && !self.has_failed => {
                self.kv.stamp().await == Some(last.stamp)
            }
            _ => false,
        }
    }
}

/// `None`: there is no such file.
fn read(path: &Path) -> Result<Option<Seen>, KvError> {
    let error = |e: std::io::Error| read_error(path, e.to_string());
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(error(e)),
    };
    // The stamp is taken before the content: a change in between is then seen at the next look.
    let meta = file.metadata().map_err(error)?;
    let stamp = Stamp { modified: meta.modified().map_err(error)?, len: meta.len() };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(error)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let path = path.display().to_string();
        return Err(KvError::TooLarge { path, bytes_max: FILE_BYTES_MAX });
    }
    let is_settled = stamp.modified.elapsed().is_ok_and(|age| age > STAMP_RESOLUTION);
    let value =
        KvValue { bytes: Some(bytes.into()), version: 0, stored_at_ms: unix_ms(stamp.modified) };
    Ok(Some(Seen { stamp, value, is_settled }))
}

fn unix_ms(time: SystemTime) -> Option<i64> {
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

fn read_error(path: &Path, reason: String) -> KvError {
    KvError::Read { path: path.display().to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const POLL: Duration = Duration::from_millis(10);

    async fn next_within_deadline(watch: &mut FileWatch) -> Result<KvValue, KvError> {
        tokio::time::timeout(Duration::from_secs(20), watch.next()).await.expect("a value in time")
    }

    #[tokio::test]
    async fn a_change_is_seen_even_under_an_equal_time_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        fs::write(&path, "one").unwrap();
        let stamp = fs::metadata(&path).unwrap().modified().unwrap();
        let mut watch = FileKv::new(path.clone(), POLL).watch();
        let first = next_within_deadline(&mut watch).await.unwrap();
        assert_eq!(first.bytes.as_deref(), Some(&b"one"[..]));
        assert_eq!(first.stored_at_ms, unix_ms(stamp));
        fs::write(&path, "two").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(stamp).unwrap();
        let second = next_within_deadline(&mut watch).await.unwrap();
        assert_eq!(second.bytes.as_deref(), Some(&b"two"[..]));
    }

    #[tokio::test]
    async fn a_settled_file_is_read_again_only_when_its_stamp_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        fs::write(&path, "one").unwrap();
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        let old = written - Duration::from_secs(60);
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        let mut watch = FileKv::new(path.clone(), POLL).watch();
        next_within_deadline(&mut watch).await.unwrap();
        assert!(watch.is_unchanged().await);
        fs::write(&path, "three").unwrap();
        assert!(!watch.is_unchanged().await);
        let value = next_within_deadline(&mut watch).await.unwrap();
        assert_eq!(value.bytes.as_deref(), Some(&b"three"[..]));
    }

    #[tokio::test]
    async fn a_file_that_goes_is_an_error_and_its_return_is_news() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let kv = FileKv::new(path.clone(), POLL);
        let mut watch = kv.watch();
        assert_eq!(next_within_deadline(&mut watch).await.unwrap(), KvValue::default());
        assert_eq!(kv.get().await.unwrap(), KvValue::default());
        assert!(next_within_deadline(&mut watch).await.is_err());
        fs::write(&path, "one").unwrap();
        let stamp = fs::metadata(&path).unwrap().modified().unwrap();
        // Errors may come until the file is there; the value must follow.
        let value = loop {
            if let Ok(value) = next_within_deadline(&mut watch).await {
                break value;
            }
        };
        assert_eq!(value.bytes.as_deref(), Some(&b"one"[..]));
        fs::remove_file(&path).unwrap();
        assert!(next_within_deadline(&mut watch).await.is_err());
        fs::write(&path, "one").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(stamp).unwrap();
        loop {
            if let Ok(again) = next_within_deadline(&mut watch).await {
                assert_eq!(again, value);
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_look_that_never_ends_costs_one_thread_and_no_caller() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        // Opening a pipe that nobody writes to blocks, as a dead mount does.
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let kv = FileKv::new(path.clone(), POLL);
        let mut watch = kv.watch();
        for _ in 0..3 {
            let briefly = Duration::from_millis(50);
            assert!(tokio::time::timeout(briefly, watch.next()).await.is_err());
            assert!(tokio::time::timeout(briefly, kv.get()).await.is_err());
        }
        assert_eq!(kv.looking.available_permits(), 0, "the first look is still under way");
        let pipe = dir.path().join("pipe");
        fs::rename(&path, &pipe).unwrap();
        fs::write(&path, "one").unwrap();
        drop(fs::File::options().write(true).open(&pipe).unwrap());
        let value = next_within_deadline(&mut watch).await.unwrap();
        assert_eq!(value.bytes.as_deref(), Some(&b"one"[..]));
    }

    #[tokio::test]
    async fn what_is_no_file_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let error = FileKv::new(dir.path().to_owned(), POLL).get().await.unwrap_err();
        assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    }
}
