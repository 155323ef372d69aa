//! The front door: what it is made of, and the task that follows its salt.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use prometheus::Registry;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::AppError;
use super::pages::Pages;
use crate::admin;
use crate::admin::front_door::FrontDoorSource;
use crate::clock::Clock;
use crate::config::Config;
use crate::exposition::{AtScrape, Counter, Families};
use crate::front_door::FrontDoor;
use crate::front_door::keys::SALT_BYTES_MIN;
use crate::server::drain::Drain;
use crate::server::front_door::{FrontDoorEdge, Routes};

/// How often the file with the salt is looked at: as often as those with certificates.
const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// Longest salt; what is longer is the wrong file.
const SALT_BYTES_MAX: u64 = 64 << 10;
/// Of a salt that is made here: as many as its hash has.
const OWN_SALT_BYTES: usize = 32;

/// Why `-front-door.salt-file` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SaltError {
    #[error("cannot read it")]
    Unreadable(#[from] std::io::Error),
    #[error("it has {bytes} bytes; a salt has at least {SALT_BYTES_MIN}")]
    TooShort { bytes: usize },
    #[error("it has more than {SALT_BYTES_MAX} bytes, which is no salt")]
    TooLong,
}

/// The front door with its page, and what stands before the routes where anything is asked of it.
pub(super) fn start(
    config: &Config,
    clock: Clock,
    registry: &Registry,
    pages: &mut Pages,
    tasks: &mut JoinSet<()>,
    drain: &Drain,
) -> Result<Option<FrontDoorEdge>, AppError> {
    let door = match config.front_door.is_on() {
        false => None,
        true => Some(open(config, clock, registry, tasks, drain)?),
    };
    pages.shown.front_door(&door);
    let source = FrontDoorSource { door: door.clone(), config: config.front_door.clone(), clock };
    pages.add_ours(|site| admin::front_door::router(source, site));
    let Some(door) = door else { return Ok(None) };
    let routes = Routes::new(config.frontend.prefixes());
    let headers = config.front_door.ratelimit_headers;
    Ok(Some(FrontDoorEdge::new(door, clock, routes, headers)))
}

/// Puts the front door before the routes, if there is one.
pub(super) fn before(router: Router, edge: Option<FrontDoorEdge>) -> Router {
    match edge {
        None => router,
        Some(edge) => edge.before(router),
    }
}

/// The door itself, with its numbers registered and its salt followed.
fn open(
    config: &Config,
    clock: Clock,
    registry: &Registry,
    tasks: &mut JoinSet<()>,
    drain: &Drain,
) -> Result<Arc<FrontDoor>, AppError> {
    let door = &config.front_door;
    let path = &door.salt_file;
    let is_ours = path.as_os_str().is_empty();
    let salt = match is_ours {
        true => own_salt().to_vec(),
        false => read_salt(path)
            .map_err(|source| AppError::FrontDoorSalt { path: path.clone(), source })?,
    };
    let failures = Arc::new(Counter::default());
    let front_door = Arc::new(FrontDoor::new(door, &salt));
    let (shown, unreadable) = (Arc::clone(&front_door), Arc::clone(&failures));
    let read = move |families: &mut Families| {
        shown.read_metrics(families);
        families.counter(
            "freehold_front_door_salt_failures_total",
            "Looks at the file with the salt that found none to be used; the old one stays.",
            unreadable.get(),
        );
    };
    registry.register(Box::new(AtScrape::new("front_door_families", read)))?;
    if !is_ours {
        let following = Following { path: path.clone(), salt, clock, failures };
        let (followed, mut drain) = (Arc::clone(&front_door), drain.clone());
        tasks.spawn(async move {
            // Any arm may be dropped: the next look sees all.
            tokio::select! {
                () = drain.started() => {}
                () = following.run(&followed, LOOK_PERIOD) => {}
            }
        });
    }
    if door.trusted_proxies.is_empty() {
        tracing::info!(
            "the front door takes the other end of a connection for the sender; where a proxy \
             stands before it, name that in -front-door.trusted-proxies"
        );
    }
    Ok(front_door)
}

