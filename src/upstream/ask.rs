//! Questions of our own: one message out, one or many in, without compression.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::Full;
use prost::Message;

use super::answers::{AnswerStream, FRAME_HEADER_LEN};
use super::{Upstream, UpstreamError};

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
        let answer = self.call(request(method, tenant, question, deadline)?).await?;
        AnswerStream::new(answer, self.0.message_bytes_max)
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

pub(super) const USER_AGENT: &str = concat!("freehold/", env!("CARGO_PKG_VERSION"));

/// In milliseconds; the protocol allows eight digits, a bit more than a day.
pub(super) fn timeout_value(deadline: Duration) -> HeaderValue {
    let ms = deadline.as_millis().clamp(1, 99_999_999);
    HeaderValue::from_str(&format!("{ms}m")).expect("digits and a letter")
}

pub(super) fn check_status(headers: &HeaderMap) -> Result<(), AskError> {
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
