//! In which headers an answer tells what is left of a budget.

use serde::{Deserialize, Serialize};

/// In which form answers tell what is left of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateLimitHeaders {
    #[default]
    Off,
    /// `RateLimit` and `RateLimit-Policy` of the IETF's draft.
    Draft,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    Legacy,
}
