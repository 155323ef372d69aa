//! The rules of a label list.
//!
//! They are written twice: [`check_labels`] says what is wrong, in Cortex's order; [`fit`] only
//! whether nothing is, in one pass that hands each label on to the ring key, since that is what
//! nearly every series needs. A property test holds the two together.

use std::cmp::Ordering;

use super::{LabelRules, Violation};
use crate::labels::{Labels, METRIC_NAME};

/// Checks labels as they go to an ingester: without empty values and sorted, if all is well.
/// Returns their size, which is what Cortex's limit counts.
pub fn check_labels<'l>(
    labels: impl Iterator<Item = (&'l [u8], &'l [u8])> + Clone,
    rules: &LabelRules<'_>,
) -> Result<u64, Violation<'l>> {
    let limits = rules.limits;
    let count = labels.clone().count();
    if count as u64 > limits.max_label_names_per_series {
        let limit = limits.max_label_names_per_series;
        return Err(Violation::TooManyLabels { count, limit });
    }
    let mut last: &[u8] = &[];
    let mut bytes = 0;
    for (name, value) in labels {
        if !rules.names_are_checked && !rules.names.allows_label(name) {
            return Err(Violation::LabelNameInvalid(name));
        }
        if name.len() as u64 > limits.max_label_name_length {
            let limit = limits.max_label_name_length;
            return Err(Violation::LabelNameTooLong { name, limit });
        }
        if value.len() as u64 > limits.max_label_value_length {
            let limit = limits.max_label_value_length;
            return Err(Violation::LabelValueTooLong { name, value, limit });
        }
        match last.cmp(name) {
            Ordering::Less => {}
            Ordering::Equal => return Err(Violation::DuplicateName(name)),
            Ordering::Greater => return Err(Violation::NotSorted(name)),
        }
        last = name;
        bytes += text_field_len(name) + text_field_len(value);
    }
    let limit = limits.max_labels_size_bytes;
    if limit > 0 && bytes > limit {
        return Err(Violation::LabelsTooLarge { bytes, limit });
    }
    Ok(bytes)
}

/// Checks the metric's name, as it was received: `None` when no label is called `__name__`.
pub fn check_metric_name<'l>(
    name: Option<&'l [u8]>,
    rules: &LabelRules<'_>,
) -> Result<(), Violation<'l>> {
    match name {
        _ if !rules.limits.enforce_metric_name => Ok(()),
        None => Err(Violation::MetricNameMissing),
        Some(name) if !rules.names.allows_metric(name) => Err(Violation::MetricNameInvalid(name)),
        Some(_) => Ok(()),
    }
}

/// What is known of labels that may go on as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelsFit {
    pub count: u64,
    /// As [`check_labels`] has it.
    pub bytes: u64,
}

/// Whether labels break no rule and are sorted; they have no empty values in canonical form.
/// Labels are shown to `each` on the way, up to the first that is wrong or one too many, so that
/// what it keeps of them is bounded by the limits.
#[inline]
pub fn fit<'l>(
    labels: Labels<'l>,
    rules: &LabelRules<'_>,
    mut each: impl FnMut(&'l [u8], &'l [u8]),
) -> Option<LabelsFit> {
    let limits = rules.limits;
    let mut has_metric_name = false;
    let mut has_long_text = false;
    let mut last: &[u8] = &[];
    let mut count = 0_u64;
    let mut bytes = 0;
    let all_sound = labels.all(|name, value| {
        let mut is_sound = count < limits.max_label_names_per_series;
        is_sound &= rules.names_are_checked || rules.names.allows_label(name);
        is_sound &= name.len() as u64 <= limits.max_label_name_length;
        is_sound &= value.len() as u64 <= limits.max_label_value_length;
        is_sound &= precedes(last, name);
        if !has_metric_name && name == METRIC_NAME {
            has_metric_name = true;
            is_sound &= !limits.enforce_metric_name || rules.names.allows_metric(value);
        }
        if !is_sound {
            return false;
        }
        each(name, value);
        // A tag and a length of one byte each, which is nearly all there is.
        bytes += (4 + name.len() + value.len()) as u64;
        has_long_text |= name.len().max(value.len()) >= 0x80;
        last = name;
        count += 1;
        true
    });
    if !all_sound {
        return None;
    }
    if has_long_text {
        let sizes = labels.iter().map(|(name, value)| text_field_len(name) + text_field_len(value));
        bytes = sizes.sum();
    }
    let has_its_name = has_metric_name || !limits.enforce_metric_name;
    let is_small = limits.max_labels_size_bytes == 0 || bytes <= limits.max_labels_size_bytes;
    (has_its_name && is_small).then_some(LabelsFit { count, bytes })
}

/// `one < other`, settled by the first byte as for most neighbours in a sorted list.
#[inline]
fn precedes(one: &[u8], other: &[u8]) -> bool {
    match (one.first(), other.first()) {
        (Some(a), Some(b)) if a != b => a < b,
        _ => one < other,
    }
}

/// Length of a text as a field of a label's message; an empty one is left out.
fn text_field_len(text: &[u8]) -> u64 {
    match text.len() as u64 {
        0 => 0,
        len => 1 + u64::from((u64::BITS - len.leading_zeros()).div_ceil(7)) + len,
    }
}
