//! Against a name server of our own, over UDP and TCP.

use std::sync::Arc;

use simple_dns::ResourceRecord;
use simple_dns::rdata::{A, SRV};
use tokio::net::TcpListener;

use super::*;

/// What the server does with a name.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    /// So many hosts at ports from 7000 on, with or without their addresses beside.
    Hosts(u8, bool),
    /// Hosts, of which UDP tells only that there are more.
    CutOff(u8),
    Nothing,
    Refuse,
    /// Noise, and another's answer, before the right one.
    Noise,
    Silence,
}

type Names = &'static [(&'static str, Answer)];

fn reply(asked: &[u8], names: Names, is_tcp: bool) -> Vec<Vec<u8>> {
    let query = Packet::parse(asked).expect("a question");
    let name = query.questions[0].qname.to_string();
    let known = names.iter().find(|(known, _)| *known == name);
    let mut reply = Packet::new_reply(query.id());
    reply.questions.push(query.questions[0].clone());
    let mut hosts = |count: u8, is_added: bool| {
        for number in 0..count {
            let target = if is_added { format!("m{number}.ring") } else { "localhost".to_owned() };
            let target = Name::new(&target).expect("a name").into_owned();
            let port = 7000 + u16::from(number);
            let service = SRV { priority: 0, weight: 0, port, target: target.clone() };
            let owner = query.questions[0].qname.clone();
            reply.answers.push(ResourceRecord::new(owner, CLASS::IN, 5, RData::SRV(service)));
            if is_added {
                let address = Ipv4Addr::new(10, 0, 0, number).into();
                let data = RData::A(A { address });
                reply.additional_records.push(ResourceRecord::new(target, CLASS::IN, 5, data));
            }
        }
    };
    match known.map(|(_, answer)| *answer) {
        Some(Answer::Hosts(count, is_added)) => hosts(count, is_added),
        Some(Answer::CutOff(count)) if is_tcp => hosts(count, true),
        Some(Answer::CutOff(_)) => reply.set_flags(PacketFlag::TRUNCATION),
        Some(Answer::Nothing) => {}
        Some(Answer::Refuse) => *reply.rcode_mut() = RCODE::Refused,
        Some(Answer::Silence) => return Vec::new(),
        Some(Answer::Noise) => {
            hosts(1, true);
            let good = reply.build_bytes_vec().expect("built");
            let mut other = good.clone();
            other[0] ^= 1;
            return vec![vec![1, 2, 3], other, good[..good.len() - 3].to_vec(), good];
        }
        None => *reply.rcode_mut() = RCODE::NameError,
    }
    vec![reply.build_bytes_vec().expect("built")]
}

/// Serves until the test ends.
async fn serve(names: Names) -> (SocketAddr, JoinSet<()>) {
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
    let address = tcp.local_addr().expect("bound");
    let udp = Arc::new(UdpSocket::bind(address).await.expect("bound"));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut asked = [0; 512];
        loop {
            let (length, from) = udp.recv_from(&mut asked).await.expect("asked");
            for reply in reply(&asked[..length], names, false) {
                udp.send_to(&reply, from).await.expect("sent");
            }
        }
    });
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = tcp.accept().await.expect("accepted");
            let length = stream.read_u16().await.expect("asked");
            let mut asked = vec![0; usize::from(length)];
            stream.read_exact(&mut asked).await.expect("asked");
            for reply in reply(&asked, names, true) {
                let length = u16::try_from(reply.len()).expect("short");
                stream.write_u16(length).await.expect("sent");
                stream.write_all(&reply).await.expect("sent");
            }
        }
    });
    (address, tasks)
}

async fn resolve(servers: &[SocketAddr], seeds: &[&str]) -> Discovered {
    let resolver =
        Resolver { servers: servers.to_vec(), search: vec!["cortex.svc".to_owned()], ndots: 2 };
    let discovery = Discovery { port: 7946, resolver: Some(resolver) };
    let seeds: Vec<_> = seeds.iter().map(|seed| Seed::parse(seed).expect("a seed")).collect();
    discovery.resolve(&seeds).await
}

fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

