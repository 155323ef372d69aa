//! Who is elected, as far as this process knows, and the rules of elections. No I/O, no clock.
//!
//! The store holds the truth, one value per tenant and cluster; what is kept here is what it told
//! last. Most samples are judged from that alone:
//!
//! * younger than the update timeout: the elected replica's are taken, all others are dropped;
//! * younger than the failover timeout: the same, since nobody may elect another one yet, but
//!   the elected replica's time is due to be written anew;
//! * older, or not known: the store decides.
//!
//! Cortex asks the store in the second case too and refuses samples while it does not answer;
//! its answer could not be another one.
//!
//! Invariants: what is known of a cluster never gets older; no more clusters are known than
//! [`CLUSTERS_MAX`]; a tenant without clusters that sends nothing is forgotten.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::tenant::TenantId;
use crate::units::Millis;
use crate::wire::replica_desc::ElectedReplica;

/// Most clusters of all tenants that are tracked, for tenants whose limits name no bound: at
/// about 250 bytes each they take 50 MB. Beyond it new clusters are refused as are those beyond
/// a tenant's own limit.
pub const CLUSTERS_MAX: usize = 200_000;

/// Most tenants whose samples without both labels are counted, as many as have other numbers of
/// the distributor's. They need no cluster, so made-up names would fill memory.
pub(super) const TENANTS_MAX: usize = 65_536;
/// Sweeps, one a minute, that a tenant without clusters outlives while it sends nothing: its
/// numbers go when the distributor's other numbers of it do.
pub(super) const IDLE_SWEEPS_MAX: u32 = 15;

/// What a tenant's limits and our settings say of its elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Our update timeout with its jitter.
    pub update_ms: i64,
    pub failover: Millis,
    /// 0 and below: no limit.
    pub clusters_max: i64,
}

/// What is known here of a sample's fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Accept,
    /// Taken; and the store has to be told that the elected replica is alive. Said once until
    /// [`Elections::renewed`].
    Renew,
    Deduped {
        elected: Arc<str>,
    },
    TooMany {
        limit: i64,
    },
    AskStore,
}

/// What becomes of a stored value that somebody asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The replica is elected, and its time is young enough.
    Keep,
    Deduped {
        elected: String,
    },
    /// The value to store: the replica is elected from now on, or still.
    Elect(ElectedReplica),
}

/// The rule for a stored value: who writes it decides, by the time of the sample at hand.
pub(super) fn decide(
    stored: Option<&ElectedReplica>,
    replica: &str,
    terms: Terms,
    now_ms: i64,
) -> Decision {
    if let Some(stored) = stored.filter(|stored| stored.deleted_at_ms == 0) {
        let age_ms = now_ms.saturating_sub(stored.received_at_ms);
        let is_elected = stored.replica == replica;
        if is_elected && age_ms < terms.update_ms {
            return Decision::Keep;
        }
        if !is_elected && age_ms < as_ms(terms.failover) {
            return Decision::Deduped { elected: stored.replica.clone() };
        }
    }
    let replica = replica.to_owned();
    Decision::Elect(ElectedReplica { replica, received_at_ms: now_ms, deleted_at_ms: 0 })
}

/// The elected replicas that are known.
#[derive(Debug, Default)]
pub(super) struct Elections {
    tenants: HashMap<TenantId, Tenant>,
    clusters: usize,
}

#[derive(Debug, Default)]
pub(super) struct Tenant {
    pub clusters: HashMap<Box<str>, Cluster>,
    /// Samples without both labels.
    pub non_ha_samples: AtomicU64,
    /// Sweeps that have found as many samples as the one before.
    idle_sweeps: u32,
    swept_samples: u64,
}

#[derive(Debug)]
pub(super) struct Cluster {
    pub replica: Arc<str>,
    pub received_at_ms: i64,
    /// Of the stored value; 0 where we have written it ourselves and not been told yet.
    version: u64,
    pub changes: u64,
    pub swaps: AtomicU64,
    pub deduped_samples: AtomicU64,
    /// Somebody is about to write its time anew.
    is_renewing: AtomicBool,
}

impl Elections {
    pub(super) fn judge(
        &self,
        tenant: &TenantId,
        cluster: &str,
        replica: &str,
        terms: Terms,
        now_ms: i64,
    ) -> Judgement {
        let known = self.tenants.get(tenant);
        if let Some(elected) = known.and_then(|known| known.clusters.get(cluster)) {
            let age_ms = now_ms.saturating_sub(elected.received_at_ms);
            let is_elected = &*elected.replica == replica;
            let is_young = age_ms < terms.update_ms;
            if !is_young && age_ms >= as_ms(terms.failover) {
                return Judgement::AskStore;
            }
            return match (is_elected, is_young) {
                (false, _) => Judgement::Deduped { elected: Arc::clone(&elected.replica) },
                (true, true) => Judgement::Accept,
                // A statistic's order would do: who sees the flag late asks once too often.
                (true, false) if elected.is_renewing.swap(true, Ordering::Relaxed) => {
                    Judgement::Accept
                }
                (true, false) => Judgement::Renew,
            };
        }
        let count = known.map_or(0, |known| known.clusters.len());
        let limit = terms.clusters_max;
        if limit > 0 && count as i64 >= limit {
            return Judgement::TooMany { limit };
        }
        if self.clusters >= CLUSTERS_MAX {
            return Judgement::TooMany { limit: CLUSTERS_MAX as i64 };
        }
        Judgement::AskStore
    }

