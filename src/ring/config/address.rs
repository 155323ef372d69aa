//! Where a store is found, as people write it: `host:port`, with a scheme before it or a path
//! behind it.
//!
//! Invariant: what parses can be dialled as it is; no name, port or credential is guessed.

/// A server, and for a page the page there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub scheme: Option<Scheme>,
    /// A name or an IP address, without brackets.
    pub host: String,
    pub port: u16,
    /// Path and query, `/` if there is none.
    pub path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("{text:?} has a scheme that is neither http nor https")]
    Scheme { text: String },
    #[error("{text:?} must begin with http:// or https://")]
    NoScheme { text: String },
    #[error("{text:?} names no host")]
    Host { text: String },
    #[error("{text:?} names no port from 1 to 65535")]
    Port { text: String },
    #[error("{text:?} holds a user or a password; they have keys of their own")]
    Credentials { text: String },
    #[error("{text:?} has a path; only host and port are taken")]
    Path { text: String },
}

impl Address {
    /// A server: a port has to be there, a path must not.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let address = parts(text, |_| None)?;
        if address.path != "/" {
            return Err(AddressError::Path { text: text.to_owned() });
        }
        Ok(address)
    }

    /// A page: a scheme has to be there; its port is the default.
    pub fn parse_url(text: &str) -> Result<Self, AddressError> {
        let default_port = |scheme| match scheme {
            Some(Scheme::Http) => Some(80),
            Some(Scheme::Https) => Some(443),
            None => None,
        };
        if !text.contains("://") {
            return Err(AddressError::NoScheme { text: text.to_owned() });
        }
        parts(text, default_port)
    }

    /// `host:port`, an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

fn parts(
    text: &str,
    default_port: impl Fn(Option<Scheme>) -> Option<u16>,
) -> Result<Address, AddressError> {
    let fail = |error: fn(String) -> AddressError| error(text.to_owned());
    let (scheme, rest) = match text.split_once("://") {
        None => (None, text),
        Some(("http", rest)) => (Some(Scheme::Http), rest),
        Some(("https", rest)) => (Some(Scheme::Https), rest),
        Some(_) => return Err(fail(|text| AddressError::Scheme { text })),
    };
    // What follows `#` is for browsers.
    let rest = rest.split('#').next().unwrap_or(rest);
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        // Not shown: it may hold a password.
        let text = text.rsplit('@').next().unwrap_or_default().to_owned();
        return Err(AddressError::Credentials { text });
    }
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, port.strip_prefix(':')),
        // A lone IPv6 address has colons too, and none of them leads to a port.
        None if authority.matches(':').count() > 1 => (authority, None),
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_host_char = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
    if host.is_empty() || !host.chars().all(is_host_char) {
        return Err(fail(|text| AddressError::Host { text }));
    }
    let port = match port {
        Some(port) => port.parse().ok().filter(|&port| port > 0),
        None => default_port(scheme),
    };
    let port = port.ok_or_else(|| fail(|text| AddressError::Port { text }))?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(Address { scheme, host: host.to_owned(), port, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_in_every_form() {
        let check = |text: &str, scheme: Option<Scheme>, authority: &str| {
            let address = Address::parse(text).expect(text);
            assert_eq!((address.scheme, address.authority().as_str()), (scheme, authority));
        };
        check("etcd-0.etcd:2379", None, "etcd-0.etcd:2379");
        check("http://127.0.0.1:2379", Some(Scheme::Http), "127.0.0.1:2379");
        check("https://[fd00::1]:2379/", Some(Scheme::Https), "[fd00::1]:2379");
    }

    #[test]
    fn pages_keep_their_path_and_query() {
        let check = |text: &str, authority: &str, path: &str| {
            let address = Address::parse_url(text).expect(text);
            assert_eq!((address.authority().as_str(), address.path.as_str()), (authority, path));
        };
        check("http://distributor:8080/ring", "distributor:8080", "/ring");
        check(
            "https://cortex.example/prefix/ring?x=1#top",
            "cortex.example:443",
            "/prefix/ring?x=1",
        );
        check("http://d?x", "d:80", "/?x");
        check("http://[::1]/ring", "[::1]:80", "/ring");
    }

    #[test]
    fn other_texts_are_refused_with_their_fault() {
        let check = |text: &str, part: &str| {
            let error = Address::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        };
        check("", "names no host");
        check(":1", "names no host");
        check("a b:1", "names no host");
        check("host", "names no port");
        check("host:0", "names no port");
        check("host:65536", "names no port");
        check("fd00::1", "names no port");
        check("unix:///tmp/etcd", "neither http nor https");
        check("http://host:1/v3", "has a path");
        check("http://root:hunter2@host:1", "holds a user");
        let error = Address::parse("http://root:hunter2@host:1").unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        assert!(Address::parse_url("distributor:8080/ring").is_err());
    }
}
