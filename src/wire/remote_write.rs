//! Remote write over HTTP, 1.0 and 2.0: a received body becomes bytes of a `WriteRequest`.
//!
//! Only the two content types of the specifications and snappy blocks are taken, as by Cortex.
//! Sizes are checked before memory is taken: of the body, of what snappy says it holds, and of
//! what 2.0's symbol references expand to.

use super::cursor::DecodeError;
use super::write_request::{self, Summary};

mod v2;

/// The two header values that decide how a body is read; empty when not set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    pub content_type: &'a str,
    pub content_encoding: &'a str,
}

/// What the operator lets senders say in their headers.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    pub v2: bool,
    /// Read bodies of other content types as remote write 1.0.
    pub unknown_content_type: bool,
}

impl Headers<'_> {
    /// The version that they announce, if it is accepted.
    pub fn version(self, accepted: Accepted) -> Result<Version, RemoteWriteError> {
        let version = match parse_content_type(self.content_type) {
            Err(_) if accepted.unknown_content_type => Version::V1,
            parsed => parsed?,
        };
        if !matches!(self.content_encoding, "" | "snappy") {
            return Err(RemoteWriteError::Encoding { encoding: self.content_encoding.to_owned() });
        }
        match version {
            Version::V2 if !accepted.v2 => Err(RemoteWriteError::V2Disabled),
            version => Ok(version),
        }
    }
}

/// What the operator and the tenant's limits allow.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bound for the body as received and as unpacked.
    pub recv_bytes_max: usize,
    pub v2_enabled: bool,
    /// Read bodies of other content types as remote write 1.0.
    pub accept_unknown_content_type: bool,
    /// 2.0: add `__type__` and `__unit__` to the labels.
    pub type_and_unit_labels: bool,
    /// 2.0: keep start timestamps.
    pub start_timestamp: bool,
}

/// A body that has been read to its last byte.
#[derive(Clone, Debug)]
pub struct Decoded {
    pub version: Version,
    /// Bytes of a `cortexpb.WriteRequest`.
    pub body: Vec<u8>,
    pub summary: Summary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

impl Version {
    /// The headers that announce it.
    pub fn headers(self) -> Headers<'static> {
        let content_type = match self {
            Self::V1 => MEDIA_TYPE,
            Self::V2 => "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        };
        Headers { content_type, content_encoding: "snappy" }
    }

    /// HTTP status of a push that was taken whole.
    pub fn success_status(self) -> u16 {
        match self {
            Self::V1 => 200,
            Self::V2 => 204,
        }
    }

    fn message_name(self) -> &'static str {
        match self {
            Self::V1 => "prometheus.WriteRequest",
            Self::V2 => "io.prometheus.write.v2.Request",
        }
    }
}

/// Headers of an answer to 2.0: what was written, zero each when nothing was.
pub const WRITTEN_HEADERS: WrittenHeaders = WrittenHeaders {
    samples: "x-prometheus-remote-write-samples-written",
    histograms: "x-prometheus-remote-write-histograms-written",
    exemplars: "x-prometheus-remote-write-exemplars-written",
};

/// Names of the headers that count what was written, as HTTP compares them.
pub struct WrittenHeaders {
    pub samples: &'static str,
    pub histograms: &'static str,
    pub exemplars: &'static str,
}

/// Why a body cannot be read. The texts are Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteWriteError {
    #[error(
        "expected application/x-protobuf as the first (media) part, got {content_type} \
         content-type"
    )]
    MediaType { content_type: String },
    #[error(
        "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters to be \
         key-values, got {parameter} in {content_type} content-type"
    )]
    Parameter { parameter: String, content_type: String },
    #[error(
        "got {content_type} content type; unknown type for remote write protobuf message {name}, \
         supported: prometheus.WriteRequest, io.prometheus.write.v2.Request"
    )]
    UnknownMessage { content_type: String, name: String },
    #[error(
        "{encoding} encoding (compression) is not accepted by this server; only snappy is \
         acceptable"
    )]
    Encoding { encoding: String },
    #[error(
        "{} protobuf message is not accepted by this server; only accepts {}",
        Version::V2.message_name(),
        Version::V1.message_name()
    )]
    V2Disabled,
    #[error("received message larger than max ({bytes} vs {bytes_max})")]
    TooLarge { bytes: u64, bytes_max: usize },
    #[error("snappy: corrupt input")]
    Corrupt,
    #[error(transparent)]
    Message(#[from] DecodeError),
    #[error("invalid labelRefs length {0}")]
    OddLabelRefs(usize),
    #[error("labelRefs {name} (name) = {value} (value) outside of symbols table (size {symbols})")]
    LabelRef { name: u32, value: u32, symbols: usize },
    #[error("TimeSeries must contain at least one sample or histogram for series {labels}")]
    NoSamples { labels: String },
    #[error("invalid UnitRef {unit}: exceeds symbols length {symbols}")]
    UnitRef { unit: u32, symbols: usize },
    #[error("invalid HelpRef {help}: exceeds symbols length {symbols}")]
    HelpRef { help: u32, symbols: usize },
    #[error("no metric name label")]
    NoMetricName,
}

