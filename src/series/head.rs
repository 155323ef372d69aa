//! When the head that holds a tenant's series drops them: the rule of Prometheus' TSDB.
//!
//! The head takes samples of the last two hours or so and is cut at multiples of its block range:
//! once its samples span more than one and a half ranges, everything before the end of its
//! oldest range goes to a block, and with it every series that has nothing newer. The half range
//! is also how far a sample may lie behind the newest one. A tenant that falls silent has its
//! whole head dropped.
//!
//! Pure: the caller brings sample times and its clock, cuts when told so, and says what is left.
//!
//! Invariant: once there are samples, `min_ms <= max_ms`, and `appendable_from_ms` never falls.

/// Length of a head's blocks: Cortex's `-blocks-storage.tsdb.block-ranges-period`.
pub const BLOCK_RANGE_MS: i64 = 2 * 60 * 60 * 1000;
/// Silence after which a whole head is dropped, Cortex's
/// `-blocks-storage.tsdb.head-compaction-idle-timeout`.
pub const IDLE_TIMEOUT_MS: i64 = 60 * 60 * 1000;

/// The two times that shape a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRule {
    pub block_range_ms: i64,
    /// 0: a silent head is never dropped whole.
    pub idle_timeout_ms: i64,
}

impl Default for HeadRule {
    fn default() -> Self {
        Self { block_range_ms: BLOCK_RANGE_MS, idle_timeout_ms: IDLE_TIMEOUT_MS }
    }
}

/// A cut that is due: series without a sample at or after `before_ms` go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub before_ms: i64,
    pub reason: CutReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// The head spans more than one and a half block ranges.
    Range,
    /// The tenant has been silent; nothing stays.
    Idle,
}

/// A tenant's head.
#[derive(Clone, Debug)]
pub struct Head {
    rule: HeadRule,
    /// Sample times of the head; `None` before the first sample.
    span: Option<Span>,
    /// Samples before this are in blocks already.
    min_valid_ms: i64,
    /// When the caller last appended, by the caller's clock.
    appended_at_ms: i64,
    /// No series is left since the last cut, so there is nothing to drop.
    empty: bool,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    min_ms: i64,
    max_ms: i64,
}

impl Head {
    pub fn new(rule: HeadRule) -> Self {
        Self { rule, span: None, min_valid_ms: i64::MIN, appended_at_ms: i64::MIN, empty: true }
    }

    /// The head of a store that was opened again: its blocks end at `min_valid_ms`, and it holds
    /// samples from `oldest_ms` to `newest_ms`.
    pub fn reopened(
        rule: HeadRule,
        min_valid_ms: i64,
        samples: Option<(i64, i64)>,
        now_ms: i64,
    ) -> Self {
        let span = samples.map(|(oldest_ms, newest_ms)| Span {
            min_ms: oldest_ms.max(min_valid_ms),
            max_ms: newest_ms.max(oldest_ms.max(min_valid_ms)),
        });
        Self { rule, span, min_valid_ms, appended_at_ms: now_ms, empty: span.is_none() }
    }

    /// Notes appended samples from `oldest_ms` to `newest_ms`, all of them appendable.
    pub fn appended(&mut self, oldest_ms: i64, newest_ms: i64, now_ms: i64) {
        self.appended_at_ms = self.appended_at_ms.max(now_ms);
        self.empty = false;
        let span = self.span.get_or_insert(Span { min_ms: oldest_ms, max_ms: newest_ms });
        span.min_ms = span.min_ms.min(oldest_ms);
        span.max_ms = span.max_ms.max(newest_ms);
    }

    /// Samples before this time are out of bounds. The first sample of all sets the time, so
    /// before it everything is in bounds.
    pub fn appendable_from_ms(&self) -> i64 {
        match self.span {
            None => self.min_valid_ms,
            Some(span) => {
                let window_ms = span.max_ms.saturating_sub(self.rule.block_range_ms / 2);
                window_ms.max(self.min_valid_ms)
            }
        }
    }

    /// Oldest and newest sample time of the head.
    pub fn samples_ms(&self) -> Option<(i64, i64)> {
        self.span.map(|span| (span.min_ms, span.max_ms))
    }

