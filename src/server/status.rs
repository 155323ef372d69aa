//! The only place that turns errors into statuses, for gRPC and for HTTP.
//!
//! A decision for the sender travels over gRPC as an HTTP status: `grpc-status` is that very
//! number and equal to the `code` inside `grpc-status-details-bin`. A mismatch, or a library that
//! folds the number into the seventeen gRPC codes, turns a refusal into an internal error at the
//! distributor, so the trailers are written here and not by tonic.

use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tonic::Code;

use super::front_door::{self, OwnRefusal};
use super::grpc::FrameError;
use super::seam::{PushError, WorkLost};
use super::stream_auth::StreamAuthError;
use crate::distributor::ha::HaError;
use crate::distributor::prepare::PrepareError;
use crate::distributor::{Dropped, Partly, RateLimitHeaders, SinkError, Unreadable, Written};
use crate::ratelimit::{BucketView, RATE_UNLIMITED, retry_after_secs};
use crate::store::{MatcherError, StoreError};
use crate::tenant::TenantIdError;
use crate::upstream::UpstreamError;
use crate::upstream::distributor::HttpUpstreamError;
use crate::upstream::queries::Unproxied;
use crate::wire::budgets::BudgetsError;
use crate::wire::remote_read::RemoteReadError;
use crate::wire::remote_write::{Version, WRITTEN_HEADERS};
use crate::wire::status::http_status_details;
use crate::{distributor, frontend, ingester, upstream};

/// Answer of Cortex to a sender that hung up.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

const TOO_MANY_REQUESTS: u16 = 429;
const SERVICE_UNAVAILABLE: u16 = 503;

/// How a gRPC call ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    code: i32,
    message: String,
    /// Whether the code is an HTTP status, told in the details too.
    is_http: bool,
}

impl GrpcStatus {
    pub fn ok() -> Self {
        Self::new(Code::Ok, "")
    }

    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code as i32, message: message.into(), is_http: false }
    }

    /// An HTTP status inside gRPC.
    pub fn http(code: u16, text: impl Into<String>) -> Self {
        Self { code: code.into(), message: text.into(), is_http: true }
    }

    pub fn code(&self) -> i32 {
        self.code
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// Writes the status into trailers, or into the headers of an answer without a message.
    pub fn write_to(&self, headers: &mut HeaderMap) {
        headers.insert("grpc-status", HeaderValue::from(self.code));
        if !self.message.is_empty() {
            headers.insert("grpc-message", percent_encoded(&self.message));
        }
        if self.is_http {
            let details = http_status_details(self.code, &self.message);
            let details = BASE64_STANDARD_NO_PAD.encode(details);
            let value = HeaderValue::from_str(&details).expect("base64 fits a header");
            headers.insert("grpc-status-details-bin", value);
        }
    }
}

impl From<PushError> for GrpcStatus {
    fn from(error: PushError) -> Self {
        match error {
            PushError::Rejected { code, text } => Self::http(code, text),
            PushError::RateLimited { text, .. } => Self::http(TOO_MANY_REQUESTS, text),
            PushError::Plain { text } => Self::new(Code::Unknown, text),
            PushError::Unavailable { text } => Self::new(Code::Unavailable, text),
            PushError::Malformed { text } => {
                Self::new(Code::Internal, format!("grpc: error unmarshalling request: {text}"))
            }
        }
    }
}

/// Of another gate, whose message breaks the protocol.
impl From<BudgetsError> for GrpcStatus {
    fn from(error: BudgetsError) -> Self {
        Self::new(Code::InvalidArgument, error.to_string())
    }
}

