//! One listing of a tenant's series upstream: what is asked, and how the answer is merged.
//!
//! Mark and sweep: every series that the answer names is entered or confirmed, and marked; at the
//! end what is not marked goes, unless somebody has touched it since the listing began, when the
//! upstream may have come to it too late. Pushes go on all the while.
//!
//! Bound: a mark takes eight bytes, a fifth of what the series itself takes here.

use crate::clock::Now;
use crate::ingester::Ingester;
use crate::ingester::tenants::Tenant;
use crate::labels::{Identity, LabelsBuf, ring_key};
use crate::series::head::HeadRule;
use crate::series::{Fate, Kind, NewSeries, Tick};
use crate::wire::DecodeError;
use crate::wire::metric_list::MetricList;
use crate::wire::proto::cortex;

/// Marks are kept in as many parts, so that none is ever copied whole when it grows.
const MARK_PARTS: usize = 256;
/// Enum number of a matcher by regular expression.
const REGEX_MATCH: i32 = cortex::MatchType::RegexMatch as i32;
/// The name is any, or none at all: series without a name are in the head too.
const EVERY_NAME: &str = ".*";

/// Which part of the upstream's series is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// A time before all data, which Cortex takes for its head's range and nothing else.
    Head,
    /// From where the head should begin by Cortex's rule. Where the tenant has a
    /// `query_ingesters_within` a range is taken by the letter, and the one before is empty.
    Recent,
}

impl Range {
    /// The question in this range.
    pub fn question(self, rule: HeadRule, now: Now) -> cortex::MetricsForLabelMatchersRequest {
        let (start_timestamp_ms, end_timestamp_ms) = match self {
            Self::Head => (0, 0),
            Self::Recent => (head_start_ms(rule, now.unix_ms), i64::MAX),
        };
        let matcher = cortex::LabelMatcher {
            r#type: REGEX_MATCH,
            name: "__name__".to_owned(),
            value: EVERY_NAME.to_owned(),
        };
        cortex::MetricsForLabelMatchersRequest {
            start_timestamp_ms,
            end_timestamp_ms,
            matchers_set: vec![cortex::LabelMatchers { matchers: vec![matcher] }],
            limit: 0,
        }
    }
}

/// Where a head begins whose samples come at `now_ms`: it was cut last when they had reached one
/// and a half block ranges beyond that boundary.
pub fn head_start_ms(rule: HeadRule, now_ms: i64) -> i64 {
    let range_ms = rule.block_range_ms.max(1);
    (now_ms - range_ms / 2).div_euclid(range_ms) * range_ms
}

/// What a merge has done to the tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    pub listed: u64,
    /// Of the listed ones, those that were not here.
    pub entered: u64,
    pub removed: u64,
    /// What was not listed was left alone, because too little was listed.
    pub is_short: bool,
}

/// An answer on its way in. See the head of the file.
pub struct Merge {
    began: Now,
    listed: u64,
    entered: u64,
    /// Lower halves of marked identities, by their leading byte.
    marks: Vec<Vec<u64>>,
    scratch: LabelsBuf,
    label_sets: Vec<u16>,
}

impl Merge {
    pub fn new(began: Now) -> Self {
        Self {
            began,
            listed: 0,
            entered: 0,
            marks: vec![Vec::new(); MARK_PARTS],
            scratch: LabelsBuf::new(),
            label_sets: Vec::new(),
        }
    }

