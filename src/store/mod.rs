//! The embedded sample store: what `-target=all` keeps on its own disk.
//!
//! A push becomes one atomic batch: samples, labels of series new to their block, exemplars,
//! metadata, and which series entered the head. One ordered key per sample (tenant, series, time),
//! so a retried write changes nothing. The series' key is its [`Identity`] under a secret that the
//! store keeps, so no map from labels to numbers is needed in memory. `layout.rs` shows the rows.
//!
//! ```text
//! ingester ─► begin(tenant) ─► series, head, sample, … ─► commit: journal + sorted buffers
//! restart  ─► open ─► for_each_head ─► the tracker's counts, exact
//! reading  ─► select(tenant, matchers, range) ─► labels, then samples, series by series
//! ```
//!
//! What must hold:
//!
//! - `commit` returns after the batch was handed to the operating system: killing the process at
//!   any moment loses nothing that was acknowledged. A batch cut short is discarded whole when the
//!   store is opened. Losing the *machine* loses at most what was written within `sync_interval`.
//! - The `heads` rows are exactly the series that the tracker has an entry for.
//! - Rows come back bit for bit: staleness markers, histograms, exemplars, metadata.
//! - Memory is bounded by configuration, never by the number of series.
//!
//! The engine is `fjall`. After a write that failed it takes no further ones, since it cannot know
//! what reached the disk; reads go on. [`Store::is_writable`] tells, and a restart recovers.

mod blocks;
mod config;
mod durability;
mod error;
mod heads;
mod layout;
mod matchers;
mod read;
mod tenants;
mod writer;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fjall::config::FilterPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use self::blocks::Blocks;
use self::durability::Syncer;
use self::tenants::Tenants;
use crate::keys::RingKey;
use crate::labels::{IDENTITY_SECRET_BYTES, Identity};

pub use self::config::{Config, ConfigError};
pub use self::error::StoreError;
pub use self::layout::BLOCK_MS;
pub use self::matchers::{MatchOp, Matcher, MatcherError};
pub use self::read::{
    Exemplar, OwnedMetadata, Selection, SeriesExemplars, SeriesSamples, StoredLabels, TimeRange,
};
pub use self::tenants::HeadRange;
pub use self::writer::{Committed, Writer};

/// What a series' latest sample was; the native-histogram count follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesKind {
    Float,
    Histogram,
}

/// A series in a tenant's head, as the tracker needs it after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSeries {
    pub identity: Identity,
    pub ring_key: RingKey,
    pub kind: SeriesKind,
}

/// A sample's value as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredValue {
    /// The float's bits, so that staleness markers stay what they are; 0 is no start time.
    Float { bits: u64, start_ms: i64 },
    /// The protobuf message `Histogram`, byte for byte.
    Histogram(Box<[u8]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub t_ms: i64,
    pub value: StoredValue,
}

/// What a metric is, as a writer says it. `kind` is the number of the protobuf enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    pub metric: &'a [u8],
    pub kind: i32,
    pub help: &'a [u8],
    pub unit: &'a [u8],
}

/// Format of the rows; raised when an older version could not read them.
const FORMAT: u32 = 1;
const FORMAT_KEY: &[u8] = b"format";
const SECRET_KEY: &[u8] = b"secret";

/// Write buffer of the head rows, which are about 90 bytes each there.
const HEADS_BUFFER_BYTES: u64 = 16 << 20;
/// Write buffer of the few rows that say what the store is.
const META_BUFFER_BYTES: u64 = 4 << 20;
/// Journals beyond this make the engine write out what holds them. They are read again on start,
/// so this bounds the time that takes. It is the engine's least.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// Threads that write out buffers and merge files. With two or more, one of them waits for work by
/// spinning as long as the others merge, which costs more than it gives on few cores.
const WORKER_THREADS: usize = 1;

/// The store; shared by reference or `Arc`, every method takes `&self`.
///
/// Field order is drop order: the sync thread ends first, the directory's lock goes last.
pub struct Store {
    syncer: Syncer,
    blocks: Blocks,
    tenants: Tenants,
    heads: Keyspace,
    meta: Keyspace,
    /// Shared by commits that add head rows, exclusive while head rows are dropped. See `heads.rs`.
    heads_gate: std::sync::RwLock<()>,
    writable: AtomicBool,
    secret: [u8; IDENTITY_SECRET_BYTES],
    config: Config,
    db: Database,
    _lock: File,
}