    /// Takes over a stored value; tells whether it is news.
    pub(super) fn learn(
        &mut self,
        tenant: &TenantId,
        cluster: &str,
        stored: &ElectedReplica,
        version: u64,
    ) -> bool {
        if stored.deleted_at_ms > 0 {
            let known = self.get(tenant, cluster);
            // A mark that is older than what we have written since is history.
            if known.is_some_and(|known| known.received_at_ms <= stored.received_at_ms) {
                self.forget(tenant, cluster);
            }
            return false;
        }
        if let Some(known) =
            self.tenants.get_mut(tenant).and_then(|known| known.clusters.get_mut(cluster))
        {
            if stored.received_at_ms < known.received_at_ms {
                return false;
            }
            let is_other = *known.replica != *stored.replica;
            let is_news = is_other || stored.received_at_ms > known.received_at_ms;
            if is_other {
                known.replica = Arc::from(stored.replica.as_str());
                known.changes += 1;
            }
            known.received_at_ms = stored.received_at_ms;
            known.version = version;
            known.is_renewing.store(false, Ordering::Relaxed);
            return is_news;
        }
        if self.clusters >= CLUSTERS_MAX {
            return false;
        }
        let elected = Cluster {
            replica: Arc::from(stored.replica.as_str()),
            received_at_ms: stored.received_at_ms,
            version,
            changes: 1,
            swaps: AtomicU64::new(0),
            deduped_samples: AtomicU64::new(0),
            is_renewing: AtomicBool::new(false),
        };
        let known = self.tenants.entry(tenant.clone()).or_default();
        known.clusters.insert(cluster.into(), elected);
        self.clusters += 1;
        true
    }

    pub(super) fn forget(&mut self, tenant: &TenantId, cluster: &str) {
        let Some(known) = self.tenants.get_mut(tenant) else { return };
        if known.clusters.remove(cluster).is_some() {
            self.clusters -= 1;
        }
        let is_idle = known.non_ha_samples.load(Ordering::Relaxed) == 0;
        if known.clusters.is_empty() && is_idle {
            self.tenants.remove(tenant);
        }
    }

