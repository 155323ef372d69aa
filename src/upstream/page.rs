//! A page of a service around us, by plain HTTP/1.1 on a connection of its own.
//!
//! For questions every few minutes; a pool would keep a connection for nothing.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// What a page may cost.
#[derive(Clone, Copy, Debug)]
pub struct PageBounds {
    /// Of the whole exchange, from dialling to the last byte.
    pub deadline: Duration,
    pub body_bytes_max: usize,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("{address} cannot be reached")]
    Unreachable { address: String, source: std::io::Error },
    #[error("{address} does not answer as HTTP")]
    Http { address: String, source: hyper::Error },
    #[error("{path} is no path")]
    Path { path: String },
    #[error("{address}{path} answers {status}")]
    Status { address: String, path: String, status: u16 },
    #[error("the page of {address} was broken off, or is longer than {bytes_max} bytes")]
    Body { address: String, bytes_max: usize },
    #[error("{address} has not answered within {deadline:?}")]
    TooSlow { address: String, deadline: Duration },
}

/// The body of `http://address/path`, if it is answered with 200.
pub async fn get(address: &str, path: &str, bounds: PageBounds) -> Result<Bytes, PageError> {
    let late = |_| PageError::TooSlow { address: address.to_owned(), deadline: bounds.deadline };
    tokio::time::timeout(bounds.deadline, exchange(address, path, bounds)).await.map_err(late)?
}

async fn exchange(address: &str, path: &str, bounds: PageBounds) -> Result<Bytes, PageError> {
    let request = Request::get(path).header(header::HOST, address).body(Empty::<Bytes>::new());
    let request = request.map_err(|_| PageError::Path { path: path.to_owned() })?;
    let unreachable = |source| PageError::Unreachable { address: address.to_owned(), source };
    let stream = TcpStream::connect(address).await.map_err(unreachable)?;
    let failed = |source| PageError::Http { address: address.to_owned(), source };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let asking = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        if response.status() != StatusCode::OK {
            let status = response.status().as_u16();
            return Err(PageError::Status {
                address: address.to_owned(),
                path: path.to_owned(),
                status,
            });
        }
        let body = Limited::new(response.into_body(), bounds.body_bytes_max).collect().await;
        let bytes_max = bounds.body_bytes_max;
        let cut = |_| PageError::Body { address: address.to_owned(), bytes_max };
        Ok(body.map_err(cut)?.to_bytes())
    };
    let mut asking = std::pin::pin!(asking);
    // The connection ends first only when the server closes it, and then the answer is there.
    tokio::select! {
        answer = asking.as_mut() => answer,
        _ = connection => asking.await,
    }
}
