//! What budgets are called, and where on the ring a name lies.

use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_secret;

use crate::tenant::TENANT_ID_BYTES_MAX;

/// Longest client id in bytes that a key may hold; what is longer never gets past the edge.
const CLIENT_BYTES_MAX: usize = 256;
/// Length of the secret that names are hashed with, in bytes: what the hash mixes at most.
pub const KEY_SECRET_BYTES: usize = 192;

/// How many queries a client may try for each that its budget pays for.
///
/// Refreshed dashboards are answered from a cache nine times out of ten, and are not to be refused
/// for it; and a client that is never refused for what is free has to be stopped by something.
pub const TRIES_PER_QUERY: u64 = 10;

/// What a budget is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A tenant's own writes, over all of its clients; the key has no client.
    TenantWrites,
    ClientWrites,
    /// Queries that were not answered from a cache; what was is given back.
    ClientQueries,
    /// All queries, answered from a cache or not: [`TRIES_PER_QUERY`] times the rate and burst of
    /// the budget above it, of which nothing is ever given back.
    ClientQueryTries,
}

/// Which gates keep a budget: each sort is in a ring of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gates {
    /// The write gates, in the distributors' ring.
    #[default]
    Distributors,
    /// The query gates, in the query-frontends' ring.
    QueryFrontends,
}

/// Names one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    pub kind: Kind,
    pub tenant: &'a str,
    pub client: &'a str,
}

/// A key that is kept; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnedKey {
    pub kind: Kind,
    pub tenant: Arc<str>,
    pub client: Arc<str>,
}

/// Keyed hash of a key. Its upper half is the key's place on the ring, on which all gates must
/// agree, and so on the secret. Tables compare names too, or a hash that no other process can
/// know, so a collision mixes nobody's budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(pub u64);

/// Hashes keys.
#[derive(Clone)]
pub struct KeyHasher(Box<[u8; KEY_SECRET_BYTES]>);

impl KeyHasher {
    pub fn new(secret: [u8; KEY_SECRET_BYTES]) -> Self {
        Self(Box::new(secret))
    }

    /// Both names are hashed where they are: laid out one after the other they would have to be
    /// copied first, which takes longer than hashing them.
    #[inline]
    pub fn hash(&self, key: Key<'_>) -> KeyHash {
        let (tenant, client) = (key.tenant.as_bytes(), key.client.as_bytes());
        let tenant = &tenant[..tenant.len().min(TENANT_ID_BYTES_MAX)];
        let client = &client[..client.len().min(CLIENT_BYTES_MAX)];
        let hash = |bytes| xxh3_64_with_secret(bytes, &self.0[..]);
        let placed_as = key.kind.placed_as() as u64;
        let placed = mixed(mixed(hash(tenant) ^ placed_as).wrapping_add(hash(client)));
        KeyHash(placed ^ key.kind.apart())
    }
}

/// The same number of other bits: SplitMix64's last steps, in which each bit decides about all.
#[inline]
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl KeyHash {
    /// Where the key lies on the ring.
    #[inline]
    pub fn on_ring(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl Kind {
    /// What is spent of it is held until it is known whether it bought anything: many charges at
    /// once come back, and all of them whole.
    pub fn is_held(self) -> bool {
        match self {
            Self::ClientQueries => true,
            Self::TenantWrites | Self::ClientWrites | Self::ClientQueryTries => false,
        }
    }

    /// The kind that decides where on the ring it lies. A query is paid from two budgets of its
    /// client, and one gate is to keep both: two owners are two to wait for, and two to lose.
    fn placed_as(self) -> Self {
        match self {
            Self::ClientQueryTries => Self::ClientQueries,
            other => other,
        }
    }

    /// Bits below those of the ring that tell it from another kind in the same place.
    fn apart(self) -> u64 {
        match self {
            Self::ClientQueryTries => 0x9e37_79b9,
            Self::TenantWrites | Self::ClientWrites | Self::ClientQueries => 0,
        }
    }

    /// Who keeps budgets of this kind.
    pub fn gates(self) -> Gates {
        match self {
            Self::TenantWrites | Self::ClientWrites => Gates::Distributors,
            Self::ClientQueries | Self::ClientQueryTries => Gates::QueryFrontends,
        }
    }
}

impl Gates {
    /// As metrics and logs call them, after the service that each stands in front of.
    pub fn name(self) -> &'static str {
        match self {
            Self::Distributors => "distributor",
            Self::QueryFrontends => "query-frontend",
        }
    }
}

impl fmt::Display for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Key<'_> {
    pub fn to_owned(self) -> OwnedKey {
        OwnedKey { kind: self.kind, tenant: self.tenant.into(), client: self.client.into() }
    }
}

impl OwnedKey {
    pub fn as_key(&self) -> Key<'_> {
        Key { kind: self.kind, tenant: &self.tenant, client: &self.client }
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_anywhere_lie_elsewhere() {
        let hasher = KeyHasher::new(std::array::from_fn(|at| at as u8));
        let key = |kind, tenant, client| hasher.hash(Key { kind, tenant, client });
        let keys = [
            key(Kind::ClientWrites, "a", "b"),
            key(Kind::ClientQueries, "a", "b"),
            key(Kind::ClientQueryTries, "a", "b"),
            key(Kind::ClientWrites, "ab", ""),
            key(Kind::ClientWrites, "", "ab"),
            key(Kind::TenantWrites, "ab", ""),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        let places: std::collections::HashSet<_> = keys.iter().map(|key| key.on_ring()).collect();
        assert_eq!(places.len(), keys.len() - 1, "queries and tries of a client have one owner");
        assert_eq!(keys[1].on_ring(), keys[2].on_ring());
        let other = KeyHasher::new([7; KEY_SECRET_BYTES]);
        let key = Key { kind: Kind::ClientWrites, tenant: "a", client: "b" };
        assert_ne!(other.hash(key), keys[0], "the secret decides");
    }
}
