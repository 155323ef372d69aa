//! When an entry was touched last, what it is and whether it counts as active: one word.
//!
//! Invariant: an active entry's tick only moves forward.

use super::batch::Kind;

/// A coarse point in time, only ever compared: seconds since some epoch of the process.
///
/// 29 bits are kept, 17 years of seconds; a later tick counts as the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u32);

impl Tick {
    pub const MAX: Self = Self(TICK_BITS);

    pub const fn new(value: u32) -> Self {
        if value < TICK_BITS { Self(value) } else { Self::MAX }
    }

    pub const fn get(self) -> u32 {
        self.0
    }
}

const ACTIVE: u32 = 1 << 31;
const NATIVE_HISTOGRAM: u32 = 1 << 30;
const PENDING: u32 = 1 << 29;
const TICK_BITS: u32 = PENDING - 1;

/// When an entry was touched last, and three flags in the bits that no tick needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Last(u32);

impl Last {
    pub(super) fn new(tick: Tick, kind: Kind, flags: Flags) -> Self {
        let active = if flags.active { ACTIVE } else { 0 };
        let pending = if flags.pending { PENDING } else { 0 };
        Self(tick.0 | active | pending).of_kind(kind)
    }

    pub(super) fn tick(self) -> Tick {
        Tick(self.0 & TICK_BITS)
    }

    pub(super) fn active(self) -> bool {
        self.0 & ACTIVE != 0
    }

    pub(super) fn pending(self) -> bool {
        self.0 & PENDING != 0
    }

    pub(super) fn kind(self) -> Kind {
        if self.0 & NATIVE_HISTOGRAM != 0 { Kind::NativeHistogram } else { Kind::Float }
    }

    pub(super) fn of_kind(self, kind: Kind) -> Self {
        match kind {
            Kind::Float => Self(self.0 & !NATIVE_HISTOGRAM),
            Kind::NativeHistogram => Self(self.0 | NATIVE_HISTOGRAM),
        }
    }

    pub(super) fn idle(self) -> Self {
        Self(self.0 & !ACTIVE)
    }

    pub(super) fn confirmed(self) -> Self {
        Self(self.0 & !PENDING)
    }

    /// An active entry only moves forward. An idle one starts anew at `now`, even an earlier one:
    /// Cortex has forgotten it by then, so for it the series is new.
    pub(super) fn touched(self, now: Tick) -> Self {
        let tick = if self.active() { self.tick().max(now) } else { now };
        Self(self.0 & !TICK_BITS | ACTIVE | tick.0)
    }
}

impl Last {
    /// 1 for a native histogram, else 0.
    #[inline]
    pub(super) fn histogram_bit(self) -> u32 {
        (self.0 >> 30) & 1
    }

    /// 1 when it is active and was touched before `idle_before`, else 0.
    #[inline]
    pub(super) fn is_before(self, idle_before: Tick) -> u32 {
        u32::from((self.0 & TICK_BITS) < idle_before.0) & (self.0 >> 31)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Flags {
    pub(super) active: bool,
    pub(super) pending: bool,
}

/// Entries that became active, or idle: of any kind, and of native histograms among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity {
    pub(super) all: u64,
    pub(super) native_histogram: u64,
}

impl Activity {
    pub(super) fn note(&mut self, kind: Kind) {
        self.all += 1;
        self.native_histogram += u64::from(kind == Kind::NativeHistogram);
    }
}

/// Which sample decides whether a series is a native histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KindRule {
    /// The latest one.
    #[default]
    Latest,
    /// The first one after the series became active: Cortex's counting.
    AtWake,
}