    /// Forgets what `keep` does not name.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&TenantId, &str) -> bool) {
        let gone: Vec<(TenantId, Box<str>)> = self
            .clusters()
            .filter(|(tenant, cluster, _)| !keep(tenant, cluster))
            .map(|(tenant, cluster, _)| (tenant.clone(), cluster.into()))
            .collect();
        for (tenant, cluster) in gone {
            self.forget(&tenant, &cluster);
        }
    }

    /// Whether that very value has been taken over.
    pub(super) fn has(&self, tenant: &TenantId, cluster: &str, version: u64) -> bool {
        version != 0 && self.get(tenant, cluster).is_some_and(|known| known.version == version)
    }

    pub(super) fn get(&self, tenant: &TenantId, cluster: &str) -> Option<&Cluster> {
        self.tenants.get(tenant)?.clusters.get(cluster)
    }

    /// A renewal has ended, whatever became of it; the next sample may ask for another.
    pub(super) fn renewed(&self, tenant: &TenantId, cluster: &str) {
        if let Some(known) = self.get(tenant, cluster) {
            known.is_renewing.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn tenants(&self) -> impl Iterator<Item = (&TenantId, &Tenant)> {
        self.tenants.iter()
    }

    pub(super) fn tenant(&self, tenant: &TenantId) -> Option<&Tenant> {
        self.tenants.get(tenant)
    }

    /// `None` for a new one where there are [`TENANTS_MAX`].
    pub(super) fn tenant_or_new(&mut self, tenant: &TenantId) -> Option<&Tenant> {
        if self.tenants.len() >= TENANTS_MAX {
            return self.tenants.get(tenant);
        }
        Some(self.tenants.entry(tenant.clone()).or_default())
    }

    /// Forgets tenants that have no clusters and have long sent nothing.
    pub(super) fn sweep(&mut self) {
        self.tenants.retain(|_, known| {
            let samples = known.non_ha_samples.load(Ordering::Relaxed);
            let is_idle = known.clusters.is_empty() && samples == known.swept_samples;
            known.swept_samples = samples;
            known.idle_sweeps = if is_idle { known.idle_sweeps + 1 } else { 0 };
            known.idle_sweeps < IDLE_SWEEPS_MAX
        });
    }

    pub(super) fn clusters(&self) -> impl Iterator<Item = (&TenantId, &str, &Cluster)> {
        self.tenants.iter().flat_map(|(tenant, known)| {
            known.clusters.iter().map(move |(cluster, elected)| (tenant, &**cluster, elected))
        })
    }
}

fn as_ms(span: Millis) -> i64 {
    i64::try_from(span.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { update_ms: 15_000, failover: Millis(30_000), clusters_max: 2 };

    fn elected(replica: &str, received_at_ms: i64) -> ElectedReplica {
        ElectedReplica { replica: replica.to_owned(), received_at_ms, deleted_at_ms: 0 }
    }

    fn tenant() -> TenantId {
        TenantId::parse("t").expect("tenant")
    }

    #[test]
    fn a_stored_value_is_judged_by_its_age() {
        let check = |stored: Option<&ElectedReplica>, replica: &str, now_ms: i64, expect| {
            assert_eq!(decide(stored, replica, TERMS, now_ms), expect, "{replica} at {now_ms}");
        };
        let a = elected("a", 1_000);
        let elect = |replica: &str, at_ms| Decision::Elect(elected(replica, at_ms));
        let deduped = || Decision::Deduped { elected: "a".to_owned() };
        check(None, "b", 5, elect("b", 5));
        check(Some(&a), "a", 15_999, Decision::Keep);
        check(Some(&a), "a", 16_000, elect("a", 16_000));
        check(Some(&a), "b", 16_000, deduped());
        check(Some(&a), "b", 30_999, deduped());
        check(Some(&a), "b", 31_000, elect("b", 31_000));
        // A clock that is behind changes nothing.
        check(Some(&a), "a", -50_000, Decision::Keep);
        check(Some(&a), "b", -50_000, deduped());
        let marked = ElectedReplica { deleted_at_ms: 2_000, ..a.clone() };
        check(Some(&marked), "b", 2_001, elect("b", 2_001));
    }

    #[test]
    fn what_is_known_is_judged_without_the_store() {
        let mut elections = Elections::default();
        let t = tenant();
        assert_eq!(elections.judge(&t, "c", "a", TERMS, 0), Judgement::AskStore);
        assert!(elections.learn(&t, "c", &elected("a", 1_000), 7));
        let deduped = || Judgement::Deduped { elected: "a".into() };
        let check = |replica, now_ms, expect: Judgement| {
            assert_eq!(elections.judge(&t, "c", replica, TERMS, now_ms), expect, "{now_ms}");
        };
        check("a", 15_999, Judgement::Accept);
        check("b", 15_999, deduped());
        check("b", 30_999, deduped());
        check("a", 16_000, Judgement::Renew);
        check("a", 16_000, Judgement::Accept);
        elections.renewed(&t, "c");
        check("a", 16_001, Judgement::Renew);
        check("a", 31_000, Judgement::AskStore);
        check("b", 31_000, Judgement::AskStore);
    }

    #[test]
    fn clusters_beyond_the_limit_are_refused_and_known_ones_are_not() {
        let mut elections = Elections::default();
        let t = tenant();
        for cluster in ["c", "d"] {
            elections.learn(&t, cluster, &elected("a", 1_000), 1);
        }
        let too_many = Judgement::TooMany { limit: 2 };
        assert_eq!(elections.judge(&t, "e", "a", TERMS, 1_000), too_many);
        assert_eq!(elections.judge(&t, "d", "a", TERMS, 1_000), Judgement::Accept);
        let other = TenantId::parse("other").expect("tenant");
        assert_eq!(elections.judge(&other, "e", "a", TERMS, 1_000), Judgement::AskStore);
        let unlimited = Terms { clusters_max: 0, ..TERMS };
        assert_eq!(elections.judge(&t, "e", "a", unlimited, 1_000), Judgement::AskStore);
        elections.forget(&t, "c");
        assert_eq!(elections.judge(&t, "e", "a", TERMS, 1_000), Judgement::AskStore);
    }

    #[test]
    fn what_is_known_never_gets_older() {
        let mut elections = Elections::default();
        let t = tenant();
        elections.learn(&t, "c", &elected("b", 40_000), 0);
        assert!(!elections.learn(&t, "c", &elected("a", 1_000), 7), "told late");
        let marked = ElectedReplica { deleted_at_ms: 2_000, ..elected("a", 1_000) };
        elections.learn(&t, "c", &marked, 8);
        let known = elections.get(&t, "c").expect("known");
        assert_eq!((&*known.replica, known.changes), ("b", 1));
        let marked = ElectedReplica { deleted_at_ms: 90_000, ..elected("b", 40_000) };
        elections.learn(&t, "c", &marked, 9);
        assert!(elections.get(&t, "c").is_none());
        assert_eq!(elections.tenants().count(), 0, "nothing is left of the tenant");
    }
}
