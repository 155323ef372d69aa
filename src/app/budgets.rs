//! Budgets over all gates of a ring: what they are made of, and the task that follows the ring.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::member::Member;
use super::{AppError, owners};
use crate::clients::key::KEY_SECRET_BYTES;
use crate::clients::peers::{Budgets, BudgetsSetup, HAND_OVER_WITHIN, TermsFn, connector};
use crate::clients::{GateSettings, KeyHasher};
use crate::clock::Clock;
use crate::config::Config;
use crate::exposition::{AtScrape, Families};
use crate::limits::IngestionRateStrategy;
use crate::ring::model::InstanceState;
use crate::ring::{Ring, RingSnapshot};
use crate::server::drain::Drain;
use crate::tls;
use crate::upstream::config::UpstreamConfig;

/// How often the ring is looked at. Watches bring a change at once, and gates agree on owners some
/// moments after this.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// How often a gate that leaves looks whether its ring shows that.
const LEAVING_LOOK_PERIOD: Duration = Duration::from_millis(10);
/// How often idle budgets are looked for.
const SWEEP_PERIOD: Duration = Duration::from_secs(5);
/// Longest secret of `-client-identity.secret-file`; more says nothing more.
const SECRET_BYTES_MAX: u64 = 64 << 10;
/// What places budgets where no secret is told: it has only to be the same everywhere.
const OPEN_SECRET: &[u8] = b"freehold: place of a budget";

/// Why `-client-identity.secret-file` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read it")]
    Unreadable(#[from] std::io::Error),
    #[error("it has {bytes} bytes; a secret has 16 to {SECRET_BYTES_MAX}")]
    Length { bytes: u64 },
}

/// What budgets are kept up with.
pub(super) struct Means<'a> {
    pub(super) registry: &'a Registry,
    pub(super) tasks: &'a mut JoinSet<()>,
    pub(super) drain: &'a Drain,
    pub(super) clock: Clock,
}

/// Whether anything is to be kept over all distributors.
pub(super) fn are_wanted(config: &Config) -> bool {
    config.client_identity.enabled
        || config.limits.ingestion_rate_strategy == IngestionRateStrategy::Leased
}

/// Budgets of a member of a ring, from now on kept up with it.
pub(super) fn start(
    config: &Config,
    member: &Member,
    terms_of: Arc<TermsFn>,
    means: Means<'_>,
) -> Result<Budgets, AppError> {
    let Means { registry, tasks, drain, clock } = means;
    let identity = &config.client_identity;
    let grpc = &config.ingester_client.grpc_client_config;
    let tls = match grpc.tls_enabled {
        false => None,
        true => Some(tls::client("gates' client", &grpc.tls(), &["h2"])?),
    };
    let way = UpstreamConfig {
        tls_server_name: grpc.tls_server_name.clone(),
        connect_timeout: identity.owner_timeout,
        ..UpstreamConfig::default()
    };
    let budgets = Budgets::new(BudgetsSetup {
        gates: member.gates(),
        us: Arc::clone(member.id()),
        incarnation: rand::random(),
        settings: GateSettings { owner_lost: identity.owner_lost, cold_start: identity.cold_start },
        hasher: KeyHasher::new(secret(&identity.secret_file)?),
        clock,
        owner_timeout: identity.owner_timeout.as_duration(),
        terms_of,
        connect: connector(way, tls),
    });
    let (shown, name) = (budgets.clone(), member.gates().name());
    let read = move |families: &mut Families| {
        shown.read_metrics(families);
        families.label("ring", name);
    };
    let source = format!("client_{}_families", name.replace('-', "_"));
    registry.register(Box::new(AtScrape::new(&source, read)))?;
    let (followed, ring) = (budgets.clone(), Arc::clone(member.ring()));
    let (us, overdue_ms) = (Arc::clone(member.id()), identity.owner_overdue.0);
    let mut drain = drain.clone();
    tasks.spawn(async move {
        // Any arm may be dropped: the next look sees all.
        tokio::select! {
            () = drain.started() => {}
            () = follow(&followed, &ring, &us, overdue_ms) => {}
        }
    });
    Ok(budgets)
}

/// Hands all accounts over to those who own them in a ring without us.
pub(super) async fn leave(budgets: &Budgets, member: &Member, config: &Config) {
    let overdue_ms = config.client_identity.owner_overdue.0;
    // What we have written to the store comes back by the watch; a map with us in it would keep
    // all accounts here.
    let mut looks = tokio::time::interval(LEAVING_LOOK_PERIOD);
    let is_still_active = |ring: &RingSnapshot| {
        let us = ring.members().iter().find(|one| one.id == *member.id());
        us.is_some_and(|us| us.state == InstanceState::Active)
    };
    let seen = async {
        while is_still_active(&member.ring().load()) {
            looks.tick().await;
        }
    };
    let _ = tokio::time::timeout(HAND_OVER_WITHIN, seen).await;
    let ring = member.ring().load();
    budgets.publish(owners::owner_map(&ring, member.id(), overdue_ms), &owners::addresses(&ring));
    budgets.leave().await;
}

async fn follow(budgets: &Budgets, ring: &Ring, us: &str, overdue_ms: u64) {
    let mut looks = tokio::time::interval(LOOK_PERIOD);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sweeps = tokio::time::interval(SWEEP_PERIOD);
    let mut last = None;
    loop {
        // Both arms only wait.
        tokio::select! {
            _ = looks.tick() => {
                let now = ring.load();
                if last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &now)) {
                    continue;
                }
                let map = owners::owner_map(&now, us, overdue_ms);
                budgets.publish(map, &owners::addresses(&now));
                last = Some(now);
            }
            _ = sweeps.tick() => budgets.sweep(),
        }
    }
}

/// The bytes that names are hashed with, made from what the file holds.
fn secret(path: &Path) -> Result<[u8; KEY_SECRET_BYTES], AppError> {
    let told = match path.as_os_str().is_empty() {
        true => OPEN_SECRET.to_vec(),
        false => read_secret(path)
            .map_err(|source| AppError::ClientSecret { path: path.to_owned(), source })?,
    };
    let mut secret = [0; KEY_SECRET_BYTES];
    for (at, part) in secret.chunks_mut(32).enumerate() {
        let block = Sha256::new().chain_update([at as u8]).chain_update(&told).finalize();
        part.copy_from_slice(&block[..part.len()]);
    }
    Ok(secret)
}

fn read_secret(path: &Path) -> Result<Vec<u8>, SecretError> {
    let bytes = std::fs::metadata(path)?.len();
    if !(16..=SECRET_BYTES_MAX).contains(&bytes) {
        return Err(SecretError::Length { bytes });
    }
    Ok(std::fs::read(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_from_its_file_and_no_nonsense_is_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("secret");
        let open = secret(Path::new("")).expect("the open one");
        std::fs::write(&path, "0123456789abcdef").expect("written");
        let first = secret(&path).expect("a secret");
        assert_eq!(first, secret(&path).expect("a secret"));
        assert_ne!(first, open);
        std::fs::write(&path, "0123456789abcde").expect("written");
        let error = secret(&path).expect_err("too short");
        assert!(matches!(
            error,
            AppError::ClientSecret { source: SecretError::Length { bytes: 15 }, .. }
        ));
        secret(&dir.path().join("none")).expect_err("no such file");
    }
}
