//! Label sets as bytes: canonical form, identity, ring key.
//!
//! The canonical form of a label set is the protobuf encoding that every sender of the field
//! produces: per label `0a len (0a len name 12 len value)`, shortest lengths, name before value,
//! no label with an empty value. Senders put a series' labels next to each other, so nearly
//! always the canonical form is a slice of the received request and one hash call covers it.
//!
//! Invariant: two label lists have the same canonical bytes iff they are equal after labels with
//! an empty value are left out.

use crate::keys::RingKey;

/// Name of the label that holds the metric's name.
pub const METRIC_NAME: &[u8] = b"__name__";

/// A label set in canonical form. Names and values are bytes; nothing promises UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Labels<'a> {
    /// Takes bytes that are in canonical form already.
    pub fn from_canonical(bytes: &'a [u8]) -> Self {
        Self(bytes)
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

    pub fn get(self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter().find(|(label, _)| *label == name).map(|(_, value)| value)
    }

    /// The metric's name, empty when the series has none.
    pub fn metric_name(self) -> &'a [u8] {
        self.get(METRIC_NAME).unwrap_or_default()
    }
}

/// Names and values of a label set, in its order.
#[derive(Clone)]
pub struct LabelIter<'a>(&'a [u8]);

impl<'a> Iterator for LabelIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (_, rest) = self.0.split_first()?;
        let (label_len, rest) = split_len(rest);
        let (label, rest) = rest.split_at(label_len);
        self.0 = rest;
        let (name, label) = split_field(label, 0x0a);
        let (value, _) = split_field(label, 0x12);
        Some((name, value))
    }
}

/// A field of a canonical label; empty when it is left out, as an empty name is.
fn split_field(label: &[u8], tag: u8) -> (&[u8], &[u8]) {
    match label.split_first() {
        Some((&first, rest)) if first == tag => {
            let (len, rest) = split_len(rest);
            rest.split_at(len)
        }
        _ => (&[], label),
    }
}

/// A length of canonical form; the caller has made sure that one stands here.
#[inline]
fn split_len(bytes: &[u8]) -> (usize, &[u8]) {
    let mut len = 0_usize;
    for (i, &byte) in bytes.iter().enumerate() {
        len |= usize::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return (len, &bytes[i + 1..]);
        }
    }
    unreachable!("canonical labels end inside a length")
}

/// A label set in canonical form that owns its bytes; reused as scratch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelsBuf(Vec<u8>);

impl LabelsBuf {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends a label; one with an empty value is left out.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        if value.is_empty() {
            return;
        }
        let name_len = if name.is_empty() { 0 } else { 1 + len_width(name.len()) + name.len() };
        let value_len = 1 + len_width(value.len()) + value.len();
        self.0.push(0x0a);
        push_len(&mut self.0, name_len + value_len);
        if !name.is_empty() {
            self.0.push(0x0a);
            push_len(&mut self.0, name.len());
            self.0.extend_from_slice(name);
        }
        self.0.push(0x12);
        push_len(&mut self.0, value.len());
        self.0.extend_from_slice(value);
    }

    pub fn as_labels(&self) -> Labels<'_> {
        Labels(&self.0)
    }
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

/// Ring key of a series: tenant, then each name and value, without separators.
pub fn ring_key(tenant: &str, labels: Labels<'_>) -> RingKey {
    let mut hash = fnv1_32(FNV_OFFSET, tenant.as_bytes());
    for (name, value) in labels.iter() {
        hash = fnv1_32(fnv1_32(hash, name), value);
    }
    RingKey(hash)
}
