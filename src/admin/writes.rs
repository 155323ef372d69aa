//! Requests that change something: what they have to show, and who is behind them.
//!
//! A browser sends what any site's page tells it to, with the credentials it holds. So a form
//! carries a token that only our own pages know, and a request without it is refused, unless
//! nobody but its sender can have made it: one with a bearer token, which browsers never add by
//! themselves, or, where Cortex's scripts come, one that no browser sent.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use sha2::{Digest as _, Sha256};

use super::answer;
use crate::clock::Clock;
use crate::ratelimit::LogLines;

/// The field of a form, and the header, that carry the token.
pub(super) const FIELD: &str = "csrf";
pub const HEADER: &str = "x-csrf-token";

/// What a request without a token may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Anything that no browser has sent.
    AsCortex,
    /// Only one whose sender has shown a bearer token.
    Token,
}

#[derive(Clone)]
pub(super) struct Writes {
    rule: Rule,
    token: Arc<str>,
    clock: Clock,
    /// Locked for a look at a bucket.
    refusals: Arc<Mutex<LogLines>>,
}

/// Who has come in, and by what; `access` puts it on each request of the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// Nothing was asked for.
    None,
    Bearer,
    /// The bearer token as the password of this user: how a browser can be asked for it.
    Password {
        user: String,
    },
    /// The first bytes of its SHA-256, in hex.
    Certificate {
        digest: String,
    },
}

/// Who changes something, for the log.
#[derive(Clone, Debug)]
pub(super) struct Who {
    address: Option<SocketAddr>,
    credential: Credential,
}

impl Writes {
    pub(super) fn new(rule: Rule, token: Arc<str>) -> Self {
        Self { rule, token, clock: Clock::start(), refusals: Arc::default() }
    }

    pub(super) fn token(&self) -> Arc<str> {
        Arc::clone(&self.token)
    }

    pub(super) fn rule(&self) -> Rule {
        self.rule
    }

    /// The fields `names` of a request that changes something, once it has shown what it must.
    pub(super) async fn form<const N: usize>(
        &self,
        request: Request,
        names: [&str; N],
    ) -> Result<([Option<String>; N], Who), Response> {
        if answer::is_from_other_site(&request) {
            return Err(answer::refused_to_other_site());
        }
        let who = Who::of(&request);
        let headers = request.headers();
        let shown = headers.get(HEADER).and_then(|token| token.to_str().ok()).map(str::to_owned);
        let is_excused = match self.rule {
            Rule::Token => who.credential == Credential::Bearer,
            Rule::AsCortex => !is_from_browser(headers, request.method()),
        };
        let mut pairs = answer::form_pairs(request).await?;
        let shown = shown.or_else(|| answer::first(&pairs, FIELD));
        let is_ours = shown.is_some_and(|token| is_same(&token, &self.token));
        if !is_ours && !is_excused {
            self.tell_refusal(&who);
            let text = "this form is not from a page of this process, or from before its restart; \
                        load the page again. Scripts take the header x-csrf-token of any page's \
                        answer, and send it back";
            return Err(answer::error(403, text));
        }
        pairs.retain(|(name, _)| name != FIELD);
        Ok((names.map(|name| answer::first(&pairs, name)), who))
    }

    /// Where Cortex's scripts come, so may strangers, as often as they like.
    fn tell_refusal(&self, who: &Who) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = refusals.take(self.clock.steady_ns());
        drop(refusals);
        if let Some(untold) = taken {
            tracing::warn!(%who, untold, "a request to change something came without its token");
        }
    }
}

impl Who {
    fn of(request: &Request) -> Self {
        let extensions = request.extensions();
        Self {
            address: extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| *peer),
            credential: extensions.get().cloned().unwrap_or(Credential::None),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}")?,
            None => f.write_str("no address")?,
        }
        match &self.credential {
            Credential::None => Ok(()),
            Credential::Bearer => f.write_str(" with the bearer token"),
            Credential::Password { user } => write!(f, " with the bearer token, as {user:?}"),
            Credential::Certificate { digest } => write!(f, " with certificate {digest}"),
        }
    }
}

/// Whether a browser sent this, on behalf of whomever. One that says that its user typed the
/// address himself is no form of another site.
fn is_from_browser(headers: &HeaderMap, method: &Method) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if *method == Method::GET && text("sec-fetch-site") == Some("none") {
        return false;
    }
    let tells = ["sec-fetch-site", "origin", "referer", "cookie"];
    tells.iter().any(|name| headers.contains_key(*name))
        || text("user-agent").is_some_and(|agent| agent.starts_with("Mozilla/"))
}

/// By their digests, so that the time it takes tells nothing of how much was right.
pub(super) fn is_same(shown: &str, secret: &str) -> bool {
    Sha256::digest(shown) == Sha256::digest(secret)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    const OURS: &str = "0123";

    async fn status(rule: Rule, request: http::request::Builder, body: &'static str) -> u16 {
        let writes = Writes::new(rule, OURS.into());
        let request = request
            .method("POST")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(body))
            .expect("a request");
        match writes.form(request, ["forget"]).await {
            Ok(([forget], _)) => {
                assert_eq!(forget.as_deref(), Some("a"));
                200
            }
            Err(response) => response.status().as_u16(),
        }
    }

    fn request() -> http::request::Builder {
        http::Request::builder().uri("/ring").header("host", "h")
    }

    #[tokio::test]
    async fn what_changes_something_needs_the_token() {
        assert_eq!(status(Rule::Token, request(), "forget=a").await, 403);
        assert_eq!(status(Rule::Token, request(), "forget=a&csrf=9999").await, 403);
        assert_eq!(status(Rule::Token, request(), "forget=a&csrf=").await, 403);
        assert_eq!(status(Rule::Token, request(), "forget=a&csrf=0123").await, 200);
        assert_eq!(status(Rule::Token, request().header(HEADER, OURS), "forget=a").await, 200);
        let foreign = request().header("origin", "http://evil.example");
        assert_eq!(status(Rule::Token, foreign, "forget=a&csrf=0123").await, 403);
    }

    #[tokio::test]
    async fn a_bearer_token_is_proof_enough_and_a_password_is_not() {
        let bearer = request().extension(Credential::Bearer);
        assert_eq!(status(Rule::Token, bearer, "forget=a").await, 200);
        let password = request().extension(Credential::Password { user: "ops".into() });
        assert_eq!(status(Rule::Token, password, "forget=a").await, 403);
        let certificate = request().extension(Credential::Certificate { digest: "ab".into() });
        assert_eq!(status(Rule::Token, certificate, "forget=a").await, 403);
    }

    #[tokio::test]
    async fn scripts_of_cortex_need_none_and_browsers_do() {
        let curl = || request().header("user-agent", "curl/8.5.0");
        assert_eq!(status(Rule::AsCortex, curl(), "forget=a").await, 200);
        assert_eq!(status(Rule::Token, curl(), "forget=a").await, 403);
        let browser = || request().header("user-agent", "Mozilla/5.0 (X11)");
        assert_eq!(status(Rule::AsCortex, browser(), "forget=a").await, 403);
        assert_eq!(status(Rule::AsCortex, browser(), "forget=a&csrf=0123").await, 200);
        let quiet = request().header("origin", "http://h");
        assert_eq!(status(Rule::AsCortex, quiet, "forget=a").await, 403);
    }

    #[test]
    fn who_is_told_with_address_and_credential() {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711))));
        request.extensions_mut().insert(Credential::Password { user: "o\"p".into() });
        assert_eq!(
            Who::of(&request).to_string(),
            r#"10.0.0.1:4711 with the bearer token, as "o\"p""#
        );
    }
}
