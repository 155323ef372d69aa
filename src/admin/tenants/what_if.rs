//! "What if": a tenant's limit here under another limit of the cluster, or other instances.

use serde::Serialize;

use super::row::percent;
use crate::ingester::standing::Standing;
use crate::ingester::what_if::{Asked, INSTANCES_MAX, Outcome, WhatIf};
use crate::series::{Basis, Count};

/// What the form was sent with. What cannot be read is shown again, with the reason.
#[derive(Default, Serialize)]
pub(super) struct WhatIfView {
    /// As the form had it, or what is in force.
    #[serde(skip)]
    pub(super) global_text: String,
    #[serde(skip)]
    pub(super) instances_text: String,
    /// Why there is no answer although something was asked.
    pub(super) error: Option<String>,
    /// `None` while nothing is asked.
    pub(super) answer: Option<Answer>,
}

#[derive(Serialize)]
pub(super) struct Answer {
    pub(super) global_limit: i64,
    pub(super) instances: usize,
    /// Our share of the tenant's key space, as is to be expected.
    pub(super) share: f64,
    /// `None` where there would be none.
    pub(super) limit: Option<u64>,
    pub(super) in_memory: OutcomeView,
    pub(super) owned: OutcomeView,
}

/// One count against the limit.
#[derive(Serialize)]
pub(super) struct OutcomeView {
    pub(super) count: u64,
    pub(super) headroom: Option<i64>,
    pub(super) used_percent: Option<f64>,
    /// New series would be refused.
    pub(super) refused: bool,
    /// This is the count that limits act on here.
    pub(super) decides: bool,
}

impl WhatIfView {
    /// `global_limit` and `instances` as they stand in the query; empty is not asked.
    pub(super) fn new(
        standing: &Standing,
        count: Count,
        basis: Basis,
        global_limit: &str,
        instances: &str,
    ) -> Self {
        let in_force = |text: &str, number: String| match text.trim() {
            "" => number,
            text => text.chars().take(32).collect(),
        };
        let view = Self {
            global_text: in_force(
                global_limit,
                standing.limits.max_global_series_per_user.to_string(),
            ),
            instances_text: in_force(instances, standing.shape.healthy_instances.to_string()),
            ..Self::default()
        };
        let asked = match read(global_limit, instances) {
            Ok(asked) => asked,
            Err(error) => return Self { error: Some(error), ..view },
        };
        if asked == Asked::default() {
            return view;
        }
        let answer = Answer::new(&WhatIf::new(standing, count, asked), basis);
        Self { answer: Some(answer), ..view }
    }
}

impl Answer {
    fn new(what_if: &WhatIf, basis: Basis) -> Self {
        let outcome = |outcome: &Outcome, of: Basis| OutcomeView {
            count: outcome.count,
            headroom: outcome.headroom,
            used_percent: what_if.limit.and_then(|limit| percent(outcome.count, limit)),
            refused: outcome.refuses,
            decides: of == basis,
        };
        Self {
            global_limit: what_if.global_limit,
            instances: what_if.instances,
            share: what_if.share,
            limit: what_if.limit,
            in_memory: outcome(&what_if.in_memory, Basis::InMemory),
            owned: outcome(&what_if.owned, Basis::Owned),
        }
    }

    /// What is counted, and what that comes to.
    pub(super) fn outcomes(&self) -> [(&'static str, &OutcomeView); 2] {
        [
            ("owned, as is to be expected", &self.owned),
            ("in memory, until heads drop what has moved", &self.in_memory),
        ]
    }
}

fn read(global_limit: &str, instances: &str) -> Result<Asked, String> {
    let global_limit = match global_limit.trim() {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            "the limit must be a whole number; 0 is no limit, and below 0 refuses all".to_owned()
        })?),
    };
    let instances = match instances.trim() {
        "" => None,
        text => {
            let number = text.parse().ok().filter(|number| (1..=INSTANCES_MAX).contains(number));
            Some(number.ok_or_else(|| {
                format!("the number of instances must be a whole number of 1 to {INSTANCES_MAX}")
            })?)
        }
    };
    Ok(Asked { global_limit, instances })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_or_told_what_is_wrong() {
        let check = |global, instances, expect| assert_eq!(read(global, instances), Ok(expect));
        check("", " ", Asked::default());
        check("7", "", Asked { global_limit: Some(7), instances: None });
        check(" -1 ", "10000", Asked { global_limit: Some(-1), instances: Some(10_000) });
        for wrong in ["x", "1.5", "1e3", "9223372036854775808", "<script>"] {
            let error = read(wrong, "").expect_err(wrong);
            assert!(error.contains("whole number") && !error.contains(wrong), "{error}");
        }
        for wrong in ["0", "-1", "10001", "many", "6.0"] {
            let error = read("", wrong).expect_err(wrong);
            assert!(error.contains("1 to 10000"), "{error}");
        }
    }
}
