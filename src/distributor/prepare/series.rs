//! One series on its way: as it is, or with its labels written anew.

use crate::keys::RingKey;
use crate::labels::{Labels, LabelsBuf, METRIC_NAME, Placement, fnv1_32, ring_key_of_metric};
use crate::wire::rewrite::push_series;
use crate::wire::write_request::{RequestField, Series, skips_label_name_validation};

use super::observed::{HISTOGRAM_BUCKETS_BOUNDS, LABELS_BOUNDS};
use super::{HaPair, HaSeries, Item, ItemKind, Preparation, Refusal, Replicas, Verdict, count};
use crate::distributor::validation::{
    Kind, Violation, check_labels, check_metric_name, check_values, fit,
};

/// Most labels that are read of a series that may not have so many anyway: enough for its text.
/// A series may bring as many as fit in a body, and sorting them would cost a multiple of it.
const LABELS_READ_MIN: usize = 10_000;

const TOO_MANY_CLUSTERS: &str = "too_many_ha_clusters";
const ALL_LABELS_DROPPED: &str = "user_label_removal_configuration";

/// Whether the replica's label goes from a series.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplicaLabel {
    Stays,
    Goes,
}

/// Labels as they are after those that nobody wants have gone.
struct ReadLabels<'a> {
    /// Value of the first label called `__name__`, even an empty one.
    metric: Option<&'a [u8]>,
    /// Number of labels with a value; more than were read, if there are too many.
    count: usize,
    /// Some were left out.
    is_changed: bool,
}

