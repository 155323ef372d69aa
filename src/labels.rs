//! Label sets as bytes: canonical form, identity, ring keys.
//!
//! The canonical form of a label set is the protobuf encoding that every sender of the field
//! produces: per label `0a len (0a len name 12 len value)`, shortest lengths, name before value,
//! a name left out when it is empty, no label with an empty value. Senders put a series' labels
//! next to each other, so nearly always the canonical form is a slice of the received request
//! and one hash call covers it.
//!
//! Invariant: two label lists have the same canonical bytes iff they are equal after labels with
//! an empty value are left out. The order of the list is kept: a list in another order is another
//! series here, as it is for Cortex, whose ingesters refuse lists that are not sorted.

use std::fmt;

use crate::keys::RingKey;

mod names;
mod text;

pub use names::NameScheme;
pub use text::{LabelSetText, write_quoted};

/// Name of the label that holds the metric's name.
pub const METRIC_NAME: &[u8] = b"__name__";

/// A label set in canonical form. Names and values are bytes; nothing promises UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Labels<'a> {
    /// Takes bytes that are in canonical form already, because this program made them.
    ///
    /// Bytes that are not give a shorter or another label set, never a panic.
    pub fn from_canonical(bytes: &'a [u8]) -> Self {
        debug_assert_eq!(canonical_prefix(bytes), bytes.len(), "labels not in canonical form");
        Self(bytes)
    }

    /// Takes bytes from elsewhere if they are in canonical form to the last one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        (canonical_prefix(bytes) == bytes.len()).then_some(Self(bytes))
    }

    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(self) -> LabelIter<'a> {
        LabelIter(self.0)
    }

    /// Shows each label, up to the first to which `show` says no. Whether it got to the end.
    ///
    /// For loops that every push takes: an iterator keeps a place that this one need not.
    #[inline]
    pub fn all(self, mut show: impl FnMut(&'a [u8], &'a [u8]) -> bool) -> bool {
        let mut rest = self.0;
        loop {
            // As in `canonical_prefix`: lengths of one byte are read here, others out of line.
            let (name, value, after) = if let [LABEL_TAG, len @ 0..=0x7f, tail @ ..] = rest
                && let Some((label, after)) = tail.split_at_checked((*len).into())
                && let [NAME_TAG, name_len @ 1..=0x7f, label @ ..] = label
                && let Some((name, [VALUE_TAG, 0..=0x7f, value @ ..])) =
                    label.split_at_checked((*name_len).into())
            {
                (name, value, after)
            } else {
                let mut labels = LabelIter(rest);
                let Some((name, value)) = labels.next() else {
                    return true;
                };
                (name, value, labels.0)
            };
            if !show(name, value) {
                return false;
            }
            rest = after;
        }
    }

    pub fn get(self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter().find(|(label, _)| *label == name).map(|(_, value)| value)
    }

    /// The metric's name, empty when the series has none.
    pub fn metric_name(self) -> &'a [u8] {
        self.get(METRIC_NAME).unwrap_or_default()
    }

    /// Whether no name is smaller than the one before it. Equal names are in order.
    pub fn is_sorted(self) -> bool {
        self.iter().is_sorted_by(|(before, _), (name, _)| before <= name)
    }

    /// The first name that is also its successor's; finds every duplicate of a sorted list.
    pub fn duplicate_name(self) -> Option<&'a [u8]> {
        let successors = self.iter().skip(1);
        self.iter().zip(successors).find(|((a, _), (b, _))| a == b).map(|((name, _), _)| name)
    }

    /// Cortex's 64-bit hash of a label set: names and values, each followed by `0xff`.
    ///
    /// Different label sets share it now and then, so it identifies nothing.
    pub fn hash64(self) -> u64 {
        let mut hasher = xxhash_rust::xxh64::Xxh64::new(0);
        for (name, value) in self.iter() {
            for part in [name, &[0xff], value, &[0xff]] {
                hasher.update(part);
            }
        }
        hasher.digest()
    }
}

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LabelSetText(self.iter()).fmt(f)
    }
}

impl fmt::Debug for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'a> IntoIterator for Labels<'a> {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = LabelIter<'a>;

    fn into_iter(self) -> LabelIter<'a> {
        self.iter()
    }
}

/// Names and values of a label set, in its order.
#[derive(Clone, Debug)]
pub struct LabelIter<'a>(&'a [u8]);

impl<'a> Iterator for LabelIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (_, rest) = self.0.split_first()?;
        let (label, rest) = split_counted(rest)?;
        self.0 = rest;
        let (name, label) = match label.split_first()? {
            (&NAME_TAG, label) => split_counted(label)?,
            _ => (&[][..], label),
        };
        let (value, _) = split_counted(label.get(1..)?)?;
        Some((name, value))
    }
}

