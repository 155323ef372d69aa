//! How a page is asked for and answered: HTML or JSON, off the runtime's threads, errors in
//! plain text.

use std::sync::Arc;

use askama::Template;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, FromRequest as _, Query, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::{Pages, Sources, policy};

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// Whether the asker wants JSON; browsers do not name it.
pub(super) fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).map(HeaderValue::as_bytes).unwrap_or_default();
    String::from_utf8_lossy(accept).contains("json")
}

/// Makes a page on a blocking thread: one of many tenants or tokens takes its time.
pub(super) async fn page(
    pages: Pages,
    make: impl FnOnce(&Sources) -> Response + Send + 'static,
) -> Response {
    let Pages { sources, site } = pages;
    made(site.permits(), move || make(&sources)).await
}

/// The same from whatever `make` holds.
pub(super) async fn made(
    permits: Arc<Semaphore>,
    make: impl FnOnce() -> Response + Send + 'static,
) -> Response {
    let Ok(permit) = permits.acquire_owned().await else {
        return error(503, "stopping");
    };
    let made = tokio::task::spawn_blocking(move || {
        let response = make();
        // With the call: who gave up waiting does not free the thread.
        drop(permit);
        response
    });
    made.await.unwrap_or_else(|_| error(500, "the page could not be made"))
}

/// One struct, shown or told.
pub(super) fn either<T: Template + Serialize>(json: bool, page: &T) -> Response {
    if json { told(JSON, page, "") } else { shown(page) }
}

pub(super) fn shown(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => {
            let mut response = with_type(StatusCode::OK, HTML, text);
            policy::put(response.headers_mut());
            response
        }
        Err(failure) => error(500, &failure.to_string()),
    }
}

/// `end` follows the JSON: some of Cortex's pages end with a line break.
pub(super) fn told(content_type: &'static str, page: &impl Serialize, end: &str) -> Response {
    match serde_json::to_string(page) {
        Ok(text) => with_type(StatusCode::OK, content_type, text + end),
        Err(failure) => error(500, &failure.to_string()),
    }
}

pub(super) fn with_type(status: StatusCode, content_type: &'static str, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}

/// As Go's `http.Error` words it.
pub(super) fn error(status: u16, text: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = with_type(status, TEXT, format!("{text}\n"));
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// The host that a request is for, with its port: HTTP/2 has it in the target, and HTTP/1.1 may,
/// where it counts before the header. One that is no text is no host's.
pub(super) fn host<B>(request: &http::Request<B>) -> Option<&str> {
    match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => {
            let host = request.headers().get(header::HOST)?;
            Some(host.to_str().unwrap_or_default())
        }
    }
}

/// A browser tells when another site made it send a request; no other site has a say here.
pub(super) fn is_from_other_site<B>(request: &http::Request<B>) -> bool {
    let headers = request.headers();
    let fetched = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    // Over plain HTTP browsers leave that header out; a form's origin they do send.
    let host = host(request);
    let origin = headers.get("origin").map(|origin| origin.to_str().unwrap_or_default());
    let from_elsewhere = origin.is_some_and(|origin| {
        let named = origin.split_once("://").map(|(_, named)| named);
        named.is_none() || named != host
    });
    fetched || from_elsewhere
}

pub(super) fn refused_to_other_site() -> Response {
    error(403, "this request was made by another site's page")
}

/// All fields of the form, then those of the query, whose first of a name is Go's `FormValue`.
pub(super) async fn form_pairs(request: Request) -> Result<Vec<(String, String)>, Response> {
    type Pairs = Vec<(String, String)>;
    let bad = |why: String| error(400, &format!("failed to parse the form: {why}"));
    let unread = |rejection: FormRejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => error(413, "the form is larger than this page takes"),
        _ => bad(rejection.body_text()),
    };
    let Query(query) =
        Query::<Pairs>::try_from_uri(request.uri()).map_err(|e| bad(e.body_text()))?;
    let is_form = request.headers().get(header::CONTENT_TYPE).is_some_and(|content_type| {
        content_type.as_bytes().starts_with(b"application/x-www-form-urlencoded")
    });
    let mut pairs = Pairs::new();
    if request.method() == Method::POST && is_form {
        let Form(form) = Form::<Pairs>::from_request(request, &()).await.map_err(unread)?;
        pairs = form;
    }
    pairs.extend(query);
    Ok(pairs)
}

pub(super) fn first(pairs: &[(String, String)], name: &str) -> Option<String> {
    pairs.iter().find(|(have, _)| have == name).map(|(_, value)| value.clone())
}

/// A text as part of a query: all but letters, digits and `-._~` as bytes.
pub(super) fn in_query(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_of_another_site_is_known_by_what_browsers_send() {
        let check_at = |target: &'static str, headers: &[(&str, &str)], is_foreign: bool| {
            let mut request = http::Request::post(target);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(()).expect("a request");
            assert_eq!(is_from_other_site(&request), is_foreign, "{target} {headers:?}");
        };
        let check = |headers: &[(&str, &str)], is_foreign| check_at("/", headers, is_foreign);
        check(&[("host", "h:8080")], false);
        check(&[("host", "h:8080"), ("origin", "http://h:8080")], false);
        check(&[("host", "h:8080"), ("origin", "http://evil.example")], true);
        check(&[("host", "h:8080"), ("origin", "null")], true);
        check(&[("host", "h:8080"), ("sec-fetch-site", "cross-site")], true);
        // As HTTP/2 has it, which browsers speak with every TLS listener.
        let http2 = "https://h:8080/ring";
        check_at(http2, &[("origin", "https://h:8080"), ("sec-fetch-site", "same-origin")], false);
        check_at(http2, &[("origin", "https://evil.example")], true);
    }

    #[test]
    fn a_text_survives_in_links() {
        assert_eq!(in_query("a-b_c.d~ &\"é"), "a-b_c.d~%20%26%22%C3%A9");
    }
}
