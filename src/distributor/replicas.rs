//! HA deduplication as a step of the story: whose samples a request carries, and what becomes of
//! them. Samples that are dropped for another replica's are charged to nobody.

use crate::distributor::counters::TenantCounters;
use crate::distributor::ha::{
    HaError, HaLabels as Pair, HaRequest, HaTracker, ReplicasNotMatch, SeriesVerdict,
    TOO_MANY_CLUSTERS_REASON, TooManyReplicaGroups,
};
use crate::distributor::prepare::{HaLabels, HaSeries, Replicas, Verdict};
use crate::distributor::prepared::Counts;
use crate::distributor::rates::Account;
use crate::distributor::received::Decoded;
use crate::wire::DecodeError;
use crate::wire::write_request::{Series, WriteRequest};

/// Why nothing of a request goes on.
#[derive(Debug, thiserror::Error)]
pub enum Dropped {
    /// The answer is 202: the sender has done nothing wrong and is not to try again.
    #[error(transparent)]
    Deduped(#[from] ReplicasNotMatch),
    #[error(transparent)]
    TooMany(#[from] TooManyReplicaGroups),
    #[error(transparent)]
    Store(#[from] HaError),
    #[error(transparent)]
    Unreadable(#[from] DecodeError),
}

/// Decides about a request; the store of elected replicas may have to be asked.
pub(super) async fn decide(
    tracker: &HaTracker,
    account: Account<'_>,
    decoded: &Decoded,
    counters: &TenantCounters,
) -> Result<HaRequest, Dropped> {
    let Account { tenant, limits, now, .. } = account;
    if !limits.accept_ha_samples {
        return Ok(HaRequest::Off);
    }
    let pairs = pairs(&decoded.body, account)?;
    let request = tracker.decide(tenant, limits, pairs.into_iter(), now.unix_ms).await?;
    let samples = decoded.summary.samples + decoded.summary.histograms;
    match &request {
        HaRequest::Deduped { cluster, refusal } => {
            tracker.count_deduped(tenant, cluster, samples);
            return Err(refusal.clone().into());
        }
        HaRequest::TooMany(refusal) => {
            let counts = Counts { samples, ..Counts::default() };
            counters.discarded_whole(TOO_MANY_CLUSTERS_REASON, &counts);
            return Err((*refusal).into());
        }
        HaRequest::NonHa => tracker.count_non_ha(tenant, samples),
        HaRequest::Off | HaRequest::Strip | HaRequest::Mixed(_) => {}
    }
    Ok(request)
}

/// The labels that are looked at: those of each series of a tenant that mixes, else of the first.
fn pairs<'a>(body: &'a [u8], account: Account<'_>) -> Result<Vec<Option<Pair<'a>>>, DecodeError> {
    let limits = account.limits;
    let find = |series: &Series| Pair::find(limits, series.raw_labels(body));
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena)?;
    if !limits.accept_mixed_ha_samples {
        return Ok(request.next_series()?.iter().map(find).collect());
    }
    let mut pairs = Vec::new();
    while let Some(series) = request.next_series()? {
        let pair = find(&series);
        // Series of one sender come in rows.
        if pairs.last() != Some(&pair) {
            pairs.push(pair);
        }
    }
    Ok(pairs)
}

/// Has `prepare` called with what was decided.
pub(super) fn with_replicas<T>(
    tracker: &HaTracker,
    request: &HaRequest,
    account: Account<'_>,
    prepare: impl FnOnce(Replicas<'_>) -> T,
) -> T {
    let Account { tenant, limits, .. } = account;
    let labels = HaLabels { cluster: &limits.ha_cluster_label, replica: &limits.ha_replica_label };
    let judge = |series: HaSeries<'_>| {
        let cluster = std::str::from_utf8(series.pair.cluster);
        let replica = std::str::from_utf8(series.pair.replica);
        let pair = match (cluster, replica) {
            (Ok(cluster), Ok(replica)) => Some(Pair { cluster, replica }),
            _ => None,
        };
        match request.of(|| pair) {
            SeriesVerdict::NonHa | SeriesVerdict::Strip => Verdict::Accepted,
            SeriesVerdict::Deduped => {
                tracker.count_deduped(tenant, cluster.unwrap_or_default(), series.samples);
                Verdict::Deduplicated
            }
            SeriesVerdict::TooMany => Verdict::TooManyClusters,
            SeriesVerdict::Unknown => Verdict::Unknown,
        }
    };
    prepare(match request {
        HaRequest::Mixed(_) => Replicas::Judged { labels, judge: &judge },
        HaRequest::Strip => Replicas::Removed { replica_label: labels.replica },
        _ => Replicas::Kept,
    })
}
