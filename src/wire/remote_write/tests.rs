//! Bodies of both versions, and what is refused before it gets memory.

use super::*;
use crate::wire::write_request::WriteRequest;

const V2: Headers<'static> = Headers {
    content_type: "application/x-protobuf;proto=io.prometheus.write.v2.Request",
    content_encoding: "snappy",
};

fn options() -> Options {
    Options {
        recv_bytes_max: 1 << 20,
        v2_enabled: true,
        accept_unknown_content_type: false,
        type_and_unit_labels: false,
        start_timestamp: false,
    }
}

fn pack(body: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(body).expect("packs")
}

#[test]
fn content_types_choose_the_version() {
    let check = |content_type: &str, expect| assert_eq!(parse_content_type(content_type), expect);
    check("", Ok(Version::V1));
    check(" application/x-protobuf ", Ok(Version::V1));
    check("application/x-protobuf;q=1;proto=prometheus.WriteRequest", Ok(Version::V1));
    check(V2.content_type, Ok(Version::V2));
    check("application/x-protobuf; proto=io.prometheus.write.v2.Request", Ok(Version::V1));
    let text = |content_type| parse_content_type(content_type).expect_err("refused").to_string();
    assert_eq!(
        text("text/plain"),
        "expected application/x-protobuf as the first (media) part, got text/plain content-type"
    );
    assert_eq!(
        text("application/x-protobuf; proto"),
        "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters to be \
         key-values, got  proto in application/x-protobuf; proto content-type"
    );
}

#[test]
fn case_d9_a_length_that_lies_gets_no_memory() {
    // Five bytes that announce a MiB, within what may be received.
    let body = [0x80, 0x80, 0x40, 0x00, b'x'];
    assert_eq!(unpack(&body, 1 << 20), Err(RemoteWriteError::Corrupt));
    let too_large = RemoteWriteError::TooLarge { bytes: 1 << 20, bytes_max: 1 << 19 };
    assert_eq!(unpack(&body, 1 << 19), Err(too_large));
}

#[test]
fn the_densest_snappy_block_is_unpacked() {
    let body = vec![b'x'; 1 << 20];
    let packed = pack(&body);
    assert!(packed.len() as u64 * SNAPPY_EXPANSION_MAX >= body.len() as u64);
    assert_eq!(unpack(&packed, 1 << 20), Ok(body));
}

#[test]
fn label_validation_cannot_be_switched_off_by_http() {
    let body = pack(&[0x10, 0x01, 0xc0, 0x3e, 0x01]);
    let decoded = decode(Headers::default(), &body, &options()).expect("sound");
    assert!(!decoded.summary.skip_label_name_validation);
    let reread = write_request::check(&decoded.body).expect("sound");
    assert_eq!(reread, decoded.summary);
    assert_eq!(reread.source, 1);
}

/// A 2.0 request in which `series` series name the symbols 1 and 2 once each.
fn v2_request(symbols: [&[u8]; 3], series: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for symbol in symbols {
        body.push(0x22);
        let mut len = symbol.len();
        while len >= 0x80 {
            body.push(len as u8 | 0x80);
            len >>= 7;
        }
        body.push(len as u8);
        body.extend_from_slice(symbol);
    }
    for _ in 0..series {
        body.extend([0x2a, 0x08, 0x0a, 0x02, 0x01, 0x02, 0x12, 0x02, 0x10, 0x05]);
    }
    body
}

#[test]
fn case_d9_repeated_references_to_a_long_symbol_are_refused() {
    let long = vec![b'x'; 100_000];
    let body = pack(&v2_request([b"", b"a", &long], 1000));
    let error = decode(V2, &body, &options()).expect_err("too large");
    assert_eq!(error.status(), 400);
    assert!(error.to_string().starts_with("received message larger than max (1100011 vs 1048576)"));
}

#[test]
fn converted_series_are_counted() {
    let body = pack(&v2_request([b"", b"__name__", b"m"], 3));
    let decoded = decode(V2, &body, &options()).expect("sound");
    assert_eq!((decoded.summary.series, decoded.summary.samples), (3, 3));
    let mut arena = Vec::new();
    let mut request = WriteRequest::new(&decoded.body, &mut arena).expect("sound");
    let series = request.next_series().expect("sound").expect("first");
    assert_eq!(request.labels(&series).metric_name(), b"m");
    assert_eq!(series.time_range_ms(), Some((5, 5)));
}