/// What takes a new salt from its file.
struct Following {
    path: PathBuf,
    /// In force.
    salt: Vec<u8>,
    clock: Clock,
    failures: Arc<Counter>,
}

impl Following {
    async fn run(mut self, door: &FrontDoor, period: Duration) {
        let mut looks = tokio::time::interval(period);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_readable = true;
        loop {
            looks.tick().await;
            let path = self.path.clone();
            // A file may be on a network; and a look that panicked is the next one's to make.
            let Ok(read) = tokio::task::spawn_blocking(move || read_salt(&path)).await else {
                continue;
            };
            match read {
                Ok(salt) => {
                    was_readable = true;
                    self.take(salt, door);
                }
                Err(error) => {
                    self.failures.add(1);
                    if std::mem::replace(&mut was_readable, false) {
                        tracing::warn!(%error, "the front door's salt stays as it is");
                    }
                }
            }
        }
    }

    fn take(&mut self, salt: Vec<u8>, door: &FrontDoor) {
        if salt != self.salt {
            door.rotate(&salt, self.clock.steady_ns());
            self.salt = salt;
            tracing::info!("a new salt of the front door is in force");
        }
    }
}

fn own_salt() -> [u8; OWN_SALT_BYTES] {
    let mut salt = [0; OWN_SALT_BYTES];
    rand::fill(&mut salt);
    salt
}

fn read_salt(path: &Path) -> Result<Vec<u8>, SaltError> {
    let mut salt = Vec::new();
    std::fs::File::open(path)?.take(SALT_BYTES_MAX + 1).read_to_end(&mut salt)?;
    if salt.len() as u64 > SALT_BYTES_MAX {
        return Err(SaltError::TooLong);
    }
    if salt.len() < SALT_BYTES_MIN {
        return Err(SaltError::TooShort { bytes: salt.len() });
    }
    Ok(salt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front_door::config::FrontDoorConfig;

    #[test]
    fn a_salt_comes_from_its_file_and_no_nonsense_is_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("salt");
        let write = |bytes: &[u8]| std::fs::write(&path, bytes).expect("written");
        assert!(matches!(read_salt(&path), Err(SaltError::Unreadable(_))));
        write(b"0123456789abcde");
        assert!(matches!(read_salt(&path), Err(SaltError::TooShort { bytes: 15 })));
        write(b"0123456789abcdef");
        assert_eq!(read_salt(&path).expect("a salt"), b"0123456789abcdef");
        write(&vec![7; SALT_BYTES_MAX as usize + 1]);
        assert!(matches!(read_salt(&path), Err(SaltError::TooLong)));
        assert_ne!(own_salt(), own_salt());
    }

    #[tokio::test]
    async fn a_new_salt_is_taken_and_a_broken_file_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("salt");
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        let door = FrontDoor::new(&FrontDoorConfig::default(), b"0123456789abcdef");
        write("0123456789abcdef");
        let salt = b"0123456789abcdef".to_vec();
        let failures = Arc::new(Counter::default());
        let failed = Arc::clone(&failures);
        let following = Following { path: path.clone(), salt, clock: Clock::start(), failures };
        let rotations = || {
            let mut families = Families::default();
            door.read_metrics(&mut families);
            let families = families.into_vec();
            let name = "freehold_front_door_salt_rotations_total";
            let family = families.iter().find(|family| family.name() == name).expect("there");
            family.get_metric()[0].get_counter().get_value()
        };
        let steps = async {
            let until = async |is_there: &dyn Fn() -> bool| {
                while !is_there() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            write("short");
            until(&|| failed.get() > 0).await;
            assert_eq!(rotations(), 0.0);
            write("fedcba9876543210");
            until(&|| rotations() == 1.0).await;
        };
        let within = tokio::time::timeout(Duration::from_secs(30), async {
            // The first to end is the one that ends.
            tokio::select! {
                () = following.run(&door, Duration::from_millis(1)) => {}
                () = steps => {}
            }
        });
        within.await.expect("in time");
    }
}
