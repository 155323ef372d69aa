//! Numbers and times as Go prints them: texts that clients see are Cortex's to the letter.

use std::fmt;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A double as Go's `%v` and `%g` print it: the fewest digits that read back the same, with an
/// exponent below 1e-4 and from 1e6 on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Float(pub f64);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if !value.is_finite() {
            return write_not_finite(f, value);
        }
        let text = shortest_digits(value);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        if value == 0.0 || (1e-4..1e6).contains(&value.abs()) {
            let places = places(digits, exponent);
            return write!(f, "{value:.places$}");
        }
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        write!(f, "{digits}e{sign}{exponent:0>2}")
    }
}

/// Fewest digits with an exponent. Of two that are equally near Go takes the even one, std the
/// greater, so the number of digits comes from std and the rounding from its exact printing.
fn shortest_digits(value: f64) -> String {
    let shortest = format!("{value:e}");
    let mantissa = shortest.split_once('e').map_or(&shortest[..], |(mantissa, _)| mantissa);
    let places = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let exact = format!("{value:.places$e}");
    if exact.parse() == Ok(value) { exact } else { shortest }
}

/// Places behind the point of a number that is written without an exponent.
fn places(digits: &str, exponent: &str) -> usize {
    let fraction = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len() as i32);
    (fraction - exponent.parse::<i32>().unwrap_or(0)).max(0) as usize
}

/// A double as Go's `strconv.FormatFloat(value, 'f', -1, 64)` prints it: the fewest digits that
/// read back the same, and never an exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlainFloat(pub f64);

impl fmt::Display for PlainFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if !value.is_finite() {
            return write_not_finite(f, value);
        }
        let text = shortest_digits(value);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let places = places(digits, exponent);
        if places > 0 {
            return write!(f, "{value:.places$}");
        }
        // Digits in front of the point that are not among the fewest are zeros.
        write!(f, "{value}")
    }
}

/// A double as Go's `%f` prints it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedFloat(pub f64);

impl fmt::Display for FixedFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_finite() {
            return write_not_finite(f, self.0);
        }
        write!(f, "{:.6}", self.0)
    }
}

fn write_not_finite(f: &mut fmt::Formatter<'_>, value: f64) -> fmt::Result {
    f.write_str(match value {
        _ if value.is_nan() => "NaN",
        f64::INFINITY => "+Inf",
        _ => "-Inf",
    })
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
        check(-0.5, "-0.5");
        check(0.1, "0.1");
        check(0.3333333333333333, "0.3333333333333333");
        check(999_999.5, "999999.5");
        check(100_000.0, "100000");
        check(1_000_000.0, "1e+06");
        check(1_234_567.0, "1.234567e+06");
        check(12_345_678.5, "1.23456785e+07");
        check(1e21, "1e+21");
        check(0.0001, "0.0001");
        check(0.00001, "1e-05");
        check(0.000_012, "1.2e-05");
        check(5e-324, "5e-324");
        check(1e300, "1e+300");
        check(f64::MAX, "1.7976931348623157e+308");
        // As near to ...562 as to ...563.
        check(-1.0 - 2.5 / 65_536.0, "-1.0000381469726562");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        check(f64::NAN, "NaN");
        assert_eq!(PlainFloat(0.005).to_string(), "0.005");
        assert_eq!(PlainFloat(1e21).to_string(), "1000000000000000000000");
        assert_eq!(PlainFloat(2.5e-7).to_string(), "0.00000025");
        assert_eq!(PlainFloat(10.0).to_string(), "10");
        assert_eq!(PlainFloat(f64::INFINITY).to_string(), "+Inf");
        assert_eq!(FixedFloat(0.1).to_string(), "0.100000");
        assert_eq!(FixedFloat(f64::NEG_INFINITY).to_string(), "-Inf");
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
