//! Whom a request says it is from: the tenant in its headers, or one fixed tenant.

use std::borrow::Cow;

use http::HeaderMap;

use crate::tenant::{TenantId, TenantIdError};

/// The header, over HTTP and over gRPC.
pub const TENANT_HEADER: &str = "x-scope-orgid";

/// The tenant of everybody where `auth_enabled` is off; Cortex's name for it.
const FIXED_TENANT: &str = "fake";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenancy {
    /// Exactly one header, not empty.
    Header,
    Fixed,
}

impl Tenancy {
    pub const fn from_auth_enabled(auth_enabled: bool) -> Self {
        if auth_enabled { Self::Header } else { Self::Fixed }
    }

    /// The name in the header, which may break the rules for tenants.
    pub fn named(self, headers: &HeaderMap) -> Result<Cow<'_, str>, TenantIdError> {
        if self == Self::Fixed {
            return Ok(FIXED_TENANT.into());
        }
        let mut values = headers.get_all(TENANT_HEADER).iter();
        match (values.next(), values.next()) {
            (Some(value), None) if !value.is_empty() => {
                Ok(String::from_utf8_lossy(value.as_bytes()))
            }
            _ => Err(TenantIdError::Missing),
        }
    }

    pub fn tenant(self, headers: &HeaderMap) -> Result<TenantId, TenantIdError> {
        TenantId::parse(&self.named(headers)?)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn one_header_names_the_tenant() {
        let mut headers = HeaderMap::new();
        assert_eq!(Tenancy::Header.tenant(&headers), Err(TenantIdError::Missing));
        assert_eq!(Tenancy::Fixed.tenant(&headers).expect("fixed").as_str(), "fake");
        headers.append(TENANT_HEADER, HeaderValue::from_static("a"));
        assert_eq!(Tenancy::Header.tenant(&headers).expect("a").as_str(), "a");
        assert_eq!(Tenancy::Fixed.tenant(&headers).expect("fixed").as_str(), "fake");
        headers.append(TENANT_HEADER, HeaderValue::from_static("b"));
        assert_eq!(Tenancy::Header.tenant(&headers), Err(TenantIdError::Missing));
    }
}
