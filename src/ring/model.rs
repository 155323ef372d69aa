//! What a ring is made of: members, their states, their tokens.
//!
//! This is the ring as its KV store holds it. Positions, owners and ownership are worked out
//! from it once, when a snapshot is built.

use std::collections::BTreeMap;
use std::fmt;

/// A point on the ring that an instance has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// Index of a token in a snapshot's sorted tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u32);

/// What an instance says of itself. The numbers are those of the stored form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum InstanceState {
    Active = 0,
    Leaving = 1,
    Pending = 2,
    Joining = 3,
    Left = 4,
    ReadOnly = 5,
}

impl InstanceState {
    /// Every state, in the order of the stored numbers.
    pub const ALL: [Self; 6] =
        [Self::Active, Self::Leaving, Self::Pending, Self::Joining, Self::Left, Self::ReadOnly];

    /// The state of a stored number; `None` for numbers that Cortex has not given out.
    pub fn from_number(number: i64) -> Option<Self> {
        usize::try_from(number).ok().and_then(|index| Self::ALL.get(index).copied())
    }

    /// The state of a name as Cortex writes it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Cortex's name, as on its `/ring` page and in its metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Leaving => "LEAVING",
            Self::Pending => "PENDING",
            Self::Joining => "JOINING",
            Self::Left => "LEFT",
            Self::ReadOnly => "READONLY",
        }
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A ring member as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Where it is reached; not its id.
    pub addr: String,
    /// Last heartbeat, Unix seconds.
    pub timestamp_s: i64,
    pub state: InstanceState,
    /// In the order they were stored; sorted only in a snapshot.
    pub tokens: Vec<Token>,
    /// Empty when the instance names no zone.
    pub zone: String,
    /// When it first registered, Unix seconds; 0 is unknown.
    pub registered_timestamp_s: i64,
    /// Fields of the stored form that we do not know, written back as they were.
    pub unknown_fields: Vec<u8>,
}

/// All members by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingModel {
    pub instances: BTreeMap<String, Instance>,
    /// Fields of the stored form that we do not know, written back as they were.
    pub unknown_fields: Vec<u8>,
}

/// The part of a stored member that may change without moving ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub id: String,
    pub addr: String,
    pub timestamp_s: i64,
    pub registered_timestamp_s: i64,
}

/// What one read of the stored ring brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingReading {
    Whole(RingModel),
    /// Members, zones, states and tokens are those of the last whole reading; one heartbeat for
    /// each member, sorted by id.
    Heartbeats(Vec<Heartbeat>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_keep_their_stored_numbers_and_names() {
        for (number, state) in InstanceState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, number);
            assert_eq!(InstanceState::from_number(number as i64), Some(state));
            assert_eq!(InstanceState::from_name(&state.to_string()), Some(state));
        }
        assert_eq!(InstanceState::from_number(6), None);
        assert_eq!(InstanceState::from_number(-1), None);
        assert_eq!(InstanceState::from_name("Active"), None);
    }
}
