//! `cortexpb.WriteRequest`, read once from borrowed bytes.
//!
//! One pass checks the whole message and yields what admission needs of each series, so a
//! malformed request is refused before anything has changed. A [`Series`] holds offsets, not
//! references: the caller keeps a column of them in scratch that outlives the request. Labels
//! stay where they lie in the body when they are canonical there, as nearly always; else they
//! are rewritten at the end of an arena that the caller reuses.
//!
//! Nothing is allocated for a series, and nothing is ever sized by a length in the message. The
//! arena stays shorter than the body, since canonical labels are the shortest encoding there is.
//!
//! Invariant: all legal encodings of one label list give the same [`Labels`].

use crate::labels::{LabelSetText, Labels, canonical_prefix, push_canonical};

use super::cursor::{BYTES, Cursor, DecodeError, Tag, VARINT};
use super::histogram;

mod items;

use items::Fields;
pub(super) use items::read_label;
pub use items::{Exemplar, Metadata, RawHistogram, RawLabels, Sample};

/// A pull reader of one request: [`next_series`](Self::next_series) until it gives `None`, then
/// [`summary`](Self::summary) and metadata are complete.
#[derive(Debug)]
pub struct WriteRequest<'a, 'arena> {
    body: &'a [u8],
    arena: &'arena mut Vec<u8>,
    cursor: Cursor<'a>,
    /// What has been read so far.
    pub summary: Summary,
    /// Where the first metadata lies, so that requests without any are not walked again.
    metadata_at: Option<usize>,
}

/// One field of a request: its place, tag and length included, and what is in it.
#[derive(Clone, Copy, Debug)]
pub struct RequestField<'a> {
    pub start: u32,
    pub end: u32,
    pub content: Content<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    Series(Series),
    Metadata(Metadata<'a>),
    /// Said in [`Summary`], or nothing that is known.
    Other,
}

/// What a request says beside its series, and how much it carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Enum number: 0 API, 1 RULE; others are kept.
    pub source: i32,
    pub skip_label_name_validation: bool,
    pub discard_out_of_order: bool,
    pub series: u64,
    pub samples: u64,
    pub histograms: u64,
    pub exemplars: u64,
    pub metadata: u64,
    /// Latest time of a sample or histogram; 0 when none is after 1970.
    pub newest_ms: i64,
}

/// One series of a request, as places in its body and arena.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    message_start: u32,
    end: u32,
    labels_start: u32,
    labels_end: u32,
    /// Number of them, as of the next two.
    pub sample_count: u32,
    pub histogram_count: u32,
    pub exemplar_count: u32,
    labels_in_arena: bool,
    names_fell: bool,
    oldest_ms: i64,
    newest_ms: i64,
}

impl<'a, 'arena> WriteRequest<'a, 'arena> {
    /// Starts to read `body`. The arena is emptied first; only its memory is reused.
    pub fn new(body: &'a [u8], arena: &'arena mut Vec<u8>) -> Result<Self, DecodeError> {
        if u32::try_from(body.len()).is_err() {
            return Err(DecodeError::MessageTooLarge { bytes: body.len() });
        }
        arena.clear();
        let cursor = Cursor::new(body);
        Ok(Self { body, arena, cursor, summary: Summary::default(), metadata_at: None })
    }

    /// The next series, or `None` once the whole request has been read and found sound.
    #[inline]
    pub fn next_series(&mut self) -> Result<Option<Series>, DecodeError> {
        while let Some(tag) = self.cursor.tag("WriteRequest")? {
            if tag.number == 1 {
                return self.read_series(tag).map(Some);
            }
            self.read_other(tag)?;
        }
        Ok(None)
    }

