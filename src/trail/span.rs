//! Spans under way, and the decision which requests have any.
//!
//! A span that is recorded ends with its last clone and goes to a queue; one that the queue has no
//! place for is counted and gone. Whether a trace is recorded is decided once, by its first hop:
//! who is told one way or the other goes along, and tells the next hop the same.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::context::{Context, Forms, Header, SpanId, TraceId};
use crate::clock::Clock;
use crate::exposition::Counter;

/// Spans that wait to be sent, or are being sent again. At most 24 notes of 256 bytes each they are
/// 13 MiB; usually half a kilobyte each. Two seconds at a thousand spans a second, which is how
/// long a collector may be away before spans are lost.
pub const SPANS_QUEUED_MAX: usize = 2048;
/// Notes on one span; we write a dozen. A further one is not kept, and counted on the span.
const NOTES_MAX: usize = 24;
/// Longest text of a note, in bytes: the beginning of a refusal's text says which it is.
const TEXT_BYTES_MAX: usize = 256;

/// Which traces that begin here are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Of the 2⁶³ that 63 bits of a trace's id may be; the same traces as OpenTelemetry's
    /// samplers pick, whoever of several asks.
    below: u64,
}

/// Begins spans. Cheap to clone; the default begins none.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Inner>>);

struct Inner {
    clock: Clock,
    sampling: Sampling,
    queue: mpsc::Sender<Ended>,
    counts: Arc<SpanCounts>,
}

/// What became of spans.
#[derive(Debug, Default)]
pub struct SpanCounts {
    /// The collector has them.
    pub sent: Counter,
    /// No place in the queue.
    pub queue_full: Counter,
    /// The collector did not take them in the time there is.
    pub unsent: Counter,
    /// The collector says that it did not want them.
    pub rejected: Counter,
}

/// A step of a request on which time is spent. All clones are the same span.
#[derive(Clone, Default)]
pub struct Span(State);

#[derive(Clone, Default)]
enum State {
    /// Nobody traces, or the caller has no trace and headers go on as they came.
    #[default]
    Off,
    /// Not recorded, as the next hop is told.
    Told(Arc<Context>),
    Open(Arc<Open>),
}

/// What kind of step it is, in OpenTelemetry's sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Internal,
    /// A request that came in.
    Server,
    /// One that went out.
    Client,
}

/// A span that is recorded.
struct Open {
    tracer: Arc<Inner>,
    /// The trace, and this span of it.
    context: Context,
    parent: Option<SpanId>,
    kind: Kind,
    name: &'static str,
    began_ns: i64,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    kept: Vec<(&'static str, Note)>,
    left_out: u32,
    failure: Option<Box<str>>,
}

/// A value on a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Note {
    Text(Box<str>),
    Number(u64),
}

/// A span that is over.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) state: Option<Arc<str>>,
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    /// By the process' steady clock.
    pub(super) began_ns: i64,
    pub(super) ended_ns: i64,
    pub(super) notes: Vec<(&'static str, Note)>,
    pub(super) notes_left_out: u32,
    /// Why the step failed, if it did.
    pub(super) failure: Option<Box<str>>,
}

impl Sampling {
    /// A part of all traces; 1 and more is all of them.
    pub fn of_ratio(ratio: f64) -> Self {
        const ALL: u64 = 1 << 63;
        // A ratio that is no number is none: the conversion makes it 0.
        Self { below: if ratio >= 1.0 { ALL } else { (ratio * ALL as f64) as u64 } }
    }

    fn picks(self, trace: TraceId) -> bool {
        // The lowest 64 bits but one.
        (trace.bits() as u64) >> 1 < self.below
    }
}

impl Tracer {
    /// A tracer, and where its spans come out at the end.
    pub(super) fn new(
        clock: Clock,
        sampling: Sampling,
        counts: Arc<SpanCounts>,
    ) -> (Self, mpsc::Receiver<Ended>) {
        let (queue, ended) = mpsc::channel(SPANS_QUEUED_MAX);
        (Self(Some(Arc::new(Inner { clock, sampling, queue, counts }))), ended)
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps nobody from ending.
    pub(super) fn weak_queue(&self) -> Option<mpsc::WeakSender<Ended>> {
        self.0.as_ref().map(|inner| inner.queue.downgrade())
    }

    /// The span over a request that came in. `header` gives the first header of a name.
    pub fn begin<'a>(
        &self,
        name: &'static str,
        header: impl Fn(&'static str) -> Option<&'a [u8]>,
    ) -> Span {
        let Some(tracer) = &self.0 else { return Span::default() };
        let (came, parent) = match Context::read(header) {
            Some(context) => {
                let caller = context.span;
                (context, Some(caller))
            }
            None => (tracer.first_context(), None),
        };
        match came.is_sampled {
            true => tracer.open(Kind::Server, name, came, parent),
            false => Span(State::Told(Arc::new(came))),
        }
    }

    /// The span over one message of a stream that `caller` has opened.
    ///
    /// A stream goes on for days with thousands of messages a second, and its opener has decided
    /// once. So of the messages of a recorded one as large a part is recorded as of traces that
    /// begin here, and of a stream without a trace that part begins traces of its own.
    pub fn begin_message(&self, name: &'static str, caller: Option<&Context>) -> Span {
        let Some(tracer) = &self.0 else { return Span::default() };
        let (from, parent) = match caller {
            None => (tracer.first_context(), None),
            Some(caller) if tracer.sampling.picks(random_trace()) => {
                (caller.clone(), Some(caller.span))
            }
            Some(_) => return Span::default(),
        };
        match from.is_sampled {
            true => tracer.open(Kind::Server, name, from, parent),
            // Messages carry no headers, so there is nobody to tell.
            false => Span::default(),
        }
    }
}

impl Inner {
    /// Of a trace that begins here.
    fn first_context(&self) -> Context {
        let trace = random_trace();
        Context {
            trace,
            span: random_span(),
            is_sampled: self.sampling.picks(trace),
            forms: Forms { w3c: true, jaeger: false },
            state: None,
        }
    }

