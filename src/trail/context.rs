//! Which trace a request belongs to, as its headers say it: W3C's `traceparent` and `tracestate`,
//! and Jaeger's `uber-trace-id`.
//!
//! A request may bring both; then W3C's counts, and both are told to the next hop, so that whoever
//! reads only one of them sees the same trace. What cannot be read is as if it were not there: a
//! trace is never a reason to refuse anything.

use std::fmt;
use std::sync::Arc;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
const UBER_TRACE_ID: &str = "uber-trace-id";

/// Longest `tracestate` that is told on: what W3C asks everybody to carry. A longer one ends here.
const STATE_BYTES_MAX: usize = 512;
/// `00-` trace `-` parent `-` flags.
const TRACEPARENT_LEN: usize = 55;
/// Jaeger's word in the flags for "whatever the ratio is".
const JAEGER_DEBUG: u128 = 2;
const SAMPLED: u128 = 1;

/// A trace; never 0. Shown as 32 digits, as it is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// A span of a trace; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

/// Ways to name a trace in headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    pub w3c: bool,
    pub jaeger: bool,
}

/// One trace and, of it, the span of whoever called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: TraceId,
    pub span: SpanId,
    /// Whether it is recorded, as the first hop has decided.
    pub is_sampled: bool,
    /// How it came, and so how it goes on.
    pub forms: Forms,
    /// What tracing systems tell each other beside it; nobody here reads it.
    pub state: Option<Arc<str>>,
}

/// A header to be set.
pub type Header = (&'static str, String);

impl Context {
    /// Reads the first header of each name, as `header` gives it; `None` without one that is sound.
    pub fn read<'a>(header: impl Fn(&'static str) -> Option<&'a [u8]>) -> Option<Self> {
        let w3c = header(TRACEPARENT).and_then(traceparent);
        let jaeger = header(UBER_TRACE_ID).and_then(uber_trace_id);
        let forms = Forms { w3c: w3c.is_some(), jaeger: jaeger.is_some() };
        let (trace, span, is_sampled) = w3c.or(jaeger)?;
        let state = header(TRACESTATE).filter(|_| forms.w3c).and_then(state);
        Some(Self { trace, span, is_sampled, forms, state })
    }

    /// The headers that say the same to the next hop.
    pub fn headers(&self) -> impl Iterator<Item = Header> + '_ {
        let (trace, span, flags) = (self.trace, self.span, u8::from(self.is_sampled));
        let w3c = self.forms.w3c.then(|| (TRACEPARENT, format!("00-{trace}-{span}-{flags:02x}")));
        // The parent's place is deprecated there, and 0.
        let jaeger =
            self.forms.jaeger.then(|| (UBER_TRACE_ID, format!("{trace}:{span}:0:{flags:x}")));
        let state = self.state.as_ref().map(|state| (TRACESTATE, state.to_string()));
        w3c.into_iter().chain(state).chain(jaeger)
    }
}

impl TraceId {
    pub fn new(bits: u128) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }

    pub fn bits(self) -> u128 {
        self.0
    }
}

impl SpanId {
    pub fn new(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }

