//! What HA tracking says of a whole request: decided before its series are prepared, since the
//! store may have to be asked and preparation waits for nothing.
//!
//! By default the labels of the first series stand for all; with mixed requests each series is
//! looked at, and the distinct pairs of labels are decided once each.

use hashbrown::HashMap;
use tokio::time::{Instant, timeout_at};

use super::{ASK_TIMEOUT, HaError, HaTracker, HaVerdict, ReplicasNotMatch, TooManyReplicaGroups};
use crate::distributor::prepare::{
    HaLabels, HaPair, HaSeries, Replicas, Verdict, each_replica, replica_of_first_series,
};
use crate::limits::Limits;
use crate::tenant::TenantId;

/// Most pairs of cluster and replica that a mixed request may name. A gateway in front of a
/// thousand clusters fits; series of further pairs are dropped as those that the store cannot
/// tell about.
pub const PAIRS_PER_REQUEST_MAX: usize = 1000;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HaRequest {
    /// Nothing is looked at: the tenant's limits do not ask for it.
    Off,
    /// All series go on as they are; their samples are to be counted as without HA labels.
    NonHa,
    /// All series go on without the replica's label.
    Strip,
    /// Nothing goes on and nothing is charged; answered 202, all samples counted as deduped.
    Deduped { cluster: String, refusal: ReplicasNotMatch },
    /// Nothing goes on; answered 400, all samples discarded for
    /// [`super::TOO_MANY_CLUSTERS_REASON`].
    TooMany(TooManyReplicaGroups),
    /// Each series by its own labels.
    Mixed(MixedVerdicts),
}

/// Verdicts of a mixed request: cluster, then replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MixedVerdicts(HashMap<Vec<u8>, HashMap<Vec<u8>, Verdict>>);

impl HaTracker {
    /// Decides about `body`, a `WriteRequest`. Waits for the store where it has to be asked, for
    /// [`ASK_TIMEOUT`] at the most.
    pub async fn decide(
        &self,
        tenant: &TenantId,
        limits: &Limits,
        body: &[u8],
        now_ms: i64,
    ) -> Result<HaRequest, HaError> {
        if !limits.accept_ha_samples {
            return Ok(HaRequest::Off);
        }
        if limits.accept_mixed_ha_samples {
            return self.decide_each(tenant, limits, body, now_ms).await.map(HaRequest::Mixed);
        }
        let Some(pair) = replica_of_first_series(body, names(limits))? else {
            return Ok(HaRequest::Off);
        };
        let Some((cluster, replica)) = trackable(pair, limits) else {
            return Ok(HaRequest::NonHa);
        };
        let verdict = self.settle(tenant, cluster, replica, limits, now_ms).await?;
        Ok(of_whole(verdict, cluster))
    }

    /// What would be decided about `body`, a request of one series, by what is known here: the
    /// store is neither asked nor told. `None` where it would have to be asked.
    pub fn look(
        &self,
        tenant: &TenantId,
        limits: &Limits,
        body: &[u8],
        now_ms: i64,
    ) -> Result<Option<HaRequest>, HaError> {
        if !limits.accept_ha_samples {
            return Ok(Some(HaRequest::Off));
        }
        let Some(pair) = replica_of_first_series(body, names(limits))? else {
            return Ok(Some(HaRequest::Off));
        };
        let Some((cluster, replica)) = trackable(pair, limits) else {
            return Ok(Some(HaRequest::NonHa));
        };
        let verdict = self.would_check(tenant, cluster, replica, limits, now_ms);
        Ok(match verdict {
            HaVerdict::AskStore => None,
            verdict => Some(of_whole(verdict, cluster)),
        })
    }

    /// Judges a series of a mixed request, and counts its samples if they are dropped for
    /// another replica's. Waits for nothing.
    pub fn judge(&self, tenant: &TenantId, request: &HaRequest, series: HaSeries<'_>) -> Verdict {
        let HaRequest::Mixed(verdicts) = request else { return Verdict::Unknown };
        let verdict = verdicts.get(series.pair).unwrap_or(Verdict::Unknown);
        if verdict == Verdict::Deduplicated
            && let Ok(cluster) = std::str::from_utf8(series.pair.cluster)
        {
            self.count_deduped(tenant, cluster, series.samples);
        }
        verdict
    }

