//! Which headers of a message go on, and which spoke of the one connection that it came by.

use http::HeaderMap;
use http::header::{self, HeaderName};

/// Names that the protocol itself ties to one connection (RFC 9110, 7.6.1), and those that older
/// senders use so. `Expect` is answered by who takes the body, which is us. `Trailer` is none of
/// them: it speaks of the message.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
];

/// Speak of the message whatever `Connection` says: a sender that names them would have another
/// tenant's, nobody's, or an unreadable request go on.
const NEVER_HOP_BY_HOP: [&str; 5] =
    ["authorization", "content-encoding", "content-length", "content-type", "x-scope-orgid"];

/// Headers without those of one connection, named by `Connection` or by the protocol.
pub(super) fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !NEVER_HOP_BY_HOP.contains(&name.as_str()))
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn headers_of_one_connection_do_not_go_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", &b"X-Once, keep-alive, \xff, x y"[..]),
            ("connection", b"X-Twice, X-Scope-OrgID, Content-Encoding"),
            ("x-once", b"a"),
            ("x-twice", b"a"),
            ("keep-alive", b"5"),
            ("proxy-connection", b"close"),
            ("transfer-encoding", b"chunked"),
            ("te", b"trailers"),
            ("expect", b"100-continue"),
            ("upgrade", b"websocket"),
            ("content-length", b"5"),
            ("trailer", b"x-sum"),
            ("content-encoding", b"snappy"),
            ("x-scope-orgid", b"a"),
        ] {
            headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
        }
        let kept = end_to_end(headers);
        let mut names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-encoding", "content-length", "trailer", "x-scope-orgid"]);
    }
}
