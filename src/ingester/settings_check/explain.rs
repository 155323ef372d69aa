//! Which setting explains that series arrive which the ring does not assign to us.
//!
//! Each setting is tried by itself with other values: how many of the series that distributors
//! send us would then be ours? A larger claim explains anything, so of those settings that
//! explain all but a hundredth the one that claims least is named.

use crate::keys::{KeySet, RingKey};
use crate::ring::{OwnView, RingSettings, RingSnapshot};
use crate::tenant::TenantId;

/// Share of the evidence that an explanation has to cover.
const EXPLAINS: f64 = 0.99;
/// Replication factors that are tried: beyond these nobody runs Cortex.
const REPLICATION_FACTORS: std::ops::RangeInclusive<usize> = 1..=5;

/// What a tenant's distributors have sent us of late.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub tenant: TenantId,
    pub keys: Vec<RingKey>,
    /// The tenant's shard size by our limits, 0 for none.
    pub shard_size: i64,
}

/// A setting with the value that explains the evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The flag whose value differs.
    pub setting: &'static str,
    /// The value that the distributors seem to have.
    pub value: String,
    /// Part of the evidence that would be ours with it.
    pub share: f64,
}

/// The setting that explains it best, if any does.
pub fn explain(
    ring: &RingSnapshot,
    shuffle_sharding: bool,
    evidence: &[Evidence],
) -> Option<Explanation> {
    let ours = ring.settings();
    let mut best: Option<(f64, Explanation)> = None;
    let mut weigh = |setting, value: String, settings: RingSettings, shuffles: bool| {
        let ring = ring.under(settings);
        let claim = claim(&ring, shuffles, evidence);
        let is_better = best.as_ref().is_none_or(|(space, _)| claim.space < *space);
        if claim.share >= EXPLAINS && is_better {
            best = Some((claim.space, Explanation { setting, value, share: claim.share }));
        }
    };
    for replication_factor in REPLICATION_FACTORS {
        if replication_factor != ours.replication_factor {
            let settings = RingSettings { replication_factor, ..(**ours).clone() };
            let value = replication_factor.to_string();
            weigh("-distributor.replication-factor", value, settings, shuffle_sharding);
        }
    }
    let zone_awareness_enabled = !ours.zone_awareness_enabled;
    let settings = RingSettings { zone_awareness_enabled, ..(**ours).clone() };
    let value = zone_awareness_enabled.to_string();
    weigh("-distributor.zone-awareness-enabled", value, settings, shuffle_sharding);
    let extend_writes = !ours.extend_writes;
    let settings = RingSettings { extend_writes, ..(**ours).clone() };
    weigh("-distributor.extend-writes", extend_writes.to_string(), settings, shuffle_sharding);
    if evidence.iter().any(|evidence| evidence.shard_size > 0) {
        let value = if shuffle_sharding { "default" } else { "shuffle-sharding" };
        let settings = (**ours).clone();
        weigh("-distributor.sharding-strategy", value.to_owned(), settings, !shuffle_sharding);
    }
    best.map(|(_, explanation)| explanation)
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    /// Part of the evidence that is ours.
    share: f64,
    /// Part of the key space that is ours, on the average of the evidence.
    space: f64,
}

fn claim(ring: &RingSnapshot, shuffles: bool, evidence: &[Evidence]) -> Claim {
    let (mut keys, mut owned, mut space) = (0_usize, 0_usize, 0.0);
    for of in evidence {
        let (set, share) = view(ring, if shuffles { of.shard_size } else { 0 }, &of.tenant);
        keys += of.keys.len();
        owned += of.keys.iter().filter(|key| set.contains(**key)).count();
        space += share * of.keys.len() as f64;
    }
    let all = keys.max(1) as f64;
    Claim { share: owned as f64 / all, space: space / all }
}

