//! The task that re-reads the runtime file.
//!
//! The first load must succeed, since starting without an operator's limits would admit what
//! they forbid. From then on the last good file stays in force, whatever happens to the file.
//! The same content is not parsed twice, and a state is logged when it is reached, not each time
//! it is found again.

pub mod write;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::overrides::Overrides;
use super::runtime_file::{ParseError, RuntimeFile};
use crate::exposition::Families;
use crate::sync::Mutex;
use crate::units::Millis;

/// Longest runtime file that is read, in bytes: room for ten thousand tenants with a screen of
/// limits each. A longer one is refused, and the last good one stays.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// The block `runtime_config:`, under Cortex's names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The runtime file; empty for none.
    pub file: String,
    /// How often the file is read. Default 10s.
    pub period: Millis,
}

/// Why [`Config`] is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("runtime_config: period must be above 0")]
    NoPeriod,
}

impl Config {
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.period.0 == 0 {
            return Err(ConfigError::NoPeriod);
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { file: String::new(), period: Millis::from_secs(10) }
    }
}

/// Why the runtime file could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("read runtime file {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("runtime file {} is longer than {FILE_BYTES_MAX} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("runtime file {} is not UTF-8", path.display())]
    Encoding { path: PathBuf, source: std::str::Utf8Error },
    #[error("load runtime file {}", path.display())]
    Parse { path: PathBuf, source: ParseError },
    #[error("the task that reads the runtime file ended early")]
    Task(#[from] tokio::task::JoinError),
}

/// What metrics and pages show of the reloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadStatus {
    /// `cortex_runtime_config_last_reload_successful`.
    pub last_successful: bool,
    /// Of the file in force, for `cortex_runtime_config_hash`; `None` before the first.
    pub sha256: Option<String>,
    /// Times that a file was put in force.
    pub published_total: u64,
    pub failures_total: u64,
    /// Warnings about the file in force.
    pub warnings: usize,
    /// Why the present file could not be taken over, while it could not.
    pub failure: Option<String>,
}

/// Re-reads the runtime file into [`Overrides`].
pub struct Reloader {
    path: PathBuf,
    period: Millis,
    overrides: Arc<Overrides>,
    status: Arc<Mutex<ReloadStatus>>,
    /// The failure that was logged last and still lasts.
    failure_logged: Option<String>,
}

/// Reads the status of a [`Reloader`] that runs elsewhere.
#[derive(Clone)]
pub struct ReloadStatusReader(Arc<Mutex<ReloadStatus>>);

impl Reloader {
    /// `None` if the configuration names no runtime file.
    pub fn new(config: &Config, overrides: Arc<Overrides>) -> Option<Self> {
        if config.file.is_empty() {
            return None;
        }
        Some(Self {
            path: PathBuf::from(&config.file),
            period: config.period,
            overrides,
            status: Arc::new(Mutex::new(ReloadStatus::default())),
            failure_logged: None,
        })
    }

    pub fn status(&self) -> ReloadStatusReader {
        ReloadStatusReader(Arc::clone(&self.status))
    }

    /// Reads the file and puts it in force if it is new and right. An error is the caller's to
    /// log: at start it ends the process, later [`Reloader::run`] logs it.
    pub async fn load(&mut self) -> Result<(), ReloadError> {
        let (path, overrides) = (self.path.clone(), Arc::clone(&self.overrides));
        let known = self.status().get().sha256;
        // Reading and parsing may take long with many tenants; a worker thread may not.
        let read = tokio::task::spawn_blocking(move || read(path, &overrides, known.as_deref()));
        let loaded = read.await.map_err(ReloadError::from).and_then(|read| read);
        let mut status = lock(&self.status);
        match loaded {
            Ok(fresh) => {
                status.last_successful = true;
                status.failure = None;
                if let Some((file, sha256)) = fresh {
                    log_warnings(&file);
                    status.warnings = file.warnings.total;
                    status.published_total += 1;
                    let generation = self.overrides.publish(file);
                    let path = self.path.display();
                    tracing::info!(%path, generation, sha256, "runtime file in force");
                    status.sha256 = Some(sha256);
                }
                Ok(())
            }
            Err(error) => {
                status.last_successful = false;
                status.failures_total += 1;
                status.failure = Some(chain(&error));
                Err(error)
            }
        }
    }

