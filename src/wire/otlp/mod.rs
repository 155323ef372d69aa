//! OTLP metrics over HTTP: a received body becomes bytes of a `WriteRequest`.
//!
//! The protocol's own crate reads protobuf, and the inner messages of JSON; what becomes of
//! metrics follows Prometheus' translation as Cortex has it: names with units and suffixes,
//! resources as `job`, `instance` and `target_info`, explicit histograms as classic ones,
//! exponential ones as native ones. What cannot be translated is left out, and is an error only
//! when nothing is left.
//!
//! Must hold: sizes are checked before memory is taken, of the body, of what it unpacks to, of
//! the values that it holds, and of the labels that a few bytes can ask for again and again.

mod attributes;
mod exponential;
mod json;
mod names;
mod output;
mod points;
mod target;
mod translate;
mod unpack;

#[cfg(test)]
mod tests;

use super::cursor::DecodeError;
use super::write_request::{self, Summary};

pub use unpack::VALUES_MAX;

/// The two header values that decide how a body is read; empty when not set.
#[derive(Clone, Copy, Debug, Default)]
pub struct OtlpHeaders<'a> {
    pub content_type: &'a str,
    pub content_encoding: &'a str,
}

/// What the operator and the tenant's limits say.
#[derive(Clone, Copy, Debug)]
pub struct OtlpOptions<'a> {
    /// Bound for the body as received and as unpacked.
    pub recv_bytes_max: usize,
    /// All attributes of a resource become labels of its metrics.
    pub convert_all_attributes: bool,
    /// Write no `target_info`.
    pub disable_target_info: bool,
    /// Take sums and histograms with delta temporality as they are.
    pub allow_delta_temporality: bool,
    /// Append units and `_total` to names.
    pub add_metric_suffixes: bool,
    /// Add `__type__` and `__unit__` to the labels.
    pub type_and_unit_labels: bool,
    /// Attributes of a resource that become labels; not looked at when all of them do.
    pub promote_resource_attributes: &'a [String],
}

/// A body that has been read and translated.
#[derive(Clone, Debug)]
pub struct OtlpDecoded {
    /// Bytes of a `cortexpb.WriteRequest`.
    pub body: Vec<u8>,
    pub summary: Summary,
    /// What was left out and why; for the log, since the sender is not told.
    pub left_out: Option<String>,
}

/// Why a body is refused; the answer is 400, its body the text and a line feed. The texts are
/// Cortex's but where one says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtlpError {
    #[error("received message larger than max ({bytes} vs {bytes_max})")]
    TooLarge { bytes: u64, bytes_max: usize },
    #[error(
        "unsupported compression: {encoding}, Supported compression types are \"gzip\" or '' (no \
         compression)"
    )]
    Encoding { encoding: String },
    #[error(
        "unsupported content type: {content_type}, supported: [application/json, \
         application/x-protobuf]"
    )]
    ContentType { content_type: String },
    /// The cause is Go's own in Cortex.
    #[error("gzip: invalid data")]
    Gzip,
    /// Ours: nobody asks so many at once but to make us allocate.
    #[error("received message holds more than {VALUES_MAX} values")]
    TooManyValues,
    /// The cause is the decoder's own, in Cortex too.
    #[error("{0}")]
    Message(String),
    #[error(transparent)]
    Wire(#[from] DecodeError),
    /// Ours: attributes are repeated in too many series.
    #[error("the labels of the translated message are larger than max ({bytes_max})")]
    Labels { bytes_max: usize },
    /// Nothing could be translated.
    #[error("{0}")]
    Nothing(String),
}

/// Reads and translates a body.
pub fn decode_otlp(
    headers: OtlpHeaders<'_>,
    body: &[u8],
    options: &OtlpOptions<'_>,
) -> Result<OtlpDecoded, OtlpError> {
    let resources = unpack::read(headers, body, options.recv_bytes_max)?;
    let (output, failures) = translate::translate(resources, options)?;
    if output.is_empty() && !failures.is_empty() {
        return Err(OtlpError::Nothing(failures.text()));
    }
    let body = output.into_bytes();
    let summary = write_request::check(&body)?;
    let left_out = (!failures.is_empty()).then(|| failures.text());
    Ok(OtlpDecoded { body, summary, left_out })
}
