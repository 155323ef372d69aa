//! Tenants in an order, a page at a time.
//!
//! With a hundred thousand tenants a page must not look at each from all sides: of every tenant
//! only what the order needs is read, those that are not on the page are never sorted among each
//! other, and whole views are made of the rest.

use serde::Deserialize;

use crate::clock::Now;
use crate::ingester::Ingester;
use crate::ingester::history::{ToLimit, Trend};
use crate::ingester::tenants::Tenant;
use crate::ingester::views::TenantView;

/// What tenants are listed by; equals by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantOrder {
    #[default]
    Tenant,
    /// Largest first, as the next two.
    InMemory,
    Active,
    Owned,
    /// Least first; those without a limit last.
    Headroom,
    /// Largest part of the limit first.
    Used,
    /// Soonest first.
    TimeToLimit,
    /// Most first.
    Refused,
}

impl TenantOrder {
    /// As it is read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::InMemory => "in_memory",
            Self::Active => "active",
            Self::Owned => "owned",
            Self::Headroom => "headroom",
            Self::Used => "used",
            Self::TimeToLimit => "time_to_limit",
            Self::Refused => "refused",
        }
    }
}

/// Which tenants are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Part of a name; empty lets every tenant through.
    pub name_part: &'a str,
    pub order: TenantOrder,
    /// From 1; one beyond the last is the last.
    pub page: usize,
    pub page_len: usize,
}

/// One page.
#[derive(Debug)]
pub struct TenantPage {
    pub tenants: Vec<(TenantView, Trend)>,
    pub page: usize,
    pub pages: usize,
    /// Tenants that are let through, on all pages.
    pub matching: usize,
    /// Tenants in memory.
    pub total: usize,
}

/// A tenant's place in an order: the lower rank comes first, then the lower name. The name lies
/// here so that it is one step away where names are compared.
struct Place<'a> {
    rank: u64,
    name: &'a str,
    tenant: &'a Tenant,
}

impl Ingester {
    pub fn tenant_page(&self, wanted: Wanted<'_>, now: Now) -> TenantPage {
        let all = self.tenants.all();
        let matching = all.iter().filter(|tenant| tenant.id.as_str().contains(wanted.name_part));
        let mut places: Vec<Place<'_>> = matching
            .map(|tenant| Place {
                rank: self.rank(tenant, wanted.order, now),
                name: tenant.id.as_str(),
                tenant,
            })
            .collect();
        let pages = places.len().div_ceil(wanted.page_len).max(1);
        let page = wanted.page.clamp(1, pages);
        let begin = (page - 1) * wanted.page_len;
        let shown = selected(&mut places, begin, wanted.page_len);
        let tenants = shown.iter().map(|place| {
            let view = self.tenant_view(place.tenant, now);
            let trend = place.tenant.history.trend(now, view.used());
            (view, trend)
        });
        TenantPage {
            tenants: tenants.collect(),
            page,
            pages,
            matching: places.len(),
            total: all.len(),
        }
    }

    fn rank(&self, tenant: &Tenant, order: TenantOrder, now: Now) -> u64 {
        let series = || tenant.series.counts().series;
        let used = || series().by(self.basis());
        match order {
            TenantOrder::Tenant => 0,
            TenantOrder::InMemory => !series().in_memory,
            TenantOrder::Active => !tenant.series.counts().active,
            TenantOrder::Owned => !series().owned,
            TenantOrder::Headroom => rank_of_headroom(self.headroom(tenant, used(), now)),
            TenantOrder::Used => rank_of_used(used(), self.limit_in_force(tenant, now).0),
            TenantOrder::TimeToLimit => {
                let used = used();
                let slope = tenant.history.slope(now, used);
                rank_of_time(ToLimit::new(self.headroom(tenant, used, now), used, slope))
            }
            TenantOrder::Refused => !tenant.counters.refused_by_series_limits(),
        }
    }

    fn headroom(&self, tenant: &Tenant, used: u64, now: Now) -> Option<i64> {
        super::views::headroom(self.limit_in_force(tenant, now).0, used)
    }
}

/// The `len` places from `begin` on that the whole order would have there.
fn selected<'a, 'b>(places: &'b mut [Place<'a>], begin: usize, len: usize) -> &'b [Place<'a>] {
    let by = |a: &Place<'_>, b: &Place<'_>| (a.rank, a.name).cmp(&(b.rank, b.name));
    if begin >= places.len() {
        return &[];
    }
    let from_begin = match begin.checked_sub(1) {
        None => places,
        Some(before) => places.select_nth_unstable_by(before, by).2,
    };
    let shown = match len < from_begin.len() {
        true => from_begin.select_nth_unstable_by(len, by).0,
        false => from_begin,
    };
    shown.sort_unstable_by(by);
    shown
}

/// Negative ones, after an operator's cut, come first.
fn rank_of_headroom(headroom: Option<i64>) -> u64 {
    headroom.map_or(u64::MAX, |headroom| headroom.cast_unsigned() ^ (1 << 63))
}

/// Those that may have nothing come first, those without a limit last. Doubles that are not
/// negative are in the order of their bits.
fn rank_of_used(used: u64, limit: Option<u64>) -> u64 {
    match limit {
        None => u64::MAX,
        Some(0) => 0,
        Some(limit) => !(used as f64 / limit as f64).to_bits(),
    }
}

fn rank_of_time(to_limit: ToLimit) -> u64 {
    const LATER: u64 = u64::MAX - 8;
    match to_limit {
        ToLimit::Reached => 0,
        ToLimit::In(seconds) => seconds.saturating_add(1).min(LATER),
        ToLimit::Steady => LATER + 1,
        ToLimit::Falling => LATER + 2,
        ToLimit::Unknown => LATER + 3,
        ToLimit::Unlimited => LATER + 4,
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn those_that_use_most_of_their_limit_come_first() {
        let order = [(1, Some(0)), (30, Some(10)), (9, Some(10)), (50, Some(100)), (900, None)];
        let ranks = order.map(|(used, limit)| rank_of_used(used, limit));
        assert!(ranks.is_sorted(), "{ranks:?}");
    }

    #[test]
    fn least_headroom_comes_first_and_none_to_have_last() {
        let ranks = [Some(i64::MIN), Some(-3), Some(0), Some(1), Some(i64::MAX - 1), None]
            .map(rank_of_headroom);
        assert!(ranks.is_sorted(), "{ranks:?}");
    }

    proptest! {
        #[test]
        fn times_are_in_the_order_of_urgency(mut seconds in prop::collection::vec(any::<u64>(), 0..9)) {
            seconds.sort_unstable();
            let mut order = vec![ToLimit::Reached];
            order.extend(seconds.into_iter().map(ToLimit::In));
            order.extend([ToLimit::Steady, ToLimit::Falling, ToLimit::Unknown, ToLimit::Unlimited]);
            prop_assert!(order.is_sorted());
            prop_assert!(order.into_iter().map(rank_of_time).is_sorted());
        }
    }
}