impl Store {
    /// Opens the store under `config.path`, or makes one. Blocks until the journals are read.
    pub fn open(config: Config) -> Result<Arc<Self>, StoreError> {
        let path = config.path.clone();
        let lock = lock_directory(&path)?;
        let open_error = |source| StoreError::Open { path: path.clone(), source: Box::new(source) };
        let db = Database::builder(&path)
            .cache_size(config.cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .journal_compression(fjall::CompressionType::None)
            .worker_threads(WORKER_THREADS)
            .open()
            .map_err(|source| match source {
                fjall::Error::Locked => StoreError::Locked { path: path.clone() },
                source => open_error(source),
            })?;
        let meta = db
            .keyspace("meta", || {
                KeyspaceCreateOptions::default().max_memtable_size(META_BUFFER_BYTES)
            })
            .map_err(open_error)?;
        let secret = load_secret(&db, &meta, &path)?;
        let heads = db
            .keyspace("heads", || {
                // Head rows are listed, never looked up.
                KeyspaceCreateOptions::default()
                    .max_memtable_size(HEADS_BUFFER_BYTES)
                    .filter_policy(FilterPolicy::disabled())
            })
            .map_err(open_error)?;
        let retention_ms = i64::try_from(config.retention.0).unwrap_or(i64::MAX);
        let blocks = Blocks::open(db.clone(), config.write_buffer_bytes, retention_ms)?;
        let tenants = Tenants::load(&meta)?;
        let syncer = Syncer::start(db.clone(), path, config.sync_interval.as_duration())?;
        Ok(Arc::new(Self {
            syncer,
            blocks,
            tenants,
            heads,
            meta,
            heads_gate: std::sync::RwLock::default(),
            writable: AtomicBool::new(true),
            secret,
            config,
            db,
            _lock: lock,
        }))
    }

    /// The secret under which this store's identities are hashed; the same for its whole life.
    pub fn identity_secret(&self) -> [u8; IDENTITY_SECRET_BYTES] {
        self.secret
    }

    /// False once a write has failed; only a restart changes that. For `/ready`.
    pub fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Acquire) && self.syncer.is_healthy()
    }

    /// Bytes that the store takes on the disk, journals included.
    pub fn disk_bytes(&self) -> Result<u64, StoreError> {
        self.db.disk_space().map_err(StoreError::read)
    }

    /// Drops what is older than the retention; returns the number of blocks dropped. Wants to be
    /// called every few minutes.
    pub fn apply_retention(&self, now_ms: i64) -> Result<usize, StoreError> {
        self.blocks.drop_expired(now_ms)
    }

    /// Whether two times lie in the same block. A series' labels are due with its first sample in
    /// a block, so a writer that knows the series' newest time asks this.
    pub fn is_same_block(a_ms: i64, b_ms: i64) -> bool {
        layout::BlockNumber::of(a_ms) == layout::BlockNumber::of(b_ms)
    }

    /// Where the block of a time begins: a series with a sample from there on up to `t_ms` has
    /// its labels in that block already.
    pub fn block_start_ms(t_ms: i64) -> i64 {
        layout::BlockNumber::of(t_ms).start_ms()
    }

    /// Whether a sample of this time can be stored. Times within retention and six hours ahead
    /// always can; of those outside, a bounded number of blocks is kept.
    pub fn accepts(&self, t_ms: i64, now_ms: i64) -> bool {
        self.blocks.reaches(layout::BlockNumber::of(t_ms), now_ms)
    }

    /// Forces all that was committed to the disk, for an orderly end.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.db.persist(PersistMode::SyncAll).map_err(StoreError::write)
    }

    /// As after a write that failed.
    #[cfg(test)]
    pub(crate) fn stop_writes(&self) {
        self.writable.store(false, Ordering::Release);
    }

    /// Commits a batch so that it outlives the process.
    fn commit(&self, batch: fjall::OwnedWriteBatch) -> Result<(), StoreError> {
        if !self.is_writable() {
            return Err(StoreError::Stopped);
        }
        // `Buffer` is one or a few write(2): the batch is the operating system's when it returns.
        batch.durability(Some(PersistMode::Buffer)).commit().map_err(|source| {
            self.writable.store(false, Ordering::Release);
            StoreError::write(source)
        })?;
        self.syncer.note_write();
        Ok(())
    }
}

/// Makes the directory and takes its lock, so that everything after is ours alone.
fn lock_directory(path: &Path) -> Result<File, StoreError> {
    let directory_error = |source| StoreError::Directory { path: path.to_owned(), source };
    std::fs::create_dir_all(path).map_err(directory_error)?;
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path.join("freehold.lock"))
        .map_err(directory_error)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            return Err(StoreError::Locked { path: path.to_owned() });
        }
        Err(std::fs::TryLockError::Error(source)) => return Err(directory_error(source)),
    }
    // The engine writes its version file last when it makes a store and refuses to start over a
    // first journal without it, so a process killed in its first millisecond would block the next.
    let journal: PathBuf = path.join("0.jnl");
    if !path.join("version").exists() && journal.exists() {
        std::fs::remove_file(journal).map_err(directory_error)?;
    }
    Ok(lock)
}

/// Checks the format and reads the secret, or writes both into a store that is new.
fn load_secret(
    db: &Database,
    meta: &Keyspace,
    path: &Path,
) -> Result<[u8; IDENTITY_SECRET_BYTES], StoreError> {
    let Some(format) = meta.get(FORMAT_KEY).map_err(StoreError::read)? else {
        let mut secret = [0_u8; IDENTITY_SECRET_BYTES];
        rand::fill(&mut secret);
        let mut batch = db.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(meta, FORMAT_KEY, FORMAT.to_be_bytes());
        batch.insert(meta, SECRET_KEY, secret);
        batch.commit().map_err(StoreError::write)?;
        return Ok(secret);
    };
    let found = u32::from_be_bytes(
        (*format).try_into().map_err(|_| StoreError::Corrupt { what: "format number" })?,
    );
    if found > FORMAT {
        let path = path.to_owned();
        return Err(StoreError::NewerFormat { path, found, supported: FORMAT });
    }
    let secret = meta.get(SECRET_KEY).map_err(StoreError::read)?;
    let secret = secret.ok_or(StoreError::Corrupt { what: "format number without a secret" })?;
    (*secret).try_into().map_err(|_| StoreError::Corrupt { what: "secret" })
}