/// What an ingester's refusal is to its sender.
impl From<ingester::PushError> for PushError {
    fn from(error: ingester::PushError) -> Self {
        let text = error.to_string();
        match error {
            ingester::PushError::NotRunning { .. } => Self::Unavailable { text },
            ingester::PushError::Malformed(_) => Self::Malformed { text },
            ingester::PushError::Overload(_) | ingester::PushError::Whole { .. } => {
                Self::Plain { text }
            }
            ingester::PushError::RateLimited { wait_ns, .. } => Self::RateLimited { text, wait_ns },
            // Of a part nobody has worked out the wait; jitter alone spreads the retries.
            ingester::PushError::Partial { rate_limited: true, .. } => {
                Self::RateLimited { text, wait_ns: Some(0) }
            }
            ingester::PushError::Partial { .. } => Self::Rejected { code: 400, text },
            ingester::PushError::Store(source) => Self::Plain { text: format!("{text}: {source}") },
        }
    }
}

/// An upstream that failed, for a call that was to be passed through.
impl From<UpstreamError> for GrpcStatus {
    fn from(error: UpstreamError) -> Self {
        Self::new(Code::from(error.grpc_code()), error.to_string())
    }
}

/// What the ingester of this process makes of a request, for the distributor in front of it.
impl From<ingester::PushError> for SinkError {
    fn from(error: ingester::PushError) -> Self {
        use ingester::PushError as Told;
        // Nothing of these is kept, so nothing is to be paid for.
        let is_whole = matches!(
            error,
            Told::NotRunning { .. }
                | Told::Overload(_)
                | Told::Whole { .. }
                | Told::RateLimited { .. }
        );
        let (status, text, wait_ns) = match PushError::from(error) {
            PushError::Unavailable { text } => return Self::Unavailable { text },
            PushError::Rejected { code, text } => (code, text, None),
            PushError::RateLimited { text, wait_ns } => (TOO_MANY_REQUESTS, text, wait_ns),
            PushError::Malformed { text } => (400, text, None),
            PushError::Plain { text } if is_whole => (500, text, None),
            PushError::Plain { text } => return Self::Failed { text },
        };
        match is_whole {
            true => Self::Refused { status, text, wait_ns },
            false => Self::Told { status, text, wait_ns },
        }
    }
}

impl From<WorkLost> for SinkError {
    fn from(error: WorkLost) -> Self {
        Self::Failed { text: error.to_string() }
    }
}

impl From<TenantIdError> for GrpcStatus {
    fn from(error: TenantIdError) -> Self {
        Self::new(Code::Unknown, error.to_string())
    }
}

impl From<StreamAuthError> for GrpcStatus {
    fn from(error: StreamAuthError) -> Self {
        let code = match error {
            StreamAuthError::TenantMismatch { .. } => Code::PermissionDenied,
            _ => Code::Unknown,
        };
        Self::new(code, error.to_string())
    }
}

