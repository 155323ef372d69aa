//! How long a suspected peer has to refute it: the more peers suspect it, the shorter.
//!
//! A member that is slow itself suspects others without reason, and nobody confirms it; then the
//! suspect has long. Where others confirm, the time falls with the logarithm of their number.

use std::collections::HashMap;
use std::sync::Arc;

/// One peer under suspicion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    started_ms: u64,
    least_ms: u64,
    most_ms: u64,
    /// Confirmations that bring the time down to its least.
    wanted: usize,
    /// Who suspects, at most `wanted + 1`; the first one is who started it and confirms nothing.
    voices: Vec<String>,
}

/// All peers under suspicion: at most one entry per peer, so bounded as the peers are.
#[derive(Clone, Debug, Default)]
pub struct Suspicions {
    by_name: HashMap<Arc<str>, Suspicion>,
}

/// Least time under suspicion among `peers` peers.
pub fn least_ms(factor: u32, peers: usize, probe_interval_ms: u64) -> u64 {
    let scale = (peers.max(1) as f64).log10().max(1.0);
    // In thousandths, as memberlist counts it.
    u64::from(factor).saturating_mul((scale * 1000.0) as u64).saturating_mul(probe_interval_ms)
        / 1000
}

impl Suspicion {
    pub fn new(from: &str, wanted: usize, least_ms: u64, most_ms: u64, now_ms: u64) -> Self {
        Self { started_ms: now_ms, least_ms, most_ms, wanted, voices: vec![from.to_owned()] }
    }

    /// Another one suspects it too. Whether that is news, to be passed on.
    pub fn confirm(&mut self, from: &str) -> bool {
        let is_news =
            self.confirmations() < self.wanted && self.voices.iter().all(|voice| voice != from);
        if is_news {
            self.voices.push(from.to_owned());
        }
        is_news
    }

    pub fn deadline_ms(&self) -> u64 {
        self.started_ms.saturating_add(self.span_ms())
    }

    fn span_ms(&self) -> u64 {
        if self.wanted == 0 {
            return self.least_ms;
        }
        let part = (self.confirmations() as f64 + 1.0).ln() / (self.wanted as f64 + 1.0).ln();
        let cut = part * self.most_ms.saturating_sub(self.least_ms) as f64;
        ((self.most_ms as f64 - cut).floor() as u64).max(self.least_ms)
    }

    fn confirmations(&self) -> usize {
        self.voices.len() - 1
    }
}

impl Suspicions {
    pub fn start(&mut self, name: Arc<str>, suspicion: Suspicion) {
        self.by_name.insert(name, suspicion);
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Suspicion> {
        self.by_name.get_mut(name)
    }

    pub fn end(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// When the first of them is over. Looks at each, and there are few but in a partition.
    pub fn next_ms(&self) -> Option<u64> {
        self.by_name.values().map(Suspicion::deadline_ms).min()
    }

    /// Those that are over, by name, so that a run can be repeated.
    pub fn over(&self, now_ms: u64) -> Vec<Arc<str>> {
        let is_over = |suspicion: &Suspicion| suspicion.deadline_ms() <= now_ms;
        let mut over: Vec<Arc<str>> = self
            .by_name
            .iter()
            .filter(|(_, suspicion)| is_over(suspicion))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        over.sort_unstable();
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_time_grows_with_the_cluster() {
        let check = |peers, expected| assert_eq!(least_ms(4, peers, 5_000), expected, "{peers}");
        check(0, 20_000);
        check(1, 20_000);
        check(10, 20_000);
        check(50, 33_960);
        check(100, 40_000);
        check(600, 55_560);
        check(1000, 60_000);
    }

    #[test]
    fn confirmations_shorten_the_time_to_its_least() {
        let mut suspicion = Suspicion::new("a", 3, 2_000, 30_000, 1_000);
        assert_eq!(suspicion.deadline_ms(), 31_000);
        assert!(!suspicion.confirm("a"), "who started it does not confirm it");
        assert!(suspicion.confirm("b"));
        // log 2 / log 4 is a half.
        assert_eq!(suspicion.deadline_ms(), 17_000);
        assert!(!suspicion.confirm("b"), "twice the same voice is one voice");
        assert!(suspicion.confirm("c"));
        assert_eq!(suspicion.deadline_ms(), 8_810);
        assert!(suspicion.confirm("d"));
        assert_eq!(suspicion.deadline_ms(), 3_000);
        assert!(!suspicion.confirm("e"), "what changes nothing is not passed on");
    }

    #[test]
    fn without_anybody_to_confirm_the_time_is_the_least() {
        let mut suspicion = Suspicion::new("a", 0, 2_000, 30_000, 0);
        assert_eq!(suspicion.deadline_ms(), 2_000);
        assert!(!suspicion.confirm("b"));
    }

    #[test]
    fn those_over_are_told_in_order_and_once_ended_no_more() {
        let mut suspicions = Suspicions::default();
        assert_eq!(suspicions.next_ms(), None);
        for (name, most) in [("z", 10), ("b", 10), ("c", 50)] {
            suspicions.start(name.into(), Suspicion::new("x", 1, 1, most, 0));
        }
        assert_eq!(suspicions.next_ms(), Some(10));
        assert_eq!(suspicions.over(9), Vec::<Arc<str>>::new());
        assert_eq!(suspicions.over(10), ["b".into(), "z".into()]);
        suspicions.end("b");
        suspicions.end("z");
        assert_eq!((suspicions.count(), suspicions.next_ms()), (1, Some(50)));
    }
}
