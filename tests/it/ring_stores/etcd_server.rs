//! A real etcd as a child: started on free ports, killed, emptied, started again.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use freehold::ring::config::{KvConfig, KvStoreKind};
use freehold::units::Millis;

use crate::cortex::cluster::until;
use crate::ports::Port;
use crate::process::Process;

pub struct Etcd {
    dir: tempfile::TempDir,
    client: Port,
    peer: Port,
    flags: Vec<String>,
    scheme: &'static str,
    starts: usize,
    process: Option<Process>,
}

impl Etcd {
    /// `None`, said aloud, where there is no etcd.
    pub async fn start() -> Option<Self> {
        let mut etcd = Self::new()?;
        etcd.run().await;
        Some(etcd)
    }

    /// Its clients have to come by TLS and to show a certificate of the same authority.
    pub async fn start_with_tls(ca: &Path, cert: &Path, key: &Path) -> Option<Self> {
        let mut etcd = Self::new()?;
        etcd.scheme = "https";
        etcd.flags = vec![
            format!("--cert-file={}", cert.display()),
            format!("--key-file={}", key.display()),
            format!("--trusted-ca-file={}", ca.display()),
            "--client-cert-auth".to_owned(),
        ];
        etcd.run().await;
        Some(etcd)
    }

    fn new() -> Option<Self> {
        let found = ["etcd", "etcdctl"].iter().all(|name| is_installed(name));
        if !found {
            println!(
                "skipped: etcd or etcdctl is not installed (Debian: etcd-server, etcd-client)"
            );
            return None;
        }
        Some(Self {
            dir: tempfile::tempdir().expect("a directory"),
            client: Port::new(),
            peer: Port::new(),
            flags: Vec::new(),
            scheme: "http",
            starts: 0,
            process: None,
        })
    }

    /// Starts it, on its data where there are any, and returns once it takes connections.
    pub async fn run(&mut self) {
        let url = format!("{}://127.0.0.1:{}", self.scheme, self.client.number());
        let peer_url = format!("http://127.0.0.1:{}", self.peer.number());
        let mut command = Command::new("etcd");
        command.args(&self.flags).args([
            format!("--data-dir={}", self.data().display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=default={peer_url}"),
        ]);
        self.starts += 1;
        let log = self.dir.path().join(format!("etcd-{}.log", self.starts));
        self.process = Some(Process::spawn(&mut command, &log));
        let client = self.client.address;
        until("etcd takes connections", async || {
            tokio::net::TcpStream::connect(client).await.is_ok()
        })
        .await;
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Loses all data; revisions then start anew.
    pub fn wipe(&mut self) {
        assert!(self.process.is_none(), "killed before");
        std::fs::remove_dir_all(self.data()).expect("removed");
    }

    pub fn address(&self) -> String {
        self.client.address.to_string()
    }

    pub fn config(&self) -> KvConfig {
        let mut config = KvConfig { store: KvStoreKind::Etcd, ..KvConfig::default() };
        config.etcd.endpoints = vec![self.address()];
        // An etcd that syncs to a slow disk takes seconds; a dead one refuses at once.
        config.etcd.dial_timeout = Millis::from_secs(20);
        config.etcd.tls_enabled = self.scheme == "https";
        config
    }

    /// What Debian's own client does with it.
    pub fn ctl(&self, args: &[&str]) -> Output {
        let endpoint = format!("--endpoints={}", self.address());
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(endpoint).args(args).output().expect("etcdctl")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}
