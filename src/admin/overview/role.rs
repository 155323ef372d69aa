//! How one part of the process is, in a word, a sentence, and since when.
//!
//! A role is read when a page is made. Since when it is as it is nobody keeps, so whoever looks at
//! all of them every few seconds remembers when a state was first seen.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::clock::Now;
use crate::go_text::Rfc3339Ms;

/// How a part is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    #[default]
    Good,
    /// It works, and somebody should look at it.
    Warn,
    /// It does not do its work, or lets through what it should not.
    Bad,
}

/// One part of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub name: &'static str,
    pub state: State,
    /// How it is, or why it is not well.
    pub says: String,
    /// The page with more of it.
    pub link: Option<&'static str>,
}

/// Reads a role; cheap, and without waiting for anybody.
pub type ReadRole = dyn Fn(Now) -> Role + Send + Sync;

/// All roles of a process, and since when each is as it is.
pub struct Roles {
    readers: Vec<Arc<ReadRole>>,
    seen: Mutex<Vec<Option<Seen>>>,
}

#[derive(Clone, Copy)]
struct Seen {
    state: State,
    since: Now,
}

/// A role as a page shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoleView {
    pub name: &'static str,
    pub state: State,
    pub says: String,
    pub link: Option<&'static str>,
    /// When this state was seen first, to some seconds.
    pub since: String,
    pub for_seconds: u64,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warn => "look",
            Self::Bad => "bad",
        }
    }

    /// Class of what is shown in it.
    pub fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

impl Role {
    pub fn good(name: &'static str, says: impl Into<String>) -> Self {
        Self { name, state: State::Good, says: says.into(), link: None }
    }

    pub fn warn(name: &'static str, says: impl Into<String>) -> Self {
        Self { state: State::Warn, ..Self::good(name, says) }
    }

    pub fn bad(name: &'static str, says: impl Into<String>) -> Self {
        Self { state: State::Bad, ..Self::good(name, says) }
    }

    pub fn at(self, link: &'static str) -> Self {
        Self { link: Some(link), ..self }
    }
}

impl Roles {
    pub fn new(readers: Vec<Arc<ReadRole>>) -> Self {
        let seen = Mutex::new(vec![None; readers.len()]);
        Self { readers, seen }
    }

    /// How each is now, in the order in which they were given.
    pub fn look(&self, now: Now) -> Vec<RoleView> {
        // Read before the lock: what is under it is then a few words.
        let roles: Vec<Role> = self.readers.iter().map(|read| read(now)).collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let view = |(role, seen): (Role, &mut Option<Seen>)| {
            let Role { name, state, says, link } = role;
            let as_before = seen.filter(|seen| seen.state == state);
            let since = as_before.unwrap_or(Seen { state, since: now }).since;
            *seen = Some(Seen { state, since });
            let for_ns = now.steady_ns.saturating_sub(since.steady_ns).max(0);
            RoleView {
                name,
                state,
                says,
                link,
                since: Rfc3339Ms(since.unix_ms).to_string(),
                for_seconds: for_ns.unsigned_abs() / 1_000_000_000,
            }
        };
        roles.into_iter().zip(seen.iter_mut()).map(view).collect()
    }
}

impl RoleView {
    /// For how long it is so, in the largest unit that says enough.
    pub fn lasts(&self) -> String {
        lasting(self.for_seconds)
    }
}

/// A time span as people say it: two units at most.
pub fn lasting(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, 1..10) => format!("{minutes} min {} s", seconds % 60),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        (_, _, _) => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicBool, Ordering};

    #[test]
    fn spans_of_time_are_said_in_two_units_at_most() {
        let check = |seconds, expect: &str| assert_eq!(lasting(seconds), expect);
        check(0, "0 s");
        check(59, "59 s");
        check(60, "1 min 0 s");
        check(599, "9 min 59 s");
        check(600, "10 min");
        check(3600, "1 h 0 min");
        check(86_399, "23 h 59 min");
        check(90_000, "1 d 1 h");
        check(u64::MAX, "213503982334601 d 7 h");
    }

    #[test]
    fn a_state_lasts_since_it_was_first_seen_whatever_is_said_of_it() {
        let is_bad = Arc::new(AtomicBool::new(false));
        let read = Arc::clone(&is_bad);
        let reader: Arc<ReadRole> = Arc::new(move |now: Now| {
            let says = format!("at {}", now.unix_ms);
            match read.load(Ordering::Relaxed) {
                true => Role::bad("it", says),
                false => Role::good("it", says).at("/it"),
            }
        });
        let roles = Roles::new(vec![reader]);
        let at = |s: i64| Now { unix_ms: s * 1000, steady_ns: s * 1_000_000_000 };
        let look = |s| {
            let role = roles.look(at(s)).remove(0);
            (role.state, role.for_seconds, role.link)
        };
        assert_eq!(look(5), (State::Good, 0, Some("/it")));
        assert_eq!(look(15), (State::Good, 10, Some("/it")));
        is_bad.store(true, Ordering::Relaxed);
        assert_eq!(look(20), (State::Bad, 0, None));
        assert_eq!(look(80), (State::Bad, 60, None));
        let view = roles.look(at(81)).remove(0);
        assert_eq!(
            (view.since.as_str(), view.lasts().as_str()),
            ("1970-01-01T00:00:20Z", "1 min 1 s")
        );
        is_bad.store(false, Ordering::Relaxed);
        assert_eq!(look(90).1, 0);
    }
}
