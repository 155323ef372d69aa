//! When we may say that we are ready: tokens, a fine ring, and that for a while.
//!
//! Invariant: once ready, always ready; a neighbour's fall must not take us out of service.

use crate::ring::lifecycle::Settings;
use crate::ring::model::{Instance, InstanceState, RingModel, Token};
use crate::units::Millis;

/// Why we are not ready. The texts are Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("this instance owns no tokens")]
    NoTokens,
    #[error("no tokens in ring")]
    NoTokensInRing,
    #[error("no ring returned from the KV store")]
    NoRing,
    #[error("error talking to the KV store: {0}")]
    Store(String),
    #[error("instance {0} not found in the ring")]
    NotFound(String),
    #[error("instance {0} past heartbeat timeout")]
    PastHeartbeat(String),
    #[error("instance {addr} in state {}", state.name())]
    InState { addr: String, state: InstanceState },
    #[error("waiting for {0} after being ready")]
    MinReadyDuration(Millis),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Not(NotReady),
    /// All was fine since then, Unix milliseconds.
    Since(i64),
    Ready,
}

impl Readiness {
    /// Takes in what a look at the ring said; tells whether we became ready by it.
    pub(super) fn judge(
        &mut self,
        outcome: Result<(), NotReady>,
        now_ms: i64,
        min_ready_duration_ms: u64,
    ) -> bool {
        let since_ms = match (&*self, outcome) {
            (Self::Ready, _) => return false,
            (_, Err(reason)) => {
                *self = Self::Not(reason);
                return false;
            }
            (Self::Since(since_ms), Ok(())) => *since_ms,
            (Self::Not(_), Ok(())) => now_ms,
        };
        *self = Self::Since(since_ms);
        let is_ready = self.left_ms(now_ms, min_ready_duration_ms) == 0;
        if is_ready {
            *self = Self::Ready;
        }
        is_ready
    }

    /// How long all has to stay fine until we are ready.
    pub(super) fn left_ms(&self, now_ms: i64, min_ready_duration_ms: u64) -> u64 {
        match self {
            Self::Ready => 0,
            Self::Not(_) => min_ready_duration_ms.max(super::CHECK_MS),
            Self::Since(since_ms) => {
                // A clock that was set back makes us wait longer, not fail.
                let waited_ms = u64::try_from(now_ms - since_ms).unwrap_or(0);
                min_ready_duration_ms.saturating_sub(waited_ms)
            }
        }
    }

    pub(super) fn outcome(&self, min_ready_duration_ms: u64) -> Result<(), NotReady> {
        match self {
            Self::Ready => Ok(()),
            Self::Since(_) => Err(NotReady::MinReadyDuration(Millis(min_ready_duration_ms))),
            Self::Not(reason) => Err(reason.clone()),
        }
    }
}

/// What `ring` says about the readiness of an instance that holds the tokens `own`.
pub(super) fn check(
    settings: &Settings,
    own: &[Token],
    ring: &RingModel,
    now_ms: i64,
) -> Result<(), NotReady> {
    // A ring that only counts its members asks for no tokens.
    if own.is_empty() && settings.num_tokens > 0 {
        return Err(NotReady::NoTokens);
    }
    let id = &settings.id;
    if !settings.readiness_check_ring_health {
        let entry = ring.instances.get(id).ok_or_else(|| NotReady::NotFound(id.clone()))?;
        return check_entry(settings, entry, now_ms);
    }
    // A tombstone of a gossiped ring is no member.
    let members = || ring.instances.values().filter(|m| m.state != InstanceState::Left);
    for entry in members() {
        check_entry(settings, entry, now_ms)?;
    }
    if settings.num_tokens > 0 && members().all(|entry| entry.tokens.is_empty()) {
        return Err(NotReady::NoTokensInRing);
    }
    Ok(())
}

fn check_entry(settings: &Settings, entry: &Instance, now_ms: i64) -> Result<(), NotReady> {
    let timeout_ms = i64::try_from(settings.heartbeat_timeout_ms).unwrap_or(i64::MAX);
    let age_ms = now_ms.saturating_sub(entry.timestamp_s.saturating_mul(1000));
    if timeout_ms > 0 && age_ms > timeout_ms {
        return Err(NotReady::PastHeartbeat(entry.addr.clone()));
    }
    match entry.state {
        InstanceState::Active | InstanceState::ReadOnly => Ok(()),
        state => Err(NotReady::InState { addr: entry.addr.clone(), state }),
    }
}
