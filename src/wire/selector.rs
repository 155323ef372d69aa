//! PromQL's series selectors: `up{job="node", instance=~"db-.*"}`, and nothing else of PromQL.
//!
//! Readers name series with them, in `match[]` and on the command line. Strings are Go's, in
//! double quotes, single quotes or backticks; names that are not plain are quoted, and a quoted
//! name on its own is the metric's.
//!
//! Time and memory are linear in the text, which is bounded. What is printed reads back the same.

use std::fmt;

use crate::labels::write_quoted;

/// Most matchers of a selector. Each is tried on every series, and people write a handful.
pub const SELECTOR_MATCHERS_MAX: usize = 64;

/// Longest selector in bytes; it leaves room for one regular expression of the longest kind.
const SELECTOR_BYTES_MAX: usize = 128 << 10;

/// Name of the label that holds the metric's name, as text.
const METRIC_NAME_TEXT: &str = "__name__";

/// How a label's value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Regex,
    NotRegex,
}

/// One condition on one label; the regular expression is not looked at yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelMatcher {
    pub comparison: Comparison,
    pub name: String,
    pub value: String,
}

/// All conditions of one selector; a series has to meet each. None means every series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    pub matchers: Vec<LabelMatcher>,
}

/// Why a text is no selector. Columns count bytes from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("1:{column}: parse error: expected {wanted}, found {found}")]
    Unexpected { column: usize, wanted: &'static str, found: String },
    #[error("1:{column}: parse error: unterminated quoted string")]
    Unterminated { column: usize },
    #[error("1:{column}: parse error: invalid escape in a quoted string")]
    BadEscape { column: usize },
    #[error("1:{column}: parse error: the quoted string is not UTF-8")]
    NotUtf8 { column: usize },
    #[error("parse error: metric name must not be set twice: {first:?} or {second:?}")]
    MetricTwice { first: String, second: String },
    #[error("the selector has more than {SELECTOR_MATCHERS_MAX} matchers")]
    TooManyMatchers,
    #[error("the selector has {bytes} bytes, more than {SELECTOR_BYTES_MAX}")]
    TooLong { bytes: usize },
}

impl Selector {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > SELECTOR_BYTES_MAX {
            return Err(SelectorError::TooLong { bytes: text.len() });
        }
        let mut parser = Parser { text, at: 0 };
        parser.skip_space();
        let metric = parser.take_name(is_metric_char).map(str::to_owned);
        parser.skip_space();
        let mut matchers = Vec::new();
        if metric.is_none() && parser.peek() != Some('{') {
            return Err(parser.unexpected("a metric name or \"{\""));
        }
        let has_braces = parser.take("{");
        if has_braces {
            parser.matchers(&mut matchers)?;
            parser.skip_space();
        }
        if parser.peek().is_some() {
            let wanted = if has_braces {
                "the end of the selector (ranges, offsets and functions are not part of one)"
            } else {
                "\"{\" or the end of the selector (ranges, offsets and functions are not part of one)"
            };
            return Err(parser.unexpected(wanted));
        }
        if let Some(metric) = metric {
            matchers.insert(0, metric_matcher(metric));
            check_one_metric(&matchers)?;
        }
        Ok(Self { matchers })
    }
}

/// Braces with all of it, the metric too.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, matcher) in self.matchers.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{matcher}")?;
        }
        f.write_str("}")
    }
}

impl fmt::Display for LabelMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.name.chars();
        if chars.next().is_some_and(is_label_start) && chars.all(is_label_char) {
            f.write_str(&self.name)?;
        } else {
            write_quoted(f, self.name.as_bytes())?;
        }
        f.write_str(match self.comparison {
            Comparison::Equal => "=",
            Comparison::NotEqual => "!=",
            Comparison::Regex => "=~",
            Comparison::NotRegex => "!~",
        })?;
        write_quoted(f, self.value.as_bytes())
    }
}

fn metric_matcher(metric: String) -> LabelMatcher {
    let name = METRIC_NAME_TEXT.to_owned();
    LabelMatcher { comparison: Comparison::Equal, name, value: metric }
}

/// PromQL refuses a second name; it would select nothing, or say the same twice.
fn check_one_metric(matchers: &[LabelMatcher]) -> Result<(), SelectorError> {
    let mut metrics = matchers
        .iter()
        .filter(|matcher| matcher.comparison == Comparison::Equal)
        .filter(|matcher| matcher.name == METRIC_NAME_TEXT);
    match (metrics.next(), metrics.next()) {
        (Some(first), Some(second)) => Err(SelectorError::MetricTwice {
            first: first.value.clone(),
            second: second.value.clone(),
        }),
        _ => Ok(()),
    }
}