    /// Loads again each period until `stop` ends. Dropping the future between two loads loses
    /// nothing.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut ticks = tokio::time::interval(self.period.as_duration());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The first tick comes at once, and the file was loaded just before.
        ticks.tick().await;
        loop {
            // Both arms only wait: a tick that loses is due again at the next turn.
            tokio::select! {
                () = &mut stop => return,
                _ = ticks.tick() => {}
            }
            let loaded = self.load().await;
            self.log(loaded);
        }
    }

    /// Logs a failure once per text, and its end.
    fn log(&mut self, loaded: Result<(), ReloadError>) {
        match loaded {
            Ok(()) => {
                if self.failure_logged.take().is_some() {
                    tracing::info!(path = %self.path.display(), "runtime file is readable again");
                }
            }
            Err(error) => {
                let chain = chain(&error);
                if self.failure_logged.as_ref() != Some(&chain) {
                    tracing::error!(
                        error = chain,
                        "runtime file not loaded, the last good one stays"
                    );
                    self.failure_logged = Some(chain);
                }
            }
        }
    }
}

impl ReloadStatusReader {
    /// Adds the families of the runtime file, under Cortex's names.
    pub fn read_metrics(&self, families: &mut Families) {
        let status = self.get();
        families.gauge(
            "cortex_runtime_config_last_reload_successful",
            "Whether the last runtime-config reload attempt was successful.",
            f64::from(u8::from(status.last_successful)),
        );
        let mut hash = families.gauges(
            "cortex_runtime_config_hash",
            "Hash of the currently active runtime config file.",
        );
        if let Some(sha256) = &status.sha256 {
            hash.sample([("sha256", sha256)], 1.0);
        }
        families.counter(
            "freehold_runtime_config_failures_total",
            "Reads of the runtime file that failed; the last good one stayed in force.",
            status.failures_total,
        );
        families.gauge(
            "freehold_runtime_config_warnings",
            "Names and values in the runtime file that are legal and most likely a mistake.",
            status.warnings as f64,
        );
    }

    pub fn get(&self) -> ReloadStatus {
        lock(&self.0).clone()
    }
}

/// The parsed file with its hash, or `None` if its content is the `known` one.
fn read(
    path: PathBuf,
    overrides: &Overrides,
    known: Option<&str>,
) -> Result<Option<(RuntimeFile, String)>, ReloadError> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    // A pipe would keep us waiting for its other end, and the reloads with us.
    let regular = std::fs::metadata(&path).and_then(|found| match found.is_file() {
        true => Ok(()),
        false => Err(std::io::Error::other("not a regular file")),
    });
    let read = regular
        .and_then(|()| std::fs::File::open(&path))
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    let len = match read {
        Ok(len) => len as u64,
        Err(source) => return Err(ReloadError::Read { path, source }),
    };
    if len > FILE_BYTES_MAX {
        return Err(ReloadError::TooLong { path });
    }
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if known == Some(&sha256) {
        return Ok(None);
    }
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(source) => return Err(ReloadError::Encoding { path, source }),
    };
    match overrides.parse(text) {
        Ok(file) => Ok(Some((file, sha256))),
        Err(source) => Err(ReloadError::Parse { path, source }),
    }
}

fn log_warnings(file: &RuntimeFile) {
    for warning in &file.warnings.shown {
        tracing::warn!(%warning, "runtime file");
    }
    let hidden = file.warnings.total - file.warnings.shown.len();
    if hidden > 0 {
        tracing::warn!(hidden, "runtime file has more warnings than are shown");
    }
}

