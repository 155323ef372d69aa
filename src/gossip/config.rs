//! What a member of a gossip may be told: the `memberlist:` block, under Cortex's names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::wire::{Label, LabelError, LabelRule};
use crate::units::Millis;

/// Most members that are named to be joined; each may be a name of many.
const JOIN_MEMBERS_MAX: usize = 256;
/// Most addresses that are listened on.
const BIND_ADDRS_MAX: usize = 16;
/// Most bytes of messages kept for the page, of each direction: a page of a browser can show some
/// ten thousand of them, and they are in memory.
const HISTORY_BYTES_MAX: usize = 1 << 30;

/// See the head of the file. Unknown keys are refused where a file is read: flattening knows no
/// such check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberlistConfig {
    /// What this member is called; empty takes the host's name.
    pub node_name: String,
    /// Adds something random to the name, so that a restart is a new member.
    pub randomize_node_name: bool,
    /// For each stream: to connect, and to read and write.
    pub stream_timeout: Millis,
    /// A message is sent `factor · ⌈log10(members + 1)⌉` times.
    pub retransmit_factor: u32,
    /// How often everything is compared with another member; longer in large clusters.
    pub pull_push_interval: Millis,
    pub gossip_interval: Millis,
    /// Members told at each interval.
    pub gossip_nodes: usize,
    /// How long the dead are told too, so that they can contradict.
    pub gossip_to_dead_nodes_time: Millis,
    /// After how long another address may take the name of a dead member; 0 is never.
    pub dead_node_reclaim_time: Millis,
    pub compression_enabled: bool,
    /// What others are told to reach us by; empty takes the address listened on.
    pub advertise_addr: String,
    /// Goes with `advertise_addr` alone.
    pub advertise_port: u16,
    pub cluster_label: String,
    /// Takes every label while a cluster is given a new one.
    pub cluster_label_verification_disabled: bool,
    /// `host:port`, a host, or `dns+`, `dnssrv+` or `dnssrvnoa+` before a name.
    pub join_members: Vec<String>,
    pub min_join_backoff: Millis,
    pub max_join_backoff: Millis,
    pub max_join_retries: u32,
    pub abort_if_cluster_join_fails: bool,
    /// How often the members to join are joined again; 0 is never.
    pub rejoin_interval: Millis,
    /// How long an instance that has left stays in the ring, so that nobody brings it back.
    pub left_ingesters_timeout: Millis,
    /// The same of a key that was deleted.
    pub tombstone_timeout: Millis,
    pub leave_timeout: Millis,
    /// Room for messages that the page shows, of each direction; 0 keeps none.
    pub message_history_buffer_bytes: usize,
    #[serde(flatten)]
    pub transport: TransportConfig,
}

/// How members reach each other: TCP, one connection for each packet and each stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransportConfig {
    /// Addresses to listen on; none are all.
    pub bind_addr: Vec<String>,
    pub bind_port: u16,
    /// Of a packet's connection, its handshake included; 0 is the longest wait there is.
    pub packet_dial_timeout: Millis,
    pub packet_write_timeout: Millis,
    pub packet_read_timeout: Millis,
    /// Longest packet that is taken; 0 is the longest there is.
    pub max_packet_size: usize,
    /// Connections of others at a time; more are closed. 0 is the most there are.
    pub max_concurrent_connections: usize,
    /// Logs each packet and connection, at level debug.
    pub transport_debug: bool,
    pub tls_enabled: bool,
    /// Shown to both those who call us and those whom we call.
    pub tls_cert_path: PathBuf,
    pub tls_key_path: PathBuf,
    /// Who may have signed others' certificates; empty takes the host's own authorities.
    pub tls_ca_path: PathBuf,
    /// Name that each member's certificate has to carry; empty takes the address dialled.
    pub tls_server_name: String,
    pub tls_insecure_skip_verify: bool,
    /// Takes only members whose certificate is good. Cortex asks for none of those who call it.
    pub tls_verify_peers: bool,
}

