//! An answer while it comes: one writer, any number of readers, each at its own pace.
//!
//! ```text
//! writer ─ head, piece, piece … end ─► [pieces that not all have read] ─► readers
//! ```
//!
//! What must hold: the pieces in memory are bounded by [`WINDOW_BYTES`] and one piece more, however
//! long the answer is; a reader that leaves or is slow takes nothing from the others; the writer
//! learns when nobody reads any more; an answer that broke off never looks like one that ended.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::sync::{Mutex, MutexGuard};

/// Bytes that wait for the slowest reader before the writer does. Most answers to dashboards are
/// shorter, and while nothing has been dropped of it a late reader can still begin from the start.
pub const WINDOW_BYTES: usize = 256 << 10;
/// How long a reader may keep others waiting, all in all: beyond what a network loses and repeats,
/// and short enough that a dashboard is not given up.
const SLOW_FOR: Duration = Duration::from_secs(5);
/// How long a reader alone may go without reading a piece; it holds a connection behind us.
const STUCK_FOR: Duration = Duration::from_secs(60);

/// See the head of the file. `H` is the answer's head, `E` why there is none or not all of it.
pub struct Coming<H, E> {
    state: Mutex<State<H, E>>,
    /// Something is there for readers.
    told: Notify,
    /// Something was read, or a reader left.
    read: Notify,
}

struct State<H, E> {
    head: Option<Result<Arc<H>, E>>,
    pieces: VecDeque<Bytes>,
    /// Number of the first of `pieces`; those before it all have read.
    first: u64,
    bytes: usize,
    end: Option<Result<(), E>>,
    /// By a reader's number.
    seats: Vec<Seat>,
    readers: usize,
}

/// Where a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    Free,
    At {
        /// The piece that it reads next.
        at: u64,
        /// How long others have waited for it, all in all.
        kept: Duration,
        /// How long it has read nothing while the writer waited.
        still: Duration,
    },
    /// It was too slow.
    Cut,
}

/// Nobody reads any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned;

/// Why an answer goes on no further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost<E: std::error::Error + 'static> {
    #[error("the answer was read too slowly")]
    TooSlow,
    #[error(transparent)]
    Broken(E),
}

/// One reader; it leaves when dropped.
pub struct Reader<H, E> {
    coming: Arc<Coming<H, E>>,
    seat: usize,
}

