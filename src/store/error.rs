//! What can go wrong with the store.

use std::path::PathBuf;

/// Why an act of the store failed. A failed commit has stored nothing of its batch.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store at {} is in use by another process", path.display())]
    Locked { path: PathBuf },
    #[error(
        "the store at {} has format {found}, but this version reads formats up to {supported}",
        path.display()
    )]
    NewerFormat { path: PathBuf, found: u32, supported: u32 },
    #[error("cannot open the store at {}", path.display())]
    Open { path: PathBuf, source: Box<fjall::Error> },
    #[error("cannot make the store's directory {}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("cannot start the store's sync thread")]
    Thread { source: std::io::Error },
    #[error("cannot write to the store")]
    Write { source: Box<fjall::Error> },
    #[error("the store takes no writes since one failed; free or repair the disk and restart")]
    Stopped,
    #[error("cannot read from the store")]
    Read { source: Box<fjall::Error> },
    #[error("the store holds a {what} that it did not write")]
    Corrupt { what: &'static str },
    #[error("the time {t_ms} ms is too far from now for the store")]
    TimeOutOfReach { t_ms: i64 },
    #[error(
        "the query selects more than {max} series; narrow it or raise -store.max-series-per-query"
    )]
    TooManySeries { max: u64 },
    #[error(
        "the query selects more than {max} samples; narrow it or raise -store.max-samples-per-query"
    )]
    TooManySamples { max: u64 },
    #[error(
        "the query selects more than {max} bytes; narrow it or raise -store.max-bytes-per-query"
    )]
    TooManyBytes { max: u64 },
}

impl StoreError {
    pub(super) fn read(source: fjall::Error) -> Self {
        Self::Read { source: Box::new(source) }
    }

    pub(super) fn write(source: fjall::Error) -> Self {
        match source {
            fjall::Error::Poisoned => Self::Stopped,
            source => Self::Write { source: Box::new(source) },
        }
    }

    /// The query is to blame, not the store.
    pub fn is_query_limit(&self) -> bool {
        matches!(
            self,
            Self::TooManySeries { .. } | Self::TooManySamples { .. } | Self::TooManyBytes { .. }
        )
    }
}
