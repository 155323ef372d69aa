//! A tenant in one line: its counts, the limit that acts on them, and why it is that number.

use serde::Serialize;

use super::trend::TrendView;
use crate::ingester::history::{ToLimit, Trend};
use crate::ingester::views::TenantView;
use crate::series::InForce;

/// See the head of the file.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) tenant: String,
    pub(super) in_memory: u64,
    pub(super) active: u64,
    pub(super) owned: u64,
    /// The count that the limit acts on.
    pub(super) used: u64,
    /// `None` where there is none.
    pub(super) limit: Option<u64>,
    /// Series that may still come; negative after an operator's cut.
    pub(super) headroom: Option<i64>,
    /// Of the limit; more than 100 after an operator's cut.
    pub(super) used_percent: Option<f64>,
    pub(super) trend: TrendView,
    pub(super) time_to_limit: TimeToLimit,
    /// What gave the limit its number.
    pub(super) in_force: &'static str,
    pub(super) why: String,
    /// Why we do not know which series are ours.
    pub(super) ownership_unknown: Option<String>,
    /// Our share of the tenant's key space; the shares of all instances sum to the replicas.
    pub(super) share: f64,
    pub(super) global_limit: i64,
    pub(super) local_limit: i64,
    pub(super) instances: usize,
    pub(super) native_histograms: NativeHistograms,
    pub(super) created_total: u64,
    pub(super) created_not_owned_total: u64,
    pub(super) removed_total: u64,
    pub(super) refused_samples_total: u64,
}

#[derive(Serialize)]
pub(super) struct NativeHistograms {
    pub(super) in_memory: u64,
    pub(super) active: u64,
    pub(super) owned: u64,
}

/// When the limit is met at the present slope.
#[derive(Serialize)]
pub(super) struct TimeToLimit {
    /// `reached`, `growing`, `steady`, `falling`, `unknown` or `unlimited`.
    pub(super) state: &'static str,
    /// 0 once it is reached; `None` where it cannot be told.
    pub(super) seconds: Option<u64>,
    pub(super) text: String,
    /// What the script sorts by: urgent first.
    #[serde(skip)]
    pub(super) rank: u64,
    /// Class of its text.
    #[serde(skip)]
    pub(super) class: &'static str,
}

/// Less time than this to a limit is news for whoever is on call.
const SOON_S: u64 = 4 * 3600;
/// From this share of the limit on a bar is a warning, and from the next on it is bad.
const WARN_PERCENT: f64 = 80.0;
const BAD_PERCENT: f64 = 90.0;

impl Row {
    pub(super) fn new(view: &TenantView, trend: &Trend) -> Self {
        let counts = &view.counts;
        let used = view.used();
        let to_limit = ToLimit::new(view.headroom(), used, trend.slope);
        Self {
            tenant: view.tenant.to_string(),
            in_memory: counts.series.in_memory,
            active: counts.active,
            owned: counts.series.owned,
            used,
            limit: view.limit,
            headroom: view.headroom(),
            used_percent: view.limit.and_then(|limit| percent(used, limit)),
            trend: TrendView::new(trend),
            time_to_limit: TimeToLimit::new(to_limit),
            in_force: in_force(view.limit, view.in_force),
            why: why(view),
            ownership_unknown: view.unknown.map(|unknown| unknown.to_string()),
            share: view.share,
            global_limit: view.global_limit,
            local_limit: view.local_limit,
            instances: view.instances,
            native_histograms: NativeHistograms {
                in_memory: counts.native_histogram.in_memory,
                active: counts.active_native_histogram,
                owned: counts.native_histogram.owned,
            },
            created_total: counts.created_total,
            created_not_owned_total: counts.created_not_owned_total,
            removed_total: counts.removed_total,
            refused_samples_total: view.refused_samples_total,
        }
    }

    pub(super) fn bar_class(&self) -> &'static str {
        bar_class(self.used_percent)
    }
}

impl TimeToLimit {
    pub(super) fn new(to_limit: ToLimit) -> Self {
        let rank = match to_limit {
            ToLimit::Reached => 0,
            // Seconds are far below the ranks of those that have none.
            ToLimit::In(seconds) => seconds.min(u64::from(u32::MAX)),
            ToLimit::Steady => 1 << 33,
            ToLimit::Falling => 1 << 34,
            ToLimit::Unknown => 1 << 35,
            ToLimit::Unlimited => 1 << 36,
        };
        let class = match to_limit {
            ToLimit::Reached => "bad",
            ToLimit::In(seconds) if seconds < SOON_S => "bad",
            ToLimit::In(_) | ToLimit::Steady | ToLimit::Falling => "",
            ToLimit::Unknown | ToLimit::Unlimited => "quiet",
        };
        let (state, seconds) = (to_limit.label(), to_limit.seconds());
        Self { state, seconds, text: to_limit.to_string(), rank, class }
    }
}

