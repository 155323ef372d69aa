//! Reading over HTTP: remote read, and the parts of Prometheus' API that list series.
//!
//! ```text
//! request ─► tenant ─► params ─► one of few calls at a time ─► store ─► JSON or protobuf
//! ```
//!
//! Every request is bounded: its body, its selectors, what the store reads for it, the answer in
//! memory, and how many are answered at once. All of a request runs on one blocking thread, since
//! the store waits for the disk and compiling expressions takes its time.

pub(super) mod answer;
mod params;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::{HeaderValue, Request, header};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};

use self::answer::Answer;
pub use self::answer::refusal;
use self::params::Params;
use super::http::{Tenant, read_body};
use super::seam::Work;
use super::status::{ReadRefusal, http_error};
use crate::clock::Clock;
use crate::ratelimit::LogLines;
use crate::store::{
    MatchOp, Matcher, Sample, Store, StoreError, StoredLabels, StoredValue, TimeRange,
};
use crate::tenant::TenantId;
use crate::wire::remote_read::{self, Query, QueryResult, ReadExemplar, ReadResponse};
use crate::wire::selector::{Comparison, Selector};
use crate::wire::write_request;

/// Readers answered at once; each holds up to three copies of its answer in memory.
const CALLS_MAX: usize = 4;
/// Largest answer, before compression: a day of some 1,500 series scraped every 15 s.
pub const ANSWER_BYTES_MAX: usize = 128 << 20;

/// What the routes of this room need.
#[derive(Clone)]
pub struct ReadEdge {
    store: Option<Arc<Store>>,
    series_max: u64,
    body_wait: Duration,
    work: Work,
    clock: Clock,
    /// Lines about what fails here; whoever reads often fails often.
    faults: Arc<Mutex<LogLines>>,
}

impl ReadEdge {
    /// `series_max` bounds what several selectors find together, as the store bounds each.
    pub fn new(store: Option<Arc<Store>>, series_max: u64, body_wait: Duration) -> Self {
        let (work, clock, faults) = (Work::blocking(CALLS_MAX), Clock::start(), Arc::default());
        Self { store, series_max, body_wait, work, clock, faults }
    }
}

/// The routes of this room.
pub fn router(edge: ReadEdge) -> Router {
    Router::new()
        .route("/api/v1/read", post(remote_read))
        .route("/api/v1/series", api(series))
        .route("/api/v1/labels", api(label_names))
        .route("/api/v1/label/{name}/values", get(label_values))
        .route("/api/v1/metadata", api(metadata))
        .route("/api/v1/query_exemplars", api(exemplars))
        .fallback(async || http_error(404, "404 page not found"))
        .with_state(edge)
}

