//! What HA tracking says of a whole request: decided before its series are prepared, since the
//! store may have to be asked and preparation waits for nothing.
//!
//! By default the labels of the first series stand for all; with mixed requests each series is
//! looked at, and the distinct pairs of labels are decided once each.

use std::sync::Arc;

use hashbrown::HashMap;
use tokio::time::{Instant, timeout_at};

use super::{ASK_TIMEOUT, HaError, HaTracker, HaVerdict, ReplicasNotMatch, TooManyReplicaGroups};
use crate::limits::Limits;
use crate::tenant::TenantId;

/// Most pairs of cluster and replica that a mixed request may name. A gateway in front of a
/// thousand clusters fits; series of further pairs are dropped as those that the store cannot
/// tell about.
pub const PAIRS_PER_REQUEST_MAX: usize = 1000;

/// Both labels of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaLabels<'a> {
    pub cluster: &'a str,
    pub replica: &'a str,
}

/// What becomes of a request, or of each of its series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HaRequest {
    /// Nothing is looked at: the tenant's limits do not ask for it.
    Off,
    /// All series go on as they are; they count as samples without HA labels.
    NonHa,
    /// All series go on without the replica's label.
    Strip,
    /// Nothing goes on; answered 202.
    Deduped { cluster: String, refusal: ReplicasNotMatch },
    /// Nothing goes on; answered 400.
    TooMany(TooManyReplicaGroups),
    /// Each series by its own labels: see [`HaRequest::of`].
    Mixed(Arc<MixedVerdicts>),
}

/// Verdicts of a mixed request: cluster, then replica.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MixedVerdicts(HashMap<Box<str>, HashMap<Box<str>, SeriesVerdict>>);

/// What becomes of one series of a mixed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesVerdict {
    /// Goes on as it is, counted as without HA labels.
    NonHa,
    /// Goes on without the replica's label.
    Strip,
    /// Dropped and counted as deduped; never told to the sender.
    Deduped,
    /// Dropped and counted as discarded for [`super::TOO_MANY_CLUSTERS_REASON`].
    TooMany,
    /// Dropped, since the store could not tell; as in Cortex nobody is told.
    Unknown,
}

impl<'a> HaLabels<'a> {
    /// Both labels, if a series has them. Of a name that is there twice the last counts, as in
    /// Cortex. What is not UTF-8 names no replica that anybody could elect.
    pub fn find(
        limits: &Limits,
        labels: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Option<Self> {
        let (mut cluster, mut replica): (&[u8], &[u8]) = (&[], &[]);
        for (name, value) in labels {
            if name == limits.ha_replica_label.as_bytes() {
                replica = value;
            }
            if name == limits.ha_cluster_label.as_bytes() {
                cluster = value;
            }
        }
        if cluster.is_empty() || replica.is_empty() {
            return None;
        }
        let cluster = std::str::from_utf8(cluster).ok()?;
        let replica = std::str::from_utf8(replica).ok()?;
        Some(Self { cluster, replica })
    }

    /// Longer than any label may be: validation is going to refuse the series, and nothing so
    /// long is remembered before it does.
    fn are_too_long(self, limits: &Limits) -> bool {
        let longest = self.cluster.len().max(self.replica.len()) as u64;
        longest > limits.max_label_value_length
    }
}

impl HaTracker {
    /// Decides about a request whose series carry these labels, in their order.
    pub async fn decide<'a>(
        &self,
        tenant: &TenantId,
        limits: &Limits,
        mut series: impl Iterator<Item = Option<HaLabels<'a>>>,
        now_ms: i64,
    ) -> Result<HaRequest, HaError> {
        if !limits.accept_ha_samples {
            return Ok(HaRequest::Off);
        }
        if limits.accept_mixed_ha_samples {
            return Ok(self.decide_each(tenant, limits, series, now_ms).await);
        }
        let Some(first) = series.next() else { return Ok(HaRequest::Off) };
        let Some(labels) = first.filter(|labels| !labels.are_too_long(limits)) else {
            return Ok(HaRequest::NonHa);
        };
        Ok(match self.settle(tenant, labels, limits, now_ms).await? {
            HaVerdict::Accept | HaVerdict::AskStore => HaRequest::Strip,
            HaVerdict::Deduped(refusal) => {
                HaRequest::Deduped { cluster: labels.cluster.to_owned(), refusal }
            }
            HaVerdict::TooMany(refusal) => HaRequest::TooMany(refusal),
        })
    }

    async fn decide_each<'a>(
        &self,
        tenant: &TenantId,
        limits: &Limits,
        series: impl Iterator<Item = Option<HaLabels<'a>>>,
        now_ms: i64,
    ) -> HaRequest {
        let mut verdicts = MixedVerdicts::default();
        let mut pairs = 0;
        // For all of its questions together: they are asked one after another.
        let deadline = Instant::now() + ASK_TIMEOUT;
        for labels in series.flatten() {
            if verdicts.get(labels).is_some() || pairs == PAIRS_PER_REQUEST_MAX {
                continue;
            }
            pairs += 1;
            let verdict = if labels.are_too_long(limits) {
                SeriesVerdict::Strip
            } else {
                let settling = timeout_at(deadline, self.settle(tenant, labels, limits, now_ms));
                match settling.await.unwrap_or(Err(HaError::Timeout)) {
                    Ok(HaVerdict::Accept | HaVerdict::AskStore) => SeriesVerdict::Strip,
                    Ok(HaVerdict::Deduped(_)) => SeriesVerdict::Deduped,
                    Ok(HaVerdict::TooMany(_)) => SeriesVerdict::TooMany,
                    Err(error) => {
                        let tenant = tenant.as_str();
                        tracing::debug!(tenant, %error, "series dropped: nobody knows their replica");
                        SeriesVerdict::Unknown
                    }
                }
            };
            let replicas = verdicts.0.entry(labels.cluster.into()).or_default();
            replicas.insert(labels.replica.into(), verdict);
        }
        HaRequest::Mixed(Arc::new(verdicts))
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        labels: HaLabels<'_>,
        limits: &Limits,
        now_ms: i64,
    ) -> Result<HaVerdict, HaError> {
        let HaLabels { cluster, replica } = labels;
        match self.check(tenant, cluster, replica, limits, now_ms) {
            HaVerdict::AskStore => self.ask(tenant, cluster, replica, limits, now_ms).await,
            verdict => Ok(verdict),
        }
    }
}

impl HaRequest {
    /// What becomes of a series with these labels. They are only looked for in mixed requests;
    /// a request that is refused as a whole has no series that go on.
    pub fn of<'a>(&self, labels: impl FnOnce() -> Option<HaLabels<'a>>) -> SeriesVerdict {
        match self {
            Self::Off | Self::NonHa => SeriesVerdict::NonHa,
            Self::Strip => SeriesVerdict::Strip,
            Self::Deduped { .. } => SeriesVerdict::Deduped,
            Self::TooMany(_) => SeriesVerdict::TooMany,
            Self::Mixed(verdicts) => match labels() {
                None => SeriesVerdict::NonHa,
                Some(labels) => verdicts.get(labels).unwrap_or(SeriesVerdict::Unknown),
            },
        }
    }
}

impl MixedVerdicts {
    fn get(&self, labels: HaLabels<'_>) -> Option<SeriesVerdict> {
        self.0.get(labels.cluster)?.get(labels.replica).copied()
    }
}
