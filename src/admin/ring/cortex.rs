//! A ring as Cortex tells it, so that what reads Cortex's page reads this one, our own `http` and
//! `file` stores included.

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use super::super::RingSource;
use super::shown_state;
use crate::go_text::Rfc3339Ms;
use crate::ring::{Member, MemberIndex, RingSnapshot};

/// The fields are Cortex's; a list that is empty is `null`, as Go writes it.
#[derive(Serialize)]
pub(super) struct CortexRing {
    shards: Option<Vec<Shard>>,
    now: String,
    #[serde(rename = "storageLastUpdated")]
    storage_last_updated: String,
}

#[derive(Serialize)]
struct Shard {
    id: String,
    state: &'static str,
    address: String,
    timestamp: String,
    /// Empty where it is not known.
    registered_timestamp: String,
    zone: String,
    tokens: Option<Vec<u32>>,
}

impl CortexRing {
    pub(super) fn new(source: &RingSource) -> Self {
        let snapshot = source.ring.load();
        let shards = shards(&snapshot);
        Self {
            shards: (!shards.is_empty()).then_some(shards),
            now: Rfc3339Ms(source.clock.now().unix_ms).to_string(),
            storage_last_updated: match snapshot.read_at_ms() {
                // Go's zero time: never.
                0 => "0001-01-01T00:00:00Z".to_owned(),
                read_at_ms => Rfc3339Ms(read_at_ms).to_string(),
            },
        }
    }
}

fn shards(snapshot: &RingSnapshot) -> Vec<Shard> {
    let health = snapshot.health();
    let shard = |(index, member): (u32, &Member)| {
        let tokens: Vec<u32> =
            snapshot.tokens_of(MemberIndex(index)).iter().map(|token| token.0).collect();
        Shard {
            id: member.id.to_string(),
            state: shown_state(health.is_fresh(member.timestamp_s), member.state),
            address: member.addr.to_string(),
            timestamp: go_time(member.timestamp_s),
            registered_timestamp: match member.registered_timestamp_s {
                0 => String::new(),
                known => go_time(known),
            },
            zone: member.zone.to_string(),
            tokens: (!tokens.is_empty()).then_some(tokens),
        }
    };
    (0..).zip(snapshot.members().iter()).map(shard).collect()
}

const GO_TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second] +0000 UTC");

/// Whole seconds as Go prints a time in UTC.
pub(super) fn go_time(unix_s: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(unix_s).ok();
    time.and_then(|time| time.format(GO_TIME).ok()).unwrap_or_else(|| format!("{unix_s}s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_go_prints_them() {
        assert_eq!(go_time(1_795_994_175), "2026-11-29 23:16:15 +0000 UTC");
        assert_eq!(go_time(i64::MAX), "9223372036854775807s");
    }
}
