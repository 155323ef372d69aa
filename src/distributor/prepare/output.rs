//! The body that goes on: the received bytes until something changes, then bytes of our own.
//!
//! Fields come in the order of the body, each once, kept, changed or left out.

use std::borrow::Cow;

use crate::wire::DecodeError;
use crate::wire::write_request::RequestField;

pub(super) struct Output<'a> {
    body: &'a [u8],
    changed: Option<Vec<u8>>,
}

/// Where a field starts and ends in the body that goes on.
pub(super) type Place = (u32, u32);

impl<'a> Output<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Self { body, changed: None }
    }

    #[inline]
    pub fn keep(&mut self, field: &RequestField<'_>) -> Place {
        let Some(out) = &mut self.changed else {
            return (field.start, field.end);
        };
        let received = self.body.get(field.start as usize..field.end as usize);
        append(out, |out| out.extend_from_slice(received.unwrap_or_default()))
    }

    pub fn leave_out(&mut self, field: &RequestField<'_>) {
        self.begin(field);
    }

    /// Puts what `write` appends in the field's place.
    pub fn change(&mut self, field: &RequestField<'_>, write: impl FnOnce(&mut Vec<u8>)) -> Place {
        append(self.begin(field), write)
    }

    /// Everything before `field` as it was received, if nothing has changed so far.
    fn begin(&mut self, field: &RequestField<'_>) -> &mut Vec<u8> {
        let body = self.body;
        self.changed.get_or_insert_with(|| {
            // What is changed nearly always gets shorter: one allocation.
            let mut out = Vec::with_capacity(body.len());
            out.extend_from_slice(body.get(..field.start as usize).unwrap_or_default());
            out
        })
    }

    /// The body, unless it has outgrown what places can tell: a histogram that is written anew
    /// can take a few bytes more.
    pub fn finish(self) -> Result<Cow<'a, [u8]>, DecodeError> {
        match self.changed {
            None => Ok(Cow::Borrowed(self.body)),
            Some(out) if u32::try_from(out.len()).is_err() => {
                Err(DecodeError::MessageTooLarge { bytes: out.len() })
            }
            Some(out) => Ok(Cow::Owned(out)),
        }
    }
}

fn append(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Place {
    let start = out.len();
    write(out);
    // `finish` checks that both fit.
    (start as u32, out.len() as u32)
}
