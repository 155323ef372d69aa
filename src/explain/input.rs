//! What people paste: a series as PromQL or JSON writes it, or a line of a log with an error in it.
//!
//! Bounded by [`TEXT_BYTES_MAX`] and linear in it; whatever the text holds, the worst that it gets
//! is an error that says how a series is written.

use super::catalogue::Recognised;
use crate::tenant::{TENANT_ID_BYTES_MAX, TenantId};
use crate::wire::selector::{Comparison, Selector, SelectorError};

/// Longest text that is looked at: that of thirty labels with the longest values.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Longest part of a text that an answer repeats.
const REPEATED_CHARS_MAX: usize = 300;
/// What is looked at behind `user=`: the longest tenant, one byte by which a longer one is known,
/// and quotes before it that were escaped three times over.
const TENANT_AND_QUOTES_BYTES_MAX: usize = TENANT_ID_BYTES_MAX + 16;

/// A series, its labels as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series(pub Vec<(String, String)>);

/// Why a text is no series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    #[error(transparent)]
    Selector(#[from] SelectorError),
    #[error("a series has values, not patterns: write = in place of {sign}")]
    Pattern { sign: &'static str },
    #[error("the labels as JSON are an object of texts, such as {{\"__name__\":\"up\"}}")]
    Json,
    #[error("a series has at least one label")]
    NoLabels,
}

impl Series {
    /// Reads `up{job="a"}`, or `{"__name__":"up","job":"a"}`, or a result of Prometheus' API with
    /// a `metric` in it.
    pub fn parse(text: &str) -> Result<Self, SeriesError> {
        let text = text.trim();
        if let Ok(serde_json::Value::Object(object)) = serde_json::from_str(text) {
            let labels = match object.get("metric") {
                Some(serde_json::Value::Object(metric)) => metric,
                _ => &object,
            };
            let pair = |(name, value): (&String, &serde_json::Value)| {
                Some((name.clone(), value.as_str()?.to_owned()))
            };
            let pairs = labels.iter().map(pair).collect::<Option<Vec<_>>>();
            return Self::of(pairs.ok_or(SeriesError::Json)?);
        }
        let selector = Selector::parse(text)?;
        let mut pairs = Vec::with_capacity(selector.matchers.len());
        for matcher in selector.matchers {
            let sign = match matcher.comparison {
                Comparison::Equal => {
                    pairs.push((matcher.name, matcher.value));
                    continue;
                }
                Comparison::NotEqual => "!=",
                Comparison::Regex => "=~",
                Comparison::NotRegex => "!~",
            };
            return Err(SeriesError::Pattern { sign });
        }
        Self::of(pairs)
    }

    fn of(pairs: Vec<(String, String)>) -> Result<Self, SeriesError> {
        if pairs.is_empty() { Err(SeriesError::NoLabels) } else { Ok(Self(pairs)) }
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.0.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
    }
}

/// The series that an error names, if it names one that can be read.
pub fn series_of(text: &str, error: &Recognised) -> Option<Series> {
    error.holes.iter().find_map(|(name, place)| {
        let hole = text.get(place.clone())?;
        let named = match *name {
            "series" => hole.to_owned(),
            "plain_series" => hole.to_owned(),
            _ => return None,
        };
        let is_quoted = place.start > 0 && text.as_bytes()[place.start - 1] == b'"';
        let named = if is_quoted { unquoted(&named)? } else { named };
        Series::parse(leading_series(&named)?).ok()
    })
}

/// The tenant that a text names: by the error, or as Cortex puts it before errors of ingesters.
pub fn tenant_of(text: &str, errors: &[Recognised]) -> Option<TenantId> {
    let holes = errors.iter().flat_map(|error| &error.holes);
    let named = holes
        .filter(|(name, _)| *name == "tenant")
        .find_map(|(_, place)| TenantId::parse(text.get(place.clone())?).ok());
    named.or_else(|| {
        let mut after = text.match_indices("user=").map(|(at, sign)| &text[at + sign.len()..]);
        after.find_map(|rest| {
            // No more than could be a name and its end: else a text full of signs is read anew
            // from each of them.
            let rest = &rest[..rest.floor_char_boundary(TENANT_AND_QUOTES_BYTES_MAX)];
            let rest = rest.trim_start_matches(['"', '\\']);
            let end = rest.find(|c: char| c.is_whitespace() || ":\",\\".contains(c));
            TenantId::parse(&rest[..end.unwrap_or(rest.len())]).ok()
        })
    })
}

/// The series that a text begins with, whatever follows it.
fn leading_series(text: &str) -> Option<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let name_end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    let Some(labels) = text[name_end..].strip_prefix('{') else {
        return (name_end > 0).then(|| &text[..name_end]);
    };
    let (mut quote, mut is_escaped) = (None, false);
    for (at, c) in labels.char_indices() {
        match quote {
            _ if is_escaped => is_escaped = false,
            Some('`') if c == '`' => quote = None,
            Some('`') => {}
            Some(_) if c == '\\' => is_escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if matches!(c, '"' | '\'' | '`') => quote = Some(c),
            None if c == '}' => return Some(&text[..name_end + 1 + at + 1]),
            None => {}
        }
    }
    None
}

