//! How a door is looked at by those who ask what it keeps.

use super::super::view::{DoorView, LimiterView, Poorest, TableView};
use super::{Door, view_of};

impl Door {
    /// What a page may show. Holds no lock for longer than a few entries take.
    pub(in super::super) fn view(&self, now_ns: i64) -> DoorView {
        let [addresses, credentials, pairs] = self.tables();
        let mut view = DoorView {
            limiters: self.limiters(),
            failures: self.counts.failures.get(),
            proven: self.counts.proven.get(),
            addresses,
            credentials,
            pairs,
            ..DoorView::default()
        };
        let (mut failing, mut busy) = (Poorest::default(), Poorest::default());
        self.addresses.look(|key, entry| {
            if self.failures.is_some() && entry.failures.owes(now_ns) {
                view.failing += 1;
                let left = entry.failures.view(now_ns);
                view.failing_used_up += usize::from(left.credits < 1.0);
                failing.offer(key, left);
            }
            if self.address.is_some() && !entry.requests.is_full_at(now_ns) {
                busy.offer(key, view_of(&entry.requests, now_ns));
            }
        });
        (view.most_failing, view.busiest_addresses) = (failing.into_rows(), busy.into_rows());
        let mut busy = Poorest::default();
        self.credentials.look(|key, bucket| {
            if !bucket.is_full_at(now_ns) {
                busy.offer(key, view_of(bucket, now_ns));
            }
        });
        view.busiest_credentials = busy.into_rows();
        self.pairs.look(|_, pair| {
            view.pairs_proven += usize::from(now_ns < pair.until_ns);
            view.pairs_under_way += u64::from(pair.under_way);
        });
        view
    }

    /// Those that are on.
    pub(in super::super) fn limiters(&self) -> Vec<LimiterView> {
        let on = [self.failures, self.address, self.credential].into_iter().flatten();
        on.map(|limit| LimiterView {
            limiter: limit.limiter,
            per_minute: limit.per_minute,
            is_shadow: limit.is_shadow,
            refused: self.counts.refused[limit.limiter as usize].get(),
            shadow_refused: self.counts.shadow_refused[limit.limiter as usize].get(),
        })
        .collect()
    }

    /// Of addresses, credentials and pairs.
    pub(in super::super) fn tables(&self) -> [TableView; 3] {
        let kept = self.kept();
        [
            TableView::new(kept.addresses, self.addresses.entries_max()),
            TableView::new(kept.credentials, self.credentials.entries_max()),
            TableView::new(kept.pairs, self.pairs.entries_max()),
        ]
    }
}
