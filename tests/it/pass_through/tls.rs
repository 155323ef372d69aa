//! TLS on both sides of the edge, with certificates made here.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use freehold::server::config::ServerConfig;
use freehold::server::drain::Drainer;
use freehold::server::http as edge_http;
use freehold::server::listen::Listener;
use freehold::tls::{
    self, ClientAuth, ClientTls, ClientTlsConfig, MinVersion, ServerTls, ServerTlsConfig,
};
use freehold::units::Millis;
use freehold::upstream::config::UpstreamConfig;
use h2::client::SendRequest;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::{TlsAcceptor, TlsConnector, rustls};

use super::QUERY;
use super::fake::{Client, Edge, Fake, answer_ok, config, framed, head, patiently, settings_with};

/// An authority and what it has signed, in files.
pub struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![]).expect("params");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("signed");
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Self { directory, issuer: Issuer::new(params, key) };
        std::fs::write(authority.ca(), certificate.pem()).expect("write");
        authority
    }

    pub fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Signs `name` and writes `file.pem` and `file.key`.
    pub fn sign(&self, file: &str, name: &str) {
        self.sign_with(file, name, |_| {});
    }

    pub fn sign_with(&self, file: &str, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("params");
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        std::fs::write(self.path(&format!("{file}.pem")), certificate.pem()).expect("write");
        std::fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).expect("write");
    }

    pub fn server(&self, file: &str, client_auth_type: ClientAuth) -> ServerTlsConfig {
        let client_ca_file = match client_auth_type {
            ClientAuth::None => PathBuf::new(),
            _ => self.ca(),
        };
        ServerTlsConfig {
            cert_file: self.path(&format!("{file}.pem")),
            key_file: self.path(&format!("{file}.key")),
            client_auth_type,
            client_ca_file,
        }
    }

    pub fn client(&self, file: Option<&str>) -> ClientTlsConfig {
        let path =
            |end: &str| file.map_or_else(PathBuf::new, |file| self.path(&format!("{file}.{end}")));
        ClientTlsConfig {
            cert_path: path("pem"),
            key_path: path("key"),
            ca_path: self.ca(),
            insecure_skip_verify: false,
        }
    }
}

pub fn listener_tls(
    config: &ServerTlsConfig,
    protocols: &'static [&'static str],
) -> Arc<ServerTls> {
    tls::server("test", config, MinVersion::Default, protocols)
        .expect("files")
        .expect("a certificate")
}

