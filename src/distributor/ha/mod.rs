//! High availability: of the replicas of a cluster, the samples of one are taken.
//!
//! The elected replica of each tenant and cluster is kept in a KV store under Cortex's key and in
//! Cortex's bytes, so that Cortex's distributors and ours elect together. Samples are judged from
//! what the store told last ([`HaTracker::check`], which waits for nothing); the store is asked
//! where that is too old to decide ([`HaTracker::ask`]), and told from behind the samples that
//! the elected replica is alive ([`HaDriver`]).
//!
//! Must hold: samples of two replicas of one cluster are not both taken within the failover
//! timeout; samples that are dropped are charged to nobody; a store that does not answer stops
//! no samples before the failover timeout has passed, and holds no request longer than
//! [`ASK_TIMEOUT`].

mod config;
mod driver;
mod elections;
mod metrics;
mod requests;

#[cfg(test)]
mod tests;

use std::hash::BuildHasher as _;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use prometheus::Registry;
use rand::RngExt as _;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use crate::limits::Limits;
use crate::ring::kv::inmemory::InMemoryKv;
use crate::ring::kv::{KvClient, KvError};
use crate::sync::Ordering;
use crate::tenant::TenantId;
use crate::units::Millis;
use crate::wire::DecodeError;
use crate::wire::replica_desc::{self, ElectedReplica};

pub use config::{HaKvConfig, HaStoreKind, HaTrackerConfig, HaTrackerConfigError};
pub use driver::HaDriver;
pub use elections::CLUSTERS_MAX;
pub use metrics::ElectedView;
pub use requests::{HaRequest, MixedVerdicts, PAIRS_PER_REQUEST_MAX};

use elections::{Decision, Elections, Judgement, Terms};
use metrics::Metrics;

/// Cortex's reason for samples of clusters beyond the limit, in `cortex_discarded_samples_total`.
pub const TOO_MANY_CLUSTERS_REASON: &str = "too_many_ha_clusters";

/// How long a request waits for the store, its place in the line of askers included. A sender
/// gives up after 30 seconds as a rule, and the answer has to come before.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// Lines of askers: those of one cluster stand in one line, so that the first answer is
/// everybody's, and there are no more questions at once than lines.
const ASK_LINES: usize = 64;

/// Renewals that wait for the driver. One is due per cluster and update timeout; what finds no
/// place is due again with the next sample.
const RENEWALS_MAX: usize = 4096;

/// What becomes of a sample that carries both labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HaVerdict {
    /// Taken, without the replica's label.
    Accept,
    /// Another replica is elected.
    Deduped(ReplicasNotMatch),
    TooMany(TooManyReplicaGroups),
    /// Only the store can tell: see [`HaTracker::ask`].
    AskStore,
}

/// The text is Cortex's; the answer is 202, so that the sender does not send it again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("replicas did not match, rejecting sample: replica={replica}, elected={elected}")]
pub struct ReplicasNotMatch {
    pub replica: String,
    pub elected: String,
}

/// The text is Cortex's; the answer is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many HA replicaGroups (limit: {limit})")]
pub struct TooManyReplicaGroups {
    pub limit: i64,
}