    pub fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

type Read = (TraceId, SpanId, bool);

/// A version that is not known yet begins as this one does; `ff` will never be one.
fn traceparent(value: &[u8]) -> Option<Read> {
    let (known, rest) = value.split_at_checked(TRACEPARENT_LEN)?;
    let mut parts = known.split(|byte| *byte == b'-');
    let mut part = |len: usize| {
        let part = parts.next().filter(|part| part.len() == len)?;
        let is_lower = part.iter().all(|byte| !byte.is_ascii_uppercase());
        digits(part).filter(|_| is_lower)
    };
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let may_go_on = version != 0 && rest.starts_with(b"-");
    if version == 0xff || !(rest.is_empty() || may_go_on) {
        return None;
    }
    read(trace, span, flags & SAMPLED != 0)
}

/// `trace:span:parent:flags`, without leading zeros; some clients escape the colons.
fn uber_trace_id(value: &[u8]) -> Option<Read> {
    let text = std::str::from_utf8(value).ok()?;
    let text = text.replace("%3A", ":").replace("%3a", ":");
    let mut parts = text.split(':');
    let mut part = |len_max: usize| {
        let part = parts.next().filter(|part| (1..=len_max).contains(&part.len()))?;
        digits(part.as_bytes())
    };
    let (trace, span, _parent, flags) = (part(32)?, part(16)?, part(16)?, part(2)?);
    if parts.next().is_some() {
        return None;
    }
    read(trace, span, flags & (SAMPLED | JAEGER_DEBUG) != 0)
}

fn read(trace: u128, span: u128, is_sampled: bool) -> Option<Read> {
    Some((TraceId::new(trace)?, SpanId::new(u64::try_from(span).ok()?)?, is_sampled))
}

fn state(value: &[u8]) -> Option<Arc<str>> {
    let is_short = (1..=STATE_BYTES_MAX).contains(&value.len());
    let is_text = value.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    std::str::from_utf8(value).ok().filter(|_| is_short && is_text).map(Arc::from)
}

/// Not more than 32 of them.
fn digits(text: &[u8]) -> Option<u128> {
    text.iter().try_fold(0, |number: u128, byte| {
        Some(number << 4 | u128::from(char::from(*byte).to_digit(16)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn context(headers: &[(&str, &str)]) -> Option<Context> {
        Context::read(|name| {
            headers.iter().find(|(one, _)| *one == name).map(|(_, value)| value.as_bytes())
        })
    }

    fn told(context: &Context) -> Vec<(&'static str, String)> {
        context.headers().collect()
    }

    #[test]
    fn what_came_goes_on_in_the_form_in_which_it_came() {
        let w3c = format!("00-{TRACE}-{SPAN}-01");
        let jaeger = format!("{TRACE}:{SPAN}:0:1");
        let both = [("traceparent", w3c.as_str()), ("uber-trace-id", jaeger.as_str())];
        for headers in [&both[..1], &both[1..], &both[..]] {
            let context = context(headers).expect("sound");
            assert_eq!(
                (context.trace.to_string(), context.span.to_string()),
                (TRACE.into(), SPAN.into())
            );
            assert!(context.is_sampled);
            let told = told(&context);
            let told: Vec<_> = told.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(told, headers);
        }
        let with_state = [both[0], ("tracestate", "a=1,b=2")];
        assert_eq!(told(&context(&with_state).expect("sound")).len(), 2);
        let lone_state = [both[1], ("tracestate", "a=1")];
        assert_eq!(told(&context(&lone_state).expect("sound")).len(), 1, "W3C's alone");
        let long = "a".repeat(STATE_BYTES_MAX + 1);
        assert_eq!(told(&context(&[both[0], ("tracestate", &long)]).expect("sound")).len(), 1);
    }

    #[test]
    fn w3c_counts_where_two_forms_differ() {
        let w3c = format!("00-{TRACE}-{SPAN}-00");
        let context = context(&[("traceparent", &w3c), ("uber-trace-id", "1:2:0:1")]);
        let context = context.expect("sound");
        assert_eq!((context.trace.to_string(), context.is_sampled), (TRACE.into(), false));
        assert_eq!(told(&context)[1].1, format!("{TRACE}:{SPAN}:0:0"));
    }

    #[test]
    fn a_traceparent_is_read_as_its_standard_says() {
        let check = |value: String, expect: Option<bool>| {
            let read = context(&[("traceparent", &value)]);
            assert_eq!(read.map(|context| context.is_sampled), expect, "{value}");
        };
        check(format!("00-{TRACE}-{SPAN}-01"), Some(true));
        check(format!("00-{TRACE}-{SPAN}-00"), Some(false));
        check(format!("00-{TRACE}-{SPAN}-03"), Some(true));
        check(format!("00-{TRACE}-{SPAN}-02"), Some(false));
        check(format!("01-{TRACE}-{SPAN}-01-more"), Some(true));
        check(format!("01-{TRACE}-{SPAN}-01"), Some(true));
        check(format!("01-{TRACE}-{SPAN}-01.more"), None);
        check(format!("00-{TRACE}-{SPAN}-01-more"), None);
        check(format!("ff-{TRACE}-{SPAN}-01"), None);
        check(format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None);
        check(format!("00-{}-{SPAN}-01", "0".repeat(32)), None);
        check(format!("00-{TRACE}-{}-01", "0".repeat(16)), None);
        check(format!("00-{TRACE}-{SPAN}-0"), None);
        check(format!("00-{TRACE}-{SPAN}-0x"), None);
        check(format!("00{TRACE}{SPAN}01-----"), None);
        check(format!("00-{TRACE}-{SPAN}-0ä"), None);
        check(String::new(), None);
    }

    #[test]
    fn a_jaeger_id_is_read_in_all_its_spellings() {
        let check = |value: &str, expect: Option<(u128, bool)>| {
            let read = context(&[("uber-trace-id", value)]);
            let read = read.map(|context| (context.trace.bits(), context.is_sampled));
            assert_eq!(read, expect, "{value}");
        };
        check("1f:2:0:1", Some((0x1f, true)));
        check("1f%3A2%3a0%3A0", Some((0x1f, false)));
        check("1F:2:3:2", Some((0x1f, true)));
        check("1f:2:0:d", Some((0x1f, true)));
        check("1f:2:0:8", Some((0x1f, false)));
        for bad in ["", ":::", "1f:2:0", "1f:2:0:1:1", "0:2:0:1", "1f:0:0:1", "x:2:0:1", "1f:2:0:"]
        {
            check(bad, None);
        }
        check(&format!("{}:2:0:1", "1".repeat(33)), None);
        check(&format!("1:{}:0:1", "1".repeat(17)), None);
    }
}