impl From<FrameError> for GrpcStatus {
    fn from(error: FrameError) -> Self {
        let code = match error {
            FrameError::TooLarge { .. }
            | FrameError::TooLargeInside { .. }
            | FrameError::AnswerTooLarge { .. } => Code::ResourceExhausted,
            FrameError::UnknownEncoding { .. } => Code::Unimplemented,
            FrameError::Body => Code::Cancelled,
            FrameError::NoRoom(_) => Code::Unavailable,
            FrameError::TooSlow => Code::DeadlineExceeded,
            _ => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<WorkLost> for GrpcStatus {
    fn from(error: WorkLost) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}

impl From<tonic::Status> for GrpcStatus {
    fn from(status: tonic::Status) -> Self {
        Self::new(status.code(), status.message())
    }
}

/// The answer to a refused message of a push stream: an HTTP status and a bare text.
///
/// Bytes that are no write request are answered too, although Cortex ends the stream there: its
/// clients take the next message on an ended stream for stored.
pub fn stream_answer(error: PushError) -> (u16, String) {
    match error {
        PushError::Rejected { code, text } => (code, text),
        PushError::RateLimited { text, .. } => (TOO_MANY_REQUESTS, text),
        PushError::Plain { text } => (500, text),
        PushError::Unavailable { text } => (500, unavailable(&text)),
        PushError::Malformed { text } => (400, text),
    }
}

/// When to come back after a 503 that knows no better: what made it passes by itself, as a start,
/// a slow network or a moment without room.
const UNAVAILABLE_RETRY_AFTER_SECS: u64 = 1;

/// An error page as Go's `http.Error` writes it.
pub fn http_error(code: u16, text: &str) -> Response {
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    let mut response = (code, headers, format!("{text}\n")).into_response();
    if code == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, UNAVAILABLE_RETRY_AFTER_SECS.into());
    }
    response
}

/// What the sender of a remote write is told.
pub fn remote_write_answer(
    protocol: Version,
    outcome: Result<distributor::Answer, distributor::PushError>,
) -> Response {
    let is_unreadable = is_unreadable(&outcome);
    let (written, refusal) = match outcome {
        Ok(distributor::Answer::Passed(answer)) => return passed(answer),
        Ok(distributor::Answer::Taken { written, partly: None }) => (Some(written), None),
        Ok(distributor::Answer::Taken { written, partly: Some(partly) }) => {
            (Some(written), Some(Refusal::from(partly)))
        }
        // Cortex does not count for bytes that it cannot read.
        Err(error @ distributor::PushError::Unreadable(_)) => (None, Some(error.into())),
        Err(error) => (Some(Written::default()), Some(error.into())),
    };
    let mut response = match (refusal, protocol) {
        (Some(refusal), _) => refusal.response(),
        (None, Version::V1) => StatusCode::OK.into_response(),
        (None, Version::V2) => {
            let mut response = StatusCode::NO_CONTENT.into_response();
            response.headers_mut().remove(header::CONTENT_LENGTH);
            response
        }
    };
    if is_unreadable {
        response.extensions_mut().insert(front_door::Unreadable);
    }
    if let (Version::V2, Some(written)) = (protocol, written) {
        let headers = response.headers_mut();
        for (name, count) in [
            (WRITTEN_HEADERS.samples, written.samples),
            (WRITTEN_HEADERS.histograms, written.histograms),
            (WRITTEN_HEADERS.exemplars, written.exemplars),
        ] {
            headers.insert(HeaderName::from_static(name), count.into());
        }
    }
    response
}

/// The body was no write, for the front door.
fn is_unreadable(outcome: &Result<distributor::Answer, distributor::PushError>) -> bool {
    use distributor::PushError as Error;
    match outcome {
        Err(Error::Unreadable(error)) => !matches!(error, Unreadable::NoRoom),
        Err(Error::Unfit(error)) => matches!(error, PrepareError::Unreadable(_)),
        _ => false,
    }
}

/// A remote write that was not taken, or not whole.
struct Refusal {
    status: u16,
    text: String,
    /// When to come back, where that is known and helps.
    wait_ns: Option<u64>,
}

impl Refusal {
    /// Who is told to come back is told when, so that senders do not come back all at once. A
    /// request over a rate that no wait lets through gets no time: it would be told in vain.
    fn response(&self) -> Response {
        let mut response = http_error(self.status, &self.text);
        if self.status == TOO_MANY_REQUESTS {
            response.extensions_mut().insert(OwnRefusal);
        }
        let wait_ns = match self.status {
            TOO_MANY_REQUESTS => self.wait_ns,
            SERVICE_UNAVAILABLE => Some(self.wait_ns.unwrap_or(0)),
            _ => None,
        };
        if let Some(wait_ns) = wait_ns {
            let wait_secs = retry_after_secs(wait_ns, rand::random());
            response.headers_mut().insert(header::RETRY_AFTER, wait_secs.into());
        }
        response
    }
}

impl From<Partly> for Refusal {
    fn from(partly: Partly) -> Self {
        match partly {
            Partly::Invalid { text } => Self { status: 400, text, wait_ns: None },
            Partly::Refused(refused) => refused.into(),
        }
    }
}

impl From<distributor::Refused> for Refusal {
    fn from(refused: distributor::Refused) -> Self {
        Self { status: TOO_MANY_REQUESTS, text: refused.text, wait_ns: refused.wait_ns }
    }
}

/// Of a request whose samples are another replica's, or may be.
fn dropped_status(dropped: &Dropped) -> u16 {
    match dropped {
        // Cortex's: the sender is not to send it again.
        Dropped::Deduped(_) => 202,
        Dropped::TooMany(_) | Dropped::Store(HaError::Unreadable(_)) => 400,
        Dropped::Store(_) => 500,
    }
}

impl From<distributor::PushError> for Refusal {
    fn from(error: distributor::PushError) -> Self {
        let text = error.to_string();
        let (status, wait_ns) = match error {
            distributor::PushError::Overload(overload) => {
                (SERVICE_UNAVAILABLE, Some(overload.wait_ns()))
            }
            distributor::PushError::Unreadable(Unreadable::RemoteWrite(error)) => {
                (error.status(), None)
            }
            distributor::PushError::Unreadable(Unreadable::Otlp(_)) => (400, None),
            distributor::PushError::Unreadable(Unreadable::NoRoom) => (SERVICE_UNAVAILABLE, None),
            distributor::PushError::Dropped(dropped) => (dropped_status(&dropped), None),
            distributor::PushError::Unfit(PrepareError::MetricNameMissing { .. }) => (500, None),
            distributor::PushError::Unfit(_) => (400, None),
            distributor::PushError::OverRate(refused) => return refused.into(),
            distributor::PushError::BudgetUnknown(refused) => {
                (SERVICE_UNAVAILABLE, refused.wait_ns)
            }
            distributor::PushError::Sink(error) => return error.into(),
        };
        Self { status, text, wait_ns }
    }
}

impl From<SinkError> for Refusal {
    fn from(error: SinkError) -> Self {
        let (text, wait_ns) = (error.to_string(), error.wait_ns());
        match error {
            SinkError::Told { status, .. } | SinkError::Refused { status, .. } => {
                Self { status, text, wait_ns }
            }
            SinkError::Unavailable { text } => {
                Self { status: 500, text: unavailable(&text), wait_ns }
            }
            SinkError::Unplaced { .. } | SinkError::Failed { .. } => {
                Self { status: 500, text, wait_ns }
            }
            SinkError::Upstream(error) => {
                let status = match error {
                    HttpUpstreamError::Unreachable { .. }
                    | HttpUpstreamError::Down { .. }
                    | HttpUpstreamError::Full { .. } => SERVICE_UNAVAILABLE,
                    HttpUpstreamError::DeadlineExceeded { .. } => 504,
                    HttpUpstreamError::Broken { .. } | HttpUpstreamError::AnswerTooLarge => 502,
                    HttpUpstreamError::Unsendable => 400,
                };
                Self { status, text, wait_ns }
            }
        }
    }
}

/// The answer of the distributor behind us, as it came.
fn passed(answer: upstream::distributor::Answer) -> Response {
    let mut response = (answer.status, answer.body).into_response();
    *response.headers_mut() = answer.headers;
    response
}

/// Tells what is left of a budget, that of a tenant for one; `policy_name` says whose it is, in plain letters. Without a
/// limit nothing is told.
///
/// The time until the bucket is full is told as the reset: within one debt it is one moment, and
/// does not move with each request.
pub fn tell_budget(
    response: &mut Response,
    form: RateLimitHeaders,
    policy_name: &str,
    budget: BucketView,
) {
    if budget.rate == RATE_UNLIMITED || form == RateLimitHeaders::Off {
        return;
    }
    let remaining = budget.credits.max(0.0).floor() as u64;
    // Both conversions saturate: a rate of nothing fills no bucket.
    let secs_for = |credits: f64| (credits.max(0.0) / budget.rate).ceil() as u64;
    let reset_secs = secs_for(budget.burst as f64 - budget.credits);
    let headers = response.headers_mut();
    match form {
        RateLimitHeaders::Off => {}
        RateLimitHeaders::Draft => {
            let window_secs = secs_for(budget.burst as f64).max(1);
            let policy = format!("\"{policy_name}\";q={};w={window_secs}", budget.burst);
            let left = format!("\"{policy_name}\";r={remaining};t={reset_secs}");
            for (name, value) in [("ratelimit-policy", policy), ("ratelimit", left)] {
                let value = HeaderValue::from_str(&value).expect("letters, digits and punctuation");
                headers.insert(name, value);
            }
        }
        RateLimitHeaders::Legacy => {
            headers.insert("x-ratelimit-limit", budget.burst.into());
            headers.insert("x-ratelimit-remaining", remaining.into());
            headers.insert("x-ratelimit-reset", reset_secs.into());
        }
    }
}

/// Why a reader gets no answer, in the words of Prometheus' HTTP API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRefusal {
    pub status: u16,
    /// `errorType` of the API.
    pub kind: &'static str,
    pub text: String,
    /// When to come back, where that may help.
    pub retry_after_secs: Option<u64>,
    /// What has failed here, for the log alone.
    pub fault: Option<String>,
}

