//! Prometheus' four label matchers over canonical labels.
//!
//! A label that a series lacks has the empty value: `a=""` and `a!~".+"` match series without `a`.
//! Regular expressions are anchored at both ends and their dot matches line ends, as in Prometheus.

use regex::bytes::{Regex, RegexBuilder};

use crate::labels::{Labels, METRIC_NAME};

/// Memory that one compiled expression may take; beyond it the matcher is refused.
const REGEX_BYTES_MAX: usize = 4 << 20;
/// Length of an expression, which bounds the time to compile it.
const REGEX_TEXT_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchOp {
    Equal,
    NotEqual,
    Regex,
    NotRegex,
}

/// Why a matcher is refused.
#[derive(Debug, thiserror::Error)]
pub enum MatcherError {
    #[error("the regular expression has {bytes} bytes, more than {REGEX_TEXT_BYTES_MAX}")]
    RegexTooLong { bytes: usize },
    #[error("invalid regular expression {text:?}")]
    Regex { text: String, source: Box<regex::Error> },
    #[error("the regular expression is not UTF-8")]
    NotText,
}

#[derive(Clone, Debug)]
pub struct Matcher {
    name: Box<[u8]>,
    rule: Rule,
    is_negated: bool,
}

#[derive(Clone, Debug)]
enum Rule {
    Equal(Box<[u8]>),
    /// A regular expression that is nothing but alternatives, such as `up|node_load1`.
    AnyOf(Vec<Box<[u8]>>),
    Regex(Regex),
}

impl Matcher {
    pub fn new(op: MatchOp, name: &[u8], value: &[u8]) -> Result<Self, MatcherError> {
        let rule = match op {
            MatchOp::Equal | MatchOp::NotEqual => Rule::Equal(value.into()),
            MatchOp::Regex | MatchOp::NotRegex => parse_regex(value)?,
        };
        let is_negated = matches!(op, MatchOp::NotEqual | MatchOp::NotRegex);
        Ok(Self { name: name.into(), rule, is_negated })
    }

    pub fn matches(&self, labels: Labels<'_>) -> bool {
        let value = labels.get(&self.name).unwrap_or_default();
        let holds = match &self.rule {
            Rule::Equal(wanted) => **wanted == *value,
            Rule::AnyOf(wanted) => wanted.iter().any(|wanted| **wanted == *value),
            Rule::Regex(regex) => regex.is_match(value),
        };
        holds != self.is_negated
    }

    /// The only metric names that can match, when the matcher says so.
    fn metrics(&self) -> Option<Vec<&[u8]>> {
        if self.is_negated || *self.name != *METRIC_NAME {
            return None;
        }
        match &self.rule {
            Rule::Equal(wanted) => Some(vec![wanted]),
            Rule::AnyOf(wanted) => Some(wanted.iter().map(|wanted| &**wanted).collect()),
            Rule::Regex(_) => None,
        }
    }
}

/// Whether all matchers match.
pub fn all_match(matchers: &[Matcher], labels: Labels<'_>) -> bool {
    matchers.iter().all(|matcher| matcher.matches(labels))
}

/// The only metrics whose series can match, each once; none if any metric's can.
pub fn metrics(matchers: &[Matcher]) -> Option<Vec<&[u8]>> {
    let mut metrics =
        matchers.iter().filter_map(Matcher::metrics).min_by_key(|metrics| metrics.len())?;
    metrics.sort_unstable();
    metrics.dedup();
    Some(metrics)
}

