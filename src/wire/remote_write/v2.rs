//! `io.prometheus.write.v2.Request` to `cortexpb.WriteRequest`.
//!
//! Strings of a 2.0 request stand in one table and series refer to them. The whole message is
//! checked first, since its faults come before those of any reference, then series are written
//! out one by one. Samples, histograms and exemplars keep all their bits.
//!
//! References can repeat a long symbol without end, so the texts written have a bound of their
//! own. All else grows with the body: at worst, one series of nothing but references takes
//! twenty times its bytes while it is converted.

use std::borrow::Cow;

use crate::labels::{LabelSetText, METRIC_NAME};

use super::super::cursor::{BYTES, Cursor, DecodeError, FIXED64, Tag, VARINT};
use super::super::histogram::{self, Histogram};
use super::super::write_request::{Sample, check_empty_message};
use super::super::writer::{push_counted, push_double, push_integer, push_sample};
use super::{Options, RemoteWriteError};

const TYPE_LABEL: &[u8] = b"__type__";
const UNIT_LABEL: &[u8] = b"__unit__";

/// Names of the metric types, by enum number; the first is unspecified.
const METRIC_TYPES: [&str; 8] =
    ["", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset"];

type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Converts a whole request.
pub(super) fn convert(body: &[u8], options: &Options) -> Result<Vec<u8>, RemoteWriteError> {
    let request = Request::decode(body)?;
    // What the same would be as version 1, it may be here: real requests grow two- to fourfold
    // from far below the bound. More is refused before the text that is too much is copied.
    let bytes_max = options.recv_bytes_max;
    let mut out = Output {
        series: Vec::with_capacity(body.len()),
        metadata: Vec::new(),
        text_bytes: 0,
        text_bytes_max: bytes_max,
    };
    for message in &request.series {
        request.convert_series(&Series::decode(message)?, options, &mut out)?;
    }
    out.series.append(&mut out.metadata);
    Ok(out.series)
}

/// Fields of the converted request; metadata follows the series, as a 1.0 sender has it.
struct Output {
    series: Vec<u8>,
    metadata: Vec<u8>,
    text_bytes: usize,
    text_bytes_max: usize,
}

impl Output {
    /// Makes sure that texts may be written, before they are.
    fn account<'a>(
        &mut self,
        texts: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), RemoteWriteError> {
        for text in texts {
            self.text_bytes = self.text_bytes.saturating_add(text.len());
        }
        if self.text_bytes <= self.text_bytes_max {
            return Ok(());
        }
        let (bytes, bytes_max) = (self.text_bytes as u64, self.text_bytes_max);
        Err(RemoteWriteError::TooLarge { bytes, bytes_max })
    }

    fn account_labels(&mut self, labels: &[(&[u8], &[u8])]) -> Result<(), RemoteWriteError> {
        self.account(labels.iter().flat_map(|(name, value)| [*name, *value]))
    }
}

/// A request that has been checked; its parts are borrowed.
struct Request<'a> {
    symbols: Vec<&'a [u8]>,
    series: Vec<&'a [u8]>,
}

/// The parts of one series. Samples and the like stay in `message`.
#[derive(Default)]
struct Series<'a> {
    message: &'a [u8],
    label_refs: Vec<u32>,
    metadata: Metadata,
    created_timestamp_ms: i64,
    has_samples: bool,
}

#[derive(Default)]
struct Metadata {
    kind: i32,
    help_ref: u32,
    unit_ref: u32,
}

impl Metadata {
    fn is_empty(&self) -> bool {
        self.kind == 0 && self.help_ref == 0 && self.unit_ref == 0
    }

    /// Position in [`METRIC_TYPES`]; numbers from the future are unspecified.
    fn known_kind(&self) -> usize {
        usize::try_from(self.kind).ok().filter(|kind| *kind < METRIC_TYPES.len()).unwrap_or(0)
    }
}

