//! Who a request belongs to: parsed and validated once, at the edge.

use std::fmt;
use std::sync::Arc;

/// The unit of isolation; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

/// Longest tenant id that Cortex accepts, in bytes.
pub const TENANT_ID_BYTES_MAX: usize = 150;

/// Why a text is no tenant id. The texts are Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantIdError {
    #[error("no org id")]
    Missing,
    #[error("tenant ID is too long: max {TENANT_ID_BYTES_MAX} characters")]
    TooLong,
}

impl TenantId {
    pub fn parse(text: &str) -> Result<Self, TenantIdError> {
        if text.is_empty() {
            return Err(TenantIdError::Missing);
        }
        if text.len() > TENANT_ID_BYTES_MAX {
            return Err(TenantIdError::TooLong);
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for TenantId {
    fn borrow(&self) -> &str {
        &self.0
    }
}
