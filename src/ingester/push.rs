//! One push, from received bytes to a verdict on every series.
//!
//! Nearly all series of a push are known, in order and in bounds; one touch settles them and
//! their samples are written as they came. Of the others `judge.rs` looks at each sample.
//!
//! Invariant: whatever ends a push early leaves no series that it created.

use std::ops::Range;

use crate::clock::Now;
use crate::ingester::acceptance::Bounds;
use crate::ingester::metadata::Noted;
use crate::ingester::standing::Standing;
use crate::ingester::tenants::Tenant;
use crate::ingester::{Ingester, PushError, Pushed, texts};
use crate::labels::{Identity, IdentityHasher};
use crate::series::{Batch, Item, Kind, Order, Rules, Tick, Verdict};
use crate::store::{BLOCK_MS, Store, Writer};
use crate::tenant::TenantId;
use crate::wire::DecodeError;
use crate::wire::write_request::{Metadata, Series, Summary, WriteRequest};

/// Series that scratch keeps room for between requests; a larger request's memory is given back.
const SCRATCH_SERIES_KEPT: usize = 1 << 15;
/// Bytes that it keeps for labels which had to be rewritten: those of as many small series.
const SCRATCH_ARENA_BYTES_KEPT: usize = 8 << 20;

/// Memory that requests on one thread use in turn.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) arena: Vec<u8>,
    pub(super) rows: Vec<Row>,
    batch: Batch,
    /// Row of each item of the batch.
    item_rows: Vec<u32>,
    /// Pending series that this push holds.
    pub(super) held: Vec<Identity>,
    /// Newest times of judged series, for the tracker to learn once they are stored.
    pub(super) learnt: Vec<(Identity, i64)>,
    pub(super) label_sets: Vec<u16>,
    /// Rows whose series was refused.
    pub(super) refused: Vec<u32>,
}

/// One series of the request.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) series: Series,
    pub(super) identity: Identity,
    pub(super) state: RowState,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum RowState {
    /// Nothing that could make or touch a series.
    Empty,
    /// Settled by the touch.
    Touched,
    /// Left by the touch, which knows no such series.
    New,
    /// Left by the touch, though it knows the series.
    Known,
    /// Not touched: some of its samples may be refused by themselves.
    Doubtful,
}

/// A request that has been read and found sound.
pub(super) struct Request<'a> {
    pub(super) body: &'a [u8],
    pub(super) summary: Summary,
    pub(super) metadata: Vec<Metadata<'a>>,
}

/// What became of a push's items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) samples: u64,
    pub(super) samples_failed: u64,
    pub(super) histograms: u64,
    pub(super) histograms_failed: u64,
    pub(super) exemplars: u64,
    pub(super) exemplars_failed: u64,
    /// Smallest and largest time of what was stored.
    pub(super) times_ms: Option<(i64, i64)>,
}

/// One push under way.
pub(super) struct Push<'a> {
    pub(super) ingester: &'a Ingester,
    pub(super) tenant: &'a Tenant,
    pub(super) standing: &'a Standing,
    pub(super) body: &'a [u8],
    summary: Summary,
    pub(super) rules: Rules,
    pub(super) now: Now,
    /// Histograms are taken: enabled for the tenant, and within its rate.
    pub(super) takes_histograms: bool,
    pub(super) bounds: Bounds,
    pub(super) tally: Tally,
    first_failure: Option<String>,
    /// Times of the last block that the store was asked about; nearly always that of the next.
    reached_ms: Range<i64>,
}

impl Scratch {
    /// Reads and checks a whole request; a malformed one has changed nothing.
    pub(super) fn read<'a>(
        &mut self,
        body: &'a [u8],
        hasher: &IdentityHasher,
    ) -> Result<Request<'a>, DecodeError> {
        self.rows.clear();
        self.held.clear();
        self.learnt.clear();
        self.refused.clear();
        let mut request = WriteRequest::new(body, &mut self.arena)?;
        while let Some(series) = request.next_series()? {
            // Hashed while the labels are near: a second pass would fetch them once more.
            let identity = hasher.identity(request.labels(&series));
            self.rows.push(Row { series, identity, state: RowState::Empty });
        }
        Ok(Request { body, summary: request.summary, metadata: request.metadata().collect() })
    }

    /// Gives back what an unusually large request has grown.
    pub(super) fn trim(&mut self) {
        if self.rows.capacity() > SCRATCH_SERIES_KEPT
            || self.arena.capacity() > SCRATCH_ARENA_BYTES_KEPT
        {
            *self = Self::default();
        }
    }
}

impl<'a> Push<'a> {
    pub(super) fn new(
        ingester: &'a Ingester,
        tenant: &'a Tenant,
        standing: &'a Standing,
        request: &Request<'a>,
        rules: Rules,
        now: Now,
    ) -> Self {
        Self {
            ingester,
            tenant,
            standing,
            body: request.body,
            summary: request.summary,
            rules,
            now,
            takes_histograms: standing.limits.enable_native_histograms,
            bounds: bounds(ingester.store.is_some(), tenant, standing, &request.summary, now),
            tally: Tally::default(),
            first_failure: None,
            reached_ms: 0..0,
        }
    }

