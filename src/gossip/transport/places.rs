//! Whose connections are taken while there are only so many places.
//!
//! A lone address may have all of them: a whole cluster may stand behind one. Only when none is
//! left and somebody comes who has fewer, the address that has the most gives one up, its oldest,
//! down to what a single member needs. So whoever holds connections without saying anything keeps
//! out nobody but itself, and members behind one address keep their fair part beside it.
//!
//! Invariants: `count` is the number of all places in `groups`, at most `most`; a group in there
//! has a place. An ended connection has given its place back at once, and is over as soon as its
//! task looks at it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::super::metrics::TransportMetrics;

/// Part of all places that nobody has to give up: of the default hundred six, which is what one
/// member has at a time, some packets and an exchange in each direction.
const KEPT_PART: usize = 16;

/// Bits of an IPv6 address that tell one network from another; below them hosts number
/// themselves as they like.
const NETWORK_BITS_V6: u32 = 64;

/// The places for connections of others.
pub(super) struct Places {
    most: usize,
    /// Locked to take a place and to give it back.
    table: Mutex<Table>,
    metrics: Arc<TransportMetrics>,
}

#[derive(Default)]
struct Table {
    groups: HashMap<IpAddr, Group>,
    count: usize,
    last_id: u64,
}

/// Connections of one address, the oldest first.
type Group = BTreeMap<u64, Holder>;

struct Holder {
    from: SocketAddr,
    /// Told when the place goes to somebody else.
    ended: oneshot::Sender<()>,
}

/// A place, given back with the connection that has it.
pub(super) struct Place {
    places: Arc<Places>,
    group: IpAddr,
    id: u64,
    ended: oneshot::Receiver<()>,
    is_ended: bool,
}

/// Somebody's connection that had to end for another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a connection was ended for another's: its address had {had} of {most}")]
pub(super) struct Crowding {
    pub from: SocketAddr,
    had: usize,
    most: usize,
}

impl Places {
    pub fn new(most: usize, metrics: Arc<TransportMetrics>) -> Arc<Self> {
        Arc::new(Self { most, table: Mutex::default(), metrics })
    }

    /// A place, and whose connection ended for it; `None` when there is none for this address.
    pub fn take(self: &Arc<Self>, from: SocketAddr) -> Option<(Place, Option<Crowding>)> {
        let group = group(from.ip());
        let (told, ended) = oneshot::channel();
        let mut table = self.lock();
        let mut crowding = None;
        if table.count >= self.most {
            crowding = Some(table.make_room(group, self.most)?);
        }
        table.count += 1;
        table.last_id += 1;
        let id = table.last_id;
        table.groups.entry(group).or_default().insert(id, Holder { from, ended: told });
        drop(table);
        self.metrics.connected();
        let place = Place { places: Arc::clone(self), group, id, ended, is_ended: false };
        Some((place, crowding))
    }

