//! The ring as it is, and as it would be with another number of members.
//!
//! New members take part as Cortex's do: random tokens that nobody holds, drawn by the code of
//! our own lifecycler; those of the others stay where they are. Where members go, the last by
//! ordinal go first, as a StatefulSet lets them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use super::input::SeenRing;
use crate::ring::config::NUM_TOKENS_MAX;
use crate::ring::merge::{self, Change, Member};
use crate::ring::model::{InstanceState, RingModel};
use crate::ring::{RingSettings, RingSnapshot};

/// Members of a simulated ring: twice the largest that we plan for. More would only be a typo,
/// and their tokens would fill the memory.
const MEMBERS_MAX: usize = 10_000;

/// What is to become of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowthArgs {
    /// Members afterwards.
    pub to: usize,
    /// Zones of new members; empty takes those of the ring.
    pub zones: Vec<String>,
    /// Tokens of a new member; `None` takes as many as most members have.
    pub tokens: Option<usize>,
    pub seed: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum GrowthError {
    #[error("--to {to}: it must be 1 to {MEMBERS_MAX}")]
    To { to: usize },
    #[error("--to {to}: the ring has as many members already")]
    NoChange { to: usize },
    #[error("--tokens {tokens}: it must be 1 to {NUM_TOKENS_MAX}")]
    Tokens { tokens: usize },
}

/// Both rings.
pub(super) struct Growth {
    pub(super) before: RingSnapshot,
    pub(super) after: RingSnapshot,
    /// Tokens of each new member.
    pub(super) tokens: usize,
    pub(super) seed: u64,
    /// Who is new, or who has gone.
    pub(super) joined: Vec<String>,
    pub(super) left: Vec<String>,
}

impl Growth {
    pub(super) fn new(
        ring: SeenRing,
        settings: &RingSettings,
        args: &GrowthArgs,
    ) -> Result<Self, GrowthError> {
        let SeenRing { model, read_at_ms } = ring;
        let members = model.instances.len();
        if !(1..=MEMBERS_MAX).contains(&args.to) {
            return Err(GrowthError::To { to: args.to });
        }
        if args.to == members {
            return Err(GrowthError::NoChange { to: args.to });
        }
        let tokens = args.tokens.unwrap_or_else(|| usual_tokens(&model));
        if !(1..=NUM_TOKENS_MAX).contains(&tokens) {
            return Err(GrowthError::Tokens { tokens });
        }
        let mut grown = model.clone();
        let (mut joined, mut left) = (Vec::new(), Vec::new());
        let mut random = SmallRng::seed_from_u64(args.seed);
        while grown.instances.len() < args.to {
            let member = new_member(&grown, &args.zones, tokens);
            joined.push(member.id.clone());
            let join = Change::Join { target: InstanceState::Active };
            merge::apply(&join, &member, &mut grown, read_at_ms.div_euclid(1000), &mut random);
        }
        while grown.instances.len() > args.to {
            let gone = next_to_go(&grown);
            grown.instances.remove(&gone);
            left.push(gone);
        }
        let settings = Arc::new(settings.clone());
        Ok(Self {
            before: RingSnapshot::build(&model, read_at_ms, Arc::clone(&settings), None),
            after: RingSnapshot::build(&grown, read_at_ms, settings, None),
            tokens,
            seed: args.seed,
            joined,
            left,
        })
    }
}

/// As many as most members have, the more of two that are equally common.
fn usual_tokens(model: &RingModel) -> usize {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for instance in model.instances.values().filter(|instance| !instance.tokens.is_empty()) {
        *counts.entry(instance.tokens.len()).or_default() += 1;
    }
    let usual = counts.into_iter().max_by_key(|(_, members)| *members);
    usual.map_or(0, |(tokens, _)| tokens)
}

/// A member in the zone that has the fewest.
fn new_member(model: &RingModel, zones: &[String], tokens: usize) -> Member {
    let mut members: BTreeMap<&str, usize> = match zones {
        [] => model.instances.values().map(|instance| (instance.zone.as_str(), 0)).collect(),
        zones => zones.iter().map(|zone| (zone.as_str(), 0)).collect(),
    };
    for instance in model.instances.values() {
        if let Some(count) = members.get_mut(instance.zone.as_str()) {
            *count += 1;
        }
    }
    let zone = members.iter().min_by_key(|(_, count)| **count).map_or("", |(zone, _)| zone);
    let is_free = |id: &String| !model.instances.contains_key(id);
    let id = (1_u64..).map(|number| format!("new-{number}")).find(is_free);
    Member {
        id: id.expect("there are fewer members than numbers"),
        addr: String::new(),
        zone: zone.to_owned(),
        num_tokens: tokens,
        state: InstanceState::Pending,
        tokens: Vec::new(),
        registered_timestamp_s: 0,
        resume_state: InstanceState::Active,
    }
}

/// The last by ordinal in the zone that has the most.
fn next_to_go(model: &RingModel) -> String {
    let mut zones: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for (id, instance) in &model.instances {
        zones.entry(instance.zone.as_str()).or_default().push(id);
    }
    // Of equals the last zone goes first, as the first got its member first.
    let largest = zones.into_iter().max_by_key(|(_, ids)| ids.len()).map(|(_, ids)| ids);
    let ids = largest.expect("a ring that shrinks has members");
    let last = ids.into_iter().max_by_key(|id| (ordinal(id), Reverse(id.len())));
    last.expect("a zone in the list has members").clone()
}

/// The number that an id ends in.
fn ordinal(id: &str) -> Option<u64> {
    let digits = id.len() - id.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    id[id.len() - digits..].parse().ok()
}
