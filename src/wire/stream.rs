//! `cortexpb.StreamWriteRequest`: a write request with its tenant, one message of a push stream.

use std::borrow::Cow;

use super::cursor::{BYTES, Cursor, DecodeError};
use super::rewrite::push_other_fields;
use super::write_request::check_empty_message;
use super::writer::push_counted;

/// The message with another write request in it; all else as it was.
pub fn with_request(message: &[u8], request: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len());
    push_other_fields(&mut out, message, 2);
    push_counted(&mut out, 2, request);
    out
}

/// A message of a push stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamWriteRequest<'a> {
    /// Whoever sent the message wrote this; it is a claim, not yet a tenant.
    pub tenant_id: &'a [u8],
    /// Bytes of the `WriteRequest`, not looked into yet. Borrowed unless the field came in
    /// parts, which protobuf joins.
    pub request: Option<Cow<'a, [u8]>>,
}

impl<'a> StreamWriteRequest<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut message = Self::default();
        let mut cursor = Cursor::new(bytes);
        while let Some(tag) = cursor.tag("StreamWriteRequest")? {
            match tag.number {
                1 => {
                    tag.expect(BYTES, "TenantID")?;
                    message.tenant_id = cursor.counted()?;
                }
                2 => {
                    tag.expect(BYTES, "Request")?;
                    let part = cursor.counted()?;
                    match &mut message.request {
                        Some(request) => request.to_mut().extend_from_slice(part),
                        none => *none = Some(Cow::Borrowed(part)),
                    }
                }
                1000 => {
                    tag.expect(BYTES, "MessageWithBufRef")?;
                    check_empty_message(cursor.counted()?)?;
                }
                _ => cursor.skip(tag)?,
            }
        }
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::wire::proto::cortexpb;

    #[test]
    fn case_e4_the_tenant_of_a_message_is_told_apart_from_its_request() {
        let request = cortexpb::WriteRequest { source: 1, ..Default::default() };
        let message = cortexpb::StreamWriteRequest {
            tenant_id: b"tenant-b".to_vec(),
            request: Some(request.clone()),
            ..Default::default()
        };
        let bytes = message.encode_to_vec();
        let decoded = StreamWriteRequest::decode(&bytes).expect("sound");
        assert_eq!(decoded.tenant_id, b"tenant-b");
        assert_eq!(decoded.request.as_deref(), Some(&request.encode_to_vec()[..]));
    }

    #[test]
    fn another_request_takes_the_place_of_all_parts() {
        let bytes = [0x12, 2, 0x10, 1, 0x0a, 1, b't', 0x12, 2, 0x10, 2, 0xa2, 6, 1, 9];
        let replaced = with_request(&bytes, &[0x10, 7]);
        assert_eq!(replaced, [0x0a, 1, b't', 0xa2, 6, 1, 9, 0x12, 2, 0x10, 7]);
    }

    #[test]
    fn parts_of_a_request_are_joined() {
        let bytes = [0x12, 2, 0x10, 1, 0x12, 2, 0x10, 2];
        let decoded = StreamWriteRequest::decode(&bytes).expect("sound");
        assert_eq!(decoded.request.as_deref(), Some(&[0x10, 1, 0x10, 2][..]));
    }
}
