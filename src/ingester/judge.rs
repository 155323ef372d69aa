//! The series of a push that a touch does not settle: new ones, late ones, doubtful ones.
//!
//! Here a sample is judged by its time and by what its series holds, a series is created when its
//! first acceptable sample comes, and refusals are counted and worded. The store is asked for a
//! series' newest sample: what the tracker remembers only says that asking is worth it, so a
//! push that failed half way is forgotten by itself.

use crate::ingester::acceptance::{Newest, SampleError, Value};
use crate::ingester::counters::DiscardReason;
use crate::ingester::push::{Push, Row, RowState, Scratch};
use crate::ingester::{PushError, texts};
use crate::labels::{LabelSetText, ring_key};
use crate::limits::LabelSets;
use crate::series::{Admitted, Item, Kind, NewSeries, Refusal};
use crate::store::{Sample as StoredSample, SeriesKind, Store, StoredValue, Writer};

/// Most characters in an exemplar's names and values together: OpenMetrics' bound.
const EXEMPLAR_CHARS_MAX: usize = 128;

/// One sample or histogram of a series.
#[derive(Clone, Copy)]
struct Point<'a> {
    timestamp_ms: i64,
    value: Value<'a>,
    start_ms: i64,
}

/// What is known of a series while its points are judged.
struct Judged {
    newest: Option<StoredSample>,
    /// Outcome of its creation, or of its late touch; `None` before the first acceptable point.
    admission: Option<Result<Admitted, Refusal>>,
    /// A point whose block has the series' labels.
    labelled_ms: Option<i64>,
    /// Newest point that was taken.
    newest_taken_ms: Option<i64>,
}

