//! Numbers and times as Go prints them: texts that clients see are Cortex's to the letter.

use std::fmt;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A double as Go's `%v` and `%g` print it: shortest digits, with an exponent from 1e6 on and
/// below 1e-4.
pub struct Float(pub f64);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_float(f, self.0)
    }
}

/// Exponents that Go writes out in full; outside of them it prints digits and an exponent.
const PLAIN_EXPONENTS: std::ops::Range<i32> = -4..6;

fn write_float(f: &mut fmt::Formatter<'_>, value: f64) -> fmt::Result {
    if value.is_nan() {
        return f.write_str("NaN");
    }
    if value.is_infinite() {
        return f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    }
    if value == 0.0 {
        return f.write_str(if value.is_sign_negative() { "-0" } else { "0" });
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("LowerExp writes an exponent");
    let exponent: i32 = exponent.parse().expect("LowerExp writes a number");
    if PLAIN_EXPONENTS.contains(&exponent) {
        return write!(f, "{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(f, "{digits}e{sign}{:02}", exponent.abs())
}

/// Unix milliseconds as Go's `time.RFC3339Nano` in UTC: no trailing zeros in the fraction.
pub struct Rfc3339Ms(pub i64);

impl fmt::Display for Rfc3339Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = i128::from(self.0) * 1_000_000;
        let text = OffsetDateTime::from_unix_timestamp_nanos(nanos)
            .ok()
            .and_then(|t| t.format(&Rfc3339).ok());
        match text {
            Some(text) => f.write_str(&text),
            // Outside the years 0 to 9999 the format has no answer; the number still has one.
            None => write!(f, "{}ms", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_go_prints_them() {
        let check = |value: f64, expect: &str| assert_eq!(Float(value).to_string(), expect);
        check(0.0, "0");
        check(-0.0, "-0");
        check(1.0, "1");
        check(1.5, "1.5");
        check(-3.0, "-3");
        check(100_000.0, "100000");
        check(1_000_000.0, "1e+06");
        check(1_234_567.0, "1.234567e+06");
        check(12_345_678.5, "1.23456785e+07");
        check(1e21, "1e+21");
        check(0.0001, "0.0001");
        check(0.00001, "1e-05");
        check(5e-324, "5e-324");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        check(f64::NAN, "NaN");
    }

    #[test]
    fn times_print_without_trailing_zeros() {
        let check = |ms: i64, expect: &str| assert_eq!(Rfc3339Ms(ms).to_string(), expect);
        check(1_700_000_000_000, "2023-11-14T22:13:20Z");
        check(1_699_999_999_999, "2023-11-14T22:13:19.999Z");
        check(1_699_999_999_990, "2023-11-14T22:13:19.99Z");
        check(-1, "1969-12-31T23:59:59.999Z");
        check(i64::MAX, "9223372036854775807ms");
    }
}
