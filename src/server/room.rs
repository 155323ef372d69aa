//! How many bytes of requests may be held at once, from the first of them until the answer.
//!
//! A request is charged whole before any of it is kept: one that was begun can be received to its
//! end, since nobody waits for room who holds some. What finds no room is not read; it waits in
//! its connection's window for a while, then it is refused in a way that senders try again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::exposition::{Families, RefusedCount};
use crate::sync::{AtomicU64, Ordering};

/// Requests that may wait for room; further ones are refused at once. Each keeps up to a stream's
/// window of its connection (512 KiB), so all of them together leave a connection half of its
/// own (64 MiB): those that were begun go on.
const WAITING_MAX: usize = 64;

/// How long a request waits at most: Cortex's `-distributor.remote-timeout`, after which the
/// sender has given it up, or asks another replica.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Cheap to clone.
#[derive(Clone)]
pub struct Room(Arc<Inner>);

struct Inner {
    bytes_max: usize,
    /// A permit per byte. It is fair: a large request is not passed by small ones for ever.
    free: Arc<Semaphore>,
    waiting: Semaphore,
    refused: AtomicU64,
}

/// Bytes of the room; given back when dropped.
pub struct Held {
    room: Room,
    bytes: OwnedSemaphorePermit,
}

/// The request is the sender's to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many bytes of requests under way: {bytes_max}")]
pub struct NoRoom {
    bytes_max: usize,
}

impl Room {
    pub fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(Inner {
            bytes_max,
            free: Arc::new(Semaphore::new(bytes_max)),
            waiting: Semaphore::new(WAITING_MAX),
            refused: AtomicU64::new(0),
        }))
    }

    /// Takes so many bytes, and waits for them until `deadline` at most.
    ///
    /// What is larger than the room passes when it is alone: the listener's bound allows it.
    pub async fn hold(&self, bytes: usize, deadline: Option<Instant>) -> Result<Held, NoRoom> {
        let inner = &*self.0;
        let bytes = self.charge(bytes);
        if let Ok(bytes) = Arc::clone(&inner.free).try_acquire_many_owned(bytes) {
            return Ok(Held { room: self.clone(), bytes });
        }
        let Ok(_waiting) = inner.waiting.try_acquire() else { return Err(self.refuse()) };
        let bound = Instant::now() + WAIT_MAX;
        let until = deadline.map_or(bound, |deadline| deadline.min(bound));
        let taken = timeout_at(until, Arc::clone(&inner.free).acquire_many_owned(bytes)).await;
        match taken {
            Ok(Ok(bytes)) => Ok(Held { room: self.clone(), bytes }),
            _ => Err(self.refuse()),
        }
    }

    fn charge(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.0.bytes_max)).unwrap_or(u32::MAX)
    }

    fn refuse(&self) -> NoRoom {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        NoRoom { bytes_max: self.0.bytes_max }
    }

    pub fn bytes_held(&self) -> usize {
        self.0.bytes_max - self.0.free.available_permits()
    }

    pub fn waiting(&self) -> usize {
        WAITING_MAX - self.0.waiting.available_permits()
    }

    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        tell(RefusedCount {
            metric: "freehold_server_refused_requests_total",
            unit: "requests",
            reason: "no room",
            tenant: None,
            count: self.0.refused.load(Ordering::Relaxed),
        });
    }

    pub fn read_metrics(&self, families: &mut Families) {
        families.gauge(
            "freehold_server_inflight_bytes",
            "Bytes of requests that are being received or handled.",
            self.bytes_held() as f64,
        );
        families.gauge(
            "freehold_server_waiting_requests",
            "Requests that wait, unread, for others' bytes to be given back.",
            self.waiting() as f64,
        );
        families.counter(
            "freehold_server_refused_requests_total",
            "Requests refused because too many bytes of others were under way.",
            self.0.refused.load(Ordering::Relaxed),
        );
    }
}

impl Held {
    /// Holds `bytes` in all, at once or not at all: who holds some must not wait for more.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let held = u32::try_from(self.bytes.num_permits()).unwrap_or(u32::MAX);
        let more = self.room.charge(bytes).saturating_sub(held);
        if more > 0 {
            let free = Arc::clone(&self.room.0.free);
            let more = free.try_acquire_many_owned(more).map_err(|_| self.room.refuse())?;
            self.bytes.merge(more);
        }
        Ok(())
    }

    /// Gives back what is more than `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.num_permits().saturating_sub(bytes);
        drop(self.bytes.split(less));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_finds_no_room_waits_in_turn_and_is_then_refused() {
        let room = Room::new(100);
        let one = room.hold(60, None).await.expect("room");
        let began = Instant::now();
        let error = room.hold(60, None).await.err().expect("none comes free");
        assert_eq!(error.to_string(), "too many bytes of requests under way: 100");
        assert_eq!(began.elapsed(), WAIT_MAX);
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert!(room.hold(60, soon).await.is_err());
        assert!(began.elapsed() < WAIT_MAX + Duration::from_millis(10), "its own deadline");
        let mut waits = tokio::task::JoinSet::new();
        waits.spawn({
            let room = room.clone();
            async move { room.hold(100, None).await.is_ok() }
        });
        while room.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        // A small one that would fit does not pass it.
        assert!(room.hold(1, soon).await.is_err());
        drop(one);
        assert_eq!(waits.join_all().await, [true]);
        assert_eq!((room.bytes_held(), room.waiting()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wait() {
        let room = Room::new(100);
        let held = room.hold(100, None).await.expect("room");
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..WAITING_MAX {
            let room = room.clone();
            waiting.spawn(async move { room.hold(100, None).await.is_ok() });
        }
        while room.waiting() < WAITING_MAX {
            tokio::task::yield_now().await;
        }
        let began = Instant::now();
        assert!(room.hold(1, None).await.is_err());
        assert_eq!(began, Instant::now(), "at once");
        drop(held);
        let served = waiting.join_all().await.into_iter().filter(|served| *served).count();
        assert_eq!(served, WAITING_MAX);
    }

    #[tokio::test]
    async fn the_largest_passes_alone_and_growth_is_now_or_never() {
        let room = Room::new(100);
        let mut alone = room.hold(1000, None).await.expect("alone");
        assert_eq!(room.bytes_held(), 100);
        alone.grow_to(5000).expect("it has all");
        drop(alone);
        let mut one = room.hold(40, None).await.expect("room");
        let _two = room.hold(40, None).await.expect("room");
        one.grow_to(60).expect("room");
        assert!(one.grow_to(61).is_err());
        one.grow_to(10).expect("it has more");
        assert_eq!(room.bytes_held(), 100);
        one.shrink_to(50);
        one.shrink_to(70);
        assert_eq!(room.bytes_held(), 90);
        drop(one);
        assert_eq!(room.bytes_held(), 40);
    }
}
