//! Asks canaries: queries that no cache may answer, to see what their answers say of that.

use std::sync::Arc;

use form_urlencoded::Serializer;
use tokio::time::MissedTickBehavior;

use super::canary::{Belief, Finding, Judge};
use super::config::CachedAnswers;
use super::{Frontend, QUERIER_WALL_TIME};
use crate::upstream::queries::{Query, Reply};

/// What a canary asks for: a quarter of an hour in steps of a minute. A constant would be no work.
const RANGE_S: i64 = 15 * 60;
const STEP_S: i64 = 60;

impl Frontend {
    /// Asks one canary each period, for as long as there is anything to find out.
    pub async fn watch(self: Arc<Self>) {
        let config = &self.config;
        if config.cached_answers != CachedAnswers::Verified || self.means.is_none() {
            return;
        }
        if config.canary_tenant.is_empty() {
            tracing::warn!(
                "answers from the results cache are charged to clients like others: nothing \
                 proves that they are told apart; set -frontend.canary-tenant, or \
                 -frontend.cached-answers to trusted or charged"
            );
            return;
        }
        let (mut judge, mut was_silent) = (Judge::default(), false);
        let mut periods = tokio::time::interval(config.canary_period.as_duration());
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            periods.tick().await;
            let finding = self.ask_canary().await;
            let counted = match finding {
                Finding::Answer { wall_ms: Some(wall_ms) } if wall_ms > 0.0 => 0,
                Finding::Answer { .. } => 1,
                Finding::Silence => 2,
            };
            self.counters.canaries[counted].add(1);
            let belief = judge.hear(finding);
            if let Some(belief) = belief
                && self.signal.set(belief)
            {
                tell(belief, finding);
            } else if belief == Some(Belief::Unknown) && !was_silent {
                tell(Belief::Unknown, finding);
            }
            was_silent = belief == Some(Belief::Unknown);
        }
    }

    async fn ask_canary(&self) -> Finding {
        let end_s = self.clock.now().unix_ms / 1000;
        let parameters = Serializer::new(String::new())
            .append_pair("query", &self.config.canary_query)
            .append_pair("start", &(end_s - RANGE_S).to_string())
            .append_pair("end", &end_s.to_string())
            .append_pair("step", &STEP_S.to_string())
            .finish();
        let prefix = match self.config.strip_http_prefix {
            true => "",
            false => self.config.prefixes().next().unwrap_or_default(),
        };
        let path = format!("{prefix}/api/v1/query_range?{parameters}");
        let Some(mut query) = Query::get(&path) else { return Finding::Silence };
        let is_set = query.set("x-scope-orgid", &self.config.canary_tenant)
            && query.set("cache-control", "no-store");
        if !is_set {
            return Finding::Silence;
        }
        let Ok(reply) = (self.ask)(query).await else { return Finding::Silence };
        let Reply { head, mut body } = reply;
        // Read to its end, so that the connection can be used again.
        while let Some(Ok(_)) = body.next().await {}
        match head.status() {
            200 => Finding::Answer { wall_ms: head.server_timing_ms(QUERIER_WALL_TIME) },
            _ => Finding::Silence,
        }
    }
}

fn tell(belief: Belief, finding: Finding) {
    match (belief, finding) {
        (Belief::Believed, _) => tracing::info!(
            "answers from the results cache cost clients nothing from now on: a canary has shown \
             that they are told apart"
        ),
        (Belief::Disproved, Finding::Answer { wall_ms: Some(_) }) => tracing::error!(
            "answers from the results cache are charged to clients like others from now on: one \
             that no cache may give claims to come from there; are query statistics on in all \
             queriers and query-frontends?"
        ),
        (Belief::Disproved, _) => tracing::warn!(
            "answers from the results cache are charged to clients like others: those behind us \
             do not tell which they are (-frontend.query-stats-enabled of Cortex)"
        ),
        (Belief::Unknown, _) => tracing::warn!(
            "answers from the results cache are charged to clients like others from now on: \
             canaries get no answer; is -frontend.canary-tenant one with data?"
        ),
    }
}
