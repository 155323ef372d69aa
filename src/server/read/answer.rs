//! Answers of Prometheus' API, written as JSON as they are found.
//!
//! Label values are bytes and JSON is text: what is not UTF-8 becomes U+FFFD, as Go does it.

use ::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::labels::Labels;
use crate::server::status::ReadRefusal;
use crate::store::OwnedMetadata;
use crate::wire::remote_read::ReadExemplar;

/// `{"status":"success","data":…}` under construction.
pub struct Answer {
    json: Json,
    is_empty: bool,
    close: char,
    warning: Option<&'static str>,
}

impl Answer {
    pub fn list() -> Self {
        Self::open('[', ']')
    }

    pub fn map() -> Self {
        Self::open('{', '}')
    }

    fn open(open: char, close: char) -> Self {
        let json = Json(format!("{{\"status\":\"success\",\"data\":{open}"));
        Self { json, is_empty: true, close, warning: None }
    }

    /// Adds to a list.
    pub fn item(&mut self, write: impl FnOnce(&mut Json)) {
        self.separate();
        write(&mut self.json);
    }

    /// Adds to a map.
    pub fn entry(&mut self, name: &[u8], write: impl FnOnce(&mut Json)) {
        self.separate();
        self.json.text(name);
        self.json.0.push(':');
        write(&mut self.json);
    }

    pub fn warn(&mut self, warning: &'static str) {
        self.warning = Some(warning);
    }

    pub fn len_bytes(&self) -> usize {
        self.json.0.len()
    }

    fn separate(&mut self) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.json.0.push(',');
        }
    }
}

impl IntoResponse for Answer {
    fn into_response(mut self) -> Response {
        self.json.0.push(self.close);
        if let Some(warning) = self.warning {
            self.json.0.push_str(",\"warnings\":");
            self.json.list([warning].iter(), |json, text| json.text(text.as_bytes()));
        }
        self.json.0.push('}');
        json_response(StatusCode::OK, self.json.0)
    }
}

/// `{"status":"error",…}`
pub fn refusal(refusal: &ReadRefusal) -> Response {
    let body = json!({"status": "error", "errorType": refusal.kind, "error": refusal.text});
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, body.to_string());
    if let Some(secs) = refusal.retry_after_secs {
        response.headers_mut().insert(header::RETRY_AFTER, secs.into());
    }
    response
}

fn json_response(status: StatusCode, body: String) -> Response {
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json)], body).into_response()
}

/// JSON text that is appended to.
pub struct Json(String);

impl Json {
    pub fn text(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        self.0.push_str(&serde_json::Value::from(text).to_string());
    }

    pub fn list<T>(&mut self, items: impl Iterator<Item = T>, mut write: impl FnMut(&mut Self, T)) {
        self.0.push('[');
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            write(self, item);
        }
        self.0.push(']');
    }

    pub fn labels(&mut self, labels: Labels<'_>) {
        self.0.push('{');
        for (index, (name, value)) in labels.iter().enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            self.text(name);
            self.0.push(':');
            self.text(value);
        }
        self.0.push('}');
    }

    pub fn metadata(&mut self, metadata: &OwnedMetadata) {
        self.0.push_str("{\"type\":");
        self.text(metric_type(metadata.kind).as_bytes());
        self.0.push_str(",\"help\":");
        self.text(&metadata.help);
        self.0.push_str(",\"unit\":");
        self.text(&metadata.unit);
        self.0.push('}');
    }

    pub fn exemplars(&mut self, series: Labels<'_>, exemplars: &[ReadExemplar]) {
        self.0.push_str("{\"seriesLabels\":");
        self.labels(series);
        self.0.push_str(",\"exemplars\":");
        self.list(exemplars.iter(), |json, exemplar| {
            json.0.push_str("{\"labels\":");
            json.labels(exemplar.labels.as_labels());
            json.0.push_str(",\"value\":");
            json.text(value_text(exemplar.value).as_bytes());
            let seconds = exemplar.timestamp_ms as f64 / 1000.0;
            json.0.push_str(&format!(",\"timestamp\":{seconds}}}"));
        });
        self.0.push('}');
    }
}

fn value_text(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

/// Names of the protobuf enum's numbers, as the API has them.
fn metric_type(kind: i32) -> &'static str {
    match kind {
        1 => "counter",
        2 => "gauge",
        3 => "histogram",
        4 => "gaugehistogram",
        5 => "summary",
        6 => "info",
        7 => "stateset",
        _ => "unknown",
    }
}
