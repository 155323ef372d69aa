//! What we believe of one tenant upstream, and what follows from what is seen of it.
//!
//! The upstream tells one number per tenant: how many series its head holds. Ours differ from it
//! by the *residue*: series that it holds without samples, which no listing names. As long as the
//! difference is the residue, nothing is done. When the upstream has dropped series, which of ours
//! went is worked out from their times, and *counting has to support it*: a way to drop series is
//! taken only if what would remain is at least what the upstream still has. Everything else is
//! settled by a listing, which is dear, so it waits until the difference has lasted.
//!
//! Pure: sights come in, orders go out, time is a parameter. Between a sight's two counts of ours
//! lies the upstream's, so both its bounds are kept instead of one number with a tolerance.

use super::listing::Range;
use super::pace::{Pace, backoff, nanos};
use crate::clock::Now;

/// A hundredth: differences below it may last longer.
const DRIFT_SHARE: u64 = 100;
/// A tenant of no more series is listed as soon for one of them: that costs nobody anything.
const CHEAP_LISTING_SERIES: u64 = 10_000;
/// Part of the expected series that a listing may lack and still be believed at once.
const SHORT_SHARE: u64 = 100;
/// Empty listings that it takes to believe them.
const EMPTY_LISTINGS: u32 = 3;

/// A tenant's counts around one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Series of the upstream's head; 0 also when it does not have the tenant.
    pub upstream: u64,
    /// The upstream has the tenant, with or without series.
    pub is_upstream: bool,
    /// Confirmed series here when the poll was sent: all of them were upstream.
    pub known_before: u64,
    /// All series here when the answer came: what the upstream had from us is among them.
    pub known_after: u64,
    /// Of these, those that no request has confirmed.
    pub pending: u64,
    /// By Cortex's rule, a cut of the head is due: series with nothing from here on go.
    pub cut_due_ms: Option<i64>,
    /// Limits by metric or label set wait for labels that only a listing tells.
    pub labels_unknown: bool,
}

/// A way in which the upstream may have dropped series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The head was cut: series whose newest sample is older went. Those of unknown newest time
    /// were listed at `unknown_until_ms`, so they have nothing newer than that.
    Cut { before_ms: i64, unknown_until_ms: i64 },
    /// The whole head was dropped: what nobody has touched since went.
    Emptied { since: Now },
}

/// Why a tenant is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was there when we started, or when the upstream came back.
    Load,
    /// The upstream was away and has other counts now.
    Returned,
    /// A drop could not be explained, or left something open.
    AfterDrop,
    /// The difference has lasted.
    Drift,
    /// Labels are needed.
    Labels,
}

impl Reason {
    pub fn label(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Returned => "upstream_returned",
            Self::AfterDrop => "after_drop",
            Self::Drift => "drift",
            Self::Labels => "labels",
        }
    }
}

/// What is to be done about a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From now on the tenant counts at least this many series.
    Load { upstream: u64 },
    /// All its series are known.
    EndLoading,
    /// Take the first way that leaves at least this many series.
    Drop { ways: [Option<Way>; 2], at_least: u64 },
    /// The upstream has no series of it: drop what nobody has touched since, and with `whole` the
    /// tenant too.
    Forget { since: Now, whole: bool },
}

/// A listing that should be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub range: Range,
    pub reason: Reason,
    /// A listing of fewer series removes nothing: it may be part of one.
    pub sweep_from: u64,
}

/// How a listing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is merged, and what it does not name is gone.
    ///
    /// `entered` of the listed ones were not here.
    Merged {
        listed: u64,
        entered: u64,
    },
    /// It named fewer series than `sweep_from`; those it named are here.
    Short {
        listed: u64,
    },
    Failed {
        jitter: Jitter,
    },
}

/// A random number in 0..1, in thousandths, that whoever drives the machine brings along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter(pub u16);

