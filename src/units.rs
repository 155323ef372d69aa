//! What people write in configuration: durations in Go's form, and secrets.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A span of time as Go writes it (`1h30m0s`, `250ms`), kept in milliseconds.
///
/// Read with Go's units (`ns us µs ms s m h`) and Prometheus' days, weeks and years (`d w y`);
/// a bare `0` is zero. Parts finer than a millisecond are rounded down.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Millis(pub u64);

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no duration; write a number with a unit, such as 10s, 1h30m or 250ms")]
pub struct MillisError {
    text: String,
}

/// A text that is read and never shown: pages, logs and `Debug` get [`Secret::MASK`] in its place.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

const UNITS: [(&str, f64); 10] = [
    ("ns", 1e-6),
    ("us", 1e-3),
    ("µs", 1e-3),
    ("ms", 1.0),
    ("s", 1e3),
    ("m", 6e4),
    ("h", 3.6e6),
    ("d", 8.64e7),
    ("w", 6.048e8),
    ("y", 3.1536e10),
];

impl Millis {
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1000)
    }

    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    pub fn parse(text: &str) -> Result<Self, MillisError> {
        let error = || MillisError { text: text.to_owned() };
        if text == "0" {
            return Ok(Self(0));
        }
        let mut total_ms = 0.0;
        let mut rest = text;
        while !rest.is_empty() {
            let number_len =
                rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
            let (number, after) = rest.split_at(number_len);
            let unit_len =
                after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
            let (unit, after) = after.split_at(unit_len);
            let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
            total_ms += number.parse::<f64>().map_err(|_| error())? * factor;
            rest = after;
        }
        if text.is_empty() || total_ms > i64::MAX as f64 / 1e6 {
            return Err(error());
        }
        Ok(Self(total_ms as u64))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, ms) = (self.0 / 1000, self.0 % 1000);
        if self.0 == 0 {
            return f.write_str("0s");
        }
        if secs == 0 {
            return write!(f, "{ms}ms");
        }
        let (hours, minutes, secs) = (secs / 3600, secs / 60 % 60, secs % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        if ms == 0 {
            return write!(f, "{secs}s");
        }
        let fraction = format!("{ms:03}");
        write!(f, "{secs}.{}s", fraction.trim_end_matches('0'))
    }
}

impl Secret {
    /// Stands for a secret that is set; one that is not is shown as the empty text.
    pub const MASK: &str = "********";

    /// The text itself, for the one place that computes with it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn shown(&self) -> &str {
        if self.0.is_empty() { "" } else { Self::MASK }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

impl TryFrom<String> for Millis {
    type Error = MillisError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<Millis> for String {
    fn from(millis: Millis) -> Self {
        millis.to_string()
    }
}

/// Instances that a configured shard size asks for: below 1 it is a share of `instances`,
/// rounded up, from 1 on a number, rounded up too. 0 is no shuffle sharding.
pub fn shard_size(configured: f64, instances: usize) -> i64 {
    let size = if configured < 1.0 { instances as f64 * configured } else { configured };
    size.ceil() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write_as_go_does() {
        let check = |text: &str, ms: u64, shown: &str| {
            let parsed = Millis::parse(text).expect(text);
            assert_eq!((parsed.0, parsed.to_string().as_str()), (ms, shown), "{text}");
        };
        check("0", 0, "0s");
        check("0s", 0, "0s");
        check("10s", 10_000, "10s");
        check("1h30m", 5_400_000, "1h30m0s");
        check("250ms", 250, "250ms");
        check("1.5s", 1_500, "1.5s");
        check("2d", 172_800_000, "48h0m0s");
        check("1h0m5.25s", 3_605_250, "1h0m5.25s");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "10", "s", "1x", "-1s", "1h 2m", "9999999999y", "1.2.3s"] {
            assert!(Millis::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_fractional_shard_size_is_a_share_of_the_instances() {
        let check =
            |configured, instances, size| assert_eq!(shard_size(configured, instances), size);
        check(0.0, 100, 0);
        check(0.1, 100, 10);
        check(0.101, 100, 11);
        check(0.001, 3, 1);
        check(1.0, 100, 1);
        check(2.5, 100, 3);
        check(-1.0, 100, -100);
    }

    #[test]
    fn a_secret_is_read_and_never_shown() {
        let secret: Secret = serde_json::from_str("\"k1,k2\"").expect("a text");
        assert_eq!(secret.reveal(), "k1,k2");
        assert_eq!(serde_json::to_string(&secret).expect("a text"), "\"********\"");
        assert!(!format!("{secret:?}").contains("k1"));
        assert_eq!(serde_json::to_string(&Secret::default()).expect("a text"), "\"\"");
    }
}
