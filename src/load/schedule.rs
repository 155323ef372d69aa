//! Which samples are due when, and in which request.
//!
//! A *round* gives each series of each tenant one sample. It consists of batches, tenants taking
//! turns: the first part of each tenant's series, then the second of each, and so on. Batches are
//! dealt out to *lanes*, which send one request after the other; a batch belongs to the same lane
//! in every round, so samples of a series cannot overtake each other.
//!
//! Everything follows from numbers: at a rate, the batch before which `n` samples were due is due
//! after `n / rate` seconds. A lane that is late goes on with the batch that is due next, and
//! none is left out.

use std::num::NonZeroU64;
use std::ops::Range;

/// Requests of a round: what is remembered of each takes 24 bytes, 240 MB of this many.
pub const BATCHES_MAX: u64 = 10_000_000;
const US_PER_MINUTE: u128 = 60_000_000;
const US_PER_S: u128 = 1_000_000;

/// What is sent, in numbers. All but the churn and the clients are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub tenants: u32,
    /// Of each tenant, at a time.
    pub series: u32,
    /// Series of each tenant that are replaced by new ones, one after the other.
    pub churn_per_minute: u32,
    /// Samples of a request, each of another series.
    pub batch: u32,
    /// Of each tenant; 0 names none.
    pub clients: u32,
    /// Requests under way at once.
    pub lanes: u32,
}

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Samples a second, of all lanes.
    Rate(NonZeroU64),
    /// The next request as soon as the last is answered.
    Max,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub tenant: u32,
    /// From 0; `None` names none.
    pub client: Option<u32>,
    /// Places of series; what stands there has changed with churn.
    pub places: Range<u32>,
    /// Series that have ended until then and been replaced, of this tenant.
    pub replaced: u64,
    /// Series of it that were in no request before.
    pub new_series: u32,
    /// When it should be sent, counted from the start; `None` at once.
    pub due_us: Option<u64>,
    /// Time of its samples, counted from the start.
    pub sample_ms: i64,
}

/// The batches of one lane, one after the other.
#[derive(Debug)]
pub struct Lane {
    shape: Shape,
    pace: Pace,
    /// Place of the next batch in its round.
    next: u64,
    round: u64,
    first: u64,
    lanes: u64,
    /// What was sent last of each batch of this lane.
    sent: Vec<Sent>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Of the last samples; before the first, less than any.
    sample_ms: i64,
    /// As the last batch had it; `None` before the first.
    replaced: Option<u64>,
}

impl Shape {
    /// Batches of a tenant in a round.
    fn parts(&self) -> u64 {
        u64::from(self.series.div_ceil(self.batch))
    }

    /// Batches of a round.
    fn batches(&self) -> u64 {
        self.parts() * u64::from(self.tenants)
    }

    /// Whether lanes can remember each batch of a round.
    pub fn is_too_much(&self) -> bool {
        self.batches() > BATCHES_MAX
    }

    /// More than one for each batch would send a series' samples side by side.
    pub fn lanes(&self) -> u64 {
        u64::from(self.lanes).min(self.batches()).max(1)
    }

    /// Series at a time, of all tenants.
    pub fn series_at_once(&self) -> u64 {
        u64::from(self.series) * u64::from(self.tenants)
    }

    fn places(&self, part: u64) -> Range<u32> {
        // Parts are fewer than series, which are a u32.
        let start = part as u32 * self.batch;
        start..start.saturating_add(self.batch).min(self.series)
    }

    /// Samples of earlier batches of the round.
    fn samples_before(&self, index: u64) -> u64 {
        let tenants = u64::from(self.tenants);
        let (part, tenant) = (index / tenants, index % tenants);
        part * tenants * u64::from(self.batch) + tenant * self.places(part).len() as u64
    }

    /// Series of a tenant that have been replaced since the start.
    fn replaced(&self, at_us: u64) -> u64 {
        let replaced = u128::from(self.churn_per_minute) * u128::from(at_us) / US_PER_MINUTE;
        u64::try_from(replaced).unwrap_or(u64::MAX)
    }
}

