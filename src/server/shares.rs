//! Places of a listener that are few, and how those who come share them.
//!
//! Without it whoever holds all places and now and then sends a request keeps all others out, be it
//! by mistake: a script that opens connections and forgets them is enough.
//!
//! What must hold: an address never holds more than its part, and no connection outlasts its age
//! but to be answered; so a newcomer waits for the age of one connection at the most for each that
//! stands before it in the system's queue.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How places are shared.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// Connections that one address may hold; a further one is closed at once.
    pub of_one_address: usize,
    /// How old a connection gets: then it ends when its requests are answered.
    pub age_max: Duration,
}

/// Who holds how many places.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    sharing: Sharing,
    /// Locked for a look; addresses that hold nothing are not in it, so it is as long as there are
    /// places at the most.
    held: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One place of an address; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Shares,
    address: IpAddr,
}

impl Shares {
    pub(super) fn new(sharing: Sharing) -> Self {
        Self { sharing, held: Arc::default() }
    }

    pub(super) fn age_max(&self) -> Duration {
        self.sharing.age_max
    }

    /// A place, unless the address has its part already.
    pub(super) fn take(&self, address: IpAddr) -> Option<Share> {
        let address = address.to_canonical();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held.entry(address).or_default();
        if *count >= self.sharing.of_one_address {
            return None;
        }
        *count += 1;
        Some(Share { shares: self.clone(), address })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_part_and_leaves_nothing_behind() {
        let sharing = Sharing { of_one_address: 2, age_max: Duration::from_secs(1) };
        let shares = Shares::new(sharing);
        let take = |address: &str| shares.take(address.parse().expect("an address"));
        let first = take("10.0.0.1");
        let second = take("::ffff:10.0.0.1");
        assert!(first.is_some() && second.is_some());
        assert!(take("10.0.0.1").is_none(), "in whichever form it comes");
        let other = take("10.0.0.2");
        assert!(other.is_some());
        drop(first);
        let third = take("10.0.0.1");
        assert!(third.is_some());
        drop((second, third, other));
        assert!(shares.held.lock().expect("lock").is_empty());
    }
}
