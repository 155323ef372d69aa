//! Tokens and mode that survive a loss of the ring, in Cortex's file format.
//!
//! Invariant: the file is replaced whole; a crash leaves the old one or the new one.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ring::lifecycle::Heritage;
use crate::ring::model::{InstanceState, Token};

/// Largest file that is read: 100,000 tokens of eleven characters are far below it.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Serialize, Deserialize)]
struct TokensFile {
    /// Cortex leaves it out for ACTIVE in older versions.
    #[serde(default, rename = "previousState")]
    previous_state: String,
    tokens: Option<Vec<u32>>,
}

#[derive(Debug, thiserror::Error)]
enum TokensFileError {
    #[error("cannot read or write it: {0}")]
    Io(#[from] std::io::Error),
    #[error("no tokens file: {0}")]
    Json(#[from] serde_json::Error),
    #[error("larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
}

/// What the last life left; a file that is missing or spoilt is no reason not to start.
pub(super) fn load_logged(path: &Path) -> Option<Heritage> {
    match load(path) {
        Ok(heritage) => Some(heritage),
        Err(TokensFileError::Io(e)) if e.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "the tokens file is not used");
            None
        }
    }
}

/// A disk that refuses is no reason to leave the ring.
pub(super) async fn store_logged(path: &Path, heritage: &Heritage) {
    let (path, heritage) = (path.to_owned(), heritage.clone());
    let shown = path.display().to_string();
    let outcome = tokio::task::spawn_blocking(move || store(&path, &heritage)).await;
    let error = match outcome {
        Ok(Ok(())) => return,
        Ok(Err(e)) => e.to_string(),
        Err(e) => e.to_string(),
    };
    tracing::error!(path = shown, error, "tokens are not kept for the next start");
}

fn load(path: &Path) -> Result<Heritage, TokensFileError> {
    if std::fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(TokensFileError::TooLarge);
    }
    let file: TokensFile = serde_json::from_slice(&std::fs::read(path)?)?;
    let mut tokens: Vec<Token> = file.tokens.unwrap_or_default().into_iter().map(Token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    let resume_state = match InstanceState::from_name(&file.previous_state) {
        Some(InstanceState::ReadOnly) => InstanceState::ReadOnly,
        _ => InstanceState::Active,
    };
    Ok(Heritage { tokens, resume_state })
}

fn store(path: &Path, heritage: &Heritage) -> Result<(), TokensFileError> {
    let file = TokensFile {
        previous_state: heritage.resume_state.name().to_owned(),
        tokens: Some(heritage.tokens.iter().map(|token| token.0).collect()),
    };
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    std::fs::write(&temporary, serde_json::to_vec(&file)?)?;
    std::fs::File::open(&temporary)?.sync_all()?;
    std::fs::rename(&temporary, path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_loaded_and_cortexs_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let heritage =
            Heritage { tokens: vec![Token(1), Token(9)], resume_state: InstanceState::ReadOnly };
        store(&path, &heritage).unwrap();
        assert_eq!(load_logged(&path), Some(heritage));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, r#"{"previousState":"READONLY","tokens":[1,9]}"#);
        std::fs::write(&path, r#"{"tokens":[9,1,9]}"#).unwrap();
        let read = load_logged(&path).unwrap();
        assert_eq!(read.tokens, [Token(1), Token(9)]);
        assert_eq!(read.resume_state, InstanceState::Active);
    }

    #[test]
    fn a_missing_or_spoilt_file_is_no_heritage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        assert_eq!(load_logged(&path), None);
        std::fs::write(&path, "{\"tokens\":[1").unwrap();
        assert_eq!(load_logged(&path), None);
    }
}