impl ReadRefusal {
    /// The request is at fault.
    pub fn bad_data(text: impl Into<String>) -> Self {
        Self::new(400, "bad_data", text)
    }

    /// The request is sound, but asks for too much or for what is not here.
    pub fn execution(text: impl Into<String>) -> Self {
        Self::new(422, "execution", text)
    }

    /// Sound, and for somebody else.
    pub fn not_here(text: impl Into<String>) -> Self {
        Self::new(501, "unavailable", text)
    }

    pub fn new(status: u16, kind: &'static str, text: impl Into<String>) -> Self {
        Self { status, kind, text: text.into(), retry_after_secs: None, fault: None }
    }

    /// Not now; a 503 without a time is to be tried again soon.
    fn unavailable(status: u16, text: String, retry_after_secs: Option<u64>) -> Self {
        let soon = (status == SERVICE_UNAVAILABLE).then_some(UNAVAILABLE_RETRY_AFTER_SECS);
        let retry_after_secs = retry_after_secs.or(soon);
        Self { retry_after_secs, ..Self::new(status, "unavailable", text) }
    }

    /// As a plain page, for remote read.
    pub fn page(&self) -> Response {
        http_error(self.status, &self.text)
    }
}

impl From<StoreError> for ReadRefusal {
    fn from(error: StoreError) -> Self {
        if error.is_query_limit() {
            return Self::execution(error.to_string());
        }
        // Readers learn that it is not their fault; the cause is for who runs the store.
        let mut fault = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            fault = format!("{fault}: {error}");
            cause = error.source();
        }
        Self { fault: Some(fault), ..Self::unavailable(503, error.to_string(), None) }
    }
}

