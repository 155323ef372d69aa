//! How a running instance is asked by the commands for people: each request on a connection of
//! its own, in TLS where the address says so, with the bearer that the operator has.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;

use crate::admin::CSRF_HEADER;
use crate::config::AskedArgs;
use crate::upstream::page::{PageError, PageServer};

/// Longest text of `/ready`: a line for each ring and store.
const READY_BYTES_MAX: usize = 64 << 10;
/// Longest file with a bearer; a token is some hundred bytes.
const BEARER_BYTES_MAX: u64 = 16 << 10;

/// Why an instance has not answered.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    #[error("nothing answers at {addr}; start freehold, or name its listener by --address")]
    NotRunning { addr: String, source: std::io::Error },
    #[error("no answer from {addr}; is it freehold's listener?")]
    Http { addr: String, source: hyper::Error },
    #[error("the answer of {addr} broke off or has more than {bytes_max} bytes")]
    Body { addr: String, bytes_max: usize },
    #[error("{addr} is no host and port, and no URL")]
    Address { addr: String },
    #[error(
        "{addr} has a query; --address takes host:port, or http://host:port or https://host:port, \
         with or without a path"
    )]
    Query { addr: String },
    #[error("{addr} did not answer within {patience:?}")]
    TooSlow { addr: String, patience: Duration },
    #[error("cannot read the bearer token from {}", path.display())]
    ReadBearer { path: PathBuf, source: std::io::Error },
    #[error("{} holds no bearer token", path.display())]
    NoBearer { path: PathBuf },
    /// Certificates, as a rule.
    #[error("cannot ask {addr}")]
    Page { addr: String, source: PageError },
}

/// A process that is asked.
pub(super) struct Instance {
    server: PageServer,
    /// As it was given, for errors.
    address: String,
    bearer: Option<HeaderValue>,
}

impl Instance {
    pub(super) fn new(asked: &AskedArgs) -> Result<Self, InstanceError> {
        let AskedArgs { address, bearer_token_file, tls_ca } = asked;
        let addr = || address.clone();
        let server = PageServer::new(address, tls_ca).map_err(|error| match error {
            PageError::Address(_) => InstanceError::Address { addr: addr() },
            source => InstanceError::Page { addr: addr(), source },
        })?;
        if server.path().contains('?') {
            return Err(InstanceError::Query { addr: addr() });
        }
        let bearer = bearer_token_file.as_ref().map(read_bearer).transpose()?;
        Ok(Self { server, address: addr(), bearer })
    }

    /// What it was called by.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The address's path, or `path` for one without.
    pub(super) fn path_or<'a>(&'a self, path: &'a str) -> &'a str {
        if self.server.path() == "/" { path } else { self.server.path() }
    }

    /// Sends a request and waits for the whole answer, no longer than `patience`.
    pub(super) async fn ask(
        &self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
        patience: Duration,
    ) -> Result<Response<Bytes>, InstanceError> {
        let asked = tokio::time::timeout(patience, self.send(request, bytes_max)).await;
        asked.unwrap_or_else(|_| {
            Err(InstanceError::TooSlow { addr: self.address.clone(), patience })
        })
    }

    /// What a request that changes something has to carry, if the instance asks for it.
    pub(super) async fn csrf_token(
        &self,
        patience: Duration,
    ) -> Result<Option<HeaderValue>, InstanceError> {
        // Any answer has it; this one is short.
        let request = Request::get("/ready").body(Full::default());
        let request = request.expect("the path is one");
        let answer = self.ask(request, READY_BYTES_MAX, patience).await?;
        Ok(answer.headers().get(CSRF_HEADER).cloned())
    }

    async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, InstanceError> {
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert(header::AUTHORIZATION, bearer.clone());
        }
        let addr = || self.address.clone();
        self.server.exchange(request, bytes_max).await.map_err(|error| match error {
            PageError::Unreachable { source, .. } => {
                InstanceError::NotRunning { addr: addr(), source }
            }
            PageError::Http { source, .. } => InstanceError::Http { addr: addr(), source },
            PageError::Body { bytes_max, .. } => InstanceError::Body { addr: addr(), bytes_max },
            source => InstanceError::Page { addr: addr(), source },
        })
    }
}

/// Sends a request to `addr`; how long that may take is the caller's to say.
pub(super) async fn exchange(
    addr: &str,
    request: Request<Full<Bytes>>,
    bytes_max: usize,
) -> Result<Response<Bytes>, InstanceError> {
    let asked = AskedArgs { address: addr.to_owned(), ..AskedArgs::default() };
    Instance::new(&asked)?.send(request, bytes_max).await
}

/// `Bearer TOKEN`, marked as what no log shows.
pub(crate) fn read_bearer(path: &PathBuf) -> Result<HeaderValue, InstanceError> {
    let failed = |source| InstanceError::ReadBearer { path: path.clone(), source };
    let mut token = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(BEARER_BYTES_MAX).read_to_string(&mut token).map_err(failed)?;
    let token = token.trim();
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let none = || InstanceError::NoBearer { path: path.clone() };
    let mut value = value.ok().filter(|_| !token.is_empty()).ok_or_else(none)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_bearer_is_one_word_of_a_file() {
        let check = |text: &str, expect: Option<&str>| {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            file.write_all(text.as_bytes()).expect("written");
            let read = read_bearer(&file.path().to_owned()).ok();
            let read = read.map(|value| value.to_str().expect("text").to_owned());
            assert_eq!(read.as_deref(), expect, "{text:?}");
        };
        check("abc\n", Some("Bearer abc"));
        check("", None);
        check(" \n", None);
        check("a\nb", None);
        let gone = read_bearer(&"/no/such/file".into());
        assert!(matches!(gone, Err(InstanceError::ReadBearer { .. })));
    }

    #[test]
    fn what_is_no_address_is_told_by_its_own_text() {
        for address in ["", "host", "ftp://host", "http://"] {
            let asked = AskedArgs { address: address.to_owned(), ..AskedArgs::default() };
            let error = Instance::new(&asked).err().expect(address);
            assert!(matches!(error, InstanceError::Address { .. }), "{error}");
        }
        for address in ["http://h/?a=b", "http://h?a=b", "https://h:1/ring?a"] {
            let asked = AskedArgs { address: address.to_owned(), ..AskedArgs::default() };
            let error = Instance::new(&asked).err().expect(address);
            let text = error.to_string();
            assert!(text.contains("has a query; --address takes host:port, or http"), "{text}");
        }
    }
}
