//! A query on its way: what goes on of a request, as one value that services may hold.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Version};
use http_body::Body;

use super::body::QueryBody;
use crate::upstream::end_to_end::end_to_end;
use crate::upstream::{BodyError, percent_decoded};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// A request as it goes on: method, path and query, the headers that speak of it and not of the
/// connection it came by, and a body that is held whole or streams through.
#[derive(Debug)]
pub struct Query {
    pub(super) method: Method,
    pub(super) target: PathAndQuery,
    pub(super) headers: HeaderMap,
    pub(super) body: QueryBody,
    /// To ask twice does no more than to ask once.
    pub(super) is_repeatable: bool,
    /// The version it came in, for `Via`.
    pub(super) version: Version,
}

/// Why a request does not go on at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproxied {
    /// A tunnel, or an echo of what went over the wire.
    #[error("the method cannot be sent on")]
    Method,
    /// Whoever resolves it may come to another place than we looked at.
    #[error("the path has a segment of dots")]
    Dots,
    /// A server that asks for all of itself (`*`), or for a tunnel's end.
    #[error("the target is no path")]
    Target,
}

impl Unproxied {
    /// The HTTP status that says so.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::Target | Self::Dots => 400,
        }
    }
}

impl Query {
    /// A request whose body has been read.
    pub fn with_bytes(head: Parts, body: Bytes) -> Result<Self, Unproxied> {
        Self::new(head, QueryBody::Whole(body))
    }

    /// A request whose body streams through while it is sent.
    pub fn streaming<B>(head: Parts, body: B) -> Result<Self, Unproxied>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        let body = match body.is_end_stream() {
            true => QueryBody::Whole(Bytes::new()),
            false => QueryBody::stream(body),
        };
        Self::new(head, body)
    }

    /// A question of our own; none where that is no path.
    pub fn get(path_and_query: &str) -> Option<Self> {
        let target = path_and_query.parse().ok().filter(|_| path_and_query.starts_with('/'))?;
        Some(Self {
            method: Method::GET,
            target,
            headers: HeaderMap::new(),
            body: QueryBody::Whole(Bytes::new()),
            is_repeatable: true,
            version: Version::HTTP_11,
        })
    }

    /// As a request again, for whoever answers in this process; a body that was sent is not there.
    pub fn into_request(self) -> http::Request<impl Body<Data = Bytes, Error = BodyError>> {
        let mut request = http::Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.target.into();
        *request.headers_mut() = self.headers;
        request
    }

    fn new(head: Parts, body: QueryBody) -> Result<Self, Unproxied> {
        if matches!(head.method, Method::CONNECT | Method::TRACE) {
            return Err(Unproxied::Method);
        }
        let target = match head.uri.path_and_query() {
            Some(target) if target.as_str().starts_with('/') => target.clone(),
            _ => return Err(Unproxied::Target),
        };
        if has_dots(target.path()) {
            return Err(Unproxied::Dots);
        }
        let host = match head.uri.authority() {
            Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
            None => head.headers.get(header::HOST).cloned(),
        };
        let mut headers = end_to_end(head.headers);
        // Told anew: the one is the downstream's, and the other the body's.
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        if let Some(host) = host {
            headers.entry(X_FORWARDED_HOST).or_insert(host);
        }
        let is_repeatable = head.method.is_safe();
        Ok(Self {
            method: head.method,
            target,
            headers,
            body,
            is_repeatable,
            version: head.version,
        })
    }

    /// Notes whom it came from, behind those who were noted before.
    pub fn came_from(&mut self, peer: IpAddr) {
        let before: Vec<&str> =
            self.headers.get_all(X_FORWARDED_FOR).iter().filter_map(|v| v.to_str().ok()).collect();
        let peer = match before.is_empty() {
            true => peer.to_string(),
            false => format!("{}, {peer}", before.join(", ")),
        };
        self.set(X_FORWARDED_FOR.as_str(), &peer);
    }

    /// A post that only asks, so that it may be asked again where nothing of the first time was
    /// heard; of the safe methods that is known.
    pub fn set_repeatable(&mut self) {
        self.is_repeatable = true;
    }

    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    pub fn method_is_safe(&self) -> bool {
        self.method.is_safe()
    }

    /// Still encoded.
    pub fn path(&self) -> &str {
        self.target.path()
    }

    /// What follows the question mark, still encoded.
    pub fn query(&self) -> Option<&str> {
        self.target.query()
    }

    /// Sends it to another path, with the same parameters; false where that is none.
    #[must_use]
    pub fn set_path(&mut self, path: &str) -> bool {
        let text = match self.target.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        match text.parse() {
            Ok(target) if path.starts_with('/') => {
                self.target = target;
                true
            }
            _ => false,
        }
    }

    /// The first header of that name, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// All lines of the head that go on, in no stated order.
    pub fn header_lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
    }

    /// Sets a header, once; false where name or value cannot be one, and then nothing changes.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        match (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            (Ok(name), Ok(value)) => {
                self.headers.insert(name, value);
                true
            }
            _ => false,
        }
    }

    pub fn remove(&mut self, name: &str) {
        self.headers.remove(name);
    }

    /// The body, where it is held whole.
    pub fn body_bytes(&self) -> Option<&Bytes> {
        match &self.body {
            QueryBody::Whole(bytes) => Some(bytes),
            QueryBody::Stream(_) => None,
        }
    }

    /// The same once more, where the body is held whole; that is shared, not copied.
    pub fn duplicate(&self) -> Option<Self> {
        let bytes = self.body_bytes()?.clone();
        Some(Self {
            method: self.method.clone(),
            target: self.target.clone(),
            headers: self.headers.clone(),
            body: QueryBody::Whole(bytes),
            is_repeatable: self.is_repeatable,
            version: self.version,
        })
    }
}

