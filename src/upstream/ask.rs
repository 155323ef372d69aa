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
        let answers = self.ask_stream(method, tenant, question, deadline).await?;
        Ok(A::decode(only(answers).await?)?)
    }

    /// One question, many answers.
    pub async fn ask_stream<Q: Message>(
        &self,
        method: &'static str,
        tenant: &str,
        question: &Q,
        deadline: Duration,
    ) -> Result<AnswerStream, AskError> {
        let mut request = request(method, &question.encode_to_vec(), deadline)?;
        let tenant = HeaderValue::from_str(tenant);
        let tenant = tenant.map_err(|_| AskError::Garbled { what: "the tenant fits no header" })?;
        request.headers_mut().insert("x-scope-orgid", tenant);
        let answer = self.call(request).await?;
        AnswerStream::new(answer, self.0.message_bytes_max)
    }

    /// One question and its answer, encoded by whoever knows them; of no tenant.
    pub async fn ask_encoded(
        &self,
        method: &'static str,
        question: &[u8],
        deadline: Duration,
    ) -> Result<Bytes, AskError> {
        let answer = self.call(request(method, question, deadline)?).await?;
        only(AnswerStream::new(answer, self.0.message_bytes_max)?).await
    }

    /// The same with headers beside those of every call: a tenant's, for one.
    pub async fn ask_with(
        &self,
        method: &'static str,
        headers: HeaderMap,
        question: &[u8],
        deadline: Duration,
    ) -> Result<Bytes, AskError> {
        let mut request = request(method, question, deadline)?;
        request.headers_mut().extend(headers);
        only(AnswerStream::new(self.call(request).await?, self.0.message_bytes_max)?).await
    }
}

async fn only(mut answers: AnswerStream) -> Result<Bytes, AskError> {
    let message = answers.next().await?.ok_or(AskError::Garbled { what: "no message" })?;
    match answers.next().await? {
        None => Ok(message),
        Some(_) => Err(AskError::Garbled { what: "more than one message" }),
    }
}

fn request(
    method: &'static str,
    question: &[u8],
    deadline: Duration,
) -> Result<Request<Full<Bytes>>, AskError> {
    let body = Full::new(framed(question)?);
    let mut request = Request::post(method).body(body).expect("a path");
    *request.headers_mut() = call_headers();
    request.headers_mut().insert("grpc-timeout", timeout_value(deadline));
    Ok(request)
}

/// A message behind its flag and length.
pub(super) fn framed(message: &[u8]) -> Result<Bytes, AskError> {
    let len = u32::try_from(message.len());
    let len = len.map_err(|_| AskError::Garbled { what: "the question is too long" })?;
    let mut framed = BytesMut::with_capacity(FRAME_HEADER_LEN + message.len());
    framed.put_u8(0);
    framed.put_u32(len);
    framed.put_slice(message);
    Ok(framed.freeze())
}

/// What every call of ours says.
pub(super) fn call_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers
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
