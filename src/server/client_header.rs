//! Which client a request says it is from: the header that a gateway sets, where anybody asks.
//!
//! Whoever may write the header decides whose budget is charged, so it is believed here only
//! because a gateway in front takes it off what comes from outside (`docs/client-budgets.md`).

use http::{HeaderMap, HeaderName};

use crate::clients::config::{ClientIdentityConfig, ClientIdentityConfigError};
use crate::tenant::{ClientId, ClientIdError};
use crate::upstream::ingesters::CLIENT_METADATA;

/// Where the client of a request is named; nobody is looked for by default.
#[derive(Clone, Debug, Default)]
pub struct ClientHeader(Option<HeaderName>);

/// Why a request names no client, although it tries to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientHeaderError {
    #[error(transparent)]
    Id(#[from] ClientIdError),
    /// One of them may be the gateway's, and nobody can tell which.
    #[error("the request has more than one client ID")]
    Ambiguous,
}

impl ClientHeader {
    /// The header of requests over HTTP.
    pub fn of_http(config: &ClientIdentityConfig) -> Result<Self, ClientIdentityConfigError> {
        config.validate()?;
        if !config.enabled {
            return Ok(Self(None));
        }
        let name = HeaderName::from_bytes(config.header.as_bytes());
        let header = config.header.clone();
        Ok(Self(Some(name.map_err(|_| ClientIdentityConfigError::NoHeader { header })?)))
    }

    /// The metadata of calls over gRPC. Its name is fixed: the sender is a part of the cluster.
    pub fn of_grpc(config: &ClientIdentityConfig) -> Self {
        Self(config.enabled.then(|| HeaderName::from_static(CLIENT_METADATA)))
    }

    /// The client that is named; `None` where there is no name, or an empty one. The same name
    /// twice is one.
    pub fn client(&self, headers: &HeaderMap) -> Result<Option<ClientId>, ClientHeaderError> {
        let Some(name) = &self.0 else { return Ok(None) };
        let mut values = headers.get_all(name).iter();
        let Some(first) = values.next() else { return Ok(None) };
        if values.any(|other| other != first) {
            return Err(ClientHeaderError::Ambiguous);
        }
        if first.is_empty() {
            return Ok(None);
        }
        Ok(Some(ClientId::parse_bytes(first.as_bytes())?))
    }

    /// The header's name, where anybody is looked for.
    pub fn name(&self) -> Option<&HeaderName> {
        self.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn on() -> ClientIdentityConfig {
        ClientIdentityConfig { enabled: true, ..ClientIdentityConfig::default() }
    }

    fn named(values: &[&[u8]]) -> Result<Option<String>, String> {
        let header = ClientHeader::of_http(&on()).expect("a header");
        let mut headers = HeaderMap::new();
        for value in values {
            let value = HeaderValue::from_bytes(value).expect("a value");
            headers.append("x-scope-clientid", value);
        }
        let client = header.client(&headers).map_err(|error| error.to_string());
        client.map(|client| client.map(|client| client.to_string()))
    }

    #[test]
    fn one_value_names_the_client_and_none_or_an_empty_one_nobody() {
        assert_eq!(named(&[b"a b"]), Ok(Some("a b".into())));
        assert_eq!(named(&[b"a", b"a"]), Ok(Some("a".into())));
        for nobody in 0..3 {
            assert_eq!(named(&[&b""[..]].repeat(nobody)), Ok(None), "{nobody} empty ones");
        }
    }

    #[test]
    fn what_names_nobody_for_sure_is_an_error() {
        let ambiguous = Err("the request has more than one client ID".to_owned());
        assert_eq!(named(&[b"a", b"b"]), ambiguous);
        assert_eq!(named(&[b"a", b"A"]), ambiguous);
        assert_eq!(named(&[b"", b"a"]), ambiguous);
        assert_eq!(named(&[b"a", b"a", b""]), ambiguous);
        assert_eq!(named(&[b"\xff"]), Err("client ID contains unsupported byte 0xff".into()));
        assert_eq!(named(&[b"a\tb"]), Err("client ID contains unsupported byte 0x09".into()));
        assert_eq!(named(&[&[b'a'; 257]]), Err("client ID is too long: max 256 characters".into()));
    }

    #[test]
    fn the_header_is_the_configured_one_and_none_while_it_is_off() {
        let config = ClientIdentityConfig { header: "X-Writer".into(), ..on() };
        let mut headers = HeaderMap::new();
        headers.insert("x-scope-clientid", HeaderValue::from_static("a"));
        headers.insert("x-writer", HeaderValue::from_static("b"));
        let client = |header: ClientHeader| {
            header.client(&headers).expect("sound").map(|client| client.to_string())
        };
        assert_eq!(client(ClientHeader::of_http(&config).expect("a header")), Some("b".into()));
        assert_eq!(client(ClientHeader::of_grpc(&config)), Some("a".into()));
        let off = ClientIdentityConfig { enabled: false, ..config };
        assert_eq!(client(ClientHeader::of_http(&off).expect("nothing")), None);
        assert_eq!(client(ClientHeader::of_grpc(&off)), None);
        assert_eq!(client(ClientHeader::default()), None);
    }
}
