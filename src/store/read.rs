//! Reading series back: by matchers and a range of time, bounded in everything.
//!
//! A selection first collects the labels that match, from the rows of the metrics that can match or
//! else of the whole tenant, and merges them over the blocks by identity. Then it yields series by
//! series in the order of labels, with one series' samples in memory at a time. All of it reads one
//! snapshot, so a push is seen whole or not at all.

use std::collections::BTreeSet;
use std::sync::Arc;

use fjall::{Iter, Keyspace, Readable, Snapshot};

use crate::labels::{Identity, Labels};
use crate::store::blocks::Block;
use crate::store::layout::{self, RowKey};
use crate::store::matchers::{self, Matcher};
use crate::store::tenants::Tenant;
use crate::store::{Config, Metadata, Sample, Store, StoreError, StoredValue};
use crate::tenant::TenantId;

/// A range of time, both ends within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub start_ms: i64,
    pub end_ms: i64,
}

impl TimeRange {
    pub const ALL: Self = Self { start_ms: i64::MIN, end_ms: i64::MAX };
}

/// A series' labels, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLabels(Box<[u8]>);

impl StoredLabels {
    pub fn as_labels(&self) -> Labels<'_> {
        Labels::from_canonical(&self.0)
    }
}

/// A series with its samples in the order of time; there is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSamples {
    pub labels: StoredLabels,
    pub samples: Vec<Sample>,
}

/// An exemplar as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exemplar {
    pub t_ms: i64,
    pub raw: Box<[u8]>,
}

/// A series with its exemplars in the order of time; there is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesExemplars {
    pub labels: StoredLabels,
    pub exemplars: Vec<Exemplar>,
}

/// Metadata as it was received.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnedMetadata {
    pub metric: Vec<u8>,
    pub kind: i32,
    pub help: Vec<u8>,
    pub unit: Vec<u8>,
}