impl<H, E: Clone + std::error::Error + 'static> Coming<H, E> {
    /// With its first reader.
    pub fn new() -> (Arc<Self>, Reader<H, E>) {
        let state = State {
            head: None,
            pieces: VecDeque::new(),
            first: 0,
            bytes: 0,
            end: None,
            seats: vec![Seat::NEW],
            readers: 1,
        };
        let coming = Self { state: Mutex::new(state), told: Notify::new(), read: Notify::new() };
        let coming = Arc::new(coming);
        let reader = Reader { coming: Arc::clone(&coming), seat: 0 };
        (coming, reader)
    }

    /// One more reader, from the start; `None` once that is gone, or all have left.
    pub fn join(self: &Arc<Self>) -> Option<Reader<H, E>> {
        let mut state = self.lock();
        if state.first > 0 || state.readers == 0 || state.end.as_ref().is_some_and(Result::is_err) {
            return None;
        }
        state.readers += 1;
        let free = state.seats.iter().position(|seat| *seat == Seat::Free);
        let seat = free.unwrap_or_else(|| {
            state.seats.push(Seat::Free);
            state.seats.len() - 1
        });
        state.seats[seat] = Seat::NEW;
        Some(Reader { coming: Arc::clone(self), seat })
    }

    /// Comes before any piece, once.
    pub fn head(&self, head: H) -> Arc<H> {
        let head = Arc::new(head);
        self.lock().head = Some(Ok(Arc::clone(&head)));
        self.told.notify_waiters();
        head
    }

    /// Puts a piece in, once there is room for it.
    pub async fn piece(&self, piece: Bytes) -> Result<(), Abandoned> {
        loop {
            let mut read = std::pin::pin!(self.read.notified());
            // Before the look, so that what is read after it wakes us.
            read.as_mut().enable();
            let (slowest, patience) = {
                let mut state = self.lock();
                state.trim();
                if state.readers == 0 {
                    return Err(Abandoned);
                }
                if state.bytes < WINDOW_BYTES {
                    state.bytes += piece.len();
                    state.pieces.push_back(piece);
                    drop(state);
                    self.told.notify_waiters();
                    return Ok(());
                }
                state.slowest()
            };
            let began = Instant::now();
            let _ = timeout(patience, read).await;
            if self.lock().waited_for(&slowest, began.elapsed()) {
                self.told.notify_waiters();
            }
        }
    }

    /// Comes after all pieces, once.
    pub fn end(&self) {
        self.lock().end = Some(Ok(()));
        self.told.notify_waiters();
    }

    /// Nothing comes any more: what has not ended has broken off so.
    pub fn give_up(&self, error: E) {
        let mut state = self.lock();
        state.head.get_or_insert_with(|| Err(error.clone()));
        state.end.get_or_insert(Err(error));
        drop(state);
        self.told.notify_waiters();
    }

    /// Waits until nobody reads any more.
    pub async fn abandoned(&self) {
        loop {
            let mut read = std::pin::pin!(self.read.notified());
            read.as_mut().enable();
            if self.lock().readers == 0 {
                return;
            }
            read.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<H, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H, E> State<H, E> {
    /// Drops what all have read, as soon as the window is full: until then a reader may join.
    fn trim(&mut self) {
        if self.bytes < WINDOW_BYTES {
            return;
        }
        let slowest = self.seats.iter().filter_map(Seat::at).min();
        let Some(slowest) = slowest else { return };
        while self.first < slowest
            && let Some(piece) = self.pieces.pop_front()
        {
            self.first += 1;
            self.bytes -= piece.len();
        }
    }

    /// Who is waited for, and how long until the first of them is waited for no more.
    fn slowest(&self) -> (Vec<usize>, Duration) {
        let first = self.first;
        let others_wait = self.seats.iter().filter_map(Seat::at).any(|at| at > first);
        let mut patience = STUCK_FOR;
        let mut slowest = Vec::new();
        for (number, seat) in self.seats.iter().enumerate() {
            if let Seat::At { at, kept, still } = seat
                && *at == first
            {
                let left = match others_wait {
                    true => SLOW_FOR.saturating_sub(*kept),
                    false => STUCK_FOR.saturating_sub(*still),
                };
                patience = patience.min(left);
                slowest.push(number);
            }
        }
        (slowest, patience)
    }

    /// These were waited for; tells whether any of them has used up all patience.
    fn waited_for(&mut self, slowest: &[usize], waited: Duration) -> bool {
        let first = self.first;
        let others_wait = self.seats.iter().filter_map(Seat::at).any(|at| at > first);
        let mut has_cut = false;
        for number in slowest {
            let Seat::At { kept, still, .. } = &mut self.seats[*number] else { continue };
            *still += waited;
            if others_wait {
                *kept += waited;
            }
            if *kept >= SLOW_FOR || *still >= STUCK_FOR {
                self.seats[*number] = Seat::Cut;
                self.readers -= 1;
                has_cut = true;
            }
        }
        has_cut
    }
}

impl Seat {
    const NEW: Self = Self::At { at: 0, kept: Duration::ZERO, still: Duration::ZERO };

    fn at(&self) -> Option<u64> {
        match self {
            Self::At { at, .. } => Some(*at),
            Self::Free | Self::Cut => None,
        }
    }
}

impl<H, E: Clone + std::error::Error + 'static> Reader<H, E> {
    pub async fn head(&self) -> Result<Arc<H>, E> {
        loop {
            let mut told = std::pin::pin!(self.coming.told.notified());
            told.as_mut().enable();
            if let Some(head) = &self.coming.lock().head {
                return head.clone();
            }
            told.await;
        }
    }

    /// The next piece; `None` at a good end.
    pub async fn next(&mut self) -> Option<Result<Bytes, Lost<E>>> {
        loop {
            let mut told = std::pin::pin!(self.coming.told.notified());
            told.as_mut().enable();
            {
                let mut state = self.coming.lock();
                let Seat::At { at, kept, .. } = state.seats[self.seat] else {
                    return Some(Err(Lost::TooSlow));
                };
                let index = usize::try_from(at - state.first).unwrap_or(usize::MAX);
                if let Some(piece) = state.pieces.get(index).cloned() {
                    state.seats[self.seat] = Seat::At { at: at + 1, kept, still: Duration::ZERO };
                    drop(state);
                    self.coming.read.notify_waiters();
                    return Some(Ok(piece));
                }
                match &state.end {
                    Some(Ok(())) => return None,
                    Some(Err(error)) => return Some(Err(Lost::Broken(error.clone()))),
                    None => {}
                }
            }
            told.await;
        }
    }
}

impl<H, E> Drop for Reader<H, E> {
    fn drop(&mut self) {
        let mut state = self.coming.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.seats[self.seat] != Seat::Cut {
            state.readers -= 1;
        }
        state.seats[self.seat] = Seat::Free;
        drop(state);
        self.coming.read.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[error("broke off")]
    struct Broke;

    type Answer = Coming<u16, Broke>;

    fn piece(fill: u8, len: usize) -> Bytes {
        Bytes::from(vec![fill; len])
    }

    async fn rest(reader: &mut Reader<u16, Broke>) -> (usize, Option<Lost<Broke>>) {
        let mut len = 0;
        loop {
            match reader.next().await {
                None => return (len, None),
                Some(Ok(piece)) => len += piece.len(),
                Some(Err(lost)) => return (len, Some(lost)),
            }
        }
    }

    #[tokio::test]
    async fn readers_get_all_of_it_and_late_ones_too() {
        let (answer, mut early) = Answer::new();
        answer.head(200);
        answer.piece(piece(1, 10)).await.expect("read");
        assert_eq!(*early.head().await.expect("head"), 200);
        assert_eq!(early.next().await.expect("piece").expect("whole"), piece(1, 10));
        let mut late = answer.join().expect("from the start");
        answer.piece(piece(2, 5)).await.expect("read");
        answer.end();
        assert_eq!(rest(&mut early).await, (5, None));
        let mut last = answer.join().expect("all is there still");
        drop(early);
        assert_eq!(rest(&mut late).await, (15, None));
        assert_eq!(rest(&mut last).await, (15, None));
    }

    #[tokio::test]
    async fn an_answer_that_broke_off_does_not_look_whole() {
        let (answer, mut reader) = Answer::new();
        answer.head(200);
        answer.piece(piece(1, 10)).await.expect("read");
        answer.give_up(Broke);
        assert!(answer.join().is_none(), "nobody is given half an answer from the start");
        assert_eq!(rest(&mut reader).await, (10, Some(Lost::Broken(Broke))));
        let (none, reader) = Answer::new();
        none.give_up(Broke);
        assert_eq!(reader.head().await.expect_err("none"), Broke);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_answer_is_held_in_part_and_begun_by_nobody_later() {
        let (answer, mut reader) = Answer::new();
        let mut read = 0;
        let writing = async {
            for _ in 0..100 {
                answer.piece(piece(1, WINDOW_BYTES / 4)).await.expect("read");
                assert!(answer.lock().bytes <= WINDOW_BYTES + WINDOW_BYTES / 4);
            }
            answer.end();
        };
        let reading = async { read = rest(&mut reader).await.0 };
        tokio::join!(writing, reading);
        assert_eq!(read, 25 * WINDOW_BYTES);
        assert!(answer.join().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_parted_with_and_the_others_go_on() {
        let (answer, mut slow) = Answer::new();
        let mut quick = answer.join().expect("joined");
        let writing = async {
            for _ in 0..20 {
                answer.piece(piece(1, WINDOW_BYTES / 2)).await.expect("read");
            }
            answer.end();
        };
        let (_, read) = tokio::join!(writing, rest(&mut quick));
        assert_eq!(read, (10 * WINDOW_BYTES, None));
        assert_eq!(slow.next().await, Some(Err(Lost::TooSlow)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_a_piece_now_and_then_keeps_others_no_longer() {
        let (answer, mut slow) = Answer::new();
        let mut quick = answer.join().expect("joined");
        let began = Instant::now();
        let writing = async {
            for _ in 0..40 {
                answer.piece(piece(1, WINDOW_BYTES / 2)).await.expect("read");
            }
            answer.end();
        };
        let dripping = async {
            while let Some(Ok(_)) = slow.next().await {
                tokio::time::sleep(SLOW_FOR - Duration::from_millis(100)).await;
            }
        };
        let reading = async {
            assert_eq!(rest(&mut quick).await, (20 * WINDOW_BYTES, None));
            began.elapsed()
        };
        let (_, took, ()) = tokio::join!(writing, reading, dripping);
        assert!(took <= SLOW_FOR + Duration::from_millis(10), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_reader_alone_ends_the_answer() {
        let (answer, mut stuck) = Answer::new();
        let mut outcome = Ok(());
        for _ in 0..4 {
            outcome = outcome.and(answer.piece(piece(1, WINDOW_BYTES / 2)).await);
        }
        assert_eq!(outcome, Err(Abandoned));
        assert_eq!(stuck.next().await, Some(Err(Lost::TooSlow)));
    }

    #[tokio::test]
    async fn the_writer_learns_that_all_have_left() {
        let (answer, one) = Answer::new();
        let other = answer.join().expect("joined");
        drop(one);
        tokio::select! {
            biased;
            () = answer.abandoned() => panic!("one is left"),
            () = tokio::task::yield_now() => {}
        }
        let gone = answer.abandoned();
        drop(other);
        gone.await;
        assert_eq!(answer.piece(piece(1, 1)).await, Err(Abandoned));
        assert!(answer.join().is_none());
    }
}
