//! A distributor that is reached by TLS: whom the gate believes, and what it shows of itself.
//!
//! Nothing of a write may go to somebody who has not proved who he is.

use std::io;

use freehold::tls::{ClientAuth, ClientTlsConfig};
use freehold::upstream::distributor::config::HttpUpstreamConfig;
use tokio::task::JoinSet;

use super::*;
use crate::pass_through::tls::{Authority, copy, listener_tls, tls_before};

/// How a gate reaches a distributor by TLS.
struct Way {
    authority: Authority,
    stub: Stub,
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Way {
    /// The distributor shows `file`, once `sign` has made it.
    async fn new(file: &str, client_auth: ClientAuth, sign: impl FnOnce(&Authority)) -> Self {
        let authority = Authority::new();
        sign(&authority);
        let stub = Stub::default();
        let (plain, _) = stub.listen(([127, 0, 0, 1], 0).into()).await;
        let mut tasks = JoinSet::new();
        let tls = listener_tls(&authority.server(file, client_auth), &["http/1.1"]);
        let address = tls_before(plain, tls, &mut tasks).await;
        Self { authority, stub, address, _tasks: tasks }
    }

    async fn gate(&self, change: impl FnOnce(&mut HttpUpstreamConfig)) -> WriteGate {
        let mut config = config(self.address);
        let upstream = &mut config.distributor.upstream;
        upstream.url = format!("https://{}", self.address);
        upstream.tls_ca_path = self.authority.ca();
        change(upstream);
        config.validate().expect("a good configuration");
        WriteGate::start(config).await.expect("starts")
    }

    /// What a sender is told by such a gate.
    async fn told(&self, change: impl FnOnce(&mut HttpUpstreamConfig)) -> Answer {
        let gate = self.gate(change).await;
        let answer = push(&gate, &good()).await;
        gate.stop().await.expect("stops");
        answer
    }

    async fn check_taken(&self, case: &str, change: impl FnOnce(&mut HttpUpstreamConfig)) {
        let before = self.stub.count();
        let answer = self.told(change).await;
        assert_eq!(answer.status, 200, "{case}: {answer:?}");
        assert_eq!(self.stub.count(), before + 1, "{case}");
        assert_eq!(self.stub.last().body, good(), "{case}");
    }

    /// The sender may come again, is told why in `because`, and nothing has been sent on.
    async fn check_refused(
        &self,
        case: &str,
        because: &str,
        change: impl FnOnce(&mut HttpUpstreamConfig),
    ) {
        let before = self.stub.count();
        let answer = self.told(change).await;
        assert_eq!(answer.status, 503, "{case}: {answer:?}");
        assert!(answer.headers.contains_key("retry-after"), "{case}: {answer:?}");
        assert!(answer.body.contains(because), "{case}: {}", answer.body);
        assert_eq!(self.stub.count(), before, "{case}");
    }
}

fn show(upstream: &mut HttpUpstreamConfig, of: &Authority, file: &str) {
    let ClientTlsConfig { cert_path, key_path, .. } = of.client(Some(file));
    (upstream.tls_cert_path, upstream.tls_key_path) = (cert_path, key_path);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_go_to_a_distributor_that_proves_its_name_and_to_no_other() {
    let way = Way::new("cortex", ClientAuth::None, |a| a.sign("cortex", "127.0.0.1")).await;
    way.check_taken("the URL's own name", |_| {}).await;
    way.check_refused("another name is asked for", "not valid for name", |upstream| {
        upstream.tls_server_name = "cortex".to_owned();
    })
    .await;
    let stranger = Authority::new();
    way.check_refused("an authority that nobody knows", "invalid peer certificate", |upstream| {
        upstream.tls_ca_path = stranger.ca();
    })
    .await;
    way.check_refused("the host's own authorities", "UnknownIssuer", |upstream| {
        upstream.tls_ca_path = std::path::PathBuf::new();
    })
    .await;
    way.check_taken("nothing is checked where that is asked for", |upstream| {
        upstream.tls_ca_path = stranger.ca();
        upstream.tls_server_name = "cortex".to_owned();
        upstream.tls_insecure_skip_verify = true;
    })
    .await;

    let way = Way::new("cortex", ClientAuth::None, |a| a.sign("cortex", "cortex")).await;
    way.check_taken("a name of its own", |upstream| {
        upstream.tls_server_name = "cortex".to_owned();
    })
    .await;
    way.check_refused("the URL's name, which is not on it", "not valid for name", |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_out_of_its_time_is_none() {
    for (year, because) in [(2001, "expired"), (2901, "not valid yet")] {
        let way = Way::new("cortex", ClientAuth::None, |authority| {
            authority.sign_with("cortex", "127.0.0.1", |params| {
                params.not_before = rcgen::date_time_ymd(year, 1, 1);
                params.not_after = rcgen::date_time_ymd(year, 2, 1);
            });
        });
        way.await.check_refused("out of its time", because, |_| {}).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_distributor_that_asks_who_writes_is_shown_a_certificate() {
    let way = Way::new("cortex", ClientAuth::RequireAndVerify, |authority| {
        authority.sign("cortex", "127.0.0.1");
        authority.sign("gate", "gate");
    });
    let way = way.await;
    way.check_taken("one that it knows", |upstream| show(upstream, &way.authority, "gate")).await;
    let stranger = Authority::new();
    stranger.sign("gate", "gate");
    // TLS 1.3 tells a client that it is refused only after it could have sent something.
    let before = way.stub.count();
    for of in [None, Some(&stranger)] {
        let answer = way.told(|upstream| {
            if let Some(of) = of {
                show(upstream, of, "gate");
            }
        });
        let answer = answer.await;
        assert!([502, 503].contains(&answer.status), "{answer:?}");
    }
    assert_eq!(way.stub.count(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_speak_tls_is_not_written_to() {
    let stub = Stub::default();
    let (plain, _) = stub.listen(([127, 0, 0, 1], 0).into()).await;
    let mut by_tls = config(plain);
    by_tls.distributor.upstream.url = format!("https://{plain}");
    let gate = WriteGate::start(by_tls).await.expect("starts");
    let answer = push(&gate, &good()).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(stub.count(), 0);
    gate.stop().await.expect("stops");

    // In the clear to one who expects TLS: nothing is understood, so nothing arrives.
    let way = Way::new("cortex", ClientAuth::None, |a| a.sign("cortex", "127.0.0.1")).await;
    let answer = way.told(|upstream| upstream.url = format!("http://{}", way.address)).await;
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(way.stub.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_changes_is_believed_without_a_restart() -> io::Result<()> {
    let way = Way::new("cortex", ClientAuth::None, |a| a.sign("cortex", "127.0.0.1")).await;
    let known = tempfile::tempdir()?;
    let ca = known.path().join("ca.pem");
    copy(&Authority::new().ca(), &ca);
    let gate = way.gate(|upstream| upstream.tls_ca_path = ca.clone()).await;
    assert_eq!(push(&gate, &good()).await.status, 503);
    copy(&way.authority.ca(), &ca);
    let taken = async {
        while push(&gate, &good()).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.expect("believed");
    let shown = metrics(&gate).await;
    let line = "freehold_tls_reloads_total{for=\"distributor_upstream\"} 1";
    assert!(shown.contains(line), "{shown}");
    gate.stop().await.expect("stops");
    Ok(())
}