/// How often the series at a place has been replaced: they go one after the other.
pub fn generation(place: u32, series: u32, replaced: u64) -> u64 {
    let (rounds, rest) = (replaced / u64::from(series), replaced % u64::from(series));
    rounds + u64::from(u64::from(place) < rest)
}

impl Lane {
    /// The lane of a number below [`Shape::lanes`].
    pub fn new(shape: Shape, pace: Pace, number: u64) -> Self {
        let lanes = shape.lanes();
        let of_lane = (shape.batches() - number).div_ceil(lanes);
        let never = Sent { sample_ms: i64::MIN, replaced: None };
        Self {
            shape,
            pace,
            next: number,
            round: 0,
            first: number,
            lanes,
            sent: vec![never; usize::try_from(of_lane).unwrap_or(usize::MAX)],
        }
    }

    /// The next batch, and when it is due, without taking it.
    pub fn due_us(&self) -> Option<u64> {
        let Pace::Rate(rate) = self.pace else { return None };
        let rounds = u128::from(self.round) * u128::from(self.shape.series_at_once());
        let before = rounds + u128::from(self.shape.samples_before(self.next));
        let due = before * US_PER_S / u128::from(rate.get());
        Some(u64::try_from(due).unwrap_or(u64::MAX))
    }

    /// Samples of the next batch.
    pub fn samples(&self) -> u64 {
        self.shape.places(self.next / u64::from(self.shape.tenants)).len() as u64
    }

    /// Takes the next batch; `now_us` is counted from the start.
    pub fn take(&mut self, now_us: u64) -> Batch {
        let due_us = self.due_us();
        let at_us = due_us.unwrap_or(now_us);
        let tenants = u64::from(self.shape.tenants);
        let (part, tenant) = (self.next / tenants, self.next % tenants);
        let places = self.shape.places(part);
        let replaced = self.shape.replaced(at_us);
        let sent = &mut self.sent[((self.next - self.first) / self.lanes) as usize];
        let sample_ms = i64::try_from(at_us / 1000).unwrap_or(i64::MAX);
        // Rounds may be shorter than the millisecond that times are told in.
        let sample_ms = sample_ms.max(sent.sample_ms.saturating_add(1));
        let new_series = match sent.replaced {
            None => places.len() as u64,
            Some(before) => {
                let series = self.shape.series;
                let changed = |place: &u32| {
                    generation(*place, series, before) != generation(*place, series, replaced)
                };
                match replaced - before.min(replaced) {
                    0 => 0,
                    _ => places.clone().filter(changed).count() as u64,
                }
            }
        };
        *sent = Sent { sample_ms, replaced: Some(replaced) };
        let batch = Batch {
            // Below the number of tenants, a u32; so are the others below theirs.
            tenant: tenant as u32,
            client: self.client(part),
            places,
            replaced,
            new_series: new_series as u32,
            due_us,
            sample_ms,
        };
        self.advance();
        batch
    }

    /// Leaves out what is due before `end_us`, and says how many requests and samples that is.
    pub fn left_out(&mut self, end_us: u64) -> (u64, u64) {
        let (mut requests, mut samples) = self.whole_rounds_left_out(end_us);
        while self.due_us().is_some_and(|due| due < end_us) {
            requests = requests.saturating_add(1);
            samples = samples.saturating_add(self.samples());
            self.advance();
        }
        (requests, samples)
    }

