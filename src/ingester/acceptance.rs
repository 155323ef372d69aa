//! Whether a sample may be stored, by its time and the newest sample of its series.
//!
//! These are the rules of the head that Cortex keeps samples in, with its texts, so that the
//! embedded store answers a push as a Cortex ingester does. The store itself would take a sample
//! at any time; the rules are what makes a series' samples a series, and a retry harmless.

use crate::go_text::{Float, Rfc3339Ms};

/// What one push is judged by; read once, when it starts.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Samples older than this no longer belong to the head.
    pub min_valid_ms: i64,
    /// Samples later than this are too far ahead of our clock. One far ahead would carry the head
    /// with it and shut out everything honest.
    pub latest_ms: i64,
    /// Newest sample of the tenant; `i64::MIN` before the first.
    pub head_max_ms: i64,
    /// How far behind `head_max_ms` an out-of-order sample may lie; 0 allows none.
    pub out_of_order_window_ms: i64,
    /// The push asks to refuse out-of-order samples even inside the window.
    pub discard_out_of_order: bool,
}

/// The newest sample that a series holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest<V> {
    pub timestamp_ms: i64,
    pub value: V,
}

/// A sample's value, as far as these rules look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Bits of the double, so that staleness markers compare too.
    Float(u64),
    /// The histogram's protobuf.
    Histogram(&'a [u8]),
}

/// Why a sample is refused; `Display` gives Cortex's sentence, without the series.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    #[error("out of bounds")]
    OutOfBounds,
    #[error("out of order sample")]
    OutOfOrder,
    #[error("too old sample")]
    TooOld,
    #[error("timestamp too new")]
    TooNew,
    #[error(
        "duplicate sample for timestamp {timestamp_ms}; overrides not allowed: existing {}, new value {}",
        Float(*existing),
        Float(*new)
    )]
    DuplicateFloat { timestamp_ms: i64, existing: f64, new: f64 },
    #[error("duplicate sample for timestamp")]
    DuplicateHistogram,
    #[error(
        "duplicate sample for timestamp {timestamp_ms}; overrides not allowed: existing is a histogram, new value {}",
        Float(*new)
    )]
    FloatOverHistogram { timestamp_ms: i64, new: f64 },
}

impl SampleError {
    /// Value of the `reason` label of the discard counter.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OutOfBounds => "sample-out-of-bounds",
            Self::OutOfOrder => "sample-out-of-order",
            Self::TooOld => "sample-too-old",
            Self::TooNew => "too_far_in_future",
            _ => "new-value-for-timestamp",
        }
    }

    /// The whole text of the answer, without `user=`.
    pub fn text(
        &self,
        timestamp_ms: i64,
        bounds: &Bounds,
        series: &dyn std::fmt::Display,
    ) -> String {
        let time = Rfc3339Ms(timestamp_ms);
        match self {
            Self::OutOfBounds | Self::TooOld if bounds.head_max_ms != i64::MIN => {
                let head_max = Rfc3339Ms(bounds.head_max_ms);
                format!(
                    "err: {self}. timestamp={time}, tsdbHeadMaxTimestamp={head_max}, series={series}"
                )
            }
            Self::OutOfBounds | Self::TooOld | Self::OutOfOrder | Self::TooNew => {
                format!("err: {self}. timestamp={time}, series={series}")
            }
            _ => format!("err: {self}. series={series}"),
        }
    }
}

/// How an accepted sample lies in its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    InOrder,
    /// The very sample that is there already: nothing changes.
    Repeated,
    /// Older than the newest one, inside the window.
    OutOfOrder,
}

impl Bounds {
    /// Whether a sample of this time is refused whatever its series holds, even if it is new.
    pub fn rules_out(&self, timestamp_ms: i64) -> bool {
        timestamp_ms > self.latest_ms
            || (self.out_of_order_window_ms == 0 && timestamp_ms < self.min_valid_ms)
    }

    /// Judges a sample of a series that may exist.
    pub fn judge(
        &self,
        timestamp_ms: i64,
        value: Value<'_>,
        newest: Option<Newest<Value<'_>>>,
    ) -> Result<Accepted, SampleError> {
        if timestamp_ms > self.latest_ms {
            return Err(SampleError::TooNew);
        }
        if self.rules_out(timestamp_ms) {
            return Err(SampleError::OutOfBounds);
        }
        if timestamp_ms >= self.min_valid_ms {
            match newest {
                None => return Ok(Accepted::InOrder),
                Some(newest) if timestamp_ms > newest.timestamp_ms => return Ok(Accepted::InOrder),
                Some(newest) if timestamp_ms == newest.timestamp_ms => {
                    return repeated(timestamp_ms, value, newest.value);
                }
                Some(_) => {}
            }
        }
        if self.out_of_order_window_ms == 0 {
            return Err(SampleError::OutOfOrder);
        }
        if timestamp_ms < self.head_max_ms.saturating_sub(self.out_of_order_window_ms) {
            return Err(SampleError::TooOld);
        }
        if self.discard_out_of_order {
            return Err(SampleError::OutOfOrder);
        }
        Ok(Accepted::OutOfOrder)
    }
}

