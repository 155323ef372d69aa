//! Spans as OTLP says them.

use prost::Message as _;

use super::exporter::Origin;
use super::span::{Ended, Kind, Note};
use crate::wire::proto::otlptrace::{
    AnyValue, ExportTraceServiceRequest, ExportTraceServiceResponse, InstrumentationScope,
    KeyValue, Resource, ResourceSpans, ScopeSpans, Span, Status, any_value,
};

/// Where batches go.
pub const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// W3C's flag: the trace is recorded.
const SAMPLED: u32 = 1;
const STATUS_ERROR: i32 = 2;

/// One batch, encoded. `ahead_ns` is what the wall clock is ahead of the steady one.
pub fn encode(spans: Vec<Ended>, origin: &Origin, ahead_ns: i64) -> Vec<u8> {
    let scope = InstrumentationScope { name: "freehold".into(), version: origin.version.into() };
    let spans = spans.into_iter().map(|span| told(span, ahead_ns)).collect();
    let resource = Resource {
        attributes: vec![
            pair("service.name", text(&origin.service)),
            pair("service.instance.id", text(&origin.instance)),
            pair("service.version", text(origin.version)),
        ],
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
        }],
    };
    request.encode_to_vec()
}

/// How many spans of a batch the collector did not want, and why.
pub fn rejected(answer: &[u8]) -> Result<(u64, String), prost::DecodeError> {
    let answer = ExportTraceServiceResponse::decode(answer)?;
    let partial = answer.partial_success.unwrap_or_default();
    Ok((u64::try_from(partial.rejected_spans).unwrap_or(0), partial.error_message))
}

fn told(span: Ended, ahead_ns: i64) -> Span {
    let unix = |steady_ns: i64| u64::try_from(steady_ns.saturating_add(ahead_ns)).unwrap_or(0);
    let attributes = span.notes.into_iter().map(|(key, note)| match note {
        Note::Text(value) => pair(key, text(&value)),
        Note::Number(n) => {
            pair(key, any_value::Value::IntValue(i64::try_from(n).unwrap_or(i64::MAX)))
        }
    });
    Span {
        trace_id: span.trace.bits().to_be_bytes().to_vec(),
        span_id: span.span.bits().to_be_bytes().to_vec(),
        trace_state: span.state.as_deref().unwrap_or_default().to_owned(),
        parent_span_id: span.parent.map(|id| id.bits().to_be_bytes().to_vec()).unwrap_or_default(),
        name: span.name.to_owned(),
        kind: match span.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
            Kind::Client => 3,
        },
        start_time_unix_nano: unix(span.began_ns),
        end_time_unix_nano: unix(span.ended_ns),
        attributes: attributes.collect(),
        dropped_attributes_count: span.notes_left_out,
        status: span.failure.map(|why| Status { message: why.into_string(), code: STATUS_ERROR }),
        flags: SAMPLED,
    }
}

fn pair(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn text(value: &str) -> any_value::Value {
    any_value::Value::StringValue(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trail::context::{SpanId, TraceId};

    fn ended() -> Ended {
        Ended {
            trace: TraceId::new(0x0102).expect("not 0"),
            span: SpanId::new(0x0304).expect("not 0"),
            parent: SpanId::new(0x0506),
            state: Some("a=1".into()),
            kind: Kind::Client,
            name: "call",
            began_ns: 5,
            ended_ns: 9,
            notes: vec![("k", Note::Text("v".into())), ("n", Note::Number(7))],
            notes_left_out: 2,
            failure: Some("why".into()),
        }
    }

    fn origin() -> Origin {
        Origin { service: "freehold-all".into(), instance: "host-1".into(), version: "0.1.0" }
    }

    /// The bytes were made by opentelemetry-proto 0.33 from the same values
    /// (`tests/fixtures/otlp/README.md`).
    #[test]
    fn a_batch_is_encoded_as_opentelemetrys_own_crate_does() {
        let golden = include_bytes!("../../tests/fixtures/otlp/spans.bin");
        assert_eq!(encode(vec![ended()], &origin(), 1000), golden);
    }

    #[test]
    fn a_collectors_regrets_are_read_and_silence_is_none() {
        assert_eq!(rejected(&[]), Ok((0, String::new())));
        let answer = [0x0a, 6, 0x08, 3, 0x12, 2, b'n', b'o'];
        assert_eq!(rejected(&answer), Ok((3, "no".into())));
        assert!(rejected(&[0xff]).is_err());
    }
}