impl<'a> Request<'a> {
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut request = Self { symbols: Vec::new(), series: Vec::new() };
        let mut cursor = Cursor::new(body);
        while let Some(tag) = cursor.tag("WriteRequestV2")? {
            match tag.number {
                4 => {
                    tag.expect(BYTES, "Symbols")?;
                    request.symbols.push(cursor.counted()?);
                }
                5 => {
                    tag.expect(BYTES, "Timeseries")?;
                    let message = cursor.counted()?;
                    Series::decode(message)?;
                    request.series.push(message);
                }
                6 => {
                    // Read and dropped: what comes by HTTP is from the API.
                    tag.expect(VARINT, "Source")?;
                    cursor.varint()?;
                }
                1000 => {
                    tag.expect(VARINT, "SkipLabelNameValidation")?;
                    cursor.varint()?;
                }
                1001 => {
                    tag.expect(BYTES, "MessageWithBufRef")?;
                    check_empty_message(cursor.counted()?)?;
                }
                _ => cursor.skip(tag)?,
            }
        }
        Ok(request)
    }

    fn convert_series(
        &self,
        series: &Series<'a>,
        options: &Options,
        out: &mut Output,
    ) -> Result<(), RemoteWriteError> {
        let mut labels = self.labels(&series.label_refs)?;
        if !series.has_samples {
            let labels = LabelSetText(labels.iter().copied()).to_string();
            return Err(RemoteWriteError::NoSamples { labels });
        }
        let symbols = self.symbols.len();
        let Metadata { unit_ref: unit, help_ref: help, .. } = series.metadata;
        let unit = *self.symbol(unit).ok_or(RemoteWriteError::UnitRef { unit, symbols })?;
        if options.type_and_unit_labels && (series.metadata.kind != 0 || !unit.is_empty()) {
            set_type_and_unit(&mut labels, METRIC_TYPES[series.metadata.known_kind()], unit);
        }

        // The length of a series is known when it has been written; so it is written aside.
        let mut message = Vec::with_capacity(series.message.len());
        out.account_labels(&labels)?;
        push_labels(&mut message, &labels);
        self.push_data(series, options, &mut message, out)?;
        push_counted(&mut out.series, 1, &message);

        if !series.metadata.is_empty() {
            let name = labels.iter().find(|(name, _)| *name == METRIC_NAME);
            let (_, name) = name.ok_or(RemoteWriteError::NoMetricName)?;
            let help = *self.symbol(help).ok_or(RemoteWriteError::HelpRef { help, symbols })?;
            out.account([*name, help, unit])?;
            let message = metadata_message(&series.metadata, name, help, unit);
            push_counted(&mut out.metadata, 3, &message);
        }
        Ok(())
    }

    fn symbol(&self, reference: u32) -> Option<&&'a [u8]> {
        self.symbols.get(reference as usize)
    }

    /// Labels by reference, sorted by name. Labels of equal name keep their order; Cortex's sort
    /// does so up to twelve labels.
    fn labels(&self, refs: &[u32]) -> Result<Pairs<'a>, RemoteWriteError> {
        if !refs.len().is_multiple_of(2) {
            return Err(RemoteWriteError::OddLabelRefs(refs.len()));
        }
        let mut labels = Vec::with_capacity(refs.len() / 2);
        for pair in refs.chunks_exact(2) {
            let (name, value) = (pair[0], pair[1]);
            match (self.symbol(name), self.symbol(value)) {
                (Some(name), Some(value)) => labels.push((*name, *value)),
                _ => {
                    let symbols = self.symbols.len();
                    return Err(RemoteWriteError::LabelRef { name, value, symbols });
                }
            }
        }
        labels.sort_by_key(|(name, _)| *name);
        Ok(labels)
    }

    /// Samples, exemplars and histograms, kind by kind as a 1.0 series has them.
    fn push_data(
        &self,
        series: &Series<'a>,
        options: &Options,
        message: &mut Vec<u8>,
        out: &mut Output,
    ) -> Result<(), RemoteWriteError> {
        let start_ms = |own_ms: i64| match (options.start_timestamp, own_ms) {
            (false, _) => 0,
            (true, 0) => series.created_timestamp_ms,
            (true, own_ms) => own_ms,
        };
        for sample in series.contents(SAMPLES) {
            let sample = Sample::decode(sample)?;
            let start_timestamp_ms = start_ms(sample.start_timestamp_ms);
            push_sample(message, Sample { start_timestamp_ms, ..sample });
        }
        for exemplar in series.contents(EXEMPLARS) {
            let exemplar = Exemplar::decode(exemplar)?;
            let labels = self.labels(&exemplar.label_refs)?;
            out.account_labels(&labels)?;
            push_counted(message, 3, &exemplar_message(&exemplar, &labels));
        }
        for histogram in series.contents(HISTOGRAMS) {
            push_counted(message, 4, &histogram_message(histogram, start_ms)?);
        }
        Ok(())
    }
}

/// Replaces the type and unit labels by what the metadata says.
fn set_type_and_unit<'a>(labels: &mut Pairs<'a>, kind: &'static str, unit: &'a [u8]) {
    labels.retain(|(name, _)| ![TYPE_LABEL, UNIT_LABEL].contains(name));
    for (name, value) in [(TYPE_LABEL, kind.as_bytes()), (UNIT_LABEL, unit)] {
        if !value.is_empty() {
            labels.push((name, value));
        }
    }
    labels.sort_by_key(|(name, _)| *name);
}

const SAMPLES: i32 = 2;
const HISTOGRAMS: i32 = 3;
const EXEMPLARS: i32 = 4;

