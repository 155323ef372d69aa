//! What is gossiped, as far as the world needs to know it; and a plain ring of that kind.

use std::collections::BTreeMap;

use bytes::Bytes;

/// What the layer above does with changes and states. The world knows nothing else of it.
pub trait Payload: Sized {
    /// Empty, of the member of this id; its entry is padded to so many bytes.
    fn new(id: &str, token_bytes: usize) -> Self;
    /// Our entry anew.
    fn beat(&mut self, wall_ms: i64) -> Option<Change>;
    /// Our entry for the last time.
    fn leave(&mut self, wall_ms: i64) -> Option<Change>;
    /// Somebody's change or whole state; what of it was news is to be spread again.
    fn merge(&mut self, bytes: &Bytes, wall_ms: i64) -> Option<Change>;
    /// All of it.
    fn state(&mut self, wall_ms: i64) -> Bytes;
    fn view(&mut self, wall_ms: i64) -> BTreeMap<String, Status>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Active,
    Left,
}

pub struct Change {
    pub key: &'static str,
    pub content: Vec<String>,
    pub version: u64,
    pub bytes: Bytes,
}

/// How long a tombstone is kept; Cortex's default.
const LEFT_MS: i64 = 300_000;

/// Last writer wins, by the writer's clock in seconds; leaving wins within one.
pub struct Ring {
    id: String,
    token_bytes: usize,
    entries: BTreeMap<String, (i64, Status)>,
    version: u64,
}

impl Payload for Ring {
    fn new(id: &str, token_bytes: usize) -> Self {
        Self { id: id.to_owned(), token_bytes, entries: BTreeMap::new(), version: 0 }
    }

    fn beat(&mut self, wall_ms: i64) -> Option<Change> {
        self.write(wall_ms, Status::Active)
    }

    fn leave(&mut self, wall_ms: i64) -> Option<Change> {
        self.write(wall_ms, Status::Left)
    }

    fn merge(&mut self, bytes: &Bytes, wall_ms: i64) -> Option<Change> {
        self.forget(wall_ms);
        let mut rest = &bytes[..];
        let mut news = Vec::new();
        while let Some((&len, after)) = rest.split_first() {
            let (name, after) = after.split_at(usize::from(len));
            let (stamp, after) = after.split_at(8);
            let (status, after) = after.split_at(1);
            rest = &after[self.token_bytes..];
            let name = String::from_utf8(name.to_vec()).unwrap();
            let stamp = i64::from_be_bytes(stamp.try_into().unwrap());
            let status = if status[0] == 0 { Status::Active } else { Status::Left };
            let is_over = status == Status::Left && stamp * 1000 + LEFT_MS < wall_ms;
            let is_news = self.entries.get(&name).is_none_or(|known| *known < (stamp, status));
            if is_news && !is_over {
                self.entries.insert(name.clone(), (stamp, status));
                news.push(name);
            }
        }
        self.change(news)
    }

    fn state(&mut self, wall_ms: i64) -> Bytes {
        self.forget(wall_ms);
        let names: Vec<String> = self.entries.keys().cloned().collect();
        self.encode(&names)
    }

    fn view(&mut self, wall_ms: i64) -> BTreeMap<String, Status> {
        self.forget(wall_ms);
        self.entries.iter().map(|(name, (_, status))| (name.clone(), *status)).collect()
    }
}

impl Ring {
    fn write(&mut self, wall_ms: i64, status: Status) -> Option<Change> {
        self.forget(wall_ms);
        let entry = (wall_ms / 1000, status);
        let known = self.entries.get(&self.id);
        // An entry of an earlier life that was written by the same clock; at most as new as ours.
        if known.is_some_and(|known| *known >= entry) {
            return None;
        }
        self.entries.insert(self.id.clone(), entry);
        self.change(vec![self.id.clone()])
    }

    fn change(&mut self, names: Vec<String>) -> Option<Change> {
        if names.is_empty() {
            return None;
        }
        self.version += 1;
        let bytes = self.encode(&names);
        Some(Change { key: "ring", content: names, version: self.version, bytes })
    }

    fn encode(&self, names: &[String]) -> Bytes {
        let mut bytes = Vec::new();
        for name in names {
            let (stamp, status) = self.entries[name];
            bytes.push(name.len() as u8);
            bytes.extend(name.as_bytes());
            bytes.extend(stamp.to_be_bytes());
            bytes.push(u8::from(status == Status::Left));
            bytes.resize(bytes.len() + self.token_bytes, 0);
        }
        bytes.into()
    }

    fn forget(&mut self, wall_ms: i64) {
        self.entries.retain(|_, (stamp, status)| {
            *status == Status::Active || *stamp * 1000 + LEFT_MS >= wall_ms
        });
    }
}