    fn give_back(&self, group: IpAddr, id: u64) {
        self.metrics.disconnected();
        let mut table = self.lock();
        let Some(holders) = table.groups.get_mut(&group) else { return };
        // It is no longer there if it was ended.
        let was_there = holders.remove(&id).is_some();
        if holders.is_empty() {
            table.groups.remove(&group);
        }
        table.count -= usize::from(was_there);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Ends the oldest connection of the address that has the most, if that leaves it no worse off
    /// than the newcomer.
    fn make_room(&mut self, newcomer: IpAddr, most: usize) -> Option<Crowding> {
        let held = self.groups.get(&newcomer).map_or(0, BTreeMap::len);
        let kept = (most / KEPT_PART).max(1);
        // Looking at each address costs something only when all places are taken, and there are no
        // more addresses than places.
        let (_, greediest) = self.groups.iter_mut().max_by_key(|(_, holders)| holders.len())?;
        let had = greediest.len();
        if had <= kept || had <= held + 1 {
            return None;
        }
        let (_, holder) = greediest.pop_first()?;
        self.count -= 1;
        // Whoever has it may be gone just now.
        let _ = holder.ended.send(());
        Some(Crowding { from: holder.from, had, most })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.give_back(self.group, self.id);
    }
}

impl Place {
    /// Fails once the place is somebody else's.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.is_ended = self.is_ended || Pin::new(&mut self.ended).poll(cx).is_ready();
        if self.is_ended { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

/// What others' connections are told apart by.
fn group(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (u128::BITS - NETWORK_BITS_V6);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
        address => address,
    }
}

/// A connection that lasts no longer than its place, under TLS if there is any.
pub(super) struct Placed {
    stream: TcpStream,
    place: Place,
}

impl Placed {
    pub fn new(stream: TcpStream, place: Place) -> Self {
        Self { stream, place }
    }
}

impl AsyncRead for Placed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.place.poll_held(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Placed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.place.poll_held(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(most: usize) -> Arc<Places> {
        Places::new(most, Arc::default())
    }

    fn from(address: &str, port: u16) -> SocketAddr {
        SocketAddr::new(address.parse().expect("an address"), port)
    }

    /// So many places of one address, as many as there are for it.
    fn fill(places: &Arc<Places>, address: &str, count: u16) -> Vec<Place> {
        (0..count).filter_map(|port| Some(places.take(from(address, port))?.0)).collect()
    }

    #[tokio::test]
    async fn a_lone_address_has_all_places_and_gives_up_its_oldest_to_who_has_fewer() {
        let places = places(100);
        let mut crowd = fill(&places, "10.0.0.1", 200);
        assert_eq!(crowd.len(), 100);
        assert!(places.take(from("10.0.0.1", 1)).is_none(), "nobody makes room for itself");
        let (member, crowding) = places.take(from("10.0.0.2", 7)).expect("a place");
        let crowding = crowding.expect("somebody had to go");
        assert_eq!((crowding.from, crowding.had), (from("10.0.0.1", 0), 100));
        assert!((&mut crowd[0].ended).await.is_ok(), "it is told so");
        assert!(crowd[1].ended.try_recv().is_err());
        // What ended gives nothing back twice.
        drop(crowd.remove(0));
        assert_eq!(places.lock().count, 100);
        drop(member);
        let (_member, crowding) = places.take(from("10.0.0.2", 8)).expect("a place");
        assert_eq!(crowding, None, "one was free");
    }

    #[test]
    fn two_crowds_come_to_an_even_share_and_no_further() {
        let places = places(100);
        let _crowd = fill(&places, "10.0.0.1", 100);
        let other = fill(&places, "10.0.0.2", 100);
        assert_eq!(other.len(), 50);
        assert!(places.take(from("10.0.0.2", 1)).is_none());
        let third = fill(&places, "10.0.0.3", 100);
        assert_eq!(third.len(), 33);
    }

    #[test]
    fn what_a_single_member_has_is_not_taken_from_it() {
        let places = places(100);
        let members: Vec<Vec<Place>> =
            (0..20).map(|host| fill(&places, &format!("10.0.0.{host}"), 5)).collect();
        assert_eq!(members.iter().map(Vec::len).sum::<usize>(), 100);
        assert!(places.take(from("10.0.1.1", 1)).is_none());
    }

    #[test]
    fn hosts_of_one_network_count_as_one_where_they_number_themselves() {
        let check = |one: &str, other: &str, is_same: bool| {
            let groups = [one, other].map(|text| group(text.parse().expect("an address")));
            assert_eq!(groups[0] == groups[1], is_same, "{one} {other}");
        };
        check("fd00::1", "fd00::2", true);
        check("fd00:0:0:1::1", "fd00:0:0:2::1", false);
        check("::ffff:10.0.0.1", "10.0.0.1", true);
        check("10.0.0.1", "10.0.0.2", false);
    }
}