/// Splits a length and as many bytes off the front.
#[inline]
fn split_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, width) = shortest_len(bytes, 0)?;
    bytes.get(width..)?.split_at_checked(len)
}

/// A label set in canonical form that owns its bytes; reused as scratch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelsBuf(Vec<u8>);

impl LabelsBuf {
    pub fn new() -> Self {
        Self::default()
    }

    /// The labels of `pairs`, in their order.
    pub fn from_pairs<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut labels = Self::new();
        for (name, value) in pairs {
            labels.push(name.as_ref(), value.as_ref());
        }
        labels
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends a label; one with an empty value is left out.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        push_canonical(&mut self.0, name, value);
    }

    pub fn as_labels(&self) -> Labels<'_> {
        Labels(&self.0)
    }
}

/// Brings a received label list into the form that Cortex's distributor hands on: labels with
/// an empty value go, then names are sorted unless they are in order already.
///
/// Labels of equal name keep their order. Cortex's sort does so up to twelve labels only; such
/// lists are refused by its validation, so nothing else depends on it.
pub fn prepare<N: AsRef<[u8]>, V: AsRef<[u8]>>(pairs: &mut Vec<(N, V)>) {
    pairs.retain(|(_, value)| !value.as_ref().is_empty());
    pairs.sort_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
}

const LABEL_TAG: u8 = 0x0a;
const NAME_TAG: u8 = 0x0a;
const VALUE_TAG: u8 = 0x12;

/// Appends one label in canonical form; one with an empty value adds nothing.
///
/// What is appended is never longer than any other legal encoding of the label.
pub(crate) fn push_canonical(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if value.is_empty() {
        return;
    }
    let field_len = |bytes: &[u8]| match bytes.len() {
        0 => 0,
        len => 1 + len_width(len) + len,
    };
    out.push(LABEL_TAG);
    push_len(out, field_len(name) + field_len(value));
    for (tag, bytes) in [(NAME_TAG, name), (VALUE_TAG, value)] {
        if !bytes.is_empty() {
            out.push(tag);
            push_len(out, bytes.len());
            out.extend_from_slice(bytes);
        }
    }
}

/// Length of the longest run of canonical labels that `bytes` start with.
///
/// The hot loop of a push. Labels whose lengths all fit one byte are checked here, others out
/// of line.
#[inline]
pub(crate) fn canonical_prefix(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        // The next label's place follows from this one's length alone, so that the checks of
        // several labels overlap.
        if let [LABEL_TAG, label_len, tail @ ..] = rest
            && *label_len < 0x80
            && let Some((label, after)) = tail.split_at_checked((*label_len).into())
            && let [NAME_TAG, name_len @ 1..=0x7f, label @ ..] = label
            && let Some([VALUE_TAG, value_len @ 1..=0x7f, value @ ..]) =
                label.get(usize::from(*name_len)..)
            && value.len() == usize::from(*value_len)
        {
            rest = after;
            continue;
        }
        let at = bytes.len() - rest.len();
        match canonical_label_end(bytes, at) {
            Some(end) => rest = &bytes[end..],
            None => return at,
        }
    }
}

/// End of the label at `at` if it is canonical; any lengths, name left out or not.
#[inline(never)]
fn canonical_label_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&LABEL_TAG) {
        return None;
    }
    let (label_len, width) = shortest_len(bytes, at + 1)?;
    let mut at = at + 1 + width;
    let label = bytes.get(..at.checked_add(label_len)?)?;
    if label.get(at) == Some(&NAME_TAG) {
        let (name_len, width) = shortest_len(label, at + 1)?;
        if name_len == 0 {
            return None;
        }
        at = (at + 1 + width).checked_add(name_len)?;
    }
    if label.get(at) != Some(&VALUE_TAG) {
        return None;
    }
    let (value_len, width) = shortest_len(label, at + 1)?;
    let end = (at + 1 + width).checked_add(value_len)?;
    (value_len != 0 && end == label.len()).then_some(end)
}

/// Bytes that a length can take: five hold 35 bits, and no message reaches 4 GiB.
const LEN_WIDTH_MAX: usize = 5;

/// The length at `at` and its width, unless it is cut or has needless bytes.
#[inline]
fn shortest_len(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut len = 0_usize;
    for (i, &byte) in bytes.get(at..)?.iter().take(LEN_WIDTH_MAX).enumerate() {
        len |= usize::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return (byte != 0 || i == 0).then_some((len, i + 1));
        }
    }
    None
}

