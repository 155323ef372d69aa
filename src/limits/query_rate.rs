//! A rate of queries: a number, or a share of what the tenant's queriers can do.

use serde::{Serialize, Serializer};

/// Largest share: everything.
const PERCENT_MAX: f64 = 100.0;

/// What each client of a tenant may ask, as it is written: `5` or `5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueryRate {
    /// 0 is no limit, and so is the largest double.
    PerSecond(f64),
    /// Of the capacity, in percent; more than 0 and at most 100.
    Share(f64),
}

impl QueryRate {
    /// What [`parse_share`](Self::parse_share) takes, for errors.
    pub(super) const EXPECTED: &str = "a finite number of 0 or more, nor a share of more than 0% \
                                       and at most 100%";

    /// Reads a share, which is a number with `%` behind it.
    pub(super) fn parse_share(text: &str) -> Option<Self> {
        let number = text.trim().strip_suffix('%')?.trim_end();
        // Words that a double may be called are none of ours.
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let percent: f64 = number.parse().ok().filter(|_| is_plain)?;
        (percent > 0.0 && percent <= PERCENT_MAX).then_some(Self::Share(percent))
    }

    /// Queries per second where all of it is `capacity`; `None` for a share of what is not known.
    pub fn per_second(self, capacity: f64) -> Option<f64> {
        match self {
            Self::PerSecond(rate) => Some(rate),
            Self::Share(percent) => (capacity > 0.0).then_some(capacity * percent / PERCENT_MAX),
        }
    }
}

impl Default for QueryRate {
    fn default() -> Self {
        Self::PerSecond(0.0)
    }
}

/// As it is read.
impl Serialize for QueryRate {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::PerSecond(rate) => out.serialize_f64(*rate),
            Self::Share(percent) => out.serialize_str(&format!("{percent}%")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_of_percent() {
        for (text, expect) in [("5%", 5.0), ("0.25%", 0.25), ("100%", 100.0), (" 7 % ", 7.0)] {
            assert_eq!(QueryRate::parse_share(text), Some(QueryRate::Share(expect)), "{text}");
        }
        for wrong in [
            "", "%", "5", "0%", "100.1%", "-5%", "+5%", "5%%", "5 5%", "inf%", "NaN%", "1e1%", "é%",
        ] {
            assert_eq!(QueryRate::parse_share(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for percent in [5.0, 0.1, 33.333, 1.0 / 3.0, 1e-9, 100.0] {
            let share = QueryRate::Share(percent);
            let text = serde_json::to_value(share).expect("a text");
            assert_eq!(QueryRate::parse_share(text.as_str().expect("a text")), Some(share));
        }
        let number = serde_json::to_value(QueryRate::PerSecond(2.5)).expect("a number");
        assert_eq!(number, serde_json::json!(2.5));
    }

    #[test]
    fn a_share_of_nothing_known_is_nothing_known() {
        assert_eq!(QueryRate::Share(5.0).per_second(200.0), Some(10.0));
        assert_eq!(QueryRate::Share(5.0).per_second(0.0), None);
        assert_eq!(QueryRate::PerSecond(3.0).per_second(0.0), Some(3.0));
    }
}
