//! A member of the ring as all of the ring's pages show it.

use serde::Serialize;

use super::super::answer;
use super::cortex::go_time;
use super::{UNHEALTHY, drawing, shown_state};
use crate::ring::model::InstanceState;
use crate::ring::shares::Shares;
use crate::ring::{MemberIndex, RingSnapshot};

/// A member's own entry in the ring, and its share.
#[derive(Serialize)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) zone: String,
    /// What the member says of itself.
    pub(super) state: &'static str,
    /// As Cortex's page shows it.
    #[serde(skip)]
    pub(super) shown_state: &'static str,
    /// Its heartbeat was fresh when the ring was read.
    pub(super) healthy: bool,
    pub(super) address: String,
    pub(super) heartbeat: String,
    pub(super) heartbeat_age_seconds: i64,
    /// `None` where it is not known.
    pub(super) registered: Option<String>,
    /// Tokens that it claims.
    pub(super) tokens: usize,
    pub(super) share: Share,
    pub(super) is_own: bool,
    #[serde(skip)]
    pub(super) index: MemberIndex,
}

/// A member's part of the keys of its zone (of all keys, without zone awareness).
#[derive(Clone, Copy, Serialize)]
pub(super) struct Share {
    pub(super) percent: f64,
    /// The next two are `None` for a member without tokens.
    pub(super) expected_percent: Option<f64>,
    /// Actual by expected.
    pub(super) ratio: Option<f64>,
}

impl Entry {
    pub(super) fn new(
        snapshot: &RingSnapshot,
        shares: &Shares,
        index: MemberIndex,
        now_ms: i64,
    ) -> Self {
        let member = &snapshot.members()[index.index()];
        let is_fresh = snapshot.health().is_fresh(member.timestamp_s);
        let known = |unix_s: i64| (unix_s != 0).then(|| go_time(unix_s));
        Self {
            id: member.id.to_string(),
            zone: member.zone.to_string(),
            state: member.state.name(),
            shown_state: shown_state(is_fresh, member.state),
            healthy: is_fresh,
            address: member.addr.to_string(),
            heartbeat: go_time(member.timestamp_s),
            heartbeat_age_seconds: (now_ms / 1000).saturating_sub(member.timestamp_s),
            registered: known(member.registered_timestamp_s),
            tokens: snapshot.tokens_of(index).len(),
            share: Share {
                percent: shares.actual(index) * 100.0,
                expected_percent: shares.expected(index).map(|expected| expected * 100.0),
                ratio: shares.ratio(index),
            },
            is_own: snapshot.settings().own_id.as_deref() == Some(&*member.id),
            index,
        }
    }

    /// Takes writes, and has keys to take them for.
    pub(super) fn is_fit(&self) -> bool {
        self.healthy && self.state == InstanceState::Active.name() && self.tokens > 0
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        let texts = [&*self.id, &*self.zone, &*self.address, self.state, self.shown_state];
        texts.iter().any(|shown| shown.contains(text))
    }

    pub(super) fn state_class(&self) -> &'static str {
        match self.shown_state {
            UNHEALTHY => "bad",
            "ACTIVE" => "good",
            _ => "warn",
        }
    }

    pub(super) fn heartbeat_ago(&self) -> String {
        ago(self.heartbeat_age_seconds)
    }

    /// As the parameter of a link.
    pub(super) fn parameter(&self) -> String {
        answer::in_query(&self.id)
    }

    /// The member's colour in the drawing.
    pub(super) fn color(&self) -> String {
        drawing::color(self.index)
    }
}

/// An age in the largest unit that says enough.
fn ago(seconds: i64) -> String {
    match seconds {
        // The clocks of two machines differ a little.
        ..=-2 => format!("{} s ahead of our clock", seconds.saturating_neg()),
        -1..=119 => format!("{} s ago", seconds.max(0)),
        120..=7_199 => format!("{} min ago", seconds / 60),
        7_200..=172_799 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_a_unit_that_fits() {
        let check = |seconds, text| assert_eq!(ago(seconds), text);
        check(0, "0 s ago");
        check(-1, "0 s ago");
        check(-30, "30 s ahead of our clock");
        check(119, "119 s ago");
        check(120, "2 min ago");
        check(7_200, "2 h ago");
        check(200_000, "2 days ago");
        check(i64::MIN, "9223372036854775807 s ahead of our clock");
    }
}