/// Settings of a gossip that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberlistConfigError {
    #[error("-memberlist.cluster-label cannot be used")]
    Label(#[from] LabelError),
    #[error("{flag} has {given:?}, which is no IP address")]
    NoAddress { flag: &'static str, given: String },
    #[error("{flag} must be more than 0")]
    Zero { flag: &'static str },
    #[error("{flag} is given {given} times; {most} are the most")]
    TooMany { flag: &'static str, given: usize, most: usize },
    #[error("-memberlist.advertise-port must be set beside -memberlist.advertise-addr")]
    AdvertisePort,
    #[error("-memberlist.min-join-backoff is {min}, more than -memberlist.max-join-backoff, {max}")]
    Backoff { min: Millis, max: Millis },
    #[error(
        "-memberlist.join has {given:?}; write host:port, a host, or dns+name:port, dnssrv+name"
    )]
    Join { given: String },
    #[error(
        "-memberlist.message-history-buffer-bytes is {given}; {HISTORY_BYTES_MAX} are the most"
    )]
    History { given: usize },
    #[error("-memberlist.tls-cert-path and -memberlist.tls-key-path go together")]
    HalfCertificate,
    #[error(
        "-memberlist.tls-enabled needs -memberlist.tls-cert-path and -memberlist.tls-key-path: \
         members listen, too"
    )]
    NoCertificate,
    #[error("-memberlist.tls-verify-peers needs {flag}")]
    VerifyPeers { flag: &'static str },
}

impl Default for MemberlistConfig {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            randomize_node_name: true,
            stream_timeout: Millis::from_secs(10),
            retransmit_factor: 4,
            pull_push_interval: Millis::from_secs(30),
            gossip_interval: Millis(200),
            gossip_nodes: 3,
            gossip_to_dead_nodes_time: Millis::from_secs(30),
            dead_node_reclaim_time: Millis(0),
            compression_enabled: true,
            advertise_addr: String::new(),
            advertise_port: 7946,
            cluster_label: String::new(),
            cluster_label_verification_disabled: false,
            join_members: Vec::new(),
            min_join_backoff: Millis::from_secs(1),
            max_join_backoff: Millis::from_secs(60),
            max_join_retries: 10,
            abort_if_cluster_join_fails: true,
            rejoin_interval: Millis(0),
            left_ingesters_timeout: Millis::from_secs(300),
            tombstone_timeout: Millis::from_secs(300),
            leave_timeout: Millis::from_secs(5),
            message_history_buffer_bytes: 0,
            transport: TransportConfig::default(),
        }
    }
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            bind_addr: Vec::new(),
            bind_port: 7946,
            packet_dial_timeout: Millis::from_secs(5),
            packet_write_timeout: Millis::from_secs(5),
            packet_read_timeout: Millis::from_secs(5),
            max_packet_size: 1 << 20,
            max_concurrent_connections: 100,
            transport_debug: false,
            tls_enabled: false,
            tls_cert_path: PathBuf::new(),
            tls_key_path: PathBuf::new(),
            tls_ca_path: PathBuf::new(),
            tls_server_name: String::new(),
            tls_insecure_skip_verify: false,
            tls_verify_peers: false,
        }
    }
}

impl MemberlistConfig {
    pub fn validate(&self) -> Result<(), MemberlistConfigError> {
        self.label_rule()?;
        self.advertised()?;
        self.transport.validate()?;
        for (flag, value) in [
            ("-memberlist.stream-timeout", self.stream_timeout),
            ("-memberlist.gossip-interval", self.gossip_interval),
            ("-memberlist.pullpush-interval", self.pull_push_interval),
            ("-memberlist.min-join-backoff", self.min_join_backoff),
        ] {
            if value.0 == 0 {
                return Err(MemberlistConfigError::Zero { flag });
            }
        }
        if self.gossip_nodes == 0 {
            return Err(MemberlistConfigError::Zero { flag: "-memberlist.gossip-nodes" });
        }
        if self.retransmit_factor == 0 {
            return Err(MemberlistConfigError::Zero { flag: "-memberlist.retransmit-factor" });
        }
        let (min, max) = (self.min_join_backoff, self.max_join_backoff);
        if min > max {
            return Err(MemberlistConfigError::Backoff { min, max });
        }
        at_most("-memberlist.join", &self.join_members, JOIN_MEMBERS_MAX)?;
        for given in &self.join_members {
            Seed::parse(given)
                .ok_or_else(|| MemberlistConfigError::Join { given: given.clone() })?;
        }
        let given = self.message_history_buffer_bytes;
        if given > HISTORY_BYTES_MAX {
            return Err(MemberlistConfigError::History { given });
        }
        Ok(())
    }

