//! How rows are keyed and valued on disk.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `samples-<block>` | row key (16), offset in the block (4) | kind, value bits or histogram |
//! | `series-<block>` | tenant (4), escaped metric name, identity (16) | canonical labels |
//! | `extras-<block>` | `e`, row key (16), offset (4), hash (16) | exemplar |
//! | | `m`, tenant (4), escaped metric name, hash (16) | metadata |
//! | `heads` | tenant (4), identity (16) | ring key (4), kind (1) |
//! | `meta` | `format`, `secret`, `tenant/<id>`, `head/<tenant (4)>` | see `mod.rs`, `tenants.rs` |
//!
//! All numbers are big-endian, so that rows lie in the order of time. A sample's key and a float's
//! value fit the engine's inline slices (20 bytes): no allocation per sample, and keys compare
//! without following a pointer. That is why the tenant is not a prefix of a sample's key but mixed
//! into it, and why the time is an offset in its block.
//!
//! Invariant: what decodes here was encoded here; anything else is [`StoreError::Corrupt`].

use crate::keys::RingKey;
use crate::labels::Identity;
use crate::store::{HeadSeries, Metadata, SeriesKind, StoreError, StoredValue};

/// Six hours: retention drops whole blocks, so it overshoots by no more than this; a series' labels
/// are written once per block, 1 % of what its samples take at a scrape every 15 s; and two weeks
/// are under 60 blocks of two or three keyspaces.
pub const BLOCK_MS: i64 = 6 * 3600 * 1000;

/// Longest part of a metric's name that takes part in a key. Longer names share a key prefix and
/// are told apart by their labels; the engine's keys end at 64 KiB.
const METRIC_KEY_BYTES_MAX: usize = 1024;

const KIND_FLOAT: u8 = 0;
const KIND_FLOAT_STARTED: u8 = 1;
const KIND_HISTOGRAM: u8 = 2;

pub const TAG_EXEMPLAR: u8 = b'e';
pub const TAG_METADATA: u8 = b'm';

/// A block of time; block `n` covers `n * BLOCK_MS` up to the start of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockNumber(pub i64);

impl BlockNumber {
    pub fn of(t_ms: i64) -> Self {
        Self(t_ms.div_euclid(BLOCK_MS))
    }

    /// Offsets of the part of `start_ms..=end_ms` that lies in the block.
    pub fn offsets(self, start_ms: i64, end_ms: i64) -> Option<(u32, u32)> {
        if start_ms > end_ms || Self::of(start_ms) > self || Self::of(end_ms) < self {
            return None;
        }
        let lower = if Self::of(start_ms) == self { offset(start_ms) } else { 0 };
        let upper = if Self::of(end_ms) == self { offset(end_ms) } else { BLOCK_MS as u32 - 1 };
        Some((lower, upper))
    }

    /// The time at an offset. Only offsets of times that are an i64 are ever stored.
    pub fn time_ms(self, offset: u32) -> i64 {
        (i128::from(self.0) * i128::from(BLOCK_MS) + i128::from(offset)) as i64
    }
}

pub fn offset(t_ms: i64) -> u32 {
    t_ms.rem_euclid(BLOCK_MS) as u32
}

/// Number of a tenant in this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantNumber(pub u32);

/// A series of a tenant as it stands in the keys of samples.
///
/// Identities hash labels alone, so two tenants with the same labels share them. Mixing in a random
/// mask per tenant tells them apart as surely as 128 bits do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKey(pub u128);

pub const SAMPLE_KEY_BYTES: usize = 20;

pub fn sample_key(row: RowKey, offset: u32) -> [u8; SAMPLE_KEY_BYTES] {
    let mut key = [0; SAMPLE_KEY_BYTES];
    key[..16].copy_from_slice(&row.0.to_be_bytes());
    key[16..].copy_from_slice(&offset.to_be_bytes());
    key
}

