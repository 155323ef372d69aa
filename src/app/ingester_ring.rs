//! The ingesters' ring, followed by a process that is no member of it.

use std::sync::Arc;

use prometheus::Registry;

use super::member::publisher;
use super::membership::DescReader;
use super::readiness::{ring_note, ring_unread};
use super::{AppError, RING_LAST_GOOD_MS};
use crate::admin::RingSource;
use crate::clock::Clock;
use crate::config::Config;
use crate::exposition::{AtScrape, Families};
use crate::ring::kv::stores::Stores;
use crate::ring::lifecycler::WallClock;
use crate::ring::service_ring::INGESTER_RING;
use crate::ring::watcher::Watcher;
use crate::ring::{Ring, RingSettings};
use crate::wire::ring_desc::RingDescReader;

/// A ring that is only read.
pub(super) struct IngesterRing {
    ring: Arc<Ring>,
    watcher: Watcher,
}

impl IngesterRing {
    pub(super) fn follow(
        config: &Config,
        clock: Clock,
        registry: &Registry,
        stores: &Stores,
    ) -> Result<Self, AppError> {
        let config_of_ring = &config.ingester.lifecycler.ring;
        let store = &config_of_ring.kvstore;
        let kv = stores.ring(store, "ingester-ring")?;
        let settings = RingSettings {
            replication_factor: config_of_ring.replication_factor,
            zone_awareness_enabled: config_of_ring.zone_awareness_enabled,
            heartbeat_timeout_ms: config_of_ring.heartbeat_timeout.0,
            extend_writes: config.distributor.extend_writes,
            own_id: None,
        };
        let ring = Arc::new(Ring::new(settings, RING_LAST_GOOD_MS));
        let wall_clock: WallClock = Arc::new(move || clock.now().unix_ms);
        let sink = publisher(Arc::clone(&ring), Arc::clone(&wall_clock));
        let reader = DescReader(RingDescReader::new());
        let watcher = Watcher::spawn(kv, store.key(INGESTER_RING), reader, wall_clock, sink);
        let (shown, reads) = (Arc::clone(&ring), watcher.counts());
        let read = move |families: &mut Families| {
            crate::ring::metrics::read(&shown, "ingester", clock.now().unix_ms, families);
            reads.read_metrics("ingester", families);
        };
        registry.register(Box::new(AtScrape::new("ring_families", read)))?;
        Ok(Self { ring, watcher })
    }

    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// What the ring's page is made from.
    pub(super) fn page(&self, clock: Clock) -> RingSource {
        RingSource { ring: Arc::clone(&self.ring), lifecycler: None, clock }
    }

    /// A ring that cannot be read never stops pushes, so that is only told; one that has not
    /// been read yet has nobody to send to.
    pub(super) fn check(ring: &Ring, clock: Clock) -> Result<Option<String>, String> {
        let now_ms = clock.now().unix_ms;
        match ring_unread(ring, now_ms) {
            Some(reason) => Err(reason),
            None => Ok(ring_note(ring, now_ms, "writes go by a ring that is too old")),
        }
    }

    pub(super) async fn stop(self) {
        self.watcher.stop().await;
    }
}
