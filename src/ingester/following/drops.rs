//! Which of our series the upstream has dropped: worked out from their times, checked by counting.

use super::tenant::Way;
use crate::series::{Candidate, Fate, SeriesStore, Tick};

/// Drops what `way` says is gone; how many.
pub(super) fn take(series: &SeriesStore, way: Way) -> u64 {
    let fate = |candidate: &Candidate| match keeps(way, candidate) {
        true => Fate::Keep,
        false => Fate::Drop,
    };
    series.purge_where(fate, |_| {})
}

/// The way that leaves fewest series, of those that leave at least `at_least` and take any.
pub(super) fn supported(
    series: &SeriesStore,
    ways: [Option<Way>; 2],
    at_least: u64,
) -> Option<Way> {
    let mut all = 0_u64;
    let mut left = [0_u64; 2];
    series.survey(|candidate| {
        all += 1;
        for (way, left) in ways.iter().zip(&mut left) {
            let stays = way.is_none_or(|way| candidate.held || keeps(way, candidate));
            *left += u64::from(stays);
        }
    });
    let fitting = ways.into_iter().zip(left).filter_map(|(way, left)| Some((way?, left)));
    fitting
        .filter(|&(_, left)| left >= at_least && left < all)
        .min_by_key(|&(_, left)| left)
        .map(|(way, _)| way)
}

fn keeps(way: Way, candidate: &Candidate) -> bool {
    match way {
        Way::Cut { before_ms, unknown_until_ms } => {
            candidate.newest_ms.unwrap_or(unknown_until_ms) >= before_ms
        }
        Way::Emptied { since } => candidate.touched >= Tick::new(since.steady_s()),
    }
}
