//! Reads protobuf as Cortex's generated code does, from borrowed bytes.
//!
//! What is accepted and which error comes first follow that code, not the specification:
//! integers and tags are cut to their width, a varint has ten bytes at most, and packed elements
//! may run past the end of their field up to the end of the message. A reader that is stricter
//! would refuse what the ingester behind it takes; a laxer one would count what it refuses.
//!
//! Nothing here allocates and no length is trusted: every slice is checked against the bytes
//! that are there.

/// Why bytes are no message. The texts are Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("unexpected EOF")]
    UnexpectedEof,
    #[error("proto: integer overflow")]
    IntegerOverflow,
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    WrongWireType { wire_type: u8, field: &'static str },
    #[error("proto: {message}: wiretype end group for non-group")]
    EndGroup { message: &'static str },
    #[error("proto: {message}: illegal tag {number} (wire type {tag})")]
    IllegalTag { message: &'static str, number: i32, tag: u64 },
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    #[error(
        "native histogram size {bytes} bytes exceeds limit {} bytes",
        super::histogram::HISTOGRAM_BYTES_MAX
    )]
    HistogramTooLarge { bytes: usize },
    /// Ours: offsets into a request are kept in 32 bits, and gRPC cannot carry more either.
    #[error("message of {bytes} bytes is too large")]
    MessageTooLarge { bytes: usize },
}

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;

/// The head of a field.
#[derive(Clone, Copy)]
pub(super) struct Tag {
    pub number: i32,
    pub wire_type: u8,
    /// Where the tag starts.
    pub start: usize,
}

impl Tag {
    #[inline]
    pub fn expect(self, wire_type: u8, field: &'static str) -> Result<(), DecodeError> {
        if self.wire_type == wire_type {
            return Ok(());
        }
        Err(DecodeError::WrongWireType { wire_type: self.wire_type, field })
    }
}

/// A place in a message.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// A cursor that starts at `at`, which is a place that a cursor over `bytes` has reached.
    pub fn resume(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// The head of the next field of `message`; `None` at the end.
    #[inline]
    pub fn tag(&mut self, message: &'static str) -> Result<Option<Tag>, DecodeError> {
        if self.is_at_end() {
            return Ok(None);
        }
        let start = self.at;
        let tag = self.varint()?;
        let (number, wire_type) = ((tag >> 3) as i32, (tag & 7) as u8);
        if wire_type == 4 {
            return Err(DecodeError::EndGroup { message });
        }
        if number <= 0 {
            return Err(DecodeError::IllegalTag { message, number, tag });
        }
        Ok(Some(Tag { number, wire_type, start }))
    }

    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(byte.into())
            }
            _ => self.long_varint(),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let &byte = self.bytes.get(self.at).ok_or(DecodeError::UnexpectedEof)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::IntegerOverflow)
    }

    #[inline]
    pub fn fixed64(&mut self) -> Result<u64, DecodeError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let bytes = rest.first_chunk::<8>().ok_or(DecodeError::UnexpectedEof)?;
        self.at += 8;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// The content of a field that starts with its length.
    #[inline]
    pub fn counted(&mut self) -> Result<&'a [u8], DecodeError> {
        let end = self.counted_end()?;
        let content = &self.bytes[self.at..end];
        self.at = end;
        Ok(content)
    }

    /// Reads a length and says where its content ends, without passing the content.
    #[inline]
    pub fn counted_end(&mut self) -> Result<usize, DecodeError> {
        let len = self.varint()?;
        let end = i64::try_from(len).ok().and_then(|len| (self.at as i64).checked_add(len));
        let end = end.ok_or(DecodeError::NegativeLength)?;
        if end as u64 > self.bytes.len() as u64 {
            return Err(DecodeError::UnexpectedEof);
        }
        Ok(end as usize)
    }

    /// Passes the field that starts with `tag`, whatever it is.
    ///
    /// Groups are walked with a depth count, since a sender decides how deep they go.
    pub fn skip(&mut self, tag: Tag) -> Result<(), DecodeError> {
        self.at = tag.start;
        let mut depth = 0_usize;
        loop {
            let wire_type = (self.varint()? & 7) as u8;
            match wire_type {
                0 => {
                    self.varint()?;
                }
                1 => self.advance(8)?,
                2 => {
                    let len = i64::try_from(self.varint()?);
                    self.advance(len.map_err(|_| DecodeError::NegativeLength)?)?;
                }
                3 => depth += 1,
                4 => depth = depth.saturating_sub(1),
                5 => self.advance(4)?,
                _ => return Err(DecodeError::IllegalWireType(wire_type)),
            }
            if depth == 0 {
                break;
            }
        }
        Ok(())
    }

    fn advance(&mut self, len: i64) -> Result<(), DecodeError> {
        let end = (self.at as i64).checked_add(len).ok_or(DecodeError::NegativeLength)?;
        if end as u64 > self.bytes.len() as u64 {
            return Err(DecodeError::UnexpectedEof);
        }
        self.at = end as usize;
        Ok(())
    }

    /// The bytes from `start` to here.
    pub fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip_one(bytes: &[u8]) -> Result<usize, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let tag = cursor.tag("Test")?.ok_or(DecodeError::UnexpectedEof)?;
        cursor.skip(tag)?;
        Ok(cursor.at())
    }

    #[test]
    fn unknown_fields_of_every_kind_are_passed() {
        let check = |bytes: &[u8], expect| assert_eq!(skip_one(bytes), expect, "{bytes:?}");
        check(&[0x78, 0x85, 0x01, 9], Ok(3));
        check(&[0x79, 1, 2, 3, 4, 5, 6, 7, 8, 9], Ok(9));
        check(&[0x7a, 2, 1, 2, 9], Ok(4));
        check(&[0x7d, 1, 2, 3, 4, 9], Ok(5));
        check(&[0x7b, 0x78, 1, 0x73, 0x74, 0x7c, 9], Ok(6));
        check(&[0x7b, 0x78, 1], Err(DecodeError::UnexpectedEof));
        check(&[0x7a, 3, 1, 2], Err(DecodeError::UnexpectedEof));
        check(&[0x7e, 1], Err(DecodeError::IllegalWireType(6)));
        let negative = [0x7a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
        check(&negative, Err(DecodeError::NegativeLength));
        let past_the_end = [0x7a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        check(&past_the_end, Err(DecodeError::NegativeLength));
    }

    #[test]
    fn deep_groups_need_no_stack() {
        let mut bytes = vec![0x7b; 1_000_000];
        bytes.extend(vec![0x7c; 1_000_000]);
        assert_eq!(skip_one(&bytes), Ok(2_000_000));
    }

    #[test]
    fn varints_end_after_ten_bytes() {
        let mut ten = [0xff; 10];
        ten[9] = 0x7f;
        assert_eq!(Cursor::new(&ten).varint(), Ok(u64::MAX));
        assert_eq!(Cursor::new(&[0xff; 11]).varint(), Err(DecodeError::IntegerOverflow));
        assert_eq!(Cursor::new(&[0xff; 9]).varint(), Err(DecodeError::UnexpectedEof));
    }
}
