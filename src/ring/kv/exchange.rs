//! One question over HTTP/1.1 and its whole answer, on a connection of its own.
//!
//! A connection of its own costs a round trip and spares everything that goes wrong with idle
//! ones: nothing is sent into a connection that the server has just closed.
//!
//! Invariant: an exchange ends within its deadline, and no more of an answer is kept than asked.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::dial::{DialError, Dialler};
use super::{REASON_CHARS_MAX, one_line};

pub(super) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("no answer")]
    Http(#[from] hyper::Error),
    #[error("the answer broke off")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the answer has more than {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// What an exchange may cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub deadline: Duration,
    pub body_bytes_max: usize,
}

/// Dropping it closes the connection.
pub(super) async fn exchange(
    dialler: &Dialler,
    request: Request<Full<Bytes>>,
    bounds: Bounds,
) -> Result<Answer, ExchangeError> {
    match timeout(bounds.deadline, exchange_at_leisure(dialler, request, bounds)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ExchangeError::Timeout(bounds.deadline)),
    }
}

impl Answer {
    /// The beginning of the body as one line, for errors.
    pub(super) fn text(&self) -> String {
        // No character takes more than four bytes.
        let start = &self.body[..self.body.len().min(4 * REASON_CHARS_MAX)];
        one_line(&String::from_utf8_lossy(start))
    }
}

async fn exchange_at_leisure(
    dialler: &Dialler,
    request: Request<Full<Bytes>>,
    bounds: Bounds,
) -> Result<Answer, ExchangeError> {
    let stream = dialler.dial().await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answering = pin!(async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let limited = Limited::new(body, bounds.body_bytes_max);
        let body = limited.collect().await.map_err(|error| {
            match error.downcast_ref::<LengthLimitError>() {
                Some(_) => ExchangeError::TooLarge { bytes_max: bounds.body_bytes_max },
                None => ExchangeError::Body(error),
            }
        })?;
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    });
    match select(answering, pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        // The server closed behind its answer, which may still lie here.
        Either::Right((_, answering)) => answering.await,
    }
}
