//! Where the members to join are, by the names that settings give.
//!
//! Hosts are looked up as the system looks up any host. Records of a service (SRV) it does not
//! look up, so for these its servers are asked here: with the search list, over UDP, and over TCP
//! where an answer does not fit.
//!
//! All of it ends: a seed's lookup after a while, whatever its servers do, and what comes of all
//! seeds has a bound.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::config::{Lookup, Seed};

/// Longest lookup of a seed. A server that does not answer is tried for as long by the system.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one server is waited for, and how often all are asked: some lose a packet.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const ROUNDS: usize = 2;
/// Most addresses of a seed, and of all seeds: whom one joins is told of the others.
const ADDRESSES_MAX: usize = 256;
const MEMBERS_MAX: usize = 1024;
/// Longest answer over UDP without being asked for more, with room for servers that send more.
const ANSWER_BYTES_MAX: usize = 4096;
/// Servers and searches of a resolver's settings, as the C library takes them.
const SERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 6;
const NDOTS_MAX: usize = 15;
const DNS_PORT: u16 = 53;
const RESOLVER_PATH: &str = "/etc/resolv.conf";

/// Looks up seeds.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// Of seeds that tell none.
    port: u16,
    /// Set by tests; else the system's, read anew each time, since it may change.
    resolver: Option<Resolver>,
}

/// Whom to ask for records, and under which names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resolver {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    /// Names with fewer dots are tried under the search list first.
    ndots: usize,
}

/// What seeds came to.
#[derive(Debug, Default)]
pub struct Discovered {
    /// Each once.
    pub members: Vec<SocketAddr>,
    pub failures: Vec<Failure>,
}

/// A seed that led nowhere.
#[derive(Debug, thiserror::Error)]
#[error("cannot find the members of {host}")]
pub struct Failure {
    pub host: String,
    pub source: DiscoveryError,
}

#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error("the host is not found")]
    Host(#[source] io::Error),
    #[error("no answer within {} s", LOOKUP_TIMEOUT.as_secs())]
    Timeout,
    #[error("no name server is set")]
    NoServer,
    #[error("there is no such service")]
    NoService,
    #[error("the name server cannot be asked")]
    Ask(#[source] io::Error),
    #[error("{0:?} is no name of a service")]
    Name(String),
    #[error("the name server's answer cannot be read")]
    Answer(#[source] simple_dns::SimpleDnsError),
    #[error("the name server answers another question")]
    Foreign,
    #[error("the name server refuses: {0:?}")]
    Refused(RCODE),
}

impl Discovery {
    /// By the system's settings. `port` is that of seeds that tell none.
    pub fn new(port: u16) -> Self {
        Self { port, resolver: None }
    }

    /// Looks up all seeds at once.
    pub async fn resolve(&self, seeds: &[Seed]) -> Discovered {
        let mut lookups = JoinSet::new();
        for (at, seed) in seeds.iter().enumerate() {
            let (discovery, seed) = (self.clone(), seed.clone());
            lookups.spawn(async move {
                let looked = timeout(LOOKUP_TIMEOUT, discovery.resolve_one(&seed)).await;
                let looked = looked.unwrap_or(Err(DiscoveryError::Timeout));
                (at, looked.map_err(|source| Failure { host: seed.host, source }))
            });
        }
        let mut outcomes = lookups.join_all().await;
        // In the order of the settings, however fast each was.
        outcomes.sort_by_key(|(at, _)| *at);
        let mut discovered = Discovered::default();
        for (_, outcome) in outcomes {
            match outcome {
                Ok(addresses) => {
                    for address in addresses {
                        let members = &mut discovered.members;
                        if members.len() < MEMBERS_MAX && !members.contains(&address) {
                            members.push(address);
                        }
                    }
                }
                Err(failure) => discovered.failures.push(failure),
            }
        }
        discovered
    }

    async fn resolve_one(&self, seed: &Seed) -> Result<Vec<SocketAddr>, DiscoveryError> {
        match seed.lookup {
            Lookup::Host | Lookup::Dns => host(&seed.host, seed.port.unwrap_or(self.port)).await,
            Lookup::Service => self.service(&seed.host, seed.port).await,
        }
    }

    /// The hosts of a service, each at the port of its record or at `port`.
    async fn service(
        &self,
        name: &str,
        port: Option<u16>,
    ) -> Result<Vec<SocketAddr>, DiscoveryError> {
        let resolver = match &self.resolver {
            Some(resolver) => resolver.clone(),
            None => Resolver::of_system().await?,
        };
        let mut members = Vec::new();
        let mut failure = None;
        for place in resolver.records(name).await? {
            let port = port.unwrap_or(place.port);
            if !place.addresses.is_empty() {
                members.extend(place.addresses.iter().map(|ip| SocketAddr::new(*ip, port)));
            } else {
                match host(&place.host, port).await {
                    Ok(addresses) => members.extend(addresses),
                    Err(error) => failure = Some(error),
                }
            }
            if members.len() >= ADDRESSES_MAX {
                members.truncate(ADDRESSES_MAX);
                break;
            }
        }
        match failure {
            // One pod that is going is no reason not to join the others.
            Some(failure) if members.is_empty() => Err(failure),
            _ => Ok(members),
        }
    }
}

async fn host(host: &str, port: u16) -> Result<Vec<SocketAddr>, DiscoveryError> {
    let found = tokio::net::lookup_host((host, port)).await.map_err(DiscoveryError::Host)?;
    let canonical =
        found.map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()));
    Ok(canonical.take(ADDRESSES_MAX).collect())
}

/// One record of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    host: String,
    port: u16,
    /// What the server has added of its own.
    addresses: Vec<IpAddr>,
}

