//! What applies to a tenant right now: its limits here, and which of its keys are ours.
//!
//! Worked out when the ring or the limits change, never on the way of a push. Everything in a
//! [`Standing`] comes from one ring snapshot and one set of limits, so that a count and the limit
//! it is compared with never belong to different rings.

use std::sync::Arc;

use crate::ingester::config::SeriesLimitMode;
use crate::ingester::metadata::MetadataLimits;
use crate::keys::KeySet;
use crate::limits::{Limits, LocalLimits, NO_LIMIT, Shape};
use crate::ring::{OwnView, RingSnapshot, UnknownOwnership};
use crate::series;
use crate::tenant::TenantId;
use crate::units::shard_size;

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct Standing {
    pub limits: Arc<Limits>,
    /// Grows when the tenant's label sets change; their indices belong to it.
    pub label_sets_generation: u64,
    /// What the limits are divided by.
    pub shape: Shape,
    /// Number of the tenant's view; grows when what is ours changes.
    pub epoch: u64,
    pub keys: Arc<KeySet>,
    /// Our share of the tenant's key space, in 0..=1.
    pub share: f64,
    /// Why `keys` are all keys: what is ours is not known.
    pub unknown: Option<Unknown>,
    /// What `keys` were made from, so that they are made anew only when it changes.
    made_from: MadeFrom,
}

/// Why we do not know which of a tenant's keys are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    #[error(transparent)]
    Ring(#[from] UnknownOwnership),
    #[error("series arrive that the ring does not assign to us")]
    Mismatch,
}

/// What standings are worked out by, beside ring and limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    pub mode: SeriesLimitMode,
    pub shard_by_all_labels: bool,
    pub shuffle_sharding: bool,
    /// The ring's word on what is ours has proved wrong.
    pub mismatch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MadeFrom {
    ring_generation: u64,
    shard_size: i64,
    mismatch: bool,
}

/// Our keys of a tenant's series.
struct OwnKeys {
    keys: Arc<KeySet>,
    share: f64,
    unknown: Option<Unknown>,
}

impl Standing {
    /// Works out a tenant's standing; `before` is the one it replaces.
    pub fn new(
        tenant: &TenantId,
        limits: &Arc<Limits>,
        ring: &RingSnapshot,
        rules: Rules,
        before: Option<&Standing>,
    ) -> Self {
        let configured =
            if rules.shuffle_sharding { limits.ingestion_tenant_shard_size } else { 0.0 };
        let made_from = MadeFrom {
            ring_generation: ring.generation(),
            shard_size: shard_size(configured, ring.members().len()),
            mismatch: rules.mismatch,
        };
        let own = match before {
            Some(before) if before.made_from == made_from => OwnKeys {
                keys: Arc::clone(&before.keys),
                share: before.share,
                unknown: before.unknown,
            },
            _ => OwnKeys::read(tenant, ring, made_from),
        };
        let settings = ring.settings();
        let in_share_mode = rules.mode == SeriesLimitMode::Share && own.unknown.is_none();
        let shape = Shape {
            healthy_instances: ring.healthy_count(),
            zones_count: ring.zones().len(),
            zone_awareness: settings.zone_awareness_enabled,
            replication_factor: settings.replication_factor,
            shard_by_all_labels: rules.shard_by_all_labels,
            shard_size: configured,
            share: in_share_mode.then_some(own.share),
        };
        let epoch = match before {
            None => 1,
            Some(before) if before.keys == own.keys => before.epoch,
            Some(before) => before.epoch + 1,
        };
        let sets = &limits.limits_per_label_set;
        let label_sets_generation = match before {
            None => 1,
            Some(before) if before.limits.limits_per_label_set == *sets => {
                before.label_sets_generation
            }
            Some(before) => before.label_sets_generation + 1,
        };
        Self {
            limits: Arc::clone(limits),
            label_sets_generation,
            shape,
            epoch,
            keys: own.keys,
            share: own.share,
            unknown: own.unknown,
            made_from,
        }
    }

    /// Whether a tenant that stood like this has nothing to do.
    pub fn is_same(&self, other: &Standing) -> bool {
        self.epoch == other.epoch
            && self.shape == other.shape
            && self.made_from == other.made_from
            && (Arc::ptr_eq(&self.limits, &other.limits) || self.limits == other.limits)
    }

    /// Whether both were worked out from the same ring.
    pub fn is_same_ring(&self, other: &Standing) -> bool {
        self.made_from.ring_generation == other.made_from.ring_generation
    }

    pub fn view(&self) -> series::View {
        series::View { epoch: self.epoch, keys: Arc::clone(&self.keys) }
    }

    /// What the limits come to under a shape: this standing's, or the one it replaces.
    pub fn local_limits(&self, shape: &Shape) -> series::LocalLimits {
        let local = LocalLimits::new(&self.limits, shape);
        series::LocalLimits {
            series: local.series.most(),
            native_histogram_series: local.native_histogram_series.most(),
            per_metric: local.series_per_metric.most(),
            label_sets: local.label_sets.iter().map(|limit| limit.most()).collect(),
            reason: match shape.share {
                Some(_) => series::InForce::Share,
                None => series::InForce::Flat,
            },
        }
    }

    /// There is a limit per metric, so series are counted by metric.
    pub fn counts_metrics(&self) -> bool {
        LocalLimits::new(&self.limits, &self.shape).series_per_metric.0 != NO_LIMIT
    }

    pub fn counts_label_sets(&self) -> bool {
        !self.limits.limits_per_label_set.is_empty()
    }

    pub fn metadata_limits(&self) -> MetadataLimits {
        let local = LocalLimits::new(&self.limits, &self.shape);
        MetadataLimits {
            per_user: local.metadata.most(),
            per_metric: local.metadata_per_metric.most(),
        }
    }
}

impl OwnKeys {
    /// While what is ours is unknown every key counts as ours: the count compared with the limit
    /// is then the one in memory, as in Cortex. Unknown never means unlimited.
    fn read(tenant: &TenantId, ring: &RingSnapshot, from: MadeFrom) -> Self {
        let owned = if from.mismatch {
            Err(Unknown::Mismatch)
        } else if from.shard_size > 0 {
            let view = ring.tenant_view(tenant.as_str(), from.shard_size);
            view.map(|view| (view.keys, view.share)).map_err(Unknown::Ring)
        } else {
            match ring.own() {
                OwnView::Known(owned) => Ok((Arc::clone(&owned.keys), owned.share)),
                OwnView::Unknown(reason) => Err(Unknown::Ring(*reason)),
            }
        };
        match owned {
            Ok((keys, share)) => Self { keys, share, unknown: None },
            Err(reason) => {
                Self { keys: Arc::new(KeySet::all()), share: 1.0, unknown: Some(reason) }
            }
        }
    }
}
