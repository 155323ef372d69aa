//! What was sent and received lately, kept for whoever looks at the page; two buffers of the
//! configured size. Of no use to the store itself.

use std::collections::VecDeque;

use bytes::Bytes;

/// One key's value as it was sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Grows with each message, sent or received; 0 while it is not kept yet.
    pub id: u64,
    /// Unix milliseconds.
    pub at_ms: i64,
    /// Bytes of the whole message.
    pub size: usize,
    pub key: String,
    /// As it travelled.
    pub value: Bytes,
    /// The name that travelled with it, known here or not.
    pub codec: String,
    pub deleted: bool,
    /// Unix milliseconds; 0 is unknown.
    pub updated_at_ms: i64,
    /// Our version of the key afterwards; 0: the message changed nothing.
    pub version: u64,
    /// What it changed here.
    pub changes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Sent,
    Received,
}

/// The messages of both directions, oldest first.
#[derive(Debug)]
pub struct History {
    /// Of each buffer; 0: nothing is kept.
    bytes_max: usize,
    last_id: u64,
    sent: Buffer,
    received: Buffer,
}

#[derive(Debug, Default)]
struct Buffer {
    messages: VecDeque<Message>,
    /// Sum of the messages' sizes.
    bytes: usize,
}

impl History {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, last_id: 0, sent: Buffer::default(), received: Buffer::default() }
    }

    pub fn is_kept(&self) -> bool {
        self.bytes_max > 0
    }

    /// Keeps a message under the next id; the oldest make room.
    pub fn add(&mut self, direction: Direction, mut message: Message) {
        if !self.is_kept() {
            return;
        }
        self.last_id += 1;
        message.id = self.last_id;
        let buffer = match direction {
            Direction::Sent => &mut self.sent,
            Direction::Received => &mut self.received,
        };
        buffer.bytes += message.size;
        buffer.messages.push_back(message);
        while buffer.bytes > self.bytes_max {
            let Some(oldest) = buffer.messages.pop_front() else { break };
            buffer.bytes -= oldest.size;
        }
    }

    pub fn messages(&self, direction: Direction) -> impl Iterator<Item = &Message> {
        match direction {
            Direction::Sent => self.sent.messages.iter(),
            Direction::Received => self.received.messages.iter(),
        }
    }

    pub fn get(&self, id: u64) -> Option<&Message> {
        let mut all = self.sent.messages.iter().chain(&self.received.messages);
        all.find(|message| message.id == id)
    }

    /// Drops all messages; ids grow on.
    pub fn clear(&mut self) {
        self.sent = Buffer::default();
        self.received = Buffer::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(size: usize) -> Message {
        Message {
            id: 0,
            at_ms: 0,
            size,
            key: "k".to_owned(),
            value: Bytes::new(),
            codec: "ringDesc".to_owned(),
            deleted: false,
            updated_at_ms: 0,
            version: 1,
            changes: Vec::new(),
        }
    }

    fn ids(history: &History, direction: Direction) -> Vec<u64> {
        history.messages(direction).map(|message| message.id).collect()
    }

    /// Cortex's TestMessageBuffer: 100 bytes hold what fits, and one message too large empties it.
    #[test]
    fn the_oldest_messages_make_room() {
        let mut history = History::new(100);
        for size in [50, 50, 20] {
            history.add(Direction::Received, message(size));
        }
        history.add(Direction::Sent, message(100));
        assert_eq!(ids(&history, Direction::Received), [2, 3]);
        assert_eq!(ids(&history, Direction::Sent), [4]);
        assert_eq!(history.get(3).map(|message| message.size), Some(20));
        assert_eq!(history.get(1), None);
        history.add(Direction::Received, message(101));
        assert!(ids(&history, Direction::Received).is_empty());
        history.clear();
        assert!(ids(&history, Direction::Sent).is_empty());
        history.add(Direction::Sent, message(1));
        assert_eq!(ids(&history, Direction::Sent), [6]);
    }

    #[test]
    fn nothing_is_kept_without_room() {
        let mut history = History::new(0);
        history.add(Direction::Sent, message(0));
        assert!(ids(&history, Direction::Sent).is_empty());
    }
}
