//! Explanations against Cortex's own answers: its walks step by step, and its error texts.

use std::collections::BTreeSet;

use freehold::explain::catalogue::Catalogue;
use freehold::ring::{Choice, Walker};
use serde_json::Value;

use crate::ring_walk::{key, operation, snapshot, texts};
use crate::vectors::{array, read, text};

#[test]
fn the_watched_walk_takes_whom_cortex_takes() {
    let vectors = read("ring_walk");
    let mut walks = 0;
    for shape in array(&vectors, "shapes") {
        let ring = snapshot(shape);
        if ring.circle().is_empty() {
            continue;
        }
        for want in array(shape, "walks") {
            let context = format!("{} {want}", text(shape, "name"));
            let mut walker = Walker::new(ring.layout(), operation(want));
            let mut taken = Vec::new();
            walker.walk_watched(ring.circle().search(key(want)), |step| {
                assert_eq!(ring.circle().owner(step.position), step.member, "{context}");
                if matches!(step.choice, Choice::Taken | Choice::TakenExtending) {
                    taken.push(step.member);
                }
            });
            assert_eq!(taken, walker.found(), "{context}");
            let ids: Vec<&str> =
                taken.iter().map(|member| &*ring.members()[member.index()].id).collect();
            let raw = want["raw"].as_array().map_or(&[][..], Vec::as_slice);
            assert_eq!(ids, texts(raw), "{context}");
            walks += 1;
        }
    }
    assert!(walks > 1_000, "{walks} walks");
}

/// Texts of the vectors that are no error of Cortex's: what recorded fakes were told to say.
const MADE_UP: [&str; 14] = [
    "arg",
    "bad 1",
    "boom",
    "closing",
    "dedup",
    "disk full",
    "down",
    "gone",
    "later",
    "message too big",
    "out of order",
    "slow",
    "slow down",
    "some text",
];

#[test]
fn every_error_of_cortex_is_known() {
    let catalogue = Catalogue::new();
    let mut unknown = BTreeSet::new();
    let mut known = 0;
    for name in ["errors", "validation"] {
        each_error(&read(name), &mut |error| {
            if !catalogue.recognise(error).is_empty() {
                known += 1;
                return;
            }
            let bare = error.trim_end().rsplit(" desc = ").next().unwrap_or_default();
            let is_state = ["New", "Stopping", "Starting"].contains(&bare);
            if !bare.is_empty() && !is_state && !MADE_UP.contains(&bare) {
                unknown.insert(error.to_owned());
            }
        });
    }
    assert!(known > 500, "{known} errors");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

fn each_error(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(error)
                        if ["error", "grpc_message", "message"].contains(&name.as_str()) =>
                    {
                        see(error);
                    }
                    _ => each_error(value, see),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| each_error(value, see)),
        _ => {}
    }
}