fn len_width(len: usize) -> usize {
    let bits = usize::BITS - (len | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

fn push_len(out: &mut Vec<u8>, mut len: usize) {
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
}

/// 128-bit hash of a series' canonical labels under a secret; stands for the series.
///
/// Two series of one tenant share an identity with probability 2^-128 per pair, and without the
/// secret nobody can aim for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub u128);

/// Length of the secret, the least that the hash takes.
pub const IDENTITY_SECRET_BYTES: usize = 192;

/// Computes identities under one secret.
pub struct IdentityHasher {
    secret: Box<[u8; IDENTITY_SECRET_BYTES]>,
}

impl IdentityHasher {
    pub fn new(secret: [u8; IDENTITY_SECRET_BYTES]) -> Self {
        Self { secret: Box::new(secret) }
    }

    #[inline]
    pub fn identity(&self, labels: Labels<'_>) -> Identity {
        Identity(xxhash_rust::xxh3::xxh3_128_with_secret(labels.0, &*self.secret))
    }
}

const FNV_OFFSET: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

/// FNV-1 (multiply, then xor), 32 bit: the hash of Cortex's ring keys.
#[inline]
pub fn fnv1_32(mut hash: u32, bytes: &[u8]) -> u32 {
    for &byte in bytes {
        hash = hash.wrapping_mul(FNV_PRIME) ^ u32::from(byte);
    }
    hash
}

/// [`fnv1_32`] of four texts at once, from one hash on.
///
/// A byte's step waits for the step before it, so that one text leaves the multiplier idle most
/// of the time; four take hardly longer than one.
#[inline]
pub fn fnv1_32_of_four(hash: u32, texts: [&[u8]; 4]) -> [u32; 4] {
    let shared = texts.iter().map(|text| text.len()).min().unwrap_or(0);
    let [a, b, c, d] = texts.map(|text| text.split_at(shared));
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(FNV_PRIME) ^ u32::from(*byte);
    let mut hashes = [hash; 4];
    for (((a, b), c), d) in a.0.iter().zip(b.0).zip(c.0).zip(d.0) {
        let [w, x, y, z] = hashes;
        hashes = [step(w, a), step(x, b), step(y, c), step(z, d)];
    }
    let [w, x, y, z] = hashes;
    [fnv1_32(w, a.1), fnv1_32(x, b.1), fnv1_32(y, c.1), fnv1_32(z, d.1)]
}

/// Ring key of a series: tenant, then each name and value, without separators.
pub fn ring_key(tenant: &str, labels: Labels<'_>) -> RingKey {
    let mut hash = ring_key_of_tenant(tenant).0;
    for (name, value) in labels.iter() {
        hash = fnv1_32(fnv1_32(hash, name), value);
    }
    RingKey(hash)
}

/// Ring key of everything that a tenant has.
pub fn ring_key_of_tenant(tenant: &str) -> RingKey {
    #[cfg(test)]
    RING_KEYS_HASHED.with(|count| count.set(count.get() + 1));
    RingKey(fnv1_32(FNV_OFFSET, tenant.as_bytes()))
}

#[cfg(test)]
thread_local! {
    /// Ring keys hashed by this thread: every ring key begins with its tenant's. For the tests
    /// that hold the paths which must hash none; nothing of it is in a build that serves.
    pub(crate) static RING_KEYS_HASHED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Ring key of a metric's series, whatever their other labels.
pub fn ring_key_of_metric(tenant: &str, metric_name: &[u8]) -> RingKey {
    RingKey(fnv1_32(ring_key_of_tenant(tenant).0, metric_name))
}

/// A series that has to be placed by its metric's name has none. The text is Cortex's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no metric name label")]
pub struct MetricNameMissing;

/// How Cortex spreads a tenant over its instances (`-distributor.shard-by-all-labels`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each series by itself.
    ByAllLabels,
    /// All series of a metric together.
    ByMetric,
}

impl Placement {
    /// Ring key of a series.
    pub fn ring_key(self, tenant: &str, labels: Labels<'_>) -> Result<RingKey, MetricNameMissing> {
        match self {
            Self::ByAllLabels => Ok(ring_key(tenant, labels)),
            Self::ByMetric => labels
                .get(METRIC_NAME)
                .map(|name| ring_key_of_metric(tenant, name))
                .ok_or(MetricNameMissing),
        }
    }

    /// Ring key of a metric's metadata: one step coarser than that of its series.
    pub fn metadata_ring_key(self, tenant: &str, metric_name: &[u8]) -> RingKey {
        match self {
            Self::ByAllLabels => ring_key_of_metric(tenant, metric_name),
            Self::ByMetric => ring_key_of_tenant(tenant),
        }
    }
}

#[cfg(test)]
mod tests;
