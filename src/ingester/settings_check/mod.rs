//! Whether our settings are those of the distributors: both must place series alike.
//!
//! Where a distributor's address is given, its `/config` page is read at the start and every five
//! minutes and compared with ours. Where none is, what arrives is the only witness: see
//! `passes/mismatch.rs`, which asks [`explain`] for the setting that differs.
//!
//! What must hold: a page that cannot be read changes nothing that was known; each difference is
//! logged when it comes and when it goes, not at each look.

mod evidence;
mod explain;

pub use explain::{Evidence, Explanation, explain};

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;

use crate::exposition::Families;
use crate::upstream::page::{PageBounds, PageError, PageServer};

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(5 * 60);
/// Time to the next look after one that failed: who starts together with its distributors finds
/// them at the second or third, and a page a quarter of a minute costs a distributor nothing.
pub const AGAIN_AFTER: Duration = Duration::from_secs(15);
/// A page of settings is some 60 kB; one with many overrides in it is still far below this.
const BOUNDS: PageBounds = PageBounds { deadline: Duration::from_secs(5), body_bytes_max: 4 << 20 };

/// Settings that decide which instances a series goes to, as one process has them.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Placing {
    /// Text of each value, by the flag that sets it.
    values: BTreeMap<&'static str, String>,
    /// Kind of the store that keeps the ring, and what goes before its key there. Who follows the
    /// ring through another store than the writers has a key of his own.
    stored: Option<(String, String)>,
}

/// A setting with two values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub setting: &'static str,
    pub ours: String,
    pub theirs: String,
}

/// Why a page told no settings.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Page(#[from] PageError),
    #[error("the page is no settings in YAML")]
    Yaml(#[source] Box<serde_saphyr::Error>),
    #[error("the page is not UTF-8")]
    NotText,
    #[error("the page names none of the settings")]
    NotCortex,
}

