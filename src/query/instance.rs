//! How a running instance is asked by the commands for people: one request over HTTP, on a
//! connection of its own.

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::admin::CSRF_HEADER;

/// Longest text of `/ready`: a line for each ring and store.
const READY_BYTES_MAX: usize = 64 << 10;

/// Why an instance has not answered.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    #[error("nothing answers at {addr}; start freehold, or name its listener by --addr")]
    NotRunning { addr: String, source: std::io::Error },
    #[error("no answer from {addr}; is it a listener of freehold's?")]
    Http { addr: String, source: hyper::Error },
    #[error("the answer of {addr} broke off or has more than {bytes_max} bytes")]
    Body { addr: String, bytes_max: usize },
    #[error("{addr} is no host and port")]
    Address { addr: String },
}

/// Sends a request to `addr`; how long that may take is the caller's to say.
pub(super) async fn exchange(
    addr: &str,
    mut request: Request<Full<Bytes>>,
    bytes_max: usize,
) -> Result<Response<Bytes>, InstanceError> {
    let named = || addr.to_owned();
    let host = addr.trim_start_matches("http://").trim_end_matches('/');
    let value = HeaderValue::try_from(host);
    let value = value.map_err(|_| InstanceError::Address { addr: named() })?;
    request.headers_mut().insert(header::HOST, value);
    let unreachable = |source| InstanceError::NotRunning { addr: named(), source };
    let stream = TcpStream::connect(host).await.map_err(unreachable)?;
    let failed = |source| InstanceError::Http { addr: named(), source };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let asking = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, bytes_max).collect().await;
        let body = body.map_err(|_| InstanceError::Body { addr: named(), bytes_max })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    };
    let mut asking = std::pin::pin!(asking);
    // The connection ends first only when the server closes it, and then the answer is there.
    tokio::select! {
        answer = asking.as_mut() => answer,
        ended = connection => match asking.await {
            Err(InstanceError::Http { addr, source }) => {
                Err(InstanceError::Http { addr, source: ended.err().unwrap_or(source) })
            }
            answer => answer,
        },
    }
}

/// What a request that changes something has to carry, if the instance asks for it.
pub(super) async fn csrf_token(addr: &str) -> Result<Option<HeaderValue>, InstanceError> {
    // Any answer has it; this one is short.
    let request = Request::get("/ready").body(Full::new(Bytes::new()));
    let request = request.map_err(|_| InstanceError::Address { addr: addr.to_owned() })?;
    let answer = exchange(addr, request, READY_BYTES_MAX).await?;
    Ok(answer.headers().get(CSRF_HEADER).cloned())
}
