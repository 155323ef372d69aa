//! Who may come to the admin listener, and what each of its answers carries.
//!
//! Without a credential asked for, the listener is for those who reach its address. A browser
//! reaches it on behalf of any site that has its name resolve to that address, so then the host
//! that is asked for has to be an address or this machine, which no other site is.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::config::AdminConfig;
use super::site::Site;
use super::writes::{self, Credential};
use super::{answer, policy};
use crate::clock::{Clock, Now};
use crate::sync::Mutex;
use crate::tls::PeerCertificate;

/// Longest token; a file that is longer is the wrong file.
const TOKEN_BYTES_MAX: u64 = 4 << 10;
/// Shortest token. What is shorter is guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// How often the file is read again, at most, while somebody comes.
const REREAD_PERIOD: Duration = Duration::from_secs(1);

/// Why `-admin.bearer-token-file` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} has {bytes} bytes without its line end; a token has at least {TOKEN_BYTES_MIN} and at most {TOKEN_BYTES_MAX}", path.display())]
    Length { path: PathBuf, bytes: u64 },
    #[error("{} holds what no header can carry", path.display())]
    NoText { path: PathBuf },
}

/// Whether the token can be read, before anything is started.
pub fn check(config: &AdminConfig) -> Result<(), TokenError> {
    match config.bearer_token_file.as_os_str().is_empty() {
        true => Ok(()),
        false => read(&config.bearer_token_file).map(drop),
    }
}

/// What is asked of those who come.
pub struct Access {
    token: Option<Token>,
    /// Somebody is asked for something.
    asks: bool,
    clock: Clock,
    site: Site,
}

struct Token {
    path: PathBuf,
    known: Mutex<Known>,
}

struct Known {
    token: String,
    /// By the clock that never goes back.
    read_at_ns: i64,
}

impl Access {
    pub fn new(config: &AdminConfig, site: Site, clock: Clock) -> Result<Self, TokenError> {
        let path = &config.bearer_token_file;
        let token = match path.as_os_str().is_empty() {
            true => None,
            false => Some(Token::read(path.clone(), clock.now())?),
        };
        Ok(Self { token, asks: config.asks(), clock, site })
    }

    /// Before all routes of the listener.
    pub fn before(self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(Arc::new(self), let_in))
    }

    fn credential(&self, request: &Request) -> Found {
        if let Some(token) = &self.token {
            return match shown(request.headers()) {
                Some((shown, credential)) if token.is(&shown, self.clock.now()) => {
                    Found::Come(credential)
                }
                Some(_) => Found::Wrong,
                None => Found::Missing,
            };
        }
        match request.extensions().get::<PeerCertificate>() {
            Some(certificate) => {
                Found::Come(Credential::Certificate { digest: certificate.to_string() })
            }
            None if self.asks || answer::host(request).is_none_or(names_this_machine) => {
                Found::Come(Credential::None)
            }
            None => Found::StrangeHost,
        }
    }
}

enum Found {
    Come(Credential),
    Missing,
    Wrong,
    StrangeHost,
}

async fn let_in(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    let mut response = match access.credential(&request) {
        Found::Come(credential) => {
            request.extensions_mut().insert(credential);
            let mut response = next.run(request).await;
            if let Ok(token) = HeaderValue::from_str(&access.site.csrf_token()) {
                response.headers_mut().insert(writes::HEADER, token);
            }
            response
        }
        Found::Missing => asking(
            "show the token of -admin.bearer-token-file, as Authorization: \
                                  Bearer or as a password",
        ),
        Found::Wrong => asking("this is not the token of -admin.bearer-token-file"),
        Found::StrangeHost => answer::error(
            403,
            "come by an address or as localhost: without -admin.bearer-token-file another name \
             could be another site's",
        ),
    };
    if !response.headers().contains_key(header::CONTENT_SECURITY_POLICY) {
        policy::put(response.headers_mut());
    }
    response
}

/// A browser then asks its user.
fn asking(text: &str) -> Response {
    let mut response = answer::error(401, text);
    let ask = HeaderValue::from_static("Basic realm=\"Freehold\", charset=\"UTF-8\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
    response
}

/// The token that a request shows, and how.
fn shown(headers: &HeaderMap) -> Option<(String, Credential)> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = text.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some((rest.trim().to_owned(), Credential::Bearer));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    Some((password.to_owned(), Credential::Password { user: user.to_owned() }))
}

/// Whether a host, with a port or without, is an address, or a name that means this machine
/// everywhere. A request that names none, as HTTP/1.0 may, is no browser's.
fn names_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    // Behind an address in brackets the parser takes anything.
    let Some(rest) = host.strip_prefix(authority.host()) else { return false };
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if !rest.is_empty() && !rest.strip_prefix(':').is_some_and(digits) {
        return false;
    }
    let bare = authority.host().trim_start_matches('[').trim_end_matches(']');
    bare.parse::<std::net::IpAddr>().is_ok()
        || bare.eq_ignore_ascii_case("localhost")
        || bare.to_ascii_lowercase().ends_with(".localhost")
}

