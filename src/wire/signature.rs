//! The signatures by which a distributor vouches for what it pushes.
//!
//! That of a unary push (`x-req-signature`) covers tenant, metadata and labels, not the samples.
//! Whoever takes series out of a signed request has to sign it again. That of a stream
//! (`x-stream-signature`) covers the name under which the stream is opened, with a key.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
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

/// HMAC-SHA256 of a stream's name, in lower-case hex.
pub fn sign_stream(key: &str, name: &str) -> String {
    let digest = stream_mac(key, name).finalize().into_bytes();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The code over a stream's name, to be compared in constant time.
pub fn stream_mac(key: &str, name: &str) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(name.as_bytes());
    mac
}

fn update(hasher: &mut Xxh64, labels: RawLabels<'_>) {
    for (name, value) in labels {
        hasher.update(name);
        hasher.update(value);
    }
}