    /// The next cut, if one is due. Silence goes first: it takes everything.
    pub fn due(&self, now_ms: i64) -> Option<Cut> {
        let span = self.span.filter(|_| !self.empty)?;
        let silent_ms = now_ms.saturating_sub(self.appended_at_ms);
        if self.rule.idle_timeout_ms > 0 && silent_ms > self.rule.idle_timeout_ms {
            let before_ms = span.max_ms.saturating_add(1);
            return Some(Cut { before_ms, reason: CutReason::Idle });
        }
        let range_ms = self.rule.block_range_ms;
        if span.max_ms.saturating_sub(span.min_ms) > range_ms / 2 * 3 {
            // All that is due in one cut: after a leap in the samples' times, range by range would
            // be as many cuts as the leap has ranges.
            let kept_from_ms = span.max_ms.saturating_sub(range_ms / 2 * 3);
            let last_ms = range_end(kept_from_ms.saturating_sub(1), range_ms);
            let before_ms = range_end(span.min_ms, range_ms).max(last_ms);
            return Some(Cut { before_ms, reason: CutReason::Range });
        }
        None
    }

    /// Carries out a cut: samples before `before_ms` are in a block. `oldest_left_ms` is the
    /// oldest sample of the series that stayed: `None` when none did.
    ///
    pub fn cut(&mut self, before_ms: i64, oldest_left_ms: Option<i64>) {
        let Some(span) = &mut self.span else {
            return;
        };
        if span.min_ms >= before_ms {
            return;
        }
        span.min_ms = before_ms;
        span.max_ms = span.max_ms.max(before_ms);
        self.min_valid_ms = self.min_valid_ms.max(before_ms);
        // What is left may begin later. The bound for new samples rises with it only as far as
        // samples were out of bounds anyway.
        self.empty = oldest_left_ms.is_none();
        let left_ms = oldest_left_ms.unwrap_or(i64::MAX);
        if left_ms > before_ms {
            let min_ms = left_ms.min(self.appendable_from_ms());
            self.min_valid_ms = self.min_valid_ms.max(min_ms);
            if let Some(span) = &mut self.span {
                span.min_ms = span.min_ms.max(min_ms);
            }
        }
    }
}

