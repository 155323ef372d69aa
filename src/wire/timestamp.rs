//! Times as readers write them: RFC 3339, or Unix seconds with a fraction.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What Prometheus' clients write for "from the beginning" and "to the end": times that RFC 3339
/// cannot say.
const BEGINNING: &str = "-292273086-05-16T16:47:06Z";
const END: &str = "292277025-08-18T07:12:54.999999999Z";

/// Unix milliseconds of a text; `None` if it is no time. Times out of reach stay at the far end.
pub fn parse_ms(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        // The conversion saturates.
        return seconds.is_finite().then(|| (seconds * 1000.0).round() as i64);
    }
    match text {
        BEGINNING => return Some(i64::MIN),
        END => return Some(i64::MAX),
        _ => {}
    }
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos().div_euclid(1_000_000)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        let check = |text: &str, expect: Option<i64>| assert_eq!(parse_ms(text), expect, "{text}");
        check("0", Some(0));
        check("1700000000.123", Some(1_700_000_000_123));
        check("-1.5", Some(-1500));
        check("1.7e9", Some(1_700_000_000_000));
        check("2023-11-14T22:13:20Z", Some(1_700_000_000_000));
        check("2023-11-14T23:13:20.1239+01:00", Some(1_700_000_000_123));
        check("1e300", Some(i64::MAX));
        check(BEGINNING, Some(i64::MIN));
        check(END, Some(i64::MAX));
        for text in ["", "now", "NaN", "inf", "2023-11-14", "1 "] {
            check(text, None);
        }
    }
}