fn view(ring: &RingSnapshot, shard_size: i64, tenant: &TenantId) -> (KeySet, f64) {
    if shard_size > 0 {
        return match ring.tenant_view(tenant.as_str(), shard_size) {
            Ok(view) => ((*view.keys).clone(), view.share),
            Err(_) => (KeySet::none(), 0.0),
        };
    }
    match ring.own() {
        OwnView::Known(owned) => ((*owned.keys).clone(), owned.share),
        OwnView::Unknown(_) => (KeySet::none(), 0.0),
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ring::model::{Instance, InstanceState, RingModel, Token};

    /// Nine members in three zones, one of them leaving, with tokens spread by a fixed rule.
    fn ring(change: impl FnOnce(&mut RingSettings)) -> RingSnapshot {
        let mut settings = RingSettings {
            replication_factor: 3,
            zone_awareness_enabled: true,
            heartbeat_timeout_ms: 0,
            extend_writes: true,
            own_id: Some("ingester-0".to_owned()),
        };
        change(&mut settings);
        let member = |i: u32| {
            let mut tokens: Vec<_> = (0..64_u32).map(|n| Token(mixed(n * 9 + i))).collect();
            tokens.sort_unstable();
            let state = if i == 4 { InstanceState::Leaving } else { InstanceState::Active };
            let instance = Instance {
                addr: format!("10.0.0.{i}:9095"),
                timestamp_s: 0,
                state,
                tokens,
                zone: format!("zone-{}", i % 3),
                registered_timestamp_s: 0,
                unknown_fields: Vec::new(),
            };
            (format!("ingester-{i}"), instance)
        };
        let model = RingModel { instances: (0..9).map(member).collect(), unknown_fields: vec![] };
        RingSnapshot::build(&model, 0, Arc::new(settings), None)
    }

    /// A number that looks random and is the same on every run.
    fn mixed(n: u32) -> u32 {
        let mixed = (u64::from(n) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) as u32
    }

    /// What distributors with these settings send to us.
    fn sent(ring: &RingSnapshot, shuffles: bool, shard_size: i64) -> Vec<Evidence> {
        let tenant = TenantId::parse("a").expect("a tenant");
        let (keys, _) = view(ring, if shuffles { shard_size } else { 0 }, &tenant);
        let all = (0..20_000_u32).map(|n| RingKey(mixed(n + 100_000)));
        let keys = all.filter(|key| keys.contains(*key)).collect();
        vec![Evidence { tenant, keys, shard_size }]
    }

    #[test]
    fn the_setting_that_differs_is_named() {
        let ours = ring(|_| {});
        let check = |change: fn(&mut RingSettings), setting: &str, value: &str| {
            let sent = sent(&ring(change), false, 0);
            let found = explain(&ours, false, &sent).expect(setting);
            assert_eq!((found.setting, found.value.as_str()), (setting, value));
        };
        check(|s| s.zone_awareness_enabled = false, "-distributor.zone-awareness-enabled", "false");
        check(|s| s.replication_factor = 5, "-distributor.replication-factor", "5");
        let without = ring(|settings| settings.extend_writes = false);
        let sent = sent(&ring(|_| {}), false, 0);
        let found = explain(&without, false, &sent).expect("extend writes");
        assert_eq!((found.setting, found.value.as_str()), ("-distributor.extend-writes", "true"));
    }

    #[test]
    fn shards_that_only_one_side_knows_are_named() {
        let ring = ring(|_| {});
        let tenants = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let sent_whole = sent(&ring, false, 3);
        let found = tenants.iter().find_map(|tenant| {
            let mut evidence = sent_whole.clone();
            evidence[0].tenant = TenantId::parse(tenant).expect("a tenant");
            explain(&ring, true, &evidence)
        });
        let found = found.expect("the strategy");
        assert_eq!(found.setting, "-distributor.sharding-strategy");
        assert_eq!(found.value, "default");
    }

    #[test]
    fn keys_of_another_making_are_explained_by_nothing() {
        let ring = ring(|_| {});
        let all = (0..20_000_u32).map(|n| RingKey(mixed(n + 100_000)));
        let tenant = TenantId::parse("a").expect("a tenant");
        let evidence = [Evidence { tenant, keys: all.collect(), shard_size: 0 }];
        assert_eq!(explain(&ring, false, &evidence), None);
    }
}
