//! Reading a push asks the allocator for nothing once its scratch has grown.
//!
//! A binary of its own, since the allocator belongs to the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use freehold::labels::{IDENTITY_SECRET_BYTES, IdentityHasher};
use freehold::wire::write_request::WriteRequest;

#[path = "../benches/shared/mod.rs"]
mod shared;

/// Counts per thread: the test harness allocates in its own.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// An allocator cannot be had without it; all that is added to the system's is a count.
#[expect(unsafe_code, reason = "the trait is unsafe")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(act: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    act();
    ALLOCATIONS.with(Cell::get) - before
}

fn read_all(body: &[u8], hasher: &IdentityHasher, arena: &mut Vec<u8>) {
    let mut request = WriteRequest::new(body, arena).expect("small");
    let mut series = 0;
    while let Some(one) = request.next_series().expect("sound") {
        std::hint::black_box(hasher.identity(request.labels(&one)));
        series += one.samples(body).count();
    }
    assert_eq!(series, 1000);
}

#[test]
fn reading_a_push_allocates_nothing() {
    let hasher = IdentityHasher::new([5; IDENTITY_SECRET_BYTES]);
    let body = shared::request(0..1000, 1_700_000_000_000);
    let mut arena = Vec::new();
    assert!(allocations(|| drop(std::hint::black_box(vec![0_u8; 100]))) > 0, "counts");
    assert_eq!(allocations(|| read_all(&body, &hasher, &mut arena)), 0);
    assert!(arena.is_empty(), "labels were read where they lie");

    // The same series with each one's sample in front of its labels: rewritten in the arena.
    let mut odd = Vec::new();
    for number in 0..1000 {
        let one = shared::request([number], 1_700_000_000_000);
        let message = &one[3..one.len() - 3];
        let labels = &message[..304];
        let sample = &message[304..];
        odd.push(0x0a);
        odd.extend([(message.len() & 0x7f) as u8 | 0x80, (message.len() >> 7) as u8]);
        odd.extend([sample, labels].concat());
    }
    read_all(&odd, &hasher, &mut arena);
    assert_eq!(arena.len(), 304 * 1000);
    assert_eq!(allocations(|| read_all(&odd, &hasher, &mut arena)), 0);
}
