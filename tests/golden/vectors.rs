//! Finds and reads a file of vectors, and decodes its conventions.
#![allow(dead_code, reason = "each test of this binary uses its part")]

use std::path::PathBuf;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

/// Reads `NAME.json` of the vectors: plain from `FREEHOLD_VECTORS`, else ours, compressed.
pub fn read(name: &str) -> Value {
    let bytes = match std::env::var_os("FREEHOLD_VECTORS") {
        Some(dir) => {
            let path = PathBuf::from(dir).join(format!("{name}.json"));
            std::fs::read(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()))
        }
        None => {
            let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join(format!("tests/vectors/{name}.json.zst"));
            let packed =
                std::fs::read(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()));
            zstd::decode_all(&packed[..]).expect("vectors are zstd")
        }
    };
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("parse {name}: {e}"))
}

pub fn array<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field]
        .as_array()
        .map_or_else(|| panic!("{field} is no array in {value:.80}"), Vec::as_slice)
}

pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field} is no text"))
}

pub fn base64(value: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(value.as_str().expect("base64 text")).expect("base64")
}

/// A double given as 16 hex digits in a field named `*_bits`.
pub fn bits(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().expect("bits text"), 16).expect("hex")
}

/// Labels from `field`, or from `field_b64` when they are not UTF-8.
pub fn labels(value: &Value, field: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    if let Some(pairs) = value[field].as_array() {
        let bytes = |v: &Value| v.as_str().expect("label text").as_bytes().to_vec();
        return pairs.iter().map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect();
    }
    let pairs = value[format!("{field}_b64")].as_array().expect("labels");
    pairs.iter().map(|pair| (base64(&pair[0]), base64(&pair[1]))).collect()
}
