//! The follower's place in the app: what it is made of, and what readiness asks of it.

use std::sync::Arc;

use crate::ingester::following::FollowStatus;
use crate::ring::{OwnView, Ring, UnknownOwnership};
use crate::sync::{AtomicBool, Ordering};

/// What a sidecar waits for beside what every ingester waits for.
#[derive(Clone)]
pub(super) struct SidecarReadiness {
    status: FollowStatus,
    ring: Arc<Ring>,
    /// Our tokens have been in the ring once. Later it is the upstream's part to say that it
    /// leaves, and pushes that still come are served.
    was_in_ring: Arc<AtomicBool>,
}

impl SidecarReadiness {
    pub(super) fn new(status: FollowStatus, ring: Arc<Ring>) -> Self {
        Self { status, ring, was_in_ring: Arc::default() }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.status.readiness()?;
        if self.was_in_ring.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.ring.load().own() {
            OwnView::Unknown(
                reason @ (UnknownOwnership::NotInRing | UnknownOwnership::NoTokens),
            ) => Err(reason.to_string()),
            OwnView::Unknown(_) => Ok(()),
            OwnView::Known(_) => {
                self.was_in_ring.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}