#[tokio::test]
async fn hosts_and_addresses_get_the_port_that_all_share() {
    let found =
        resolve(&[], &["10.0.0.1", "10.0.0.2:1", "[fd00::1]:5", "fd00::2", "10.0.0.1"]).await;
    let expect = ["10.0.0.1:7946", "10.0.0.2:1", "[fd00::1]:5", "[fd00::2]:7946"];
    assert_eq!(found.members, addresses(&expect));
    assert!(found.failures.is_empty());
    let found = resolve(&[], &["dns+localhost:7000"]).await;
    assert!(found.members.contains(&addresses(&["127.0.0.1:7000"])[0]), "{found:?}");
}

#[tokio::test]
async fn services_tell_hosts_and_ports() {
    let (server, _tasks) = serve(&[
        ("_gossip._tcp.ring", Answer::Hosts(2, true)),
        ("_gossip._tcp.local", Answer::Hosts(1, false)),
        ("_long._tcp.ring", Answer::CutOff(40)),
        ("_noise._tcp.ring", Answer::Noise),
        ("_empty._tcp.ring", Answer::Nothing),
        ("_refused._tcp.ring", Answer::Refuse),
        ("_short.cortex.svc", Answer::Hosts(1, true)),
    ])
    .await;
    let one = async |seed: &str| resolve(&[server], &[seed]).await;
    let found = one("dnssrv+_gossip._tcp.ring").await;
    assert_eq!(found.members, addresses(&["10.0.0.0:7000", "10.0.0.1:7001"]));
    let found = one("dnssrvnoa+_gossip._tcp.ring:99").await;
    assert_eq!(found.members, addresses(&["10.0.0.0:99", "10.0.0.1:99"]));
    let found = one("dnssrv+_gossip._tcp.local").await;
    assert!(found.members.contains(&addresses(&["127.0.0.1:7000"])[0]), "{found:?}");
    assert_eq!(one("dnssrv+_long._tcp.ring").await.members.len(), 40);
    assert_eq!(one("dnssrv+_noise._tcp.ring").await.members, addresses(&["10.0.0.0:7000"]));
    assert_eq!(one("dnssrv+_short").await.members, addresses(&["10.0.0.0:7000"]));
    for (seed, text) in [
        ("dnssrv+_empty._tcp.ring", "there is no such service"),
        ("dnssrv+_unknown._tcp.ring", "there is no such service"),
        ("dnssrv+_refused._tcp.ring", "the name server refuses: Refused"),
    ] {
        let found = one(seed).await;
        assert!(found.members.is_empty());
        assert_eq!(found.failures[0].source.to_string(), text);
    }
    // One that fails does not take the others with it.
    let found = resolve(&[server], &["dnssrv+_unknown._tcp.ring", "10.0.0.9"]).await;
    assert_eq!((found.members, found.failures.len()), (addresses(&["10.0.0.9:7946"]), 1));
}

#[tokio::test]
async fn a_silent_server_is_passed_by() {
    let (silent, _one) = serve(&[("_gossip._tcp.ring", Answer::Silence)]).await;
    let (server, _two) = serve(&[("_gossip._tcp.ring", Answer::Hosts(1, true))]).await;
    let found = resolve(&[silent, server], &["dnssrv+_gossip._tcp.ring"]).await;
    assert_eq!(found.members, addresses(&["10.0.0.0:7000"]));
}

#[test]
fn settings_of_the_system_are_read_as_the_c_library_does() {
    let resolver = Resolver::parse(
        "# pods\nnameserver 10.96.0.10\nnameserver ::1\nnameserver nobody\n\
         search a.svc.cluster.local svc.cluster.local\noptions ndots:5 rotate\n",
    );
    assert_eq!(resolver.servers, addresses(&["10.96.0.10:53", "[::1]:53"]));
    assert_eq!(resolver.ndots, 5);
    let candidates = resolver.candidates("_g._tcp.ring");
    let expect =
        ["_g._tcp.ring.a.svc.cluster.local", "_g._tcp.ring.svc.cluster.local", "_g._tcp.ring"];
    assert_eq!(candidates, expect);
    assert_eq!(resolver.candidates("a.b.c.d.e.f")[0], "a.b.c.d.e.f");
    assert_eq!(resolver.candidates("a."), ["a"]);
    assert_eq!(Resolver::parse("").ndots, 1);
}