    async fn decide_each(
        &self,
        tenant: &TenantId,
        limits: &Limits,
        body: &[u8],
        now_ms: i64,
    ) -> Result<MixedVerdicts, HaError> {
        let mut verdicts = MixedVerdicts::default();
        let mut pairs = Vec::new();
        each_replica(body, names(limits), |pair| {
            if pairs.len() < PAIRS_PER_REQUEST_MAX && verdicts.get(pair).is_none() {
                // Until it is settled.
                verdicts.set(pair, Verdict::Unknown);
                pairs.push(pair);
            }
        })?;
        // For all of its questions together: they are asked one after another.
        let deadline = Instant::now() + ASK_TIMEOUT;
        for pair in pairs {
            // What can be no replica is taken and loses its label, as in Cortex.
            let Some((cluster, replica)) = trackable(pair, limits) else {
                verdicts.set(pair, Verdict::Accepted);
                continue;
            };
            let settling = self.settle(tenant, cluster, replica, limits, now_ms);
            let settled = timeout_at(deadline, settling).await.unwrap_or(Err(HaError::Timeout));
            let verdict = match settled {
                Ok(HaVerdict::Accept | HaVerdict::AskStore) => Verdict::Accepted,
                Ok(HaVerdict::Deduped(_)) => Verdict::Deduplicated,
                Ok(HaVerdict::TooMany(_)) => Verdict::TooManyClusters,
                Err(error) => {
                    let tenant = tenant.as_str();
                    tracing::debug!(tenant, %error, "series dropped: nobody knows their replica");
                    Verdict::Unknown
                }
            };
            verdicts.set(pair, verdict);
        }
        Ok(verdicts)
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        cluster: &str,
        replica: &str,
        limits: &Limits,
        now_ms: i64,
    ) -> Result<HaVerdict, HaError> {
        match self.check(tenant, cluster, replica, limits, now_ms) {
            HaVerdict::AskStore => self.ask(tenant, cluster, replica, limits, now_ms).await,
            verdict => Ok(verdict),
        }
    }
}

impl HaRequest {
    /// Whether series that go on may lose a label.
    pub fn rewrites(&self) -> bool {
        matches!(self, Self::Strip | Self::Mixed(_))
    }

    /// How a request that goes on is prepared; `judge` ends in [`HaTracker::judge`].
    pub fn replicas<'a>(
        &self,
        limits: &'a Limits,
        judge: &'a dyn Fn(HaSeries<'_>) -> Verdict,
    ) -> Replicas<'a> {
        match self {
            Self::Off | Self::NonHa | Self::Deduped { .. } | Self::TooMany(_) => Replicas::Kept,
            Self::Strip => Replicas::Removed { replica_label: &limits.ha_replica_label },
            Self::Mixed(_) => Replicas::Judged { labels: names(limits), judge },
        }
    }
}

impl MixedVerdicts {
    fn get(&self, pair: HaPair<'_>) -> Option<Verdict> {
        self.0.get(pair.cluster)?.get(pair.replica).copied()
    }

    fn set(&mut self, pair: HaPair<'_>, verdict: Verdict) {
        let replicas = self.0.entry(pair.cluster.to_vec()).or_default();
        replicas.insert(pair.replica.to_vec(), verdict);
    }
}

/// What a verdict makes of a whole request.
fn of_whole(verdict: HaVerdict, cluster: &str) -> HaRequest {
    match verdict {
        HaVerdict::Accept | HaVerdict::AskStore => HaRequest::Strip,
        HaVerdict::Deduped(refusal) => HaRequest::Deduped { cluster: cluster.to_owned(), refusal },
        HaVerdict::TooMany(refusal) => HaRequest::TooMany(refusal),
    }
}

fn names(limits: &Limits) -> HaLabels<'_> {
    HaLabels { cluster: &limits.ha_cluster_label, replica: &limits.ha_replica_label }
}

/// Cluster and replica, if they can be tracked. What is longer than any label may be is refused
/// by validation anyway, and nothing so long is remembered before; what is not UTF-8 is no part
/// of a key.
fn trackable<'a>(pair: HaPair<'a>, limits: &Limits) -> Option<(&'a str, &'a str)> {
    let longest = pair.cluster.len().max(pair.replica.len()) as u64;
    if !pair.is_whole() || longest > limits.max_label_value_length {
        return None;
    }
    Some((std::str::from_utf8(pair.cluster).ok()?, std::str::from_utf8(pair.replica).ok()?))
}
