//! Questions of our own: one message out, one or many in, without compression.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, header};
use http_body::Body as _;
use http_body_util::Full;
use prost::Message;

use super::send::Answer;
use super::{Upstream, UpstreamError};

/// A flag and a length before each message.
const FRAME_HEADER_LEN: usize = 5;

/// Why a question was not, or not wholly, answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The upstream's own words. The code may be an HTTP status.
    #[error("the upstream answers with status {code}: {message}")]
    Status { code: i32, message: String },
    #[error("the upstream's answer has no status")]
    NoStatus,
    #[error("a message of the upstream is longer than {bytes_max} bytes: {len_bytes}")]
    TooLarge { len_bytes: usize, bytes_max: usize },
    #[error("the upstream's answer is garbled: {what}")]
    Garbled { what: &'static str },
    #[error("cannot read the upstream's answer")]
    Decode(#[from] prost::DecodeError),
}

/// The messages of an answer, one after the other, as raw bytes.
pub struct AnswerStream {
    headers: HeaderMap,
    answer: Answer,
    trailers: Option<HeaderMap>,
    /// What is left of the piece that came last.
    chunk: Bytes,
    message_bytes_max: usize,
}

impl Upstream {
    /// One question, one answer. `method` is the path: `/cortex.Ingester/AllUserStats`.
    pub async fn ask<Q: Message, A: Message + Default>(
        &self,
        method: &'static str,
        tenant: &str,
        question: &Q,
        deadline: Duration,
    ) -> Result<A, AskError> {
        let mut answers = self.ask_stream(method, tenant, question, deadline).await?;
        let message = answers.next().await?.ok_or(AskError::Garbled { what: "no message" })?;
        if answers.next().await?.is_some() {
            return Err(AskError::Garbled { what: "more than one message" });
        }
        Ok(A::decode(message)?)
    }

    /// One question, many answers.
    pub async fn ask_stream<Q: Message>(
        &self,
        method: &'static str,
        tenant: &str,
        question: &Q,
        deadline: Duration,
    ) -> Result<AnswerStream, AskError> {
        let (head, answer) =
            self.call(request(method, tenant, question, deadline)?).await?.into_parts();
        let answers = AnswerStream {
            headers: head.headers,
            answer,
            trailers: None,
            chunk: Bytes::new(),
            message_bytes_max: self.0.message_bytes_max,
        };
        // An answer that is nothing but a status has it in its head.
        match answers.headers.get("grpc-status") {
            Some(_) => check_status(&answers.headers).map(|()| answers),
            None => Ok(answers),
        }
    }
}

impl AnswerStream {
    /// The next message; `None` when the upstream has said that all went well and was all.
    ///
    /// Not to be called again after a dropped call or an error: the place in the frames is lost.
    pub async fn next(&mut self) -> Result<Option<Bytes>, AskError> {
        if self.chunk.is_empty() && !self.next_chunk().await? {
            let told = self.trailers.as_ref().unwrap_or(&self.headers);
            return check_status(told).map(|()| None);
        }
        let mut head = [0; FRAME_HEADER_LEN];
        let mut filled = 0;
        while filled < FRAME_HEADER_LEN {
            if self.chunk.is_empty() && !self.next_chunk().await? {
                return Err(self.cut());
            }
            let taken = self.chunk.len().min(FRAME_HEADER_LEN - filled);
            self.chunk.copy_to_slice(&mut head[filled..filled + taken]);
            filled += taken;
        }
        let [flag, len_bytes @ ..] = head;
        if flag != 0 {
            return Err(AskError::Garbled { what: "compressed without having been asked to" });
        }
        let len_bytes = u32::from_be_bytes(len_bytes);
        let len_bytes = usize::try_from(len_bytes).expect("addresses have 32 bits or more");
        let bytes_max = self.message_bytes_max;
        if len_bytes > bytes_max {
            return Err(AskError::TooLarge { len_bytes, bytes_max });
        }
        self.take(len_bytes).await.map(Some)
    }

    /// A message that lies in one piece is a slice of it; others are joined, in memory that
    /// grows with what arrives and not with what was announced.
    async fn take(&mut self, len: usize) -> Result<Bytes, AskError> {
        if self.chunk.len() >= len {
            return Ok(self.chunk.split_to(len));
        }
        let mut message = BytesMut::new();
        while message.len() < len {
            if self.chunk.is_empty() && !self.next_chunk().await? {
                return Err(self.cut());
            }
            let part = self.chunk.split_to(self.chunk.len().min(len - message.len()));
            message.put(part);
        }
        Ok(message.freeze())
    }

    /// Waits for a piece with something in it; false at the end.
    async fn next_chunk(&mut self) -> Result<bool, AskError> {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut self.answer).poll_frame(cx)).await {
            match frame?.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    self.chunk = data;
                    return Ok(true);
                }
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(false)
    }

    /// What an answer that ends within a message is: its own status, if it tells one.
    fn cut(&self) -> AskError {
        let told = self.trailers.as_ref().map(check_status);
        match told {
            Some(Err(error)) => error,
            _ => AskError::Garbled { what: "it ends within a message" },
        }
    }
}

