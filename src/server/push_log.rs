//! Log lines of pushes over gRPC that name their client or themselves, where one is refused or
//! takes long.
//!
//! A distributor tells its own refusals; what an ingester behind it refuses it tells here, so that
//! a client is found wherever its writes fail, and a request by the name that the distributor has
//! given it. Each kind has a bucket of lines.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, Response};

use super::client_header::ClientHeader;
use super::status::GrpcStatus;
use super::tenancy::Tenancy;
use super::trails::id_of_call;
use crate::clock::Clock;
use crate::ratelimit::LogLines;
use crate::tenant::{ClientId, TenantId};
use crate::trail::{RequestId, Span};
use crate::upstream::percent_decoded;

/// Pushes that take longer are slow: half of what distributors wait by default.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// Longest text of a line, in bytes: a sender decides how long its labels are.
const TEXT_BYTES_MAX: usize = 2048;

pub struct PushLog {
    clients: ClientHeader,
    clock: Clock,
    /// Locked for a look at a bucket; never across an await.
    lines: Mutex<[LogLines; KINDS]>,
}

/// Kinds of lines that have a bucket each.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Kind {
    /// 429: a rate.
    OverRate,
    /// Another 4xx: something about the series.
    Invalid,
    /// Not the sender's fault.
    Failed,
    Slow,
}

const KINDS: usize = Kind::Slow as usize + 1;

/// A push under way that will be told of by name.
pub struct Named {
    tenant: TenantId,
    client: Option<ClientId>,
    request_id: Option<RequestId>,
    began_ns: i64,
}

/// How a push ended.
enum End {
    Well,
    Refused { code: i32, text: String },
}

impl PushLog {
    pub fn new(clients: ClientHeader) -> Self {
        Self { clients, clock: Clock::start(), lines: Mutex::default() }
    }

    /// Whose push it is, where it says so. What is no client's name names nobody: it is for the
    /// log only, and no reason to refuse anything.
    pub fn named(&self, tenancy: Tenancy, headers: &HeaderMap) -> Option<Named> {
        let client = self.clients.client(headers).ok().flatten();
        let request_id = id_of_call(headers);
        if client.is_none() && request_id.is_none() {
            return None;
        }
        let tenant = tenancy.tenant(headers).ok()?;
        Some(Named { tenant, client, request_id, began_ns: self.clock.steady_ns() })
    }

    /// Tells of a push that was refused or slow, if its kind has a line left.
    pub fn tell<B>(&self, named: &Named, span: &Span, outcome: &Result<Response<B>, GrpcStatus>) {
        let now_ns = self.clock.steady_ns();
        let took = Duration::from_nanos(now_ns.abs_diff(named.began_ns));
        let tenant = named.tenant.as_str();
        let client = named.client.as_ref().map(ClientId::as_str);
        let request_id = named.request_id.as_ref().map(RequestId::as_str);
        let trace_id = span.recorded_in().map(tracing::field::display);
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        match end(outcome) {
            End::Refused { code, text } => {
                let kind = match code {
                    429 => Kind::OverRate,
                    400..=499 => Kind::Invalid,
                    _ => Kind::Failed,
                };
                let Some(untold) = self.take(kind, now_ns) else { return };
                let error = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
                tracing::warn!(
                    tenant,
                    client,
                    code,
                    error,
                    took_ms,
                    request_id,
                    trace_id,
                    untold,
                    "push refused"
                );
            }
            End::Well if took > SLOW_AFTER => {
                let Some(untold) = self.take(Kind::Slow, now_ns) else { return };
                tracing::warn!(tenant, client, took_ms, request_id, trace_id, untold, "slow push");
            }
            End::Well => {}
        }
    }

    fn take(&self, kind: Kind, now_ns: i64) -> Option<u64> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines[kind as usize].take(now_ns)
    }
}

