//! MessagePack as memberlist's Go library writes and reads it.
//!
//! It writes structs as maps by field name, the names in their alphabetical order, and both texts
//! and bytes in the old raw form, which knows no eight-bit length. It reads any width of integer,
//! any form of text or bytes, fields in any order, and skips those it does not know; so do we.
//! `rmp` knows the markers and writes the numbers. Reading is ours, since whoever reads from a
//! stream has to hear how many bytes are missing.

use rmp::{Marker, encode};

/// Most fields of a map, and most values inside one that is skipped. No message has more than
/// eight, of which none is nested. Who reads from a stream tries anew with each piece that comes,
/// so what one try costs has to have a bound.
const FIELDS_MAX: usize = 64;
const SKIPPED_MAX: usize = 1024;

/// Why bytes are not what was to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// At least so many more are needed.
    #[error("at least {more} bytes are missing")]
    Short { more: usize },
    #[error("{expected} was expected")]
    Unexpected { expected: &'static str },
}

/// Writes a map of fields; the names have to come in their alphabetical order.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

/// The field of a map that is read.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

const NEVER_FULL: &str = "a vector takes whatever is written";

impl<'a> Writer<'a> {
    pub fn map(out: &'a mut Vec<u8>, fields: u32) -> Self {
        encode::write_map_len(out, fields).expect(NEVER_FULL);
        Self { out }
    }

    pub fn uint(&mut self, name: &str, value: impl Into<u64>) -> &mut Self {
        self.raw(name.as_bytes());
        encode::write_uint(self.out, value.into()).expect(NEVER_FULL);
        self
    }