    /// What we say of our cluster, and which others we take.
    pub fn label_rule(&self) -> Result<LabelRule, MemberlistConfigError> {
        let is_verified = !self.cluster_label_verification_disabled;
        Ok(LabelRule { label: Label::new(&*self.cluster_label)?, is_verified })
    }

    /// What others are told to reach us by, if that was said.
    pub fn advertised(&self) -> Result<Option<SocketAddr>, MemberlistConfigError> {
        if self.advertise_addr.is_empty() {
            return Ok(None);
        }
        if self.advertise_port == 0 {
            return Err(MemberlistConfigError::AdvertisePort);
        }
        let ip = ip("-memberlist.advertise-addr", &self.advertise_addr)?;
        Ok(Some(SocketAddr::new(ip.to_canonical(), self.advertise_port)))
    }

    /// The members to join; what cannot be one was refused when the settings were read.
    pub fn seeds(&self) -> Vec<Seed> {
        self.join_members.iter().filter_map(|given| Seed::parse(given)).collect()
    }
}

impl TransportConfig {
    pub fn validate(&self) -> Result<(), MemberlistConfigError> {
        self.listen_on()?;
        let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
        if is_set(&self.tls_cert_path) != is_set(&self.tls_key_path) {
            return Err(MemberlistConfigError::HalfCertificate);
        }
        if self.tls_enabled && !is_set(&self.tls_cert_path) {
            return Err(MemberlistConfigError::NoCertificate);
        }
        if self.tls_verify_peers {
            for (flag, is_set) in [
                ("-memberlist.tls-enabled", self.tls_enabled),
                ("-memberlist.tls-ca-path", is_set(&self.tls_ca_path)),
            ] {
                if !is_set {
                    return Err(MemberlistConfigError::VerifyPeers { flag });
                }
            }
        }
        Ok(())
    }

    /// The addresses to listen on, one at least.
    pub fn listen_on(&self) -> Result<Vec<IpAddr>, MemberlistConfigError> {
        at_most("-memberlist.bind-addr", &self.bind_addr, BIND_ADDRS_MAX)?;
        if self.bind_addr.is_empty() {
            return Ok(vec![Ipv4Addr::UNSPECIFIED.into()]);
        }
        self.bind_addr.iter().map(|given| ip("-memberlist.bind-addr", given)).collect()
    }
}

fn ip(flag: &'static str, given: &str) -> Result<IpAddr, MemberlistConfigError> {
    given.parse().map_err(|_| MemberlistConfigError::NoAddress { flag, given: given.to_owned() })
}

fn at_most(flag: &'static str, given: &[String], most: usize) -> Result<(), MemberlistConfigError> {
    let given = given.len();
    if given <= most { Ok(()) } else { Err(MemberlistConfigError::TooMany { flag, given, most }) }
}

/// One entry of the members to join, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    pub lookup: Lookup,
    pub host: String,
    /// Not told: the port that all members share, or the one in the name's record.
    pub port: Option<u16>,
}

/// How the host of an entry is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// As any host is, to all its addresses.
    Host,
    /// `dns+`, and `dnsdualstack+`: the same, and a port has to be told.
    Dns,
    /// `dnssrv+` and `dnssrvnoa+`: its record tells hosts and ports.
    Service,
}

