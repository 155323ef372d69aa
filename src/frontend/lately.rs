//! What lately came from a cache.
//!
//! A client without credit may still ask for that: it will mostly cost nobody anything. So that
//! it stays a few, a client has few such tries under way at a time; one that misses is paid, as
//! debt, and is not tried again without credit.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use quick_cache::sync::Cache;

use super::asked::QueryKey;
use crate::sync::Mutex;
use crate::tenant::{ClientId, TenantId};

/// Queries that are remembered, of all tenants: at about 100 bytes each 6 MiB, and one query in
/// turn with 65,000 others is no dashboard's. What has to go is charged as any other.
const SHAPES_MAX: usize = 1 << 16;
/// How long: several refreshes of a slow dashboard.
const LATELY_NS: i64 = 5 * 60 * 1_000_000_000;
/// Tries of one client under way at a time: half of the connections that a browser opens to one
/// address, so that a dashboard fills in and a storm does not.
const TRIES_MAX: u32 = 3;

/// See the head of the file.
pub struct Lately {
    /// When it last came from a cache.
    shapes: Cache<QueryKey, i64>,
    /// Those who try now; the bounds on requests in flight are its bound.
    tries: Arc<Mutex<HashMap<(TenantId, ClientId), u32>>>,
}

/// A place among a client's tries; given back when dropped.
pub struct Try {
    who: (TenantId, ClientId),
    tries: Arc<Mutex<HashMap<(TenantId, ClientId), u32>>>,
}

impl Default for Lately {
    fn default() -> Self {
        Self { shapes: Cache::new(SHAPES_MAX), tries: Arc::default() }
    }
}

impl Lately {
    /// What came of a query: whether its answer was from a cache.
    pub fn note(&self, shape: QueryKey, is_cached: bool, now_ns: i64) {
        if is_cached {
            self.shapes.insert(shape, now_ns);
        } else {
            self.shapes.remove(&shape);
        }
    }

    /// A try without credit, if it is likely to cost nothing and not one too many.
    pub fn try_one(
        &self,
        shape: &QueryKey,
        tenant: &TenantId,
        client: &ClientId,
        now_ns: i64,
    ) -> Option<Try> {
        let came_ns = self.shapes.get(shape)?;
        if now_ns.saturating_sub(came_ns) > LATELY_NS {
            return None;
        }
        let who = (tenant.clone(), client.clone());
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = tries.entry(who.clone()).or_default();
        if *under_way >= TRIES_MAX {
            return None;
        }
        *under_way += 1;
        Some(Try { who, tries: Arc::clone(&self.tries) })
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(under_way) = tries.get_mut(&self.who) {
            *under_way -= 1;
            if *under_way == 0 {
                tries.remove(&self.who);
            }
        }
    }
}

#[cfg(all(test, feature = "model"))]
mod model_tests {
    use loom::thread;

    use super::*;

    /// The last place is one's of two, and a place that is given back meanwhile is nobody's loss.
    #[test]
    fn tries_under_way_are_never_one_too_many() {
        loom::model(|| {
            let lately = Arc::new(Lately::default());
            let shape = QueryKey([1; 32]);
            lately.note(shape, true, 0);
            let try_one = move |lately: &Lately| {
                let (tenant, client) = (TenantId::parse("a"), ClientId::parse("c"));
                lately.try_one(&shape, &tenant.expect("valid"), &client.expect("valid"), 0)
            };
            let before: Vec<_> = (1..TRIES_MAX).filter_map(|_| try_one(&lately)).collect();
            let beside = Arc::clone(&lately);
            let other = thread::spawn(move || {
                let tried = try_one(&beside);
                (tried.is_some(), tried.is_some() && try_one(&beside).is_none())
            });
            let tried = try_one(&lately);
            let is_mine = tried.is_some();
            drop(tried);
            let (is_theirs, was_full) = other.join().expect("the modelled thread ends");
            assert!(is_mine || is_theirs, "one place is free");
            assert!(!is_theirs || was_full, "and no more than one");
            drop(before);
            assert!(lately.tries.lock().expect("lock").is_empty(), "nothing is left behind");
        });
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    const SEC: i64 = 1_000_000_000;

    #[test]
    fn only_what_came_from_a_cache_may_be_tried_and_a_few_at_a_time() {
        let lately = Lately::default();
        let tenant = TenantId::parse("a").expect("tenant");
        let client = |name: &str| ClientId::parse(name).expect("client");
        let (grafana, other) = (client("grafana"), client("other"));
        let shape = QueryKey([1; 32]);
        assert!(lately.try_one(&shape, &tenant, &grafana, SEC).is_none(), "never seen");
        lately.note(shape, true, SEC);
        let first: Vec<_> =
            (0..5).filter_map(|_| lately.try_one(&shape, &tenant, &grafana, 2 * SEC)).collect();
        assert_eq!(first.len(), TRIES_MAX as usize);
        assert!(lately.try_one(&shape, &tenant, &other, 2 * SEC).is_some(), "each has its own");
        drop(first);
        assert!(lately.try_one(&shape, &tenant, &grafana, 2 * SEC).is_some());
        assert!(lately.tries.lock().expect("lock").is_empty(), "nothing is left behind");
        assert!(lately.try_one(&shape, &tenant, &grafana, 400 * SEC).is_none(), "too long ago");
        lately.note(shape, false, 3 * SEC);
        assert!(lately.try_one(&shape, &tenant, &grafana, 3 * SEC).is_none(), "it missed");
    }
}
