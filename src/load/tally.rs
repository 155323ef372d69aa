//! What became of the requests.

use std::collections::BTreeMap;

use super::latency::Latencies;

/// Kinds of failure that are told apart; the rest is counted together. Kinds are statuses and
/// texts without their numbers and names, of which a server has a handful.
const KINDS_MAX: usize = 20;
/// Longest text of a kind; enough for the sentence that says why, with all its numbers.
const TEXT_CHARS_MAX: usize = 400;
/// A request that goes out so long after its time was late: more than a timer's grain, so the
/// lane was waiting for an answer.
pub const LATE_US: u64 = 10_000;

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 200 or OK: every sample was taken.
    Accepted,
    /// The server said no. Of a request with an invalid sample the others may have been taken.
    Refused { status: i32, text: String },
    /// No answer: whether anything was taken is not known.
    Unanswered { text: String },
}

/// Requests and their samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub requests: u64,
    pub samples: u64,
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub samples: u64,
    pub new_series: u64,
    pub bytes: u64,
    /// From when it was due, or was sent where nothing is due.
    pub latency_us: u64,
    /// From when it was due until it was sent.
    pub behind_us: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub accepted: Count,
    pub refused: Count,
    pub unanswered: Count,
    /// Of all of these.
    pub late_requests: u64,
    pub bytes: u64,
    /// Series that were in no request before.
    pub new_series: u64,
    pub latencies: Latencies,
    kinds: BTreeMap<Kind, Failures>,
    /// Of kinds beyond the first.
    pub others: Count,
}

/// Failures of one kind. Without an answer there is no status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    status: Option<i32>,
    text: String,
}

#[derive(Clone, Debug)]
struct Failures {
    count: Count,
    /// The first text, as it came.
    example: String,
}

/// A kind of failure, told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    pub status: Option<i32>,
    pub example: &'a str,
    pub count: Count,
}

impl Count {
    /// One request more.
    pub fn add(&mut self, samples: u64) {
        self.requests += 1;
        self.samples += samples;
    }

    /// One that was added before.
    pub fn take(&mut self, samples: u64) {
        self.requests -= 1;
        self.samples -= samples;
    }

    pub fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.samples += other.samples;
    }
}

impl Tally {
    pub fn add(&mut self, done: &Done, outcome: Outcome) {
        self.late_requests += u64::from(done.behind_us > LATE_US);
        self.bytes += done.bytes;
        self.new_series += done.new_series;
        self.latencies.add(done.latency_us);
        match outcome {
            Outcome::Accepted => self.accepted.add(done.samples),
            Outcome::Refused { status, text } => {
                self.refused.add(done.samples);
                self.note(Some(status), &text, done.samples);
            }
            Outcome::Unanswered { text } => {
                self.unanswered.add(done.samples);
                self.note(None, &text, done.samples);
            }
        }
    }

    /// What was under way when nobody waited any longer.
    pub fn give_up(&mut self, under_way: Count) {
        if under_way.requests > 0 {
            self.unanswered.merge(under_way);
            let text = "stopped before the answer came";
            self.count(Kind { status: None, text: text.to_owned() }, under_way, text);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.accepted.merge(other.accepted);
        self.refused.merge(other.refused);
        self.unanswered.merge(other.unanswered);
        self.late_requests += other.late_requests;
        self.bytes += other.bytes;
        self.new_series += other.new_series;
        self.latencies.merge(&other.latencies);
        self.others.merge(other.others);
        for (kind, failures) in &other.kinds {
            self.count(kind.clone(), failures.count, &failures.example);
        }
    }

    pub fn sent(&self) -> Count {
        let mut sent = self.accepted;
        sent.merge(self.refused);
        sent.merge(self.unanswered);
        sent
    }

    /// The commonest first.
    pub fn failures(&self) -> Vec<Failure<'_>> {
        let mut all: Vec<_> = self.kinds.iter().collect();
        all.sort_by_key(|(_, failures)| std::cmp::Reverse(failures.count.requests));
        all.into_iter()
            .map(|(kind, failures)| Failure {
                status: kind.status,
                example: &failures.example,
                count: failures.count,
            })
            .collect()
    }

