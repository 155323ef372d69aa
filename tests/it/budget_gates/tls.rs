//! Gates as processes that know each other by their certificates.

use freehold::tls::ClientAuth;

use super::lab::{LEARNING, body, with};
use super::*;
use crate::pass_through::tls::Authority;

const BURST: u64 = 40;

/// How a gate shows itself and whom it asks; both sides are the same files.
fn flags_of(authority: &Authority, client: Option<&Authority>) -> Vec<String> {
    let ours = authority.server("gate", ClientAuth::RequireAndVerify);
    let mut flags = vec![
        "-client-identity.enabled".to_owned(),
        format!("-server.grpc-tls-cert-path={}", ours.cert_file.display()),
        format!("-server.grpc-tls-key-path={}", ours.key_file.display()),
        "-server.grpc-tls-client-auth=RequireAndVerifyClientCert".to_owned(),
        format!("-server.grpc-tls-ca-path={}", ours.client_ca_file.display()),
        "-ingester.client.tls-enabled=true".to_owned(),
        format!("-ingester.client.tls-ca-path={}", authority.ca().display()),
    ];
    if let Some(client) = client {
        let shown = client.client(Some("gate"));
        flags.push(format!("-ingester.client.tls-cert-path={}", shown.cert_path.display()));
        flags.push(format!("-ingester.client.tls-key-path={}", shown.key_path.display()));
    }
    flags
}

/// A burst, and next to nothing after it.
fn limits() -> String {
    format!(
        "client_identity_ingestion_rate_limit: 0.001, client_identity_ingestion_burst_size: {BURST}"
    )
}

/// As many samples as a client may write in all, asked for at each of two gates.
async fn admitted(lab: &Lab) -> [usize; 2] {
    let (driver, one) = (lab.driver(), body(1));
    let mut admitted = [0; 2];
    for (gate, admitted) in admitted.iter_mut().enumerate() {
        let mut told = Vec::new();
        for _ in 0..BURST {
            told.push(driver.push(gate, Some("writer"), &one).await);
        }
        *admitted = with(200, &told);
    }
    admitted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_one_for_gates_that_show_each_other_certificates() {
    let _alone = ALONE.lock().await;
    let authority = Authority::new();
    authority.sign("gate", "127.0.0.1");
    let flags = flags_of(&authority, Some(&authority));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let lab = Lab::start(2, &limits(), &flags).await;
    let both = admitted(&lab).await;
    assert_eq!(both.iter().sum::<usize>() as u64, BURST, "{both:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_spends_budgets_of_gates_who_shows_none_or_a_strangers() {
    let _alone = ALONE.lock().await;
    let (authority, stranger) = (Authority::new(), Authority::new());
    authority.sign("gate", "127.0.0.1");
    stranger.sign("gate", "127.0.0.1");
    for shown in [None, Some(&stranger)] {
        let mut flags = flags_of(&authority, shown);
        flags.push("-client-identity.owner-lost=deny".to_owned());
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let lab = Lab::start_unsettled(2, &limits(), &flags).await;
        for gate in &lab.gates {
            gate.wait_ready().await;
            let explain = || gate.process.log();
            crate::process::wait_for(explain, async || {
                let lines = gate.process.log();
                lines.contains("a gate does not answer").then_some(())
            })
            .await;
        }
        tokio::time::sleep(LEARNING).await;
        // The owner admits what is its own; the other has nobody to ask.
        let mut both = admitted(&lab).await;
        both.sort_unstable();
        let both = both.map(|admitted| admitted as u64);
        // A heartbeat that is late makes the owner begin with less than all.
        assert!(both[0] == 0 && (1..=BURST).contains(&both[1]), "{both:?}");
    }
}
