//! What is asked: whose query it is, which of the API's, and what tells it from others.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::tenant::{ClientId, TenantId};
use crate::trail::Trail;
use crate::upstream::queries::Query;

/// Headers that are another with each request and change no answer: names of traces, and what
/// proxies note of a request's way.
const NOT_ASKED: [&str; 15] = [
    "traceparent",
    "tracestate",
    "baggage",
    "b3",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "uber-trace-id",
    "x-request-id",
    "x-forwarded-for",
    "x-real-ip",
    "forwarded",
    "via",
    "x-amzn-trace-id",
];

/// SHA-256 of all that makes an answer: two queries of one key are the same query, and nobody can
/// write one that has another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueryKey(pub [u8; 32]);

/// Which of the API's calls it is, as far as that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Instant,
    Range,
    /// Its body is no form, and its answer may be any length.
    RemoteRead,
    Other,
}

/// A query as it came.
pub struct Asked {
    pub tenant: TenantId,
    pub client: Option<ClientId>,
    pub call: Call,
    /// Others may have its answer.
    may_share: bool,
    pub words: Words,
    pub query: Query,
    /// A header of ours that goes with it to those behind us. It tells no two queries apart.
    pub own_header: Option<(String, String)>,
    /// What it is called, and the span over it.
    pub trail: Trail,
}

/// What it says in words; cheap to keep until somebody wants to know.
#[derive(Clone, Debug, Default)]
pub struct Words {
    path: String,
    parameters: String,
    form: Bytes,
    dashboard: Option<String>,
    panel: Option<String>,
}

/// The words that a log line tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub query: String,
    pub start: String,
    pub end: String,
    pub time: String,
    pub step: String,
}

impl Asked {
    /// `query` is without the header that names its client: it may not tell two queries apart.
    pub fn new(tenant: TenantId, client: Option<ClientId>, query: Query) -> Self {
        let call = call(query.path());
        let is_form = query.body_bytes().is_some();
        let text = |name: &str| query.header(name).map(str::to_owned);
        let words = Words {
            path: query.path().to_owned(),
            parameters: query.query().unwrap_or_default().to_owned(),
            form: query.body_bytes().cloned().unwrap_or_default(),
            dashboard: text("x-dashboard-uid"),
            panel: text("x-panel-id"),
        };
        let may_share = is_form
            && call != Call::RemoteRead
            && matches!(query.method(), "GET" | "POST")
            && !is_to_be_fresh(&query);
        Self {
            tenant,
            client,
            call,
            may_share,
            words,
            query,
            own_header: None,
            trail: Trail::default(),
        }
    }

    /// Equal where the same is asked; `None` where the answer is for this request alone. A form of
    /// a megabyte takes a millisecond, so whoever is refused is to be refused before.
    pub fn key(&self) -> Option<QueryKey> {
        self.may_share.then(|| key(&self.tenant, &self.query))
    }

    /// What a refresh of the same panel asks, too: without the range, which moves on.
    pub fn shape(&self) -> QueryKey {
        let mut hash = Sha256::new();
        put(&mut hash, self.tenant.as_str().as_bytes());
        put(&mut hash, self.words.path.as_bytes());
        for (name, value) in self.words.pairs() {
            if !matches!(&*name, "start" | "end" | "time") {
                put(&mut hash, name.as_bytes());
                put(&mut hash, value.as_bytes());
            }
        }
        QueryKey(hash.finalize().into())
    }
}

impl Words {
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn dashboard(&self) -> Option<&str> {
        self.dashboard.as_deref()
    }

    pub fn panel(&self) -> Option<&str> {
        self.panel.as_deref()
    }

    /// The first value of each word, as Go reads a form: the body's before the address's.
    pub fn told(&self) -> Told {
        let mut told = Told::default();
        for (name, value) in self.pairs() {
            let word = match &*name {
                "query" => &mut told.query,
                "start" => &mut told.start,
                "end" => &mut told.end,
                "time" => &mut told.time,
                "step" => &mut told.step,
                _ => continue,
            };
            if word.is_empty() {
                *word = value.into_owned();
            }
        }
        told
    }

    fn pairs(
        &self,
    ) -> impl Iterator<Item = (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)> {
        let body = form_urlencoded::parse(&self.form);
        body.chain(form_urlencoded::parse(self.parameters.as_bytes()))
    }
}

fn call(path: &str) -> Call {
    // The prefix is the gate's own business, and says nothing.
    match path.split_once("/api/v1/").map(|(_, call)| call) {
        Some("query_range") => Call::Range,
        Some("query") => Call::Instant,
        Some("read") => Call::RemoteRead,
        _ => Call::Other,
    }
}