    /// The next field of any kind, or `None` once the whole request has been read and found
    /// sound. For those to whom the places matter; what it passes is not seen by
    /// [`next_series`](Self::next_series) again.
    #[inline]
    pub fn next_field(&mut self) -> Result<Option<RequestField<'a>>, DecodeError> {
        let Some(tag) = self.cursor.tag("WriteRequest")? else {
            return Ok(None);
        };
        let content = match tag.number {
            1 => Content::Series(self.read_series(tag)?),
            3 => Content::Metadata(self.read_metadata(tag)?),
            _ => {
                self.read_other(tag)?;
                Content::Other
            }
        };
        // Fits: the body's length was checked when reading began.
        Ok(Some(RequestField { start: tag.start as u32, end: self.cursor.at() as u32, content }))
    }

    #[inline]
    fn read_series(&mut self, tag: Tag) -> Result<Series, DecodeError> {
        tag.expect(BYTES, "Timeseries")?;
        let message = self.cursor.counted()?;
        let series = read_series(message, self.cursor.at(), self.arena)?;
        self.summary.series += 1;
        self.summary.samples += u64::from(series.sample_count);
        self.summary.histograms += u64::from(series.histogram_count);
        self.summary.exemplars += u64::from(series.exemplar_count);
        self.summary.newest_ms = self.summary.newest_ms.max(series.newest_ms);
        Ok(series)
    }

    fn read_metadata(&mut self, tag: Tag) -> Result<Metadata<'a>, DecodeError> {
        tag.expect(BYTES, "Metadata")?;
        let metadata = Metadata::decode(self.cursor.counted()?)?;
        self.metadata_at.get_or_insert(tag.start);
        self.summary.metadata += 1;
        Ok(metadata)
    }

    fn read_other(&mut self, tag: Tag) -> Result<(), DecodeError> {
        if tag.number == 3 {
            return self.read_metadata(tag).map(|_| ());
        }
        let cursor = &mut self.cursor;
        match tag.number {
            2 => {
                tag.expect(VARINT, "Source")?;
                self.summary.source = cursor.varint()? as i32;
            }
            1000 => {
                tag.expect(VARINT, "SkipLabelNameValidation")?;
                self.summary.skip_label_name_validation = cursor.varint()? != 0;
            }
            1001 => {
                tag.expect(BYTES, "MessageWithBufRef")?;
                check_empty_message(cursor.counted()?)?;
            }
            1002 => {
                tag.expect(VARINT, "DiscardOutOfOrder")?;
                self.summary.discard_out_of_order = cursor.varint()? != 0;
            }
            _ => cursor.skip(tag)?,
        }
        Ok(())
    }

    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The canonical labels of a series of this request.
    #[inline]
    pub fn labels(&self, series: &Series) -> Labels<'_> {
        series.labels(self.body, self.arena)
    }

    /// Metadata of a request that has been read to its end.
    pub fn metadata(&self) -> impl Iterator<Item = Metadata<'a>> + use<'a> {
        let at = self.metadata_at.unwrap_or(self.body.len());
        Fields { cursor: Cursor::resume(self.body, at), number: 3 }
            .filter_map(|message| Metadata::decode(message).ok())
    }
}

/// What a request says of its labels' names, which senders write behind the series: a look at the
/// heads of the fields and nothing else.
pub fn skips_label_name_validation(body: &[u8]) -> bool {
    let mut skips = false;
    let mut cursor = Cursor::new(body);
    // An error ends the look; reading the request tells of it.
    while let Ok(Some(tag)) = cursor.tag("WriteRequest") {
        let passed = match (tag.number, tag.wire_type) {
            (1000, VARINT) => cursor.varint().map(|skip| skips = skip != 0),
            _ => cursor.skip(tag),
        };
        if passed.is_err() {
            break;
        }
    }
    skips
}

/// Reads all of a request without keeping its series.
pub fn check(body: &[u8]) -> Result<Summary, DecodeError> {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena)?;
    while request.next_series()?.is_some() {}
    Ok(request.summary)
}

/// A message that has no fields of its own; Cortex writes one into each request.
pub(super) fn check_empty_message(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    while let Some(tag) = cursor.tag("MessageWithBufRef")? {
        cursor.skip(tag)?;
    }
    Ok(())
}

#[inline]
fn read_series(message: &[u8], end: usize, arena: &mut Vec<u8>) -> Result<Series, DecodeError> {
    let message_start = end - message.len();
    let labels_len = canonical_prefix(message);
    // Fits: the body's length was checked when reading began.
    let at = |place: usize| place as u32;
    let mut series = Series {
        message_start: at(message_start),
        end: at(end),
        labels_start: at(message_start),
        labels_end: at(message_start + labels_len),
        labels_in_arena: false,
        names_fell: false,
        sample_count: 0,
        histogram_count: 0,
        exemplar_count: 0,
        oldest_ms: i64::MAX,
        newest_ms: i64::MIN,
    };
    let mut all_canonical = true;
    let mut cursor = Cursor::resume(message, labels_len);
    while let Some(tag) = cursor.tag("TimeSeries")? {
        match tag.number {
            1 => {
                tag.expect(BYTES, "Labels")?;
                read_label(cursor.counted()?)?;
                all_canonical = false;
            }
            2 => {
                tag.expect(BYTES, "Samples")?;
                series.sample_count += 1;
                series.include_time(Sample::decode(cursor.counted()?)?.timestamp_ms);
            }
            3 => {
                tag.expect(BYTES, "Exemplars")?;
                series.exemplar_count += 1;
                Exemplar::decode(cursor.counted()?)?;
            }
            4 => {
                tag.expect(BYTES, "Histograms")?;
                series.histogram_count += 1;
                series.include_time(histogram::check(cursor.counted()?)?);
            }
            _ => cursor.skip(tag)?,
        }
    }
    if !all_canonical {
        canonicalise(message, &mut series, arena);
    }
    Ok(series)
}

