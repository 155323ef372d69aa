//! Something built from files, kept up to date with their contents.
//!
//! Contents are compared, not times: an orchestrator swaps links, and a file system may keep
//! times to the second. Certificate and key change one after the other, so the pair may not fit
//! for a moment; then the next look finds it whole.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use xxhash_rust::xxh3::Xxh3;

use super::{Pem, TlsError, expiry};
use crate::exposition::Families;

/// How often the files are looked at: a new certificate is there long before the old one ends,
/// and a withdrawn one is used this much longer.
pub const RELOAD_PERIOD: Duration = Duration::from_secs(10);
/// Longest file. All authorities of a host are a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

type Build<T> = dyn Fn(&[Pem]) -> Result<T, TlsError> + Send + Sync;

pub struct Watched<T> {
    /// Which one this is, for log and metrics: `server grpc`.
    name: &'static str,
    paths: Vec<PathBuf>,
    build: Box<Build<T>>,
    current: ArcSwap<T>,
    state: Mutex<State>,
}

/// How it stands with one side's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whose it is: `server_grpc`.
    pub name: &'static str,
    /// Why the files in place cannot be used, while they cannot; what was read before stays.
    pub failure: Option<String>,
    /// When it ends, in seconds since 1970, where one is shown to others and that can be read.
    pub expires_s: Option<i64>,
}

struct State {
    /// Of the contents that `current` was built from.
    digest: u128,
    /// When the certificate of those ends, in seconds since 1970.
    expires_s: Option<i64>,
    /// What the last look came to, as the log was told it.
    failure: Option<String>,
    reloads: u64,
    failures: u64,
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Reads the files for the first time; here an error is one.
    pub fn load(
        name: &'static str,
        paths: Vec<PathBuf>,
        build: impl Fn(&[Pem]) -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let pems = read_all(&paths)?;
        let current = ArcSwap::from_pointee(build(&pems)?);
        let (digest, expires_s) = (digest(&pems), expiry::of_pair(&pems));
        let state = State { digest, expires_s, failure: None, reloads: 0, failures: 0 };
        Ok(Self { name, paths, build: Box::new(build), current, state: Mutex::new(state) })
    }

    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Looks at the files and takes what has changed, as often as `period` until `stop`.
    pub async fn follow(self: Arc<Self>, period: Duration, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut ticks = tokio::time::interval(period);
        loop {
            // Both arms only wait.
            tokio::select! {
                () = &mut stop => return,
                _ = ticks.tick() => {}
            }
            let watched = Arc::clone(&self);
            // A file may be on a network; and a look that panicked is the next one's to make.
            let _ = tokio::task::spawn_blocking(move || watched.look()).await;
        }
    }

    /// Reads the files, and takes what has changed. True when something new is in force.
    pub fn look(&self) -> bool {
        let outcome = read_all(&self.paths).and_then(|pems| {
            let digest = digest(&pems);
            let is_known = self.state.lock().expect("no panic under this lock").digest == digest;
            if is_known {
                return Ok(None);
            }
            (self.build)(&pems).map(|built| Some((digest, expiry::of_pair(&pems), built)))
        });
        let mut state = self.state.lock().expect("no panic under this lock");
        match outcome {
            Ok(None) => {
                if state.failure.take().is_some() {
                    tracing::info!(tls = self.name, "certificates are as before");
                }
                false
            }
            Ok(Some((digest, expires_s, built))) => {
                self.current.store(Arc::new(built));
                state.digest = digest;
                state.expires_s = expires_s;
                state.failure = None;
                state.reloads += 1;
                tracing::info!(tls = self.name, "new certificates are in force");
                true
            }
            Err(error) => {
                state.failures += 1;
                let failure = chain(&error);
                if state.failure.as_ref() != Some(&failure) {
                    tracing::warn!(tls = self.name, error = %failure, "certificates stay as they are");
                    state.failure = Some(failure);
                }
                false
            }
        }
    }

    pub fn standing(&self) -> Standing {
        let state = self.state.lock().expect("no panic under this lock");
        Standing { name: self.name, failure: state.failure.clone(), expires_s: state.expires_s }
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let state = self.state.lock().expect("no panic under this lock");
        let labels = [("for", self.name)];
        families
            .counters("freehold_tls_reloads_total", "New certificates and keys put in force.")
            .sample(labels, state.reloads as f64);
        families
            .counters(
                "freehold_tls_reload_failures_total",
                "Looks at certificates and keys that found none to be used; the old ones stay.",
            )
            .sample(labels, state.failures as f64);
        if let Some(expires_s) = state.expires_s {
            families
                .gauges(
                    "freehold_tls_certificate_expires_timestamp_seconds",
                    "When the certificate that this side shows ends, or the first of its chain.",
                )
                .sample(labels, expires_s as f64);
        }
        families
            .gauges("freehold_tls_reload_failing", "1 while the files in place cannot be used.")
            .sample(labels, f64::from(u8::from(state.failure.is_some())));
    }
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<Pem>, TlsError> {
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Pem, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(TlsError::TooLong { path: path.to_owned(), bytes_max: FILE_BYTES_MAX });
    }
    Ok(Pem { path: path.to_owned(), bytes })
}

/// Tells contents apart; lengths keep the end of one file from being the start of the next.
fn digest(pems: &[Pem]) -> u128 {
    let mut hasher = Xxh3::new();
    for pem in pems {
        hasher.update(&(pem.bytes.len() as u64).to_le_bytes());
        hasher.update(&pem.bytes);
    }
    hasher.digest128()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_contents_are_taken_and_broken_ones_change_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let write = |text: &str| std::fs::write(&path, text).expect("write");
        write("one");
        let failing = TlsError::NoHostAuthorities;
        assert!(chain(&failing).contains("no certificate authorities"));
        let watched = Watched::load("test", vec![path.clone()], |pems| match &pems[0].bytes[..] {
            b"broken" => Err(TlsError::NoCertificate { path: pems[0].path.clone() }),
            bytes => Ok(String::from_utf8_lossy(bytes).into_owned()),
        })
        .expect("one");
        let check = |text: Option<&str>, is_new: bool, expect: &str, failures: u64| {
            match text {
                Some(text) => write(text),
                None => std::fs::remove_file(&path).expect("remove"),
            }
            assert_eq!(watched.look(), is_new, "{text:?}");
            assert_eq!(*watched.current(), expect, "{text:?}");
            let state = watched.state.lock().expect("lock");
            assert_eq!(state.failures, failures, "{text:?}");
        };
        check(Some("one"), false, "one", 0);
        check(Some("two"), true, "two", 0);
        check(Some("broken"), false, "two", 1);
        check(None, false, "two", 2);
        check(Some("two"), false, "two", 2);
        assert!(watched.state.lock().expect("lock").failure.is_none());
        check(Some("three"), true, "three", 2);
    }

    #[test]
    fn a_file_without_end_is_not_read_to_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let file = File::create(&path).expect("create");
        file.set_len(FILE_BYTES_MAX + 1).expect("length");
        assert!(matches!(read(&path), Err(TlsError::TooLong { .. })));
    }
}
