//! Where trails begin: requests get their names and spans as they come in.
//!
//! Over HTTP a request without a name gets one, and every answer says it. A call over gRPC is one
//! part of the cluster's to another: it keeps the name that it came with, and gets none.
//!
//! What is read of a request here are its headers alone, so nothing is spent on bodies. How long
//! it took is measured here too, where anybody wants to know, since no request comes by elsewhere.

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};

use super::durations::{Durations, Timed};
use super::front_door::Routes;
use super::status::GrpcStatus;
use crate::front_door::RouteClass;
use crate::tenant::TenantId;
use crate::trail::{Context, REQUEST_ID_HEADER, RequestId, Span, Tracer, Trail};

const REQUEST_ID: HeaderName = HeaderName::from_static(REQUEST_ID_HEADER);
/// What some proxies call it.
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
/// Names and values in turn, in which Cortex's distributors tell ingesters of a request.
const METADATA: HeaderName = HeaderName::from_static("x-request-metadata-propagation-string");
/// The request's name among them.
const CORTEX_REQUEST_ID: &str = "x-cortex-request-id";

/// Begins trails over HTTP. Cheap to clone.
#[derive(Clone, Default)]
pub struct Trails {
    tracer: Tracer,
    routes: Routes,
    durations: Option<Durations>,
}

/// A request that has come in. Dropped before it left, its sender has gone.
pub struct Entered {
    named: Option<HeaderValue>,
    span: Span,
    timed: Option<Timed>,
    has_left: bool,
}

impl Trails {
    pub fn new(tracer: Tracer, routes: Routes) -> Self {
        Self { tracer, routes, durations: None }
    }

    /// Measures all requests, probes and scrapes among them.
    pub fn with_durations(self, durations: Durations) -> Self {
        Self { durations: Some(durations), ..self }
    }

    /// Names a request and begins its span; handlers find the trail among its extensions. Probes
    /// and scrapes get neither, pages a name only.
    pub fn enter<B>(&self, request: &mut Request<B>) -> Entered {
        let path = request.uri().path();
        let durations = self.durations.as_ref();
        let timed = durations.map(|durations| durations.request(request.method(), path));
        let span = match self.routes.class(path) {
            None => return Entered { named: None, span: Span::default(), timed, has_left: true },
            Some(RouteClass::Admin) => Span::default(),
            Some(RouteClass::Write) => self.begin("write", request),
            Some(RouteClass::Query) => self.begin("query", request),
        };
        let headers = request.headers();
        let came = [REQUEST_ID, CORRELATION_ID].iter().find_map(|name| {
            let value = headers.get(name)?;
            Some((RequestId::parse(value.as_bytes())?, value.clone()))
        });
        let (id, named) = match came {
            Some((id, value)) => (id, Some(value)),
            None => {
                let id = made(headers);
                let value = HeaderValue::from_str(id.as_str()).ok();
                (id, value)
            }
        };
        span.text("freehold.request_id", id.as_str());
        let trail = Trail { request_id: Some(id), span: span.clone() };
        request.extensions_mut().insert(trail);
        Entered { named, span, timed, has_left: false }
    }

    fn begin<B>(&self, name: &'static str, request: &Request<B>) -> Span {
        let span = begin(&self.tracer, name, request.headers());
        if span.is_recorded() {
            span.text("http.request.method", request.method().as_str());
            span.text("url.path", request.uri().path());
            if let Some(user_agent) = text(request.headers(), "user-agent") {
                span.text("user_agent.original", user_agent);
            }
        }
        span
    }
}

impl Entered {
    /// The head of the answer is there: it says the request's name, and the span ends.
    pub fn leave<B>(mut self, response: &mut Response<B>) {
        self.has_left = true;
        if let Some(timed) = self.timed.take() {
            timed.answered(response.status());
        }
        if let Some(named) = self.named.take() {
            response.headers_mut().insert(REQUEST_ID, named);
        }
        if self.span.is_recorded() {
            let status = response.status();
            self.span.count("http.response.status_code", status.as_u16().into());
            if status.is_server_error() {
                self.span.fail(status.canonical_reason().unwrap_or("a server's error"));
            }
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.has_left {
            self.span.fail("given up before it was answered");
        }
    }
}

/// The span over a call over gRPC, where anybody traces.
pub fn begin_call(tracer: Option<&Tracer>, path: &str, headers: &HeaderMap) -> Span {
    let Some(tracer) = tracer.filter(|tracer| tracer.is_on()) else { return Span::default() };
    let span = begin(tracer, "call", headers);
    if span.is_recorded() {
        span.text("rpc.system", "grpc");
        span.text("rpc.method", path.rsplit('/').next().unwrap_or_default());
        if let Some(tenant) = text(headers, super::tenancy::TENANT_HEADER) {
            span.text("freehold.tenant", tenant);
        }
        if let Some(id) = id_of_call(headers) {
            span.text("freehold.request_id", id.as_str());
        }
    }
    span
}

/// Spans over the messages of a push stream, joined to the one who has opened it.
pub struct StreamTrail {
    tracer: Tracer,
    caller: Option<Context>,
}

impl StreamTrail {
    /// `None` where nobody traces.
    pub fn open(tracer: Option<&Tracer>, headers: &HeaderMap) -> Option<Self> {
        let tracer = tracer.filter(|tracer| tracer.is_on())?.clone();
        Some(Self { tracer, caller: Context::read(first_of(headers)) })
    }

