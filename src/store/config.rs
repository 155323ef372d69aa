//! The `store:` block.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::store::layout::BLOCK_MS;
use crate::units::Millis;

/// The embedded sample store.
///
/// Memory is bounded by `cache_bytes`, up to five write buffers of samples, and about 100 MiB for
/// labels and bookkeeping, however many series there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Keep accepted samples. Default: true.
    pub enabled: bool,
    /// Directory of the store; made if it is missing. Default: `./data`.
    pub path: PathBuf,
    /// Samples older than this are dropped, six hours of them at a time. Default: 72h, which is
    /// about 35 GB for 100,000 series scraped every 15 s.
    pub retention: Millis,
    /// How often written samples are forced to the disk. Losing the process loses nothing; losing
    /// the machine loses what was written within this time. Default: 200ms.
    pub sync_interval: Millis,
    /// Read cache. Default: 64 MiB.
    pub cache_bytes: u64,
    /// Samples kept in memory until they are sorted into a file, counted at about 90 bytes each.
    /// Up to four more such buffers wait for the disk before writes are slowed down. A block keeps
    /// the value it was created with. Default: 64 MiB.
    pub write_buffer_bytes: u64,
    /// Most samples that one query may read. Default: 50,000,000, as in Prometheus.
    pub max_samples_per_query: u64,
    /// Most series, and most names, values or metadata, that one query may select; their labels
    /// are held in memory until it ends. Default: 200,000.
    pub max_series_per_query: u64,
    /// Most bytes of labels, samples and histograms that one query may read. Default: 1 GiB.
    pub max_bytes_per_query: u64,
}

/// Why the block is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("store: retention {retention} is less than the least, {least}")]
    RetentionTooShort { retention: Millis, least: Millis },
    #[error("store: sync_interval must be more than 0")]
    NoSyncInterval,
    #[error("store: write_buffer_bytes must be at least {least}")]
    WriteBufferTooSmall { least: u64 },
    #[error("store: path must not be empty")]
    NoPath,
}

/// A head spans up to three hours and reads its labels from the blocks, so they must outlive it.
const RETENTION_LEAST: Millis = Millis(BLOCK_MS as u64);
/// Below this a busy store makes more files than it can merge.
const WRITE_BUFFER_BYTES_LEAST: u64 = 1 << 20;

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: true,
            path: PathBuf::from("./data"),
            retention: Millis::from_secs(72 * 3600),
            sync_interval: Millis(200),
            cache_bytes: 64 << 20,
            write_buffer_bytes: 64 << 20,
            max_samples_per_query: 50_000_000,
            max_series_per_query: 200_000,
            max_bytes_per_query: 1 << 30,
        }
    }
}

impl Config {
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.path.as_os_str().is_empty() {
            return Err(ConfigError::NoPath);
        }
        if self.retention < RETENTION_LEAST {
            let retention = self.retention;
            return Err(ConfigError::RetentionTooShort { retention, least: RETENTION_LEAST });
        }
        if self.sync_interval.0 == 0 {
            return Err(ConfigError::NoSyncInterval);
        }
        if self.write_buffer_bytes < WRITE_BUFFER_BYTES_LEAST {
            return Err(ConfigError::WriteBufferTooSmall { least: WRITE_BUFFER_BYTES_LEAST });
        }
        Ok(())
    }
}
