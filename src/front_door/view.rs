//! What a page may show of the front door: numbers, and senders by the first bytes of their hashes.
//!
//! Tables may hold millions of entries that requests wait for, so each is looked at in small
//! parts, and only so many rows are kept of it.

use super::config::Limiter;
use super::keys::Key;
use super::table::Evictions;
use super::{FrontDoor, RouteClass};
use crate::ratelimit::BucketView;

/// Rows of each list: what an operator reads, and those with the least credit stand first.
pub const ROWS_MAX: usize = 50;

/// Bytes of a hash that are shown: as many as the log has, so that both can be compared.
const DIGEST_BYTES: usize = 4;

/// The front door as it stands.
#[derive(Debug, Default)]
pub struct FrontDoorView {
    /// Requests of addresses on the list of those denied.
    pub denied: u64,
    /// Requests with hops of a peer that is no trusted proxy.
    pub untrusted_hops: u64,
    /// Requests with hops of a trusted proxy that are no addresses.
    pub unreadable_hops: u64,
    pub salt_rotations: u64,
    /// Classes of routes with a limiter that is on.
    pub doors: Vec<(RouteClass, DoorView)>,
}

/// One class of routes.
#[derive(Debug, Default)]
pub struct DoorView {
    pub limiters: Vec<LimiterView>,
    /// Failures that were charged.
    pub failures: u64,
    /// Requests admitted as a proven pair.
    pub proven: u64,
    pub addresses: TableView,
    pub credentials: TableView,
    pub pairs: TableView,
    /// Addresses whose failures are not refilled yet, requests under way included.
    pub failing: usize,
    /// Those of them that may not fail once more.
    pub failing_used_up: usize,
    /// Pairs that are proven now, and their requests under way.
    pub pairs_proven: usize,
    pub pairs_under_way: u64,
    /// Least credit first.
    pub most_failing: Vec<SenderView>,
    pub busiest_addresses: Vec<SenderView>,
    pub busiest_credentials: Vec<SenderView>,
}

/// A limiter that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimiterView {
    pub limiter: Limiter,
    pub per_minute: u32,
    pub is_shadow: bool,
    pub refused: u64,
    /// Admitted although it would have refused, were it not in shadow.
    pub shadow_refused: u64,
}

/// How full a table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableView {
    pub entries: usize,
    pub entries_max: usize,
    pub evicted: Evictions,
}

/// A sender, and what is left to it.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderView {
    /// First bytes of its hash, in hexadecimal.
    pub digest: String,
    /// It is known by what it presents; else by its address.
    pub is_credential: bool,
    /// Below nothing where something is owed.
    pub credits: f64,
    pub burst: u64,
}

/// The front door in a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontDoorSummary {
    /// Limiters that are on, over all classes, and how many of them only count.
    pub limiters: usize,
    pub in_shadow: usize,
    /// Entries that had to go although they owed something.
    pub evicted_in_debt: u64,
    /// A table has as many entries as it may.
    pub is_full: bool,
}

impl FrontDoor {
    /// Without looking at what is kept.
    pub fn summary(&self) -> FrontDoorSummary {
        let mut summary = FrontDoorSummary::default();
        for door in self.doors.iter().flatten() {
            let (limiters, tables) = (door.limiters(), door.tables());
            summary.limiters += limiters.len();
            summary.in_shadow += limiters.iter().filter(|one| one.is_shadow).count();
            for table in tables {
                summary.evicted_in_debt += table.evicted.in_debt;
                summary.is_full |= table.entries >= table.entries_max;
            }
        }
        summary
    }

    pub fn view(&self, now_ns: i64) -> FrontDoorView {
        let doors = RouteClass::ALL.into_iter().zip(&self.doors);
        FrontDoorView {
            denied: self.denied.get(),
            untrusted_hops: self.untrusted_hops.get(),
            unreadable_hops: self.unreadable_hops.get(),
            salt_rotations: self.salts.load().epoch(),
            doors: doors
                .filter_map(|(class, door)| Some((class, door.as_ref()?.view(now_ns))))
                .collect(),
        }
    }
}

impl TableView {
    pub(super) fn new((entries, evicted): (usize, Evictions), entries_max: usize) -> Self {
        Self { entries, entries_max, evicted }
    }
}

/// Those with the least credit of all that are offered, [`ROWS_MAX`] at most.
#[derive(Debug, Default)]
pub(super) struct Poorest {
    /// Least credit first.
    rows: Vec<(Key, BucketView)>,
}

