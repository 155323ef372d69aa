//! Whether what arrives agrees with what the ring calls ours.
//!
//! Series that the ring does not assign to us mean that our settings and the distributors'
//! differ. Then the ring's word on our keys is not used, for a while, and tried again.

use std::time::Duration;

/// A ring has been stable this long before series that are not ours are held against it.
const MISMATCH_STABLE: Duration = Duration::from_secs(300);
/// Share of created series that may be not ours; distributors and we may see a change of the
/// ring some seconds apart.
const MISMATCH_SHARE: f64 = 0.01;
/// How long the ring's word is distrusted before it is tried again.
const MISMATCH_RETRY: Duration = Duration::from_secs(900);

/// Evidence on whether the ring's word on our keys is right.
///
/// It is gathered from the second look after a change on: distributors learn of a ring or of a
/// shard size some seconds before or after us, and that proves nothing.
#[derive(Default)]
pub(super) struct Mismatch {
    generations: Generations,
    is_settled: bool,
    since_ns: i64,
    created: u64,
    not_owned: u64,
    pub(super) distrusted_at_ns: Option<i64>,
}

/// What decides on what is ours, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Generations {
    pub(super) ring: u64,
    pub(super) limits: u64,
}

impl Mismatch {
    /// Weighs one cycle's totals; `true` when distrust begins.
    pub(super) fn judge(
        &mut self,
        of: Generations,
        created: u64,
        not_owned: u64,
        now_ns: i64,
    ) -> bool {
        let passed = |since_ns: i64, time: Duration| now_ns - since_ns >= time.as_nanos() as i64;
        let changed = self.generations != of;
        let begin = |is_settled| Self {
            generations: of,
            is_settled,
            since_ns: now_ns,
            created,
            not_owned,
            distrusted_at_ns: None,
        };
        if changed {
            *self = begin(false);
            return false;
        }
        if let Some(at_ns) = self.distrusted_at_ns {
            if passed(at_ns, MISMATCH_RETRY) {
                *self = begin(true);
            }
            return false;
        }
        // Totals fall when a tenant goes; then the evidence begins anew.
        if !self.is_settled || created < self.created || not_owned < self.not_owned {
            *self = begin(true);
            return false;
        }
        let (new, strange) = (created - self.created, not_owned - self.not_owned);
        if !passed(self.since_ns, MISMATCH_STABLE) {
            return false;
        }
        self.since_ns = now_ns;
        self.created = created;
        self.not_owned = not_owned;
        if strange as f64 <= new as f64 * MISMATCH_SHARE {
            return false;
        }
        self.distrusted_at_ns = Some(now_ns);
        true
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests;
