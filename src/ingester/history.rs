//! How a tenant's series went in the last hour, and when they meet their limit if they go on so.
//!
//! Each tenant keeps a few samples of the count that its limit acts on. They lie close together at
//! first, so that a trend can be told two minutes after a start. Whenever they fill their room,
//! every second one goes and their distance doubles, until they cover the hour; from then on the
//! oldest goes.
//!
//! What must hold: a count that moves although nobody writes (a recount, a head that drops series)
//! is a *break*; no slope is taken across it, since it would be nobody's growth. The pass thread
//! writes and pages read; a push never comes here.

use std::fmt;
use std::time::Duration;

use crate::clock::Now;
use crate::sync::{Mutex, MutexGuard};

/// Samples kept: twelve distances, which at the widest are 64 minutes. With their times they are
/// 104 of the 120 bytes that a tenant's history takes.
pub const SAMPLES_MAX: usize = 13;
/// Distance of the first samples: three of them are taken between a tenant's settling and the end
/// of its second minute.
pub const SPACING: Duration = Duration::from_secs(20);
/// Distance after the last doubling: twelve of these cover the last hour.
const SPACING_S_MAX: u16 = 16 * SPACING.as_secs() as u16;
/// From its first look on a tenant's series come in scrape by scrape for as long as the longest
/// usual interval. That is no growth.
const SETTLING_S: u32 = 60;
/// A slope over less time would be noise.
const SLOPE_S_MIN: u32 = 40;
/// Further than this nobody plans by a slope of an hour.
const FORESIGHT_S: u64 = 30 * 24 * 3600;
/// A fall of a smaller part of the count, over all the time looked at, is coming and going.
const FALL_SHARE_MIN: f64 = 0.001;

/// A count at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// By the steady clock.
    pub at_s: u32,
    pub count: u32,
}

/// How a count moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// Series per second, fitted by least squares.
    pub per_s: f64,
    /// The time that it was seen over.
    pub over_s: u32,
}

/// What a page draws.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trend {
    /// Oldest first; the last is the count of now.
    pub samples: Vec<Sample>,
    /// `None` while it is not known yet.
    pub slope: Option<Slope>,
}

/// When the limit is met at the present slope. In the order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToLimit {
    Reached,
    /// In so many seconds.
    In(u64),
    Steady,
    Falling,
    /// There is no slope yet.
    Unknown,
    /// There is no limit to meet.
    Unlimited,
}

/// The samples of one tenant.
#[derive(Default)]
pub struct History(Mutex<Samples>);

struct Samples {
    samples: [Sample; SAMPLES_MAX],
    /// When the tenant was first looked at; 0 is never, as the steady clock begins at 1.
    first_look_s: u32,
    /// Least time between two samples.
    spacing_s: u16,
    len: u8,
    /// Index of the first sample since the last break.
    since: u8,
}

impl History {
    /// Takes a sample if one is due.
    pub fn look(&self, now: Now, count: u64) {
        self.samples().look(now.steady_s(), clamped(count));
    }

    /// The count has just become this one without anybody's writes.
    pub fn broke(&self, now: Now, count: u64) {
        self.samples().broke(now.steady_s(), clamped(count));
    }

    /// How the count moves, `count` being that of now.
    pub fn slope(&self, now: Now, count: u64) -> Option<Slope> {
        self.samples().slope(now.steady_s(), clamped(count))
    }

    /// The samples with that of now, and their slope.
    pub fn trend(&self, now: Now, count: u64) -> Trend {
        let (now_s, count) = (now.steady_s(), clamped(count));
        let samples = self.samples();
        let shown = samples.with_now(0, now_s, count).collect();
        Trend { samples: shown, slope: samples.slope(now_s, count) }
    }

    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.0.lock().expect("no panic under this lock")
    }
}

impl Samples {
    fn look(&mut self, now_s: u32, count: u32) {
        if self.first_look_s == 0 {
            self.first_look_s = now_s;
        }
        if now_s.saturating_sub(self.first_look_s) < SETTLING_S {
            return;
        }
        let age_s = self.last().map(|last| now_s.saturating_sub(last.at_s));
        if age_s.is_none_or(|age_s| age_s >= u32::from(self.spacing_s)) {
            self.push(Sample { at_s: now_s, count });
        }
    }

    fn broke(&mut self, now_s: u32, count: u32) {
        // Before the first sample there is nothing to tell apart.
        let Some(last) = self.last() else { return };
        let is_alone = self.since + 1 == self.len;
        if is_alone && now_s.saturating_sub(last.at_s) < u32::from(self.spacing_s) {
            // Breaks in a row, as members join one after the other, need one sample.
            self.len -= 1;
        }
        self.push(Sample { at_s: now_s, count });
        self.since = self.len - 1;
    }

    fn push(&mut self, sample: Sample) {
        if usize::from(self.len) == SAMPLES_MAX {
            self.make_room();
        }
        self.samples[usize::from(self.len)] = sample;
        self.len += 1;
    }

