//! How well we do ourselves: who answers late himself must not accuse others in haste.

/// A score from 0 (well) to below its bound; probes take one interval more per point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awareness {
    score: u32,
    max: u32,
}

impl Awareness {
    pub fn new(max: u32) -> Self {
        Self { score: 0, max }
    }

    pub fn score(self) -> u32 {
        self.score
    }

    pub fn improve(&mut self) {
        self.score = self.score.saturating_sub(1);
    }

    pub fn worsen(&mut self, points: u32) {
        self.score = self.score.saturating_add(points).min(self.max.saturating_sub(1));
    }

    pub fn stretch(self, span_ms: u64) -> u64 {
        span_ms.saturating_mul(u64::from(self.score) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_stays_within_its_bounds() {
        let mut awareness = Awareness::new(8);
        awareness.improve();
        assert_eq!(awareness.score(), 0);
        awareness.worsen(3);
        assert_eq!((awareness.score(), awareness.stretch(5_000)), (3, 20_000));
        awareness.worsen(u32::MAX);
        assert_eq!(awareness.score(), 7);
        awareness.improve();
        assert_eq!(awareness.score(), 6);
        let mut unaware = Awareness::new(0);
        unaware.worsen(1);
        assert_eq!(unaware.stretch(10), 10);
    }
}
