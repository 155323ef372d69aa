//! `Server-Timing`: what a server says of the time it took.
//!
//! A list of metrics, each a name with parameters: `a;dur=1.5;desc="x, y", b`. What it says may
//! cost somebody nothing, so it counts only where there is no doubt: one line that is no text, one
//! quote left open or one duration of the metric that is no number, and nothing was said.

/// The duration of the metric called `name`, in milliseconds. Where it is told several times the
/// longest counts: a false zero must not hide a true wait.
pub(super) fn duration_ms<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &str) -> Option<f64> {
    let mut longest: Option<f64> = None;
    for line in lines {
        let line = std::str::from_utf8(line).ok().filter(|line| line.is_ascii())?;
        if has_open_quote(line) {
            return None;
        }
        for metric in split_unquoted(line, ',') {
            let mut parts = split_unquoted(metric, ';').map(str::trim);
            if parts.next() != Some(name) {
                continue;
            }
            for parameter in parts {
                let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                if key.trim().eq_ignore_ascii_case("dur") {
                    let told = number(value.trim())?;
                    longest = Some(longest.map_or(told, |longest| longest.max(told)));
                }
            }
        }
    }
    longest
}

/// A duration as it is written.
fn number(value: &str) -> Option<f64> {
    let value = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    // Not what Rust reads as numbers besides: infinities, NaN, signs.
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit() || b".eE-+".contains(&byte));
    let number: f64 = value.parse().ok().filter(|_| is_number)?;
    // Of a wait too short for a double nothing is left when it is read, and it was a wait.
    let mut digits = value.bytes().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let is_vanished = number == 0.0 && digits.any(|byte| matches!(byte, b'1'..=b'9'));
    (number.is_finite() && number.is_sign_positive() && !is_vanished).then_some(number)
}

/// Where a quote is left open nobody can tell what stands in it.
fn has_open_quote(line: &str) -> bool {
    let mut is_quoted = false;
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            // With what it escapes.
            b'\\' if is_quoted => drop(bytes.next()),
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    is_quoted
}

/// Splits outside of quoted strings, in which a backslash takes the next character as it is.
fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |c: char| {
        if is_escaped {
            is_escaped = false;
            return false;
        }
        match c {
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => return c == separator && !is_quoted,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_found_among_others_and_nonsense_is_none() {
        let check = |lines: &[&str], expect: Option<f64>| {
            let found = duration_ms(lines.iter().map(|line| line.as_bytes()), "querier_wall_time");
            assert_eq!(found, expect, "{lines:?}");
        };
        check(&["querier_wall_time;dur=0, response_time;dur=12.5"], Some(0.0));
        check(&["response_time;dur=12.5", "querier_wall_time;dur=3.25"], Some(3.25));
        check(&["querier_wall_time; DUR = \"7\" ;desc=\"a, b\""], Some(7.0));
        check(&["a;desc=\"querier_wall_time;dur=0\", querier_wall_time;dur=1"], Some(1.0));
        check(&["a;desc=\"\\\", querier_wall_time;dur=0, \""], None);
        check(&["querier_wall_time;desc=x;dur=2;dur=0"], Some(2.0));
        check(&["querier_wall_time;dur=0;dur=2"], Some(2.0));
        check(&["querier_wall_time;dur=0.00e9"], Some(0.0));
        check(&["querier_wall_time;dur=1e-300"], Some(1e-300));
        check(&["querier_wall_time, querier_wall_time;dur=0"], Some(0.0));
        check(&["querier_wall_time;dur=0, querier_wall_time;dur=5"], Some(5.0));
        check(&["querier_wall_time;dur=1e3"], Some(1000.0));
        for nonsense in [
            "",
            "querier_wall_time",
            "querier_wall_time;dur",
            "querier_wall_time;dur=",
            "querier_wall_time;dur=-1",
            "querier_wall_time;dur=-0",
            "querier_wall_time;dur=inf",
            "querier_wall_time;dur=nan",
            "querier_wall_time;dur=0x0",
            "querier_wall_time;dur=1e999",
            "querier_wall_time;dur=1e-400",
            "querier_wall_time;dur=0.001e-400",
            "querier_wall_time_x;dur=0",
            "Querier_Wall_Time;dur=0",
            "\"querier_wall_time\";dur=0",
            "a \"querier_wall_time;dur=0",
            ";;;,,,",
            "\\\"",
        ] {
            check(&[nonsense], None);
        }
    }

    /// Whatever is free has to be so beyond doubt.
    #[test]
    fn a_zero_beside_a_doubt_is_none() {
        const ZERO: &[u8] = b"querier_wall_time;dur=0";
        for doubt in [
            &b"querier_wall_time;dur=0;dur=abc"[..],
            b"querier_wall_time;dur=0;dur",
            b"querier_wall_time;dur=abc;dur=0",
            b"querier_wall_time;dur=1e-400",
            b"querier_wall_time;dur=-3",
            b"a;desc=\"x, querier_wall_time;dur=5",
            "a;desc=\"\u{e4}\", querier_wall_time;dur=5".as_bytes(),
            b"\xff",
        ] {
            for lines in [[doubt, ZERO], [ZERO, doubt]] {
                let found = duration_ms(lines.into_iter(), "querier_wall_time");
                assert_eq!(found, None, "{lines:?}");
            }
            let line = [doubt, b", ", ZERO].concat();
            assert_eq!(duration_ms(std::iter::once(&line[..]), "querier_wall_time"), None);
        }
    }
}