/// End of the block range that `at_ms` lies in; ranges before 1970 are cut as Go divides.
fn range_end(at_ms: i64, range_ms: i64) -> i64 {
    (at_ms / range_ms * range_ms).saturating_add(range_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 60 * 60 * 1000;
    const NOW_MS: i64 = 0;

    fn head(oldest_ms: i64, newest_ms: i64) -> Head {
        let mut head = Head::new(HeadRule::default());
        head.appended(oldest_ms, newest_ms, NOW_MS);
        head
    }

    #[test]
    fn a_head_is_cut_at_the_end_of_its_oldest_range_once_it_spans_one_and_a_half() {
        let check = |oldest_ms, newest_ms, before_ms: Option<i64>| {
            let due = head(oldest_ms, newest_ms).due(NOW_MS);
            let expected = before_ms.map(|before_ms| Cut { before_ms, reason: CutReason::Range });
            assert_eq!(due, expected, "{oldest_ms}..={newest_ms}");
        };
        check(0, 3 * HOUR_MS, None);
        check(0, 3 * HOUR_MS + 1, Some(2 * HOUR_MS));
        check(HOUR_MS, 4 * HOUR_MS, None);
        check(HOUR_MS, 4 * HOUR_MS + 1, Some(2 * HOUR_MS));
        check(2 * HOUR_MS, 5 * HOUR_MS + 1, Some(4 * HOUR_MS));
        // Division cuts towards zero, so the ranges on both sides of 1970 are one.
        check(-HOUR_MS, 2 * HOUR_MS + 1, Some(2 * HOUR_MS));
        check(-3 * HOUR_MS, HOUR_MS, Some(0));
    }

    #[test]
    fn samples_may_lie_half_a_range_behind_and_never_before_a_cut() {
        let mut head = Head::new(HeadRule::default());
        assert_eq!(head.appendable_from_ms(), i64::MIN);
        head.appended(0, HOUR_MS, NOW_MS);
        assert_eq!(head.appendable_from_ms(), 0);
        head.appended(HOUR_MS, 3 * HOUR_MS + 1, NOW_MS);
        assert_eq!(head.appendable_from_ms(), 2 * HOUR_MS + 1);
        head.cut(2 * HOUR_MS, Some(2 * HOUR_MS));
        assert_eq!(head.appendable_from_ms(), 2 * HOUR_MS + 1);
        assert_eq!(head.samples_ms(), Some((2 * HOUR_MS, 3 * HOUR_MS + 1)));
        assert_eq!(head.due(NOW_MS), None);
    }

    #[test]
    fn the_start_of_what_is_left_raises_the_heads_start_up_to_the_bound_for_samples() {
        let check = |oldest_left_ms, min_ms| {
            let mut head = head(0, 10 * HOUR_MS);
            head.cut(2 * HOUR_MS, oldest_left_ms);
            assert_eq!(head.samples_ms().map(|(min_ms, _)| min_ms), Some(min_ms));
        };
        check(Some(2 * HOUR_MS), 2 * HOUR_MS);
        check(Some(5 * HOUR_MS), 5 * HOUR_MS);
        check(Some(10 * HOUR_MS), 9 * HOUR_MS);
    }

    #[test]
    fn a_gap_in_the_samples_needs_no_cut_per_range() {
        let mut head = head(0, HOUR_MS);
        head.appended(40 * HOUR_MS, 40 * HOUR_MS, NOW_MS);
        let cut = head.due(NOW_MS).expect("a cut is due");
        head.cut(cut.before_ms, Some(40 * HOUR_MS));
        assert_eq!(head.due(NOW_MS), None);
        assert_eq!(head.appendable_from_ms(), 39 * HOUR_MS);
    }

    #[test]
    fn a_silent_head_goes_whole_and_once() {
        let mut head = head(0, HOUR_MS);
        assert_eq!(head.due(NOW_MS + IDLE_TIMEOUT_MS), None);
        let cut = head.due(NOW_MS + IDLE_TIMEOUT_MS + 1).expect("the tenant is silent");
        assert_eq!(cut, Cut { before_ms: HOUR_MS + 1, reason: CutReason::Idle });
        head.cut(cut.before_ms, None);
        assert_eq!(head.due(NOW_MS + 2 * IDLE_TIMEOUT_MS), None);
        assert_eq!(head.appendable_from_ms(), HOUR_MS + 1);
        head.appended(HOUR_MS + 1, HOUR_MS + 1, NOW_MS + 2 * IDLE_TIMEOUT_MS);
        assert_eq!(head.due(NOW_MS + 2 * IDLE_TIMEOUT_MS), None);
    }

    #[test]
    fn an_idle_timeout_of_zero_never_drops_a_silent_head() {
        let mut head = Head::new(HeadRule { idle_timeout_ms: 0, ..HeadRule::default() });
        head.appended(0, 0, NOW_MS);
        assert_eq!(head.due(i64::MAX), None);
    }

    #[test]
    fn a_reopened_head_keeps_its_bounds() {
        let rule = HeadRule::default();
        let head = Head::reopened(rule, 4 * HOUR_MS, Some((3 * HOUR_MS, 6 * HOUR_MS)), NOW_MS);
        assert_eq!(head.samples_ms(), Some((4 * HOUR_MS, 6 * HOUR_MS)));
        assert_eq!(head.appendable_from_ms(), 5 * HOUR_MS);
        let empty = Head::reopened(rule, 4 * HOUR_MS, None, NOW_MS);
        assert_eq!(empty.appendable_from_ms(), 4 * HOUR_MS);
        assert_eq!(empty.due(i64::MAX), None);
    }

    #[test]
    fn a_leap_in_the_samples_is_cut_at_once() {
        for newest_ms in [NOW_MS + 1000 * BLOCK_RANGE_MS, i64::MAX] {
            let mut head = Head::new(HeadRule::default());
            head.appended(NOW_MS, NOW_MS, NOW_MS);
            head.appended(newest_ms, newest_ms, NOW_MS);
            let cut = head.due(NOW_MS).expect("the head spans too much");
            head.cut(cut.before_ms, Some(newest_ms));
            assert_eq!(head.due(NOW_MS), None, "{newest_ms}");
        }
    }
}