/// What stands behind the edge when its upstream speaks TLS: it ends TLS and hands the bytes on.
pub async fn tls_before(
    fake: SocketAddr,
    tls: Arc<ServerTls>,
    tasks: &mut JoinSet<()>,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("bound");
    tasks.spawn(async move {
        let mut serving = JoinSet::new();
        loop {
            let (near, _) = listener.accept().await.expect("accept");
            let acceptor = TlsAcceptor::from(tls.current());
            serving.spawn(async move {
                let Ok(mut near) = acceptor.accept(near).await else { return };
                let mut far = TcpStream::connect(fake).await.expect("connect");
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    address
}

pub async fn connect(
    address: SocketAddr,
    tls: &ClientTls,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.expect("connect");
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(tls.current()).connect(name, stream).await
}

/// A call through TLS; `None` when the connection was refused. (With TLS 1.3 a client hears of
/// it only when it reads.)
async fn call(address: SocketAddr, config: &ClientTlsConfig) -> Option<String> {
    let tls = tls::client("test", config, &["h2"]).expect("files");
    let stream = patiently(connect(address, &tls)).await.ok()?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]), "Go insists on it");
    let (requests, connection) = patiently(h2::client::handshake(stream)).await.ok()?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    one_call(requests).await
}

async fn one_call(requests: SendRequest<Bytes>) -> Option<String> {
    let mut requests = patiently(requests.ready()).await.ok()?;
    let (response, mut send) = requests.send_request(head(QUERY), false).ok()?;
    send.send_data(framed(b"query"), true).ok()?;
    let ended = super::finish(patiently(response).await.ok()?).await;
    Some(ended.code().to_owned())
}

#[tokio::test]
async fn the_listener_takes_whom_its_authority_has_signed_and_nobody_else() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    ours.sign("server", "localhost");
    ours.sign("client", "distributor");
    theirs.sign("client", "distributor");
    let fake = Fake::start(answer_ok).await;
    let stranger = ClientTlsConfig { ca_path: ours.ca(), ..theirs.client(Some("client")) };
    // (what is asked of clients, whether one is served who shows nothing, and a stranger)
    for (client_auth, expect_bare, expect_stranger) in [
        (ClientAuth::None, true, true),
        (ClientAuth::Request, true, true),
        (ClientAuth::RequireAny, false, true),
        (ClientAuth::VerifyIfGiven, true, false),
        (ClientAuth::RequireAndVerify, false, false),
    ] {
        let tls = listener_tls(&ours.server("server", client_auth), &["h2"]);
        let edge = Edge::start(settings_with(&config(fake.address)), Some(tls)).await;
        let known = call(edge.address, &ours.client(Some("client"))).await;
        assert_eq!(known.as_deref(), Some("0"), "{client_auth:?}");
        let bare = call(edge.address, &ours.client(None)).await;
        assert_eq!(bare.is_some(), expect_bare, "{client_auth:?}: nothing shown");
        let other = call(edge.address, &stranger).await;
        assert_eq!(other.is_some(), expect_stranger, "{client_auth:?}: a stranger");
        let distrusted = call(edge.address, &theirs.client(None)).await;
        assert_eq!(distrusted, None, "a client that does not know our authority");
    }
}

#[tokio::test]
async fn a_client_of_an_older_version_is_refused_where_the_newest_is_asked_for() {
    let ours = Authority::new();
    ours.sign("server", "localhost");
    let fake = Fake::start(answer_ok).await;
    for (min_version, expect_old) in [(MinVersion::Tls12, true), (MinVersion::Tls13, false)] {
        let server = ours.server("server", ClientAuth::None);
        let tls = tls::server("test", &server, min_version, &["h2"]).expect("files").expect("TLS");
        let edge = Edge::start(settings_with(&config(fake.address)), Some(tls)).await;
        for (version, expect) in [(&TLS12, expect_old), (&TLS13, true)] {
            let pem = std::fs::read(ours.ca()).expect("a file");
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(&pem).expect("PEM")).expect("a root");
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let client = rustls::ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .expect("a version")
                .with_root_certificates(roots)
                .with_no_client_auth();
            let stream = TcpStream::connect(edge.address).await.expect("connect");
            let name = ServerName::try_from("localhost").expect("a name");
            let shaken = TlsConnector::from(Arc::new(client)).connect(name, stream);
            let is_served = patiently(shaken).await.is_ok();
            assert_eq!(is_served, expect, "{min_version:?}: {version:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_never_shakes_hands_keeps_nobody_waiting() {
    let ours = Authority::new();
    ours.sign("server", "localhost");
    let fake = Fake::start(answer_ok).await;
    let tls = listener_tls(&ours.server("server", ClientAuth::None), &["h2"]);
    let edge = Edge::start(settings_with(&config(fake.address)), Some(tls)).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(edge.address).await.expect("connect"));
    }
    let mut plain = TcpStream::connect(edge.address).await.expect("connect");
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("write");
    let mut answer = Vec::new();
    let _ = patiently(plain.read_to_end(&mut answer)).await;
    assert_ne!(answer.first(), Some(&0), "no HTTP/2 in the clear: {answer:?}");
    assert_eq!(call(edge.address, &ours.client(None)).await.as_deref(), Some("0"));
}

#[tokio::test]
async fn http_is_served_in_tls_too() {
    let ours = Authority::new();
    ours.sign("server", "localhost");
    let tls = listener_tls(&ours.server("server", ClientAuth::None), &["http/1.1"]);
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind");
    let listener = listener.with_tls(Some(tls));
    let address = listener.local_address().expect("bound");
    let (_drainer, drain) = Drainer::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let router = axum::Router::new().route("/", axum::routing::get(async || "hello"));
        edge_http::serve(listener, router, &ServerConfig::default(), drain).await;
    });
    let client = tls::client("test", &ours.client(None), &["http/1.1"]).expect("files");
    let mut stream = patiently(connect(address, &client)).await.expect("handshake");
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.expect("write");
    let mut answer = String::new();
    patiently(stream.read_to_string(&mut answer)).await.expect("read");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
}

/// The way to an upstream that asks for certificates.
fn upstream_config(address: SocketAddr, tls: &ClientTlsConfig, name: &str) -> UpstreamConfig {
    UpstreamConfig {
        tls_enabled: true,
        tls_cert_path: tls.cert_path.clone(),
        tls_key_path: tls.key_path.clone(),
        tls_ca_path: tls.ca_path.clone(),
        tls_server_name: name.to_owned(),
        tls_insecure_skip_verify: tls.insecure_skip_verify,
        connect_backoff_base_delay: Millis(10),
        connect_backoff_max_delay: Millis(20),
        ..config(address)
    }
}

