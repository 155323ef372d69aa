//! Accounts on their way to their new owners.
//!
//! A message is repeated until it is answered or [`HAND_OVER_WITHIN`] is over: a second one
//! changes nothing for the worse. What does not arrive is learned by the new owner from what
//! peers report, and otherwise begins cold.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::member::Member;
use super::{HAND_OVER_WITHIN, Id};
use crate::clients::exchange::HandOver;
use crate::wire::budgets::{decode_hand_over_reply, encode_hand_over};

const HAND_OVER: &str = "/freehold.budgets.v1.Budgets/HandOver";

/// Wait before a message is tried again: some forty times before time is over.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Sends each new owner its accounts, one message after the other, all owners at once.
pub(super) fn start(
    tasks: &mut JoinSet<()>,
    members: &HashMap<Id, Arc<Member>>,
    messages: Vec<(Id, HandOver)>,
) {
    while tasks.try_join_next().is_some() {}
    let mut by_owner: HashMap<Id, Vec<HandOver>> = HashMap::new();
    for (owner, message) in messages {
        by_owner.entry(owner).or_default().push(message);
    }
    for (owner, messages) in by_owner {
        match members.get(&owner) {
            Some(member) => {
                tasks.spawn(send(Arc::clone(member), messages));
            }
            None => lost(&owner, messages.iter().map(|message| message.accounts.len()).sum()),
        }
    }
}

async fn send(member: Arc<Member>, messages: Vec<HandOver>) {
    let until = Instant::now() + HAND_OVER_WITHIN;
    let mut left: usize = messages.iter().map(|message| message.accounts.len()).sum();
    for message in messages {
        let accounts = message.accounts.len();
        for part in encode_hand_over(&message) {
            if timeout_at(until, delivered(&member, &part, until)).await.is_err() {
                lost(&member.id, left);
                return;
            }
        }
        left -= accounts;
    }
}

async fn delivered(member: &Member, part: &[u8], until: Instant) {
    loop {
        let within = until.saturating_duration_since(Instant::now());
        let answer = member.upstream().ask_encoded(HAND_OVER, part, within).await;
        match answer.map(|answer| decode_hand_over_reply(&answer)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => tracing::debug!(peer = %member.id, %error, "a strange answer"),
            Err(error) => tracing::debug!(peer = %member.id, %error, "accounts did not arrive"),
        }
        sleep(AGAIN_AFTER).await;
    }
}

fn lost(owner: &str, accounts: usize) {
    tracing::warn!(peer = owner, accounts, "budgets have not arrived at their new owner");
}