    fn make_room(&mut self) {
        if self.spacing_s < SPACING_S_MAX {
            // The first and the last of an odd number stay.
            self.spacing_s *= 2;
            self.len = self.len.div_ceil(2);
            for at in 1..usize::from(self.len) {
                self.samples[at] = self.samples[2 * at];
            }
            self.since = self.since.div_ceil(2);
        } else {
            self.samples.copy_within(1.., 0);
            self.len -= 1;
            self.since = self.since.saturating_sub(1);
        }
    }

    fn last(&self) -> Option<Sample> {
        self.kept().last().copied()
    }

    fn kept(&self) -> &[Sample] {
        &self.samples[..usize::from(self.len)]
    }

    /// The samples from an index on, and the one of now behind them.
    fn with_now(&self, from: u8, now_s: u32, count: u32) -> impl Iterator<Item = Sample> + Clone {
        let kept = self.kept().get(usize::from(from)..).unwrap_or_default();
        // One that was taken this second is the same but for pushes since.
        let before = kept.iter().copied().filter(move |sample| sample.at_s < now_s);
        before.chain([Sample { at_s: now_s, count }])
    }

    fn slope(&self, now_s: u32, count: u32) -> Option<Slope> {
        let first = self.kept().get(usize::from(self.since))?;
        let over_s = now_s.saturating_sub(first.at_s);
        if over_s < SLOPE_S_MIN {
            return None;
        }
        let points = self.with_now(self.since, now_s, count);
        let per_s = fitted(points.map(|sample| {
            // Small numbers keep their digits.
            let passed_s = f64::from(sample.at_s - first.at_s);
            (passed_s, f64::from(sample.count) - f64::from(first.count))
        }));
        Some(Slope { per_s, over_s })
    }
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            samples: [Sample::default(); SAMPLES_MAX],
            first_look_s: 0,
            spacing_s: SPACING.as_secs() as u16,
            len: 0,
            since: 0,
        }
    }
}

impl ToLimit {
    /// `headroom` is what may still come, `None` without a limit; `used` is the count.
    pub fn new(headroom: Option<i64>, used: u64, slope: Option<Slope>) -> Self {
        let Some(headroom) = headroom else { return Self::Unlimited };
        if headroom <= 0 {
            return Self::Reached;
        }
        let Some(slope) = slope else { return Self::Unknown };
        let change = slope.per_s * f64::from(slope.over_s);
        if change.abs() < 1.0 || (change < 0.0 && -change < used as f64 * FALL_SHARE_MIN) {
            return Self::Steady;
        }
        if change < 0.0 {
            return Self::Falling;
        }
        // A float that is too large becomes the largest number there is.
        Self::In((headroom as f64 / slope.per_s) as u64)
    }

    /// Seconds until the limit is met, where that can be told.
    pub fn seconds(self) -> Option<u64> {
        match self {
            Self::Reached => Some(0),
            Self::In(seconds) => Some(seconds),
            _ => None,
        }
    }

    /// One word for programs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::In(_) => "growing",
            Self::Steady => "steady",
            Self::Falling => "falling",
            Self::Unknown => "unknown",
            Self::Unlimited => "unlimited",
        }
    }
}

impl fmt::Display for ToLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Reached => f.write_str("reached"),
            Self::In(seconds) if seconds > FORESIGHT_S => f.write_str("in more than 30 days"),
            Self::In(seconds) => write!(f, "in {}", Span(seconds)),
            Self::Steady => f.write_str("steady"),
            Self::Falling => f.write_str("falling"),
            Self::Unknown => f.write_str("not known yet"),
            Self::Unlimited => f.write_str("no limit"),
        }
    }
}

/// Seconds as people say them, in at most two units.
#[derive(Clone, Copy, Debug)]
pub struct Span(pub u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(seconds) = *self;
        let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
        let parts = match seconds {
            0..60 => [(seconds, "s"), (0, "")],
            60..3600 => [(minutes, "min"), (0, "")],
            3600..172_800 => [(hours, "h"), (minutes % 60, "min")],
            _ => [(days, "d"), (hours % 24, "h")],
        };
        let [(most, unit), (rest, rest_unit)] = parts;
        write!(f, "{most} {unit}")?;
        if rest > 0 {
            write!(f, " {rest} {rest_unit}")?;
        }
        Ok(())
    }
}

/// A count beyond four thousand million is that.
fn clamped(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Slope of the line that fits the points best; 0 where they have no extent.
fn fitted(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let (mut n, mut sum_x, mut sum_y) = (0.0, 0.0, 0.0);
    for (x, y) in points.clone() {
        n += 1.0;
        sum_x += x;
        sum_y += y;
    }
    let (mean_x, mean_y) = (sum_x / n, sum_y / n);
    let (mut over, mut under) = (0.0, 0.0);
    for (x, y) in points {
        over += (x - mean_x) * (y - mean_y);
        under += (x - mean_x) * (x - mean_x);
    }
    if under > 0.0 { over / under } else { 0.0 }
}

#[cfg(all(test, not(feature = "model")))]
mod tests;
