//! The moving average of a rate: `ewma.json`.

use std::time::Duration;

use freehold::ratelimit::Ewma;

use crate::vectors::{array, bits, read, text};

#[test]
fn ewma() {
    for (i, trace) in array(&read("ewma"), "traces").iter().enumerate() {
        let interval_ns = trace["interval_ns"].as_u64().expect("interval");
        let alpha = trace["alpha"].as_f64().expect("alpha");
        let ewma = Ewma::new(alpha, Duration::from_nanos(interval_ns));
        for (j, op) in array(trace, "ops").iter().enumerate() {
            match text(op, "op") {
                "add" => ewma.add(op["n"].as_i64().expect("n")),
                "tick" => ewma.tick(),
                other => panic!("unknown operation {other}"),
            }
            let expect = bits(&op["rate_bits"]);
            assert_eq!(ewma.rate().to_bits(), expect, "trace {i}, operation {j}: {op}");
        }
    }
}
