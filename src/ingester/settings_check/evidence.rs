//! What distributors send us, gathered to tell by it which setting differs.

use std::time::Duration;

use super::explain::{Evidence, Explanation, explain};
use crate::clock::Now;
use crate::ingester::Ingester;
use crate::series::Tick;
use crate::units::shard_size;

/// Series touched within this time are what distributors send us now.
const EVIDENCE_AGE: Duration = Duration::from_secs(300);
/// As many of them tell a setting by; more would only take longer.
const EVIDENCE_KEYS_MAX: usize = 100_000;

impl Ingester {
    /// The setting that explains that series of the last minutes are not ours.
    pub(in crate::ingester) fn explain_mismatch(&self, now: Now) -> Option<Explanation> {
        let since = Tick::new(now.steady_s().saturating_sub(EVIDENCE_AGE.as_secs() as u32));
        let mut room = EVIDENCE_KEYS_MAX;
        let mut evidence = Vec::new();
        for tenant in self.tenants.all() {
            if room == 0 {
                break;
            }
            let mut keys = Vec::new();
            tenant.series.survey(|candidate| {
                if candidate.touched >= since && keys.len() < room {
                    keys.push(candidate.key);
                }
            });
            room -= keys.len();
            let limits = tenant.standing.load().limits.ingestion_tenant_shard_size;
            let shard_size = shard_size(limits, self.ring.load().members().len());
            evidence.push(Evidence { tenant: tenant.id.clone(), keys, shard_size });
        }
        explain(&self.ring.load(), self.role.shuffle_sharding, &evidence)
    }
}
