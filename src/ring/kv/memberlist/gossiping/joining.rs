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
use tokio::time::sleep;

use super::{Joined, Shared};
use crate::gossip::config::{MemberlistConfig, Seed};
use crate::gossip::discovery::Discovery;
use crate::ring::kv::jittered_by_half;

/// Members asked at once: names may stand for a whole cluster, of which some are long dead.
const ASKED_AT_ONCE: usize = 8;
/// Doublings of the wait between two tries; the longest wait bounds it long before.
const DOUBLINGS_MAX: u32 = 16;

/// Nobody was reached, and it is not tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to join memberlist cluster on startup: none of {members} was reached in {tries} \
     tries, the last: {reason}; see -memberlist.join, -memberlist.max-join-retries and \
     -memberlist.abort-if-join-fails"
)]
pub struct JoinFailed {
    /// As the settings name them.
    pub members: String,
    pub tries: u32,
    pub reason: String,
}

pub(super) struct Joining {
    shared: Arc<Shared>,
    discovery: Discovery,
    seeds: Vec<Seed>,
    members: String,
    back_off_min: Duration,
    back_off_max: Duration,
    retries_max: u32,
    is_fatal: bool,
    rejoin_interval: Duration,
}

impl Joining {
    pub fn new(config: &MemberlistConfig, discovery: Discovery, shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            discovery,
            seeds: config.seeds(),
            members: config.join_members.join(", "),
            back_off_min: config.min_join_backoff.as_duration(),
            back_off_max: config.max_join_backoff.as_duration(),
            retries_max: config.max_join_retries,
            is_fatal: config.abort_if_cluster_join_fails,
            rejoin_interval: config.rejoin_interval.as_duration(),
        }
    }

    /// Tries once, and leaves the rest to a task.
    pub async fn start(self, tasks: &mut JoinSet<()>) -> watch::Receiver<Joined> {
        if self.seeds.is_empty() {
            return watch::Sender::new(Joined::Yes).subscribe();
        }
        let first = self.join().await;
        let (joined, seen) = watch::channel(match &first {
            Ok(_) => Joined::Yes,
            Err(reason) => Joined::NotYet(reason.clone()),
        });
        if let Err(reason) = &first {
            tracing::warn!(members = self.members, reason, "no member of the gossip was reached");
        }
        tasks.spawn(self.go_on(first.err(), joined));
        seen
    }

    async fn go_on(self, failed: Option<String>, joined: watch::Sender<Joined>) {
        if let Some(reason) = failed {
            let outcome = self.try_again(reason, &joined).await;
            joined.send_replace(outcome);
        }
        if self.rejoin_interval.is_zero() {
            return;
        }
        // Not all that start together rejoin together.
        sleep(self.rejoin_interval.mul_f64(rand::random())).await;
        loop {
            match self.join().await {
                Ok(reached) => tracing::debug!(reached, "rejoined the gossip"),
                Err(reason) => tracing::warn!(reason, "re-joining memberlist cluster failed"),
            }
            sleep(self.rejoin_interval).await;
        }
    }

    /// Until somebody is reached or the tries are used up.
    async fn try_again(&self, mut reason: String, joined: &watch::Sender<Joined>) -> Joined {
        for retry in 0..self.retries_max {
            let wait = self.back_off_min.saturating_mul(1 << retry.min(DOUBLINGS_MAX));
            let wait_ms = u64::try_from(wait.min(self.back_off_max).as_millis());
            sleep(jittered_by_half(wait_ms.unwrap_or(u64::MAX))).await;
            match self.join().await {
                Ok(reached) => {
                    tracing::info!(reached, "joined the gossip");
                    return Joined::Yes;
                }
                Err(failed) => reason = failed,
            }
            joined.send_replace(Joined::NotYet(reason.clone()));
        }
        let tries = self.retries_max.saturating_add(1);
        let failed = JoinFailed { members: self.members.clone(), tries, reason };
        tracing::error!(error = %failed, "nobody was reached");
        match self.is_fatal {
            true => Joined::Failed(Arc::new(failed)),
            // Others may still find us.
            false => Joined::NotYet(failed.to_string()),
        }
    }

    /// Exchanges everything with each member that the settings lead to; how many were reached.
    async fn join(&self) -> Result<usize, String> {
        let found = self.discovery.resolve(&self.seeds).await;
        let mut reason = found.failures.iter().map(ToString::to_string).next();
        let own = self.shared.transport.advertised();
        let others = found.members.into_iter().filter(|address| *address != own);
        let asked: Vec<(SocketAddr, _)> = stream::iter(others)
            .map(|to| async move { (to, self.shared.exchange(to, true).await) })
            .buffer_unordered(ASKED_AT_ONCE)
            .collect()
            .await;
        if asked.is_empty() && reason.is_none() {
            // The names lead to us alone: we are the first.
            return Ok(0);
        }
        let reached = asked.iter().filter(|(_, outcome)| outcome.is_ok()).count();
        if reached > 0 {
            return Ok(reached);
        }
        for (to, outcome) in asked {
            if let Err(error) = outcome {
                reason = Some(format!("{to}: {error}"));
            }
        }
        Err(reason.unwrap_or_else(|| "there is nobody by these names".to_owned()))
    }
}
