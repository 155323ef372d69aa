//! Forcing committed batches to the disk, beside the writers.
//!
//! A commit leaves its batch with the operating system, which suffices against the death of the
//! process. Against the death of the machine the journal is synced every `sync_interval`. The
//! engine's own sync holds the lock that every commit needs for as long as the disk takes; so we
//! open the journal once more and sync that: the same file, and no writer waits for us.
//!
//! Why one file suffices: the engine syncs a journal before it starts the next. Whatever was
//! committed before we look is in a synced journal or in the one with the highest number.
//!
//! After a failed sync the kernel may have dropped the pages and say "done" the next time, so the
//! store takes no writes from then on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use fjall::{Database, PersistMode};

use crate::store::StoreError;

struct State {
    /// Set by commits, taken by the thread: an idle store does not touch the disk.
    is_dirty: AtomicBool,
    is_healthy: AtomicBool,
}

/// Owns the sync thread, which ends when this is dropped.
pub struct Syncer {
    state: Arc<State>,
    /// Closed to end the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub fn start(db: Database, path: PathBuf, interval: Duration) -> Result<Self, StoreError> {
        let state =
            Arc::new(State { is_dirty: AtomicBool::new(false), is_healthy: AtomicBool::new(true) });
        let (end, ended) = bounded(0);
        let thread_state = state.clone();
        let thread = std::thread::Builder::new()
            .name("store-sync".to_owned())
            .spawn(move || run(&db, &path, interval, &thread_state, &ended))
            .map_err(|source| StoreError::Thread { source })?;
        Ok(Self { state, end: Some(end), thread: Some(thread) })
    }

    /// To be called after each commit.
    pub fn note_write(&self) {
        self.state.is_dirty.store(true, Ordering::Release);
    }

    pub fn is_healthy(&self) -> bool {
        self.state.is_healthy.load(Ordering::Acquire)
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's sync thread panicked");
        }
    }
}

fn run(db: &Database, path: &Path, interval: Duration, state: &State, ended: &Receiver<()>) {
    loop {
        let is_last = ended.recv_timeout(interval) != Err(RecvTimeoutError::Timeout);
        // Cleared before the sync: a commit during it is synced the next time.
        if state.is_dirty.swap(false, Ordering::AcqRel)
            && let Err(error) = sync_journal(db, path)
        {
            state.is_healthy.store(false, Ordering::Release);
            tracing::error!(?error, "cannot sync the store's journal; it takes no more writes");
            return;
        }
        if is_last {
            return;
        }
    }
}

fn sync_journal(db: &Database, path: &Path) -> Result<(), fjall::Error> {
    let mut newest: Option<(u64, PathBuf)> = None;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".jnl")?.parse().ok());
        if let Some(number) = number
            && newest.as_ref().is_none_or(|(highest, _)| *highest < number)
        {
            newest = Some((number, entry.path()));
        }
    }
    match newest.map(|(_, path)| File::open(path)) {
        Some(Ok(journal)) => Ok(journal.sync_data()?),
        // Nothing by that name, or just removed: the engine's own way is slower and always right.
        _ => db.persist(PersistMode::SyncData),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State { is_dirty: AtomicBool::new(true), is_healthy: AtomicBool::new(true) }
    }

    /// A channel whose other end is closed: the thread's last round.
    fn ended() -> Receiver<()> {
        bounded(0).1
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_last_round_syncs_what_was_written() {
        let dir = tempfile::tempdir().expect("tempdir");
        let db = Database::builder(dir.path()).open().expect("a database");
        let state = state();
        run(&db, dir.path(), HOUR, &state, &ended());
        assert!(!state.is_dirty.load(Ordering::Acquire));
        assert!(state.is_healthy.load(Ordering::Acquire));
        // Without a journal to be found the engine syncs its own.
        let other = tempfile::tempdir().expect("tempdir");
        assert!(sync_journal(&db, other.path()).is_ok());
    }

    #[test]
    fn a_failed_sync_is_told() {
        let dir = tempfile::tempdir().expect("tempdir");
        let db = Database::builder(dir.path()).open().expect("a database");
        let state = state();
        run(&db, &dir.path().join("missing"), HOUR, &state, &ended());
        assert!(!state.is_healthy.load(Ordering::Acquire));
    }
}
