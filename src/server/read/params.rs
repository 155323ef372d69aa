//! Parameters of the read API: from the query, and from a form in the body.

use crate::server::status::ReadRefusal;
use crate::store::TimeRange;
use crate::wire::selector::Selector;
use crate::wire::timestamp;

use super::answer::Answer;

/// Largest form; selectors are long where they list names.
pub const FORM_BYTES_MAX: usize = 1 << 20;
/// Selectors of one request; each is a walk through the tenant's labels.
const SELECTORS_MAX: usize = 64;

/// What a request of the read API asks for.
#[derive(Debug)]
pub struct Params {
    /// `match[]`, as often as it was given.
    pub selectors: Vec<Selector>,
    /// `query`, of which only a selector is understood.
    pub query: Option<Selector>,
    pub range: TimeRange,
    pub metric: Option<String>,
    /// `None` where it was not given, or given as 0.
    pub limit: Option<usize>,
    pub limit_per_metric: Option<usize>,
}

impl Params {
    /// Parameters of the body come before those of the query; of one that is given twice, only
    /// the first counts.
    pub fn parse(query: &str, body: &[u8]) -> Result<Self, ReadRefusal> {
        let mut params = Self {
            selectors: Vec::new(),
            query: None,
            range: TimeRange::ALL,
            metric: None,
            limit: None,
            limit_per_metric: None,
        };
        let (mut start, mut end, mut limit, mut limit_per_metric) = (None, None, None, None);
        let pairs = form_urlencoded::parse(body).chain(form_urlencoded::parse(query.as_bytes()));
        for (name, value) in pairs {
            match &*name {
                "match[]" => {
                    if params.selectors.len() == SELECTORS_MAX {
                        let text = format!("more than {SELECTORS_MAX} match[] parameters");
                        return Err(ReadRefusal::bad_data(text));
                    }
                    params.selectors.push(selector("match[]", &value)?);
                }
                "query" if params.query.is_none() => {
                    params.query = Some(selector("query", &value)?);
                }
                "start" => {
                    start.get_or_insert(value);
                }
                "end" => {
                    end.get_or_insert(value);
                }
                "metric" if params.metric.is_none() && !value.is_empty() => {
                    params.metric = Some(value.into_owned());
                }
                "limit" => {
                    limit.get_or_insert(value);
                }
                "limit_per_metric" => {
                    limit_per_metric.get_or_insert(value);
                }
                _ => {}
            }
        }
        if let Some(text) = start.filter(|text| !text.is_empty()) {
            params.range.start_ms = time("start", &text)?;
        }
        if let Some(text) = end.filter(|text| !text.is_empty()) {
            params.range.end_ms = time("end", &text)?;
        }
        params.limit = limit.map_or(Ok(None), |text| count("limit", &text))?;
        params.limit_per_metric =
            limit_per_metric.map_or(Ok(None), |text| count("limit_per_metric", &text))?;
        Ok(params)
    }

    /// As many as the reader wants; whether there are more is said in the answer.
    pub fn limited<T>(&self, mut found: Vec<T>, answer: &mut Answer) -> Vec<T> {
        if let Some(limit) = self.limit
            && found.len() > limit
        {
            found.truncate(limit);
            answer.warn("results truncated due to limit");
        }
        found
    }
}

fn selector(name: &str, text: &str) -> Result<Selector, ReadRefusal> {
    let selector = Selector::parse(text);
    selector.map_err(|error| invalid(name, &error.to_string()))
}

fn time(name: &str, text: &str) -> Result<i64, ReadRefusal> {
    let refused = || invalid(name, &format!("cannot parse {text:?} to a valid timestamp"));
    timestamp::parse_ms(text).ok_or_else(refused)
}

fn count(name: &str, text: &str) -> Result<Option<usize>, ReadRefusal> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(0) => Ok(None),
        Ok(count) => Ok(Some(count)),
        Err(_) => Err(invalid(name, &format!("{text:?} is no count"))),
    }
}

fn invalid(name: &str, text: &str) -> ReadRefusal {
    ReadRefusal::bad_data(format!("invalid parameter {name:?}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_from_body_and_query() {
        let body = b"match[]=up&start=1.5&limit=3";
        let params = Params::parse("match%5B%5D=%7Ba%3D%22b%22%7D&start=9&limit=0", body);
        let params = params.expect("valid");
        let selectors: Vec<_> = params.selectors.iter().map(Selector::to_string).collect();
        assert_eq!(selectors, [r#"{__name__="up"}"#, r#"{a="b"}"#]);
        assert_eq!(params.range, TimeRange { start_ms: 1500, end_ms: i64::MAX });
        assert_eq!(params.limit, Some(3));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let check = |query: &str, expect: &str| {
            let refusal = Params::parse(query, b"").expect_err(query);
            assert_eq!(refusal.status, 400);
            assert!(refusal.text.starts_with(expect), "{}", refusal.text);
        };
        check("match[]=%7B", "invalid parameter \"match[]\": 1:2: parse error");
        check("start=x", "invalid parameter \"start\": cannot parse \"x\" to a valid timestamp");
        check("limit=-1", "invalid parameter \"limit\"");
        check(&"match[]=a&".repeat(65), "more than 64 match[] parameters");
    }
}
