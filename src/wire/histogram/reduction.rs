//! A histogram in half its resolution, and how long it is on the wire.
//!
//! Of an exponential schema, each step down makes buckets twice as wide, so that two neighbours
//! become one. Steps are taken one at a time: sums of doubles depend on their order, and this is
//! Prometheus' order.

use super::{Count, Histogram, Span, fields::zigzag};
use crate::wire::writer::varint_len;

impl Histogram {
    /// Takes one step down in resolution. The histogram has been found valid, and its buckets
    /// are exponential.
    pub fn halve_resolution(&mut self) {
        if self.is_float() {
            let add = |a: f64, b: f64| a + b;
            merge(&mut self.positive_spans, &mut self.positive_counts, add);
            merge(&mut self.negative_spans, &mut self.negative_counts, add);
        } else {
            halve_deltas(&mut self.positive_spans, &mut self.positive_deltas);
            halve_deltas(&mut self.negative_spans, &mut self.negative_deltas);
        }
        self.schema -= 1;
    }

    /// Leaves what Cortex sends on of a histogram that it has changed: the buckets of its kind,
    /// both counts, and no start timestamp.
    pub fn keep_one_kind(&mut self) {
        if self.is_float() {
            self.zero_count = Some(Count::Float(self.zero_count_float()));
            self.positive_deltas.clear();
            self.negative_deltas.clear();
        } else {
            self.count = Some(Count::Int(self.count_int()));
            self.zero_count = Some(Count::Int(self.zero_count_int()));
            self.positive_counts.clear();
            self.negative_counts.clear();
        }
        self.start_timestamp_ms = 0;
    }

    /// Buckets of its kind with an entry of their own, without the zero bucket.
    pub fn bucket_entries(&self) -> usize {
        if self.is_float() {
            self.positive_counts.len() + self.negative_counts.len()
        } else {
            self.positive_deltas.len() + self.negative_deltas.len()
        }
    }

    /// Bytes of the message as Cortex writes it, which is what its limit is about. A negative
    /// zero is none there.
    pub fn cortex_len(&self) -> usize {
        let doubles = [self.sum, self.zero_threshold].into_iter().filter(|v| *v != 0.0).count() * 9;
        let counts = count_len(self.count) + count_len(self.zero_count);
        let spans = self.negative_spans.iter().chain(&self.positive_spans).map(span_len);
        counts
            + doubles
            + integer_len(1, zigzag(self.schema.into()))
            + spans.sum::<usize>()
            + deltas_len(&self.negative_deltas)
            + deltas_len(&self.positive_deltas)
            + packed_len(1, self.negative_counts.len() * 8)
            + packed_len(1, self.positive_counts.len() * 8)
            + integer_len(1, i64::from(self.reset_hint) as u64)
            + integer_len(1, self.timestamp_ms as u64)
            + packed_len(2, self.custom_values.len() * 8)
            + integer_len(2, self.start_timestamp_ms as u64)
    }
}

/// Deltas as counts, merged, and back.
fn halve_deltas(spans: &mut Vec<Span>, deltas: &mut Vec<i64>) {
    let mut count = 0_i64;
    for delta in deltas.iter_mut() {
        count = count.wrapping_add(*delta);
        *delta = count;
    }
    merge(spans, deltas, i64::wrapping_add);
    let mut last = 0_i64;
    for count in deltas.iter_mut() {
        let this = *count;
        *count = this.wrapping_sub(last);
        last = this;
    }
}

/// Puts the counts of the buckets that `spans` place into buckets of twice the width.
fn merge<T: Copy>(spans: &mut Vec<Span>, counts: &mut Vec<T>, add: impl Fn(T, T) -> T) {
    let mut merged_spans: Vec<Span> = Vec::with_capacity(spans.len());
    let mut merged = 0;
    let mut read = 0;
    let mut bucket = 0_i32;
    let mut last = 0_i32;
    for span in spans.iter() {
        bucket = bucket.wrapping_add(span.offset);
        for _ in 0..span.length {
            // Spans and counts agree in a valid histogram.
            let Some(&count) = counts.get(read) else { break };
            read += 1;
            let target = (bucket.wrapping_sub(1) >> 1) + 1;
            bucket = bucket.wrapping_add(1);
            match merged_spans.last_mut() {
                Some(_) if target == last => {
                    counts[merged - 1] = add(counts[merged - 1], count);
                    continue;
                }
                Some(span) if target == last.wrapping_add(1) => span.length += 1,
                Some(_) => {
                    let offset = target.wrapping_sub(last).wrapping_sub(1);
                    merged_spans.push(Span { offset, length: 1 });
                }
                None => merged_spans.push(Span { offset: target, length: 1 }),
            }
            counts[merged] = count;
            merged += 1;
            last = target;
        }
    }
    counts.truncate(merged);
    *spans = merged_spans;
}

fn count_len(count: Option<Count>) -> usize {
    match count {
        Some(Count::Int(count)) => 1 + varint_len(count) as usize,
        Some(Count::Float(_)) => 9,
        None => 0,
    }
}

fn span_len(span: &Span) -> usize {
    let inner = integer_len(1, zigzag(span.offset.into())) + integer_len(1, span.length.into());
    1 + varint_len(inner as u64) as usize + inner
}

fn deltas_len(deltas: &[i64]) -> usize {
    packed_len(1, deltas.iter().map(|delta| varint_len(zigzag(*delta)) as usize).sum())
}

/// A field of packed elements, whose tag takes `tag` bytes; none without elements.
fn packed_len(tag: usize, content: usize) -> usize {
    if content == 0 { 0 } else { tag + varint_len(content as u64) as usize + content }
}

fn integer_len(tag: usize, value: u64) -> usize {
    if value == 0 { 0 } else { tag + varint_len(value) as usize }
}