impl Poorest {
    pub(super) fn offer(&mut self, key: Key, left: BucketView) {
        let is_full = self.rows.len() == ROWS_MAX;
        if is_full && self.rows.last().is_some_and(|(_, last)| last.credits <= left.credits) {
            return;
        }
        // A table may show an entry twice that moved while it was looked at.
        if self.rows.iter().any(|(known, _)| *known == key) {
            return;
        }
        self.rows.truncate(ROWS_MAX - 1);
        let at = self.rows.partition_point(|(_, row)| row.credits <= left.credits);
        self.rows.insert(at, (key, left));
    }

    pub(super) fn into_rows(self) -> Vec<SenderView> {
        let row = |(key, left): (Key, BucketView)| SenderView {
            digest: key.0[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")).collect(),
            is_credential: key.is_credential(),
            credits: left.credits,
            burst: left.burst,
        };
        self.rows.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front_door::config::FrontDoorConfig;
    use crate::front_door::{Outcome, RouteClass};

    const SEC: i64 = 1_000_000_000;

    fn left(credits: f64) -> BucketView {
        BucketView { credits, rate: 1.0, burst: 100 }
    }

    fn key(number: u16) -> Key {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        Key(bytes)
    }

    #[test]
    fn the_poorest_of_many_are_kept_in_order_and_each_once() {
        let mut poorest = Poorest::default();
        // Every residue once, in an order that is neither way sorted.
        for step in 0..1000_u16 {
            let number = (u32::from(step) * 617 % 1000) as u16;
            poorest.offer(key(number), left(f64::from(number)));
            poorest.offer(key(number), left(f64::from(number)));
        }
        let rows = poorest.into_rows();
        let credits: Vec<f64> = rows.iter().map(|row| row.credits).collect();
        let expect: Vec<f64> = (0..ROWS_MAX).map(|number| number as f64).collect();
        assert_eq!(credits, expect);
        assert_eq!((rows[1].digest.as_str(), rows[1].is_credential), ("00010000", false));
    }

    #[test]
    fn a_page_sees_who_fails_by_hash_alone() {
        let mut config = FrontDoorConfig::default();
        config.query.failures_per_minute = 2;
        config.query.requests_per_address_per_minute = 100;
        config.query.requests_per_credential_per_minute = 10;
        let door = FrontDoor::new(&config, b"0123456789abcdef");
        let enter = |last: u8, credential: &'static [u8]| {
            let address = [192, 0, 2, last].into();
            door.enter(RouteClass::Query, address, std::iter::once(credential), SEC)
        };
        for _ in 0..2 {
            let pass = enter(7, b"Bearer secret").expect("lets in");
            door.leave(pass, Outcome::Failed, SEC);
        }
        enter(7, b"Bearer secret").expect_err("has failed too often");
        let pass = enter(8, b"Bearer other").expect("lets in");
        door.leave(pass, Outcome::Succeeded, SEC);

        let view = door.view(SEC);
        let [(RouteClass::Query, query)] = view.doors.as_slice() else {
            panic!("one class is on: {view:?}")
        };
        assert_eq!((query.failing, query.failing_used_up, query.failures), (1, 1, 2));
        assert_eq!((query.pairs.entries, query.pairs_proven, query.pairs_under_way), (1, 1, 0));
        assert_eq!(query.most_failing.len(), 1);
        assert_eq!((query.most_failing[0].credits, query.most_failing[0].burst), (0.0, 2));
        // 192.0.2.8 is as in the test of keys, but for its last byte: nobody is named.
        let busiest: Vec<_> = query.busiest_addresses.iter().map(|row| row.credits).collect();
        assert_eq!(busiest, [98.0, 99.0]);
        assert_eq!(query.busiest_addresses[0].digest, query.most_failing[0].digest);
        let credentials: Vec<_> =
            query.busiest_credentials.iter().map(|row| row.is_credential).collect();
        assert_eq!(credentials, [true, true]);
        assert_eq!(query.busiest_credentials[0].digest, "4e5e836a", "of `bearer` and `secret`");
        let limiters: Vec<_> =
            query.limiters.iter().map(|one| (one.limiter, one.per_minute, one.refused)).collect();
        let expect =
            [(Limiter::Failures, 2, 1), (Limiter::Address, 100, 0), (Limiter::Credential, 10, 0)];
        assert_eq!(limiters, expect);
        assert!(!format!("{view:?}").contains("secret"));
    }
}
