//! Log lines of one kind of event, so that a flood of it does not fill the log.

use super::bucket::Bucket;

/// Lines of one kind per second in the long run, and at once.
const LINES_PER_SEC: f64 = 1.0;
const LINES_BURST: u64 = 10;

/// A bucket of lines, and the events that got none.
#[derive(Debug)]
pub struct Lines {
    bucket: Bucket,
    untold: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { bucket: Bucket::new(LINES_PER_SEC, LINES_BURST), untold: 0 }
    }
}

impl Lines {
    /// Takes a line for an event, and gives the number of those without one since the last.
    pub fn take(&mut self, now_ns: i64) -> Option<u64> {
        if self.bucket.take(1, now_ns) {
            return Some(std::mem::take(&mut self.untold));
        }
        self.untold += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_beyond_a_burst_are_counted_for_the_next_line() {
        let mut lines = Lines::default();
        let at = |s: i64| s * 1_000_000_000;
        let told = (0..1000).filter(|_| lines.take(at(1)).is_some()).count();
        assert_eq!(told, 10);
        assert_eq!(lines.take(at(2)), Some(990));
        assert_eq!(lines.take(at(2)), None);
        assert_eq!(lines.take(at(3)), Some(1));
    }
}