fn request<Q: Message>(
    method: &'static str,
    tenant: &str,
    question: &Q,
    deadline: Duration,
) -> Result<Request<Full<Bytes>>, AskError> {
    let len = question.encoded_len();
    let mut framed = BytesMut::with_capacity(FRAME_HEADER_LEN + len);
    framed.put_u8(0);
    let announced = u32::try_from(len);
    framed.put_u32(announced.map_err(|_| AskError::Garbled { what: "the question is too long" })?);
    question.encode(&mut framed).expect("the buffer grows");
    let mut request = Request::post(method).body(Full::new(framed.freeze())).expect("a path");
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    let tenant = HeaderValue::from_str(tenant);
    let tenant = tenant.map_err(|_| AskError::Garbled { what: "the tenant fits no header" })?;
    headers.insert("x-scope-orgid", tenant);
    headers.insert("grpc-timeout", timeout_value(deadline));
    Ok(request)
}

const USER_AGENT: &str = concat!("freehold/", env!("CARGO_PKG_VERSION"));

/// In milliseconds; the protocol allows eight digits, a bit more than a day.
fn timeout_value(deadline: Duration) -> HeaderValue {
    let ms = deadline.as_millis().clamp(1, 99_999_999);
    HeaderValue::from_str(&format!("{ms}m")).expect("digits and a letter")
}

fn check_status(headers: &HeaderMap) -> Result<(), AskError> {
    let code = headers.get("grpc-status").ok_or(AskError::NoStatus)?;
    let code = code.to_str().ok().and_then(|code| code.parse::<i32>().ok());
    match code.ok_or(AskError::NoStatus)? {
        0 => Ok(()),
        code => {
            let message = headers.get("grpc-message").map(HeaderValue::as_bytes);
            let message = percent_decoded(message.unwrap_or_default());
            Err(AskError::Status { code, message })
        }
    }
}

/// A `grpc-message` as it was meant.
pub fn percent_decoded(text: &[u8]) -> String {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).expect("two digits of 16"));
                at += 3;
            }
            (byte, ..) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_texts_are_read_as_they_were_meant() {
        let check = |sent: &str, expect: &str| {
            assert_eq!(percent_decoded(sent.as_bytes()), expect, "{sent}");
        };
        check("plain", "plain");
        check("50%25 of %C3%BC", "50% of ü");
        check("%", "%");
        check("%2", "%2");
        check("%zz", "%zz");
    }

    #[test]
    fn deadlines_are_written_within_eight_digits() {
        assert_eq!(timeout_value(Duration::from_secs(2)), "2000m");
        assert_eq!(timeout_value(Duration::ZERO), "1m");
        assert_eq!(timeout_value(Duration::from_secs(1 << 40)), "99999999m");
    }
}
