//! How we come into the gossip, and stay in it: asking the members that the settings name.
//!
//! Once before anybody uses the store, so that an empty ring is not taken for the ring; again
//! with growing waits while nobody was reached, up to the bound that is set; and every so often
//! after that, where a rejoin is asked for, which heals a cluster that fell into two.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::{Joined, Shared};
use crate::gossip::config::{MemberlistConfig, Seed};
use crate::gossip::discovery::Discovery;
use crate::gossip::joining::{JoinPace, Joining, Verdict};
use crate::ring::kv::reason;

/// Members asked at once: names may stand for a whole cluster, of which some are long dead.
const ASKED_AT_ONCE: usize = 8;

/// Reasons that are told of one try; settings may lead to a whole cluster.
const REASONS_MAX: usize = 3;

/// Nobody was reached, and it is not tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to join memberlist cluster on startup: none of {members} was reached, tried \
     {tries} times, the last: {reason}; see -memberlist.join, -memberlist.max-join-retries and \
     -memberlist.abort-if-join-fails"
)]
pub struct JoinFailed {
    /// As the settings name them.
    pub members: String,
    pub tries: u32,
    pub reason: String,
}

pub(super) struct Joiner {
    shared: Arc<Shared>,
    discovery: Discovery,
    seeds: Vec<Seed>,
    members: String,
    /// When to ask.
    joining: Joining,
    is_fatal: bool,
}

impl Joiner {
    pub fn new(config: &MemberlistConfig, discovery: Discovery, shared: &Arc<Shared>) -> Self {
        let pace = JoinPace {
            backoff_min_ms: config.min_join_backoff.0,
            backoff_max_ms: config.max_join_backoff.0,
            retries_max: config.max_join_retries,
            rejoin_interval_ms: config.rejoin_interval.0,
        };
        let seeds = config.seeds();
        Self {
            shared: Arc::clone(shared),
            discovery,
            members: config.join_members.join(", "),
            joining: Joining::new(pace, !seeds.is_empty(), rand::random(), 0),
            seeds,
            is_fatal: config.abort_if_cluster_join_fails,
        }
    }

    /// Tries once, and leaves the rest to a task.
    pub async fn start(mut self, tasks: &mut JoinSet<()>) -> watch::Receiver<Joined> {
        let (joined, seen) = watch::channel(Joined::Yes);
        if !self.seeds.is_empty() {
            tracing::info!(members = self.members, "joins the gossip");
        }
        self.ask_if_due(&joined).await;
        tasks.spawn(async move {
            while let Some(next_ms) = self.joining.next_ms() {
                sleep_until(self.shared.started + Duration::from_millis(next_ms)).await;
                self.ask_if_due(&joined).await;
            }
            // Whoever waits for the outcome finds it, for as long as we take part.
            joined.closed().await;
        });
        seen
    }

    async fn ask_if_due(&mut self, joined: &watch::Sender<Joined>) {
        if !self.joining.take(self.shared.now_ms()) {
            return;
        }
        let outcome = self.join().await;
        let reached = *outcome.as_ref().unwrap_or(&0);
        // That the names lead to us alone is an answer, too.
        let answered = if outcome.is_ok() { reached.max(1) } else { 0 };
        let verdict = self.joining.asked(answered, self.shared.now_ms());
        match (verdict, outcome) {
            (Verdict::Again, Err(reason)) => {
                let members = &self.members;
                tracing::warn!(members, reason, "no member of the gossip was reached");
                joined.send_replace(Joined::NotYet(reason));
            }
            (Verdict::GaveUp, Err(reason)) => {
                let tries = self.joining.tries();
                let failed = JoinFailed { members: self.members.clone(), tries, reason };
                if self.is_fatal {
                    joined.send_replace(Joined::Failed(Arc::new(failed)));
                } else {
                    // Others may still find us.
                    tracing::error!(error = %failed, "we go on alone");
                    joined.send_replace(Joined::NotYet(failed.reason));
                }
            }
            (Verdict::Rejoined, Err(reason)) => {
                tracing::warn!(reason, "re-joining memberlist cluster failed");
            }
            (Verdict::Rejoined, Ok(reached)) => tracing::debug!(reached, "rejoined the gossip"),
            (_, outcome) => {
                tracing::info!(reached = outcome.unwrap_or_default(), "joined the gossip");
                joined.send_replace(Joined::Yes);
            }
        }
    }

    /// Exchanges everything with each member that the settings lead to; how many were reached.
    async fn join(&self) -> Result<usize, String> {
        let found = self.discovery.resolve(&self.seeds).await;
        let mut reasons: Vec<_> = found.failures.iter().map(|failure| reason(failure)).collect();
        let own = self.shared.transport.advertised();
        let others = found.members.into_iter().filter(|address| *address != own);
        let asked: Vec<(SocketAddr, _)> = stream::iter(others)
            .map(|to| async move { (to, self.shared.exchange(to, true).await) })
            .buffer_unordered(ASKED_AT_ONCE)
            .collect()
            .await;
        if asked.is_empty() && reasons.is_empty() {
            // The names lead to us alone: we are the first.
            return Ok(0);
        }
        let reached = asked.iter().filter(|(_, outcome)| outcome.is_ok()).count();
        if reached > 0 {
            return Ok(reached);
        }
        for (to, outcome) in asked {
            if let Err(error) = outcome {
                reasons.push(format!("{to}: {}", reason(&error)));
            }
        }
        let more = reasons.len().saturating_sub(REASONS_MAX);
        reasons.truncate(REASONS_MAX);
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        Err(reasons.join("; "))
    }
}