/// Writes the labels of a series that has been checked to the arena.
#[inline(never)]
fn canonicalise(message: &[u8], series: &mut Series, arena: &mut Vec<u8>) {
    // Fits: what is appended for a series is shorter than its message.
    series.labels_start = arena.len() as u32;
    series.labels_in_arena = true;
    let mut last_name: &[u8] = &[];
    for (name, value) in RawLabels::new(message) {
        series.names_fell |= name < last_name;
        last_name = name;
        push_canonical(arena, name, value);
    }
    series.labels_end = arena.len() as u32;
}

impl Series {
    #[inline]
    fn include_time(&mut self, timestamp_ms: i64) {
        self.oldest_ms = self.oldest_ms.min(timestamp_ms);
        self.newest_ms = self.newest_ms.max(timestamp_ms);
    }

    /// Smallest and largest time of samples and histograms; `None` when there are neither.
    #[inline]
    pub fn time_range_ms(&self) -> Option<(i64, i64)> {
        (self.sample_count + self.histogram_count > 0).then_some((self.oldest_ms, self.newest_ms))
    }

    pub fn has_histogram(&self) -> bool {
        self.histogram_count > 0
    }

    /// Whether the labels stand in front of the message in canonical form, so that none of them
    /// has an empty value.
    #[inline]
    pub fn labels_are_in_place(&self) -> bool {
        !self.labels_in_arena
    }

    /// The canonical labels, from the body or the arena that the series was read with.
    #[inline]
    pub fn labels<'a>(&self, body: &'a [u8], arena: &'a [u8]) -> Labels<'a> {
        let bytes = if self.labels_in_arena { arena } else { body };
        let place = self.labels_start as usize..self.labels_end as usize;
        Labels::from_canonical(bytes.get(place).unwrap_or_default())
    }

    /// Whether the received names never fell, those of labels with an empty value included.
    ///
    /// Read from the labels when asked, not while decoding: only new series need it, since one
    /// that is known was in order when it was created and has the same bytes now.
    pub fn names_in_order(&self, body: &[u8]) -> bool {
        if self.labels_in_arena {
            return !self.names_fell;
        }
        self.labels(body, &[]).is_sorted()
    }

    /// The bytes of the `TimeSeries` message.
    pub fn message<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        body.get(self.message_start as usize..self.end as usize).unwrap_or_default()
    }

    /// Labels as they were received, empty values included.
    pub fn raw_labels<'a>(&self, body: &'a [u8]) -> RawLabels<'a> {
        RawLabels::new(self.message(body))
    }

    /// The received labels as Prometheus prints them.
    pub fn labels_text<'a>(&self, body: &'a [u8]) -> LabelSetText<RawLabels<'a>> {
        LabelSetText(self.raw_labels(body))
    }

    pub fn samples<'a>(&self, body: &'a [u8]) -> impl Iterator<Item = Sample> + Clone + use<'a> {
        self.fields(body, 2).filter_map(|message| Sample::decode(message).ok())
    }

    pub fn exemplars<'a>(
        &self,
        body: &'a [u8],
    ) -> impl Iterator<Item = Exemplar<'a>> + Clone + use<'a> {
        self.fields(body, 3).filter_map(|message| Exemplar::decode(message).ok())
    }

    pub fn histograms<'a>(
        &self,
        body: &'a [u8],
    ) -> impl Iterator<Item = RawHistogram<'a>> + Clone + use<'a> {
        self.fields(body, 4).map(RawHistogram)
    }

    /// Contents of all fields of one number, from behind the labels when they are in front.
    fn fields<'a>(&self, body: &'a [u8], number: i32) -> Fields<'a> {
        let message = self.message(body);
        let at = if self.labels_in_arena { 0 } else { self.labels_end - self.message_start };
        Fields { cursor: Cursor::resume(message, at as usize), number }
    }
}

#[cfg(test)]
mod tests;