impl<'a> Series<'a> {
    fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut series = Self { message, ..Self::default() };
        let mut cursor = Cursor::new(message);
        while let Some(tag) = cursor.tag("TimeSeriesV2")? {
            match tag.number {
                1 => read_refs(&mut cursor, tag, &mut series.label_refs)?,
                SAMPLES => {
                    tag.expect(BYTES, "Samples")?;
                    Sample::decode(cursor.counted()?)?;
                    series.has_samples = true;
                }
                HISTOGRAMS => {
                    tag.expect(BYTES, "Histograms")?;
                    histogram::check(cursor.counted()?)?;
                    series.has_samples = true;
                }
                EXEMPLARS => {
                    tag.expect(BYTES, "Exemplars")?;
                    Exemplar::decode(cursor.counted()?)?;
                }
                5 => {
                    tag.expect(BYTES, "Metadata")?;
                    series.metadata.merge(cursor.counted()?)?;
                }
                6 => {
                    tag.expect(VARINT, "CreatedTimestamp")?;
                    series.created_timestamp_ms = cursor.varint()? as i64;
                }
                _ => cursor.skip(tag)?,
            }
        }
        Ok(series)
    }

    /// Contents of the fields of one number; the series has been checked.
    fn contents(&self, number: i32) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut cursor = Cursor::new(self.message);
        std::iter::from_fn(move || {
            while let Ok(Some(tag)) = cursor.tag("") {
                if tag.number == number {
                    return cursor.counted().ok();
                }
                if tag.number == 1 {
                    // Not skipped as one field: packed elements may run past their end.
                    read_refs(&mut cursor, tag, &mut Vec::new()).ok()?;
                } else {
                    cursor.skip(tag).ok()?;
                }
            }
            None
        })
    }
}

fn read_refs(cursor: &mut Cursor<'_>, tag: Tag, refs: &mut Vec<u32>) -> Result<(), DecodeError> {
    let mut end = cursor.at() + 1;
    match tag.wire_type {
        VARINT => {}
        BYTES => end = cursor.counted_end()?,
        wire_type => return Err(DecodeError::WrongWireType { wire_type, field: "LabelsRefs" }),
    }
    while cursor.at() < end {
        refs.push(cursor.varint()? as u32);
    }
    Ok(())
}

impl Metadata {
    /// A message field that comes twice is merged.
    fn merge(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        while let Some(tag) = cursor.tag("MetadataV2")? {
            match tag.number {
                1 => {
                    tag.expect(VARINT, "Type")?;
                    self.kind = cursor.varint()? as i32;
                }
                3 => {
                    tag.expect(VARINT, "HelpRef")?;
                    self.help_ref = cursor.varint()? as u32;
                }
                4 => {
                    tag.expect(VARINT, "UnitRef")?;
                    self.unit_ref = cursor.varint()? as u32;
                }
                _ => cursor.skip(tag)?,
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Exemplar {
    label_refs: Vec<u32>,
    value: f64,
    timestamp_ms: i64,
}

impl Exemplar {
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut exemplar = Self::default();
        let mut cursor = Cursor::new(bytes);
        while let Some(tag) = cursor.tag("ExemplarV2")? {
            match tag.number {
                1 => read_refs(&mut cursor, tag, &mut exemplar.label_refs)?,
                2 => {
                    tag.expect(FIXED64, "Value")?;
                    exemplar.value = f64::from_bits(cursor.fixed64()?);
                }
                3 => {
                    tag.expect(VARINT, "Timestamp")?;
                    exemplar.timestamp_ms = cursor.varint()? as i64;
                }
                _ => cursor.skip(tag)?,
            }
        }
        Ok(exemplar)
    }
}

fn exemplar_message(exemplar: &Exemplar, labels: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    push_labels(&mut out, labels);
    push_double(&mut out, 2, exemplar.value);
    push_integer(&mut out, 3, exemplar.timestamp_ms);
    out
}

/// A histogram as it came, or written anew when its start timestamp changes.
///
/// Shortest again, so that one that was small enough to be received does not become too large.
fn histogram_message(
    message: &[u8],
    start_ms: impl Fn(i64) -> i64,
) -> Result<Cow<'_, [u8]>, DecodeError> {
    let own_ms = histogram::start_timestamp_ms(message)?;
    let start_timestamp_ms = start_ms(own_ms);
    if start_timestamp_ms == own_ms {
        return Ok(Cow::Borrowed(message));
    }
    let histogram = Histogram { start_timestamp_ms, ..Histogram::decode(message)? };
    Ok(Cow::Owned(histogram.encode()))
}

fn metadata_message(metadata: &Metadata, name: &[u8], help: &[u8], unit: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // The numbers of the types are the same in both versions.
    push_integer(&mut out, 1, metadata.known_kind() as i64);
    for (number, text) in [(2, name), (4, help), (5, unit)] {
        if !text.is_empty() {
            push_counted(&mut out, number, text);
        }
    }
    out
}

/// Labels as they are, those with an empty value too.
fn push_labels(out: &mut Vec<u8>, labels: &[(&[u8], &[u8])]) {
    let mut label = Vec::new();
    for (name, value) in labels {
        label.clear();
        for (number, text) in [(1, name), (2, value)] {
            if !text.is_empty() {
                push_counted(&mut label, number, text);
            }
        }
        push_counted(out, 1, &label);
    }
}