/// A second sample at the newest time: fine if it is the same one.
fn repeated(
    timestamp_ms: i64,
    new: Value<'_>,
    existing: Value<'_>,
) -> Result<Accepted, SampleError> {
    match (existing, new) {
        (existing, new) if existing == new => Ok(Accepted::Repeated),
        (Value::Float(existing), Value::Float(new)) => Err(SampleError::DuplicateFloat {
            timestamp_ms,
            existing: f64::from_bits(existing),
            new: f64::from_bits(new),
        }),
        (Value::Histogram(_), Value::Float(new)) => {
            Err(SampleError::FloatOverHistogram { timestamp_ms, new: f64::from_bits(new) })
        }
        (_, Value::Histogram(_)) => Err(SampleError::DuplicateHistogram),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn bounds(window_ms: i64) -> Bounds {
        Bounds {
            min_valid_ms: 9 * HOUR,
            latest_ms: 11 * HOUR,
            head_max_ms: 10 * HOUR,
            out_of_order_window_ms: window_ms,
            discard_out_of_order: false,
        }
    }

    fn float(value: f64) -> Value<'static> {
        Value::Float(value.to_bits())
    }

    fn newest(timestamp_ms: i64) -> Option<Newest<Value<'static>>> {
        Some(Newest { timestamp_ms, value: float(1.0) })
    }

    #[test]
    fn without_a_window_time_only_goes_forward() {
        let judge = |t, v, newest| bounds(0).judge(t, float(v), newest);
        assert_eq!(judge(9 * HOUR, 1.0, None), Ok(Accepted::InOrder));
        assert_eq!(judge(9 * HOUR - 1, 1.0, None), Err(SampleError::OutOfBounds));
        assert_eq!(judge(10 * HOUR, 1.0, newest(10 * HOUR - 1)), Ok(Accepted::InOrder));
        assert_eq!(judge(10 * HOUR, 1.0, newest(10 * HOUR)), Ok(Accepted::Repeated));
        assert_eq!(
            judge(10 * HOUR, 2.0, newest(10 * HOUR)),
            Err(SampleError::DuplicateFloat { timestamp_ms: 10 * HOUR, existing: 1.0, new: 2.0 })
        );
        assert_eq!(judge(10 * HOUR - 1, 1.0, newest(10 * HOUR)), Err(SampleError::OutOfOrder));
    }

    #[test]
    fn a_sample_far_ahead_of_our_clock_is_refused_whatever_the_window() {
        for window_ms in [0, 2 * HOUR] {
            let judge = |t| bounds(window_ms).judge(t, float(1.0), None);
            assert_eq!(judge(11 * HOUR), Ok(Accepted::InOrder));
            assert_eq!(judge(11 * HOUR + 1), Err(SampleError::TooNew));
            assert_eq!(judge(i64::MAX), Err(SampleError::TooNew));
        }
    }

    #[test]
    fn inside_the_window_out_of_order_samples_are_taken() {
        let mut bounds = bounds(2 * HOUR);
        let judge = |bounds: &Bounds, t| bounds.judge(t, float(1.0), newest(10 * HOUR));
        assert_eq!(judge(&bounds, 8 * HOUR), Ok(Accepted::OutOfOrder));
        assert_eq!(judge(&bounds, 8 * HOUR - 1), Err(SampleError::TooOld));
        bounds.discard_out_of_order = true;
        assert_eq!(judge(&bounds, 8 * HOUR), Err(SampleError::OutOfOrder));
        assert_eq!(judge(&bounds, 8 * HOUR - 1), Err(SampleError::TooOld));
    }

    #[test]
    fn staleness_markers_repeat_by_their_bits() {
        let stale = Value::Float(0x7ff0_0000_0000_0002);
        let held = Some(Newest { timestamp_ms: 10 * HOUR, value: stale });
        assert_eq!(bounds(0).judge(10 * HOUR, stale, held), Ok(Accepted::Repeated));
        assert!(bounds(0).judge(10 * HOUR, float(f64::NAN), held).is_err());
    }

    #[test]
    fn a_histogram_and_a_float_do_not_share_a_time() {
        let histogram = Value::Histogram(b"h");
        let held = Some(Newest { timestamp_ms: 10 * HOUR, value: histogram });
        assert_eq!(bounds(0).judge(10 * HOUR, histogram, held), Ok(Accepted::Repeated));
        assert_eq!(
            bounds(0).judge(10 * HOUR, float(2.0), held),
            Err(SampleError::FloatOverHistogram { timestamp_ms: 10 * HOUR, new: 2.0 })
        );
        assert_eq!(
            bounds(0).judge(10 * HOUR, Value::Histogram(b"i"), held),
            Err(SampleError::DuplicateHistogram)
        );
    }

    #[test]
    fn texts_name_the_head_only_when_it_holds_something() {
        let text =
            |error: SampleError, bounds: &Bounds| error.text(1_699_999_999_999, bounds, &"{}");
        let mut bounds = bounds(0);
        assert_eq!(
            text(SampleError::OutOfOrder, &bounds),
            "err: out of order sample. timestamp=2023-11-14T22:13:19.999Z, series={}"
        );
        bounds.head_max_ms = i64::MIN;
        assert_eq!(
            text(SampleError::OutOfBounds, &bounds),
            "err: out of bounds. timestamp=2023-11-14T22:13:19.999Z, series={}"
        );
    }
}
