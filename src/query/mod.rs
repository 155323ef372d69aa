//! What a running instance is asked by the commands for people: `freehold query`, what it holds
//! of a tenant's series; in `clients` what gates keep of budgets; in `ring` who is in the ring; in
//! `tenants` who has how many series.
//!
//! A query asks by remote read, so what is printed is what any reader gets. What people see of it
//! is bounded: the newest samples of the first series, and how many were left out. JSON has all.

pub mod clients;
pub mod explain;
mod instance;
pub mod ring;
mod series;
pub mod tenants;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;

use crate::clock::Clock;
use crate::config::{Output, QueryArgs};
use crate::go_text::Rfc3339Ms;
use crate::output::{self, Told};
use crate::server::read::ANSWER_BYTES_MAX;
use crate::server::tenancy::TENANT_HEADER;
use crate::wire::remote_read::{self, Query, RemoteReadError};
use crate::wire::selector::{Selector, SelectorError};
use crate::wire::timestamp;

pub use instance::InstanceError;
pub(crate) use instance::read_bearer;

/// Time that is looked at unless told otherwise.
const SPAN_MS: i64 = 3600 * 1000;
/// How long the instance may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("cannot read MATCHERS; write a series selector such as 'up{{job=\"node\"}}'")]
    Matchers(#[from] SelectorError),
    #[error("--{flag} {text:?} is no time; write RFC 3339 or Unix seconds")]
    Time { flag: &'static str, text: String },
    #[error("--tenant {tenant:?} cannot be sent in a header")]
    Tenant { tenant: String },
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error("{addr} did not answer within {PATIENCE:?}; ask for fewer series or less time")]
    TooSlow { addr: String },
    #[error("{addr} has no remote read; name freehold's HTTP listener by --address")]
    NotFreehold { addr: String },
    #[error("{addr} refuses the query with status {status}: {text}")]
    Refused { addr: String, status: u16, text: String },
    #[error("nothing is stored for tenant {tenant:?} in that time; check --tenant and --start")]
    UnknownTenant { tenant: String },
    #[error("cannot read the answer of {addr}")]
    Answer { addr: String, source: RemoteReadError },
    #[error("cannot write the series as JSON")]
    Json(#[source] serde_json::Error),
}

/// Asks a running instance and returns what to print.
pub async fn run(args: &QueryArgs) -> Result<Told, QueryError> {
    let selector = Selector::parse(&args.matchers)?;
    let end_ms = match &args.end {
        Some(text) => time("end", text)?,
        None => Clock::start().now().unix_ms,
    };
    let start_ms = match &args.start {
        Some(text) => time("start", text)?,
        None => end_ms.saturating_sub(SPAN_MS),
    };
    let asked = Query { start_ms, end_ms, selector };
    let block = remote_read::encode_request(&asked).map_err(|source| args.unread(source))?;
    let answer = args.send("/api/v1/read", "application/x-protobuf", block.into()).await?;
    let series = remote_read::decode_response(&answer, ANSWER_BYTES_MAX);
    let series = series.map_err(|source| args.unread(source))?;
    let text = match args.output {
        Output::Json => series::json(&series).map_err(QueryError::Json)?,
        Output::Table => series::print(&series),
    };
    if !series.is_empty() {
        return Ok(Told::plain(text));
    }
    // A mistaken tenant looks like a tenant without series.
    let form = format!("start={}&end={}&limit=1", seconds(start_ms), seconds(end_ms));
    let names =
        args.send("/api/v1/labels", "application/x-www-form-urlencoded", form.into()).await?;
    if String::from_utf8_lossy(&names).contains("\"data\":[]") {
        return Err(QueryError::UnknownTenant { tenant: args.tenant.clone() });
    }
    let (start, end) = (Rfc3339Ms(start_ms), Rfc3339Ms(end_ms));
    let none = format!(
        "no series of tenant {} match {} from {start} to {end}\n",
        args.tenant, asked.selector
    );
    Ok(Told::plain(if args.output == Output::Json { text } else { none }))
}

fn time(flag: &'static str, text: &str) -> Result<i64, QueryError> {
    timestamp::parse_ms(text).ok_or_else(|| QueryError::Time { flag, text: text.to_owned() })
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

impl QueryArgs {
    async fn send(&self, path: &str, kind: &str, body: Bytes) -> Result<Bytes, QueryError> {
        let asking = self.exchange(path, kind, body);
        let late = |_| QueryError::TooSlow { addr: self.addr.clone() };
        tokio::time::timeout(PATIENCE, asking).await.map_err(late)?
    }

    async fn exchange(&self, path: &str, kind: &str, body: Bytes) -> Result<Bytes, QueryError> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, kind)
            .header(TENANT_HEADER, &self.tenant)
            .body(Full::new(body));
        let request = request.map_err(|_| QueryError::Tenant { tenant: self.tenant.clone() })?;
        let answer = instance::exchange(&self.addr, request, ANSWER_BYTES_MAX).await?;
        self.judge(answer.status(), answer.into_body())
    }

    fn judge(&self, status: StatusCode, body: Bytes) -> Result<Bytes, QueryError> {
        let addr = self.addr.clone();
        match status {
            StatusCode::OK => Ok(body),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                Err(QueryError::NotFreehold { addr })
            }
            status => {
                let text = output::clean(String::from_utf8_lossy(&body).trim_end());
                Err(QueryError::Refused { addr, status: status.as_u16(), text })
            }
        }
    }

    fn unread(&self, source: RemoteReadError) -> QueryError {
        QueryError::Answer { addr: self.addr.clone(), source }
    }
}