    pub fn bool(&mut self, name: &str, value: bool) -> &mut Self {
        self.raw(name.as_bytes());
        encode::write_bool(self.out, value).expect(NEVER_FULL);
        self
    }

    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.raw(name.as_bytes());
        self.raw(value.as_bytes());
        self
    }

    /// What is empty is written as nothing, as Go does with bytes that were never set.
    pub fn bytes(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.raw(name.as_bytes());
        if value.is_empty() {
            encode::write_nil(self.out).expect(NEVER_FULL);
        } else {
            self.raw(value);
        }
        self
    }

    fn raw(&mut self, bytes: &[u8]) {
        match bytes.len() {
            length @ 0..32 => self.out.push(Marker::FixStr(length as u8).to_u8()),
            length @ 32..=0xffff => {
                self.out.push(Marker::Str16.to_u8());
                self.out.extend((length as u16).to_be_bytes());
            }
            length => {
                let length = u32::try_from(length).expect("what we send is far below 4 GiB");
                self.out.push(Marker::Str32.to_u8());
                self.out.extend(length.to_be_bytes());
            }
        }
        self.out.extend(bytes);
    }
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What follows the values read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Hands the name of each field of a map to `field`, which reads the value or skips it.
    pub fn map(
        &mut self,
        mut field: impl FnMut(&mut Self, &[u8]) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let fields = match self.marker()? {
            Marker::FixMap(fields) => usize::from(fields),
            Marker::Map16 => self.length::<2>()?,
            Marker::Map32 => self.length::<4>()?,
            Marker::Null => 0,
            _ => return Err(ReadError::Unexpected { expected: "a map" }),
        };
        if fields > FIELDS_MAX {
            return Err(ReadError::Unexpected { expected: "a map of a few fields" });
        }
        for _ in 0..fields {
            let name = self.bytes()?;
            field(self, name)?;
        }
        Ok(())
    }

    /// A number of any width that is at most `N`'s; nothing is 0.
    pub fn uint<N: TryFrom<u64>>(&mut self) -> Result<N, ReadError> {
        let unexpected = ReadError::Unexpected { expected: "a number within its bounds" };
        let signed = |value: i64| u64::try_from(value).map_err(|_| unexpected);
        let value = match self.marker()? {
            Marker::Null => 0,
            Marker::FixPos(value) => u64::from(value),
            Marker::U8 => u64::from(u8::from_be_bytes(self.array()?)),
            Marker::U16 => u64::from(u16::from_be_bytes(self.array()?)),
            Marker::U32 => u64::from(u32::from_be_bytes(self.array()?)),
            Marker::U64 => u64::from_be_bytes(self.array()?),
            Marker::I8 => signed(i8::from_be_bytes(self.array()?).into())?,
            Marker::I16 => signed(i16::from_be_bytes(self.array()?).into())?,
            Marker::I32 => signed(i32::from_be_bytes(self.array()?).into())?,
            Marker::I64 => signed(i64::from_be_bytes(self.array()?))?,
            _ => return Err(unexpected),
        };
        N::try_from(value).map_err(|_| unexpected)
    }

    pub fn bool(&mut self) -> Result<bool, ReadError> {
        match self.marker()? {
            Marker::True => Ok(true),
            Marker::False | Marker::Null => Ok(false),
            _ => Err(ReadError::Unexpected { expected: "true or false" }),
        }
    }

    pub fn text(&mut self) -> Result<&'a str, ReadError> {
        std::str::from_utf8(self.bytes()?)
            .map_err(|_| ReadError::Unexpected { expected: "a text in UTF-8" })
    }

    /// Texts and bytes, of the old form and the new one; nothing is none.
    pub fn bytes(&mut self) -> Result<&'a [u8], ReadError> {
        let length = match self.marker()? {
            Marker::Null => 0,
            Marker::FixStr(length) => usize::from(length),
            Marker::Str8 | Marker::Bin8 => self.length::<1>()?,
            Marker::Str16 | Marker::Bin16 => self.length::<2>()?,
            Marker::Str32 | Marker::Bin32 => self.length::<4>()?,
            _ => return Err(ReadError::Unexpected { expected: "a text or bytes" }),
        };
        self.take(length)
    }

    /// Passes over a value of any form, however deep: what is still to come is a number.
    pub fn skip(&mut self) -> Result<(), ReadError> {
        let (mut values, mut skipped) = (1_usize, 0);
        while values > 0 {
            if skipped + values > SKIPPED_MAX {
                return Err(ReadError::Unexpected { expected: "a field of few values" });
            }
            // Each of them has a byte at least.
            self.has(values)?;
            values -= 1;
            skipped += 1;
            let length = match self.marker()? {
                Marker::Null | Marker::True | Marker::False => 0,
                Marker::FixPos(_) | Marker::FixNeg(_) => 0,
                Marker::U8 | Marker::I8 => 1,
                Marker::U16 | Marker::I16 => 2,
                Marker::U32 | Marker::I32 | Marker::F32 => 4,
                Marker::U64 | Marker::I64 | Marker::F64 => 8,
                Marker::FixStr(length) => usize::from(length),
                Marker::Str8 | Marker::Bin8 => self.length::<1>()?,
                Marker::Str16 | Marker::Bin16 => self.length::<2>()?,
                Marker::Str32 | Marker::Bin32 => self.length::<4>()?,
                Marker::FixExt1 => 2,
                Marker::FixExt2 => 3,
                Marker::FixExt4 => 5,
                Marker::FixExt8 => 9,
                Marker::FixExt16 => 17,
                Marker::Ext8 => self.length::<1>()? + 1,
                Marker::Ext16 => self.length::<2>()? + 1,
                Marker::Ext32 => self.length::<4>()? + 1,
                Marker::FixArray(items) => {
                    values += usize::from(items);
                    0
                }
                Marker::Array16 => {
                    values += self.length::<2>()?;
                    0
                }
                Marker::Array32 => {
                    values += self.length::<4>()?;
                    0
                }
                Marker::FixMap(fields) => {
                    values += 2 * usize::from(fields);
                    0
                }
                Marker::Map16 => {
                    values += 2 * self.length::<2>()?;
                    0
                }
                Marker::Map32 => {
                    values += 2 * self.length::<4>()?;
                    0
                }
                Marker::Reserved => {
                    return Err(ReadError::Unexpected { expected: "a value" });
                }
            };
            self.take(length)?;
        }
        Ok(())
    }

    /// Takes a byte that is no MessagePack.
    pub fn byte(&mut self) -> Result<u8, ReadError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        self.has(length)?;
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }

    fn has(&self, length: usize) -> Result<(), ReadError> {
        match length.checked_sub(self.rest.len()) {
            None | Some(0) => Ok(()),
            Some(more) => Err(ReadError::Short { more }),
        }
    }

    fn marker(&mut self) -> Result<Marker, ReadError> {
        self.byte().map(Marker::from_u8)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        Ok(self.take(N)?.try_into().expect("taken at this length"))
    }

    /// A length of `N` bytes, at most four.
    fn length<const N: usize>(&mut self) -> Result<usize, ReadError> {
        Ok(self.array::<N>()?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }
}