/// One of the API's lists: what it writes from a store for a tenant.
type List = fn(&Reader<'_>, &Params) -> Result<Answer, ReadRefusal>;

fn api(list: List) -> MethodRouter<ReadEdge> {
    let handler = move |State(edge): State<ReadEdge>, tenant: Tenant, request: Request<Body>| async move {
        edge.list(tenant, request, list).await
    };
    get(handler).post(handler)
}

async fn label_values(
    State(edge): State<ReadEdge>,
    tenant: Tenant,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Response {
    let list = move |reader: &Reader<'_>, params: &Params| values(reader, &name, params);
    edge.list(tenant, request, list).await
}

async fn remote_read(State(edge): State<ReadEdge>, tenant: Tenant, body: Body) -> Response {
    let body = match read_body(body, remote_read::REQUEST_BYTES_MAX, edge.body_wait).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let answer = edge.call(tenant, move |reader| {
        let response = reader.answer(&remote_read::decode_request(&body)?)?;
        Ok(remote_read::compress(&response.into_bytes())?)
    });
    match answer.await {
        Ok(body) => {
            let headers = [
                (header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf")),
                (header::CONTENT_ENCODING, HeaderValue::from_static("snappy")),
            ];
            (headers, body).into_response()
        }
        Err(refusal) => refusal.page(),
    }
}

impl ReadEdge {
    async fn list(
        &self,
        tenant: Tenant,
        request: Request<Body>,
        list: impl FnOnce(&Reader<'_>, &Params) -> Result<Answer, ReadRefusal> + Send + 'static,
    ) -> Response {
        let (head, body) = request.into_parts();
        let body = match read_body(body, params::FORM_BYTES_MAX, self.body_wait).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let answer = self.call(tenant, move |reader| {
            let params = Params::parse(head.uri.query().unwrap_or_default(), &body)?;
            list(reader, &params)
        });
        match answer.await {
            Ok(answer) => answer.into_response(),
            Err(refusal) => answer::refusal(&refusal),
        }
    }

    async fn call<T: Send + 'static>(
        &self,
        Tenant(tenant): Tenant,
        call: impl FnOnce(&Reader<'_>) -> Result<T, ReadRefusal> + Send + 'static,
    ) -> Result<T, ReadRefusal> {
        let Some(store) = self.store.clone() else {
            let text = "this instance keeps no samples, since store.enabled is false";
            return Err(ReadRefusal::execution(text));
        };
        let series_max = self.series_max;
        let call = move || call(&Reader { store: &store, tenant: &tenant, series_max });
        let answer = self.work.run(call).await?;
        if let Err(ReadRefusal { fault: Some(fault), .. }) = &answer {
            self.tell(fault);
        }
        answer
    }

    fn tell(&self, fault: &str) {
        let mut lines = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = lines.take(self.clock.steady_ns());
        drop(lines);
        if let Some(untold) = taken {
            tracing::error!(error = LogLines::cut(fault), untold, "cannot answer a reader");
        }
    }
}

/// A tenant's side of the store.
struct Reader<'a> {
    store: &'a Store,
    tenant: &'a TenantId,
    series_max: u64,
}

impl Reader<'_> {
    fn answer(&self, queries: &[Query]) -> Result<ReadResponse, ReadRefusal> {
        let mut response = ReadResponse::default();
        for query in queries {
            let range = TimeRange { start_ms: query.start_ms, end_ms: query.end_ms };
            let matchers = matchers(&query.selector)?;
            let mut result = QueryResult::default();
            for series in self.store.select(self.tenant, &matchers, range)? {
                let series = series?;
                let samples = series.samples.iter().filter_map(float);
                let histograms = series.samples.iter().filter_map(histogram);
                result.push_series(series.labels.as_labels(), samples, histograms);
                check_size(response.len_bytes() + result.len_bytes())?;
            }
            response.push(&result);
        }
        Ok(response)
    }

    /// What any of the selectors selects, once each and sorted; without a selector, everything.
    fn union<T: Ord>(
        &self,
        params: &Params,
        select: impl Fn(&[Matcher]) -> Result<Vec<T>, StoreError>,
    ) -> Result<Vec<T>, ReadRefusal> {
        if params.selectors.is_empty() {
            return Ok(select(&[])?);
        }
        let mut found = Vec::new();
        for selector in &params.selectors {
            found.append(&mut select(&api_matchers(selector)?)?);
            found.sort_unstable();
            found.dedup();
            if found.len() as u64 > self.series_max {
                return Err(StoreError::TooManySeries { max: self.series_max }.into());
            }
        }
        Ok(found)
    }
}

fn float(sample: &Sample) -> Option<write_request::Sample> {
    match sample.value {
        StoredValue::Float { bits, start_ms } => Some(write_request::Sample {
            value: f64::from_bits(bits),
            timestamp_ms: sample.t_ms,
            start_timestamp_ms: start_ms,
        }),
        StoredValue::Histogram(_) => None,
    }
}

fn histogram(sample: &Sample) -> Option<&[u8]> {
    match &sample.value {
        StoredValue::Histogram(raw) => Some(raw),
        StoredValue::Float { .. } => None,
    }
}

fn check_size(bytes: usize) -> Result<(), ReadRefusal> {
    if bytes <= ANSWER_BYTES_MAX {
        return Ok(());
    }
    Err(ReadRefusal::execution(format!(
        "the answer has more than {ANSWER_BYTES_MAX} bytes; ask for fewer series or less time"
    )))
}

fn matchers(selector: &Selector) -> Result<Vec<Matcher>, ReadRefusal> {
    let matchers = selector.matchers.iter().map(|matcher| {
        let op = match matcher.comparison {
            Comparison::Equal => MatchOp::Equal,
            Comparison::NotEqual => MatchOp::NotEqual,
            Comparison::Regex => MatchOp::Regex,
            Comparison::NotRegex => MatchOp::NotRegex,
        };
        Matcher::new(op, matcher.name.as_bytes(), matcher.value.as_bytes())
    });
    Ok(matchers.collect::<Result<_, _>>()?)
}

/// As `matchers`, for the API, which wants a selector to leave something out.
fn api_matchers(selector: &Selector) -> Result<Vec<Matcher>, ReadRefusal> {
    let matchers = matchers(selector)?;
    let nothing = crate::labels::Labels::from_canonical(&[]);
    if matchers.iter().all(|matcher| matcher.matches(nothing)) {
        return Err(ReadRefusal::bad_data("match[] must contain at least one non-empty matcher"));
    }
    Ok(matchers)
}

fn series(reader: &Reader<'_>, params: &Params) -> Result<Answer, ReadRefusal> {
    if params.selectors.is_empty() {
        return Err(ReadRefusal::bad_data("no match[] parameter provided"));
    }
    let found = reader.union(params, |matchers| {
        let series = reader.store.series(reader.tenant, matchers, params.range)?;
        Ok(series.into_iter().map(ByLabels).collect())
    })?;
    let mut answer = Answer::list();
    for ByLabels(series) in params.limited(found, &mut answer) {
        answer.item(|json| json.labels(series.as_labels()));
        check_size(answer.len_bytes())?;
    }
    Ok(answer)
}

/// Series in the order of their labels.
struct ByLabels(StoredLabels);

impl Ord for ByLabels {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.as_labels().iter().cmp(other.0.as_labels().iter())
    }
}

impl PartialOrd for ByLabels {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByLabels {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByLabels {}

fn label_names(reader: &Reader<'_>, params: &Params) -> Result<Answer, ReadRefusal> {
    texts(
        params,
        reader.union(params, |matchers| {
            reader.store.label_names(reader.tenant, matchers, params.range)
        })?,
    )
}

fn values(reader: &Reader<'_>, name: &str, params: &Params) -> Result<Answer, ReadRefusal> {
    texts(
        params,
        reader.union(params, |matchers| {
            reader.store.label_values(reader.tenant, name.as_bytes(), matchers, params.range)
        })?,
    )
}

fn texts(params: &Params, found: Vec<Vec<u8>>) -> Result<Answer, ReadRefusal> {
    let mut answer = Answer::list();
    for text in params.limited(found, &mut answer) {
        answer.item(|json| json.text(&text));
        check_size(answer.len_bytes())?;
    }
    Ok(answer)
}

fn metadata(reader: &Reader<'_>, params: &Params) -> Result<Answer, ReadRefusal> {
    let metric = params.metric.as_ref().map(String::as_bytes);
    let found = reader.store.metadata(reader.tenant, metric)?;
    let mut answer = Answer::map();
    let by_metric = found.chunk_by(|a, b| a.metric == b.metric);
    for of_metric in by_metric.take(params.limit.unwrap_or(usize::MAX)) {
        let shown = of_metric.len().min(params.limit_per_metric.unwrap_or(usize::MAX));
        answer.entry(&of_metric[0].metric, |json| {
            json.list(of_metric[..shown].iter(), |json, metadata| json.metadata(metadata));
        });
        check_size(answer.len_bytes())?;
    }
    Ok(answer)
}

fn exemplars(reader: &Reader<'_>, params: &Params) -> Result<Answer, ReadRefusal> {
    let Some(selector) = &params.query else {
        return Err(ReadRefusal::bad_data("no query parameter provided"));
    };
    let matchers = api_matchers(selector)?;
    let mut answer = Answer::list();
    for series in reader.store.exemplars(reader.tenant, &matchers, params.range)? {
        let exemplars = series.exemplars.iter().map(|exemplar| ReadExemplar::decode(&exemplar.raw));
        let exemplars: Vec<_> = exemplars.collect::<Result<_, _>>()?;
        answer.item(|json| json.exemplars(series.labels.as_labels(), &exemplars));
        check_size(answer.len_bytes())?;
    }
    Ok(answer)
}