/// Whoever asks for an answer that nobody has kept wants one of its own.
fn is_to_be_fresh(query: &Query) -> bool {
    let control = query.header("cache-control").unwrap_or_default().to_ascii_lowercase();
    control.contains("no-store") || control.contains("no-cache")
}

fn key(tenant: &TenantId, query: &Query) -> QueryKey {
    let mut hash = Sha256::new();
    put(&mut hash, tenant.as_str().as_bytes());
    for part in [query.method(), query.path(), query.query().unwrap_or_default()] {
        put(&mut hash, part.as_bytes());
    }
    put(&mut hash, query.body_bytes().map_or(&[], |body| &body[..]));
    let mut lines: Vec<_> =
        query.header_lines().filter(|(name, _)| !NOT_ASKED.contains(name)).collect();
    // Lines of one name keep their order, which may matter.
    lines.sort_by_key(|(name, _)| *name);
    for (name, value) in lines {
        put(&mut hash, name.as_bytes());
        put(&mut hash, value);
    }
    QueryKey(hash.finalize().into())
}

/// With its length before it, so that no two lists of parts give the same bytes.
fn put(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(method: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> Query {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, body) = request.body(Bytes::from(body.to_owned())).expect("fits").into_parts();
        Query::with_bytes(head, body).expect("goes on")
    }

    fn asked(method: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> Asked {
        let tenant = TenantId::parse("a").expect("a tenant");
        Asked::new(tenant, None, query(method, uri, headers, body))
    }

    #[test]
    fn the_prefix_says_nothing_of_the_call() {
        let check = |uri, expect| assert_eq!(asked("GET", uri, &[], "").call, expect, "{uri}");
        check("/prometheus/api/v1/query_range?query=up", Call::Range);
        check("/api/v1/query", Call::Instant);
        check("/a/api/v1/read", Call::RemoteRead);
        check("/api/v1/query_range/more", Call::Other);
        check("/api/v1/label/query/values", Call::Other);
    }

    #[test]
    fn only_the_same_has_the_same_key() {
        let uri = "/api/v1/query?query=up";
        let base = asked("GET", uri, &[("accept-encoding", "gzip")], "").key().expect("shared");
        let trace = [("traceparent", "00-1"), ("accept-encoding", "gzip"), ("via", "1.1 a")];
        assert_eq!(asked("GET", uri, &trace, "").key(), Some(base));
        for (method, uri, headers, body) in [
            ("GET", "/api/v1/query?query=up&time=1", &[("accept-encoding", "gzip")][..], ""),
            ("GET", uri, &[("accept-encoding", "br")], ""),
            ("GET", uri, &[], ""),
            ("POST", uri, &[("accept-encoding", "gzip")], ""),
            ("POST", "/api/v1/query", &[("accept-encoding", "gzip")], "query=up"),
        ] {
            let other = asked(method, uri, headers, body).key().expect("shared");
            assert_ne!(other, base, "{method} {uri} {headers:?} {body}");
        }
        let other = Asked::new(
            TenantId::parse("b").expect("a tenant"),
            None,
            query("GET", uri, &[("accept-encoding", "gzip")], ""),
        );
        assert_ne!(other.key(), Some(base));
        for (method, uri, headers) in [
            ("GET", uri, &[("cache-control", "No-Store")][..]),
            ("GET", uri, &[("cache-control", "max-age=0, no-cache")]),
            ("DELETE", uri, &[]),
            ("POST", "/api/v1/read", &[]),
        ] {
            assert_eq!(asked(method, uri, headers, "").key(), None, "{method} {uri} {headers:?}");
        }
    }

    #[test]
    fn a_refresh_has_the_shape_of_the_query_before() {
        let shape =
            |query: &str| asked("GET", &format!("/api/v1/query_range?{query}"), &[], "").shape();
        let base = shape("query=up&start=1&end=2&step=15");
        assert_eq!(shape("query=up&start=16&end=17&step=15"), base);
        assert_ne!(shape("query=up&start=1&end=2&step=30"), base);
        assert_ne!(shape("query=down&start=1&end=2&step=15"), base);
        let form = asked("POST", "/api/v1/query_range", &[], "query=up&start=5&step=15").shape();
        assert_eq!(form, base, "how it is sent does not matter");
    }

    #[test]
    fn its_words_are_read_as_go_reads_a_form() {
        let headers = [("x-dashboard-uid", "d1"), ("x-panel-id", "7")];
        let uri = "/api/v1/query_range?query=address&step=15&unknown=x";
        let words = asked("POST", uri, &headers, "query=sum%28a%20%2B+b%29&start=1").words;
        let told = words.told();
        assert_eq!((told.query.as_str(), told.start.as_str()), ("sum(a + b)", "1"));
        assert_eq!((told.step.as_str(), told.end.as_str()), ("15", ""));
        assert_eq!((words.dashboard(), words.panel()), (Some("d1"), Some("7")));
    }
}
