//! What a made-up series is called, and what its samples say: all from the seed.

use std::f64::consts::TAU;

use crate::labels::METRIC_NAME;

/// Values that a label takes over the series.
const LABEL_VALUES: u64 = 8;
/// Bits of a series' number that choose one; with 60 labels they are used more than once.
const LABEL_BITS: u32 = 3;
/// Last label by name, and the one that no two series share.
const SERIES_LABEL: &[u8] = b"series";
/// How long a wave of a gauge is.
const WAVE_S: f64 = 600.0;

/// What samples say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Rises by a step of the series' own each second.
    Counter,
    /// A wave of ten minutes around 50.
    Gauge,
    /// One number of the series' own.
    Constant,
}

/// Names of all series of a run.
#[derive(Debug)]
pub struct Naming {
    seed: u64,
    metrics: Vec<String>,
    /// Of each label beside the last: its name, and its values.
    labels: Vec<(String, Vec<String>)>,
}

/// One series: a number that no other of the run has, and its name as text.
#[derive(Debug)]
pub struct SeriesId {
    number: u64,
    /// The number in lower-case hex.
    text: [u8; 16],
    metric: usize,
}

impl Naming {
    /// `labels` counts all but the metric name, and is at least 1.
    pub fn new(seed: u64, metrics: u32, labels: u32) -> Self {
        let digits = metrics.saturating_sub(1).to_string().len();
        let label = |number: u32| {
            let values = (0..LABEL_VALUES).map(|value| format!("value-{number:02}-{value}"));
            (format!("label_{number:02}"), values.collect())
        };
        Self {
            seed: mixed(seed),
            metrics: (0..metrics).map(|number| format!("load_metric_{number:0digits$}")).collect(),
            labels: (1..labels).map(label).collect(),
        }
    }

    /// The series at a place in its generation.
    pub fn id(&self, place: u32, generation: u64) -> SeriesId {
        // One number for each place and generation, and the mixing keeps different ones apart.
        let number = mixed(u64::from(place) << 32 ^ (generation & 0xffff_ffff) ^ self.seed);
        let mut text = [0; 16];
        for (at, digit) in text.iter_mut().enumerate() {
            let nibble = (number >> (60 - 4 * at)) & 0xf;
            *digit = b"0123456789abcdef"[nibble as usize];
        }
        SeriesId { number, text, metric: place as usize % self.metrics.len() }
    }

    /// Its labels, by name.
    pub fn labels<'a>(
        &'a self,
        id: &'a SeriesId,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let metric = self.metrics[id.metric].as_bytes();
        let others = (0_u32..).zip(&self.labels).map(|(at, (name, values))| {
            let value = id.number.rotate_right(LABEL_BITS * at) % LABEL_VALUES;
            (name.as_bytes(), values[value as usize].as_bytes())
        });
        std::iter::once((METRIC_NAME, metric))
            .chain(others)
            .chain(std::iter::once((SERIES_LABEL, &id.text[..])))
    }
}

impl Values {
    pub fn at(self, id: &SeriesId, unix_ms: i64) -> f64 {
        let seconds = unix_ms as f64 / 1000.0;
        match self {
            Self::Counter => seconds.floor() * (1 + id.number % 100) as f64,
            Self::Gauge => {
                let phase = (id.number % 1000) as f64 / 1000.0;
                50.0 + 50.0 * ((seconds / WAVE_S + phase) * TAU).sin()
            }
            Self::Constant => (id.number % 1000) as f64,
        }
    }
}

/// Spreads numbers over all others, no two to one: the end of SplitMix64.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn text(naming: &Naming, place: u32, generation: u64) -> Vec<(String, String)> {
        let id = naming.id(place, generation);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
        naming.labels(&id).map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn a_seed_gives_the_same_names_and_another_one_others() {
        let naming = Naming::new(1, 100, 4);
        let labels = text(&naming, 7, 0);
        assert_eq!(labels, text(&Naming::new(1, 100, 4), 7, 0));
        assert_eq!(labels[0], ("__name__".to_owned(), "load_metric_07".to_owned()));
        assert_eq!(labels.len(), 5, "the metric name and four more");
        assert!(labels.is_sorted_by(|one, other| one.0 < other.0), "{labels:?}");
        assert_ne!(labels, text(&Naming::new(2, 100, 4), 7, 0));
    }

    #[test]
    fn no_two_series_share_a_name() {
        let naming = Naming::new(3, 10, 1);
        let places = (0..2000).flat_map(|place| (0..3).map(move |generation| (place, generation)));
        let names: BTreeSet<_> =
            places.map(|(place, generation)| text(&naming, place, generation)).collect();
        assert_eq!(names.len(), 6000);
    }

    #[test]
    fn values_do_as_their_pattern_says() {
        let id = Naming::new(1, 1, 1).id(0, 0);
        let step = Values::Counter.at(&id, 61_000) - Values::Counter.at(&id, 60_000);
        assert!((1.0..=100.0).contains(&step), "{step}");
        assert_eq!(Values::Constant.at(&id, 0), Values::Constant.at(&id, 60_000));
        for second in 0..600 {
            let value = Values::Gauge.at(&id, second * 1000);
            assert!((0.0..=100.0).contains(&value), "{value}");
        }
    }
}