    fn open(
        self: &Arc<Self>,
        kind: Kind,
        name: &'static str,
        from: Context,
        parent: Option<SpanId>,
    ) -> Span {
        Span(State::Open(Arc::new(Open {
            tracer: Arc::clone(self),
            context: Context { span: random_span(), ..from },
            parent,
            kind,
            name,
            began_ns: self.clock.steady_ns(),
            notes: Mutex::default(),
        })))
    }
}

fn random_trace() -> TraceId {
    // One in 2¹²⁸ is tried again.
    std::iter::repeat_with(rand::random).find_map(TraceId::new).expect("endless")
}

fn random_span() -> SpanId {
    std::iter::repeat_with(rand::random).find_map(SpanId::new).expect("endless")
}

impl Span {
    /// A step of this one that waits for something. It may outlast it.
    pub fn child(&self, kind: Kind, name: &'static str) -> Self {
        match &self.0 {
            State::Off => Self::default(),
            State::Told(context) => Self(State::Told(Arc::clone(context))),
            State::Open(open) => {
                let context = open.context.clone();
                let parent = context.span;
                open.tracer.open(kind, name, context, Some(parent))
            }
        }
    }

    /// The headers that tell the next hop of this span; none where nobody traces.
    pub fn headers(&self) -> impl Iterator<Item = Header> + '_ {
        let context = match &self.0 {
            State::Off => None,
            State::Told(context) => Some(&**context),
            State::Open(open) => Some(&open.context),
        };
        context.into_iter().flat_map(Context::headers)
    }

    /// Notes a number; to one that is there it is added.
    pub fn count(&self, key: &'static str, number: u64) {
        self.note(key, |before| match before {
            Some(Note::Number(before)) => Note::Number(before.saturating_add(number)),
            _ => Note::Number(number),
        });
    }

    /// Notes a text, or its beginning, in place of one that is there.
    pub fn text(&self, key: &'static str, text: &str) {
        self.note(key, |_| Note::Text(cut(text)));
    }

    /// The step has failed; the first reason stays.
    pub fn fail(&self, why: &str) {
        if let State::Open(open) = &self.0 {
            open.notes().failure.get_or_insert_with(|| cut(why));
        }
    }

    /// The trace that this span will be found in.
    pub fn recorded_in(&self) -> Option<TraceId> {
        match &self.0 {
            State::Open(open) => Some(open.context.trace),
            State::Off | State::Told(_) => None,
        }
    }

    pub fn is_recorded(&self) -> bool {
        matches!(self.0, State::Open(_))
    }

    /// Makes a note only where it is kept, one for each key.
    fn note(&self, key: &'static str, make: impl FnOnce(Option<&Note>) -> Note) {
        let State::Open(open) = &self.0 else { return };
        let mut notes = open.notes();
        let Notes { kept, left_out, .. } = &mut *notes;
        if let Some((_, note)) = kept.iter_mut().find(|(other, _)| *other == key) {
            *note = make(Some(note));
        } else if kept.len() < NOTES_MAX {
            kept.push((key, make(None)));
        } else {
            *left_out = left_out.saturating_add(1);
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Off => f.write_str("Off"),
            State::Told(context) => write!(f, "Told({})", context.trace),
            State::Open(open) => write!(f, "Open({}, {})", open.context.trace, open.context.span),
        }
    }
}

impl Open {
    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Notes { kept, left_out, failure } = std::mem::take(&mut *self.notes());
        let ended = Ended {
            trace: self.context.trace,
            span: self.context.span,
            parent: self.parent,
            state: self.context.state.take(),
            kind: self.kind,
            name: self.name,
            began_ns: self.began_ns,
            ended_ns: self.tracer.clock.steady_ns(),
            notes: kept,
            notes_left_out: left_out,
            failure,
        };
        if self.tracer.queue.try_send(ended).is_err() {
            self.tracer.counts.queue_full.add(1);
        }
    }
}

