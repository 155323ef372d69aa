//! `/api/v1/user-overrides`: a tenant's own overrides in the runtime file, with Cortex's
//! requests, statuses and texts.
//!
//! Which limits may be set, and how high, stands in the same file (`api_allowed_limits`,
//! `hard_overrides`). A request is taken whole or not at all, and is in force once the file is
//! read again. Clients get Cortex's short texts; why is in the log, since it may name paths. Any
//! tenant can be refused as often as it likes, so those lines are limited like those of writes.

use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::answer;
use crate::clock::Clock;
use crate::limits::reload::write::{RuntimeFileEditor, WriteError};
use crate::limits::user_overrides::{Change, Told};
use crate::ratelimit::LogLines;
use crate::sync::Mutex;
use crate::tenant::{TenantId, TenantIdError};

/// Largest request, far more than all limits take.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Requests at once. Each reads the file, and those that write wait for each other anyway.
const REQUESTS_AT_ONCE_MAX: usize = 4;

/// Who a request is from.
pub type TenantOf = dyn Fn(&HeaderMap) -> Result<TenantId, TenantIdError> + Send + Sync;

#[derive(Clone)]
struct Api {
    editor: Arc<RuntimeFileEditor>,
    tenant_of: Arc<TenantOf>,
    permits: Arc<Semaphore>,
    log: Arc<Log>,
}

/// What the log is told of requests that were not served.
struct Log {
    clock: Clock,
    /// Requests at fault, and the rest: a file that is. Neither hides the other.
    refused: Mutex<LogLines>,
    failed: Mutex<LogLines>,
}

/// The route. It belongs to tenants, so it asks who they are.
pub fn router(editor: Arc<RuntimeFileEditor>, tenant_of: Arc<TenantOf>, clock: Clock) -> Router {
    let permits = Arc::new(Semaphore::new(REQUESTS_AT_ONCE_MAX));
    let log = Arc::new(Log { clock, refused: Mutex::default(), failed: Mutex::default() });
    Router::new()
        .route("/api/v1/user-overrides", get(show).post(set).delete(delete))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Api { editor, tenant_of, permits, log })
}

async fn show(State(api): State<Api>, headers: HeaderMap) -> Response {
    let log = Arc::clone(&api.log);
    api.answer(&headers, move |editor, tenant| match editor.told(tenant) {
        Ok(Told::Limits(limits)) if !limits.is_empty() => answer::told(answer::JSON, &limits, "\n"),
        Ok(Told::Limits(_) | Told::NoOverrides) => answer::error(404, "not found"),
        Ok(Told::UnknownTenant) => answer::error(400, "user not found"),
        Err(error) => log.failed(tenant, &error),
    })
    .await
}

async fn set(State(api): State<Api>, headers: HeaderMap, body: Bytes) -> Response {
    let log = Arc::clone(&api.log);
    api.answer(&headers, move |editor, tenant| {
        let Some(limits) = read(&body) else { return answer::error(400, "invalid JSON") };
        log.changed(tenant, editor.change(tenant, Change::Set(&limits)))
    })
    .await
}

async fn delete(State(api): State<Api>, headers: HeaderMap) -> Response {
    let log = Arc::clone(&api.log);
    api.answer(&headers, move |editor, tenant| {
        log.changed(tenant, editor.change(tenant, Change::Delete))
    })
    .await
}

/// The first value of a body, as Cortex reads it; `null` sets nothing.
fn read(body: &[u8]) -> Option<Map<String, Value>> {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter();
    values.next()?.ok().map(Option::unwrap_or_default)
}

impl Log {
    fn changed(&self, tenant: &TenantId, outcome: Result<(), WriteError>) -> Response {
        match outcome {
            Ok(()) => answer::with_type(StatusCode::OK, answer::TEXT, String::new()),
            Err(error) => self.failed(tenant, &error),
        }
    }

    fn failed(&self, tenant: &TenantId, error: &WriteError) -> Response {
        let is_refusal = matches!(error, WriteError::Edit { source, .. } if source.is_refusal());
        if let Some(untold) = self.may_tell(is_refusal, self.clock.now().steady_ns) {
            let (tenant, reason) = (tenant.as_str(), with_causes(error));
            let reason = LogLines::cut(&reason);
            match is_refusal {
                true => {
                    let error_id = "overrides-refused";
                    tracing::warn!(tenant, reason, untold, error_id, "overrides refused");
                }
                false => {
                    let error_id = "overrides-not-written";
                    tracing::error!(tenant, reason, untold, error_id, "overrides not served");
                }
            }
        }
        match is_refusal {
            true => answer::error(400, "Invalid overrides"),
            false => answer::error(500, "Internal server error"),
        }
    }

    /// Takes a line, and gives the number of those of its kind that were not told before it.
    fn may_tell(&self, is_refusal: bool, now_ns: i64) -> Option<u64> {
        let lines = if is_refusal { &self.refused } else { &self.failed };
        lines.lock().unwrap_or_else(PoisonError::into_inner).take(now_ns)
    }
}