impl Store {
    /// The series that match and their samples in the range, in the order of labels.
    pub fn select(
        &self,
        tenant: &TenantId,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Selection, StoreError> {
        let query = Query::new(self, tenant, range);
        let mut budget = Budget::new(&self.config);
        let matched = query.collect(matchers, &mut budget)?;
        Ok(Selection { query, budget, matched: matched.into_iter() })
    }

    /// Labels of the series that match and may have samples in the range (to within a block), in
    /// the order of labels.
    pub fn series(
        &self,
        tenant: &TenantId,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<StoredLabels>, StoreError> {
        let query = Query::new(self, tenant, range);
        let matched = query.collect(matchers, &mut Budget::new(&self.config))?;
        Ok(matched.into_iter().map(|series| series.labels).collect())
    }

    /// Names of the labels of those series, sorted.
    pub fn label_names(
        &self,
        tenant: &TenantId,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.distinct(tenant, matchers, range, |labels, add| {
            labels.iter().try_for_each(|(name, _)| add(name))
        })
    }

    /// Values of a label of those series, sorted.
    pub fn label_values(
        &self,
        tenant: &TenantId,
        name: &[u8],
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.distinct(tenant, matchers, range, |labels, add| labels.get(name).map_or(Ok(()), add))
    }

    /// The tenant's metadata, or that of one metric: each distinct one once, sorted.
    pub fn metadata(
        &self,
        tenant: &TenantId,
        metric: Option<&[u8]>,
    ) -> Result<Vec<OwnedMetadata>, StoreError> {
        let query = Query::new(self, tenant, TimeRange::ALL);
        let mut budget = Budget::new(&self.config);
        let mut found = BTreeSet::new();
        let Some(tenant) = &query.tenant else { return Ok(Vec::new()) };
        let prefix = layout::metadata_prefix(tenant.number, metric);
        for extras in query.blocks.iter().filter_map(|block| block.extras_if_any()) {
            for row in query.snapshot.prefix(extras, &prefix) {
                let value = row.value().map_err(StoreError::read)?;
                let Metadata { metric: name, kind, help, unit } = layout::parse_metadata(&value)?;
                // A key holds only the start of an overlong name.
                if metric.is_none_or(|metric| metric == name) {
                    let added = found.insert(OwnedMetadata {
                        metric: name.to_vec(),
                        kind,
                        help: help.to_vec(),
                        unit: unit.to_vec(),
                    });
                    if added {
                        budget.spend_series(value.len())?;
                    }
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// The series that match and have exemplars in the range, in the order of labels.
    pub fn exemplars(
        &self,
        tenant: &TenantId,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<SeriesExemplars>, StoreError> {
        let query = Query::new(self, tenant, range);
        let mut budget = Budget::new(&self.config);
        let mut found = Vec::new();
        for series in query.collect(matchers, &mut budget)? {
            let mut exemplars = Vec::new();
            // An exemplar may lie in a block in which its series has no sample.
            for block in &query.blocks {
                let (Some(extras), Some((lower, upper))) =
                    (block.extras_if_any(), block.number.offsets(range.start_ms, range.end_ms))
                else {
                    continue;
                };
                let bound = |offset| {
                    let mut key = vec![layout::TAG_EXEMPLAR];
                    key.extend_from_slice(&layout::sample_key(series.row, offset));
                    key
                };
                // The end is open and one further, as hashes follow the offset.
                for row in query.snapshot.range(extras, bound(lower)..bound(upper + 1)) {
                    let (key, raw) = row.into_inner().map_err(StoreError::read)?;
                    budget.spend_sample(raw.len())?;
                    let t_ms = block.number.time_ms(layout::sample_offset(&key[1..])?);
                    exemplars.push(Exemplar { t_ms, raw: (&*raw).into() });
                }
            }
            if !exemplars.is_empty() {
                found.push(SeriesExemplars { labels: series.labels, exemplars });
            }
        }
        Ok(found)
    }

    /// Distinct byte strings that `pick` adds for the series that match.
    fn distinct(
        &self,
        tenant: &TenantId,
        matchers: &[Matcher],
        range: TimeRange,
        pick: impl Fn(
            Labels<'_>,
            &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
        ) -> Result<(), StoreError>,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let query = Query::new(self, tenant, range);
        let mut budget = Budget::new(&self.config);
        let mut found: BTreeSet<Vec<u8>> = BTreeSet::new();
        for block in &query.blocks {
            query.scan(block, matchers, |_, labels| {
                pick(labels, &mut |text| {
                    if !found.contains(text) {
                        budget.spend_series(text.len())?;
                        found.insert(text.to_vec());
                    }
                    Ok(())
                })
            })?;
        }
        Ok(found.into_iter().collect())
    }
}

/// Series by series. See [`Store::select`].
pub struct Selection {
    query: Query,
    budget: Budget,
    matched: std::vec::IntoIter<Matched>,
}

impl Iterator for Selection {
    type Item = Result<SeriesSamples, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let series = self.matched.next()?;
            match self.query.samples(&series, &mut self.budget) {
                Ok(samples) if samples.is_empty() => {}
                Ok(samples) => return Some(Ok(SeriesSamples { labels: series.labels, samples })),
                Err(error) => {
                    // After an error there is nothing more to say.
                    self.matched = Vec::new().into_iter();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// A series that matches, and in which of the query's blocks it has labels.
struct Matched {
    labels: StoredLabels,
    row: RowKey,
    blocks: Vec<u32>,
}

/// What one query looks at.
struct Query {
    snapshot: Snapshot,
    blocks: Vec<Arc<Block>>,
    range: TimeRange,
    /// None if the tenant never wrote.
    tenant: Option<Arc<Tenant>>,
}

impl Query {
    fn new(store: &Store, tenant: &TenantId, range: TimeRange) -> Self {
        // Blocks first: one that is made later has nothing that the snapshot could show.
        let blocks = store.blocks.in_range(range.start_ms, range.end_ms);
        let tenant = store.tenants.get(tenant);
        Self { snapshot: store.db.snapshot(), blocks, range, tenant }
    }

    /// Calls `visit` for every series of the block that matches.
    fn scan(
        &self,
        block: &Block,
        matchers: &[Matcher],
        mut visit: impl FnMut(Identity, Labels<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(tenant) = &self.tenant else { return Ok(()) };
        let mut scan_rows = |rows: Iter| -> Result<(), StoreError> {
            for row in rows {
                let (key, labels) = row.into_inner().map_err(StoreError::read)?;
                let labels = Labels::from_canonical(&labels);
                if matchers::all_match(matchers, labels) {
                    visit(layout::series_identity(&key)?, labels)?;
                }
            }
            Ok(())
        };
        let rows = |keyspace: &Keyspace, prefix: &[u8]| self.snapshot.prefix(keyspace, prefix);
        let Some(metrics) = matchers::metrics(matchers) else {
            return scan_rows(rows(&block.series, &tenant.number.0.to_be_bytes()));
        };
        for metric in metrics {
            let mut prefix = Vec::new();
            layout::push_metric(&mut prefix, tenant.number, metric);
            scan_rows(rows(&block.series, &prefix))?;
        }
        Ok(())
    }

    /// All series that match, merged over the blocks and sorted by labels.
    fn collect(
        &self,
        matchers: &[Matcher],
        budget: &mut Budget,
    ) -> Result<Vec<Matched>, StoreError> {
        let Some(tenant) = &self.tenant else { return Ok(Vec::new()) };
        let mut by_identity: hashbrown::HashMap<Identity, Matched> = hashbrown::HashMap::new();
        for (index, block) in self.blocks.iter().enumerate() {
            self.scan(block, matchers, |identity, labels| {
                if let Some(known) = by_identity.get_mut(&identity) {
                    known.blocks.push(index as u32);
                    return Ok(());
                }
                budget.spend_series(labels.as_bytes().len())?;
                let labels = StoredLabels(labels.as_bytes().into());
                let row = tenant.row_key(identity);
                by_identity.insert(identity, Matched { labels, row, blocks: vec![index as u32] });
                Ok(())
            })?;
        }
        let mut matched: Vec<Matched> = by_identity.into_values().collect();
        matched
            .sort_unstable_by(|a, b| a.labels.as_labels().iter().cmp(b.labels.as_labels().iter()));
        Ok(matched)
    }

    fn samples(&self, series: &Matched, budget: &mut Budget) -> Result<Vec<Sample>, StoreError> {
        let mut samples = Vec::new();
        for &index in &series.blocks {
            let block = &self.blocks[index as usize];
            let (start_ms, end_ms) = (self.range.start_ms, self.range.end_ms);
            let Some((lower, upper)) = block.number.offsets(start_ms, end_ms) else { continue };
            let bounds =
                layout::sample_key(series.row, lower)..=layout::sample_key(series.row, upper);
            for row in self.snapshot.range(&block.samples, bounds) {
                let (key, value) = row.into_inner().map_err(StoreError::read)?;
                budget.spend_sample(value.len())?;
                let t_ms = block.number.time_ms(layout::sample_offset(&key)?);
                let value: StoredValue = layout::parse_value(&value)?;
                samples.push(Sample { t_ms, value });
            }
        }
        Ok(samples)
    }
}

/// What a query may still read.
struct Budget {
    series: u64,
    samples: u64,
    bytes: u64,
    max_series: u64,
    max_samples: u64,
    max_bytes: u64,
}

impl Budget {
    fn new(config: &Config) -> Self {
        Self {
            series: 0,
            samples: 0,
            bytes: 0,
            max_series: config.max_series_per_query,
            max_samples: config.max_samples_per_query,
            max_bytes: config.max_bytes_per_query,
        }
    }

    fn spend_series(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.series += 1;
        if self.series > self.max_series {
            return Err(StoreError::TooManySeries { max: self.max_series });
        }
        self.spend_bytes(bytes)
    }

    fn spend_sample(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.samples += 1;
        if self.samples > self.max_samples {
            return Err(StoreError::TooManySamples { max: self.max_samples });
        }
        self.spend_bytes(bytes)
    }

    fn spend_bytes(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.bytes += bytes as u64;
        if self.bytes > self.max_bytes {
            return Err(StoreError::TooManyBytes { max: self.max_bytes });
        }
        Ok(())
    }
}
