//! HA deduplication as a step of the story: whose samples a request carries, and what becomes of
//! them. Samples that are dropped for another replica's are charged to nobody.

use crate::distributor::counters::TenantCounters;
use crate::distributor::ha::{
    HaError, HaRequest, HaTracker, ReplicasNotMatch, TOO_MANY_CLUSTERS_REASON, TooManyReplicaGroups,
};
use crate::distributor::prepared::Counts;
use crate::distributor::rates::Account;
use crate::distributor::received::Decoded;

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
}

/// Decides about a request; the store of elected replicas may have to be asked.
pub(super) async fn decide(
    tracker: &HaTracker,
    account: Account<'_>,
    decoded: &Decoded,
    counters: &TenantCounters,
) -> Result<HaRequest, Dropped> {
    let Account { tenant, limits, now, .. } = account;
    let request = tracker.decide(tenant, limits, &decoded.body, now.unix_ms).await?;
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