fn is_label_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_metric_char(c: char) -> bool {
    is_label_char(c) || c == ':'
}

struct Parser<'a> {
    text: &'a str,
    /// On the border of a character.
    at: usize,
}

impl<'a> Parser<'a> {
    /// What is inside the braces, and the closing one.
    fn matchers(&mut self, matchers: &mut Vec<LabelMatcher>) -> Result<(), SelectorError> {
        loop {
            self.skip_space();
            if self.take("}") {
                return Ok(());
            }
            let is_quoted = matches!(self.peek(), Some('"' | '\'' | '`'));
            let name = if is_quoted {
                self.quoted()?
            } else {
                let name = self.take_name(is_label_char).map(str::to_owned);
                name.ok_or_else(|| self.unexpected("a label name or \"}\""))?
            };
            self.skip_space();
            match self.comparison() {
                Some(comparison) => {
                    self.skip_space();
                    if !matches!(self.peek(), Some('"' | '\'' | '`')) {
                        return Err(self.unexpected("a quoted value"));
                    }
                    let value = self.quoted()?;
                    if matchers.len() >= SELECTOR_MATCHERS_MAX {
                        return Err(SelectorError::TooManyMatchers);
                    }
                    matchers.push(LabelMatcher { comparison, name, value });
                }
                None if is_quoted && matches!(self.peek(), Some(',' | '}')) => {
                    matchers.push(metric_matcher(name));
                    check_one_metric(matchers)?;
                }
                None => return Err(self.unexpected("one of =, !=, =~, !~")),
            }
            self.skip_space();
            if !self.take(",") && self.peek() != Some('}') {
                return Err(self.unexpected("\",\" or \"}\""));
            }
        }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        // The longer one first.
        [
            ("=~", Comparison::Regex),
            ("!~", Comparison::NotRegex),
            ("!=", Comparison::NotEqual),
            ("=", Comparison::Equal),
        ]
        .into_iter()
        .find_map(|(sign, comparison)| self.take(sign).then_some(comparison))
    }

    /// A string in any of the three quotes; the opening one is next.
    fn quoted(&mut self) -> Result<String, SelectorError> {
        let column = self.at + 1;
        let quote = self.peek().unwrap_or_default();
        self.at += quote.len_utf8();
        let rest = &self.text[self.at..];
        if quote == '`' {
            let end = rest.find('`').ok_or(SelectorError::Unterminated { column })?;
            self.at += end + 1;
            return Ok(rest[..end].to_owned());
        }
        let mut value = Vec::new();
        loop {
            let Some(c) = self.peek() else {
                return Err(SelectorError::Unterminated { column });
            };
            let escape_column = self.at + 1;
            self.at += c.len_utf8();
            match c {
                '\n' => return Err(SelectorError::Unterminated { column }),
                '\\' => self
                    .escape(quote, &mut value)
                    .ok_or(SelectorError::BadEscape { column: escape_column })?,
                _ if c == quote => break,
                _ => push_char(&mut value, c),
            }
        }
        // Escapes of single bytes can spell anything.
        String::from_utf8(value).map_err(|_| SelectorError::NotUtf8 { column })
    }

    /// What follows a backslash, as Go reads it; `None` if it is no escape.
    fn escape(&mut self, quote: char, value: &mut Vec<u8>) -> Option<()> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        match c {
            'a' => value.push(0x07),
            'b' => value.push(0x08),
            'f' => value.push(0x0c),
            'n' => value.push(b'\n'),
            'r' => value.push(b'\r'),
            't' => value.push(b'\t'),
            'v' => value.push(0x0b),
            '\\' => value.push(b'\\'),
            'x' => value.push(u8::try_from(self.digits(2, 16)?).ok()?),
            'u' => push_char(value, char::from_u32(self.digits(4, 16)?)?),
            'U' => push_char(value, char::from_u32(self.digits(8, 16)?)?),
            '0'..='7' => {
                self.at -= 1;
                value.push(u8::try_from(self.digits(3, 8)?).ok()?);
            }
            _ if c == quote => push_char(value, c),
            _ => return None,
        }
        Some(())
    }

    /// Exactly `count` digits.
    fn digits(&mut self, count: usize, radix: u32) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + count)?;
        // The standard parser takes a sign, too.
        if !digits.chars().all(|c| c.is_digit(radix)) {
            return None;
        }
        self.at += count;
        u32::from_str_radix(digits, radix).ok()
    }

    fn take_name(&mut self, is_part: fn(char) -> bool) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        if !rest.starts_with(is_part) || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += len;
        Some(&rest[..len])
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_next = self.text[self.at..].starts_with(sign);
        if is_next {
            self.at += sign.len();
        }
        is_next
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn unexpected(&self, wanted: &'static str) -> SelectorError {
        let found = match self.peek() {
            Some(c) => format!("{c:?}"),
            None => "the end".to_owned(),
        };
        SelectorError::Unexpected { column: self.at + 1, wanted, found }
    }
}

