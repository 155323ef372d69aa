//! An HTTP answer as the details of a gRPC error.

use prost::Message as _;

use super::proto::{google, httpgrpc};

const HTTP_RESPONSE_URL: &str = "type.googleapis.com/httpgrpc.HTTPResponse";

/// Bytes of the trailer `grpc-status-details-bin`: a `google.rpc.Status` with one
/// `httpgrpc.HTTPResponse`.
///
/// The trailer `grpc-status` has to be the same `code`; Go's clients take a mismatch for an
/// internal error.
pub fn http_status_details(code: i32, text: &str) -> Vec<u8> {
    let response =
        httpgrpc::HttpResponse { code, headers: Vec::new(), body: text.as_bytes().to_vec() };
    let details = google::rpc::Any {
        type_url: HTTP_RESPONSE_URL.to_owned(),
        value: response.encode_to_vec(),
    };
    google::rpc::Status { code, message: text.to_owned(), details: vec![details] }.encode_to_vec()
}

/// Reads such bytes: the status' own code, and the one of the HTTP answer if it is all that the
/// details hold. `None` when they are no status.
pub fn read_status_details(bytes: &[u8]) -> Option<(i32, Option<i32>)> {
    let status = google::rpc::Status::decode(bytes).ok()?;
    let http = match &status.details[..] {
        [only] if only.type_url == HTTP_RESPONSE_URL => {
            httpgrpc::HttpResponse::decode(&only.value[..]).ok().map(|response| response.code)
        }
        _ => None,
    };
    Some((status.code, http))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_the_bytes_that_go_writes() {
        let mut expect = vec![0x08, 0x90, 0x03, 0x12, 0x02];
        expect.extend(b"no");
        expect.extend([0x1a, 0x34, 0x0a, 0x29]);
        expect.extend(HTTP_RESPONSE_URL.as_bytes());
        expect.extend([0x12, 0x07, 0x08, 0x90, 0x03, 0x1a, 0x02]);
        expect.extend(b"no");
        assert_eq!(http_status_details(400, "no"), expect);
    }

    #[test]
    fn details_are_read_back_and_others_are_none() {
        assert_eq!(read_status_details(&http_status_details(429, "no")), Some((429, Some(429))));
        let bare = google::rpc::Status { code: 14, message: "no".into(), details: Vec::new() };
        assert_eq!(read_status_details(&bare.encode_to_vec()), Some((14, None)));
        assert_eq!(read_status_details(&[0x1a, 9, 1]), None);
    }
}
