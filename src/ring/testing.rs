//! Rings for the tests of this room's files.

use std::sync::Arc;

use proptest::prelude::*;

use super::model::{Instance, InstanceState, RingModel, Token};
use super::snapshot::{RingSettings, RingSnapshot};

/// A member as tests name it: zone, state, tokens.
pub(super) type Named = (&'static str, InstanceState, Vec<u32>);

/// A ring whose ids follow the order of `members`.
pub(super) fn ring(
    members: &[Named],
    replication_factor: usize,
    zone_awareness_enabled: bool,
) -> RingSnapshot {
    let instance = |(at, (zone, state, tokens)): (usize, &Named)| {
        let instance = Instance {
            addr: format!("10.0.0.{at}:9095"),
            timestamp_s: 1_700_000_000,
            state: *state,
            tokens: tokens.iter().copied().map(Token).collect(),
            zone: (*zone).to_owned(),
            registered_timestamp_s: 0,
            unknown_fields: Vec::new(),
        };
        (format!("m-{at:03}"), instance)
    };
    let instances = members.iter().enumerate().map(instance).collect();
    let model = RingModel { instances, unknown_fields: Vec::new() };
    let settings = RingSettings {
        replication_factor,
        zone_awareness_enabled,
        heartbeat_timeout_ms: 60_000,
        extend_writes: true,
        own_id: None,
    };
    RingSnapshot::build(&model, 1_700_000_000_000, Arc::new(settings), None)
}

/// Members of any zones and states, whose tokens collide now and then.
pub(super) fn members() -> impl Strategy<Value = Vec<Named>> {
    let zone = prop::sample::select(vec!["", "a", "b", "c"]);
    let state = prop::sample::select(InstanceState::ALL.to_vec());
    let token = prop_oneof![4 => any::<u32>(), 1 => 0_u32..50, 1 => Just(0), 1 => Just(u32::MAX)];
    prop::collection::vec((zone, state, prop::collection::vec(token, 0..12)), 0..9)
}
