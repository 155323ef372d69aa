//! A write as it was received, and its body as the one form that all else here reads.

use std::sync::Arc;

use bytes::Bytes;

use crate::distributor::DistributorConfig;
use crate::limits::Limits;
use crate::tenant::ClientId;
use crate::trail::Trail;
use crate::upstream::distributor::Passed;
use crate::wire::otlp::{OtlpError, OtlpHeaders, OtlpOptions, decode_otlp};
use crate::wire::remote_write::{self, Options, RemoteWriteError, Version};
use crate::wire::write_request::Summary;

/// Asks whoever holds a body for room for so many bytes in all; `false` where there is none.
pub type RoomFor = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// One write as it was received.
#[derive(Clone)]
pub struct Received {
    pub form: Form,
    /// Compressed still.
    pub body: Bytes,
    /// What it is called, and the span over it.
    pub trail: Trail,
    /// Whose budget it is charged to within the tenant's; `None` where no client is named, or
    /// nobody asks.
    pub client: Option<ClientId>,
    /// What goes on beside the body, where it goes on as it is.
    pub passed: Passed,
    /// For the body and what it unpacks to; `None` where nobody counts.
    pub room: Option<RoomFor>,
}

/// How a body is to be read.
#[derive(Clone, Debug)]
pub enum Form {
    RemoteWrite(Version),
    /// OTLP metrics; the two headers decide the rest.
    Otlp {
        content_type: String,
        content_encoding: String,
    },
}

/// Why a body cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    RemoteWrite(#[from] RemoteWriteError),
    #[error(transparent)]
    Otlp(#[from] OtlpError),
    /// For now: the sender is to try again.
    #[error("too many bytes of requests under way")]
    NoRoom,
}

/// The bytes of a `cortexpb.WriteRequest`, and what they hold.
pub(super) struct Decoded {
    pub body: Vec<u8>,
    pub summary: Summary,
    /// What of OTLP metrics could not be translated. Cortex does not tell the sender either.
    pub left_out: Option<String>,
}

impl Received {
    /// Reads the body. What it unpacks to stays charged beside it until the request is answered.
    pub(super) fn decode(
        &self,
        config: &DistributorConfig,
        limits: &Limits,
    ) -> Result<Decoded, Unreadable> {
        let decoded = self.read(config, limits)?;
        let bytes = self.body.len() + decoded.body.len();
        match &self.room {
            Some(room_for) if !room_for(bytes) => Err(Unreadable::NoRoom),
            _ => Ok(decoded),
        }
    }

    fn read(&self, config: &DistributorConfig, limits: &Limits) -> Result<Decoded, Unreadable> {
        match &self.form {
            Form::RemoteWrite(version) => {
                let options = Options {
                    recv_bytes_max: config.max_recv_msg_size,
                    v2_enabled: config.remote_writev2_enabled,
                    accept_unknown_content_type: config.accept_unknown_remote_write_content_type,
                    type_and_unit_labels: limits.enable_type_and_unit_labels,
                    start_timestamp: limits.enable_start_timestamp,
                };
                let decoded = remote_write::decode(version.headers(), &self.body, &options)?;
                Ok(Decoded { body: decoded.body, summary: decoded.summary, left_out: None })
            }
            Form::Otlp { content_type, content_encoding } => {
                let options = OtlpOptions {
                    recv_bytes_max: config.otlp_max_recv_msg_size,
                    convert_all_attributes: config.otlp.convert_all_attributes,
                    disable_target_info: config.otlp.disable_target_info,
                    allow_delta_temporality: config.otlp.allow_delta_temporality,
                    add_metric_suffixes: config.otlp.add_metric_suffixes,
                    type_and_unit_labels: limits.enable_type_and_unit_labels,
                    promote_resource_attributes: &limits.promote_resource_attributes,
                };
                let headers = OtlpHeaders { content_type, content_encoding };
                let decoded = decode_otlp(headers, &self.body, &options)?;
                let (body, summary) = (decoded.body, decoded.summary);
                Ok(Decoded { body, summary, left_out: decoded.left_out })
            }
        }
    }
}
