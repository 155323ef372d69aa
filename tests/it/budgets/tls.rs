//! Gates know each other by their certificates.

use std::path::{Path, PathBuf};

use freehold::tls::{self, ClientAuth, ClientTlsConfig, ServerTlsConfig};
use rcgen::{CertificateParams, KeyPair};

use super::*;

/// A certificate for 127.0.0.1 that nobody but itself has signed, and its key.
fn sign(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("params");
    let certificate = params.self_signed(&key).expect("signed");
    let path = |end: &str| directory.join(format!("{name}.{end}"));
    std::fs::write(path("pem"), certificate.pem()).expect("write");
    std::fs::write(path("key"), key.serialize_pem()).expect("write");
    (path("pem"), path("key"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_are_shared_with_gates_that_show_a_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let (cert, key) = sign(directory.path(), "gate");
    let config = ServerTlsConfig {
        cert_file: cert.clone(),
        key_file: key.clone(),
        client_auth_type: ClientAuth::RequireAndVerify,
        client_ca_file: cert.clone(),
    };
    let server = tls::server("test", &config, tls::MinVersion::default(), &["h2"])
        .expect("files")
        .expect("a certificate");
    let way = |cert_path: PathBuf, key_path: PathBuf| {
        let files =
            ClientTlsConfig { cert_path, key_path, ca_path: cert.clone(), ..Default::default() };
        let tls = tls::client("peers", &files, &["h2"]).expect("files");
        let template = UpstreamConfig { tls_enabled: true, ..UpstreamConfig::default() };
        connector(template, Some(tls))
    };
    let plain = connector(UpstreamConfig::default(), None);
    let bare = way(PathBuf::new(), PathBuf::new());
    let known = way(cert.clone(), key);
    for (connect, is_answered) in [(plain, false), (bare, false), (known, true)] {
        let setup = Setup { tls: Some(server.clone()), connect, ..Setup::default() };
        let cluster = Cluster::start(2, &setup).await;
        let name = cluster.clients_of(0, 1).remove(0);
        let charged = cluster[1].charge(client(&name), 1, setup.terms).await;
        assert_eq!(charged.is_ok(), is_answered);
        let shown = cluster[1].budgets.show(client(&name)).await;
        assert_eq!(shown.is_ok(), is_answered);
    }
}