fn parse_regex(value: &[u8]) -> Result<Rule, MatcherError> {
    if value.len() > REGEX_TEXT_BYTES_MAX {
        return Err(MatcherError::RegexTooLong { bytes: value.len() });
    }
    let text = std::str::from_utf8(value).map_err(|_| MatcherError::NotText)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '|');
    if text.chars().all(is_plain) {
        let alternatives = text.split('|').map(|text| text.as_bytes().into()).collect();
        return Ok(Rule::AnyOf(alternatives));
    }
    let regex = RegexBuilder::new(&format!("^(?s:{text})$"))
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(REGEX_BYTES_MAX)
        .build()
        .map_err(|source| MatcherError::Regex {
            text: text.to_owned(),
            source: Box::new(source),
        })?;
    Ok(Rule::Regex(regex))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::LabelsBuf;
    use proptest::prelude::*;

    fn labels(pairs: &[(&str, &str)]) -> LabelsBuf {
        let mut buf = LabelsBuf::new();
        for (name, value) in pairs {
            buf.push(name.as_bytes(), value.as_bytes());
        }
        buf
    }

    fn matcher(op: MatchOp, name: &str, value: &str) -> Matcher {
        Matcher::new(op, name.as_bytes(), value.as_bytes()).expect("a valid matcher")
    }

    #[test]
    fn matchers_decide_as_prometheus_does() {
        let set = labels(&[("__name__", "up"), ("job", "a.b"), ("text", "x\ny")]);
        let check = |op, name: &str, value: &str, expect: bool| {
            let matcher = matcher(op, name, value);
            assert_eq!(matcher.matches(set.as_labels()), expect, "{op:?} {name} {value}");
        };
        check(MatchOp::Equal, "job", "a.b", true);
        check(MatchOp::Equal, "job", "a", false);
        check(MatchOp::Equal, "none", "", true);
        check(MatchOp::NotEqual, "none", "", false);
        check(MatchOp::NotEqual, "job", "a", true);
        check(MatchOp::Regex, "job", "a", false);
        check(MatchOp::Regex, "job", "a.*", true);
        check(MatchOp::Regex, "job", "b|a.b|c", true);
        check(MatchOp::Regex, "job", "x|y", false);
        check(MatchOp::Regex, "__name__", "down|up", true);
        check(MatchOp::Regex, "none", ".*", true);
        check(MatchOp::Regex, "none", "a|", true);
        check(MatchOp::Regex, "none", ".+", false);
        check(MatchOp::Regex, "text", "x.y", true);
        check(MatchOp::Regex, "text", "x", false);
        check(MatchOp::NotRegex, "job", "a.*", false);
        check(MatchOp::NotRegex, "none", ".+", true);
        check(MatchOp::NotRegex, "job", "x|y", true);
    }

    #[test]
    fn only_names_that_can_match_are_looked_up() {
        let check = |matchers: &[Matcher], expect: Option<&[&str]>| {
            let found = metrics(matchers);
            let expect = expect.map(|names| names.iter().map(|name| name.as_bytes()).collect());
            assert_eq!(found, expect);
        };
        check(&[matcher(MatchOp::Equal, "__name__", "up")], Some(&["up"]));
        check(&[matcher(MatchOp::Regex, "__name__", "b|a|b")], Some(&["a", "b"]));
        check(&[matcher(MatchOp::Regex, "__name__", "a.*")], None);
        check(&[matcher(MatchOp::NotRegex, "__name__", "a|b")], None);
        check(&[matcher(MatchOp::NotEqual, "__name__", "a")], None);
        check(&[matcher(MatchOp::Equal, "job", "a")], None);
    }

    #[test]
    fn absurd_expressions_are_refused() {
        for text in ["(", "a{1000}{1000}{1000}", "(?x)a#"] {
            let error = Matcher::new(MatchOp::Regex, b"a", text.as_bytes());
            assert!(matches!(error, Err(MatcherError::Regex { .. })), "{text}");
        }
        assert!(Matcher::new(MatchOp::Regex, b"a", &[b'a'; REGEX_TEXT_BYTES_MAX + 1]).is_err());
        assert!(Matcher::new(MatchOp::Regex, b"a", b"\xff").is_err());
    }

    proptest! {
        #[test]
        fn alternatives_match_as_their_expression_does(
            text in "[ab|]{0,6}",
            value in "[ab]{0,3}",
        ) {
            let regex = Regex::new(&format!("^(?s:{text})$")).expect("valid");
            let set = labels(&[("a", &value)]);
            let matcher = matcher(MatchOp::Regex, "a", &text);
            prop_assert_eq!(matcher.matches(set.as_labels()), regex.is_match(value.as_bytes()));
        }
    }
}