impl From<MatcherError> for ReadRefusal {
    fn from(error: MatcherError) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        Self::bad_data(format!("{error}{}", cause.unwrap_or_default()))
    }
}

impl From<RemoteReadError> for ReadRefusal {
    fn from(error: RemoteReadError) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        Self::bad_data(format!("{error}{}", cause.unwrap_or_default()))
    }
}

impl From<WorkLost> for ReadRefusal {
    fn from(error: WorkLost) -> Self {
        Self::new(500, "internal", error.to_string())
    }
}

/// A query that the gate does not answer.
impl From<frontend::AnswerError> for ReadRefusal {
    fn from(error: frontend::AnswerError) -> Self {
        use frontend::AnswerError as Told;
        let after = |wait_ns: Option<u64>| wait_ns.map(|ns| retry_after_secs(ns, rand::random()));
        let text = error.to_string();
        match error {
            Told::ClientBudget { wait_ns, .. } => {
                let refusal = Self::new(TOO_MANY_REQUESTS, "too_many_requests", text);
                Self { retry_after_secs: after(wait_ns), ..refusal }
            }
            Told::Full(frontend::Full::OfTenant { .. } | frontend::Full::OfClient { .. }) => {
                let retry_after_secs = Some(UNAVAILABLE_RETRY_AFTER_SECS);
                let refusal = Self::new(TOO_MANY_REQUESTS, "too_many_requests", text);
                Self { retry_after_secs, ..refusal }
            }
            Told::Full(frontend::Full::All { .. }) => Self::unavailable(503, text, None),
            Told::BudgetUnknown { wait_ns, .. } => Self::unavailable(503, text, after(wait_ns)),
            Told::NoAnswer(frontend::NoAnswer::Downstream(error)) => {
                let wait = error.wait().map(|wait| u64::try_from(wait.as_nanos()).unwrap_or(0));
                match error.http_status() {
                    400 => Self::bad_data(text),
                    CLIENT_CLOSED_REQUEST => Self::new(CLIENT_CLOSED_REQUEST, "canceled", text),
                    status @ (408 | 504) => Self::new(status, "timeout", text),
                    status => Self::unavailable(status, text, after(wait)),
                }
            }
            Told::NoAnswer(frontend::NoAnswer::BrokenOff(_) | frontend::NoAnswer::Unasked) => {
                Self::unavailable(502, text, None)
            }
        }
    }
}