/// The part of Cortex's page that is compared. What a process leaves out is not.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    distributor: PageDistributor,
    ingester: PageIngester,
    limits: PageLimits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageDistributor {
    sharding_strategy: Option<String>,
    shard_by_all_labels: Option<bool>,
    extend_writes: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageIngester {
    lifecycler: PageLifecycler,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageLifecycler {
    ring: PageRing,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageRing {
    kvstore: PageKv,
    replication_factor: Option<i64>,
    zone_awareness_enabled: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageKv {
    store: Option<String>,
    prefix: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageLimits {
    ingestion_tenant_shard_size: Option<f64>,
}

impl Placing {
    /// Adds a setting under its flag.
    pub fn with(mut self, setting: &'static str, value: impl ToString) -> Self {
        self.values.insert(setting, value.to_string());
        self
    }

    /// Where the ring is kept.
    pub fn stored_in(mut self, store: impl ToString, prefix: impl ToString) -> Self {
        self.stored = Some((store.to_string(), prefix.to_string()));
        self
    }

    /// The settings on a `/config` page of Cortex.
    pub fn read(page: &str) -> Result<Self, CheckError> {
        let page: Page =
            serde_saphyr::from_str(page).map_err(|error| CheckError::Yaml(Box::new(error)))?;
        let ring = page.ingester.lifecycler.ring;
        let distributor = page.distributor;
        let mut placing = Self::default();
        let values = [
            ("-distributor.replication-factor", ring.replication_factor.map(|n| n.to_string())),
            (
                "-distributor.zone-awareness-enabled",
                ring.zone_awareness_enabled.map(|b| b.to_string()),
            ),
            ("-distributor.sharding-strategy", distributor.sharding_strategy),
            (
                "-distributor.shard-by-all-labels",
                distributor.shard_by_all_labels.map(|b| b.to_string()),
            ),
            ("-distributor.extend-writes", distributor.extend_writes.map(|b| b.to_string())),
            (
                "-distributor.ingestion-tenant-shard-size",
                page.limits.ingestion_tenant_shard_size.map(|size| size.to_string()),
            ),
        ];
        for (setting, value) in values {
            if let Some(value) = value {
                placing = placing.with(setting, value);
            }
        }
        placing.stored = ring.kvstore.store.zip(ring.kvstore.prefix);
        if placing.values.is_empty() {
            return Err(CheckError::NotCortex);
        }
        Ok(placing)
    }

    /// What differs, of the settings that both tell.
    pub fn differences(&self, theirs: &Self) -> Vec<Difference> {
        let mut pairs: Vec<_> = self
            .values
            .iter()
            .filter_map(|(setting, ours)| Some((*setting, ours, theirs.values.get(setting)?)))
            .collect();
        if let (Some((store, ours)), Some((their_store, theirs))) = (&self.stored, &theirs.stored)
            && store == their_store
        {
            pairs.push(("-ring.prefix", ours, theirs));
        }
        let differing = pairs.into_iter().filter(|(_, ours, theirs)| ours != theirs);
        differing
            .map(|(setting, ours, theirs)| Difference {
                setting,
                ours: ours.clone(),
                theirs: theirs.clone(),
            })
            .collect()
    }
}

/// Looks at a distributor's settings again and again.
pub struct SettingsCheck {
    distributor: PageServer,
    ours: Placing,
    found: Found,
}

/// What the last look found; cheap to clone.
#[derive(Clone, Default)]
pub struct Found(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    differences: Vec<Difference>,
    is_failing: bool,
}

impl SettingsCheck {
    /// `address` is `host:port` of a distributor's HTTP port, or its URL; with `https://` its
    /// certificate is checked against the authorities in `ca_path`, or the host's.
    pub fn new(address: &str, ca_path: &Path, ours: Placing) -> Result<Self, PageError> {
        let distributor = PageServer::new(address, ca_path)?;
        Ok(Self { distributor, ours, found: Found::default() })
    }

    pub fn found(&self) -> Found {
        self.found.clone()
    }

    /// Looks until `stop`.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut looks = tokio::time::interval(PERIOD);
        loop {
            // Both arms only wait.
            tokio::select! {
                () = &mut stop => return,
                _ = looks.tick() => {}
            }
            let looked = self.look().await;
            if looked.is_err() {
                looks.reset_after(AGAIN_AFTER);
            }
            self.found.tell(looked);
        }
    }

    /// One look.
    pub async fn look(&self) -> Result<Vec<Difference>, CheckError> {
        // Behind a prefix, if the URL has one.
        let path = format!("{}/config", self.distributor.path().trim_end_matches('/'));
        let body = self.distributor.get(&path, BOUNDS).await?;
        let text = std::str::from_utf8(&body).map_err(|_| CheckError::NotText)?;
        Ok(self.ours.differences(&Placing::read(text)?))
    }
}

impl Found {
    pub fn differences(&self) -> Vec<Difference> {
        self.0.lock().expect("no panic under this lock").differences.clone()
    }

    /// The distributor's settings cannot be read now; what was found before stays.
    pub fn is_failing(&self) -> bool {
        self.0.lock().expect("no panic under this lock").is_failing
    }

    pub fn tell(&self, looked: Result<Vec<Difference>, CheckError>) {
        let mut state = self.0.lock().expect("no panic under this lock");
        match looked {
            Err(error) => {
                if !std::mem::replace(&mut state.is_failing, true) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "cannot compare our settings with the distributor's");
                }
            }
            Ok(differences) => {
                state.is_failing = false;
                for new in differences.iter().filter(|new| !state.differences.contains(new)) {
                    tracing::error!(
                        setting = new.setting,
                        ours = new.ours,
                        distributor = new.theirs,
                        "a setting differs from the distributor's: it sends series elsewhere \
                         than we believe"
                    );
                }
                for gone in state.differences.iter().filter(|gone| !differences.contains(gone)) {
                    tracing::info!(setting = gone.setting, "a setting agrees again");
                }
                state.differences = differences;
            }
        }
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let state = self.0.lock().expect("no panic under this lock");
        families.gauge(
            "freehold_ingester_settings_check_failing",
            "1 while the distributor's settings cannot be read.",
            f64::from(u8::from(state.is_failing)),
        );
        let mut differing = families.gauges(
            "freehold_ingester_settings_differ",
            "1 for each setting that differs from the distributor's, by the flag that sets it.",
        );
        for difference in &state.differences {
            differing.sample([("setting", difference.setting)], 1.0);
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    const PAGE: &str = "
target: distributor
auth_enabled: true
distributor:
  pool:
    client_cleanup_interval: 15s
  sharding_strategy: default
  shard_by_all_labels: true
  extend_writes: true
ingester:
  lifecycler:
    ring:
      kvstore:
        store: etcd
        prefix: collectors/
      heartbeat_timeout: 1m0s
      replication_factor: 3
      zone_awareness_enabled: true
    num_tokens: 512
limits:
  ingestion_tenant_shard_size: 0
";

    fn ours() -> Placing {
        Placing::default()
            .with("-distributor.replication-factor", 3)
            .with("-distributor.zone-awareness-enabled", true)
            .with("-distributor.shard-by-all-labels", true)
            .with("-distributor.extend-writes", true)
            .with("-distributor.sharding-strategy", "default")
            .with("-distributor.ingestion-tenant-shard-size", 0.0)
            .stored_in("etcd", "collectors/")
    }

    #[test]
    fn equal_settings_differ_in_nothing() {
        assert_eq!(ours().differences(&Placing::read(PAGE).expect("settings")), []);
    }

    #[test]
    fn each_setting_that_differs_is_told_with_both_values() {
        let check =
            |ours_line: &str, theirs_line: &str, setting: &str, ours_value: &str, theirs: &str| {
                let page = PAGE.replace(ours_line, theirs_line);
                let found = ours().differences(&Placing::read(&page).expect("settings"));
                assert_eq!(found.len(), 1, "{found:?}");
                let found = &found[0];
                assert_eq!(
                    (found.setting, &*found.ours, &*found.theirs),
                    (setting, ours_value, theirs)
                );
            };
        check("factor: 3", "factor: 2", "-distributor.replication-factor", "3", "2");
        check(
            "awareness_enabled: true",
            "awareness_enabled: false",
            "-distributor.zone-awareness-enabled",
            "true",
            "false",
        );
        check(
            "all_labels: true",
            "all_labels: false",
            "-distributor.shard-by-all-labels",
            "true",
            "false",
        );
        check(
            "extend_writes: true",
            "extend_writes: false",
            "-distributor.extend-writes",
            "true",
            "false",
        );
        check(
            "strategy: default",
            "strategy: shuffle-sharding",
            "-distributor.sharding-strategy",
            "default",
            "shuffle-sharding",
        );
        check(
            "shard_size: 0",
            "shard_size: 0.3",
            "-distributor.ingestion-tenant-shard-size",
            "0",
            "0.3",
        );
        check("prefix: collectors/", "prefix: mine/", "-ring.prefix", "collectors/", "mine/");
    }

    #[test]
    fn a_ring_followed_through_another_store_has_a_key_of_its_own() {
        let ours = ours().stored_in("file", "");
        assert_eq!(ours.differences(&Placing::read(PAGE).expect("settings")), []);
    }

    #[test]
    fn a_page_that_is_none_is_an_error() {
        assert!(matches!(Placing::read("{}"), Err(CheckError::NotCortex)));
        assert!(matches!(Placing::read("a: [b"), Err(CheckError::Yaml(_))));
    }

    #[test]
    fn a_failed_look_keeps_what_was_found() {
        let found = Found::default();
        let theirs = Placing::read(&PAGE.replace("factor: 3", "factor: 1")).expect("settings");
        found.tell(Ok(ours().differences(&theirs)));
        found.tell(Err(CheckError::NotText));
        assert_eq!(found.differences().len(), 1);
        found.tell(Ok(Vec::new()));
        assert_eq!(found.differences(), []);
    }
}