impl Push<'_> {
    /// Judges a series point by point. Why it may not come to be, if so.
    pub(super) fn judge(
        &mut self,
        row: &Row,
        scratch: &mut Scratch,
        mut writer: Option<&mut Writer<'_>>,
    ) -> Result<Option<Refusal>, PushError> {
        self.check_order(row)?;
        let known = match row.state {
            RowState::New => false,
            RowState::Known => true,
            _ => self.tenant.series.contains(row.identity),
        };
        let newest = match &self.ingester.store {
            Some(store) if known => newest_stored(store, self, row)?,
            _ => None,
        };
        let mut judged =
            Judged { newest, admission: None, labelled_ms: None, newest_taken_ms: None };
        for sample in row.series.samples(self.body) {
            let point = Point {
                timestamp_ms: sample.timestamp_ms,
                value: Value::Float(sample.value.to_bits()),
                start_ms: sample.start_timestamp_ms,
            };
            match self.take_point(row, point, &mut judged, scratch, writer.as_deref_mut())? {
                true => self.tally.samples += 1,
                false => self.tally.samples_failed += 1,
            }
        }
        if self.takes_histograms {
            for raw in row.series.histograms(self.body) {
                let value = Value::Histogram(raw.bytes());
                let point = Point { timestamp_ms: raw.timestamp_ms(), value, start_ms: 0 };
                match self.take_point(row, point, &mut judged, scratch, writer.as_deref_mut())? {
                    true => self.tally.histograms += 1,
                    false => self.tally.histograms_failed += 1,
                }
            }
        }
        if let Some(newest_ms) = judged.newest_taken_ms {
            scratch.learnt.push((row.identity, newest_ms));
        }
        let exists = known || matches!(judged.admission, Some(Ok(_)));
        self.take_exemplars(row, exists, writer)?;
        Ok(judged.admission.and_then(Result::err))
    }

    /// Labels out of order fail the whole push, as in Cortex: a distributor never sends them.
    pub(super) fn check_order(&self, row: &Row) -> Result<(), PushError> {
        if row.series.names_in_order(self.body) {
            return Ok(());
        }
        self.tenant.counters.out_of_order_labels.add(1);
        let labels = row.series.labels_text(self.body);
        Err(self.whole(&format!("out-of-order label set found when push: {labels}")))
    }

    /// Takes one point, or counts and words why not.
    fn take_point(
        &mut self,
        row: &Row,
        point: Point<'_>,
        judged: &mut Judged,
        scratch: &mut Scratch,
        writer: Option<&mut Writer<'_>>,
    ) -> Result<bool, PushError> {
        if let Err(error) = self.judge_point(point, judged) {
            self.tenant.counters.discard_samples(discard_reason(&error), 1);
            let (body, bounds) = (self.body, self.bounds);
            let series = row.series;
            self.fail(|| error.text(point.timestamp_ms, &bounds, &series.labels_text(body)));
            return Ok(false);
        }
        if !self.is_valid(row, point)? {
            return Ok(false);
        }
        let admission = match judged.admission {
            Some(admission) => admission,
            None => *judged.admission.insert(self.admit_series(row, scratch)?),
        };
        if let Err(refusal) = admission {
            self.refuse(row, refusal, scratch)?;
            return Ok(false);
        }
        self.tally.include(point.timestamp_ms, point.timestamp_ms);
        judged.newest_taken_ms = judged.newest_taken_ms.max(Some(point.timestamp_ms));
        if let Some(writer) = writer {
            self.write(row, point, judged, scratch, writer)?;
        }
        Ok(true)
    }

    fn judge_point(&mut self, point: Point<'_>, judged: &Judged) -> Result<(), SampleError> {
        if self.ingester.store.is_none() {
            return Ok(());
        }
        if !self.reaches(point.timestamp_ms) {
            return Err(SampleError::OutOfBounds);
        }
        let newest = judged.newest.as_ref().map(|sample| Newest {
            timestamp_ms: sample.t_ms,
            value: match &sample.value {
                StoredValue::Float { bits, .. } => Value::Float(*bits),
                StoredValue::Histogram(raw) => Value::Histogram(raw),
            },
        });
        self.bounds.judge(point.timestamp_ms, point.value, newest).map(drop)
    }

    /// A histogram that contradicts itself never makes a series.
    fn is_valid(&mut self, row: &Row, point: Point<'_>) -> Result<bool, PushError> {
        let Value::Histogram(raw) = point.value else {
            return Ok(true);
        };
        let histogram = crate::wire::histogram::Histogram::decode(raw)?;
        let Err(error) = histogram.validate() else {
            return Ok(true);
        };
        if self.ingester.role.has_upstream {
            return Ok(false); // the upstream will say so
        }
        let (body, series) = (self.body, row.series);
        self.fail(|| texts::ingest(&error, point.timestamp_ms, &series.labels_text(body)));
        Ok(false)
    }

    /// Creates the series, or gives a known one its late touch.
    fn admit_series(
        &mut self,
        row: &Row,
        scratch: &mut Scratch,
    ) -> Result<Result<Admitted, Refusal>, PushError> {
        let labels = row.series.labels(self.body, &scratch.arena);
        let metric = texts::check_labels(labels).map_err(|text| self.whole(text))?;
        let sets = &self.standing.limits.limits_per_label_set;
        matching_sets(sets, row, self.body, &scratch.arena, &mut scratch.label_sets);
        let new = NewSeries {
            ring_key: ring_key(self.tenant.id.as_str(), labels),
            metric,
            metric_exempt: self.ingester.ignored_metrics.contains(metric),
            label_sets: &scratch.label_sets,
            label_sets_generation: self.standing.label_sets_generation,
        };
        let (first_ms, newest_ms) = row.series.time_range_ms().unwrap_or_default();
        // With a store the newest time is learnt once it is stored: known earlier, it would make
        // the next push trust in labels of a block that this one may yet fail to write.
        let newest_ms = if self.ingester.store.is_some() { i64::MIN } else { newest_ms };
        let kind = self.kind(&row.series);
        let item = Item { identity: row.identity, first_ms, newest_ms, kind };
        let admission = self.tenant.series.create(&item, &new, &self.rules, self.tick());
        if matches!(admission, Ok(Admitted::Created { .. } | Admitted::Held)) {
            scratch.held.push(row.identity);
        }
        Ok(admission)
    }

    /// Counts and words a refusal; the instance's own limit ends the push.
    fn refuse(&mut self, row: &Row, refusal: Refusal, scratch: &Scratch) -> Result<(), PushError> {
        let reason = match refusal {
            Refusal::Instance(_) => {
                self.ingester.counters.refused_series.add(1);
                return Err(self.whole(texts::MAX_SERIES));
            }
            Refusal::Series(_) => DiscardReason::PerUserSeriesLimit,
            Refusal::NativeHistogramSeries(_) => DiscardReason::PerUserNativeHistogramSeriesLimit,
            Refusal::Metric(_) => DiscardReason::PerMetricSeriesLimit,
            Refusal::LabelSet { .. } => DiscardReason::PerLabelsetSeriesLimit,
        };
        self.tenant.counters.discard_samples(reason, 1);
        let standing = self.standing;
        if let Refusal::LabelSet { index, .. } = refusal
            && let Some(set) = standing.limits.limits_per_label_set.get(index)
        {
            self.tenant.counters.discard_in_label_set(&set.id);
        }
        let admin_message = self.ingester.config.admin_limit_message.as_str();
        let series = row.series.labels_text(self.body);
        let metric = row.series.labels(self.body, &scratch.arena).metric_name();
        let metric = String::from_utf8_lossy(metric);
        self.fail(|| texts::series_refusal(refusal, standing, admin_message, &metric, &series));
        Ok(())
    }

    fn write(
        &mut self,
        row: &Row,
        point: Point<'_>,
        judged: &mut Judged,
        scratch: &Scratch,
        writer: &mut Writer<'_>,
    ) -> Result<(), PushError> {
        let labels = row.series.labels(self.body, &scratch.arena);
        let labelled =
            judged.labelled_ms.is_some_and(|ms| Store::is_same_block(ms, point.timestamp_ms));
        if !labelled {
            writer.series(row.identity, labels, point.timestamp_ms)?;
        }
        if judged.labelled_ms.is_none() {
            // Of a known series this only matters when its kind changed; then it must be told.
            let kind = match self.kind(&row.series) {
                Kind::Float => SeriesKind::Float,
                Kind::NativeHistogram => SeriesKind::Histogram,
            };
            writer.head(row.identity, ring_key(self.tenant.id.as_str(), labels), kind);
        }
        judged.labelled_ms = Some(point.timestamp_ms);
        match point.value {
            Value::Float(bits) => {
                writer.sample(row.identity, point.timestamp_ms, bits, point.start_ms)?;
            }
            Value::Histogram(raw) => writer.histogram(row.identity, point.timestamp_ms, raw)?,
        }
        Ok(())
    }

    /// Exemplars of a series that exists are kept; of one that does not they are an error.
    pub(super) fn take_exemplars(
        &mut self,
        row: &Row,
        exists: bool,
        mut writer: Option<&mut Writer<'_>>,
    ) -> Result<(), PushError> {
        if row.series.exemplar_count == 0 || !self.ingester.keeps_exemplars(self.standing) {
            return Ok(());
        }
        for exemplar in row.series.exemplars(self.body) {
            let chars = exemplar
                .labels()
                .fold(0, |chars, (name, value)| chars_in(name) + chars_in(value) + chars);
            let error = match exists {
                false => Some(texts::EXEMPLAR_WITHOUT_SERIES),
                true if chars > EXEMPLAR_CHARS_MAX => Some(texts::EXEMPLAR_TOO_LONG),
                true => None,
            };
            if let Some(error) = error {
                let (body, series) = (self.body, row.series);
                self.tally.exemplars_failed +=
                    if exists { 1 } else { u64::from(series.exemplar_count) };
                self.fail(|| {
                    let labels = LabelSetText(exemplar.labels());
                    let series = series.labels_text(body);
                    texts::exemplar(error, exemplar.timestamp_ms, &series, &labels)
                });
                if !exists {
                    return Ok(());
                }
                continue;
            }
            self.tally.exemplars += 1;
            if let Some(writer) = writer.as_deref_mut()
                && self.reaches(exemplar.timestamp_ms)
            {
                writer.exemplar(row.identity, exemplar.timestamp_ms, exemplar.bytes)?;
            }
        }
        Ok(())
    }

    /// An error that ends the push, in the name of its tenant.
    fn whole(&self, text: &str) -> PushError {
        PushError::Whole { text: texts::of_tenant(&self.tenant.id, &text) }
    }
}