fn push_char(value: &mut Vec<u8>, c: char) {
    value.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn selectors_are_read_as_promql_has_them() {
        let check = |text: &str, expect: &str| {
            let parsed = Selector::parse(text).map(|selector| selector.to_string());
            assert_eq!(parsed.as_deref(), Ok(expect), "{text}");
        };
        check("up", r#"{__name__="up"}"#);
        check(" job:up:sum\n{ } ", r#"{__name__="job:up:sum"}"#);
        check("{}", "{}");
        check(
            r#"up{a="b",c!="d",e=~"f|g",h!~'i',}"#,
            r#"{__name__="up", a="b", c!="d", e=~"f|g", h!~"i"}"#,
        );
        check(r#"{"odd.metric", "odd.name"="x"}"#, r#"{__name__="odd.metric", "odd.name"="x"}"#);
        check(r#"{__name__="a", __name__!="b"}"#, r#"{__name__="a", __name__!="b"}"#);
        check(r#"{a="ü\u00fc\x41\101\n\\\"\U0001F600"}"#, "{a=\"üüAA\\n\\\\\\\"😀\"}");
        check(r#"{a='it\'s "so"'}"#, r#"{a="it's \"so\""}"#);
        check("{a=`raw\\d\n'\"`}", r#"{a="raw\\d\n'\""}"#);
        check(r#"{a="\xc3\xbc"}"#, r#"{a="ü"}"#);
        check("{by=\"x\", on = \"y\"}", r#"{by="x", on="y"}"#);
    }

    #[test]
    fn what_is_no_selector_is_refused_where_it_goes_wrong() {
        let check = |text: &str, expect: &str| {
            let error = Selector::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expect), "{text}: {error}");
        };
        check("", "1:1: parse error: expected a metric name or \"{\", found the end");
        check("1up", "1:1: parse error: expected a metric name");
        check("up[5m]", "1:3: parse error: expected \"{\" or the end of the selector");
        check("{a=\"b\"} offset 1m", "1:9: parse error: expected the end of the selector");
        check("{a=b}", "1:4: parse error: expected a quoted value, found 'b'");
        check("{a==\"b\"}", "1:4: parse error: expected a quoted value");
        check("{a}", "1:3: parse error: expected one of =, !=, =~, !~, found '}'");
        check("{a=\"b\" c=\"d\"}", "1:8: parse error: expected \",\" or \"}\"");
        check("{,}", "1:2: parse error: expected a label name");
        check("{a:b=\"c\"}", "1:3: parse error: expected one of");
        check("{a=\"b", "1:4: parse error: unterminated");
        check("{a=\"b\n\"}", "1:4: parse error: unterminated");
        check("{a=`b", "1:4: parse error: unterminated");
        check("{a=\"b\"", "1:7: parse error: expected \",\" or \"}\"");
        for escape in ["\\'", "\\q", "\\x4", "\\x+1", "\\400", "\\09", "\\ud800", "\\U00110000"] {
            check(&format!("{{a=\"{escape}\"}}"), "1:5: parse error: invalid escape");
        }
        check("{a=\"\\xff\"}", "1:4: parse error: the quoted string is not UTF-8");
        let twice = "parse error: metric name must not be set twice: \"a\" or \"b\"";
        check("a{__name__=\"b\"}", twice);
        check("{\"a\", \"b\"}", twice);
        check(&"a".repeat(SELECTOR_BYTES_MAX + 1), "the selector has 131073 bytes");
    }

    fn any_matcher() -> impl Strategy<Value = LabelMatcher> {
        let comparison = prop_oneof![
            Just(Comparison::Equal),
            Just(Comparison::NotEqual),
            Just(Comparison::Regex),
            Just(Comparison::NotRegex),
        ];
        (comparison, prop_oneof!["[a-z_]{1,3}", any::<String>()], any::<String>())
            .prop_map(|(comparison, name, value)| LabelMatcher { comparison, name, value })
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(matchers in prop::collection::vec(any_matcher(), 0..5)) {
            let selector = Selector { matchers };
            prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = Selector::parse(&text);
        }

        /// Texts near to selectors get further into the parser than any text does.
        #[test]
        fn no_broken_selector_makes_the_parser_panic(
            text in r#"[a:]{0,2}\{?(["'`a,=!~}{ \\xuU0789ü]|\\x41){0,20}"#,
        ) {
            if let Ok(selector) = Selector::parse(&text) {
                prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
            }
        }
    }
}