/// The offset that a sample's key ends in.
pub fn sample_offset(key: &[u8]) -> Result<u32, StoreError> {
    let tail = key.get(16..20).ok_or(StoreError::Corrupt { what: "key of a sample" })?;
    Ok(u32::from_be_bytes(tail.try_into().expect("four bytes were cut")))
}

pub fn head_key(tenant: TenantNumber, identity: Identity) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&tenant.0.to_be_bytes());
    key[4..].copy_from_slice(&identity.0.to_be_bytes());
    key
}

pub fn head_value(ring_key: RingKey, kind: SeriesKind) -> [u8; 5] {
    let mut value = [0; 5];
    value[..4].copy_from_slice(&ring_key.0.to_be_bytes());
    value[4] = match kind {
        SeriesKind::Float => 0,
        SeriesKind::Histogram => 1,
    };
    value
}

pub fn parse_head(key: &[u8], value: &[u8]) -> Result<(TenantNumber, HeadSeries), StoreError> {
    let corrupt = || StoreError::Corrupt { what: "head row" };
    let (tenant, identity) = key.split_at_checked(4).ok_or_else(corrupt)?;
    let (ring_key, kind) = value.split_at_checked(4).ok_or_else(corrupt)?;
    let kind = match kind {
        [0] => SeriesKind::Float,
        [1] => SeriesKind::Histogram,
        _ => return Err(corrupt()),
    };
    let number = u32::from_be_bytes(tenant.try_into().map_err(|_| corrupt())?);
    let series = HeadSeries {
        identity: Identity(u128::from_be_bytes(identity.try_into().map_err(|_| corrupt())?)),
        ring_key: RingKey(u32::from_be_bytes(ring_key.try_into().map_err(|_| corrupt())?)),
        kind,
    };
    Ok((TenantNumber(number), series))
}

/// Appends the key prefix of all series (or metadata) of a metric.
pub fn push_metric(key: &mut Vec<u8>, tenant: TenantNumber, metric: &[u8]) {
    key.extend_from_slice(&tenant.0.to_be_bytes());
    for &byte in &metric[..metric.len().min(METRIC_KEY_BYTES_MAX)] {
        key.push(byte);
        // An escaped zero sorts behind the end mark, so no name is a prefix of another's rows.
        if byte == 0 {
            key.push(0xff);
        }
    }
    key.extend_from_slice(&[0, 0]);
}

/// The identity that a series' key ends in.
pub fn series_identity(key: &[u8]) -> Result<Identity, StoreError> {
    let tail = key.last_chunk::<16>().ok_or(StoreError::Corrupt { what: "key of a series" })?;
    Ok(Identity(u128::from_be_bytes(*tail)))
}

/// A float's value: 9 bytes, or 17 with a start time. Returns the bytes and how many count.
pub fn float_value(bits: u64, start_ms: i64) -> ([u8; 17], usize) {
    let mut value = [0; 17];
    value[1..9].copy_from_slice(&bits.to_be_bytes());
    if start_ms == 0 {
        return (value, 9);
    }
    value[0] = KIND_FLOAT_STARTED;
    value[9..].copy_from_slice(&start_ms.to_be_bytes());
    (value, 17)
}

pub fn histogram_value(raw: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(1 + raw.len());
    value.push(KIND_HISTOGRAM);
    value.extend_from_slice(raw);
    value
}

pub fn parse_value(value: &[u8]) -> Result<StoredValue, StoreError> {
    let corrupt = || StoreError::Corrupt { what: "value of a sample" };
    let (&kind, rest) = value.split_first().ok_or_else(corrupt)?;
    let read = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes).map_err(|_| corrupt());
    match (kind, rest.len()) {
        (KIND_FLOAT, 8) => Ok(StoredValue::Float { bits: read(rest)?, start_ms: 0 }),
        (KIND_FLOAT_STARTED, 16) => Ok(StoredValue::Float {
            bits: read(&rest[..8])?,
            start_ms: read(&rest[8..])?.cast_signed(),
        }),
        (KIND_HISTOGRAM, _) => Ok(StoredValue::Histogram(rest.into())),
        _ => Err(corrupt()),
    }
}

