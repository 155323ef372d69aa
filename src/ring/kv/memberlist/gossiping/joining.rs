//! How we come into the gossip, and stay in it: asking the members that the settings name.
//!
//! Once before anybody uses the store, so that an empty ring is not taken for the ring: until one
//! member has told all it has, which is all there is, or until none can be waited for any longer.
//! Again with growing waits while nobody was reached, up to the bound that is set; and every so
//! often after that, where a rejoin is asked for, which heals a cluster that fell into two.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::{Joined, Shared};
use crate::gossip::config::{MemberlistConfig, Seed};
use crate::gossip::discovery::Discovery;
use crate::gossip::joining::{JoinPace, Joining, Verdict};
use crate::ring::kv::reason;

/// Members asked at once: names may stand for a whole cluster, of which some are long dead, and each
/// of these takes as long as a stream may to be known as such.
const ASKED_AT_ONCE: usize = 32;

/// Longest asking, in times of a stream: five rounds of the dead, and one of the living. Who was not
/// asked by then may be so the next time.
const TRY_MAX_STREAMS: u32 = 6;

/// While the first try lasts.
const NO_ANSWER_YET: &str = "they were asked, and have not answered yet";

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
    /// Who waits for the first answer.
    opened: Option<oneshot::Sender<()>>,
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
            opened: None,
        }
    }

    /// Tries once, and leaves the rest to a task; what of the first try still hangs when one
    /// member has answered, or when a stream's time is over, is left to it, too.
    pub async fn start(mut self, tasks: &mut JoinSet<()>) -> watch::Receiver<Joined> {
        if self.seeds.is_empty() {
            return self.nobody_to_join(tasks);
        }
        tracing::info!(members = self.members, "joins the gossip");
        let (joined, seen) = watch::channel(Joined::NotYet(NO_ANSWER_YET.to_owned()));
        let (told, opened) = oneshot::channel();
        self.opened = Some(told);
        let longest = self.shared.stream_timeout;
        tasks.spawn(async move {
            while let Some(next_ms) = self.joining.next_ms() {
                sleep_until(self.shared.started + Duration::from_millis(next_ms)).await;
                self.ask_if_due(&joined).await;
                self.opened = None;
            }
            // Whoever waits for the outcome finds it, for as long as we take part.
            joined.closed().await;
        });
        // Told, or dropped at the try's end.
        let _ = timeout(longest, opened).await;
        seen
    }

    fn nobody_to_join(self, tasks: &mut JoinSet<()>) -> watch::Receiver<Joined> {
        let (joined, seen) = watch::channel(Joined::Yes);
        tasks.spawn(async move { joined.closed().await });
        seen
    }

    async fn ask_if_due(&mut self, joined: &watch::Sender<Joined>) {
        if !self.joining.take(self.shared.now_ms()) {
            return;
        }
        let outcome = self.join(joined).await;
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
    async fn join(&mut self, joined: &watch::Sender<Joined>) -> Result<usize, String> {
        let found = self.discovery.resolve(&self.seeds).await;
        let until = Instant::now() + self.shared.stream_timeout * TRY_MAX_STREAMS;
        let mut reasons: Vec<_> = found.failures.iter().map(|failure| reason(failure)).collect();
        let own = self.shared.transport.advertised();
        let others = found.members.into_iter().filter(|address| *address != own);
        let shared = &self.shared;
        let asking = stream::iter(others)
            .map(|to| async move { (to, shared.exchange(to, true).await) })
            .buffer_unordered(ASKED_AT_ONCE);
        let mut asking = pin!(asking);
        let mut asked: Vec<(SocketAddr, _)> = Vec::new();
        // Cut off at the end of the time: that exchange is given up.
        while let Ok(Some(outcome)) = timeout_at(until, asking.next()).await {
            if outcome.1.is_ok() {
                joined.send_if_modified(become_joined);
                if let Some(told) = self.opened.take() {
                    // The start may have waited long enough by now.
                    let _ = told.send(());
                }
            }
            asked.push(outcome);
        }
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

/// Whether that is news.
fn become_joined(joined: &mut Joined) -> bool {
    let is_news = !matches!(joined, Joined::Yes);
    *joined = Joined::Yes;
    is_news
}
