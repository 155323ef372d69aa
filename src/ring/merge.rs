//! How a change of ours is written into the ring: the pure step inside a compare-and-swap.
//!
//! A change is a value, so that a failed swap applies it again to the newer ring. It touches
//! our entry alone: other members, unknown members' fields and the ring's unknown fields pass
//! through as they were. Only [`forget_silent`] takes others out, where a ring's settings say so.
//!
//! Invariants: applying a change twice equals applying it once but for the time, since a swap
//! whose answer was lost may have happened; new tokens are held by nobody else in that ring.

use std::collections::HashSet;

use rand::Rng;

use crate::ring::model::{Instance, InstanceState, RingModel, Token};

/// What is to happen to our entry, or to the one we were told to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The first write of a life: take up the entry we find, or add one.
    Register,
    /// Claim tokens and enter this state.
    Join { target: InstanceState },
    /// Enter this state if our tokens are still ours alone, else claim others and stay JOINING.
    Verify { target: InstanceState },
    /// The heartbeat; it also carries a new state, and heals a ring that lost us.
    Refresh,
    /// Take our entry out.
    Unregister,
    /// Take another's entry out.
    Forget { id: String },
}

/// Ourselves, as we want the ring to show us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: String,
    pub addr: String,
    pub zone: String,
    /// Tokens to claim when joining; an entry that has more keeps them.
    pub num_tokens: usize,
    pub state: InstanceState,
    /// Sorted.
    pub tokens: Vec<Token>,
    /// Unix seconds; 0 is unknown.
    pub registered_timestamp_s: i64,
    /// The state to join into, and to return to from LEAVING: ACTIVE or READONLY.
    pub resume_state: InstanceState,
}

/// Applies `change` to `ring` and answers the member as that ring then shows it.
pub fn apply(
    change: &Change,
    member: &Member,
    ring: &mut RingModel,
    now_s: i64,
    rng: &mut impl Rng,
) -> Member {
    let mut member = member.clone();
    match change {
        Change::Register => register(&mut member, ring, now_s),
        Change::Join { target } => {
            // Tokens saved from an earlier life count when the ring shows none for us; it gave
            // us no right to one that somebody holds by now.
            member.tokens = match shown(ring, &member.id).filter(|tokens| !tokens.is_empty()) {
                Some(tokens) => tokens,
                None => without_taken(&member.tokens, &member.id, ring),
            };
            let count = member.num_tokens;
            claim(&mut member, count, ring, rng);
            member.state = *target;
        }
        Change::Verify { target } => {
            let tokens = shown(ring, &member.id).unwrap_or_default();
            let kept = without_lost(&tokens, &member, ring);
            if kept == member.tokens {
                member.state = *target;
            } else {
                member.tokens = kept;
                let count = member.num_tokens;
                claim(&mut member, count, ring, rng);
            }
        }
        Change::Refresh => match shown(ring, &member.id) {
            // The ring decides which tokens are ours; a gossiped one may have taken some.
            Some(tokens) if !tokens.is_empty() => member.tokens = tokens,
            // The store lost the ring, or an operator had us forgotten: we are still here.
            _ => claim_lost(&mut member, ring, rng),
        },
        Change::Unregister => {
            ring.instances.remove(&member.id);
            return member;
        }
        Change::Forget { id } => {
            ring.instances.remove(id);
            return member;
        }
    }
    store(&member, ring, now_s);
    member
}

/// Takes out who has been silent for longer than `delay_ms` (0: nobody), and tells who that was.
///
/// A member that lives after all puts itself back with its next heartbeat, tokens and all; so a
/// clock that leaps costs the others one heartbeat and loses nothing.
pub fn forget_silent(
    ring: &mut RingModel,
    own_id: &str,
    now_ms: i64,
    delay_ms: u64,
) -> Vec<String> {
    if delay_ms == 0 {
        return Vec::new();
    }
    let delay_ms = i64::try_from(delay_ms).unwrap_or(i64::MAX);
    let is_silent = |id: &String, entry: &mut Instance| {
        let age_ms = now_ms.saturating_sub(entry.timestamp_s.saturating_mul(1000));
        id != own_id && age_ms > delay_ms
    };
    ring.instances.extract_if(.., is_silent).map(|(id, _)| id).collect()
}

/// The address of another process that keeps our entry alive under our own id, if there is one.
///
/// Our last write is what we find in there, unless somebody else lives by the same id. Of an entry
/// that an earlier life left behind, as `Register` finds it, the same cannot be told.
pub fn rival(
    ring: &RingModel,
    member: &Member,
    now_ms: i64,
    heartbeat_timeout_ms: u64,
) -> Option<String> {
    let entry = ring.instances.get(&member.id).filter(|entry| entry.addr != member.addr)?;
    let age_ms = now_ms.saturating_sub(entry.timestamp_s.saturating_mul(1000));
    let timeout_ms = i64::try_from(heartbeat_timeout_ms).unwrap_or(i64::MAX);
    let is_alive = entry.state != InstanceState::Left && (timeout_ms == 0 || age_ms <= timeout_ms);
    is_alive.then(|| entry.addr.clone())
}

