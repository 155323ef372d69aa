//! Memory of requests on their way out, handed from one to the next.

use std::sync::Mutex;

use crate::ring::Batches;
use crate::upstream::ingesters::MessageScratch;

/// What one request needs until its messages are made.
#[derive(Debug, Default)]
pub struct Scratch {
    pub batches: Batches,
    /// A batch as a request, before it is compressed.
    pub request: Vec<u8>,
    pub message: MessageScratch,
}

/// Scratches that nobody uses at the moment.
#[derive(Debug, Default)]
pub struct ScratchPool(Mutex<Vec<Scratch>>);

/// Most that are kept: making messages is work of a core, and few machines have more of them.
const KEPT_MAX: usize = 64;
/// Most bytes that a kept one holds; what a larger request needed is given back. With
/// [`KEPT_MAX`] of them, 256 MiB at the worst.
const BYTES_KEPT_MAX: usize = 4 << 20;

impl ScratchPool {
    pub fn take(&self) -> Scratch {
        self.0.lock().expect("no panic under this lock").pop().unwrap_or_default()
    }

    pub fn put(&self, scratch: Scratch) {
        if scratch.bytes() > BYTES_KEPT_MAX {
            return;
        }
        let mut kept = self.0.lock().expect("no panic under this lock");
        if kept.len() < KEPT_MAX {
            kept.push(scratch);
        }
    }
}

impl Scratch {
    fn bytes(&self) -> usize {
        self.batches.bytes_kept() + self.request.capacity() + self.message.bytes_kept()
    }
}
