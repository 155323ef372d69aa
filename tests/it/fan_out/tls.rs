//! TLS to ingesters, under Cortex's names of the settings.

use std::path::{Path, PathBuf};

use freehold::tls::{self, ClientAuth, ServerTlsConfig};
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

#[tokio::test]
async fn ingesters_and_distributor_know_each_other_by_their_certificates() {
    let directory = tempfile::tempdir().expect("a directory");
    let (node_cert, node_key) = sign(directory.path(), "node");
    let (gate_cert, gate_key) = sign(directory.path(), "gate");
    let config = ServerTlsConfig {
        cert_file: node_cert.clone(),
        key_file: node_key,
        client_auth_type: ClientAuth::RequireAndVerify,
        client_ca_file: gate_cert.clone(),
    };
    let tls = tls::server("test", &config, tls::MinVersion::default(), &["h2"])
        .expect("files")
        .expect("a certificate");
    let node = Node::behind(Some(tls), 0, StreamKeys::default()).await;
    let ring = ring_of(&[node.address], 1, |_| String::new());
    for mut setup in Setup::both() {
        let plain = setup.start().push(&ring, 0..5).await;
        assert_eq!(plain.expect_err("no TLS").code(), Some(500));

        let grpc = &mut setup.client.grpc_client_config;
        grpc.tls_enabled = true;
        grpc.tls_ca_path = node_cert.clone();
        let bare = setup.start().push(&ring, 0..5).await;
        assert_eq!(bare.expect_err("nothing shown").code(), Some(500));

        let grpc = &mut setup.client.grpc_client_config;
        grpc.tls_cert_path = gate_cert.clone();
        grpc.tls_key_path = gate_key.clone();
        let gate = setup.start();
        assert!(gate.fan_out.ingesters().tls().is_some());
        gate.push(&ring, 0..5).await.expect("stored");

        let grpc = &mut setup.client.grpc_client_config;
        grpc.tls_server_name = "another".to_owned();
        let other = setup.start().push(&ring, 0..5).await.expect_err("another's name");
        assert!(other.to_string().contains("rpc error: code = Unavailable desc = "), "{other}");
    }
    assert_eq!(node.series(TENANT), 5);
}
