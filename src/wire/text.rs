//! Numbers in texts that clients see, as Go prints them.

use std::fmt;

/// A double as `%v` and `%g` have it: the fewest digits that read back the same, with an
/// exponent below 1e-4 and from 1e6 on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShortestDouble(pub f64);

impl fmt::Display for ShortestDouble {
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

/// A double as `%f` has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedDouble(pub f64);

impl fmt::Display for FixedDouble {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_print_as_in_go() {
        let check = |value: f64, expect: &str| {
            assert_eq!(ShortestDouble(value).to_string(), expect);
        };
        check(0.0, "0");
        check(-0.0, "-0");
        check(1.0, "1");
        check(-0.5, "-0.5");
        check(100_000.0, "100000");
        check(999_999.5, "999999.5");
        check(1e6, "1e+06");
        check(123_456_789.0, "1.23456789e+08");
        check(0.0001, "0.0001");
        check(0.000_012, "1.2e-05");
        check(1e300, "1e+300");
        check(5e-324, "5e-324");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        // As near to ...562 as to ...563.
        check(-1.0 - 2.5 / 65_536.0, "-1.0000381469726562");
        assert_eq!(FixedDouble(0.1).to_string(), "0.100000");
        assert_eq!(FixedDouble(f64::NEG_INFINITY).to_string(), "-Inf");
    }
}
