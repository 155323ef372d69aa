//! Log lines of refused requests, which are themselves limited.
//!
//! Each kind of refusal has a bucket of lines, so that a flood of one kind neither fills the log
//! nor hides another; a line says how many of its kind were not told before it.

use std::sync::PoisonError;

use crate::clock::Now;
use crate::ratelimit::LogLines;
use crate::sync::Mutex;
use crate::tenant::TenantId;

/// Kinds of refusals that have lines of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    Instance,
    Rate,
    Histograms,
    Invalid,
    Sink,
}

const KINDS: usize = Kind::Sink as usize + 1;

/// One refusal, as it is told.
#[derive(Clone, Copy)]
pub struct Refusal<'a> {
    pub kind: Kind,
    pub tenant: &'a TenantId,
    pub reason: &'a str,
    /// What the sender is told; it holds the numbers.
    pub text: &'a str,
    pub request_id: &'a str,
}

#[derive(Default)]
pub struct RefusalLog(Mutex<[LogLines; KINDS]>);

impl RefusalLog {
    /// Tells of a refusal, if its kind has a line left.
    pub fn tell(&self, refusal: Refusal<'_>, now: Now) {
        let Some(untold) = self.may_tell(refusal.kind, now) else { return };
        tracing::warn!(
            tenant = refusal.tenant.as_str(),
            reason = refusal.reason,
            error = LogLines::cut(refusal.text),
            request_id = refusal.request_id,
            untold,
            "write refused"
        );
    }

    /// Takes a line, and gives the number of refusals since the last one of the kind.
    fn may_tell(&self, kind: Kind, now: Now) -> Option<u64> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kinds[kind as usize].take(now.steady_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_kind_is_counted_and_hides_no_other() {
        let log = RefusalLog::default();
        let at = |steady_s: i64| Now { unix_ms: 0, steady_ns: steady_s * 1_000_000_000 };
        let told = (0..1000).filter(|_| log.may_tell(Kind::Rate, at(1)).is_some()).count();
        assert_eq!(told, 10);
        assert_eq!(log.may_tell(Kind::Sink, at(1)), Some(0));
        assert_eq!(log.may_tell(Kind::Rate, at(2)), Some(990));
        assert_eq!(log.may_tell(Kind::Rate, at(2)), None);
    }
}
