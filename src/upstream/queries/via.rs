//! We in `Via`, and whether a request has been here before.
//!
//! Each process has a name of its own there, so that a request which comes back is told from one
//! that another gate has sent.

use http::header::{self, HeaderValue};
use http::{HeaderMap, Version};

#[derive(Debug)]
pub(super) struct Via {
    pseudonym: String,
    http10: HeaderValue,
    http11: HeaderValue,
    http2: HeaderValue,
}

impl Via {
    pub fn new(number: u64) -> Self {
        let pseudonym = format!("freehold-{number:016x}");
        let line = |version: &str| {
            let text = format!("{version} {pseudonym}");
            HeaderValue::try_from(text).expect("letters, digits, a dot, a dash and a space")
        };
        Self { http10: line("1.0"), http11: line("1.1"), http2: line("2"), pseudonym }
    }

    /// The line for a request that came in this version.
    pub fn line(&self, version: Version) -> HeaderValue {
        match version {
            Version::HTTP_10 => self.http10.clone(),
            Version::HTTP_2 => self.http2.clone(),
            _ => self.http11.clone(),
        }
    }

    /// Whether we are among those who have sent it on.
    pub fn has_been_here(&self, headers: &HeaderMap) -> bool {
        let lines = headers.get_all(header::VIA).iter().filter_map(|line| line.to_str().ok());
        let mut hops = lines.flat_map(|line| line.split(','));
        hops.any(|hop| hop.split_ascii_whitespace().nth(1) == Some(&*self.pseudonym))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_found_among_others() {
        let (ours, theirs) = (Via::new(1), Via::new(2));
        let mut headers = HeaderMap::new();
        assert!(!ours.has_been_here(&headers));
        headers.append(header::VIA, HeaderValue::from_static("1.1 edge (a, b), 1.0 other"));
        headers.append(header::VIA, theirs.line(Version::HTTP_2));
        assert!(!ours.has_been_here(&headers) && theirs.has_been_here(&headers));
        headers.append(header::VIA, ours.line(Version::HTTP_11));
        assert!(ours.has_been_here(&headers));
        assert_eq!(theirs.line(Version::HTTP_2), "2 freehold-0000000000000002");
    }
}
