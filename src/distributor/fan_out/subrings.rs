//! Tenants' subrings, kept while the ring they were drawn from is the one in force.
//!
//! Drawing one sorts the tokens of its members, which is too much for every request. A ring whose
//! heartbeats alone have changed keeps the draw.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::ring::{Fingerprint, RingSnapshot, ShardRule, Subring};

/// Two generations: what is looked up moves to the young one, and when that is full the old one
/// goes. So what stays was used since, and nothing has to be searched for the oldest.
#[derive(Debug)]
pub struct Subrings(Mutex<Generations>);

#[derive(Debug)]
struct Generations {
    tokens_max: usize,
    young: HashMap<Box<str>, Kept>,
    young_tokens: usize,
    old: HashMap<Box<str>, Kept>,
}

#[derive(Clone, Debug)]
struct Kept {
    size: i64,
    fingerprint: Fingerprint,
    /// Which reading its heartbeats are of.
    read_at_ms: i64,
    subring: Arc<Subring>,
}

/// Tokens of the subrings of one generation: at some 16 bytes each, with two generations, 64 MiB.
/// It is four hundred tenants of ten members with 512 tokens, or one subring if that is larger.
const TOKENS_MAX: usize = 2 << 20;

impl Default for Subrings {
    fn default() -> Self {
        Self(Mutex::new(Generations::new(TOKENS_MAX)))
    }
}

impl Subrings {
    /// The subring of a tenant, or `None` when that is the whole ring.
    pub fn get(&self, ring: &RingSnapshot, tenant: &str, size: i64) -> Option<Arc<Subring>> {
        if size <= 0 || ring.members().len() as i64 <= size {
            return None;
        }
        let kept = self.0.lock().expect("no panic under this lock").take(tenant);
        let same_draw =
            kept.filter(|kept| kept.size == size && kept.fingerprint == ring.fingerprint());
        let subring = match same_draw {
            Some(kept) if kept.read_at_ms == ring.read_at_ms() => kept.subring,
            Some(kept) => Arc::new(kept.subring.renewed(ring)),
            None => Arc::new(ring.subring(tenant, size, ShardRule::Balanced)?),
        };
        let kept = Kept {
            size,
            fingerprint: ring.fingerprint(),
            read_at_ms: ring.read_at_ms(),
            subring: Arc::clone(&subring),
        };
        self.0.lock().expect("no panic under this lock").put(tenant, kept);
        Some(subring)
    }
}

impl Generations {
    fn new(tokens_max: usize) -> Self {
        Self { tokens_max, young: HashMap::new(), young_tokens: 0, old: HashMap::new() }
    }

    fn take(&self, tenant: &str) -> Option<Kept> {
        self.young.get(tenant).or_else(|| self.old.get(tenant)).cloned()
    }

    fn put(&mut self, tenant: &str, kept: Kept) {
        let tokens = |kept: &Kept| kept.subring.circle().len();
        self.young_tokens += tokens(&kept);
        let before = match self.young.get_mut(tenant) {
            Some(place) => Some(std::mem::replace(place, kept)),
            None => self.young.insert(tenant.into(), kept),
        };
        self.young_tokens -= before.as_ref().map_or(0, tokens);
        if self.young_tokens > self.tokens_max {
            self.old = std::mem::take(&mut self.young);
            self.young_tokens = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::RingSettings;
    use crate::ring::model::{Heartbeat, Instance, InstanceState, RingModel, Token};

    fn ring(members: u32) -> RingSnapshot {
        let instance = |at: u32| {
            let tokens = (0..16).map(|token: u32| (at * 16 + token).wrapping_mul(0x9e37_79b9));
            let instance = Instance {
                addr: format!("h{at}:1"),
                timestamp_s: 100,
                state: InstanceState::Active,
                tokens: tokens.map(Token).collect(),
                zone: String::new(),
                registered_timestamp_s: 0,
                unknown_fields: Vec::new(),
            };
            (format!("i-{at:02}"), instance)
        };
        let model =
            RingModel { instances: (0..members).map(instance).collect(), unknown_fields: vec![] };
        let settings = RingSettings {
            replication_factor: 3,
            zone_awareness_enabled: false,
            heartbeat_timeout_ms: 60_000,
            extend_writes: true,
            own_id: None,
        };
        RingSnapshot::build(&model, 100_000, settings.into(), None)
    }

    fn addresses(subring: &Subring) -> Vec<String> {
        subring.members().iter().map(|member| member.addr.to_string()).collect()
    }

    #[test]
    fn a_subring_is_drawn_once_per_ring_and_size() {
        let subrings = Subrings::default();
        let ten = ring(10);
        let first = subrings.get(&ten, "a", 3).expect("a part");
        assert!(Arc::ptr_eq(&first, &subrings.get(&ten, "a", 3).expect("kept")));
        let drawn = |ring: &RingSnapshot, size| {
            addresses(&ring.subring("a", size, ShardRule::Balanced).expect("a part"))
        };
        let larger = subrings.get(&ten, "a", 4).expect("a part");
        assert_eq!(addresses(&larger), drawn(&ten, 4));
        let twelve = ring(12);
        assert_eq!(addresses(&subrings.get(&twelve, "a", 4).expect("a part")), drawn(&twelve, 4));
        assert!(subrings.get(&ten, "a", 10).is_none(), "all of the ring");
        assert!(subrings.get(&ten, "a", 0).is_none(), "no shard size");
    }

    #[test]
    fn heartbeats_are_those_of_the_latest_ring() {
        let subrings = Subrings::default();
        let ring = ring(10);
        let before = subrings.get(&ring, "a", 3).expect("a part");
        let heartbeats: Vec<_> = (0..10)
            .map(|at| Heartbeat {
                id: format!("i-{at:02}"),
                addr: format!("new{at}:1"),
                timestamp_s: 130,
                registered_timestamp_s: 0,
            })
            .collect();
        let later = ring.with_heartbeats(&heartbeats, 131_000).expect("the same members");
        let after = subrings.get(&later, "a", 3).expect("a part");
        let renamed: Vec<_> =
            addresses(&before).iter().map(|address| address.replace('h', "new")).collect();
        assert_eq!(addresses(&after), renamed);
        assert!(after.members().iter().all(|member| member.timestamp_s == 130));
    }

    #[test]
    fn what_nobody_asks_for_any_more_goes() {
        let fit = 500;
        // 3 members of 16 tokens each.
        let subrings = Subrings(Mutex::new(Generations::new(fit * 3 * 16)));
        let ring = ring(10);
        for tenant in 0..2 * fit + 2 {
            subrings.get(&ring, &tenant.to_string(), 3).expect("a part");
            if tenant % 100 == 0 {
                subrings.get(&ring, "always", 3).expect("a part");
            }
        }
        let kept = subrings.0.lock().expect("alone");
        assert!(kept.young.len() + kept.old.len() <= 2 * fit + 4);
        assert!(kept.take("always").is_some());
        assert!(kept.take("0").is_none());
    }
}