/// What stands in Go's double quotes, without them.
fn unquoted(text: &str) -> Option<String> {
    let quoted = format!("{{a=\"{text}\"}}");
    let mut matchers = Selector::parse(&quoted).ok()?.matchers;
    (matchers.len() == 1).then(|| matchers.swap_remove(0).value)
}

/// A line of a log whose quotes are escaped once more, as JSON and logfmt do, without that.
pub fn without_escapes(text: &str) -> Option<String> {
    if !text.contains("\\\"") {
        return None;
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => plain.push('\n'),
                Some('t') => plain.push('\t'),
                Some(escaped @ ('"' | '\\' | '/')) => plain.push(escaped),
                // An escape of somebody else's stays as it is.
                Some(other) => plain.extend(['\\', other]),
                None => plain.push('\\'),
            },
            c => plain.push(c),
        }
    }
    Some(plain)
}

/// As much of a text as an answer repeats.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(REPEATED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        Series::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).0
    }

    #[test]
    fn a_series_is_read_in_every_notation() {
        let up = [("__name__", "up"), ("job", "a")];
        let up: Vec<_> = up.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        for text in [
            "up{job=\"a\"}",
            " up { job = 'a' , } ",
            "{__name__=\"up\", job=\"a\"}",
            "{\"up\", job=\"a\"}",
            "{\"__name__\":\"up\",\"job\":\"a\"}",
            "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"value\":[1,\"2\"]}",
        ] {
            assert_eq!(pairs(text), up, "{text}");
        }
        assert_eq!(pairs("up"), up[..1]);
    }

    #[test]
    fn what_is_no_series_is_told_why() {
        let check = |text: &str, expect: &str| {
            let error = Series::parse(text).expect_err(text).to_string();
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("up{job=~\"a.*\"}", "write = in place of =~");
        check("{\"__name__\":1}", "object of texts");
        check("{}", "at least one label");
        check("{\"metric\":{}}", "at least one label");
        check("", "expected a metric name");
        check("a b", "expected");
    }

    #[test]
    fn a_series_is_found_at_the_head_of_a_text() {
        let check = |text: &str, expect| assert_eq!(leading_series(text), expect, "{text}");
        check("up{a=\"}\", b=\"\\\"}\"} (owned: 1)", Some("up{a=\"}\", b=\"\\\"}\"}"));
        check("{a=`}`}, exemplar={}", Some("{a=`}`}"));
        check("up and more", Some("up"));
        check("{a=\"never closed", None);
        check(" up", None);
        check("", None);
    }

    #[test]
    fn tenants_are_found_where_cortex_puts_them() {
        let check = |text: &str, expect: Option<&str>| {
            let found = tenant_of(text, &[]).map(|tenant| tenant.as_str().to_owned());
            assert_eq!(found.as_deref(), expect, "{text}");
        };
        check("user=team-1: per-user", Some("team-1"));
        check("desc = user=a.b: x", Some("a.b"));
        check("level=warn user=x msg=\"y\"", Some("x"));
        check("user=\"q\" z", Some("q"));
        check("user= user=b", Some("b"));
        check("nobody", None);
        let longest = "a".repeat(TENANT_ID_BYTES_MAX);
        check(&format!("user=\\\\\"{longest}\\\\\" z"), Some(&longest));
        check(&format!("user={longest}b z"), None);
        check(&format!("user={}", "é".repeat(200)), None);
    }

    /// Each `user=` of a text was looked behind to the text's end: a minute for the longest text.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "what is measured is how long it takes")]
    fn a_text_full_of_tenants_signs_is_read_in_linear_time() {
        let signs = |count: usize| "user=".repeat(count);
        let (few, many) = (signs(TEXT_BYTES_MAX / 80), signs(TEXT_BYTES_MAX / 5));
        let took = |text: &str| {
            let started = std::time::Instant::now();
            assert_eq!(tenant_of(text, &[]), None);
            started.elapsed()
        };
        // The best of several runs: sixteen times the text, 256 times the time if it is squared.
        let best = |text: &str| (0..5).map(|_| took(text)).min().expect("five runs");
        let (few, many) = (best(&few), best(&many));
        assert!(many < 100 * few, "{many:?} against {few:?}");
    }

    #[test]
    fn escapes_of_a_log_line_go_and_no_others() {
        assert_eq!(
            without_escapes(r#"err="{a=\"b\"}\n \u00e9 c:\\d""#).expect("has some"),
            "err=\"{a=\"b\"}\n \\u00e9 c:\\d\""
        );
        assert_eq!(without_escapes("plain"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}|[{}\"'`=~!,\\\\a_0: ]{0,80}") {
            let _ = Series::parse(&text);
            let _ = leading_series(&text);
            let _ = unquoted(&text);
            let _ = without_escapes(&text);
            let _ = tenant_of(&text, &[]);
            let _ = shortened(&text);
        }
    }
}