fn lock(status: &Mutex<ReloadStatus>) -> crate::sync::MutexGuard<'_, ReloadStatus> {
    // Each field is whole by itself; a panic in between leaves nothing to repair.
    status.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut chain = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        chain.push_str(&format!(": {error}"));
        source = error.source();
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{InstanceLimits, Limits};
    use crate::tenant::TenantId;

    struct Fixture {
        _dir: tempfile::TempDir,
        path: PathBuf,
        overrides: Arc<Overrides>,
    }

    impl Fixture {
        fn new(text: &str) -> (Self, Reloader) {
            let dir = tempfile::tempdir().expect("temporary directory");
            let path = dir.path().join("runtime.yaml");
            let overrides = Arc::new(Overrides::new(Limits::default(), InstanceLimits::default()));
            let config = Config { file: path.display().to_string(), ..Config::default() };
            let reloader = Reloader::new(&config, Arc::clone(&overrides)).expect("has a file");
            let fixture = Self { _dir: dir, path, overrides };
            fixture.write(text);
            (fixture, reloader)
        }

        fn write(&self, text: &str) {
            std::fs::write(&self.path, text).expect("write the runtime file");
        }

        fn series(&self) -> i64 {
            let tenant = TenantId::parse("a").expect("tenant");
            self.overrides.load().limits(&tenant).max_global_series_per_user
        }
    }

    #[tokio::test]
    async fn case_f7_an_invalid_file_keeps_the_last_good_one() {
        let (fixture, mut reloader) =
            Fixture::new("overrides: {a: {max_global_series_per_user: 5}}");
        reloader.load().await.expect("valid");
        let hash = reloader.status().get().sha256;
        for wrong in ["overrides: {a: {max_global_series_per_user: many}}", "]", "overrides: 7"] {
            fixture.write(wrong);
            assert!(reloader.load().await.is_err(), "{wrong}");
            assert_eq!(fixture.series(), 5);
            let status = reloader.status().get();
            assert!(!status.last_successful);
            assert_eq!(status.sha256, hash, "the hash is that of the file in force");
        }
        std::fs::remove_file(&fixture.path).expect("remove");
        assert!(reloader.load().await.is_err());
        assert_eq!((fixture.series(), reloader.status().get().failures_total), (5, 4));
    }

    #[tokio::test]
    async fn unchanged_content_is_not_published_again() {
        let (fixture, mut reloader) =
            Fixture::new("overrides: {a: {max_global_series_per_user: 5}}");
        reloader.load().await.expect("valid");
        reloader.load().await.expect("valid");
        assert_eq!(fixture.overrides.load().generation(), 1);
        fixture.write("]");
        assert!(reloader.load().await.is_err());
        fixture.write("overrides: {a: {max_global_series_per_user: 5}}");
        reloader.load().await.expect("valid again");
        assert_eq!(reloader.status().get().published_total, 1);
        assert!(reloader.status().get().last_successful);
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the test waits for its end")]
    async fn a_change_is_in_force_within_a_period_until_stopped() {
        let (fixture, mut reloader) = Fixture::new("");
        reloader.load().await.expect("empty is valid");
        let status = reloader.status();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(reloader.run(async {
            let _ = stopped.await;
        }));
        fixture.write("overrides: {a: {max_global_series_per_user: 9}, b: {max_seris: 1}}");
        // Paused time moves by itself whenever all tasks wait.
        while status.get().published_total < 2 {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        assert_eq!((fixture.series(), status.get().warnings), (9, 1));
        stop.send(()).expect("still running");
        running.await.expect("ends");
    }

    #[test]
    fn no_file_means_no_reloader() {
        let overrides = Arc::new(Overrides::new(Limits::default(), InstanceLimits::default()));
        assert!(Reloader::new(&Config::default(), overrides).is_none());
        let no_period = Config { period: Millis(0), ..Config::default() };
        assert_eq!(no_period.validate(), Err(ConfigError::NoPeriod));
    }
}
