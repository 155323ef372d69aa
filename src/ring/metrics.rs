//! The ring's metrics, read from the snapshot in force at scrape time.
//!
//! Names and meanings are Cortex's; `freehold_ring_` is what Cortex has not. Labels are members,
//! states and zones of the ring, which its stored size bounds.

use std::collections::BTreeMap;

use crate::exposition::Families;
use crate::ring::model::InstanceState;
use crate::ring::{Ring, RingStatus};

/// State of a member whose heartbeat is too old, in Cortex's metrics and pages.
const UNHEALTHY: &str = "Unhealthy";

/// Adds the families of a ring; `name` is its label.
pub fn read(ring: &Ring, name: &str, now_ms: i64, families: &mut Families) {
    let snapshot = ring.load();
    let health = snapshot.health();
    let mut members: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut oldest: BTreeMap<&str, i64> =
        InstanceState::ALL.iter().map(|s| (s.name(), 0)).collect();
    oldest.insert(UNHEALTHY, 0);
    for member in snapshot.members().iter() {
        let state =
            if health.is_fresh(member.timestamp_s) { member.state.name() } else { UNHEALTHY };
        *members.entry((state, &*member.zone)).or_default() += 1;
        let seen = oldest.entry(state).or_default();
        if *seen == 0 || member.timestamp_s < *seen {
            *seen = member.timestamp_s;
        }
    }
    let mut family = families.gauges("cortex_ring_members", "Number of members in the ring");
    for ((state, zone), count) in members {
        family.sample([("name", name), ("state", state), ("zone", zone)], count as f64);
    }
    let mut family = families.gauges(
        "cortex_ring_oldest_member_timestamp",
        "Timestamp of the oldest member in the ring.",
    );
    for (state, timestamp_s) in oldest {
        family.sample([("name", name), ("state", state)], timestamp_s as f64);
    }
    let mut total = families.gauges("cortex_ring_tokens_total", "Number of tokens in the ring");
    total.sample([("name", name)], snapshot.circle().len() as f64);
    let mut duplicates = families.gauges(
        "cortex_ring_duplicate_tokens",
        "Number of duplicate tokens in the ring (tokens owned by multiple instances).",
    );
    duplicates.sample([("name", name)], snapshot.circle().contested().len() as f64);

    let mut age = families.gauges(
        "freehold_ring_age_seconds",
        "Age of the ring in force: since it was read, or since its page was saved.",
    );
    age.sample([("name", name)], ring.age_ms(now_ms) as f64 / 1000.0);
    let mut healthy = families.gauges(
        "freehold_ring_healthy_instances",
        "Members that are ACTIVE with a fresh heartbeat: what limits of the cluster are divided by.",
    );
    healthy.sample([("name", name)], snapshot.healthy_count() as f64);
    let status = match ring.status(now_ms) {
        RingStatus::Unread(_) => "unread",
        RingStatus::Fresh => "fresh",
        RingStatus::Stale(_) => "stale",
        RingStatus::Expired(_) => "expired",
    };
    let mut family = families.gauges(
        "freehold_ring_status",
        "1 for how far the ring in force can be trusted: unread, fresh, stale, expired.",
    );
    for known in ["unread", "fresh", "stale", "expired"] {
        family.sample([("name", name), ("status", known)], f64::from(u8::from(known == status)));
    }
}
