//! The signature by which a distributor vouches for a unary push (`x-req-signature`).
//!
//! It covers tenant, metadata and labels, not the samples. Whoever takes series out of a signed
//! request has to sign it again.

use xxhash_rust::xxh64::Xxh64;

use super::cursor::DecodeError;
use super::write_request::{RawLabels, WriteRequest};

/// Signs a request for a tenant.
pub fn sign(tenant: &str, body: &[u8]) -> Result<String, DecodeError> {
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(body, &mut arena)?;
    while request.next_series()?.is_some() {}

    // Metadata comes first in the signature and last in most bodies.
    let mut hasher = Xxh64::new(0);
    hasher.update(tenant.as_bytes());
    for metadata in request.metadata() {
        hasher.update(metadata.kind.to_string().as_bytes());
        for text in [metadata.metric_family_name, metadata.help, metadata.unit] {
            hasher.update(text);
        }
    }
    let mut request = WriteRequest::new(body, &mut arena)?;
    while let Some(series) = request.next_series()? {
        update(&mut hasher, series.raw_labels(body));
        for exemplar in series.exemplars(body) {
            update(&mut hasher, exemplar.labels());
        }
    }
    Ok(format!("v1/{}", hasher.digest()))
}

fn update(hasher: &mut Xxh64, labels: RawLabels<'_>) {
    for (name, value) in labels {
        hasher.update(name);
        hasher.update(value);
    }
}
