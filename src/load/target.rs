//! One request to the server that is tried: remote write over HTTP, or Push over gRPC.
//!
//! Both go by the pools that the gates use. Nothing is sent again: what a caller of ours would
//! repeat is told as what it was.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};

use super::tally::Outcome;
use crate::config::{LoadArgs, LoadTo};
use crate::query::{InstanceError, read_bearer};
use crate::ring::config::address::{Address, AddressError, Scheme};
use crate::server::tenancy::TENANT_HEADER;
use crate::tls::TlsError;
use crate::units::Millis;
use crate::upstream::config::UpstreamConfig;
use crate::upstream::distributor::config::HttpUpstreamConfig;
use crate::upstream::distributor::{
    Answer, HttpUpstream, HttpUpstreamError, HttpUpstreamStartError, Passed,
};
use crate::upstream::{AskError, Upstream, UpstreamError, UpstreamStartError};

/// Where remote writes go unless the URL says otherwise.
const PUSH_PATH: &str = "/api/v1/push";
const PUSH_METHOD: &str = "/cortex.Ingester/Push";
/// Bytes under way: as many as all lanes may have; what bounds them is the batch.
const IN_FLIGHT_BYTES_MAX: usize = 1 << 40;
/// Who sends below the tenant.
const CLIENT_HEADER: &str = "x-scope-clientid";

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("--address cannot be used")]
    Address(#[from] AddressError),
    #[error(transparent)]
    Bearer(#[from] InstanceError),
    #[error(
        "--address names a query without a path; give host:port, or a URL such as http://host:port/api/v1/push"
    )]
    Query,
    #[error("cannot prepare TLS to it")]
    Tls(#[source] TlsError),
    #[error("there is no way to it")]
    Http(#[source] HttpUpstreamStartError),
    #[error("there is no way to it")]
    Grpc(#[source] UpstreamStartError),
}

impl From<HttpUpstreamStartError> for TargetError {
    /// The pool's words for TLS are about a distributor.
    fn from(error: HttpUpstreamStartError) -> Self {
        match error {
            HttpUpstreamStartError::Tls(source) => Self::Tls(source),
            other => Self::Http(other),
        }
    }
}

impl From<UpstreamStartError> for TargetError {
    fn from(error: UpstreamStartError) -> Self {
        match error {
            UpstreamStartError::Tls(source) => Self::Tls(source),
            other => Self::Grpc(other),
        }
    }
}

pub struct Target {
    way: Way,
    /// What every request says.
    headers: HeaderMap,
}

enum Way {
    Http { upstream: HttpUpstream, path: String },
    Grpc { upstream: Upstream, timeout: Duration },
}

impl Target {
    /// Nothing is dialled yet.
    pub fn new(args: &LoadArgs) -> Result<Self, TargetError> {
        let text = &args.asked.address;
        let address = match text.contains("://") {
            true => Address::parse_url(text)?,
            false => Address::parse(text)?,
        };
        if address.path.starts_with("/?") {
            return Err(TargetError::Query);
        }
        let mut headers = HeaderMap::new();
        if let Some(path) = &args.asked.bearer_token_file {
            headers.insert(header::AUTHORIZATION, read_bearer(path)?);
        }
        let way = match args.to {
            LoadTo::RemoteWrite => {
                for (name, value) in REMOTE_WRITE_HEADERS {
                    headers.insert(name, HeaderValue::from_static(value));
                }
                let path = if address.path == "/" { PUSH_PATH } else { &address.path };
                let path = path.to_owned();
                Way::Http { upstream: HttpUpstream::new(&http_config(args, &address))?, path }
            }
            LoadTo::Push => Way::Grpc {
                upstream: Upstream::new(&grpc_config(args, &address))?,
                timeout: args.timeout,
            },
        };
        Ok(Self { way, headers })
    }

    /// Whether it takes a snappy block; else the message as it is.
    pub fn takes_blocks(&self) -> bool {
        matches!(self.way, Way::Http { .. })
    }

    /// Sends a request and waits for its answer, no longer than the timeout.
    pub async fn send(&self, tenant: &str, client: Option<&str>, body: Vec<u8>) -> Outcome {
        let mut headers = self.headers.clone();
        let names = [(TENANT_HEADER, Some(tenant)), (CLIENT_HEADER, client)];
        for (name, value) in names {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        }
        match &self.way {
            Way::Http { upstream, path } => {
                let answer = upstream.forward(Passed::new(path, &headers), Bytes::from(body));
                http_outcome(answer.await)
            }
            Way::Grpc { upstream, timeout } => {
                match upstream.ask_with(PUSH_METHOD, headers, &body, *timeout).await {
                    Ok(_) => Outcome::Accepted,
                    Err(AskError::Status { code, message }) => {
                        Outcome::Refused { status: code, text: message }
                    }
                    Err(error) => Outcome::Unanswered { text: grpc_text(error, *timeout) },
                }
            }
        }
    }
}

/// Of remote write 1.0.
const REMOTE_WRITE_HEADERS: [(&str, &str); 3] = [
    ("content-type", "application/x-protobuf"),
    ("content-encoding", "snappy"),
    ("x-prometheus-remote-write-version", "0.1.0"),
];

fn http_config(args: &LoadArgs, address: &Address) -> HttpUpstreamConfig {
    let scheme = if address.scheme == Some(Scheme::Https) { "https" } else { "http" };
    let lanes = args.shape.lanes as usize;
    HttpUpstreamConfig {
        url: format!("{scheme}://{}", address.authority()),
        timeout: millis(args.timeout),
        connect_timeout: millis(args.timeout),
        // Waits that grow are for senders who have something to lose.
        connect_backoff_max_delay: HttpUpstreamConfig::default().connect_backoff_base_delay,
        max_idle_connections: lanes,
        max_inflight_requests: lanes,
        max_inflight_bytes: IN_FLIGHT_BYTES_MAX,
        tls_ca_path: args.asked.tls_ca.clone(),
        ..HttpUpstreamConfig::default()
    }
}

fn grpc_config(args: &LoadArgs, address: &Address) -> UpstreamConfig {
    UpstreamConfig {
        address: address.authority(),
        connect_timeout: millis(args.timeout),
        connect_backoff_max_delay: UpstreamConfig::default().connect_backoff_base_delay,
        max_inflight_requests: args.shape.lanes as usize,
        max_inflight_bytes: IN_FLIGHT_BYTES_MAX,
        tls_enabled: address.scheme == Some(Scheme::Https),
        tls_ca_path: args.asked.tls_ca.clone(),
        ..UpstreamConfig::default()
    }
}

fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn http_outcome(answer: Result<Answer, HttpUpstreamError>) -> Outcome {
    match answer {
        Ok(answer) if answer.status.is_success() => Outcome::Accepted,
        Ok(answer) => Outcome::Refused {
            status: i32::from(answer.status.as_u16()),
            text: String::from_utf8_lossy(&answer.body).into_owned(),
        },
        Err(error) => Outcome::Unanswered { text: http_text(error) },
    }
}

/// The texts of the pools speak of a gate and its distributor, or of a sidecar and its upstream;
/// here there is whoever is tried, whose address stands above.
fn http_text(error: HttpUpstreamError) -> String {
    match error {
        HttpUpstreamError::Unreachable { cause, .. } => format!("cannot be reached: {cause}"),
        HttpUpstreamError::Down { .. } => "could not be reached a moment ago".to_owned(),
        HttpUpstreamError::Full { bound, .. } => format!("not sent, too much under way: {bound}"),
        HttpUpstreamError::DeadlineExceeded { timeout } => format!("no answer within {timeout:?}"),
        HttpUpstreamError::Broken { cause } => format!("broke off: {cause}"),
        HttpUpstreamError::AnswerTooLarge => "the answer is too long to be read".to_owned(),
        HttpUpstreamError::Unsendable => "the path or a header cannot be sent".to_owned(),
    }
}

fn grpc_text(error: AskError, timeout: Duration) -> String {
    match error {
        AskError::Upstream(error) => match error {
            UpstreamError::Unreachable { cause, .. } => format!("cannot be reached: {cause}"),
            UpstreamError::Busy { .. } => "takes no further call on its connections".to_owned(),
            UpstreamError::Full { bound, max, .. } => {
                format!("not sent, too much under way: {bound} of {max}")
            }
            UpstreamError::DeadlineExceeded { .. } => format!("no answer within {timeout:?}"),
            UpstreamError::Reset { reason, .. } => format!("reset the call: {reason}"),
            UpstreamError::Broken { cause, .. } => format!("broke off: {cause}"),
            UpstreamError::AnswerTooLarge { .. } => "the answer is too long to be read".to_owned(),
            UpstreamError::BrokenOff { .. } => "the call was given up here".to_owned(),
        },
        AskError::Status { code, message } => format!("status {code}: {message}"),
        AskError::NoStatus => "the answer has no status".to_owned(),
        AskError::TooLarge { .. } => "the answer is too long to be read".to_owned(),
        AskError::Garbled { what } => format!("the answer is garbled: {what}"),
        AskError::Decode(cause) => format!("the answer cannot be read: {cause}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_tried_is_called_neither_an_upstream_nor_a_distributor() {
        let (address, cause): (Arc<str>, Arc<str>) = ("h:1".into(), "connection refused".into());
        let wait = Duration::from_secs(1);
        let of_grpc = [
            UpstreamError::Unreachable { address: address.clone(), cause: cause.clone() },
            UpstreamError::Busy { address: address.clone() },
            UpstreamError::DeadlineExceeded { address: address.clone() },
            UpstreamError::Reset { address: address.clone(), reason: h2::Reason::CANCEL },
            UpstreamError::Broken { address: address.clone(), cause },
            UpstreamError::AnswerTooLarge { address: address.clone(), bytes_max: 1 },
            UpstreamError::BrokenOff { address },
        ];
        let of_grpc = of_grpc.map(|error| grpc_text(AskError::Upstream(error), wait));
        let of_http = [
            HttpUpstreamError::Unreachable { cause: "connection refused".to_owned(), wait },
            HttpUpstreamError::Down { wait },
            HttpUpstreamError::Full { bound: "requests", wait },
            HttpUpstreamError::DeadlineExceeded { timeout: wait },
            HttpUpstreamError::Broken { cause: "reset".to_owned() },
            HttpUpstreamError::AnswerTooLarge,
            HttpUpstreamError::Unsendable,
        ];
        let of_http = of_http.map(http_text);
        assert_eq!(of_grpc[0], "cannot be reached: connection refused");
        assert_eq!(of_http[0], of_grpc[0]);
        for text in of_grpc.iter().chain(&of_http) {
            assert!(!text.contains("upstream") && !text.contains("distributor"), "{text}");
        }
        assert_eq!(grpc_text(AskError::NoStatus, wait), "the answer has no status");
    }
}
