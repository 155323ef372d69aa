//! What is to be told to others, until who gossips takes it.

use std::collections::VecDeque;

use bytes::Bytes;

/// Most broadcasts that wait. Who gossips takes them as they come; a second of a ring of 600
/// members that heartbeat every five makes 120. Beyond it the oldest go, and full exchanges bring
/// what they told.
pub const BROADCASTS_MAX: usize = 8192;

/// Most bytes that wait: 8192 heartbeats of 2.6 KB, and a whole ring on top.
pub const BROADCAST_BYTES_MAX: usize = 40 << 20;

/// A key's news, as one user message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    pub key: String,
    /// What within the key it tells of: a newer one that tells all of it makes it needless.
    pub content: Vec<String>,
    /// Our version of the key when it was made.
    pub version: u64,
    pub bytes: Bytes,
}

#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Broadcast>,
    /// Sum of the messages' bytes.
    bytes: usize,
}

impl Outbox {
    /// Adds one; tells how many went for want of room.
    pub fn push(&mut self, broadcast: Broadcast) -> u64 {
        self.bytes += broadcast.bytes.len();
        self.queue.push_back(broadcast);
        let mut dropped = 0;
        while self.queue.len() > BROADCASTS_MAX || self.bytes > BROADCAST_BYTES_MAX {
            let Some(oldest) = self.queue.pop_front() else { break };
            self.bytes -= oldest.bytes.len();
            dropped += 1;
        }
        dropped
    }

    /// All that waits, oldest first.
    pub fn take(&mut self) -> Vec<Broadcast> {
        self.bytes = 0;
        self.queue.drain(..).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broadcast(version: u64, len: usize) -> Broadcast {
        let bytes = Bytes::from(vec![0; len]);
        Broadcast { key: "k".to_owned(), content: Vec::new(), version, bytes }
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_they_are_too_large() {
        let mut outbox = Outbox::default();
        let pushes = BROADCASTS_MAX as u64 + 2;
        let dropped: u64 = (0..pushes).map(|version| outbox.push(broadcast(version, 1))).sum();
        assert_eq!(dropped, 2);
        let taken = outbox.take();
        assert_eq!((taken.len(), taken[0].version), (BROADCASTS_MAX, 2));
        assert!(outbox.is_empty());
        outbox.push(broadcast(1, BROADCAST_BYTES_MAX));
        assert_eq!(outbox.push(broadcast(2, 1)), 1);
        assert_eq!(outbox.take().len(), 1);
        assert_eq!(outbox.push(broadcast(3, BROADCAST_BYTES_MAX)), 0, "what was taken is gone");
    }
}