/// The part of a limit that is used; `None` of one that admits nothing.
pub(super) fn percent(used: u64, limit: u64) -> Option<f64> {
    (limit > 0).then(|| (used as f64 / limit as f64 * 1000.0).round() / 10.0)
}

/// How alarming a share of a limit is.
pub(super) fn bar_class(used_percent: Option<f64>) -> &'static str {
    match used_percent {
        Some(percent) if percent >= BAD_PERCENT => "bad",
        Some(percent) if percent >= WARN_PERCENT => "warn",
        _ => "good",
    }
}

pub(super) fn in_force(limit: Option<u64>, in_force: InForce) -> &'static str {
    match (limit, in_force) {
        (None, _) => "none",
        (_, InForce::Flat) => "flat",
        (_, InForce::Share) => "share",
        (_, InForce::Held) => "held",
    }
}

/// Why the limit in force is that number, in one sentence.
fn why(view: &TenantView) -> String {
    let Some(limit) = view.limit else {
        return "no limit applies".to_owned();
    };
    let global = view.global_limit;
    let is_local = i64::try_from(limit).is_ok_and(|limit| limit == view.local_limit);
    let reason = match view.in_force {
        InForce::Held => {
            "held from before the ring changed, until the series are counted again".to_owned()
        }
        _ if is_local || global <= 0 => "set for each instance (max_series_per_user)".to_owned(),
        InForce::Share => format!("{global} for the cluster, {:.4} of it ours", view.share),
        InForce::Flat => format!(
            "{global} for the cluster, by {} instances with {} replicas",
            view.instances, view.replication_factor
        ),
    };
    match &view.unknown {
        Some(unknown) => format!("{reason}; every series counts as owned: {unknown}"),
        None => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;
    use crate::ingester::history::Slope;
    use crate::ingester::standing::Unknown;
    use crate::ring::UnknownOwnership;
    use crate::series::Count;

    #[test]
    fn the_reason_of_a_limit_is_told_in_a_sentence() {
        let check = |view: TenantView, expect: &str| assert_eq!(why(&view), expect);
        check(view(None, InForce::Flat), "no limit applies");
        check(
            view(Some(4500), InForce::Flat),
            "9000 for the cluster, by 6 instances with 3 replicas",
        );
        check(view(Some(4500), InForce::Share), "9000 for the cluster, 0.5000 of it ours");
        check(view(Some(5000), InForce::Flat), "set for each instance (max_series_per_user)");
        check(
            view(Some(4500), InForce::Held),
            "held from before the ring changed, until the series are counted again",
        );
        let unknown = Some(Unknown::Ring(UnknownOwnership::NotInRing));
        let text = why(&TenantView { unknown, ..view(Some(4500), InForce::Flat) });
        assert!(text.contains("; every series counts as owned: "), "{text}");
    }

    #[test]
    fn a_line_tells_how_full_a_limit_is_and_when_it_is_met() {
        let mut view = view(Some(4000), InForce::Flat);
        view.counts.series = Count { in_memory: 5000, owned: 3300 };
        let slope = Some(Slope { per_s: 0.05, over_s: 3600 });
        let row = Row::new(&view, &Trend { slope, ..Trend::default() });
        assert_eq!((row.used, row.headroom, row.used_percent), (3300, Some(700), Some(82.5)));
        assert_eq!(row.bar_class(), "warn");
        let time = &row.time_to_limit;
        assert_eq!((time.state, time.seconds), ("growing", Some(14_000)));
        assert_eq!((&*time.text, time.class), ("in 3 h 53 min", "bad"));
    }

    #[test]
    fn ranks_sort_as_the_page_does() {
        let order = [
            ToLimit::Reached,
            ToLimit::In(5),
            ToLimit::In(u64::MAX),
            ToLimit::Steady,
            ToLimit::Falling,
            ToLimit::Unknown,
            ToLimit::Unlimited,
        ];
        assert!(order.map(|to_limit| TimeToLimit::new(to_limit).rank).is_sorted());
    }

    #[test]
    fn a_limit_that_admits_nothing_has_no_share() {
        assert_eq!(percent(5, 0), None);
        assert_eq!(percent(10_000, 4_000), Some(250.0));
        assert_eq!([0.0, 80.0, 90.0].map(|share| bar_class(Some(share))), ["good", "warn", "bad"]);
    }
}