/// What the entry that an earlier life left behind means for this one.
fn register(member: &mut Member, ring: &RingModel, now_s: i64) {
    let found = ring.instances.get(&member.id).filter(|entry| entry.state != InstanceState::Left);
    let Some(entry) = found else {
        member.registered_timestamp_s = now_s;
        // With all tokens from the last life at hand nothing has to be chosen, so there is
        // nothing to wait for. A token that was given away meanwhile needs the long way.
        let free = without_taken(&member.tokens, &member.id, ring);
        let complete = free.len() >= member.num_tokens;
        member.tokens = free;
        member.state = if complete { member.resume_state } else { InstanceState::Pending };
        return;
    };
    member.registered_timestamp_s = entry.registered_timestamp_s;
    if !entry.tokens.is_empty() {
        member.tokens = sorted(&entry.tokens);
    }
    member.state = match entry.state {
        // Died while it joined: its tokens were never vouched for, so it starts over.
        InstanceState::Joining | InstanceState::Pending | InstanceState::Left => {
            InstanceState::Pending
        }
        // Without tokens no state but the first has a meaning; joining claims them.
        _ if entry.tokens.is_empty() => InstanceState::Pending,
        InstanceState::Leaving => member.resume_state,
        state @ (InstanceState::Active | InstanceState::ReadOnly) => state,
    };
}

/// Drops the member's tokens that others hold, and fills up with free ones to `count`.
fn claim(member: &mut Member, count: usize, ring: &RingModel, rng: &mut impl Rng) {
    let mut tokens = without_lost(&member.tokens, member, ring);
    let mut used = taken(ring, &member.id, |_, _| true);
    used.extend(tokens.iter().copied());
    while tokens.len() < count {
        // Probing on from a taken token ends, whatever the generator yields, as long as a
        // single one is free; drawing again might not.
        let mut token = Token(rng.next_u32());
        while !used.insert(token) {
            token = Token(token.0.wrapping_add(1));
        }
        tokens.push(token);
    }
    tokens.sort_unstable();
    member.tokens = tokens;
}

/// As `claim`, for an entry that vanished while we run. Series went by our tokens, so we want
/// the same ones back, but for those that others hold by now.
///
/// Before we have joined there is nothing to claim.
fn claim_lost(member: &mut Member, ring: &RingModel, rng: &mut impl Rng) {
    if member.state == InstanceState::Pending {
        return;
    }
    let count = member.tokens.len();
    member.tokens = without_taken(&member.tokens, &member.id, ring);
    claim(member, count, ring, rng);
}

/// `tokens` less those that another member holds with the better right.
///
/// A member that serves keeps its token against one that joins; of two that join, the lower id
/// keeps it, so that exactly one of them moves; one that leaves gives way.
fn without_lost(tokens: &[Token], member: &Member, ring: &RingModel) -> Vec<Token> {
    let stronger = taken(ring, &member.id, |id, other| match other.state {
        InstanceState::Active | InstanceState::ReadOnly => true,
        InstanceState::Pending | InstanceState::Joining => id < member.id.as_str(),
        InstanceState::Leaving | InstanceState::Left => false,
    });
    tokens.iter().copied().filter(|token| !stronger.contains(token)).collect()
}

fn without_taken(tokens: &[Token], id: &str, ring: &RingModel) -> Vec<Token> {
    let taken = taken(ring, id, |_, _| true);
    tokens.iter().copied().filter(|token| !taken.contains(token)).collect()
}

/// Tokens of the other members that `counts` admits; one that has LEFT holds none.
fn taken(ring: &RingModel, id: &str, counts: impl Fn(&str, &Instance) -> bool) -> HashSet<Token> {
    let others = ring.instances.iter().filter(|(other_id, other)| {
        other_id.as_str() != id && other.state != InstanceState::Left && counts(other_id, other)
    });
    others.flat_map(|(_, other)| other.tokens.iter().copied()).collect()
}

/// The tokens that the ring shows for `id`, sorted; `None` when it does not show us at all.
fn shown(ring: &RingModel, id: &str) -> Option<Vec<Token>> {
    let entry = ring.instances.get(id).filter(|entry| entry.state != InstanceState::Left)?;
    Some(sorted(&entry.tokens))
}

fn sorted(tokens: &[Token]) -> Vec<Token> {
    let mut tokens = tokens.to_vec();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

fn store(member: &Member, ring: &mut RingModel, now_s: i64) {
    let old = ring.instances.remove(&member.id);
    let (old_tokens, unknown_fields) =
        old.map(|old| (old.tokens, old.unknown_fields)).unwrap_or_default();
    let entry = Instance {
        addr: member.addr.clone(),
        timestamp_s: now_s,
        state: member.state,
        // Tokens draw keys to us; before we join, an entry shows no more than it did.
        tokens: match member.state {
            InstanceState::Pending => old_tokens,
            _ => member.tokens.clone(),
        },
        zone: member.zone.clone(),
        registered_timestamp_s: member.registered_timestamp_s,
        unknown_fields,
    };
    ring.instances.insert(member.id.clone(), entry);
}

#[cfg(test)]
mod tests;