/// Whether a path has a segment `.` or `..`, however it is spelled.
fn has_dots(path: &str) -> bool {
    let decoded = percent_decoded(path.as_bytes());
    decoded.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn query(method: &str, uri: &str, headers: &[(&str, &str)]) -> Query {
        Query::with_bytes(parts(method, uri, headers), Bytes::new()).expect("goes on")
    }

    #[test]
    fn only_what_speaks_of_the_request_goes_on() {
        let headers = [
            ("host", "gate:80"),
            ("connection", "close, x-foo"),
            ("x-foo", "a"),
            ("content-length", "5"),
            ("accept-encoding", "gzip"),
            ("x-scope-orgid", "a"),
        ];
        let mut query = query("POST", "/api/v1/query?query=up%20", &headers);
        assert_eq!((query.path(), query.query()), ("/api/v1/query", Some("query=up%20")));
        let mut lines: Vec<_> = query.header_lines().collect();
        lines.sort_unstable();
        let expect: [(&str, &[u8]); 3] = [
            ("accept-encoding", b"gzip"),
            ("x-forwarded-host", b"gate:80"),
            ("x-scope-orgid", b"a"),
        ];
        assert_eq!(lines, expect);
        assert!(query.set("X-Scope-OrgID", "b") && query.header("x-scope-orgid") == Some("b"));
        assert!(!query.set("x-scope-orgid", "a\r\nb") && !query.set("a b", "c"));
        assert_eq!(query.header("x-scope-orgid"), Some("b"));
        assert!(query.set_path("/x/query") && !query.set_path("nowhere"));
        assert_eq!((query.path(), query.query()), ("/x/query", Some("query=up%20")));
    }

    #[test]
    fn the_host_of_an_absolute_target_counts_and_not_the_headers() {
        let query = query("GET", "http://real/a?b", &[("host", "forged")]);
        assert_eq!(query.header("x-forwarded-host"), Some("real"));
        assert_eq!((query.path(), query.query()), ("/a", Some("b")));
    }

    #[test]
    fn each_hop_is_noted_behind_those_before() {
        let mut first = query("GET", "/", &[]);
        first.came_from(IpAddr::from([10, 0, 0, 1]));
        assert_eq!(first.header("x-forwarded-for"), Some("10.0.0.1"));
        let mut later = query("GET", "/", &[("x-forwarded-for", "a, b"), ("X-Forwarded-For", "c")]);
        later.came_from("2001:db8::1".parse().expect("an address"));
        assert_eq!(later.header("x-forwarded-for"), Some("a, b, c, 2001:db8::1"));
    }

    #[test]
    fn tunnels_and_echoes_do_not_go_on() {
        let check = |method, uri, expect| {
            let outcome = Query::with_bytes(parts(method, uri, &[]), Bytes::new());
            assert_eq!(outcome.err(), expect, "{method} {uri}");
        };
        check("CONNECT", "other:443", Some(Unproxied::Method));
        check("TRACE", "/", Some(Unproxied::Method));
        check("OPTIONS", "*", Some(Unproxied::Target));
        for path in ["/a/../b", "/a/%2e%2E/b", "/a/..%2fb", "/a/.", "/a/%2e%5cb", "/.."] {
            check("GET", path, Some(Unproxied::Dots));
        }
        check("GET", "/label/a%2Fb/values", None);
        check("GET", "/...", None);
        check("GET", "/", None);
        check("DELETE", "/api/v1/series", None);
        assert!(Query::get("/api/v1/query?query=1").is_some());
        assert!(Query::get("api").is_none() && Query::get("/a b").is_none());
    }

    #[test]
    fn what_only_reads_may_be_asked_twice() {
        assert!(query("GET", "/", &[]).is_repeatable);
        let mut post = query("POST", "/", &[]);
        assert!(!post.is_repeatable && !post.method_is_safe());
        post.set_repeatable();
        assert!(post.is_repeatable && post.duplicate().expect("whole").is_repeatable);
    }
}
