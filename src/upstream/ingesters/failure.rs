//! What came of a push, in the words and numbers of Cortex's client.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::ring::Failure;
use crate::upstream::{AskError, UpstreamError, percent_decoded};
use crate::wire::status::read_status_details;

const UNKNOWN: i32 = 2;
const DEADLINE_EXCEEDED: i32 = 4;
const RESOURCE_EXHAUSTED: i32 = 8;
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;

/// With or without padding: gRPC's peers write either.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What Go says of every deadline.
pub fn deadline_exceeded() -> Failure {
    status(DEADLINE_EXCEEDED, "context deadline exceeded")
}

pub fn of_upstream(error: &UpstreamError) -> Failure {
    match error {
        UpstreamError::DeadlineExceeded { .. } => deadline_exceeded(),
        error => status(error.grpc_code(), error.to_string()),
    }
}

pub fn of_ask(error: AskError) -> Failure {
    match error {
        AskError::Upstream(error) => of_upstream(&error),
        AskError::Status { code, message } => of_status(code, message),
        error => status(INTERNAL, error.to_string()),
    }
}

/// What a message of a stream was answered with, as the client turns it into an error.
pub fn of_response(code: i32, message: String) -> Failure {
    Failure { code: Some(code), message, http: http_code(code) }
}

/// An ingester that ended its stream well with a message unanswered has not taken the message.
pub fn unanswered() -> Failure {
    status(UNAVAILABLE, "the stream ended without an answer")
}

/// How an answer ended, by its trailers, or by its head when that is all there is.
pub fn of_end(headers: &HeaderMap) -> Result<(), Failure> {
    let code = headers.get("grpc-status").and_then(|code| code.to_str().ok());
    let Some(code) = code.and_then(|code| code.parse::<i32>().ok()) else {
        return Err(status(INTERNAL, "server closed the stream without sending trailers"));
    };
    if code == 0 {
        return Ok(());
    }
    let message = headers.get("grpc-message").map(HeaderValue::as_bytes);
    let message = percent_decoded(message.unwrap_or_default());
    let details = headers.get("grpc-status-details-bin");
    let details = details.and_then(|details| BASE64.decode(details.as_bytes()).ok());
    let http = match details.as_deref().and_then(read_status_details) {
        None => return Err(of_status(code, message)),
        Some((inner, http)) if inner == code => http.and_then(http_code),
        // Go takes it for an internal error: nothing in it can be believed.
        Some((inner, _)) => {
            let told = format!("mismatched status codes {code} and {inner}: {message}");
            return Err(status(INTERNAL, told));
        }
    };
    Err(Failure { code: Some(code), message, http })
}

/// A message that is too large for an ingester, as its own request or as one message of a stream.
///
/// Messages are cut to what an ingester takes by default, so this one holds a series that is too
/// large alone, or the ingester takes less than others do. Sent again it would be as large: to the
/// sender it is a refusal, and not Cortex's 500, which senders repeat for ever.
pub fn too_large(message: String) -> Failure {
    of_response(CONTENT_TOO_LARGE.into(), message)
}

const CONTENT_TOO_LARGE: u16 = 413;

/// An end without an HTTP status.
fn of_status(code: i32, message: String) -> Failure {
    // Both texts of gRPC's servers, ours and Go's, for a message as it came and unpacked.
    let is_size = message.starts_with("grpc: received message ");
    match code == RESOURCE_EXHAUSTED && is_size && message.contains(" larger than max ") {
        true => too_large(message),
        false => status(code, message),
    }
}

/// An answer that is none of gRPC's, from something that stands between.
pub fn of_http(code: StatusCode) -> Failure {
    let grpc = match code.as_u16() {
        400 => INTERNAL,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => UNAVAILABLE,
        _ => UNKNOWN,
    };
    status(grpc, format!("unexpected HTTP status code received from server: {code}"))
}

/// A code that an HTTP answer can have.
fn http_code(code: i32) -> Option<u16> {
    u16::try_from(code).ok().filter(|code| (100..=999).contains(code))
}

pub fn status(code: i32, message: impl Into<String>) -> Failure {
    Failure { code: Some(code), message: message.into(), http: None }
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};

    use super::*;
    use crate::wire::status::http_status_details;

    fn end(code: &'static str, message: &'static str, details: Option<String>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", HeaderValue::from_static(code));
        headers.insert("grpc-message", HeaderValue::from_static(message));
        if let Some(details) = details {
            let details = HeaderValue::from_str(&details).expect("base64");
            headers.insert("grpc-status-details-bin", details);
        }
        headers
    }

    #[test]
    fn an_http_status_is_believed_when_code_and_details_agree() {
        let details = http_status_details(400, "no %");
        for text in [BASE64_STANDARD.encode(&details), BASE64_STANDARD_NO_PAD.encode(&details)] {
            let failure = of_end(&end("400", "no %25", Some(text.clone()))).expect_err("refused");
            assert_eq!(
                failure,
                Failure { code: Some(400), message: "no %".into(), http: Some(400) }
            );
            assert!(failure.is_refusal() && failure.is_http_4xx());
            let failure = of_end(&end("2", "no", Some(text))).expect_err("failed");
            assert_eq!((failure.code, failure.http), (Some(INTERNAL), None));
        }
        let bare = of_end(&end("400", "no", None)).expect_err("refused");
        assert_eq!((bare.is_refusal(), bare.is_http_4xx()), (true, false));
    }

    #[test]
    fn a_message_that_is_too_large_is_the_senders() {
        let check = |code, message, expect: Option<u16>| {
            let failure = of_end(&end(code, message, None)).expect_err("failed");
            assert_eq!(
                (failure.http, failure.is_refusal()),
                (expect, expect.is_some()),
                "{message}"
            );
            let asked = of_ask(AskError::Status {
                code: code.parse().expect("a number"),
                message: message.to_owned(),
            });
            assert_eq!(asked, failure);
        };
        check("8", "grpc: received message larger than max (9 vs. 8)", Some(413));
        check("8", "grpc: received message after decompression larger than max 8", Some(413));
        check("8", "too many inflight pushes", None);
        check("13", "grpc: received message larger than max (9 vs. 8)", None);
    }

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(of_end(&end("0", "", None)), Ok(()));
        let text = |headers| of_end(&headers).expect_err("failed").to_string();
        assert_eq!(text(end("14", "gone", None)), "rpc error: code = Unavailable desc = gone");
        assert_eq!(text(end("2", "x", Some("*".into()))), "rpc error: code = Unknown desc = x");
        assert_eq!(
            text(HeaderMap::new()),
            "rpc error: code = Internal desc = server closed the stream without sending trailers"
        );
        assert_eq!(
            of_http(StatusCode::SERVICE_UNAVAILABLE).to_string(),
            "rpc error: code = Unavailable desc = unexpected HTTP status code received from \
             server: 503 Service Unavailable"
        );
        assert_eq!(of_response(-5, String::new()).http, None);
    }
}