pub fn exemplar_key(row: RowKey, offset: u32, raw: &[u8]) -> [u8; 37] {
    let mut key = [TAG_EXEMPLAR; 37];
    key[1..21].copy_from_slice(&sample_key(row, offset));
    key[21..].copy_from_slice(&xxhash_rust::xxh3::xxh3_128(raw).to_be_bytes());
    key
}

pub fn metadata_key(tenant: TenantNumber, metadata: &Metadata<'_>, value: &[u8]) -> Vec<u8> {
    let mut key = metadata_prefix(tenant, Some(metadata.metric));
    key.extend_from_slice(&xxhash_rust::xxh3::xxh3_128(value).to_be_bytes());
    key
}

pub fn metadata_prefix(tenant: TenantNumber, metric: Option<&[u8]>) -> Vec<u8> {
    let mut key = vec![TAG_METADATA];
    match metric {
        Some(metric) => push_metric(&mut key, tenant, metric),
        None => key.extend_from_slice(&tenant.0.to_be_bytes()),
    }
    key
}

pub fn metadata_value(metadata: &Metadata<'_>) -> Vec<u8> {
    let mut value = metadata.kind.to_be_bytes().to_vec();
    for part in [metadata.metric, metadata.help, metadata.unit] {
        value.extend_from_slice(&(part.len() as u32).to_be_bytes());
        value.extend_from_slice(part);
    }
    value
}

pub fn parse_metadata(value: &[u8]) -> Result<Metadata<'_>, StoreError> {
    fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (len, tail) = rest.split_first_chunk::<4>()?;
        let (part, tail) = tail.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        *rest = tail;
        Some(part)
    }
    fn parse(value: &[u8]) -> Option<Metadata<'_>> {
        let (kind, mut rest) = value.split_first_chunk::<4>()?;
        let metric = part(&mut rest)?;
        let help = part(&mut rest)?;
        let unit = part(&mut rest)?;
        Some(Metadata { metric, kind: i32::from_be_bytes(*kind), help, unit })
    }
    parse(value).ok_or(StoreError::Corrupt { what: "metadata row" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offsets_cut_a_range_to_the_block() {
        let last = BLOCK_MS as u32 - 1;
        let block = BlockNumber(-1);
        let check = |range: (i64, i64), expect| {
            assert_eq!(block.offsets(range.0, range.1), expect, "{range:?}");
        };
        check((i64::MIN, i64::MAX), Some((0, last)));
        check((-1, -1), Some((last, last)));
        check((-BLOCK_MS, 0), Some((0, last)));
        check((0, 5), None);
        check((i64::MIN, -BLOCK_MS - 1), None);
        check((-1, -2), None);
    }

    proptest! {
        #[test]
        fn time_is_block_and_offset(t_ms: i64) {
            prop_assert_eq!(BlockNumber::of(t_ms).time_ms(offset(t_ms)), t_ms);
        }

        #[test]
        fn no_metric_lies_in_the_rows_of_another(
            a in prop::collection::vec(0_u8..3, 0..5),
            b in prop::collection::vec(0_u8..3, 0..5),
        ) {
            let (mut prefix, mut other) = (Vec::new(), Vec::new());
            push_metric(&mut prefix, TenantNumber(1), &a);
            push_metric(&mut other, TenantNumber(1), &b);
            prop_assert_eq!(other.starts_with(&prefix), a == b);
        }

        #[test]
        fn rows_come_back_and_garbage_never_panics(
            bits: u64,
            start_ms: i64,
            raw in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let (value, len) = float_value(bits, start_ms);
            let back = parse_value(&value[..len]).expect("a float");
            prop_assert_eq!(back, StoredValue::Float { bits, start_ms });
            let back = parse_value(&histogram_value(&raw)).expect("a histogram");
            prop_assert_eq!(back, StoredValue::Histogram(raw.clone().into()));
            let _ = (parse_value(&raw), parse_head(&raw, &raw), series_identity(&raw));
            let _ = (sample_offset(&raw), parse_metadata(&raw));
        }
    }
}