impl<'a> Preparation<'a, '_> {
    #[inline]
    pub(super) fn take_series(
        &mut self,
        field: &RequestField<'a>,
        series: &Series,
    ) -> Result<(), Refusal> {
        let labels = series.labels(self.body, &[]);
        let is_in_place = series.labels_are_in_place();
        if is_in_place && labels.is_empty() {
            return Err(Refusal::EmptyLabels);
        }
        let replica_label = match self.treatment.replicas {
            Replicas::Kept => ReplicaLabel::Stays,
            Replicas::Removed { .. } => ReplicaLabel::Goes,
            Replicas::Judged { .. } => match self.judge_replica(series) {
                Some(replica_label) => replica_label,
                None => {
                    self.output.leave_out(field);
                    return Ok(());
                }
            },
        };
        if let Some((_, newest_ms)) = series.time_range_ms() {
            self.observed.newest_ms = self.observed.newest_ms.max(Some(newest_ms));
        }
        if series.has_histogram() {
            let custom = series.histograms(self.body).filter(|h| h.has_custom_buckets()).count();
            self.observed.received_custom_buckets += custom as u64;
        }
        if is_in_place
            && !self.drops_one_of(labels, replica_label)
            && let Some(key) = self.key_if_fit(labels)
        {
            self.take_values(field, series, labels.iter(), Placed { key, labels: None });
            return Ok(());
        }
        self.take_otherwise(field, series, replica_label)
    }

    /// The ring key of labels that may stay as they are, or its texts in `work.keys`.
    #[inline]
    fn key_if_fit(&mut self, labels: Labels<'_>) -> Option<Key> {
        let (key, fit) = match self.treatment.placement {
            Placement::ByAllLabels if !self.treatment.is_placed => {
                (Key::Known(self.tenant_key), fit(labels, &self.rules, |_, _| {})?)
            }
            Placement::ByAllLabels => {
                let keys = &mut self.work.keys;
                keys.begin();
                let fit = fit(labels, &self.rules, |name, value| {
                    keys.push(name);
                    keys.push(value);
                })?;
                (Key::Waits, fit)
            }
            Placement::ByMetric => {
                let metric = labels.get(METRIC_NAME)?;
                let fit = fit(labels, &self.rules, |_, _| {})?;
                (Key::Known(RingKey(fnv1_32(self.tenant_key.0, metric))), fit)
            }
        };
        self.observed.labels.observe(fit.count, &LABELS_BOUNDS);
        self.observed.label_bytes += fit.bytes;
        self.observed.label_bytes_series += 1;
        Some(key)
    }

    /// Asks whose series it is; `None` leaves it out.
    fn judge_replica(&mut self, series: &Series) -> Option<ReplicaLabel> {
        let Replicas::Judged { labels, judge } = self.treatment.replicas else {
            return Some(ReplicaLabel::Stays);
        };
        let pair = HaPair::of(series.raw_labels(self.body), labels);
        let samples = samples_of(series);
        if !pair.is_whole() {
            self.observed.samples_without_replica += samples;
            return Some(ReplicaLabel::Stays);
        }
        // A value that is too long stands for nobody; with its label it would not be refused.
        if pair.replica.len() as u64 > self.treatment.limits.max_label_value_length {
            return Some(ReplicaLabel::Goes);
        }
        match judge(HaSeries { pair, samples }) {
            Verdict::Accepted => Some(ReplicaLabel::Goes),
            Verdict::TooManyClusters => {
                count(&mut self.discarded.samples, TOO_MANY_CLUSTERS, samples);
                None
            }
            Verdict::Deduplicated | Verdict::Unknown => None,
        }
    }

    /// Names of labels that are taken off: the replica's, then the tenant's.
    fn unwanted(&self, replica_label: ReplicaLabel) -> impl Iterator<Item = &[u8]> + Clone {
        let replica = match self.treatment.replicas {
            _ if replica_label == ReplicaLabel::Stays => None,
            Replicas::Kept => None,
            Replicas::Removed { replica_label } => Some(replica_label),
            Replicas::Judged { labels, .. } => Some(labels.replica),
        };
        let dropped = self.treatment.limits.drop_labels.iter().map(String::as_str);
        replica.into_iter().chain(dropped).map(str::as_bytes)
    }

    #[inline]
    fn drops_one_of(&self, labels: Labels<'_>, replica_label: ReplicaLabel) -> bool {
        if replica_label == ReplicaLabel::Stays && self.treatment.limits.drop_labels.is_empty() {
            return false;
        }
        let unwanted = self.unwanted(replica_label);
        !labels.all(|name, _| unwanted.clone().all(|unwanted| unwanted != name))
    }

    /// A series whose labels are wrong, in another order, or in an unusual encoding.
    #[inline(never)]
    fn take_otherwise(
        &mut self,
        field: &RequestField<'a>,
        series: &Series,
        replica_label: ReplicaLabel,
    ) -> Result<(), Refusal> {
        let mut pairs = std::mem::take(&mut self.pairs);
        let read = self.read_labels(series, replica_label, &mut pairs);
        let taken = self.take_pairs(field, series, &read, &mut pairs);
        pairs.clear();
        self.pairs = pairs;
        taken
    }

    fn take_pairs(
        &mut self,
        field: &RequestField<'a>,
        series: &Series,
        read: &ReadLabels<'a>,
        pairs: &mut [(&'a [u8], &'a [u8])],
    ) -> Result<(), Refusal> {
        if let Err(violation) = check_metric_name(read.metric, &self.rules) {
            self.failure.get_or_insert_with(|| violation.text(std::iter::empty()));
            self.leave_out_all(field, series, violation.reason());
            return Ok(());
        }
        if read.count == 0 {
            self.leave_out_all(field, series, ALL_LABELS_DROPPED);
            return Ok(());
        }
        let in_order = pairs.is_sorted_by(|(before, _), (name, _)| before <= name);
        if !in_order {
            pairs.sort_by_key(|(name, _)| *name);
        }
        let key = Key::Known(self.key_of(pairs).ok_or(Refusal::MetricNameMissing)?);
        self.observed.labels.observe(read.count as u64, &LABELS_BOUNDS);
        let labels = pairs.iter().copied();
        let limit = self.treatment.limits.max_label_names_per_series;
        self.learn_if_names_are_checked();
        let checked = match read.count > pairs.len() {
            true => Err(Violation::TooManyLabels { count: read.count, limit }),
            false => check_labels(labels.clone(), &self.rules),
        };
        match checked {
            Ok(bytes) => {
                self.observed.label_bytes += bytes;
                self.observed.label_bytes_series += 1;
            }
            Err(violation) => {
                // Too large in sum is told after all labels were found sound.
                if let Violation::LabelsTooLarge { bytes, .. } = violation {
                    self.observed.label_bytes += bytes;
                    self.observed.label_bytes_series += 1;
                }
                self.leave_out(field, &violation, labels);
                return Ok(());
            }
        }
        if in_order && !read.is_changed {
            self.take_values(field, series, labels, Placed { key, labels: None });
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.work.labels);
        buffer.clear();
        labels.clone().for_each(|(name, value)| buffer.push(name, value));
        self.take_values(field, series, labels, Placed { key, labels: Some(&buffer) });
        self.work.labels = buffer;
        Ok(())
    }

    fn learn_if_names_are_checked(&mut self) {
        if !self.knows_if_checked {
            self.knows_if_checked = true;
            self.rules.names_are_checked = skips_label_name_validation(self.body);
        }
    }

    fn read_labels(
        &mut self,
        series: &Series,
        replica_label: ReplicaLabel,
        pairs: &mut Vec<(&'a [u8], &'a [u8])>,
    ) -> ReadLabels<'a> {
        let allowed = usize::try_from(self.treatment.limits.max_label_names_per_series);
        let read_max = allowed.unwrap_or(usize::MAX).max(LABELS_READ_MIN);
        // Each entry takes the first label of its name and no other.
        let mut dropped = std::mem::take(&mut self.work.dropped);
        dropped.clear();
        dropped.extend(self.unwanted(replica_label).map(|_| false));
        let mut read = ReadLabels { metric: None, count: 0, is_changed: false };
        for (name, value) in series.raw_labels(self.body) {
            let unwanted = self.unwanted(replica_label).zip(&mut dropped);
            let mut entries =
                unwanted.filter(|(unwanted, is_used)| *unwanted == name && !**is_used);
            if let Some((_, is_used)) = entries.next() {
                *is_used = true;
                read.is_changed = true;
                continue;
            }
            if name == METRIC_NAME {
                read.metric.get_or_insert(value);
            }
            if value.is_empty() {
                read.is_changed = true;
                continue;
            }
            read.count += 1;
            if pairs.len() < read_max {
                pairs.push((name, value));
            }
        }
        self.work.dropped = dropped;
        read
    }

    fn key_of(&self, pairs: &[(&[u8], &[u8])]) -> Option<RingKey> {
        match self.treatment.placement {
            Placement::ByAllLabels if !self.treatment.is_placed => Some(self.tenant_key),
            Placement::ByAllLabels => {
                let hash = |key, (name, value): &(&[u8], &[u8])| fnv1_32(fnv1_32(key, name), value);
                Some(RingKey(pairs.iter().fold(self.tenant_key.0, hash)))
            }
            Placement::ByMetric => {
                let metric = pairs.iter().find(|(name, _)| *name == METRIC_NAME);
                metric.map(|(_, metric)| ring_key_of_metric(self.treatment.tenant, metric))
            }
        }
    }

    /// Takes a series whose labels are settled, unless something that it carries is wrong.
    #[inline]
    fn take_values<'l>(
        &mut self,
        field: &RequestField<'a>,
        series: &Series,
        labels: impl Iterator<Item = (&'l [u8], &'l [u8])> + Clone,
        placed: Placed<'_>,
    ) {
        if let Err(violation) = self.check_values(series) {
            self.leave_out(field, &violation, labels);
            return;
        }
        self.observed.kept_custom_buckets += self.work.histograms.custom;
        let histograms = &self.work.histograms.reduced;
        let (start, end) = if placed.labels.is_none() && histograms.is_empty() {
            self.output.keep(field)
        } else {
            let message = series.message(self.body);
            let labels = placed.labels.map(LabelsBuf::as_labels);
            self.output.change(field, |out| push_series(out, message, labels, histograms))
        };
        let kind = ItemKind::Series {
            samples: series.sample_count,
            histograms: series.histogram_count,
            exemplars: series.exemplar_count,
        };
        match placed.key {
            Key::Known(key) => self.items.push(Item { key, start, end, kind }),
            Key::Waits => {
                self.items.push(Item { key: self.tenant_key, start, end, kind });
                self.work.keys.wait(self.tenant_key, &mut self.items);
            }
        }
        self.counts.samples += u64::from(series.sample_count);
        self.counts.histograms += u64::from(series.histogram_count);
        self.counts.exemplars += u64::from(series.exemplar_count);
    }

    fn check_values(&mut self, series: &Series) -> Result<(), Violation<'a>> {
        let rules = (self.treatment.limits, self.times);
        let buckets = &mut self.observed.histogram_buckets;
        let checked = check_values(series, self.body, rules, &mut self.work.histograms, |count| {
            buckets.observe(count, &HISTOGRAM_BUCKETS_BOUNDS);
        });
        self.discarded.reduced_resolution += self.work.histograms.reduced.len() as u64;
        checked
    }

    /// Leaves a series out for one fault, which counts once.
    #[inline(never)]
    fn leave_out<'l>(
        &mut self,
        field: &RequestField<'_>,
        violation: &Violation<'_>,
        labels: impl Iterator<Item = (&'l [u8], &'l [u8])> + Clone,
    ) {
        self.failure.get_or_insert_with(|| violation.text(labels));
        let counts = match violation.kind() {
            Kind::Sample => &mut self.discarded.samples,
            Kind::Exemplar => &mut self.discarded.exemplars,
        };
        count(counts, violation.reason(), 1);
        self.output.leave_out(field);
    }

    /// Leaves a series out for a reason that counts all that it carries.
    fn leave_out_all(&mut self, field: &RequestField<'_>, series: &Series, reason: &'static str) {
        count(&mut self.discarded.samples, reason, samples_of(series));
        count(&mut self.discarded.exemplars, reason, series.exemplar_count.into());
        self.output.leave_out(field);
    }
}

/// Where a series goes, and its labels if they are to be written anew.
#[derive(Clone, Copy)]
struct Placed<'l> {
    key: Key,
    labels: Option<&'l LabelsBuf>,
}

#[derive(Clone, Copy)]
enum Key {
    Known(RingKey),
    /// Its texts are the last of those whose keys are hashed together.
    Waits,
}

fn samples_of(series: &Series) -> u64 {
    u64::from(series.sample_count) + u64::from(series.histogram_count)
}
