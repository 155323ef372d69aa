//! What befalls a world, and when.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::ring::Tokens;

/// Longest goodbye, as Cortex' `-memberlist.leave-timeout`.
pub const LEAVE_MS: u64 = 5_000;

/// Longest time for what is still to be told before that.
pub const LAST_WORDS_MS: u64 = 10_000;

/// An operator takes out who has been silent for so long; Cortex's `-ring.heartbeat-timeout`.
pub const FORGET_AFTER_MS: u64 = 60_000;

/// Longest pause between two lives.
pub const PAUSE_MAX_MS: u64 = 20_000;

#[derive(Clone, Debug)]
pub enum Fault {
    /// So much of all packets is lost, and they take up to so long, so that they overtake.
    Weather {
        loss: f64,
        delay_max_ms: u64,
        for_ms: u64,
    },
    /// Members whose number leaves no rest by `cut + 1` cannot reach the others.
    Partition {
        cut: u64,
        for_ms: u64,
    },
    /// Gone without a word, and back at another address under the same name.
    Restart {
        member: usize,
        is_graceful: bool,
    },
    /// Gone without a word, for good.
    Crash {
        member: usize,
    },
    Leave {
        member: usize,
    },
    /// Does nothing for a while; what arrives waits.
    Freeze {
        member: usize,
        for_ms: u64,
    },
    Newcomer,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub members: usize,
    pub faults: Vec<(u64, Fault)>,
    /// Clocks of members differ from the true time by up to so much.
    pub skew_max_ms: i64,
    pub tokens: Tokens,
}

impl Fault {
    fn lasts_ms(&self) -> u64 {
        match self {
            Self::Weather { for_ms, .. }
            | Self::Partition { for_ms, .. }
            | Self::Freeze { for_ms, .. } => *for_ms,
            // The goodbye, and the longest pause before the next life.
            Self::Restart { .. } => LAST_WORDS_MS + LEAVE_MS + PAUSE_MAX_MS,
            // It may be a kill, if it is frozen.
            Self::Leave { .. } | Self::Crash { .. } => FORGET_AFTER_MS,
            Self::Newcomer => 0,
        }
    }
}

impl Plan {
    pub fn quiet(seed: u64, members: usize) -> Self {
        let skew_max_ms = (seed % 3) as i64 * 2_000;
        Self { members, faults: Vec::new(), skew_max_ms, tokens: Tokens::FEW }
    }

    pub fn with_tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = tokens;
        self
    }

    pub fn any(seed: u64, members_max: usize) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x5eed);
        let members = rng.random_range(3..=members_max);
        Self::drawn(seed, members, rng)
    }

    /// The same among so many members.
    pub fn of(seed: u64, members: usize) -> Self {
        Self::drawn(seed, members, SmallRng::seed_from_u64(seed ^ 0x5eed))
    }

    /// How many there can be at a time.
    pub fn members_max(&self) -> usize {
        let newcomers = self.faults.iter().filter(|(_, fault)| matches!(fault, Fault::Newcomer));
        self.members + newcomers.count()
    }

    fn drawn(seed: u64, members: usize, mut rng: SmallRng) -> Self {
        let mut plan = Self::quiet(seed, members);
        let mut at_ms = 60_000;
        // The first two always stay, so that there is a cluster to agree.
        let mut leavers: Vec<usize> = (2..members).collect();
        for _ in 0..rng.random_range(3..9) {
            let member = rng.random_range(0..members);
            let fault = match rng.random_range(0..8) {
                0 => Fault::Weather {
                    loss: rng.random_range(0.05..0.5),
                    delay_max_ms: rng.random_range(50..3_000),
                    for_ms: rng.random_range(10_000..90_000),
                },
                1 => Fault::Partition {
                    cut: rng.random_range(1..4),
                    for_ms: rng.random_range(1_000..120_000),
                },
                2 | 3 => Fault::Restart { member, is_graceful: rng.random_bool(0.5) },
                4 if leavers.len() > 1 => {
                    let at = rng.random_range(0..leavers.len());
                    Fault::Crash { member: leavers.swap_remove(at) }
                }
                5 if leavers.len() > 1 => {
                    let at = rng.random_range(0..leavers.len());
                    Fault::Leave { member: leavers.swap_remove(at) }
                }
                6 => Fault::Newcomer,
                _ => Fault::Freeze { member, for_ms: rng.random_range(500..100_000) },
            };
            plan.faults.push((at_ms, fault));
            at_ms += rng.random_range(0..40_000);
        }
        plan
    }

    /// When the last of them is over.
    pub fn last_fault_ms(&self) -> u64 {
        self.faults.iter().map(|(at_ms, fault)| at_ms + fault.lasts_ms()).max().unwrap_or(0)
    }
}
