//! What an ingester's process shows on `/metrics` beside what each room registers by itself.

use std::sync::Arc;

use prometheus::Registry;

use super::AppError;
use super::certificates::Certificates;
use crate::clock::Clock;
use crate::exposition::{AtScrape, Families};
use crate::ingester::Ingester;
use crate::ingester::following::FollowStatus;
use crate::limits::reload::ReloadStatusReader;
use crate::ring::{Ring, watcher};
use crate::server::room::Room;
use crate::upstream::Upstream;

/// Who has metrics to read at scrape time.
pub(super) struct Rooms<'a> {
    pub(super) room: &'a Room,
    pub(super) ingester: &'a Arc<Ingester>,
    pub(super) followed: &'a Option<FollowStatus>,
    pub(super) ring: &'a Arc<Ring>,
    pub(super) ring_reads: Arc<watcher::Counts>,
    pub(super) upstream: &'a Option<Upstream>,
    pub(super) certificates: Certificates,
}

pub(super) fn register_metrics(
    registry: &Registry,
    rooms: Rooms<'_>,
    clock: Clock,
    reloads: Option<ReloadStatusReader>,
) -> Result<(), AppError> {
    let ingester = Arc::clone(rooms.ingester);
    let read = move |families: &mut Families| ingester.read_metrics(&clock, families);
    registry.register(Box::new(AtScrape::new("ingester_families", read)))?;
    let certificates = rooms.certificates;
    let read = move |families: &mut Families| certificates.read_metrics(families);
    registry.register(Box::new(AtScrape::new("tls_families", read)))?;
    let room = rooms.room.clone();
    let read = move |families: &mut Families| room.read_metrics(families);
    registry.register(Box::new(AtScrape::new("server_families", read)))?;
    let (ring, ring_reads) = (Arc::clone(rooms.ring), rooms.ring_reads);
    let read = move |families: &mut Families| {
        crate::ring::metrics::read(&ring, "ingester", clock.now().unix_ms, families);
        ring_reads.read_metrics("ingester", families);
    };
    registry.register(Box::new(AtScrape::new("ring_families", read)))?;
    if let Some(followed) = rooms.followed.clone() {
        let read = move |families: &mut Families| followed.read_metrics(families);
        registry.register(Box::new(AtScrape::new("following_families", read)))?;
    }
    if let Some(upstream) = rooms.upstream.clone() {
        let read = move |families: &mut Families| upstream.read_metrics(families);
        registry.register(Box::new(AtScrape::new("upstream_families", read)))?;
    }
    if let Some(reloads) = reloads {
        let read = move |families: &mut Families| reloads.read_metrics(families);
        registry.register(Box::new(AtScrape::new("runtime_config_families", read)))?;
    }
    Ok(())
}
