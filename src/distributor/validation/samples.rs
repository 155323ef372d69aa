//! The rules of what a series carries: times, exemplars, native histograms.

use super::text::chars;
use super::{EXEMPLAR_CHARS_MAX, Violation};
use crate::limits::Limits;
use crate::units::Millis;
use crate::wire::histogram::{Histogram, SCHEMA_EXPONENTIAL_MIN};
use crate::wire::write_request::{Exemplar, Series};

/// Times that a tenant's samples may have at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    oldest_ms: i64,
    newest_ms: i64,
}

impl TimeRange {
    pub fn new(limits: &Limits, now_ms: i64) -> Self {
        let span_ms = |span: Millis| i64::try_from(span.0).unwrap_or(i64::MAX);
        let oldest_ms = match limits.reject_old_samples {
            true => now_ms.saturating_sub(span_ms(limits.reject_old_samples_max_age)),
            false => i64::MIN,
        };
        let newest_ms = now_ms.saturating_add(span_ms(limits.creation_grace_period));
        Self { oldest_ms, newest_ms }
    }

    /// Whether all times between these two are allowed.
    #[inline]
    pub fn holds(self, (oldest_ms, newest_ms): (i64, i64)) -> bool {
        oldest_ms >= self.oldest_ms && newest_ms <= self.newest_ms
    }

    pub fn check(self, timestamp_ms: i64) -> Result<(), Violation<'static>> {
        if timestamp_ms < self.oldest_ms {
            return Err(Violation::SampleTooOld { timestamp_ms });
        }
        if timestamp_ms > self.newest_ms {
            return Err(Violation::SampleTooNew { timestamp_ms });
        }
        Ok(())
    }
}

/// Memory for the histograms of one series after the other, and what became of the last one's.
#[derive(Debug, Default)]
pub struct HistogramWork {
    histogram: Histogram,
    /// Those whose resolution was reduced, by their numbers in the series; also of a series that
    /// is refused in the end.
    pub reduced: Vec<(u32, Vec<u8>)>,
    /// How many have buckets with bounds of their own.
    pub custom: u64,
}

/// Checks all that a series carries, in Cortex's order; `see_buckets` gets the number of buckets
/// of each histogram whose time is right.
#[inline]
pub fn check_values<'a>(
    series: &Series,
    body: &'a [u8],
    (limits, times): (&Limits, TimeRange),
    work: &mut HistogramWork,
    see_buckets: impl FnMut(u64),
) -> Result<(), Violation<'a>> {
    work.reduced.clear();
    work.custom = 0;
    if series.time_range_ms().is_some_and(|range| !times.holds(range)) {
        // A histogram may be the one that is out of range, and exemplars come before it.
        for sample in series.samples(body) {
            times.check(sample.timestamp_ms)?;
        }
    }
    if series.exemplar_count > 0 {
        for exemplar in series.exemplars(body) {
            check_exemplar(&exemplar)?;
        }
    }
    match series.has_histogram() {
        true => check_histograms(series, body, (limits, times), work, see_buckets),
        false => Ok(()),
    }
}

fn check_histograms(
    series: &Series,
    body: &[u8],
    (limits, times): (&Limits, TimeRange),
    work: &mut HistogramWork,
    mut see_buckets: impl FnMut(u64),
) -> Result<(), Violation<'static>> {
    let histogram = &mut work.histogram;
    for (number, raw) in (0..).zip(series.histograms(body)) {
        if histogram.read(raw.bytes()).is_err() {
            // Would have ended the request when it was read.
            continue;
        }
        times.check(histogram.timestamp_ms)?;
        see_buckets(histogram.bucket_count() as u64);
        work.custom += u64::from(histogram.has_custom_buckets());
        if check_histogram(histogram, limits)? {
            work.reduced.push((number, histogram.encode()));
        }
    }
    Ok(())
}

pub fn check_exemplar<'a>(exemplar: &Exemplar<'a>) -> Result<(), Violation<'a>> {
    let timestamp_ms = exemplar.timestamp_ms;
    let labels = exemplar.labels();
    if labels.clone().next().is_none() {
        return Err(Violation::ExemplarLabelsMissing { timestamp_ms });
    }
    if timestamp_ms == 0 {
        return Err(Violation::ExemplarTimestampMissing { labels });
    }
    let count: usize = labels.clone().map(|(name, value)| chars(name) + chars(value)).sum();
    if count > EXEMPLAR_CHARS_MAX {
        return Err(Violation::ExemplarLabelsTooLong { labels, timestamp_ms });
    }
    Ok(())
}

/// Checks a histogram, and reduces its resolution when it has more buckets than it may have.
/// Whether it did so.
pub fn check_histogram(
    histogram: &mut Histogram,
    limits: &Limits,
) -> Result<bool, Violation<'static>> {
    let limit = limits.max_native_histogram_sample_size_bytes;
    if limit > 0 {
        let bytes = histogram.cortex_len();
        if bytes as u64 > limit {
            return Err(Violation::HistogramTooLarge { bytes, limit });
        }
    }
    if !histogram.has_known_schema() {
        return Err(Violation::HistogramSchema(histogram.schema));
    }
    histogram.validate().map_err(Violation::HistogramInvalid)?;
    let limit = limits.max_native_histogram_buckets;
    if limit == 0 || histogram.bucket_entries() as u64 <= limit {
        return Ok(false);
    }
    // Buckets with bounds of their own cannot be merged.
    while histogram.bucket_entries() as u64 > limit {
        if histogram.has_custom_buckets() || histogram.schema <= SCHEMA_EXPONENTIAL_MIN {
            return Err(Violation::HistogramBuckets { limit });
        }
        histogram.halve_resolution();
    }
    histogram.keep_one_kind();
    Ok(true)
}
