//! Limits per label set: which sets a series falls under, in configuration order.
//!
//! A set matches if the series has each of its labels with that value; an absent label has the
//! value "". The set without labels is the default partition: it takes the series that no other
//! set matches.
//!
//! Invariant: ids and hashes are unique, so at most one set is the default partition.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::Arc;

use fnv::{FnvHashSet, FnvHasher};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::reading;
use crate::labels::LabelSetText;

/// Most label sets of one tenant. Each created series is held against all of them, so this
/// bounds the cost of a creation to some microseconds; a list beyond it is refused.
pub const LABEL_SETS_MAX: usize = 4096;

/// Why a list of label sets is refused. The first text is Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelSetsError {
    #[error("duplicate per labelSet limits found. Make sure they are all unique")]
    Duplicate,
    #[error("{0} label sets are more than the most of {LABEL_SETS_MAX}")]
    TooMany(usize),
}

/// The label sets of one tenant; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSets {
    sets: Arc<[LabelSet]>,
    default_partition: Option<u16>,
}

/// One set of labels and the most series that may match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSet {
    /// The labels as Cortex prints them; label of metrics and part of texts.
    pub id: String,
    /// FNV-1a, 64 bit, of the id.
    pub hash: u64,
    /// Over the whole cluster, before replication; 0 counts without refusing, below 0 refuses all.
    pub max_series: i64,
    labels: BTreeMap<String, String>,
}

impl LabelSets {
    /// Takes sets in configuration order: labels, and the most series.
    pub fn new(sets: Vec<(BTreeMap<String, String>, i64)>) -> Result<Self, LabelSetsError> {
        if sets.len() > LABEL_SETS_MAX {
            return Err(LabelSetsError::TooMany(sets.len()));
        }
        let sets: Arc<[LabelSet]> = sets
            .into_iter()
            .map(|(labels, max_series)| LabelSet::new(labels, max_series))
            .collect();
        let mut hashes = FnvHashSet::default();
        if !sets.iter().all(|set| hashes.insert(set.hash)) {
            return Err(LabelSetsError::Duplicate);
        }
        let default_partition = sets.iter().position(|set| set.labels.is_empty());
        Ok(Self { sets, default_partition: default_partition.map(|i| i as u16) })
    }

    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// The sets in configuration order; a set is known by its index there.
    pub fn iter(&self) -> std::slice::Iter<'_, LabelSet> {
        self.sets.iter()
    }

    pub fn get(&self, index: u16) -> Option<&LabelSet> {
        self.sets.get(usize::from(index))
    }

    /// Puts the indexes of the sets that a series falls under into `matched`, in order.
    ///
    /// `label` gives the series' value of a label, empty when it has none. Nothing is allocated
    /// once `matched` has grown.
    pub fn matches<'l>(&self, label: impl Fn(&[u8]) -> &'l [u8], matched: &mut Vec<u16>) {
        matched.clear();
        for (i, set) in self.sets.iter().enumerate() {
            if !set.labels.is_empty() && set.holds(&label) {
                matched.push(i as u16);
            }
        }
        if matched.is_empty() {
            matched.extend(self.default_partition);
        }
    }
}

impl Default for LabelSets {
    fn default() -> Self {
        Self { sets: Arc::from([]), default_partition: None }
    }
}

impl LabelSet {
    fn new(labels: BTreeMap<String, String>, max_series: i64) -> Self {
        let bytes = labels.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let id = LabelSetText(bytes).to_string();
        let mut hasher = FnvHasher::default();
        hasher.write(id.as_bytes());
        Self { hash: hasher.finish(), id, max_series, labels }
    }

    fn holds<'l>(&self, label: impl Fn(&[u8]) -> &'l [u8]) -> bool {
        self.labels.iter().all(|(name, value)| label(name.as_bytes()) == value.as_bytes())
    }
}

/// A set as it stands in the configuration.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    limits: EntryLimits,
    #[serde(default)]
    label_set: BTreeMap<String, String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EntryLimits {
    #[serde(deserialize_with = "reading::whole")]
    max_series: i64,
}

impl<'de> Deserialize<'de> for LabelSets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Option::<Vec<Entry>>::deserialize(deserializer)?.unwrap_or_default();
        let sets = entries.into_iter().map(|entry| (entry.label_set, entry.limits.max_series));
        Self::new(sets.collect()).map_err(serde::de::Error::custom)
    }
}

impl Serialize for LabelSets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.sets.iter().map(|set| Entry {
            limits: EntryLimits { max_series: set.max_series },
            label_set: set.labels.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(labels: &[(&str, &str)], max_series: i64) -> (BTreeMap<String, String>, i64) {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        (labels.iter().map(owned).collect(), max_series)
    }

    fn matched(sets: &LabelSets, series: &[(&str, &str)]) -> Vec<u16> {
        let mut matched = vec![9];
        let label = |name: &[u8]| {
            let found = series.iter().find(|(known, _)| known.as_bytes() == name);
            found.map_or(&b""[..], |(_, value)| value.as_bytes())
        };
        sets.matches(label, &mut matched);
        matched
    }

    #[test]
    fn case_b18_only_unmatched_series_fall_under_the_default_partition() {
        let sets = LabelSets::new(vec![set(&[], 2), set(&[("job", "api")], 5)]).expect("unique");
        assert_eq!(matched(&sets, &[("job", "api")]), [1]);
        assert_eq!(matched(&sets, &[("job", "db")]), [0]);
        assert_eq!(matched(&sets, &[]), [0]);
    }

    #[test]
    fn an_absent_label_has_the_empty_value() {
        let sets =
            LabelSets::new(vec![set(&[("team", "")], 1), set(&[("job", "a")], 1)]).expect("unique");
        assert_eq!(matched(&sets, &[("job", "a")]), [0, 1]);
        assert_eq!(matched(&sets, &[("team", "x")]), [0; 0]);
    }

    #[test]
    fn ids_are_printed_as_prometheus_does() {
        let check = |labels: &[(&str, &str)], id: &str| {
            let sets = LabelSets::new(vec![set(labels, 0)]).expect("unique");
            assert_eq!(sets.get(0).expect("one set").id, id);
        };
        check(&[], "{}");
        check(&[("b", "2"), ("a", "q\"u\\o")], r#"{a="q\"u\\o", b="2"}"#);
        check(&[("a.b", "x"), ("9", "y")], r#"{"9"="y", "a.b"="x"}"#);
        check(&[("a", "\n\t\u{1}\u{7f}")], r#"{a="\n\t\x01\x7f"}"#);
        check(
            &[("a", "é\u{301}\u{200b}\u{e000}\u{10ffff}")],
            "{a=\"é\u{301}\\u200b\\ue000\\U0010ffff\"}",
        );
    }

    #[test]
    fn equal_sets_are_refused_with_the_known_text() {
        let error = LabelSets::new(vec![set(&[("a", "1")], 1), set(&[("a", "1")], 2)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "duplicate per labelSet limits found. Make sure they are all unique"
        );
    }

    #[test]
    fn more_sets_than_the_bound_are_refused() {
        let sets = (0..=LABEL_SETS_MAX).map(|i| set(&[("i", &i.to_string())], 1)).collect();
        assert_eq!(LabelSets::new(sets), Err(LabelSetsError::TooMany(LABEL_SETS_MAX + 1)));
    }
}