    /// The same as far as whole rounds go, of which a rate that nobody can keep leaves out more
    /// than can be counted one by one.
    fn whole_rounds_left_out(&mut self, end_us: u64) -> (u64, u64) {
        let Pace::Rate(rate) = self.pace else { return (0, 0) };
        let of_round = u128::from(self.shape.series_at_once());
        let before =
            u128::from(self.round) * of_round + u128::from(self.shape.samples_before(self.next));
        // What is due before the end: `n / rate` seconds are less than it.
        let due = (u128::from(end_us) * u128::from(rate.get())).div_ceil(US_PER_S);
        let rounds = due.saturating_sub(before + 1) / of_round;
        let rounds = u64::try_from(rounds).unwrap_or(u64::MAX);
        if rounds == 0 {
            return (0, 0);
        }
        let (mut requests, mut samples) = (0, 0);
        for _ in 0..self.sent.len() {
            requests += 1;
            samples += self.samples();
            self.advance();
        }
        self.round = self.round.saturating_add(rounds - 1);
        (rounds.saturating_mul(requests), rounds.saturating_mul(samples))
    }

    /// Clients take turns over a tenant's batches, through all rounds.
    fn client(&self, part: u64) -> Option<u32> {
        let clients = u64::from(self.shape.clients);
        let turn = self.round.wrapping_mul(self.shape.parts()).wrapping_add(part);
        turn.checked_rem(clients).map(|client| client as u32)
    }