impl Jitter {
    pub(super) fn share(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

/// What metrics tell of a tenant upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub upstream: u64,
    /// Series upstream that no listing names.
    pub residue: i64,
    /// Series upstream beyond ours and the residue; below zero, ours beyond upstream's.
    pub drift: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Loading,
    Settled,
    /// Somebody works out which of our series went.
    Dropping {
        fell: bool,
    },
}

/// Whether the next poll measures the residue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    No,
    /// Whatever the difference is after a listing.
    AfterListing {
        at_ns: i64,
        least: i64,
    },
    /// A drop takes series without samples along, so the residue may have shrunk and no more.
    AfterDrop {
        at_ns: i64,
    },
}

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct TenantWatch {
    phase: Phase,
    figures: Figures,
    measure: Measure,
    drift_since_ns: Option<i64>,
    /// When the last poll that this tenant was judged by was sent.
    seen: Option<Now>,
    /// When the last listing was complete.
    listed: Option<Now>,
    /// Listed series have no times, so the tenant is listed again after the next drop.
    times_unknown: bool,
    wanted: Option<Reason>,
    listing: Option<Range>,
    /// Start of the last listing by its reason: those that something has happened for have an
    /// allowance of their own.
    regular_at_ns: Option<i64>,
    extra_at_ns: Option<i64>,
    failures: u32,
    retry_at_ns: i64,
    empties: u32,
    empty_since_ns: i64,
    /// The last listing was empty against the upstream's count, and was believed at length.
    is_doubted: bool,
    /// What a listing named that was shorter than expected; a second one is believed.
    short: Option<u64>,
    due_since_ns: Option<i64>,
}

impl TenantWatch {
    /// A tenant that the upstream has and whose series we do not know.
    pub fn loading() -> Self {
        Self { phase: Phase::Loading, wanted: Some(Reason::Load), ..Self::settled() }
    }

    /// A tenant that came while we were watching.
    pub fn settled() -> Self {
        Self {
            phase: Phase::Settled,
            figures: Figures::default(),
            measure: Measure::No,
            drift_since_ns: None,
            seen: None,
            listed: None,
            times_unknown: false,
            wanted: None,
            listing: None,
            regular_at_ns: None,
            extra_at_ns: None,
            failures: 0,
            retry_at_ns: i64::MIN,
            empties: 0,
            empty_since_ns: 0,
            is_doubted: false,
            short: None,
            due_since_ns: None,
        }
    }

    pub fn figures(&self) -> Figures {
        self.figures
    }

    pub fn is_loading(&self) -> bool {
        self.phase == Phase::Loading
    }

    pub fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    pub fn wants_listing(&self) -> bool {
        self.wanted.is_some()
    }

    /// A drop is due by Cortex's rule, and has not been for too long.
    pub fn awaits_drop(&self, pace: &Pace, now_ns: i64) -> bool {
        self.due_since_ns.is_some_and(|since_ns| now_ns - since_ns < nanos(pace.due))
    }

    /// Judges one poll, sent at `sent`. `returned`: the one before it failed.
    pub fn see(
        &mut self,
        sight: &Sight,
        sent: Now,
        returned: bool,
        pace: &Pace,
        now: Now,
    ) -> Option<Order> {
        let before = self.figures.upstream;
        self.figures.upstream = sight.upstream;
        self.note_due(sight, now);
        if self.listing.is_some() || matches!(self.phase, Phase::Dropping { .. }) {
            // What is under way changes our count; the next poll judges.
            return None;
        }
        let last = self.seen.replace(sent);
        if sight.upstream == 0 {
            return Some(self.see_nothing(sight, sent));
        }
        if self.is_loading() {
            return None;
        }
        let gap = Gap::of(sight);
        let settles = self.measure != Measure::No;
        if settles && !self.measure(gap, sent) {
            return None;
        }
        let drift = gap.beyond(self.figures.residue);
        self.figures.drift = drift;
        self.judge_drift(sight, settles, returned, pace, now);
        if drift >= 0 || returned || settles {
            return None;
        }
        let fell = sight.upstream < before;
        let cut = match sight.cut_due_ms {
            Some(before_ms) if fell || self.awaits_drop(pace, now.steady_ns) => {
                Some(self.cut(before_ms))
            }
            _ => None,
        };
        let emptied = last.filter(|_| fell).map(|since| Way::Emptied { since });
        if cut.is_none() && emptied.is_none() {
            return None;
        }
        self.phase = Phase::Dropping { fell };
        Some(Order::Drop { ways: [cut, emptied], at_least: self.tracked_upstream() })
    }

    /// What became of the drop that was ordered.
    pub fn dropped(&mut self, way: Option<Way>, now: Now) {
        let Phase::Dropping { fell } = self.phase else {
            return;
        };
        self.phase = Phase::Settled;
        match way {
            Some(way) => {
                self.measure = Measure::AfterDrop { at_ns: now.steady_ns };
                self.drift_since_ns = None;
                self.due_since_ns = None;
                if self.times_unknown && matches!(way, Way::Cut { .. }) {
                    self.times_unknown = false;
                    self.want(Reason::AfterDrop);
                }
            }
            None if fell => self.want(Reason::AfterDrop),
            None => {}
        }
    }