impl RemoteWriteError {
    /// HTTP status of the answer; its body is the text and a line feed.
    pub fn status(&self) -> u16 {
        match self {
            Self::MediaType { .. }
            | Self::Parameter { .. }
            | Self::UnknownMessage { .. }
            | Self::Encoding { .. }
            | Self::V2Disabled => 415,
            _ => 400,
        }
    }
}

/// Reads a remote-write body.
pub fn decode(
    headers: Headers<'_>,
    body: &[u8],
    options: &Options,
) -> Result<Decoded, RemoteWriteError> {
    let accepted = Accepted {
        v2: options.v2_enabled,
        unknown_content_type: options.accept_unknown_content_type,
    };
    let version = headers.version(accepted)?;
    match version {
        Version::V1 => {
            let mut body = unpack(body, options.recv_bytes_max)?;
            let mut summary = write_request::check(&body)?;
            if summary.skip_label_name_validation {
                // Only rulers and the like may ask for it, and they do not come by HTTP. The
                // last of a field counts, so adding one is enough.
                body.extend_from_slice(&SKIP_LABEL_NAME_VALIDATION_OFF);
                summary.skip_label_name_validation = false;
            }
            Ok(Decoded { version, body, summary })
        }
        Version::V2 => {
            let body = v2::convert(&unpack(body, options.recv_bytes_max)?, options)?;
            let summary = write_request::check(&body)?;
            Ok(Decoded { version, body, summary })
        }
    }
}

/// Field 1000 of a `WriteRequest` with the value false.
const SKIP_LABEL_NAME_VALIDATION_OFF: [u8; 3] = [0xc0, 0x3e, 0x00];

const MEDIA_TYPE: &str = "application/x-protobuf";

fn parse_content_type(content_type: &str) -> Result<Version, RemoteWriteError> {
    if content_type.is_empty() {
        return Ok(Version::V1);
    }
    let content_type = content_type.trim();
    let mut parts = content_type.split(';');
    if parts.next() != Some(MEDIA_TYPE) {
        return Err(RemoteWriteError::MediaType { content_type: content_type.to_owned() });
    }
    for parameter in parts {
        let pair = parameter.split_once('=').filter(|(_, value)| !value.contains('='));
        let (key, name) = pair.ok_or_else(|| RemoteWriteError::Parameter {
            parameter: parameter.to_owned(),
            content_type: content_type.to_owned(),
        })?;
        if key == "proto" {
            return [Version::V1, Version::V2]
                .into_iter()
                .find(|version| version.message_name() == name)
                .ok_or_else(|| RemoteWriteError::UnknownMessage {
                    content_type: content_type.to_owned(),
                    name: name.to_owned(),
                });
        }
    }
    Ok(Version::V1)
}

/// Bytes that a snappy block can become per byte of its own: a copy of 64 takes three.
///
/// A header that promises more lies, and is refused before it gets any memory.
const SNAPPY_EXPANSION_MAX: u64 = 22;

/// Unpacks a snappy block.
pub(super) fn unpack(body: &[u8], bytes_max: usize) -> Result<Vec<u8>, RemoteWriteError> {
    if body.len() > bytes_max {
        return Err(RemoteWriteError::TooLarge { bytes: body.len() as u64, bytes_max });
    }
    let len = snappy_len(body)?;
    if len > bytes_max as u64 {
        return Err(RemoteWriteError::TooLarge { bytes: len, bytes_max });
    }
    if len > body.len() as u64 * SNAPPY_EXPANSION_MAX {
        return Err(RemoteWriteError::Corrupt);
    }
    snap::raw::Decoder::new().decompress_vec(body).map_err(|_| RemoteWriteError::Corrupt)
}

/// Packs the bytes of a `WriteRequest` as a sender of version 1 does.
pub fn packed(body: &[u8]) -> Vec<u8> {
    // It fails only for more than 4 GiB, and no body that was read is that long.
    snap::raw::Encoder::new().compress_vec(body).expect("a body that was read can be packed")
}

/// The unpacked length in front of a snappy block.
fn snappy_len(body: &[u8]) -> Result<u64, RemoteWriteError> {
    let len = super::cursor::Cursor::new(body).varint().map_err(|_| RemoteWriteError::Corrupt)?;
    if len > u32::MAX.into() {
        return Err(RemoteWriteError::Corrupt);
    }
    Ok(len)
}

#[cfg(test)]
mod tests;