/// It could not be told which replica is elected; the answer is 500.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HaError {
    #[error("the store of elected replicas cannot be asked: {0}")]
    Store(#[from] KvError),
    #[error("the store of elected replicas has not answered within {ASK_TIMEOUT:?}")]
    Timeout,
    /// The request itself; decoding has found it sound before, as a rule.
    #[error(transparent)]
    Unreadable(#[from] DecodeError),
}

/// Judges samples by their replica.
pub struct HaTracker {
    /// `None`: tracking is off, and everything is taken.
    store: Option<Store>,
    /// Locked for one look-up or one change at a time, never across an await.
    elections: RwLock<Elections>,
    update_timeout: Millis,
    /// May be below 0, down to minus the timeout and beyond; then each sample renews.
    update_ms: i64,
    lines: Vec<Mutex<()>>,
    hasher: DefaultHashBuilder,
    metrics: Metrics,
}

struct Store {
    kv: KvClient,
    /// Before each `tenant/cluster`.
    prefix: String,
    renewals: mpsc::Sender<Renewal>,
}

/// The elected replica was heard of.
#[derive(Debug)]
struct Renewal {
    tenant: TenantId,
    cluster: Box<str>,
    replica: Box<str>,
    failover: Millis,
    received_at_ms: i64,
}

impl HaTracker {
    /// A tracker, and what keeps it in step with the store. `kv` is not used while tracking is
    /// off; then there is nothing to drive.
    pub fn new(
        config: &HaTrackerConfig,
        kv: KvClient,
        registry: &Registry,
    ) -> Result<(Arc<Self>, Option<HaDriver>), prometheus::Error> {
        let jitter_max = i64::try_from(config.ha_tracker_update_timeout_jitter_max.0);
        let jitter_ms = match jitter_max.unwrap_or(i64::MAX / 2) {
            0 => 0,
            max => rand::rng().random_range(-max..max),
        };
        let metrics = Metrics::register(registry)?;
        Ok(Self::with_jitter(config, kv, jitter_ms, metrics))
    }

    /// A tracker that is off, for a distributor without a process around it.
    pub fn off() -> Arc<Self> {
        let kv = KvClient::InMemory(InMemoryKv::default());
        let metrics = Metrics::register(&Registry::new()).expect("the registry is a fresh one");
        Self::with_jitter(&HaTrackerConfig::default(), kv, 0, metrics).0
    }

    fn with_jitter(
        config: &HaTrackerConfig,
        kv: KvClient,
        jitter_ms: i64,
        metrics: Metrics,
    ) -> (Arc<Self>, Option<HaDriver>) {
        let update = config.ha_tracker_update_timeout;
        let (renewals, due) = mpsc::channel(RENEWALS_MAX);
        let prefix = config.kvstore.prefix.clone();
        let tracker = Arc::new(Self {
            store: config.enable_ha_tracker.then_some(Store { kv, prefix, renewals }),
            elections: RwLock::default(),
            update_timeout: update,
            update_ms: i64::try_from(update.0).unwrap_or(i64::MAX).saturating_add(jitter_ms),
            lines: (0..ASK_LINES).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            metrics,
        });
        let driver = tracker.store.is_some().then(|| HaDriver::new(Arc::clone(&tracker), due));
        (tracker, driver)
    }

    /// Judges a sample by what is known here. Waits for nothing.
    pub fn check(
        &self,
        tenant: &TenantId,
        cluster: &str,
        replica: &str,
        limits: &Limits,
        now_ms: i64,
    ) -> HaVerdict {
        let Some(store) = &self.store else { return HaVerdict::Accept };
        let elections = self.elections.read().unwrap_or_else(PoisonError::into_inner);
        let judgement = elections.judge(tenant, cluster, replica, self.terms(limits), now_ms);
        match judgement {
            Judgement::Renew => {
                let renewal = Renewal {
                    tenant: tenant.clone(),
                    cluster: cluster.into(),
                    replica: replica.into(),
                    failover: limits.ha_tracker_failover_timeout,
                    received_at_ms: now_ms,
                };
                if store.renewals.try_send(renewal).is_err() {
                    elections.renewed(tenant, cluster);
                }
                HaVerdict::Accept
            }
            judgement => verdict(judgement, replica),
        }
    }

    /// The verdict of [`check`](Self::check) for those who only ask: nobody is told that the
    /// replica is alive.
    pub fn would_check(
        &self,
        tenant: &TenantId,
        cluster: &str,
        replica: &str,
        limits: &Limits,
        now_ms: i64,
    ) -> HaVerdict {
        if self.store.is_none() {
            return HaVerdict::Accept;
        }
        let elections = self.elections.read().unwrap_or_else(PoisonError::into_inner);
        let judgement = elections.judge(tenant, cluster, replica, self.terms(limits), now_ms);
        if judgement == Judgement::Renew {
            // It is said once, and has to be said to somebody who tells the store.
            elections.renewed(tenant, cluster);
        }
        verdict(judgement, replica)
    }

    /// Judges a sample as [`check`](Self::check), by the store where need be: that may elect
    /// the sample's replica. Never answers [`HaVerdict::AskStore`].
    pub async fn ask(
        &self,
        tenant: &TenantId,
        cluster: &str,
        replica: &str,
        limits: &Limits,
        now_ms: i64,
    ) -> Result<HaVerdict, HaError> {
        let asking = async {
            let line = self.hasher.hash_one((tenant, cluster)) as usize % ASK_LINES;
            let _place = self.lines[line].lock().await;
            // Who stood before us may have asked the same.
            match self.check(tenant, cluster, replica, limits, now_ms) {
                HaVerdict::AskStore => {}
                verdict => return Ok(verdict),
            }
            let decision = self.swap(tenant, cluster, replica, self.terms(limits), now_ms).await?;
            Ok(match decision {
                Decision::Keep | Decision::Elect(_) => HaVerdict::Accept,
                Decision::Deduped { elected } => {
                    HaVerdict::Deduped(ReplicasNotMatch { replica: replica.to_owned(), elected })
                }
            })
        };
        timeout(ASK_TIMEOUT, asking).await.unwrap_or(Err(HaError::Timeout))
    }

    /// Samples of that cluster which were dropped for another replica's.
    pub fn count_deduped(&self, tenant: &TenantId, cluster: &str, samples: u64) {
        let elections = self.elections.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = elections.get(tenant, cluster) {
            known.deduped_samples.fetch_add(samples, Ordering::Relaxed);
        }
    }

    /// Samples without both labels, of a tenant whose limits ask for them.
    pub fn count_non_ha(&self, tenant: &TenantId, samples: u64) {
        // Nobody would read it, and nothing would forget it.
        if self.store.is_none() {
            return;
        }
        let elections = self.elections.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = elections.tenant(tenant) {
            known.non_ha_samples.fetch_add(samples, Ordering::Relaxed);
            return;
        }
        drop(elections);
        let mut elections = self.elections.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = elections.tenant_or_new(tenant) {
            known.non_ha_samples.fetch_add(samples, Ordering::Relaxed);
        }
    }

    fn terms(&self, limits: &Limits) -> Terms {
        Terms {
            update_ms: self.update_ms,
            failover: limits.ha_tracker_failover_timeout,
            clusters_max: limits.ha_max_clusters,
        }
    }

    /// Has the store decide, and takes over what it holds then.
    async fn swap(
        &self,
        tenant: &TenantId,
        cluster: &str,
        replica: &str,
        terms: Terms,
        now_ms: i64,
    ) -> Result<Decision, HaError> {
        let Some(store) = &self.store else { return Ok(Decision::Keep) };
        let key = format!("{}{}/{cluster}", store.prefix, tenant.as_str());
        let mut last: Option<(Decision, Option<ElectedReplica>)> = None;
        let swapping = store.kv.cas(&key, |stored| {
            let stored = stored.map(|bytes| replica_desc::decode(&bytes)).transpose();
            let stored = stored.map_err(|error| with_source(&error))?;
            let decision = elections::decide(stored.as_ref(), replica, terms, now_ms);
            let bytes = match &decision {
                Decision::Elect(elected) => Some(replica_desc::encode(elected).into()),
                Decision::Keep | Decision::Deduped { .. } => None,
            };
            last = Some((decision, stored));
            Ok(bytes)
        });
        let outcome = swapping.await;
        if outcome.is_err() {
            self.count_swap(tenant, cluster);
        }
        outcome?;
        let (decision, stored) = last.expect("a swap that ends well has called its closure");
        let in_force = match &decision {
            Decision::Elect(elected) => Some(elected),
            Decision::Keep | Decision::Deduped { .. } => stored.as_ref(),
        };
        if let Some(in_force) = in_force {
            let mut elections = self.elections.write().unwrap_or_else(PoisonError::into_inner);
            elections.learn(tenant, cluster, in_force, 0);
        }
        // Behind it: the first swap makes the place where it is counted.
        self.count_swap(tenant, cluster);
        Ok(decision)
    }

    fn count_swap(&self, tenant: &TenantId, cluster: &str) {
        let elections = self.elections.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = elections.get(tenant, cluster) {
            known.swaps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An error with its cause, for the store's own errors hold a text.
fn verdict(judgement: Judgement, replica: &str) -> HaVerdict {
    match judgement {
        Judgement::Accept | Judgement::Renew => HaVerdict::Accept,
        Judgement::Deduped { elected } => {
            let (replica, elected) = (replica.to_owned(), elected.to_string());
            HaVerdict::Deduped(ReplicasNotMatch { replica, elected })
        }
        Judgement::TooMany { limit } => HaVerdict::TooMany(TooManyReplicaGroups { limit }),
        Judgement::AskStore => HaVerdict::AskStore,
    }
}

fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