    /// The listing to make now, if one is wanted and allowed.
    pub fn next_listing(&mut self, pace: &Pace, now_ns: i64) -> Option<Asked> {
        let reason = self.wanted?;
        if self.listing.is_some()
            || matches!(self.phase, Phase::Dropping { .. })
            || now_ns < self.retry_at_ns
        {
            return None;
        }
        let is_retry = self.failures > 0 || self.empties > 0 || self.short.is_some();
        if !is_retry && !self.spend(reason, pace, now_ns) {
            return None;
        }
        let range = if self.empties % 2 == 1 { Range::Recent } else { Range::Head };
        self.listing = Some(range);
        let expected = self.tracked_upstream();
        let expected = expected - expected / SHORT_SHARE;
        let sweep_from = self.short.map_or(expected, |short| expected.min(short)).max(1);
        Some(Asked { range, reason, sweep_from })
    }

    /// How the listing ended.
    pub fn listed(&mut self, outcome: Outcome, pace: &Pace, now: Now) -> Option<Order> {
        let range = self.listing.take()?;
        match outcome {
            Outcome::Merged { entered, .. } => self.complete(range, entered > 0, now),
            Outcome::Short { listed: 0 } => self.note_empty(range, pace, now),
            Outcome::Short { listed } => {
                // The next one is believed if it names as many.
                if self.short.replace(listed).is_some() {
                    self.wait(Jitter::default(), pace, now);
                }
                None
            }
            Outcome::Failed { jitter } => {
                self.wait(jitter, pace, now);
                None
            }
        }
    }

    fn complete(&mut self, range: Range, times_unknown: bool, now: Now) -> Option<Order> {
        let was_loading = self.is_loading();
        self.phase = Phase::Settled;
        self.times_unknown |= times_unknown;
        // Only what reaches into blocks names series that the head does not hold.
        let least = if range == Range::Head { 0 } else { i64::MIN };
        self.measure = Measure::AfterListing { at_ns: now.steady_ns, least };
        self.listed = Some(now);
        self.wanted = None;
        self.drift_since_ns = None;
        self.is_doubted = false;
        self.failures = 0;
        self.empties = 0;
        self.short = None;
        was_loading.then_some(Order::EndLoading)
    }

    fn wait(&mut self, jitter: Jitter, pace: &Pace, now: Now) {
        self.failures = self.failures.saturating_add(1);
        let longest = if self.is_loading() { pace.retry_max } else { pace.relist };
        let wait_ns = backoff(self.failures, pace.retry, longest, jitter.share());
        self.retry_at_ns = now.steady_ns.saturating_add(wait_ns);
    }

    /// An empty listing is no evidence while the upstream counts series: it also answers so for a
    /// tenant that is closing, or when it takes the range by the letter. Asked often enough and
    /// for long, what it counts are series without samples.
    fn note_empty(&mut self, range: Range, pace: &Pace, now: Now) -> Option<Order> {
        if self.empties == 0 {
            self.empty_since_ns = now.steady_ns;
        }
        self.empties += 1;
        if range == Range::Head {
            // The other range is asked for at once.
            return None;
        }
        let lasted = now.steady_ns - self.empty_since_ns >= nanos(pace.empty);
        let is_gone = self.figures.upstream == 0;
        if is_gone || (lasted && self.empties >= 2 * EMPTY_LISTINGS) {
            let order = self.complete(range, false, now);
            // Listings of nothing are cheap, so the next one is due as soon as it is allowed.
            self.is_doubted = !is_gone;
            return order;
        }
        let wait_ns = backoff(self.empties / 2, pace.retry, pace.retry_max, 0.0);
        self.retry_at_ns = now.steady_ns.saturating_add(wait_ns);
        None
    }

    fn see_nothing(&mut self, sight: &Sight, sent: Now) -> Order {
        let was_loading = self.is_loading();
        let figures = Figures { drift: -(sight.known_after as i64), ..Figures::default() };
        *self = Self { seen: Some(sent), figures, ..Self::settled() };
        if was_loading {
            return Order::EndLoading;
        }
        Order::Forget { since: sent, whole: !sight.is_upstream }
    }

