//! The embedded store, what is read from it at the start, and the thread that keeps an ingester's
//! counts right.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::AppError;
use crate::clock::Clock;
use crate::config::Config;
use crate::ingester::Ingester;
use crate::ingester::passes::{PassLoop, Wakes};
use crate::labels::IDENTITY_SECRET_BYTES;
use crate::store::Store;

pub(super) async fn open_store(config: &Config) -> Result<Option<Arc<Store>>, AppError> {
    // Behind us the samples are stored already.
    if !config.store.enabled || config.ingester.upstream.is_set() {
        return Ok(None);
    }
    let config = config.store.clone();
    Ok(Some(tokio::task::spawn_blocking(move || Store::open(config)).await??))
}

/// The store's secret, so that identities are its keys; without a store one of this process.
pub(super) fn identity_secret(store: Option<&Store>) -> [u8; IDENTITY_SECRET_BYTES] {
    match store {
        Some(store) => store.identity_secret(),
        None => {
            let mut secret = [0; IDENTITY_SECRET_BYTES];
            rand::fill(&mut secret);
            secret
        }
    }
}

pub(super) fn start_passes(
    ingester: &Arc<Ingester>,
    clock: Clock,
    wakes: Wakes,
) -> Result<JoinHandle<()>, AppError> {
    let passes = PassLoop::new(Arc::clone(ingester), clock);
    let spawned = std::thread::Builder::new()
        .name("freehold-passes".to_owned())
        .spawn(move || passes.run(&wakes));
    spawned.map_err(AppError::Thread)
}

/// Counts the series of the store's heads again, then takes pushes. Their labels are read
/// behind the first pushes: limits by metric and label set refuse nothing until then.
pub(super) async fn restore(ingester: &Arc<Ingester>, clock: Clock) -> Result<(), AppError> {
    let restoring = Arc::clone(ingester);
    let restored = tokio::task::spawn_blocking(move || restoring.restore(clock.now())).await??;
    ingester.run();
    tracing::info!(tenants = restored.tenants, series = restored.series, "restored from the store");
    let labels = Arc::clone(ingester);
    tokio::task::spawn_blocking(move || labels.restore_labels());
    Ok(())
}