/// A request that no proxy sends on.
impl From<Unproxied> for ReadRefusal {
    fn from(error: Unproxied) -> Self {
        Self { status: error.http_status(), ..Self::bad_data(error.to_string()) }
    }
}

/// A gRPC error as Go prints it where only a text is left of it.
fn unavailable(text: &str) -> String {
    format!("rpc error: code = Unavailable desc = {text}")
}

/// Percent-encoding as grpc-go does it: printable ASCII but `%` stays.
fn percent_encoded(message: &str) -> HeaderValue {
    let mut encoded = String::with_capacity(message.len());
    for &byte in message.as_bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    HeaderValue::from_str(&encoded).expect("only printable ASCII is left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_one_number_in_trailer_and_details() {
        let mut headers = HeaderMap::new();
        GrpcStatus::from(PushError::Rejected { code: 400, text: "user=a: no".to_owned() })
            .write_to(&mut headers);
        assert_eq!(headers["grpc-status"], "400");
        assert_eq!(headers["grpc-message"], "user=a: no");
        let details = headers["grpc-status-details-bin"].as_bytes();
        let bytes = BASE64_STANDARD_NO_PAD.decode(details).expect("base64 without padding");
        // By hand: code 400, message, and one Any with code 400 and the text as body.
        let mut expect = b"\x08\x90\x03\x12\x0auser=a: no\x1a\x3f\x0a\x2c".to_vec();
        expect.extend_from_slice(b"type.googleapis.com/httpgrpc.HTTPResponse");
        let any = b"\x12\x0f\x08\x90\x03\x1a\x0auser=a: no";
        expect.extend_from_slice(any);
        // Lengths of the hand-written prefix follow from its parts.
        let any_len = 2 + 41 + any.len();
        expect[16] = u8::try_from(any_len).expect("short");
        expect[18] = 41;
        assert_eq!(bytes, expect);
    }

    #[test]
    fn plain_errors_have_no_details() {
        let mut headers = HeaderMap::new();
        GrpcStatus::from(PushError::Plain { text: "no org id".to_owned() }).write_to(&mut headers);
        assert_eq!(headers["grpc-status"], "2");
        assert!(!headers.contains_key("grpc-status-details-bin"));
        headers.clear();
        GrpcStatus::ok().write_to(&mut headers);
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn messages_are_encoded_as_grpc_go_does() {
        let check = |message: &str, expect: &str| assert_eq!(percent_encoded(message), expect);
        check("series={a=\"b\"}~", "series={a=\"b\"}~");
        check("100%\n", "100%25%0A");
        check("\u{e9}\u{7f}", "%C3%A9%7F");
    }
}