/// The newest sample that the store holds of a series.
fn newest_stored(
    store: &Store,
    push: &Push<'_>,
    row: &Row,
) -> Result<Option<StoredSample>, PushError> {
    Ok(store.newest_sample(&push.tenant.id, row.identity)?)
}

/// Which label sets a series falls under. Only new series need it.
fn matching_sets(sets: &LabelSets, row: &Row, body: &[u8], arena: &[u8], matched: &mut Vec<u16>) {
    matched.clear();
    if !sets.is_empty() {
        let labels = row.series.labels(body, arena);
        sets.matches(|name| labels.get(name).unwrap_or_default(), matched);
    }
}

fn discard_reason(error: &SampleError) -> DiscardReason {
    match error {
        SampleError::OutOfBounds => DiscardReason::OutOfBounds,
        SampleError::OutOfOrder => DiscardReason::OutOfOrder,
        SampleError::TooOld => DiscardReason::TooOld,
        SampleError::TooNew => DiscardReason::TooFarInFuture,
        _ => DiscardReason::NewValueForTimestamp,
    }
}

/// Characters of a text as Go counts them: an invalid byte is one.
fn chars_in(bytes: &[u8]) -> usize {
    bytes.utf8_chunks().map(|chunk| chunk.valid().chars().count() + chunk.invalid().len()).sum()
}
