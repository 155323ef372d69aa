//! Requests as senders make them, for every bench that needs some; included by path.
//!
//! Ten labels per series, 244 bytes of names and values, 304 bytes on the wire: the shape that
//! the bars are set for. The same seed gives the same bytes.
#![allow(dead_code, reason = "each bench uses its part")]

use freehold::wire::proto::cortexpb;
use prost::Message as _;

/// Names and lengths of values; `__name__` and `instance` tell series apart.
const LABELS: [(&str, usize); 10] = [
    ("__name__", 33),
    ("cluster", 14),
    ("container", 15),
    ("endpoint", 12),
    ("instance", 18),
    ("job", 16),
    ("le", 8),
    ("namespace", 15),
    ("pod", 29),
    ("service", 20),
];

/// Whether the bench has only to prove that it runs: `cargo bench` alone passes `--bench`.
pub fn is_test() -> bool {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    has("--test") || !has("--bench")
}

/// A row of numbers that looks random and is the same on every run.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Labels of the series with this number; different numbers give different series.
pub fn labels(number: u64) -> Vec<(String, String)> {
    LABELS
        .iter()
        .enumerate()
        .map(|(i, (name, len))| {
            let mut numbers = Numbers::new(number.wrapping_mul(31).wrapping_add(i as u64));
            // The number itself comes first where it fits, so that no two series are equal.
            let mut value = match *len {
                // A metric's name begins with a letter.
                _ if *name == "__name__" => format!("m{number:010}"),
                len if len >= 12 => format!("{number:010}"),
                _ => String::new(),
            };
            while value.len() < *len {
                value.push(char::from(b'a' + (numbers.next() % 26) as u8));
            }
            ((*name).to_owned(), value)
        })
        .collect()
}

/// A series with one float sample.
pub fn series(number: u64, timestamp_ms: i64) -> cortexpb::TimeSeries {
    let labels = labels(number)
        .into_iter()
        .map(|(name, value)| cortexpb::LabelPair { name: name.into(), value: value.into() })
        .collect();
    let sample =
        cortexpb::Sample { value: number as f64 + 0.5, timestamp_ms, start_timestamp_ms: 0 };
    cortexpb::TimeSeries { labels, samples: vec![sample], ..Default::default() }
}

/// Bytes of a `WriteRequest` with these series, as Cortex writes it.
pub fn request(numbers: impl IntoIterator<Item = u64>, timestamp_ms: i64) -> Vec<u8> {
    let timeseries = numbers.into_iter().map(|number| series(number, timestamp_ms)).collect();
    let r#ref = Some(cortexpb::MessageWithBufRef {});
    cortexpb::WriteRequest { timeseries, r#ref, ..Default::default() }.encode_to_vec()
}