fn cut(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAME: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn tracer(ratio: f64) -> (Tracer, mpsc::Receiver<Ended>, Arc<SpanCounts>) {
        let counts = Arc::new(SpanCounts::default());
        let made = Tracer::new(Clock::start(), Sampling::of_ratio(ratio), Arc::clone(&counts));
        (made.0, made.1, counts)
    }

    fn with_parent(name: &'static str) -> Option<&'static [u8]> {
        (name == "traceparent").then_some(CAME)
    }

    fn without(_: &'static str) -> Option<&'static [u8]> {
        None
    }

    #[test]
    fn off_begins_nothing_and_tells_nobody() {
        let span = Tracer::default().begin("write", with_parent);
        assert!(!span.is_recorded() && span.headers().next().is_none());
        assert!(span.child(Kind::Client, "call").headers().next().is_none());
    }

    #[test]
    fn a_span_ends_with_its_last_clone_and_children_belong_to_it() {
        let (tracer, mut ended, _) = tracer(0.0);
        let span = tracer.begin("write", with_parent);
        let clone = span.clone();
        span.count("a", 7);
        span.fail("first");
        span.fail("second");
        let child = span.child(Kind::Client, "call");
        let told: Vec<_> = child.headers().collect();
        drop(span);
        assert!(ended.try_recv().is_err());
        clone.text("b", &"ä".repeat(TEXT_BYTES_MAX));
        drop(clone);
        let parent = ended.try_recv().expect("it is over");
        drop(child);
        let child = ended.try_recv().expect("it is over, after its parent");
        assert_eq!(parent.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.parent.expect("the caller").to_string(), "b7ad6b7169203331");
        assert_eq!(parent.failure.as_deref(), Some("first"));
        let half = Note::Text("ä".repeat(TEXT_BYTES_MAX / 2).into());
        assert_eq!(parent.notes, [("a", Note::Number(7)), ("b", half)]);
        assert_eq!((child.trace, child.parent), (parent.trace, Some(parent.span)));
        assert!(parent.began_ns <= child.began_ns && parent.ended_ns <= child.ended_ns);
        let expect = format!("00-{}-{}-01", child.trace, child.span);
        assert_eq!(told, [("traceparent", expect)]);
    }

    #[test]
    fn who_begins_a_trace_decides_and_the_next_hop_hears_it() {
        let (none, mut ended, _) = tracer(0.0);
        let span = none.begin("write", without);
        let headers: Vec<_> = span.child(Kind::Client, "call").headers().collect();
        assert!(headers[0].1.ends_with("-00"), "{headers:?}");
        drop(span);
        assert!(ended.try_recv().is_err());
        let (all, mut ended, _) = tracer(1.0);
        drop(all.begin("write", without));
        assert_eq!(ended.try_recv().expect("recorded").parent, None);
        let told = |name: &'static str| (name == "uber-trace-id").then_some(&b"1:2:0:0"[..]);
        let span = all.begin("write", told);
        assert!(!span.is_recorded(), "the caller has decided");
        let headers: Vec<_> = span.headers().collect();
        let expect = format!("{:032x}:{:016x}:0:0", 1, 2);
        assert_eq!(headers, [("uber-trace-id", expect)]);
    }

    #[test]
    fn a_ratio_picks_its_part_of_the_traces() {
        let picked = |ratio| {
            let sampling = Sampling::of_ratio(ratio);
            let ids = (1..=1000_u128).map(|n| n * (u128::from(u64::MAX) / 1000));
            ids.filter_map(TraceId::new).filter(|id| sampling.picks(*id)).count()
        };
        assert_eq!([picked(-1.0), picked(0.0), picked(f64::NAN)], [0, 0, 0]);
        assert_eq!([picked(1.0), picked(7.0)], [1000, 1000]);
        assert!((249..=251).contains(&picked(0.25)), "{}", picked(0.25));
    }

    #[test]
    fn what_finds_no_place_is_counted_and_nothing_waits() {
        let (tracer, mut ended, counts) = tracer(1.0);
        for _ in 0..SPANS_QUEUED_MAX + 5 {
            drop(tracer.begin("write", without));
        }
        assert_eq!(counts.queue_full.get(), 5);
        let mut kept = 0;
        while ended.try_recv().is_ok() {
            kept += 1;
        }
        assert_eq!(kept, SPANS_QUEUED_MAX);
        drop(ended);
        drop(tracer.begin("write", without));
        assert_eq!(counts.queue_full.get(), 6, "nobody sends any more");
    }

    #[test]
    fn a_key_has_one_value() {
        let (tracer, mut ended, _) = tracer(1.0);
        let span = tracer.begin("write", without);
        span.count("n", 3);
        span.text("t", "a");
        span.count("n", 4);
        span.text("t", "b");
        drop(span);
        let ended = ended.try_recv().expect("it is over");
        assert_eq!(ended.notes, [("n", Note::Number(7)), ("t", Note::Text("b".into()))]);
    }

    #[test]
    fn notes_are_bounded() {
        let (tracer, mut ended, _) = tracer(1.0);
        let span = tracer.begin("write", without);
        let keys: Vec<&'static str> = (0..100).map(|n| &*n.to_string().leak()).collect();
        keys.iter().for_each(|key| span.count(key, 1));
        drop(span);
        let ended = ended.try_recv().expect("it is over");
        assert_eq!((ended.notes.len(), ended.notes_left_out), (NOTES_MAX, 76));
    }
}
