//! The blocks of time: which exist, which keyspaces hold them, when they go.
//!
//! A block lives in keyspaces of its own, so dropping it deletes files and rewrites nothing.
//!
//! Invariant: the number of blocks is bounded. Those within retention are as many as it has spans;
//! of the others, which only samples with strange times make, there are at most
//! [`STRAY_BLOCKS_MAX`]. A sample beyond that is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use fjall::config::{BlockSizePolicy, FilterPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use crate::store::StoreError;
use crate::store::layout::BlockNumber;

/// Room for senders whose clock is wrong and for back-fills, which go at the next retention.
const STRAY_BLOCKS_MAX: usize = 16;

/// Write buffer of a keyspace that takes few rows: labels, exemplars, metadata.
const SMALL_BUFFER_BYTES: u64 = 16 << 20;

/// Rows of samples are small and read in runs: larger disk blocks make a smaller index.
const DISK_BLOCK_BYTES: u32 = 16 << 10;

/// One block's keyspaces.
pub struct Block {
    pub number: BlockNumber,
    pub samples: Keyspace,
    pub series: Keyspace,
    /// Exemplars and metadata; made when the first of them comes.
    extras: OnceLock<Keyspace>,
}

type BlockMap = BTreeMap<BlockNumber, Arc<Block>>;

pub struct Blocks {
    db: Database,
    write_buffer_bytes: u64,
    retention_ms: i64,
    /// Swapped whole by whoever holds `changing`; readers and writers never wait for it.
    all: ArcSwap<BlockMap>,
    changing: Mutex<()>,
}

impl Blocks {
    pub fn open(
        db: Database,
        write_buffer_bytes: u64,
        retention_ms: i64,
    ) -> Result<Self, StoreError> {
        let blocks = Self {
            db,
            write_buffer_bytes,
            retention_ms,
            all: ArcSwap::default(),
            changing: Mutex::default(),
        };
        for name in blocks.db.list_keyspace_names() {
            // `extras` alone may remain of a block whose deletion was cut short.
            let number = ["samples-", "series-", "extras-"]
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix)?.parse().ok().map(BlockNumber));
            if let Some(number) = number {
                blocks.add(number, &blocks.lock())?;
            }
        }
        Ok(blocks)
    }

    pub fn get(&self, number: BlockNumber) -> Option<Arc<Block>> {
        self.all.load().get(&number).cloned()
    }

    /// Whether a sample of this time has a block or may have one made.
    pub fn reaches(&self, number: BlockNumber, now_ms: i64) -> bool {
        let all = self.all.load();
        if all.contains_key(&number) || self.is_current(number, now_ms) {
            return true;
        }
        let strays = all.keys().filter(|number| !self.is_current(**number, now_ms)).count();
        strays < STRAY_BLOCKS_MAX
    }

    /// The block, made if need be and allowed.
    pub fn get_or_add(&self, t_ms: i64, now_ms: i64) -> Result<Arc<Block>, StoreError> {
        let number = BlockNumber::of(t_ms);
        if let Some(block) = self.get(number) {
            return Ok(block);
        }
        let changing = self.lock();
        if !self.reaches(number, now_ms) {
            return Err(StoreError::TimeOutOfReach { t_ms });
        }
        match self.get(number) {
            Some(block) => Ok(block),
            None => self.add(number, &changing),
        }
    }

    /// The blocks that a range of time touches, in the order of time.
    pub fn in_range(&self, start_ms: i64, end_ms: i64) -> Vec<Arc<Block>> {
        if start_ms > end_ms {
            return Vec::new();
        }
        let range = BlockNumber::of(start_ms)..=BlockNumber::of(end_ms);
        self.all.load().range(range).map(|(_, block)| block.clone()).collect()
    }

    /// The block's keyspace for exemplars and metadata.
    pub fn extras<'a>(&self, block: &'a Block) -> Result<&'a Keyspace, StoreError> {
        if let Some(extras) = block.extras.get() {
            return Ok(extras);
        }
        // Two writers that come here together get the same keyspace from the engine.
        let name = format!("extras-{}", block.number.0);
        let extras = self.db.keyspace(&name, small_options).map_err(StoreError::write)?;
        Ok(block.extras.get_or_init(|| extras))
    }

    /// Drops every block that ends before the retention does; returns how many.
    ///
    /// Readers that hold a block finish with it; its files go when the last of them is done.
    pub fn drop_expired(&self, now_ms: i64) -> Result<usize, StoreError> {
        let _changing = self.lock();
        let oldest = self.oldest(now_ms);
        let mut kept = BlockMap::clone(&self.all.load());
        let fresh = kept.split_off(&oldest);
        let expired = std::mem::replace(&mut kept, fresh);
        if expired.is_empty() {
            return Ok(0);
        }
        // Unpublish first: whoever looks from now on finds no block that is half gone.
        self.all.store(Arc::new(kept));
        let dropped = expired.len();
        for block in expired.into_values() {
            let extras = block.extras.get().cloned();
            for keyspace in [block.samples.clone(), block.series.clone()].into_iter().chain(extras)
            {
                self.db.delete_keyspace(keyspace).map_err(StoreError::write)?;
            }
        }
        Ok(dropped)
    }

    fn oldest(&self, now_ms: i64) -> BlockNumber {
        BlockNumber::of(now_ms.saturating_sub(self.retention_ms))
    }

    fn is_current(&self, number: BlockNumber, now_ms: i64) -> bool {
        let newest = BlockNumber(BlockNumber::of(now_ms).0.saturating_add(1));
        (self.oldest(now_ms)..=newest).contains(&number)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(
        &self,
        number: BlockNumber,
        _changing: &MutexGuard<'_, ()>,
    ) -> Result<Arc<Block>, StoreError> {
        let samples = self
            .db
            .keyspace(&format!("samples-{}", number.0), || {
                KeyspaceCreateOptions::default()
                    .max_memtable_size(self.write_buffer_bytes)
                    .data_block_size_policy(BlockSizePolicy::all(DISK_BLOCK_BYTES))
                    // Samples are read in runs, which filters cannot help.
                    .filter_policy(FilterPolicy::disabled())
            })
            .map_err(StoreError::write)?;
        let series = self
            .db
            .keyspace(&format!("series-{}", number.0), small_options)
            .map_err(StoreError::write)?;
        let extras_name = format!("extras-{}", number.0);
        let extras = OnceLock::new();
        if self.db.keyspace_exists(&extras_name) {
            let keyspace =
                self.db.keyspace(&extras_name, small_options).map_err(StoreError::write)?;
            extras.get_or_init(|| keyspace);
        }
        let block = Arc::new(Block { number, samples, series, extras });
        let mut all = BlockMap::clone(&self.all.load());
        all.insert(number, block.clone());
        self.all.store(Arc::new(all));
        Ok(block)
    }
}

impl Block {
    /// Exemplars and metadata, when the block has any.
    pub fn extras_if_any(&self) -> Option<&Keyspace> {
        self.extras.get()
    }
}

fn small_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(SMALL_BUFFER_BYTES)
        .data_block_size_policy(BlockSizePolicy::all(DISK_BLOCK_BYTES))
        .filter_policy(FilterPolicy::disabled())
}