    fn advance(&mut self) {
        self.next += self.lanes;
        if self.next >= self.shape.batches() {
            self.next = self.first;
            self.round += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn shape(tenants: u32, series: u32, batch: u32, lanes: u32) -> Shape {
        Shape { tenants, series, churn_per_minute: 0, batch, clients: 0, lanes }
    }

    fn rate(samples: u64) -> Pace {
        Pace::Rate(NonZeroU64::new(samples).expect("a rate"))
    }

    fn lanes(shape: Shape, pace: Pace) -> Vec<Lane> {
        (0..shape.lanes()).map(|number| Lane::new(shape, pace, number)).collect()
    }

    #[test]
    fn a_rate_spreads_batches_evenly_over_all_lanes() {
        let shape = shape(2, 10, 4, 3);
        let mut dues = Vec::new();
        for mut lane in lanes(shape, rate(20)) {
            for _ in 0..2 {
                let batch = lane.take(0);
                dues.push((batch.due_us.expect("a time"), batch.tenant, batch.places));
            }
        }
        dues.sort_by_key(|(due, ..)| *due);
        // 20 samples a second: one is due every 50 ms.
        let expect = [
            (0, 0, 0..4),
            (200_000, 1, 0..4),
            (400_000, 0, 4..8),
            (600_000, 1, 4..8),
            (800_000, 0, 8..10),
            (900_000, 1, 8..10),
        ];
        assert_eq!(dues, expect);
    }

    #[test]
    fn without_a_rate_there_is_no_time_and_samples_still_go_forward() {
        let mut lane = Lane::new(shape(1, 2, 4, 5), Pace::Max, 0);
        let times: Vec<_> = [0, 0, 500, 9000].map(|now_us| lane.take(now_us).sample_ms).into();
        assert_eq!(times, [0, 1, 2, 9]);
        assert_eq!(lane.take(9000).due_us, None);
        assert_eq!(lane.left_out(u64::MAX), (0, 0));
    }

    #[test]
    fn churn_replaces_one_series_after_the_other() {
        let check = |replaced, expect: [u64; 3]| {
            let found = [0, 1, 2].map(|place| generation(place, 3, replaced));
            assert_eq!(found, expect, "{replaced}");
        };
        check(0, [0, 0, 0]);
        check(1, [1, 0, 0]);
        check(3, [1, 1, 1]);
        check(5, [2, 2, 1]);
        let churning = Shape { churn_per_minute: 60, ..shape(1, 10, 10, 1) };
        let mut lane = Lane::new(churning, rate(10), 0);
        let new: Vec<_> = (0..13).map(|_| lane.take(0).new_series).collect();
        // A round takes a second, and so does a replacement.
        assert_eq!(new, [10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn clients_take_turns() {
        let shape = Shape { clients: 3, ..shape(1, 4, 2, 1) };
        let mut lane = Lane::new(shape, Pace::Max, 0);
        let clients: Vec<_> = (0..6).map(|_| lane.take(0).client).collect();
        assert_eq!(clients, [Some(0), Some(1), Some(2), Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn what_is_due_and_not_sent_is_counted() {
        let mut lane = Lane::new(shape(1, 10, 4, 1), rate(10), 0);
        lane.take(0);
        assert_eq!(lane.left_out(1_000_000), (2, 6), "the rest of the first round");
        assert_eq!(lane.left_out(1_000_000), (0, 0));
    }

    #[test]
    fn a_round_has_a_bound() {
        assert!(!shape(100, 100_000, 1, 1).is_too_much());
        assert!(shape(101, 100_000, 1, 1).is_too_much());
        assert!(shape(1_000_000, 100_000_000, 1, 1).is_too_much());
        assert!(!shape(1_000, 1_000_000, 500, 1).is_too_much());
    }

    #[test]
    fn what_a_rate_that_nobody_can_keep_leaves_out_is_not_counted_one_by_one() {
        let mut lane = Lane::new(shape(1, 10, 4, 1), rate(u64::MAX), 0);
        lane.take(0);
        let (requests, samples) = lane.left_out(1_000_000);
        assert_eq!(samples, u64::MAX - 1);
        assert_eq!(requests, u64::MAX / 10 * 3 + 2 - 1);
        assert_eq!(lane.left_out(1_000_000), (0, 0));
    }

    proptest! {
        /// However many rounds are taken at once, it is what one after the other gives.
        #[test]
        fn leaving_out_counts_each_batch(
            tenants in 1_u32..4, series in 1_u32..20, batch in 1_u32..9, wanted in 1_u32..5,
            per_second in 1_u64..200, taken in 0_u32..9, end_us in 0_u64..2_000_000,
        ) {
            let shape = shape(tenants, series, batch, wanted);
            for mut lane in lanes(shape, rate(per_second)) {
                for _ in 0..taken {
                    lane.take(0);
                }
                let mut slow = Lane { sent: lane.sent.clone(), ..lane };
                let mut expect = (0, 0);
                while slow.due_us().is_some_and(|due| due < end_us) {
                    expect = (expect.0 + 1, expect.1 + slow.samples());
                    slow.advance();
                }
                prop_assert_eq!(lane.left_out(end_us), expect);
                prop_assert_eq!((lane.round, lane.next), (slow.round, slow.next));
            }
        }

        /// Each round has each series once, whatever the numbers, and each in the same lane.
        #[test]
        fn a_round_has_each_series_once(
            tenants in 1_u32..5, series in 1_u32..40, batch in 1_u32..12, wanted in 1_u32..9,
            churn in 0_u32..5000,
        ) {
            let shape = Shape { churn_per_minute: churn, ..shape(tenants, series, batch, wanted) };
            let mut seen: BTreeMap<(u32, u32), u64> = BTreeMap::new();
            let mut ids = BTreeSet::new();
            let mut new = 0;
            for (number, mut lane) in (0..).zip(lanes(shape, rate(100))) {
                let mut last = BTreeMap::new();
                for _ in 0..2 * lane.sent.len() {
                    let batch = lane.take(0);
                    prop_assert!(!batch.places.is_empty() && batch.places.len() <= shape.batch as usize);
                    new += u64::from(batch.new_series);
                    for place in batch.places.clone() {
                        let at = (batch.tenant, place);
                        let count = seen.entry(at).or_insert(number << 32);
                        prop_assert_eq!(*count >> 32, number, "one lane for each series");
                        *count += 1;
                        ids.insert((at, generation(place, series, batch.replaced)));
                        let before = last.insert(at, batch.sample_ms);
                        prop_assert!(before.is_none_or(|before| before < batch.sample_ms));
                    }
                }
            }
            prop_assert_eq!(seen.len() as u64, shape.series_at_once());
            prop_assert!(seen.values().all(|count| count & 0xffff_ffff == 2));
            prop_assert_eq!(new, ids.len() as u64, "new series are counted once");
        }
    }
}
