//! Pages of services around us, by HTTP/1.1, in TLS where the address says so, each on a
//! connection of its own.
//!
//! For questions every few minutes; a pool would keep a connection for nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::wire::Wire;
use crate::ring::config::address::{Address, AddressError, Scheme};
use crate::tls::{self, ClientTls, ClientTlsConfig, TlsError};

/// Longest line of an answer that an error repeats, in bytes.
const SAID_BYTES_MAX: usize = 256;

/// What a page may cost.
#[derive(Clone, Copy, Debug)]
pub struct PageBounds {
    /// Of the whole exchange, from dialling to the last byte.
    pub deadline: Duration,
    pub body_bytes_max: usize,
}

/// Where pages are, and how they are come by.
pub struct PageServer {
    address: Address,
    /// Before each path: the scheme, host and port that errors name.
    origin: String,
    tls: Option<Tls>,
    authorization: Option<HeaderValue>,
}

/// Whom we trust, and the name that the server's certificate has to be for.
struct Tls {
    settings: Arc<ClientTls>,
    server_name: ServerName<'static>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("cannot prepare TLS to {origin}")]
    Certificates { origin: String, source: Box<TlsError> },
    #[error("{origin} is no name that a certificate could carry")]
    ServerName { origin: String },
    #[error("{origin} cannot be reached")]
    Unreachable { origin: String, source: std::io::Error },
    #[error("the TLS handshake with {origin} failed")]
    Handshake { origin: String, source: std::io::Error },
    #[error("{origin} does not answer as HTTP")]
    Http { origin: String, source: hyper::Error },
    #[error("{path} is no path")]
    Path { path: String },
    /// `said` is the answer's first line, empty where it has none.
    #[error("{origin}{path} answers {status}{}{said}", if said.is_empty() { "" } else { ": " })]
    Status { origin: String, path: String, status: u16, said: String },
    #[error("the answer of {origin}{path} broke off or has more than {bytes_max} bytes")]
    Body { origin: String, path: String, bytes_max: usize },
    #[error("{origin}{path} has not answered within {deadline:?}")]
    TooSlow { origin: String, path: String, deadline: Duration },
}

impl PageServer {
    /// `text` is `host:port`, or a URL of http or https. `ca_path` has the authorities that its
    /// certificate is checked against; empty takes the host's.
    pub fn new(text: &str, ca_path: &Path) -> Result<Self, PageError> {
        let address = match text.contains("://") {
            true => Address::parse_url(text)?,
            false => Address::parse(text)?,
        };
        let is_tls = address.scheme == Some(Scheme::Https);
        let scheme = if is_tls { "https" } else { "http" };
        let origin = format!("{scheme}://{}", address.authority());
        let tls = is_tls.then(|| Tls::new(&address, &origin, ca_path)).transpose()?;
        Ok(Self { address, origin, tls, authorization: None })
    }

    /// Pages are asked for with this.
    pub fn with_authorization(self, authorization: Option<HeaderValue>) -> Self {
        Self { authorization, ..self }
    }

    /// Path and query of the URL; `/` where it has none.
    pub fn path(&self) -> &str {
        &self.address.path
    }

    /// The body of a page, if it is answered with 200. It is asked for as JSON; who has none
    /// answers otherwise.
    pub async fn get(&self, path: &str, bounds: PageBounds) -> Result<Bytes, PageError> {
        let late = |_| PageError::TooSlow {
            origin: self.origin.clone(),
            path: path.to_owned(),
            deadline: bounds.deadline,
        };
        let exchange = self.fetch(path, bounds.body_bytes_max);
        tokio::time::timeout(bounds.deadline, exchange).await.map_err(late)?
    }

    async fn fetch(&self, path: &str, bytes_max: usize) -> Result<Bytes, PageError> {
        let mut request = Request::get(path)
            .header(header::ACCEPT, "application/json, */*;q=0.1")
            .body(Full::default())
            .map_err(|_| PageError::Path { path: path.to_owned() })?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
        }
        let answer = self.exchange(request, bytes_max).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            status => Err(PageError::Status {
                origin: self.origin.clone(),
                path: path.to_owned(),
                status: status.as_u16(),
                said: first_line(answer.body()),
            }),
        }
    }

    /// Sends a request, whose URI is a path, and gives back the whole answer, whatever its
    /// status. How long that may take is the caller's to say.
    pub async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, PageError> {
        let origin = || self.origin.clone();
        let path = request.uri().to_string();
        let host = HeaderValue::try_from(self.address.authority());
        let host = host.map_err(|_| PageError::ServerName { origin: origin() })?;
        request.headers_mut().insert(header::HOST, host);
        let wire = self.dial().await?;
        let failed = |source| PageError::Http { origin: origin(), source };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(wire)).await.map_err(failed)?;
        let asking = async {
            let (head, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
            let cut = |_| PageError::Body { origin: origin(), path, bytes_max };
            let body = Limited::new(body, bytes_max).collect().await.map_err(cut)?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        let mut asking = std::pin::pin!(asking);
        // The connection ends first only when the server closes it, and then the answer is there.
        tokio::select! {
            answer = asking.as_mut() => answer,
            ended = connection => match asking.await {
                Err(PageError::Http { origin, source }) => {
                    Err(PageError::Http { origin, source: ended.err().unwrap_or(source) })
                }
                answer => answer,
            },
        }
    }

    async fn dial(&self) -> Result<Box<dyn Wire>, PageError> {
        let Address { host, port, .. } = &self.address;
        let origin = || self.origin.clone();
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream =
            stream.map_err(|source| PageError::Unreachable { origin: origin(), source })?;
        let Some(Tls { settings, server_name }) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let looked = Arc::clone(settings);
        // Renewed authorities are used without a restart; the file may be on a slow mount.
        let _ = tokio::task::spawn_blocking(move || looked.look()).await;
        let connector = TlsConnector::from(settings.current());
        let shaken = connector.connect(server_name.clone(), stream).await;
        match shaken {
            Ok(stream) => Ok(Box::new(stream)),
            Err(source) => Err(PageError::Handshake { origin: origin(), source }),
        }
    }
}

impl Tls {
    fn new(address: &Address, origin: &str, ca_path: &Path) -> Result<Self, PageError> {
        let origin = || origin.to_owned();
        let config = ClientTlsConfig { ca_path: ca_path.to_owned(), ..ClientTlsConfig::default() };
        let settings = tls::client("page", &config, &["http/1.1"]).map_err(|error| {
            PageError::Certificates { origin: origin(), source: Box::new(error) }
        })?;
        let server_name = ServerName::try_from(address.host.clone())
            .map_err(|_| PageError::ServerName { origin: origin() })?;
        Ok(Self { settings, server_name })
    }
}
/// What a text says at its beginning; who answers decides what is in it, so it may not steer the
/// terminal that it is shown on.
fn first_line(body: &[u8]) -> String {
    let body = &body[..body.len().min(SAID_BYTES_MAX)];
    let text = String::from_utf8_lossy(body);
    let line = text.trim_start().lines().next().unwrap_or_default().trim_end();
    line.chars().filter(|c| !c.is_control()).collect()
}