impl Token {
    fn read(path: PathBuf, now: Now) -> Result<Self, TokenError> {
        let token = read(&path)?;
        let known = Mutex::new(Known { token, read_at_ns: now.steady_ns });
        Ok(Self { path, known })
    }

    /// Whether this is the token, of the file as it is now.
    fn is(&self, shown: &str, now: Now) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = now.steady_ns - known.read_at_ns >= REREAD_PERIOD.as_nanos() as i64;
        if is_due {
            known.read_at_ns = now.steady_ns;
            match read(&self.path) {
                Ok(token) => known.token = token,
                // The old one stays: an editor may be at work on the file.
                Err(error) => tracing::warn!(%error, "the admin token was not read again"),
            }
        }
        writes::is_same(shown, &known.token)
    }
}

fn read(path: &PathBuf) -> Result<String, TokenError> {
    use std::io::Read as _;
    let unreadable = |source| TokenError::Unreadable { path: path.clone(), source };
    let mut text = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(TOKEN_BYTES_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
    let text = String::from_utf8(text).map_err(|_| TokenError::NoText { path: path.clone() })?;
    let token = text.trim_end_matches(['\r', '\n']);
    let bytes = token.len() as u64;
    if token.len() < TOKEN_BYTES_MIN || bytes > TOKEN_BYTES_MAX {
        return Err(TokenError::Length { path: path.clone(), bytes });
    }
    match HeaderValue::from_str(token) {
        Ok(_) => Ok(token.to_owned()),
        Err(_) => Err(TokenError::NoText { path: path.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    #[test]
    fn without_a_credential_only_addresses_and_localhost_are_hosts() {
        let check = |host: &str, is_ours: bool| {
            assert_eq!(names_this_machine(host), is_ours, "{host}");
        };
        for host in ["127.0.0.1:8081", "10.0.0.7", "[::1]:8081", "localhost:8081", "LocalHost"] {
            check(host, true);
        }
        for host in ["evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            check(host, false);
        }
        for host in ["[::1]evil.example", "localhost@evil.example", "127.0.0.1:80:evil.example"] {
            check(host, false);
        }
    }

    /// HTTP/2 has the host in its target and no header for it, and so may HTTP/1.1.
    #[tokio::test]
    async fn the_host_of_the_target_counts_before_that_of_the_header() {
        let clock = Clock::start();
        let access = Access { token: None, asks: false, clock, site: Site::of_admin() };
        let router = access.before(Router::new().route("/", axum::routing::get(async || "page")));
        let status = async |target: &str, host: Option<HeaderValue>| {
            let mut request = Request::new(axum::body::Body::empty());
            *request.uri_mut() = target.parse().expect("a target");
            if let Some(host) = host {
                request.headers_mut().insert(header::HOST, host);
            }
            let answered = tower::ServiceExt::oneshot(router.clone(), request).await;
            answered.expect("infallible").status().as_u16()
        };
        let ours = Some(HeaderValue::from_static("localhost:8081"));
        assert_eq!(status("/", ours.clone()).await, 200);
        assert_eq!(status("http://127.0.0.1:8081/", None).await, 200);
        assert_eq!(status("http://evil.example:8081/", None).await, 403);
        assert_eq!(status("http://evil.example:8081/", ours).await, 403);
        let no_text = HeaderValue::from_bytes(b"local\xffhost").expect("opaque");
        assert_eq!(status("/", Some(no_text)).await, 403);
    }

    #[test]
    fn a_token_is_shown_in_two_ways() {
        let as_bearer = shown(&headers(&[("authorization", "Bearer abc")])).expect("shown");
        assert_eq!(as_bearer, ("abc".to_owned(), Credential::Bearer));
        let basic = format!("Basic {}", STANDARD.encode("ops:a:c"));
        let as_password = shown(&headers(&[("authorization", &basic)])).expect("shown");
        assert_eq!(
            as_password,
            ("a:c".to_owned(), Credential::Password { user: "ops".to_owned() })
        );
        for strange in ["Bearer", "Digest x", "Basic !!!", "Basic YQ=="] {
            assert_eq!(shown(&headers(&[("authorization", strange)])), None, "{strange}");
        }
    }

    #[test]
    fn a_token_of_a_changed_file_is_taken_and_a_bad_file_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        let at = |ms: i64| Now { unix_ms: 0, steady_ns: ms * 1_000_000 };
        write("short\n");
        let short = Token::read(path.clone(), at(0));
        assert!(matches!(short, Err(TokenError::Length { bytes: 5, .. })));
        write("a-token-of-some-length\n");
        let token = Token::read(path.clone(), at(0)).expect("a token");
        assert!(token.is("a-token-of-some-length", at(1)));
        assert!(!token.is("another-token-of-it", at(1)));
        write("another-token-of-it\n");
        assert!(token.is("a-token-of-some-length", at(999)), "for a second at most");
        assert!(!token.is("a-token-of-some-length", at(1000)), "it is withdrawn");
        assert!(token.is("another-token-of-it", at(1001)));
        write("x");
        assert!(token.is("another-token-of-it", at(2000)), "a file at work keeps the old one");
        assert!(Token::read(dir.path().join("none"), at(0)).is_err());
    }
}