    pub(super) fn tick(&self) -> Tick {
        Tick::new(self.now.steady_s())
    }

    /// Something of the push has been refused already.
    pub(super) fn has_failed(&self) -> bool {
        self.first_failure.is_some()
    }

    /// Notes what the answer has to say, unless something before it failed already.
    pub(super) fn fail(&mut self, text: impl FnOnce() -> String) {
        self.first_failure.get_or_insert_with(text);
    }

    /// Admits, stores and counts every series of the request.
    pub(super) fn run(
        mut self,
        scratch: &mut Scratch,
        metadata: &Noted<'_>,
    ) -> Result<(Tally, Option<String>), PushError> {
        let stored = match &self.ingester.store {
            Some(store) => self.admit_and_store(scratch, store, metadata),
            None => self.admit(scratch),
        };
        match stored {
            Ok(()) => {
                for &(identity, newest_ms) in &scratch.learnt {
                    self.tenant.series.learn_newest(identity, newest_ms);
                }
                self.tenant.series.confirm(&scratch.held);
            }
            Err(_) => self.tenant.series.release(&scratch.held),
        }
        stored.map(|()| (self.tally, self.first_failure))
    }

    /// Admits and counts every series; whoever has to store them is somebody else.
    pub(super) fn admit(&mut self, scratch: &mut Scratch) -> Result<(), PushError> {
        let settled = self.touch_known(scratch);
        if settled && (self.summary.exemplars == 0 || self.ingester.role.has_upstream) {
            self.take_everything(scratch);
            return Ok(());
        }
        self.admit_all(scratch, None)
    }

    /// What was found, once all is admitted.
    pub(super) fn into_outcome(self) -> (Tally, Option<String>) {
        (self.tally, self.first_failure)
    }

    /// One touch of all series that look plain. Whether that settled every series of the push.
    fn touch_known(&mut self, scratch: &mut Scratch) -> bool {
        let Scratch { rows, batch, item_rows, .. } = scratch;
        batch.clear();
        item_rows.clear();
        for (at, row) in rows.iter_mut().enumerate() {
            row.state = self.first_look(&row.series);
            if row.state != RowState::Touched {
                continue;
            }
            if let Some((first_ms, newest_ms)) = row.series.time_range_ms() {
                let kind = self.kind(&row.series);
                batch.push(Item { identity: row.identity, first_ms, newest_ms, kind });
                item_rows.push(at as u32);
            }
        }
        let newest_ms = batch.items().iter().map(|item| item.newest_ms).max();
        let order = match (&self.ingester.store, newest_ms) {
            (Some(_), Some(newest_ms)) => {
                Order::Strict { since_ms: Store::block_start_ms(newest_ms) }
            }
            _ => Order::Any,
        };
        self.tenant.series.touch(batch, order, self.tick());
        for slow in batch.slow() {
            let row = item_rows[slow.item as usize] as usize;
            rows[row].state = match slow.verdict {
                Verdict::New => RowState::New,
                _ => RowState::Known,
            };
        }
        item_rows.len() == rows.len() && batch.slow().is_empty()
    }

    /// Counts a push that the touch has settled whole, of which nothing has to be written.
    fn take_everything(&mut self, scratch: &Scratch) {
        self.tally.samples = self.summary.samples;
        self.tally.histograms = self.summary.histograms;
        let times = scratch.rows.iter().filter_map(|row| row.series.time_range_ms());
        self.tally.times_ms = times.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
    }

    /// What a series is before anybody has looked for it.
    fn first_look(&mut self, series: &Series) -> RowState {
        let histograms = if self.takes_histograms { series.histogram_count } else { 0 };
        if series.sample_count + histograms == 0 {
            return RowState::Empty;
        }
        let Some((oldest_ms, newest_ms)) = series.time_range_ms() else {
            return RowState::Empty;
        };
        let valid = histograms == 0
            || series
                .histograms(self.body)
                .all(|raw| raw.decode().is_ok_and(|decoded| decoded.validate().is_ok()));
        // Left-out histograms have times too, so the range says nothing of the samples alone.
        let whole = histograms == series.histogram_count;
        let in_bounds = !self.bounds.rules_out(oldest_ms)
            && !self.bounds.rules_out(newest_ms)
            && self.reaches(oldest_ms)
            && self.reaches(newest_ms);
        if valid && whole && in_bounds { RowState::Touched } else { RowState::Doubtful }
    }

    /// A series with both samples and histograms counts as what comes last, as it is stored.
    pub(super) fn kind(&self, series: &Series) -> Kind {
        if self.takes_histograms && series.has_histogram() {
            Kind::NativeHistogram
        } else {
            Kind::Float
        }
    }

    /// Whether the store can keep a sample of this time at all.
    pub(super) fn reaches(&mut self, timestamp_ms: i64) -> bool {
        let Some(store) = self.ingester.store.as_deref() else {
            return true;
        };
        if self.reached_ms.contains(&timestamp_ms) {
            return true;
        }
        let reaches = store.accepts(timestamp_ms, self.now.unix_ms);
        if reaches {
            let start_ms = Store::block_start_ms(timestamp_ms);
            self.reached_ms = start_ms..start_ms.saturating_add(BLOCK_MS);
        }
        reaches
    }