    /// The span over a message that has come.
    pub fn message(&self, tenant: &TenantId, bytes: usize) -> Span {
        let span = self.tracer.begin_message("message", self.caller.as_ref());
        if span.is_recorded() {
            span.text("rpc.system", "grpc");
            span.text("rpc.method", "PushStream");
            span.text("freehold.tenant", tenant.as_str());
            span.count("rpc.message.size", bytes as u64);
        }
        span
    }
}

/// Notes what a message of a push stream was answered: a status of HTTP's, and a text.
pub fn end_message(span: &Span, code: i32, text: &str) {
    if span.is_recorded() {
        span.count("http.response.status_code", u64::try_from(code).unwrap_or(0));
        if !(200..300).contains(&code) {
            span.fail(text);
        }
    }
}

/// Notes how a call over gRPC ended, as far as its head says.
pub fn end_call<B>(span: &Span, outcome: &Result<Response<B>, GrpcStatus>) {
    if !span.is_recorded() {
        return;
    }
    let status = |code: i64| u64::try_from(code).unwrap_or(0);
    match outcome {
        Err(error) => {
            span.count("rpc.grpc.status_code", status(error.code().into()));
            span.fail(error.message());
        }
        Ok(response) => {
            let code = text(response.headers(), "grpc-status").and_then(|code| code.parse().ok());
            let code: i64 = code.unwrap_or(0);
            span.count("rpc.grpc.status_code", status(code));
            if code != 0 {
                span.fail(text(response.headers(), "grpc-message").unwrap_or_default());
            }
        }
    }
}

/// What a call over gRPC is called: the name that a part of the cluster has given it.
pub fn id_of_call(headers: &HeaderMap) -> Option<RequestId> {
    if let Some(value) = headers.get(REQUEST_ID) {
        return RequestId::parse(value.as_bytes());
    }
    let mut told = headers.get_all(METADATA).iter();
    while let (Some(name), Some(value)) = (told.next(), told.next()) {
        if name.as_bytes() == CORTEX_REQUEST_ID.as_bytes() {
            return RequestId::parse(value.as_bytes());
        }
    }
    None
}

/// Tells the next hop of a span, in place of what came; nothing changes where nobody traces.
pub fn tell(span: &Span, headers: &mut HeaderMap) {
    for (name, value) in span.headers() {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

fn begin(tracer: &Tracer, name: &'static str, headers: &HeaderMap) -> Span {
    tracer.begin(name, first_of(headers))
}

/// A name for a request that came with none: that of its trace, if it is in one, so that it is
/// found there; else one of our own.
fn made(headers: &HeaderMap) -> RequestId {
    match Context::read(first_of(headers)) {
        Some(context) => RequestId::of_bits(context.trace.bits()),
        None => RequestId::of_bits(rand::random()),
    }
}

fn first_of<'a>(headers: &'a HeaderMap) -> impl Fn(&'static str) -> Option<&'a [u8]> {
    move |name| headers.get(name).map(HeaderValue::as_bytes)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn enter(path: &str, headers: &[(&str, &str)]) -> (Option<String>, Option<String>) {
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).expect("a request");
        let entered = Trails::default().enter(&mut request);
        let trail = request.extensions().get::<Trail>();
        let inside = trail.and_then(Trail::id).map(str::to_owned);
        let mut response = Response::new(());
        entered.leave(&mut response);
        (inside, text(response.headers(), REQUEST_ID_HEADER).map(str::to_owned))
    }

    #[test]
    fn a_name_that_came_is_kept_and_answered() {
        let check = |headers: &[(&str, &str)], expect: &str| {
            let name = Some(expect.to_owned());
            assert_eq!(enter("/api/v1/push", headers), (name.clone(), name), "{headers:?}");
        };
        check(&[("x-request-id", "r-1")], "r-1");
        check(&[("x-correlation-id", "c-1")], "c-1");
        check(&[("x-request-id", "r-1"), ("x-correlation-id", "c-1")], "r-1");
        check(&[("x-request-id", "<script>"), ("x-correlation-id", "c-1")], "c-1");
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        check(&[("traceparent", &parent)], TRACE);
        check(&[("uber-trace-id", "1f:2:0:1")], "0000000000000000000000000000001f");
    }

    #[test]
    fn who_brings_none_gets_one_of_its_own_and_probes_get_none() {
        let (inside, answered) = enter("/api/v1/push", &[]);
        assert_eq!((inside.as_ref().map(String::len), &inside), (Some(32), &answered));
        assert_ne!(enter("/api/v1/push", &[]).0, inside);
        let (inside, _) = enter("/tenants", &[("x-request-id", "a b")]);
        assert_eq!(inside.map(|id| id.len()), Some(32));
        assert_eq!(enter("/ready", &[("x-request-id", "r-1")]), (None, None));
    }

    #[test]
    fn a_call_is_called_what_distributors_call_it() {
        let mut headers = HeaderMap::new();
        assert_eq!(id_of_call(&headers), None);
        for value in ["x-cortex-request-source", "api", "x-cortex-request-id", "c-7"] {
            headers.append(METADATA, HeaderValue::from_static(value));
        }
        assert_eq!(id_of_call(&headers).expect("named").as_str(), "c-7");
        headers.insert(REQUEST_ID, HeaderValue::from_static("r-7"));
        assert_eq!(id_of_call(&headers).expect("named").as_str(), "r-7");
    }
}
