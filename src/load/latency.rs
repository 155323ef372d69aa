//! How long requests took, in a fixed amount of memory.

/// Parts that each power of two is cut into, as a power of two: an answer is at most 1/32 too
/// large.
const PART_BITS: u32 = 5;
const PARTS: usize = 1 << PART_BITS;
/// For each power of two from 2^5 on, and one for all below; up to 2^63 µs.
const BUCKETS: usize = PARTS * (64 - PART_BITS as usize + 1);

/// Counts of times in microseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Vec<u64>,
    total: u64,
    max_us: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max_us: 0 }
    }
}

impl Latencies {
    pub fn add(&mut self, us: u64) {
        self.counts[bucket(us)] += 1;
        self.total += 1;
        self.max_us = self.max_us.max(us);
    }

    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max_us = self.max_us.max(other.max_us);
    }

    /// The time that this part of all took no longer than, rounded up by at most 1/32; `None`
    /// before the first. `part` is in 0..=1.
    pub fn quantile_us(&self, part: f64) -> Option<u64> {
        if self.total == 0 {
            return None;
        }
        let rank = (part * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        Some(at.map_or(self.max_us, |at| highest(at).min(self.max_us)))
    }

    pub fn max_us(&self) -> Option<u64> {
        (self.total > 0).then_some(self.max_us)
    }
}

/// The first `PARTS` numbers have a bucket each; then each power of two has as many.
fn bucket(us: u64) -> usize {
    let Some(shift) = us.checked_ilog2().and_then(|log| log.checked_sub(PART_BITS)) else {
        return us as usize;
    };
    let part = (us >> shift) as usize - PARTS;
    PARTS * (shift as usize + 1) + part
}

/// The largest time in a bucket.
fn highest(bucket: usize) -> u64 {
    let (group, part) = (bucket / PARTS, (bucket % PARTS) as u64);
    match group {
        0 => part,
        group => {
            let shift = group - 1;
            let lowest = (PARTS as u64 + part) << shift;
            lowest + ((1 << shift) - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_times_are_exact_and_large_ones_nearly() {
        let mut latencies = Latencies::default();
        assert_eq!((latencies.quantile_us(0.5), latencies.max_us()), (None, None));
        for us in 1..=1000 {
            latencies.add(us);
        }
        let median = latencies.quantile_us(0.5).expect("some");
        assert!((500..=515).contains(&median), "{median}");
        assert_eq!(latencies.quantile_us(0.0), Some(1));
        assert_eq!(latencies.quantile_us(0.01), Some(10));
        assert_eq!(latencies.quantile_us(1.0), Some(1000));
        let mut both = Latencies::default();
        both.add(5_000_000);
        both.merge(&latencies);
        assert_eq!(both.max_us(), Some(5_000_000));
        assert_eq!(both.quantile_us(1.0), Some(5_000_000));
        assert!(both.quantile_us(0.999).expect("some") <= 1031);
    }

    proptest! {
        #[test]
        fn a_bucket_holds_what_goes_into_it(us in any::<u64>()) {
            let at = bucket(us);
            prop_assert!(at < BUCKETS);
            prop_assert!(us <= highest(at));
            prop_assert!(highest(at) - us <= us / PARTS as u64);
            prop_assert!(at == 0 || highest(at - 1) < us);
        }
    }
}
