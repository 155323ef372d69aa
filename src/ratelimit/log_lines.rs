//! How many lines of one kind go to the log.
//!
//! Whoever can be refused can be refused a thousand times a second, with texts of its own
//! choosing. So each kind of line has a bucket, and a line says how many of its kind were not
//! told before it; no text in it is longer than [`TEXT_BYTES_MAX`].

use super::Bucket;

/// Lines of one kind per second in the long run, and at once.
const LINES_PER_SEC: f64 = 1.0;
const LINES_BURST: u64 = 10;

/// Longest text of a line, in bytes: a sender decides how long its labels and names are.
const TEXT_BYTES_MAX: usize = 2048;

/// The lines of one kind.
#[derive(Debug)]
pub struct LogLines {
    bucket: Bucket,
    untold: u64,
}

impl Default for LogLines {
    fn default() -> Self {
        Self { bucket: Bucket::new(LINES_PER_SEC, LINES_BURST), untold: 0 }
    }
}

impl LogLines {
    /// Takes a line if there is one, and gives the number of those not told since the last one.
    pub fn take(&mut self, now_ns: i64) -> Option<u64> {
        if self.bucket.take(1, now_ns) {
            return Some(std::mem::take(&mut self.untold));
        }
        self.untold += 1;
        None
    }

    /// As much of a text as goes to the log.
    pub fn cut(text: &str) -> &str {
        &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_long_texts_are_cut() {
        const SEC: i64 = 1_000_000_000;
        let mut lines = LogLines::default();
        assert_eq!((0..1000).filter(|_| lines.take(SEC).is_some()).count(), 10);
        assert_eq!(lines.take(2 * SEC), Some(990));
        assert_eq!(lines.take(2 * SEC), None);
        assert_eq!(LogLines::cut("short"), "short");
        assert_eq!(LogLines::cut(&"ä".repeat(5000)).len(), TEXT_BYTES_MAX);
        assert_eq!(LogLines::cut(&format!("x{}", "ä".repeat(5000))).len(), TEXT_BYTES_MAX - 1);
    }
}
