//! `Server-Timing`: what a server says of the time it took.
//!
//! A list of metrics, each a name with parameters: `a;dur=1.5;desc="x, y", b`. Whatever is not
//! well-formed counts as not said.

/// The duration of the metric called `name`, in milliseconds. Where it is told several times the
/// longest counts: a false zero must not hide a true wait.
pub(super) fn duration_ms<'a>(lines: impl Iterator<Item = &'a str>, name: &str) -> Option<f64> {
    lines
        .flat_map(|line| split_unquoted(line, ','))
        .filter_map(|metric| {
            let mut parts = split_unquoted(metric, ';').map(str::trim);
            (parts.next() == Some(name)).then(|| parts.find_map(duration)).flatten()
        })
        .reduce(f64::max)
}

/// The value of a `dur` parameter; the first counts, as the specification has it.
fn duration(parameter: &str) -> Option<f64> {
    let (key, value) = parameter.split_once('=')?;
    if !key.trim().eq_ignore_ascii_case("dur") {
        return None;
    }
    let value = value.trim();
    let value = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    // Not what Rust reads as numbers besides: infinities, NaN, signs.
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit() || b".eE-+".contains(&byte));
    let number: f64 = value.parse().ok().filter(|_| is_number)?;
    (number.is_finite() && number.is_sign_positive()).then_some(number)
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
            let found = duration_ms(lines.iter().copied(), "querier_wall_time");
            assert_eq!(found, expect, "{lines:?}");
        };
        check(&["querier_wall_time;dur=0, response_time;dur=12.5"], Some(0.0));
        check(&["response_time;dur=12.5", "querier_wall_time;dur=3.25"], Some(3.25));
        check(&["querier_wall_time; DUR = \"7\" ;desc=\"a, b\""], Some(7.0));
        check(&["a;desc=\"querier_wall_time;dur=0\", querier_wall_time;dur=1"], Some(1.0));
        check(&["a;desc=\"\\\", querier_wall_time;dur=0, \""], None);
        check(&["querier_wall_time;desc=x;dur=2;dur=0"], Some(2.0));
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
}
