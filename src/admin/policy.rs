//! What a browser may do with a page: run the one script and use the one style sheet that are in
//! it, send forms to where it came from, and nothing else.
//!
//! Both are in the page itself, so that it needs no other request and works below any path; they
//! are allowed by their digests, so that nothing else that got into a page is.

use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// As the layout takes them in.
const STYLE: &str = include_str!("templates/style.css");
const SCRIPT: &str = include_str!("templates/page.js");

static CONTENT_SECURITY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let digest = |text: &str| STANDARD.encode(Sha256::digest(format!("\n{text}\n")));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
         form-action 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'",
        digest(STYLE.trim_end()),
        digest(SCRIPT.trim_end()),
    );
    HeaderValue::from_str(&policy).expect("digests and fixed words are ASCII")
});

/// On every page, whatever its listener.
pub(super) fn put(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY.clone());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use askama::Template as _;

    use super::*;
    use crate::admin::services::ServicesPage;

    /// A digest that does not fit would leave pages bare in browsers, and nowhere else.
    #[test]
    fn the_digests_are_of_what_stands_in_a_page() {
        let page = ServicesPage::default().render().expect("a page");
        let inside = |open: &str, close: &str| {
            let (_, rest) = page.split_once(open).expect("its start");
            rest.split_once(close).expect("its end").0
        };
        let mut headers = HeaderMap::new();
        put(&mut headers);
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().expect("ASCII");
        for text in [inside("<style>", "</style>"), inside("<script>", "</script>")] {
            let digest = STANDARD.encode(Sha256::digest(text));
            assert!(policy.contains(&format!("'sha256-{digest}'")), "{policy}\n{text:?}");
        }
        assert!(!policy.contains("unsafe"));
    }
}