impl Seed {
    pub fn parse(given: &str) -> Option<Self> {
        let (lookup, name) = match given.trim().split_once('+') {
            None => (Lookup::Host, given.trim()),
            Some(("dns" | "dnsdualstack", name)) => (Lookup::Dns, name),
            Some(("dnssrv" | "dnssrvnoa", name)) => (Lookup::Service, name),
            Some(_) => return None,
        };
        let (host, port) = match name.rsplit_once(':') {
            // An IPv6 address without brackets has no port.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, Some(port.parse().ok().filter(|port| *port != 0)?))
            }
            _ => (name, None),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_name = |c: char| c.is_alphanumeric() || "-_.:".contains(c);
        let is_good = !host.is_empty() && host.chars().all(is_name);
        let lacks_port = lookup == Lookup::Dns && port.is_none();
        (is_good && !lacks_port).then(|| Self { lookup, host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_work() {
        let config = MemberlistConfig::default();
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(config.transport.listen_on(), Ok(vec![Ipv4Addr::UNSPECIFIED.into()]));
        assert_eq!(config.advertised(), Ok(None));
        assert!(config.label_rule().expect("empty").is_verified);
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_their_flag() {
        let check = |change: fn(&mut MemberlistConfig), text: &str| {
            let mut config = MemberlistConfig::default();
            change(&mut config);
            let error = config.validate().expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        };
        check(|config| config.cluster_label = "x".repeat(256), "-memberlist.cluster-label");
        check(|config| config.advertise_addr = "host".into(), "-memberlist.advertise-addr has");
        check(
            |config| {
                config.advertise_addr = "10.0.0.1".into();
                config.advertise_port = 0;
            },
            "-memberlist.advertise-port",
        );
        check(
            |config| config.transport.bind_addr = vec!["eth0".into()],
            "-memberlist.bind-addr has",
        );
        check(|config| config.transport.bind_addr = vec!["::".into(); 17], "17 times; 16");
        check(|config| config.stream_timeout = Millis(0), "-memberlist.stream-timeout");
        check(|config| config.gossip_interval = Millis(0), "-memberlist.gossip-interval");
        check(|config| config.pull_push_interval = Millis(0), "-memberlist.pullpush-interval");
        check(|config| config.gossip_nodes = 0, "-memberlist.gossip-nodes");
        check(|config| config.retransmit_factor = 0, "-memberlist.retransmit-factor");
        check(
            |config| config.min_join_backoff = Millis::from_secs(61),
            "-memberlist.min-join-backoff is 1m1s",
        );
        check(|config| config.join_members = vec!["dnssd+x:1".into()], "-memberlist.join has");
        check(|config| config.message_history_buffer_bytes = usize::MAX, "history-buffer-bytes");
        check(|config| config.transport.tls_cert_path = "c".into(), "go together");
        check(|config| config.transport.tls_enabled = true, "-memberlist.tls-enabled needs");
        check(|config| config.transport.tls_verify_peers = true, "needs -memberlist.tls-enabled");
    }

    #[test]
    fn members_to_join_are_written_in_four_ways() {
        let check = |given: &str, expect: Option<(Lookup, &str, Option<u16>)>| {
            let expect =
                expect.map(|(lookup, host, port)| Seed { lookup, host: host.into(), port });
            assert_eq!(Seed::parse(given), expect, "{given}");
        };
        check("a:7946", Some((Lookup::Host, "a", Some(7946))));
        check(" a.b ", Some((Lookup::Host, "a.b", None)));
        check("10.0.0.1", Some((Lookup::Host, "10.0.0.1", None)));
        check("fd00::1", Some((Lookup::Host, "fd00::1", None)));
        check("[fd00::1]", Some((Lookup::Host, "fd00::1", None)));
        check("[fd00::1]:5", Some((Lookup::Host, "fd00::1", Some(5))));
        check("dns+ring.svc:7946", Some((Lookup::Dns, "ring.svc", Some(7946))));
        check("dnsdualstack+ring:1", Some((Lookup::Dns, "ring", Some(1))));
        check("dnssrv+_gossip._tcp.ring", Some((Lookup::Service, "_gossip._tcp.ring", None)));
        check("dnssrvnoa+_g._tcp.ring:9", Some((Lookup::Service, "_g._tcp.ring", Some(9))));
        for wrong in ["", "dns+ring", "a:0", "a:65536", "a:b", "a b", "x+a:1", ":1", "http://a:1"] {
            check(wrong, None);
        }
    }
}