/// An upstream's refusal is a response whose headers hold the status, as Go writes them.
fn end<B>(outcome: &Result<Response<B>, GrpcStatus>) -> End {
    let headers = match outcome {
        Err(status) => return End::Refused { code: status.code(), text: status.message().into() },
        Ok(response) => response.headers(),
    };
    let code = headers.get("grpc-status").and_then(|code| code.to_str().ok()?.parse().ok());
    match code {
        None | Some(0) => End::Well,
        Some(code) => {
            let text = headers.get("grpc-message").map(|text| percent_decoded(text.as_bytes()));
            End::Refused { code, text: text.unwrap_or_default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::clients::config::ClientIdentityConfig;
    use crate::telemetry::testing::logged;

    fn log(enabled: bool) -> PushLog {
        let config = ClientIdentityConfig { enabled, ..ClientIdentityConfig::default() };
        PushLog::new(ClientHeader::of_grpc(&config))
    }

    fn headers(client: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-scope-orgid", HeaderValue::from_static("a"));
        headers.insert("x-scope-clientid", HeaderValue::from_static(client));
        headers
    }

    fn refusal(text: &str) -> Result<Response<()>, GrpcStatus> {
        Err(GrpcStatus::http(400, text))
    }

    #[test]
    fn a_refused_push_is_told_with_its_client_and_a_flood_in_few_lines() {
        let log = log(true);
        let named = log.named(Tenancy::Header, &headers("writer 7")).expect("named");
        let lines = logged(|| {
            (0..100).for_each(|_| log.tell(&named, &Span::default(), &refusal("over the limit")))
        });
        assert_eq!(lines.len(), 10);
        let line = &lines[0];
        for (name, value) in [
            ("message", "push refused"),
            ("level", "WARN"),
            ("tenant", "a"),
            ("client", "writer 7"),
            ("error", "over the limit"),
        ] {
            assert_eq!(line[name], value, "{name}");
        }
        assert_eq!((&line["code"], &line["untold"]), (&400.into(), &0.into()));
        let long = "ä".repeat(5000);
        let lines = logged(|| log_once(&refusal(&long)));
        assert_eq!(lines[0]["error"].as_str().expect("text").len(), TEXT_BYTES_MAX);
    }

    fn log_once(outcome: &Result<Response<()>, GrpcStatus>) {
        let log = log(true);
        let named = log.named(Tenancy::Header, &headers("w")).expect("named");
        log.tell(&named, &Span::default(), outcome);
    }

    #[test]
    fn an_upstreams_refusal_is_one_and_a_push_that_went_well_is_none() {
        let told = |status: &'static str| {
            let mut response = Response::new(());
            let text = HeaderValue::from_static("too%20many");
            response.headers_mut().insert("grpc-status", HeaderValue::from_static(status));
            response.headers_mut().insert("grpc-message", text);
            logged(|| log_once(&Ok(response)))
        };
        let lines = told("429");
        assert_eq!((&lines[0]["code"], &lines[0]["error"]), (&429.into(), &"too many".into()));
        assert_eq!(lines[0].get("error_id"), None);
        assert!(told("0").is_empty());
        assert!(logged(|| log_once(&Ok(Response::new(())))).is_empty());
    }

    #[test]
    fn a_refusal_that_the_docs_list_is_told_by_its_id() {
        let text = "user=a: per-user series limit of 5 exceeded, ask (local limit: 0 global \
                    limit: 5 actual local limit: 5)";
        let lines = logged(|| log_once(&refusal(text)));
        assert_eq!(lines[0]["error_id"], "series-limit-tenant", "{lines:?}");
    }

    #[test]
    fn a_slow_push_is_told_however_it_ended_well() {
        let log = log(true);
        let named = log.named(Tenancy::Header, &headers("w")).expect("named");
        let began_ns = named.began_ns - 3 * SLOW_AFTER.as_nanos() as i64;
        let named = Named { began_ns, ..named };
        let lines = logged(|| log.tell(&named, &Span::default(), &Ok(Response::new(()))));
        assert_eq!((&lines[0]["message"], &lines[0]["client"]), (&"slow push".into(), &"w".into()));
        assert!(lines[0]["took_ms"].as_u64() >= Some(3000), "{lines:?}");
    }

    #[test]
    fn a_push_that_is_called_something_is_told_without_a_client_too() {
        let log = log(false);
        let mut headers = headers("w");
        headers.insert("x-request-id", HeaderValue::from_static("r-1"));
        let named = log.named(Tenancy::Header, &headers).expect("named");
        let over_rate: Result<Response<()>, _> = Err(GrpcStatus::http(429, "too much"));
        let lines = logged(|| {
            (0..100).for_each(|_| log.tell(&named, &Span::default(), &refusal("bad")));
            log.tell(&named, &Span::default(), &over_rate);
        });
        assert_eq!(lines.len(), 11, "one kind hides no other");
        assert_eq!((&lines[0]["request_id"], lines[0].get("client")), (&"r-1".into(), None));
    }

    #[test]
    fn who_is_not_named_or_not_asked_for_is_not_told() {
        assert!(log(false).named(Tenancy::Header, &headers("w")).is_none());
        let log = log(true);
        assert!(log.named(Tenancy::Header, &HeaderMap::new()).is_none());
        let mut both = headers("w");
        both.append("x-scope-clientid", HeaderValue::from_static("v"));
        assert!(log.named(Tenancy::Header, &both).is_none(), "for the log alone it is no error");
    }
}