#[tokio::test]
async fn the_upstream_is_believed_only_with_the_right_certificate() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    ours.sign("server", "ingester-1");
    ours.sign("client", "freehold");
    theirs.sign("client", "freehold");
    let fake = Fake::start(answer_ok).await;
    let mut tasks = JoinSet::new();
    let tls = listener_tls(&ours.server("server", ClientAuth::RequireAndVerify), &["h2"]);
    let address = tls_before(fake.address, tls, &mut tasks).await;
    let good = ours.client(Some("client"));
    let unknown = ClientTlsConfig { ca_path: ours.ca(), ..theirs.client(Some("client")) };
    let distrusting = ClientTlsConfig { ca_path: theirs.ca(), ..good.clone() };
    let anyone = ClientTlsConfig { insecure_skip_verify: true, ..distrusting.clone() };
    // (what we show and trust, the name we expect, the answer)
    for (case, tls, name, expect) in [
        ("all is right", &good, "ingester-1", "0"),
        ("another name", &good, "ingester-2", "14"),
        ("an authority we do not know", &distrusting, "ingester-1", "14"),
        ("an authority the upstream does not know", &unknown, "ingester-1", "14"),
        ("nothing shown", &ours.client(None), "ingester-1", "14"),
        ("any certificate goes", &anyone, "ingester-2", "0"),
    ] {
        let edge = Edge::with(&upstream_config(address, tls, name)).await;
        let mut client = Client::connect(edge.address).await;
        let answer = client.call(head(QUERY), framed(b"query")).await;
        assert_eq!(answer.code(), expect, "{case}: {}", answer.text());
        if expect != "0" {
            let text = answer.text();
            assert!(text.contains(&format!("upstream {address} cannot be reached")), "{text}");
        }
    }
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("copy");
}

#[tokio::test]
async fn new_certificates_are_in_force_without_a_restart_and_broken_ones_are_not() {
    let (old, new) = (Authority::new(), Authority::new());
    for authority in [&old, &new] {
        authority.sign("server", "localhost");
    }
    let fake = Fake::start(answer_ok).await;
    let tls = listener_tls(&old.server("server", ClientAuth::None), &["h2"]);
    let edge = Edge::start(settings_with(&config(fake.address)), Some(Arc::clone(&tls))).await;
    let mut following = JoinSet::new();
    let stop = std::future::pending();
    following.spawn(Arc::clone(&tls).follow(Duration::from_millis(20), stop));
    let (with_old, with_new) = (old.client(None), new.client(None));
    assert_eq!(call(edge.address, &with_old).await.as_deref(), Some("0"));
    assert_eq!(call(edge.address, &with_new).await, None);

    // Broken, then a certificate whose key is yet to come: the old pair stays.
    std::fs::write(old.path("server.pem"), "no certificate").expect("write");
    assert!(!tls.look());
    copy(&new.path("server.pem"), &old.path("server.pem"));
    assert!(!tls.look());
    assert_eq!(call(edge.address, &with_old).await.as_deref(), Some("0"));

    copy(&new.path("server.key"), &old.path("server.key"));
    patiently(async {
        while call(edge.address, &with_new).await.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(call(edge.address, &with_old).await, None, "the old one has gone");
}

#[tokio::test]
async fn an_upstream_with_a_new_authority_is_reached_once_the_file_has_it() {
    let (old, new) = (Authority::new(), Authority::new());
    new.sign("server", "localhost");
    let fake = Fake::start(answer_ok).await;
    let mut tasks = JoinSet::new();
    let tls = listener_tls(&new.server("server", ClientAuth::None), &["h2"]);
    let address = tls_before(fake.address, tls, &mut tasks).await;
    let edge = Edge::with(&upstream_config(address, &old.client(None), "localhost")).await;
    let mut client = Client::connect(edge.address).await;
    assert_eq!(client.call(head(QUERY), framed(b"query")).await.code(), "14");
    copy(&new.ca(), &old.ca());
    assert!(edge.upstream.tls().expect("TLS").look(), "something new is in force");
    patiently(async {
        while client.call(head(QUERY), framed(b"query")).await.code() != "0" {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
