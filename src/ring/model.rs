//! What a ring is made of: members, their states, their tokens.
//!
//! This is the ring as its KV store holds it. Positions, owners and ownership are worked out
//! from it once, when a snapshot is built.

use std::collections::BTreeMap;

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
    const ALL: [Self; 6] =
        [Self::Active, Self::Leaving, Self::Pending, Self::Joining, Self::Left, Self::ReadOnly];

    /// As Cortex writes it on pages, in texts and in labels.
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

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
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
