//! What all pages of one listener have in common: where else one may go, how many are made at
//! once, and what a request that changes something has to show.
//!
//! A page opens its place when its route is made, so that nobody is led to one that is not there.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::writes::{Rule, Writes};

/// Pages made at once. A page of 600 members with their tokens takes some milliseconds and
/// megabytes, and operators are few; the rest waits in line.
const PAGES_AT_ONCE_MAX: usize = 4;
/// Nobody guesses one of 2^256.
const TOKEN_BYTES: usize = 32;

/// Where one may go, in the order in which it is offered: (path, words).
const PLACES: &[(&str, &str)] = &[
    ("/", "Overview"),
    ("/tenants", "Tenants"),
    ("/ring", "Ring"),
    ("/distributor/ring", "Write gates"),
    ("/query-frontend/ring", "Query gates"),
    ("/distributor/clients", "Writers"),
    ("/query-frontend/clients", "Readers"),
    ("/front-door", "Front door"),
    ("/explain", "Explain"),
    ("/ha-tracker", "Elections"),
    ("/memberlist", "Gossip"),
    ("/ingester/all_user_stats", "Statistics"),
    ("/services", "Services"),
    ("/config?mode=diff", "Configuration"),
    ("/runtime_config?mode=diff", "Runtime file"),
    ("/metrics", "Metrics"),
];
/// Texts of the process itself, which every listener has.
const ALWAYS: [&str; 3] = ["/config?mode=diff", "/runtime_config?mode=diff", "/metrics"];

/// One listener's pages; cheap to clone.
#[derive(Clone)]
pub struct Site {
    open: Arc<Mutex<BTreeSet<&'static str>>>,
    permits: Arc<Semaphore>,
    writes: Writes,
}

/// What surrounds a page.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    places: Vec<Place>,
    token: Arc<str>,
}

/// Where one may go from here.
#[derive(Clone, Debug)]
pub struct Place {
    pub path: &'static str,
    pub words: &'static str,
    pub is_here: bool,
}

impl Site {
    /// Pages of Cortex on the listener where Cortex has them: its scripts know of no token.
    pub fn of_http() -> Self {
        Self::new(Rule::AsCortex)
    }

    /// All pages, on a listener that is for operators alone.
    pub fn of_admin() -> Self {
        Self::new(Rule::Token)
    }

    fn new(rule: Rule) -> Self {
        Self {
            open: Arc::new(Mutex::new(ALWAYS.into())),
            permits: Arc::new(Semaphore::new(PAGES_AT_ONCE_MAX)),
            writes: Writes::new(rule, token()),
        }
    }

    /// Offers a path of `PLACES`; others are reached from those.
    pub(super) fn open(&self, path: &'static str) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
    }

    /// Around the page at `here`.
    pub(super) fn frame(&self, here: &str) -> Frame {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let places = PLACES.iter().filter(|(path, _)| open.contains(path));
        let place = |&(path, words): &(&'static str, &'static str)| Place {
            path,
            words,
            is_here: path == here,
        };
        Frame { places: places.map(place).collect(), token: self.writes.token() }
    }

    pub(super) fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.permits)
    }

    pub(super) fn writes(&self) -> &Writes {
        &self.writes
    }

    /// Whether pages that Cortex does not have are here.
    pub(super) fn is_for_operators(&self) -> bool {
        self.writes.rule() == Rule::Token
    }

    /// What forms of this listener carry, for those who read no forms.
    pub fn csrf_token(&self) -> Arc<str> {
        self.writes.token()
    }
}

impl Frame {
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// For the field `csrf` of a form that changes something.
    pub fn csrf(&self) -> &str {
        &self.token
    }

    pub fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}

/// Of this process, for as long as it lives: a page from before a restart is refused, and asks
/// to be loaded again.
fn token() -> Arc<str> {
    let mut bytes = [0u8; TOKEN_BYTES];
    rand::fill(&mut bytes);
    let mut text = String::with_capacity(2 * TOKEN_BYTES);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_open_places_are_offered_in_their_order() {
        let site = Site::of_admin();
        site.open("/ring");
        site.open("/");
        let frame = site.frame("/ring");
        let paths: Vec<_> = frame.places().iter().map(|place| place.path).collect();
        assert_eq!(
            paths,
            ["/", "/ring", "/config?mode=diff", "/runtime_config?mode=diff", "/metrics"]
        );
        let here: Vec<_> = frame.places().iter().filter(|place| place.is_here).collect();
        assert_eq!(here.len(), 1);
        assert_eq!(here[0].words, "Ring");
    }

    #[test]
    fn every_process_has_a_token_of_its_own() {
        assert_ne!(Site::of_admin().csrf_token(), Site::of_admin().csrf_token());
        assert_eq!(Site::of_admin().csrf_token().len(), 64);
    }
}