    /// Takes the residue from a poll that was sent after the change; `false` for an older one,
    /// which says nothing about what the change left.
    fn measure(&mut self, gap: Gap, sent: Now) -> bool {
        let residue = self.figures.residue;
        match self.measure {
            Measure::AfterListing { at_ns, least } if sent.steady_ns >= at_ns => {
                self.figures.residue = gap.nearest_zero().max(least);
            }
            Measure::AfterDrop { at_ns } if sent.steady_ns >= at_ns => {
                self.figures.residue = gap.nearest_zero().clamp(residue.min(0), residue.max(0));
            }
            Measure::AfterListing { .. } | Measure::AfterDrop { .. } | Measure::No => return false,
        }
        self.measure = Measure::No;
        true
    }

    fn judge_drift(&mut self, sight: &Sight, settles: bool, returned: bool, pace: &Pace, now: Now) {
        let drift = self.figures.drift;
        if sight.labels_unknown {
            self.want(Reason::Labels);
        } else if self.is_doubted {
            self.want(Reason::Drift);
        } else if drift != 0 && returned {
            self.want(Reason::Returned);
        } else if drift != 0 && settles {
            self.want(Reason::AfterDrop);
        }
        // Series that nobody confirms are a difference too: they may hide one.
        let open = drift.unsigned_abs().max(sight.pending);
        if open == 0 {
            self.drift_since_ns = None;
            if self.wanted == Some(Reason::Drift) && !self.is_doubted {
                self.wanted = None;
            }
            return;
        }
        let since_ns = *self.drift_since_ns.get_or_insert(now.steady_ns);
        let is_small = open.saturating_mul(DRIFT_SHARE) <= sight.upstream;
        let is_cheap = sight.upstream <= CHEAP_LISTING_SERIES;
        let lasting = if is_small && !is_cheap { pace.small_drift } else { pace.drift };
        if now.steady_ns - since_ns >= nanos(lasting) {
            self.want(Reason::Drift);
        }
    }

    fn note_due(&mut self, sight: &Sight, now: Now) {
        match sight.cut_due_ms {
            None => self.due_since_ns = None,
            Some(_) => {
                self.due_since_ns.get_or_insert(now.steady_ns);
            }
        }
    }

    /// A reason that allows more is not replaced by one that allows less.
    fn want(&mut self, reason: Reason) {
        match self.wanted {
            Some(wanted) if is_extra(wanted) || !is_extra(reason) => {}
            _ => self.wanted = Some(reason),
        }
    }

    /// Takes a listing out of its allowance; `false` when there is none left yet.
    fn spend(&mut self, reason: Reason, pace: &Pace, now_ns: i64) -> bool {
        let is_over =
            |at_ns: Option<i64>| at_ns.is_none_or(|at_ns| now_ns - at_ns >= nanos(pace.relist));
        if reason == Reason::Load {
            return true;
        }
        if is_over(self.regular_at_ns) && is_over(self.listed.map(|at| at.steady_ns)) {
            self.regular_at_ns = Some(now_ns);
            return true;
        }
        if is_extra(reason) && is_over(self.extra_at_ns) {
            self.extra_at_ns = Some(now_ns);
            return true;
        }
        false
    }

    /// Series upstream that a listing would name.
    fn tracked_upstream(&self) -> u64 {
        self.figures.upstream.saturating_sub(u64::try_from(self.figures.residue).unwrap_or(0))
    }

    fn cut(&self, before_ms: i64) -> Way {
        let unknown_until_ms = self.listed.map_or(i64::MAX, |listed| listed.unix_ms);
        Way::Cut { before_ms, unknown_until_ms }
    }
}

/// Something has happened that makes a listing worth more than its regular turn.
fn is_extra(reason: Reason) -> bool {
    matches!(reason, Reason::Load | Reason::Returned | Reason::AfterDrop)
}

/// Bounds of what the upstream has beyond ours.
#[derive(Clone, Copy, Debug)]
struct Gap {
    least: i64,
    most: i64,
}

impl Gap {
    fn of(sight: &Sight) -> Self {
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let upstream = count(sight.upstream);
        let (a, b) = (upstream - count(sight.known_after), upstream - count(sight.known_before));
        Self { least: a.min(b), most: a.max(b) }
    }

    fn nearest_zero(self) -> i64 {
        0.clamp(self.least, self.most)
    }

    /// How far `residue` lies outside.
    fn beyond(self, residue: i64) -> i64 {
        residue.clamp(self.least, self.most) - residue
    }
}
