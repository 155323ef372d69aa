//! When a certificate ends, so that somebody hears of it before connections fail.
//!
//! One field of a certificate is read, and rustls has taken the certificate for good before: a
//! crate for all of X.509 would be eight crates to build for it. What cannot be read has no end
//! that could be told.

use time::{Date, Month, PrimitiveDateTime, Time};

use super::Pem;

/// Tags of DER that lie on the way.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When the first certificate of a side's own chain ends, in seconds since 1970. `pems` are
/// certificate and key, then authorities; `None` where there is no pair, so that nothing is shown
/// to others.
///
/// Authorities do not count: a host's bundle always holds some that are long past.
pub(super) fn of_pair(pems: &[Pem]) -> Option<i64> {
    let [chain, _key, ..] = pems else { return None };
    chain.certificates().ok()?.iter().filter_map(|der| not_after_s(der)).min()
}

/// Certificate ::= { TBSCertificate ::= { [0] version, serial, signature, issuer, validity …
fn not_after_s(certificate: &[u8]) -> Option<i64> {
    let (whole, _) = value(certificate, SEQUENCE)?;
    let (mut fields, _) = value(whole, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    for _serial_signature_issuer in 0..3 {
        fields = element(fields)?.2;
    }
    let (validity, _) = value(fields, SEQUENCE)?;
    let (tag, text, _) = element(element(validity)?.2)?;
    seconds(tag, std::str::from_utf8(text).ok()?)
}

/// `YYMMDDHHMMSSZ`, of the years from 1950 on, or `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    let year_len = match (tag, digits.len()) {
        (UTC_TIME, 12) => 2,
        (GENERALIZED_TIME, 14) => 4,
        _ => return None,
    };
    let year: i32 = digits[..year_len].parse().ok()?;
    let year = match year_len {
        2 if year < 50 => 2000 + year,
        2 => 1900 + year,
        _ => year,
    };
    let two = |at: usize| digits[year_len + at..year_len + at + 2].parse::<u8>().ok();
    let month = Month::try_from(two(0)?).ok()?;
    let date = Date::from_calendar_date(year, month, two(2)?).ok()?;
    let time = Time::from_hms(two(4)?, two(6)?, two(8)?).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp())
}

/// The contents of an element with this tag, and what follows it.
fn value(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, contents, rest) = element(der)?;
    (tag == wanted).then_some((contents, rest))
}

/// Tag and contents of the first element, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The length's own length; a file is no longer than three bytes can say.
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(len)?;
    Some((tag, contents, rest))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn pem(text: &str) -> Pem {
        Pem { path: PathBuf::from("file"), bytes: text.as_bytes().to_vec() }
    }

    fn certificate(year: i32) -> rcgen::Certificate {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["gate".to_owned()]).expect("a name");
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.self_signed(&key).expect("signed")
    }

    #[test]
    fn the_first_of_a_chain_to_end_is_told_and_authorities_are_not() {
        let check = |pems: &[Pem], expect| assert_eq!(of_pair(pems), expect);
        let key = || pem("no matter");
        let [soon, later, past] = [2040, 2060, 1999].map(|year| certificate(year).pem());
        let soon_s = Some(2_208_988_800);
        check(&[pem(&soon), key()], soon_s);
        check(&[pem(&format!("{later}{soon}")), key()], soon_s);
        check(&[pem(&soon), key(), pem(&past)], soon_s);
        check(&[pem(&later), key()], Some(2_840_140_800));
        check(&[pem(&past), key()], Some(915_148_800));
        check(&[pem(&past)], None);
        check(&[pem("no certificate"), key()], None);
        check(&[], None);
    }

    #[test]
    fn times_are_read_in_both_forms_and_no_other() {
        let check = |tag, text, expect| assert_eq!(seconds(tag, text), expect, "{text}");
        check(UTC_TIME, "700101000001Z", Some(1));
        check(UTC_TIME, "491231235959Z", Some(2_524_607_999));
        check(UTC_TIME, "500101000000Z", Some(-631_152_000));
        check(GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000));
        check(GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799));
        for text in ["", "Z", "7001010000Z", "700101000000", "701301000000Z", "7001é1000000Z"] {
            check(UTC_TIME, text, None);
        }
        check(GENERALIZED_TIME, "700101000000Z", None);
    }

    #[test]
    fn a_certificate_that_is_cut_or_changed_anywhere_panics_nowhere() {
        let whole = certificate(2040).der().to_vec();
        assert!(not_after_s(&whole).is_some());
        for at in 0..whole.len() {
            let _ = not_after_s(&whole[..at]);
            for byte in [0, 0x30, 0x7f, 0x80, 0x83, 0x84, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = not_after_s(&changed);
            }
        }
    }
}
