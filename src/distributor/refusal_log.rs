//! Log lines of refused and of slow requests, which are themselves limited.
//!
//! Each kind of refusal has a bucket of lines, so that a flood of one kind neither fills the log
//! nor hides another; a line says how many of its kind were not told before it. A client stands
//! here and in no metric, since there may be any number of them.

use std::sync::PoisonError;
use std::time::Duration;

use crate::clock::Now;
use crate::ratelimit::LogLines;
use crate::sync::Mutex;
use crate::tenant::{ClientId, TenantId};
use crate::trail::Trail;

/// Requests that take longer are slow: ingesters have as long by default, so one of them at least
/// has not answered in time.
const SLOW_AFTER: Duration = Duration::from_secs(2);

/// Kinds of refusals that have lines of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    Instance,
    Rate,
    Histograms,
    Invalid,
    Sink,
    /// Refused or not, it took long.
    Slow,
}

const KINDS: usize = Kind::Slow as usize + 1;

/// Whose request it is, as it is told.
#[derive(Clone, Copy)]
pub struct Sender<'a> {
    pub tenant: &'a TenantId,
    pub client: Option<&'a ClientId>,
    pub trail: &'a Trail,
}

/// One refusal, as it is told.
#[derive(Clone, Copy)]
pub struct Refusal<'a> {
    pub kind: Kind,
    pub sender: Sender<'a>,
    pub reason: &'a str,
    /// What the sender is told; it holds the numbers.
    pub text: &'a str,
}

#[derive(Default)]
pub struct RefusalLog(Mutex<[LogLines; KINDS]>);

impl RefusalLog {
    /// Tells of a refusal, if its kind has a line left.
    pub fn tell(&self, refusal: Refusal<'_>, now: Now) {
        let Some(untold) = self.may_tell(refusal.kind, now) else { return };
        let Sender { tenant, client, trail } = refusal.sender;
        tracing::warn!(
            tenant = tenant.as_str(),
            client = client.map(ClientId::as_str),
            reason = refusal.reason,
            error = LogLines::cut(refusal.text),
            request_id = trail.id(),
            trace_id = trail.trace_id().map(tracing::field::display),
            untold,
            "write refused"
        );
    }

    /// Tells of a request that began at `began` and is answered now, if it was slow.
    pub fn tell_slow(&self, sender: Sender<'_>, began: Now, now: Now) {
        let took_ns = now.steady_ns.saturating_sub(began.steady_ns);
        let took = Duration::from_nanos(u64::try_from(took_ns).unwrap_or_default());
        if took <= SLOW_AFTER {
            return;
        }
        let Some(untold) = self.may_tell(Kind::Slow, now) else { return };
        tracing::warn!(
            tenant = sender.tenant.as_str(),
            client = sender.client.map(ClientId::as_str),
            took_ms = took.as_millis() as u64,
            request_id = sender.trail.id(),
            trace_id = sender.trail.trace_id().map(tracing::field::display),
            untold,
            "slow write"
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
    use crate::telemetry::testing::logged;
    use crate::trail::RequestId;

    fn at(steady_s: i64) -> Now {
        Now { unix_ms: 0, steady_ns: steady_s * 1_000_000_000 }
    }

    #[test]
    fn a_flood_of_one_kind_is_counted_and_hides_no_other() {
        let log = RefusalLog::default();
        let told = (0..1000).filter(|_| log.may_tell(Kind::Rate, at(1)).is_some()).count();
        assert_eq!(told, 10);
        assert_eq!(log.may_tell(Kind::Sink, at(1)), Some(0));
        assert_eq!(log.may_tell(Kind::Rate, at(2)), Some(990));
        assert_eq!(log.may_tell(Kind::Rate, at(2)), None);
    }

    #[test]
    fn a_refused_and_a_slow_write_are_told_with_their_client_and_without_one_as_before() {
        let tenant = TenantId::parse("a").expect("a tenant");
        let client = ClientId::parse("writer 7").expect("a client");
        let told = |client| {
            let trail = Trail { request_id: RequestId::parse(b"r"), ..Trail::default() };
            let sender = Sender { tenant: &tenant, client, trail: &trail };
            let log = RefusalLog::default();
            let lines = logged(|| {
                log.tell(Refusal { kind: Kind::Rate, sender, reason: "why", text: "text" }, at(9));
                log.tell_slow(sender, at(7), at(9));
                log.tell_slow(sender, at(6), at(9));
            });
            assert_eq!(lines.len(), 2, "two seconds are not slow yet: {lines:?}");
            lines
        };
        let lines = told(Some(&client));
        assert_eq!(
            (&lines[0]["message"], &lines[0]["reason"]),
            (&"write refused".into(), &"why".into())
        );
        assert_eq!(
            (&lines[1]["message"], &lines[1]["took_ms"]),
            (&"slow write".into(), &3000.into())
        );
        for line in lines {
            assert_eq!((&line["tenant"], &line["client"]), (&"a".into(), &"writer 7".into()));
            assert_eq!((&line["request_id"], line.get("trace_id")), (&"r".into(), None));
        }
        assert!(told(None).iter().all(|line| line.get("client").is_none()));
    }

    #[test]
    fn a_refusal_that_the_docs_list_is_told_by_its_id() {
        let tenant = TenantId::parse("a").expect("a tenant");
        let trail = Trail::default();
        let sender = Sender { tenant: &tenant, client: None, trail: &trail };
        let text = "ingestion rate limit (5) exceeded while adding 8 samples and 0 metadata";
        let refusal = Refusal { kind: Kind::Rate, sender, reason: "rate_limited", text };
        let lines = logged(|| RefusalLog::default().tell(refusal, at(9)));
        assert_eq!(lines[0]["error_id"], "tenant-rate", "{lines:?}");
    }
}