fn with_causes(error: &WriteError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

impl Api {
    /// Answers on a blocking thread: files may be slow.
    async fn answer(
        &self,
        headers: &HeaderMap,
        make: impl FnOnce(&RuntimeFileEditor, &TenantId) -> Response + Send + 'static,
    ) -> Response {
        let tenant = match (self.tenant_of)(headers) {
            Ok(tenant) => tenant,
            // Cortex's middleware is in front of all that asks for a tenant.
            Err(error @ TenantIdError::Missing) => return answer::error(401, &error.to_string()),
            Err(error) => return answer::error(400, &error.to_string()),
        };
        let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
            return answer::error(503, "stopping");
        };
        let editor = Arc::clone(&self.editor);
        let made = tokio::task::spawn_blocking(move || {
            let response = make(&editor, &tenant);
            drop(permit);
            response
        });
        made.await.unwrap_or_else(|_| answer::error(500, "Internal server error"))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;
    use crate::limits::{InstanceLimits, Limits, Overrides};

    const FILE: &str = "overrides:\n  b:\n    ingestion_rate: 3\nhard_overrides:\n  a:\n    \
                        ingestion_rate: 10\napi_allowed_limits: [ingestion_rate]\n";

    struct Fixture {
        _dir: tempfile::TempDir,
        path: std::path::PathBuf,
        router: Router,
    }

    impl Fixture {
        fn new(text: &str) -> Self {
            let dir = tempfile::tempdir().expect("directory");
            let path = dir.path().join("runtime.yaml");
            std::fs::write(&path, text).expect("written");
            let overrides = Overrides::new(Limits::default(), InstanceLimits::default());
            let file = path.display().to_string();
            let editor = Arc::new(RuntimeFileEditor::new(&file, overrides.into()));
            let tenant_of = Arc::new(|headers: &HeaderMap| {
                let value = headers.get("x-scope-orgid").ok_or(TenantIdError::Missing)?;
                TenantId::parse_bytes(value.as_bytes())
            });
            Self { _dir: dir, path, router: router(editor, tenant_of, Clock::start()) }
        }

        async fn ask(&self, method: &str, tenant: &str, body: &str) -> (u16, String) {
            let mut request = Request::builder().method(method).uri("/api/v1/user-overrides");
            if !tenant.is_empty() {
                request = request.header("x-scope-orgid", tenant);
            }
            let request = request.body(Body::from(body.to_owned())).expect("a request");
            let answer = self.router.clone().oneshot(request).await.expect("infallible");
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            (status, String::from_utf8(body.to_vec()).expect("text"))
        }
    }

    #[tokio::test]
    async fn what_is_set_is_told_and_deleted() {
        let fixture = Fixture::new(FILE);
        let text = |status, text: &str| (status, text.to_owned());
        assert_eq!(fixture.ask("GET", "a", "").await, text(400, "user not found\n"));
        assert_eq!(fixture.ask("POST", "a", "{\"ingestion_rate\": 9}").await, text(200, ""));
        let (status, body) = fixture.ask("GET", "a", "").await;
        let told: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status, &told["ingestion_rate"]), (200, &json!(9.0)));
        assert_eq!(told["ingestion_burst_size"], json!(50_000));
        assert_eq!(fixture.ask("DELETE", "a", "").await, text(200, ""));
        assert_eq!(std::fs::read_to_string(&fixture.path).expect("read"), FILE);
    }

    #[tokio::test]
    async fn statuses_and_texts_are_cortexs() {
        let fixture = Fixture::new(FILE);
        let cases = [
            ("GET", "", "", 401, "no org id\n"),
            ("POST", "a/b", "{}", 400, "tenant ID 'a/b' contains unsupported character '/'\n"),
            ("POST", "a", "{", 400, "invalid JSON\n"),
            ("POST", "a", "", 400, "invalid JSON\n"),
            ("POST", "a", "[1]", 400, "invalid JSON\n"),
            ("POST", "a", "{\"max_exemplars\": 1}", 400, "Invalid overrides\n"),
            ("POST", "a", "{\"ingestion_rate\": 11}", 400, "Invalid overrides\n"),
            ("POST", "a", "{\"ingestion_rate\": [1]}", 500, "Internal server error\n"),
        ];
        for (method, tenant, body, status, expect) in cases {
            let answer = fixture.ask(method, tenant, body).await;
            assert_eq!(answer, (status, expect.to_owned()), "{method} {tenant} {body}");
        }
        assert_eq!(std::fs::read_to_string(&fixture.path).expect("read"), FILE, "nothing changed");
        let empty = Fixture::new("");
        assert_eq!(empty.ask("GET", "a", "").await, (404, "not found\n".to_owned()));
        std::fs::remove_file(&empty.path).expect("removed");
        assert_eq!(empty.ask("GET", "a", "").await, (500, "Internal server error\n".to_owned()));
    }

    #[test]
    fn a_flood_of_refused_edits_fills_no_log() {
        let (refused, failed) = (Mutex::default(), Mutex::default());
        let log = Log { clock: Clock::start(), refused, failed };
        const SEC: i64 = 1_000_000_000;
        let told = (0..1000).filter(|_| log.may_tell(true, SEC).is_some()).count();
        assert_eq!(told, 10);
        assert_eq!(log.may_tell(false, SEC), Some(0), "one kind does not hide the other");
        assert_eq!(log.may_tell(true, 2 * SEC), Some(990));
    }
}
