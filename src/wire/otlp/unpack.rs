//! From the received bytes to the protocol's values.
//!
//! Both decoders make large values of few bytes: an empty data point takes two bytes and more
//! than a hundred in memory. So what a body holds is counted on its bytes before it is decoded.

use std::borrow::Cow;
use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use prost::Message as _;

use super::{OtlpError, OtlpHeaders, json};
use crate::wire::cursor::{BYTES, Cursor};

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Most values (messages, texts, lists) of a body. A data point with five attributes has some
/// twenty, so this is a hundred thousand points; collectors send eight thousand at a time. At
/// some 150 bytes each they bound the decoded body at 300 MB.
pub const VALUES_MAX: usize = 2 << 20;

/// Messages within messages that are looked into; the decoder refuses deeper ones.
const DEPTH_MAX: u32 = 100;

pub(super) fn read(
    headers: OtlpHeaders<'_>,
    body: &[u8],
    bytes_max: usize,
) -> Result<Vec<ResourceMetrics>, OtlpError> {
    let OtlpHeaders { content_type, content_encoding } = headers;
    if body.len() > bytes_max {
        return Err(OtlpError::TooLarge { bytes: body.len() as u64, bytes_max });
    }
    let is_gzip = match content_encoding {
        "gzip" => true,
        "" => false,
        other => return Err(OtlpError::Encoding { encoding: other.to_owned() }),
    };
    if !matches!(content_type, PROTOBUF | JSON) {
        return Err(OtlpError::ContentType { content_type: content_type.to_owned() });
    }
    let body = if is_gzip { Cow::Owned(unzip(body, bytes_max)?) } else { Cow::Borrowed(body) };
    if content_type == JSON {
        check_json(&body)?;
        return json::read(&body).map_err(|e| OtlpError::Message(e.to_string()));
    }
    let mut left = VALUES_MAX;
    count_values(&body, &REQUEST, 0, &mut left)?;
    let request = ExportMetricsServiceRequest::decode(&body[..])
        .map_err(|e| OtlpError::Message(e.to_string()))?;
    Ok(request.resource_metrics)
}

fn unzip(body: &[u8], bytes_max: usize) -> Result<Vec<u8>, OtlpError> {
    let mut unzipped = Vec::new();
    // Grows with what comes out, never by what the body says of itself.
    let limit = bytes_max as u64 + 1;
    MultiGzDecoder::new(body)
        .take(limit)
        .read_to_end(&mut unzipped)
        .map_err(|_| OtlpError::Gzip)?;
    if unzipped.len() > bytes_max {
        return Err(OtlpError::TooLarge { bytes: unzipped.len() as u64, bytes_max });
    }
    Ok(unzipped)
}

/// Each value of JSON stands behind one of these. Those inside texts count too, which errs on
/// the safe side.
fn check_json(body: &[u8]) -> Result<(), OtlpError> {
    let values = body.iter().filter(|byte| matches!(byte, b'{' | b'[' | b',')).count();
    if values > VALUES_MAX { Err(OtlpError::TooManyValues) } else { Ok(()) }
}

/// Which fields of a message are messages themselves, and of which shape. A message of no shape
/// holds nothing that takes more room in memory than on the wire, but for what is counted: the
/// repeated texts of an entity's reference.
struct Shape {
    fields: &'static [(i32, &'static Shape)],
    /// Numbers of one byte each, which take eight in memory; not looked into.
    is_packed: bool,
}

impl Shape {
    const fn of(fields: &'static [(i32, &'static Shape)]) -> Self {
        Self { fields, is_packed: false }
    }
}

// Attributes nest without end, so shapes refer to each other.
static REQUEST: Shape = Shape::of(&[(1, &RESOURCE_METRICS)]);
static RESOURCE_METRICS: Shape = Shape::of(&[(1, &RESOURCE), (2, &SCOPE_METRICS)]);
static RESOURCE: Shape = Shape::of(&[(1, &PAIR), (3, &LEAF)]);
static SCOPE_METRICS: Shape = Shape::of(&[(1, &SCOPE), (2, &METRIC)]);
static SCOPE: Shape = Shape::of(&[(3, &PAIR)]);
static METRIC: Shape = Shape::of(&[
    (5, &NUMBERS),
    (7, &NUMBERS),
    (9, &HISTOGRAMS),
    (10, &EXPONENTIALS),
    (11, &SUMMARIES),
    (12, &PAIR),
]);
static NUMBERS: Shape = Shape::of(&[(1, &NUMBER)]);
static NUMBER: Shape = Shape::of(&[(5, &EXEMPLAR), (7, &PAIR)]);
static HISTOGRAMS: Shape = Shape::of(&[(1, &HISTOGRAM)]);
static HISTOGRAM: Shape = Shape::of(&[(8, &EXEMPLAR), (9, &PAIR)]);
static EXPONENTIALS: Shape = Shape::of(&[(1, &EXPONENTIAL)]);
static EXPONENTIAL: Shape = Shape::of(&[(1, &PAIR), (8, &BUCKETS), (9, &BUCKETS), (11, &EXEMPLAR)]);
static BUCKETS: Shape = Shape::of(&[(2, &PACKED)]);
static SUMMARIES: Shape = Shape::of(&[(1, &SUMMARY)]);
static SUMMARY: Shape = Shape::of(&[(7, &PAIR)]);
static EXEMPLAR: Shape = Shape::of(&[(7, &PAIR)]);
static PAIR: Shape = Shape::of(&[(2, &VALUE)]);
static VALUE: Shape = Shape::of(&[(5, &LIST), (6, &MAP)]);
static LIST: Shape = Shape::of(&[(1, &VALUE)]);
static MAP: Shape = Shape::of(&[(1, &PAIR)]);
static LEAF: Shape = Shape::of(&[]);
static PACKED: Shape = Shape { fields: &[], is_packed: true };

/// Packed bytes that count as a value.
const PACKED_BYTES_PER_VALUE: usize = 16;

fn count_values(
    message: &[u8],
    shape: &Shape,
    depth: u32,
    left: &mut usize,
) -> Result<(), OtlpError> {
    let mut cursor = Cursor::new(message);
    while let Some(tag) = cursor.tag("ExportMetricsServiceRequest")? {
        if tag.wire_type != BYTES {
            cursor.skip(tag)?;
            continue;
        }
        *left = left.checked_sub(1).ok_or(OtlpError::TooManyValues)?;
        let content = cursor.counted()?;
        match shape.fields.iter().find(|(number, _)| *number == tag.number) {
            Some((_, Shape { is_packed: true, .. })) => {
                let values = content.len() / PACKED_BYTES_PER_VALUE;
                *left = left.checked_sub(values).ok_or(OtlpError::TooManyValues)?;
            }
            Some((_, inner)) if depth < DEPTH_MAX => {
                count_values(content, inner, depth + 1, left)?;
            }
            _ => {}
        }
    }
    Ok(())
}