    fn admit_and_store(
        &mut self,
        scratch: &mut Scratch,
        store: &Store,
        metadata: &Noted<'_>,
    ) -> Result<(), PushError> {
        let mut writer = store.begin(&self.tenant.id, self.now.unix_ms, scratch.rows.len());
        for entry in metadata.due() {
            writer.metadata(&crate::store::Metadata {
                metric: entry.metric_family_name,
                kind: entry.kind,
                help: entry.help,
                unit: entry.unit,
            })?;
        }
        self.touch_known(scratch);
        self.admit_all(scratch, Some(&mut writer))?;
        writer.commit()?;
        Ok(())
    }

    /// Every series in the order of the request, so that the answer names the first failure.
    fn admit_all(
        &mut self,
        scratch: &mut Scratch,
        mut writer: Option<&mut Writer<'_>>,
    ) -> Result<(), PushError> {
        for at in 0..scratch.rows.len() {
            let writer = writer.as_deref_mut();
            match &scratch.rows[at] {
                row if row.state == RowState::Touched => self.take_whole(row, writer)?,
                row if row.state == RowState::Empty => self.take_nothing(row, writer)?,
                &row => {
                    if self.judge(&row, scratch, writer)?.is_some() {
                        scratch.refused.push(at as u32);
                    }
                }
            }
        }
        Ok(())
    }

    /// A series that the touch settled: all of it is taken.
    fn take_whole(&mut self, row: &Row, writer: Option<&mut Writer<'_>>) -> Result<(), PushError> {
        let series = &row.series;
        self.tally.samples += u64::from(series.sample_count);
        self.tally.histograms += u64::from(series.histogram_count);
        if let Some((oldest_ms, newest_ms)) = series.time_range_ms() {
            self.tally.include(oldest_ms, newest_ms);
        }
        let Some(writer) = writer else {
            return self.take_exemplars(row, true, None);
        };
        for sample in series.samples(self.body) {
            let bits = sample.value.to_bits();
            writer.sample(row.identity, sample.timestamp_ms, bits, sample.start_timestamp_ms)?;
        }
        if series.has_histogram() {
            for raw in series.histograms(self.body) {
                writer.histogram(row.identity, raw.timestamp_ms(), raw.bytes())?;
            }
        }
        self.take_exemplars(row, true, Some(writer))
    }

    /// A series without samples: its labels are checked, and its exemplars may belong to one.
    fn take_nothing(
        &mut self,
        row: &Row,
        writer: Option<&mut Writer<'_>>,
    ) -> Result<(), PushError> {
        self.check_order(row)?;
        let exists = row.series.exemplar_count > 0 && self.tenant.series.contains(row.identity);
        self.take_exemplars(row, exists, writer)
    }
}

impl Tally {
    /// The answer to a push whose accepted parts are stored.
    pub(super) fn answer(
        self,
        tenant: &TenantId,
        failure: Option<String>,
        rate_limited: bool,
    ) -> Result<Pushed, PushError> {
        let stored = Pushed {
            samples: self.samples,
            histograms: self.histograms,
            exemplars: self.exemplars,
        };
        match failure {
            None => Ok(stored),
            // A rate is refused in the distributor's words, which do not name the tenant.
            Some(text) if rate_limited => Err(PushError::Partial { text, rate_limited, stored }),
            Some(text) => {
                let text = texts::of_tenant(tenant, &text);
                Err(PushError::Partial { text, rate_limited, stored })
            }
        }
    }

    pub(super) fn include(&mut self, oldest_ms: i64, newest_ms: i64) {
        self.times_ms = Some(match self.times_ms {
            None => (oldest_ms, newest_ms),
            Some((oldest, newest)) => (oldest.min(oldest_ms), newest.max(newest_ms)),
        });
    }
}

/// What the push's samples are judged by. Without a store of our own, whoever stores them judges.
fn bounds(
    judged_here: bool,
    tenant: &Tenant,
    standing: &Standing,
    summary: &Summary,
    now: Now,
) -> Bounds {
    let discard_out_of_order = summary.discard_out_of_order;
    if !judged_here {
        return Bounds {
            min_valid_ms: i64::MIN,
            latest_ms: i64::MAX,
            head_max_ms: i64::MIN,
            out_of_order_window_ms: 0,
            discard_out_of_order,
        };
    }
    let head = tenant.head.lock().expect("no panic under this lock");
    let window_ms = standing.limits.out_of_order_time_window.0;
    let grace_ms = i64::try_from(standing.limits.creation_grace_period.0).unwrap_or(i64::MAX);
    Bounds {
        latest_ms: now.unix_ms.saturating_add(grace_ms),
        min_valid_ms: head.appendable_from_ms(),
        head_max_ms: head.samples_ms().map_or(i64::MIN, |(_, newest_ms)| newest_ms),
        out_of_order_window_ms: i64::try_from(window_ms).unwrap_or(i64::MAX),
        discard_out_of_order,
    }
}
