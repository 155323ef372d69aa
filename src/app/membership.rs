//! Our part in the ring: who keeps it, what of it we publish, and how we are in it.

use std::path::PathBuf;
use std::sync::Arc;

use prometheus::Registry;
use tokio::task::JoinSet;

use super::AppError;
use crate::clock::Clock;
use crate::config::Config;
use crate::ingester::Ingester;
use crate::ingester::passes::Wake;
use crate::ring::kv::stores::Stores;
use crate::ring::kv::{KvClient, KvCodec};
use crate::ring::lifecycle::Settings;
use crate::ring::lifecycler::{self, Lifecycler, LifecyclerHandle, Means};
use crate::ring::model::{InstanceState, RingReading};
use crate::ring::service_ring::INGESTER_RING;
use crate::ring::watcher::{ReadRing, RingRead, Taken, Watcher};
use crate::ring::{EMPTY_RING_ERROR, Published, Ring, RingSettings};
use crate::server::drain::Drain;
use crate::wire::ring_desc;

/// Our part in the ring: where it is stored, and who we are in it.
pub(super) struct Membership {
    kv: KvClient,
    key: String,
    codec: KvCodec,
    wall_clock: lifecycler::WallClock,
    settings: Settings,
    tokens_file_path: Option<PathBuf>,
    /// The ingester behind us is the member, and keeps its own entry.
    is_watcher: bool,
}

/// Who we are in the ring; with an upstream, who that one is.
fn settings(config: &Config, grpc_port: u16) -> Settings {
    let mut settings = lifecycler::settings(&config.ingester.lifecycler, grpc_port);
    let id = &config.ingester.instance_id;
    if config.ingester.upstream.is_set() && !id.is_empty() {
        settings.id.clone_from(id);
    }
    settings
}

impl Membership {
    pub(super) fn new(
        config: &Config,
        grpc_port: u16,
        clock: Clock,
        stores: &Stores,
    ) -> Result<Self, AppError> {
        let lifecycler = &config.ingester.lifecycler;
        let tokens_file = &lifecycler.tokens_file_path;
        let store = &lifecycler.ring.kvstore;
        let kv = stores.ring(store, "ingester-ring")?;
        Ok(Self {
            kv,
            key: lifecycler.ring.kvstore.key(INGESTER_RING),
            codec: KvCodec {
                decode: |bytes| ring_desc::decode(bytes).map_err(|error| error.to_string()),
                // Our own model always fits: it was read within the same bounds.
                encode: |model| ring_desc::encode(model).unwrap_or_default(),
            },
            wall_clock: Arc::new(move || clock.now().unix_ms),
            settings: settings(config, grpc_port),
            is_watcher: config.ingester.upstream.is_set(),
            tokens_file_path: (!tokens_file.as_os_str().is_empty()).then(|| tokens_file.clone()),
        })
    }

    pub(super) fn ring_settings(&self, config: &Config) -> RingSettings {
        let ring = &config.ingester.lifecycler.ring;
        RingSettings {
            replication_factor: ring.replication_factor,
            zone_awareness_enabled: ring.zone_awareness_enabled,
            heartbeat_timeout_ms: ring.heartbeat_timeout.0,
            extend_writes: config.distributor.extend_writes,
            own_id: Some(self.settings.id.clone()),
        }
    }

    /// Publishes what the store holds, and wakes the passes when it has changed.
    pub(super) fn follow(&self, ring: &Arc<Ring>, wake: Wake) -> Watcher {
        let (ring, clock) = (Arc::clone(ring), Arc::clone(&self.wall_clock));
        let sink = move |read: RingRead| {
            let mut taken = Taken::InStep;
            match read {
                RingRead::Ok { reading, read_at_ms } => {
                    if ring.publish(&reading, read_at_ms) == Published::OutOfStep {
                        taken = Taken::OutOfStep;
                    }
                }
                RingRead::Empty => ring.read_failed(clock(), EMPTY_RING_ERROR),
                RingRead::Failed(error) => ring.read_failed(clock(), error),
            }
            wake.wake();
            taken
        };
        let (kv, key) = (self.kv.clone(), self.key.clone());
        let reader = DescReader(ring_desc::RingDescReader::new());
        Watcher::spawn(kv, key, reader, Arc::clone(&self.wall_clock), sink)
    }

    /// Registers us, where the store can be written. Else somebody else has put us there.
    pub(super) fn join(self, registry: &Registry) -> Result<Option<Lifecycler>, AppError> {
        if self.is_watcher || !self.kv.is_writable() {
            return Ok(None);
        }
        let means = Means {
            kv: self.kv.for_user("ingester-lifecycler"),
            key: self.key,
            codec: self.codec,
            clock: self.wall_clock,
            tokens_file_path: self.tokens_file_path,
            metrics: lifecycler::Metrics::register(registry, "ingester")?,
        };
        Ok(Some(Lifecycler::spawn(self.settings, means)))
    }
}

/// Leaves tokens undecoded while nothing but heartbeats is new.
pub(super) struct DescReader(pub(super) ring_desc::RingDescReader);

impl ReadRing for DescReader {
    fn read(&mut self, value: &[u8]) -> Result<RingReading, String> {
        self.0.read(value).map_err(|error| error.to_string())
    }

    fn forget(&mut self) {
        self.0.forget();
    }
}

/// Tells the ingester its state in the ring: from the lifecycler, or, where the ring is only
/// read, ACTIVE, since whoever sends pushes here has put us there.
pub(super) fn follow_own_state(
    handle: Option<LifecyclerHandle>,
    ingester: &Arc<Ingester>,
    tasks: &mut JoinSet<()>,
    mut drain: Drain,
) {
    let Some(handle) = handle else {
        ingester.note_ring_state(InstanceState::Active);
        return;
    };
    let ingester = Arc::clone(ingester);
    tasks.spawn(async move {
        let mut changes = handle.status_changes();
        loop {
            ingester.note_ring_state(changes.borrow_and_update().state);
            // Both arms only wait.
            tokio::select! {
                () = drain.started() => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    });
}