    /// Takes one message of the answer.
    pub fn take(
        &mut self,
        ingester: &Ingester,
        tenant: &Tenant,
        message: &[u8],
    ) -> Result<(), DecodeError> {
        let standing = tenant.standing.load();
        let sets = &standing.limits.limits_per_label_set;
        let generation = standing.label_sets_generation;
        let counts_labels = standing.counts_metrics() || standing.counts_label_sets();
        let mut list = MetricList::new(message, &mut self.scratch);
        while let Some(labels) = list.next()? {
            let identity = ingester.hasher.identity(labels);
            self.listed += 1;
            mark(&mut self.marks, identity);
            let is_here = tenant.series.contains(identity);
            if is_here && !counts_labels {
                tenant.series.confirm(&[identity]);
                continue;
            }
            if sets.is_empty() {
                self.label_sets.clear();
            } else {
                sets.matches(|name| labels.get(name).unwrap_or_default(), &mut self.label_sets);
            }
            let metric = labels.metric_name();
            let new = NewSeries {
                ring_key: ring_key(tenant.id.as_str(), labels),
                metric,
                metric_exempt: false,
                label_sets: &self.label_sets,
                label_sets_generation: generation,
            };
            if tenant.series.restore(identity, Kind::Float, None, &new) {
                self.entered += 1;
            } else if counts_labels {
                tenant.series.assign(identity, metric, &self.label_sets, generation);
            }
        }
        Ok(())
    }

    /// The answer is complete. If it named at least `sweep_from` series, what it did not name goes.
    pub fn finish(mut self, tenant: &Tenant, sweep_from: u64) -> Merged {
        let (listed, entered) = (self.listed, self.entered);
        if listed < sweep_from {
            return Merged { listed, entered, removed: 0, is_short: true };
        }
        for part in &mut self.marks {
            part.sort_unstable();
        }
        let began = Tick::new(self.began.steady_s());
        let removed = tenant.series.purge_where(
            |candidate| {
                let is_new = candidate.touched >= began;
                if is_new || is_marked(&self.marks, candidate.identity) {
                    Fate::Keep
                } else {
                    Fate::Drop
                }
            },
            |_| {},
        );
        if tenant.series.labels_unknown() {
            tenant.series.labels_pass_done();
        }
        Merged { listed, entered, removed, is_short: false }
    }
}

fn mark(marks: &mut [Vec<u64>], identity: Identity) {
    let part = &mut marks[part_of(identity)];
    if part.len() == part.capacity() {
        // By an eighth: doubling would take twice what is needed in the worst case.
        part.reserve_exact(part.len() / 8 + 16);
    }
    part.push(identity.0 as u64);
}

fn is_marked(marks: &[Vec<u64>], identity: Identity) -> bool {
    marks[part_of(identity)].binary_search(&(identity.0 as u64)).is_ok()
}

fn part_of(identity: Identity) -> usize {
    (identity.0 >> 120) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 60 * 60 * 1000;

    #[test]
    fn a_head_begins_at_the_boundary_it_was_last_cut_at() {
        let check = |now_hours: f64, start_hours: i64| {
            let now_ms = (now_hours * HOUR_MS as f64) as i64;
            let start_ms = head_start_ms(HeadRule::default(), now_ms);
            assert_eq!(start_ms, start_hours * HOUR_MS, "{now_hours}");
        };
        check(5.0, 4);
        check(6.99, 4);
        check(7.0, 6);
        check(4.99, 2);
    }

    #[test]
    fn the_heads_range_is_asked_for_by_a_time_before_all_data() {
        let now = Now { unix_ms: 5 * HOUR_MS, steady_ns: 0 };
        let question = Range::Head.question(HeadRule::default(), now);
        assert_eq!((question.start_timestamp_ms, question.end_timestamp_ms), (0, 0));
        let question = Range::Recent.question(HeadRule::default(), now);
        assert_eq!(question.start_timestamp_ms, 4 * HOUR_MS);
    }

    #[test]
    fn marks_are_found_and_others_are_not() {
        let mut marks = vec![Vec::new(); MARK_PARTS];
        let identity = |n: u128| Identity(n << 120 | (n * 0x9e37_79b9_7f4a_7c15));
        for n in (0..200).rev().step_by(2) {
            mark(&mut marks, identity(n));
        }
        marks.iter_mut().for_each(|part| part.sort_unstable());
        for n in 0..200 {
            assert_eq!(is_marked(&marks, identity(n)), n % 2 == 1, "{n}");
        }
    }
}
