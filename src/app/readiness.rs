//! Whether we are ready, for `/ready` and for health checks, and what an operator is to know
//! although we are.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::following::SidecarReadiness;
use crate::clock::Clock;
use crate::ingester::Ingester;
use crate::ring::lifecycler::LifecyclerHandle;
use crate::ring::{Ring, RingStatus};
use crate::server::drain::Drain;
use crate::server::grpc::HealthSwitch;
use crate::store::Store;

/// How often readiness is looked at for health checks.
const HEALTH_PERIOD: Duration = Duration::from_millis(250);

/// What `/ready` and the health checks go by.
#[derive(Clone)]
pub(super) struct Readiness {
    pub(super) ingester: Arc<Ingester>,
    pub(super) ring: Arc<Ring>,
    pub(super) lifecycler: Option<LifecyclerHandle>,
    pub(super) store: Option<Arc<Store>>,
    pub(super) sidecar: Option<SidecarReadiness>,
    pub(super) clock: Clock,
}

impl Readiness {
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(sidecar) = &self.sidecar {
            sidecar.check().map_err(|reason| format!("Ingester not ready: {reason}"))?;
        }
        if !self.ingester.is_running() {
            return Err("Ingester not ready: Starting".to_owned());
        }
        if self.store.as_ref().is_some_and(|store| !store.is_writable()) {
            return Err("Ingester not ready: the store takes no writes".to_owned());
        }
        if let Some(reason) = ring_unread(&self.ring, self.clock.now().unix_ms) {
            return Err(format!("Ingester not ready: {reason}"));
        }
        let Some(lifecycler) = &self.lifecycler else {
            return Ok(());
        };
        lifecycler.readiness().map_err(|reason| format!("Ingester not ready: {reason}"))
    }

    /// A ring that cannot be read never stops pushes, so it is only told.
    pub(super) fn note(&self) -> Option<String> {
        let expired = "the last good ring is too old, so limits go by series in memory";
        ring_note(&self.ring, self.clock.now().unix_ms, expired)
    }
}

/// Why a ring has never been read, if it has not.
pub(super) fn ring_unread(ring: &Ring, now_ms: i64) -> Option<String> {
    let RingStatus::Unread(failing) = ring.status(now_ms) else { return None };
    let cause = failing.map_or_else(String::new, |failing| format!(": {}", failing.error));
    Some(format!("the ring has not been read{cause}"))
}

/// What is to be said of a ring that cannot be read now; `expired` is what that comes to when it
/// has lasted too long.
pub(super) fn ring_note(ring: &Ring, now_ms: i64, expired: &str) -> Option<String> {
    let (failing, in_force) = match ring.status(now_ms) {
        RingStatus::Stale(failing) => (failing, "the last good ring is in force"),
        RingStatus::Expired(failing) => (failing, expired),
        RingStatus::Fresh | RingStatus::Unread(_) => return None,
    };
    let for_s = now_ms.saturating_sub(failing.since_ms) / 1000;
    Some(format!("ring not read for {for_s} s, {in_force}: {}", failing.error))
}

pub(super) fn follow_readiness(
    readiness: Readiness,
    health: HealthSwitch,
    serve_after: Duration,
    tasks: &mut JoinSet<()>,
    mut drain: Drain,
) {
    // From now on, when we can be asked, and not from the start of the process' clock.
    let serve_at = tokio::time::Instant::now() + serve_after;
    tasks.spawn(async move {
        let mut ticks = tokio::time::interval(HEALTH_PERIOD);
        let mut serving = false;
        loop {
            // Both arms only wait.
            tokio::select! {
                () = drain.started() => return,
                _ = ticks.tick() => {}
            }
            let waited = tokio::time::Instant::now() >= serve_at;
            let ready = waited && readiness.check().is_ok();
            if ready != serving {
                health.set_serving(ready).await;
                serving = ready;
            }
        }
    });
}