impl Resolver {
    async fn of_system() -> Result<Self, DiscoveryError> {
        let text = tokio::fs::read(RESOLVER_PATH).await.map_err(|_| DiscoveryError::NoServer)?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// The lines that matter of a `resolv.conf`; the last `search` or `domain` counts.
    fn parse(text: &str) -> Self {
        let mut resolver = Self { ndots: 1, ..Self::default() };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse().ok());
                    if resolver.servers.len() < SERVERS_MAX {
                        resolver.servers.extend(address.map(|ip| SocketAddr::new(ip, DNS_PORT)));
                    }
                }
                Some("search" | "domain") => {
                    resolver.search = words.take(SEARCHES_MAX).map(str::to_owned).collect();
                }
                Some("options") => {
                    for word in words {
                        if let Some(dots) = word.strip_prefix("ndots:") {
                            resolver.ndots =
                                dots.parse().map_or(1, |dots: usize| dots.min(NDOTS_MAX));
                        }
                    }
                }
                _ => {}
            }
        }
        resolver
    }

    /// The full names that `name` may stand for, the likeliest first.
    fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(full) = name.strip_suffix('.') {
            return vec![full.to_owned()];
        }
        let mut candidates: Vec<_> = self
            .search
            .iter()
            .map(|search| format!("{name}.{}", search.trim_matches('.')))
            .collect();
        let is_full_first = name.matches('.').count() >= self.ndots;
        let at = if is_full_first { 0 } else { candidates.len() };
        candidates.insert(at, name.to_owned());
        candidates
    }

    async fn records(&self, name: &str) -> Result<Vec<Place>, DiscoveryError> {
        for candidate in self.candidates(name) {
            match self.ask(&candidate).await {
                Ok(places) if places.is_empty() => {}
                Err(DiscoveryError::NoService) => {}
                outcome => return outcome,
            }
        }
        Err(DiscoveryError::NoService)
    }

    /// Asks one server after the other until one has an answer.
    async fn ask(&self, name: &str) -> Result<Vec<Place>, DiscoveryError> {
        let mut failure = DiscoveryError::NoServer;
        for _ in 0..ROUNDS {
            for server in &self.servers {
                let asking = timeout(ANSWER_TIMEOUT, ask(*server, name));
                match asking.await.unwrap_or(Err(DiscoveryError::Timeout)) {
                    Ok(places) => return Ok(places),
                    Err(error @ DiscoveryError::NoService) => return Err(error),
                    Err(error) => failure = error,
                }
            }
        }
        Err(failure)
    }
}

async fn ask(server: SocketAddr, name: &str) -> Result<Vec<Place>, DiscoveryError> {
    let id = rand::random();
    let question = question(id, name)?;
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await.map_err(DiscoveryError::Ask)?;
    socket.connect(server).await.map_err(DiscoveryError::Ask)?;
    socket.send(&question).await.map_err(DiscoveryError::Ask)?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    loop {
        let length = socket.recv(&mut answer).await.map_err(DiscoveryError::Ask)?;
        match read_answer(id, name, &answer[..length]) {
            // Somebody's guess at ours, perhaps; the true one may still come.
            Err(DiscoveryError::Foreign | DiscoveryError::Answer(_)) => {}
            Ok(None) => break,
            Ok(Some(places)) => return Ok(places),
            Err(error) => return Err(error),
        }
    }
    // It was cut off. Over TCP each message has its length before it.
    let mut stream = TcpStream::connect(server).await.map_err(DiscoveryError::Ask)?;
    let length = u16::try_from(question.len()).expect("a name has at most 255 bytes");
    let question = [&length.to_be_bytes()[..], &question].concat();
    stream.write_all(&question).await.map_err(DiscoveryError::Ask)?;
    let length = stream.read_u16().await.map_err(DiscoveryError::Ask)?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.map_err(DiscoveryError::Ask)?;
    Ok(read_answer(id, name, &answer)?.unwrap_or_default())
}

fn question(id: u16, name: &str) -> Result<Vec<u8>, DiscoveryError> {
    let no_name = |_| DiscoveryError::Name(name.to_owned());
    let (kind, class) = (QTYPE::TYPE(TYPE::SRV), QCLASS::CLASS(CLASS::IN));
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(Name::new(name).map_err(no_name)?, kind, class, false));
    packet.build_bytes_vec().map_err(no_name)
}

/// The records of an answer; `None` where it was cut off.
fn read_answer(id: u16, name: &str, answer: &[u8]) -> Result<Option<Vec<Place>>, DiscoveryError> {
    let packet = Packet::parse(answer).map_err(DiscoveryError::Answer)?;
    let is_ours = packet.questions.iter().all(|question| {
        question.qname.to_string().trim_end_matches('.').eq_ignore_ascii_case(name)
    });
    if packet.id() != id || !is_ours {
        return Err(DiscoveryError::Foreign);
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Ok(None);
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Err(DiscoveryError::NoService),
        code => return Err(DiscoveryError::Refused(code)),
    }
    let mut places = Vec::new();
    for record in packet.answers.iter().take(ADDRESSES_MAX) {
        // An alias's own record may stand before those that are asked for.
        let RData::SRV(service) = &record.rdata else { continue };
        let added = packet.additional_records.iter().filter(|added| added.name == service.target);
        let addresses = added.filter_map(|added| match &added.rdata {
            RData::A(address) => Some(IpAddr::V4(Ipv4Addr::from(address.address))),
            RData::AAAA(address) => Some(IpAddr::V6(Ipv6Addr::from(address.address))),
            _ => None,
        });
        places.push(Place {
            host: service.target.to_string().trim_end_matches('.').to_owned(),
            port: service.port,
            addresses: addresses.take(ADDRESSES_MAX).collect(),
        });
    }
    Ok(Some(places))
}

#[cfg(test)]
mod tests;