    fn note(&mut self, status: Option<i32>, text: &str, samples: u64) {
        let example: String = text.trim().chars().take(TEXT_CHARS_MAX).collect();
        let kind = Kind { status, text: without_particulars(&example) };
        self.count(kind, Count { requests: 1, samples }, &example);
    }

    fn count(&mut self, kind: Kind, count: Count, example: &str) {
        if !self.kinds.contains_key(&kind) && self.kinds.len() == KINDS_MAX {
            self.others.merge(count);
            return;
        }
        let first = || Failures { count: Count::default(), example: example.to_owned() };
        self.kinds.entry(kind).or_insert_with(first).count.merge(count);
    }
}

/// A text without what differs between two failures of one kind: numbers, and what stands in
/// braces, brackets or quotes.
fn without_particulars(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut closing = None;
    for c in text.chars() {
        match closing {
            Some(close) if c == close => {
                kept.push(c);
                closing = None;
            }
            Some(_) => {}
            None if c.is_ascii_digit() => {
                if !kept.ends_with('#') {
                    kept.push('#');
                }
            }
            None => {
                kept.push(c);
                closing = match c {
                    '{' => Some('}'),
                    '[' => Some(']'),
                    '"' => Some('"'),
                    '`' => Some('`'),
                    _ => None,
                };
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(samples: u64) -> Done {
        Done { samples, new_series: 1, bytes: 10, latency_us: 7, behind_us: 0 }
    }

    fn refused(text: &str) -> Outcome {
        Outcome::Refused { status: 429, text: text.to_owned() }
    }

    #[test]
    fn every_request_is_told_under_one_outcome() {
        let mut tally = Tally::default();
        tally.add(&done(5), Outcome::Accepted);
        tally.add(&Done { behind_us: LATE_US + 1, ..done(3) }, refused("limit 10 (now 11)"));
        tally.add(&done(3), refused("limit 20 (now 21)\n"));
        tally.add(&done(2), Outcome::Unanswered { text: "gone".to_owned() });
        assert_eq!(tally.sent(), Count { requests: 4, samples: 13 });
        assert_eq!(tally.accepted, Count { requests: 1, samples: 5 });
        assert_eq!((tally.late_requests, tally.bytes, tally.new_series), (1, 40, 4));
        let expect = [
            Failure {
                status: Some(429),
                example: "limit 10 (now 11)",
                count: Count { requests: 2, samples: 6 },
            },
            Failure { status: None, example: "gone", count: Count { requests: 1, samples: 2 } },
        ];
        assert_eq!(tally.failures(), expect);
        let mut both = tally.clone();
        both.merge(&tally);
        assert_eq!(both.sent(), Count { requests: 8, samples: 26 });
        assert_eq!(both.failures()[0].count, Count { requests: 4, samples: 12 });
    }

    #[test]
    fn kinds_are_bounded_and_nothing_is_lost() {
        let mut tally = Tally::default();
        for number in 0..KINDS_MAX + 3 {
            let letters: String = std::iter::repeat_n('x', number + 1).collect();
            tally.add(&done(1), refused(&letters));
        }
        assert_eq!(tally.failures().len(), KINDS_MAX);
        assert_eq!(tally.others, Count { requests: 3, samples: 3 });
        tally.add(&done(1), refused("x"));
        assert_eq!(tally.others.requests, 3, "a known kind has its place");
        let long: String = std::iter::repeat_n('ä', 10_000).collect();
        let mut tally = Tally::default();
        tally.add(&done(1), refused(&long));
        assert_eq!(tally.failures()[0].example.chars().count(), TEXT_CHARS_MAX);
    }

    #[test]
    fn texts_that_differ_in_names_and_numbers_are_one_kind() {
        let check = |text: &str, expect: &str| assert_eq!(without_particulars(text), expect);
        check("limit 150000 of 2", "limit # of #");
        check("series {a=\"b\"} is full", "series {} is full");
        // What is hostile only makes one kind of more.
        check("series {a=\"b}\"} is full", "series {}\"");
        check("for metric `up`, \"x\"", "for metric ``, \"\"");
        check("an open {brace", "an open {");
    }
}
