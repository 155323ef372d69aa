//! The queue's rules, and the queue against a naive one.

use proptest::prelude::*;

use super::*;

fn names(of: &[&str]) -> Vec<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn queue(entries: &[(&str, &str)]) -> Broadcasts {
    let mut queue = Broadcasts::new(1_000);
    for (peer, text) in entries {
        queue.push(About::peer(peer), bytes(text)).unwrap();
    }
    queue
}

fn fill(queue: &mut Broadcasts, room: usize, transmits_max: u32) -> Vec<String> {
    let mut parts = Vec::new();
    queue.fill(room, transmits_max, &mut parts);
    parts.iter().map(|part| String::from_utf8(part.to_vec()).unwrap()).collect()
}

#[test]
fn the_number_of_transmits_follows_the_logarithm_of_the_cluster() {
    let check = |peers, expected| assert_eq!(transmits_max(4, peers), expected, "{peers}");
    check(0, 0);
    check(1, 4);
    check(9, 4);
    check(10, 8);
    check(99, 8);
    check(100, 12);
    check(600, 12);
}

#[test]
fn what_was_sent_least_goes_first_then_the_largest_then_the_newest() {
    let mut queue = queue(&[("a", "aa"), ("b", "bbbb"), ("c", "cc")]);
    assert_eq!(fill(&mut queue, 100, 3), ["bbbb", "cc", "aa"]);
    queue.push(About::peer("d"), bytes("d")).unwrap();
    assert_eq!(fill(&mut queue, 100, 3), ["d", "bbbb", "cc", "aa"]);
    // The first three have been sent three times after this, and d twice.
    assert_eq!(fill(&mut queue, 100, 3), ["d", "bbbb", "cc", "aa"]);
    assert_eq!(fill(&mut queue, 100, 3), ["d"]);
    assert!(queue.is_empty());
}

#[test]
fn only_what_fits_is_taken_and_each_part_costs_two_bytes_more() {
    let mut queue = queue(&[("a", "aaaaaa"), ("b", "bbb"), ("c", "c")]);
    // 3 + 2 and 1 + 2; the larger one would have fitted by one byte more.
    assert_eq!(fill(&mut queue, 7, 9), ["bbb"]);
    assert_eq!(fill(&mut queue, 8, 9), ["aaaaaa"]);
    assert_eq!(fill(&mut queue, 8, 9), ["c", "bbb"]);
    assert_eq!(fill(&mut queue, 2, 9), Vec::<String>::new());
}

#[test]
fn newer_news_about_a_peer_replace_older_ones() {
    let mut queue = queue(&[("a", "suspect a"), ("b", "alive b"), ("a", "alive a")]);
    assert!(queue.has_peer("a"));
    assert_eq!((queue.len(), queue.bytes()), (2, 14));
    assert_eq!(fill(&mut queue, 100, 1), ["alive a", "alive b"]);
    assert!(!queue.has_peer("a"));
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
}

#[test]
fn a_change_is_replaced_only_by_one_that_tells_all_of_it() {
    let check = |newer: (&str, &[&str], u64), expected: bool| {
        let mut queue = Broadcasts::new(1_000);
        queue.push(About::new("ring", &names(&["b", "a"]), 5), bytes("old")).unwrap();
        let (key, names_of, version) = newer;
        queue.push(About::new(key, &names(names_of), version), bytes("new")).unwrap();
        assert_eq!(queue.len(), if expected { 1 } else { 2 }, "{newer:?}");
    };
    check(("ring", &["a", "b"], 5), true);
    check(("ring", &["c", "b", "a"], 6), true);
    check(("ring", &["a", "b"], 4), false);
    check(("ring", &["a"], 6), false);
    check(("ring", &[], 6), false);
    check(("other", &["a", "b"], 6), false);

    // What names nothing is covered by whatever comes later under its key.
    let mut queue = Broadcasts::new(1_000);
    queue.push(About::new("ring", &[], 5), bytes("nothing")).unwrap();
    queue.push(About::new("ring", &names(&["a"]), 6), bytes("new")).unwrap();
    assert_eq!(queue.len(), 1);
}

#[test]
fn what_can_never_be_sent_is_refused_and_what_it_covers_stays() {
    let mut queue = Broadcasts::new(10);
    queue.push(About::new("ring", &names(&["a"]), 1), bytes("old")).unwrap();
    let refused = queue.push(About::new("ring", &names(&["a"]), 2), bytes("a long, long text"));
    assert_eq!(refused, Err(TooBig { bytes: 17, bytes_max: 10 }));
    assert_eq!((queue.len(), queue.dropped()), (1, 1));
}

#[test]
fn a_full_queue_loses_what_was_sent_most() {
    let mut queue = Broadcasts::new(1_000);
    queue.push(About::peer("known"), bytes("known")).unwrap();
    fill(&mut queue, 100, 100);
    for number in 0..BROADCASTS_MAX {
        queue.push(About::new("ring", &[number.to_string()], 1), bytes("x")).unwrap();
    }
    assert_eq!((queue.len(), queue.dropped()), (BROADCASTS_MAX, 1));
    assert!(!queue.has_peer("known"));

    let mut queue = Broadcasts::new(BROADCAST_BYTES_MAX);
    let half = Bytes::from(vec![0; BROADCAST_BYTES_MAX / 2]);
    for number in 0..3 {
        queue.push(About::new("ring", &[number.to_string()], 1), half.clone()).unwrap();
    }
    assert_eq!((queue.len(), queue.dropped()), (2, 1));
    assert_eq!(queue.bytes(), BROADCAST_BYTES_MAX);
}

/// The same rules in the plainest words: a list, sorted whenever it is asked.
#[derive(Default)]
struct Naive {
    list: Vec<(u32, u64, Bytes, String, Vec<String>, u64)>,
    last_id: u64,
}

impl Naive {
    fn push(&mut self, key: &str, names: &[String], version: u64, bytes: Bytes) {
        self.list.retain(|(_, _, _, old_key, old_names, old_version)| {
            key != old_key
                || version < *old_version
                || !old_names.iter().all(|name| names.contains(name))
        });
        self.last_id += 1;
        self.list.push((0, self.last_id, bytes, key.into(), names.to_vec(), version));
    }

    fn fill(&mut self, mut room: usize, transmits_max: u32) -> Vec<Bytes> {
        self.list.sort_by_key(|(transmits, id, bytes, ..)| {
            (*transmits, Reverse(bytes.len()), Reverse(*id))
        });
        let mut taken = Vec::new();
        for entry in &mut self.list {
            if entry.2.len() + PART_OVERHEAD <= room {
                room -= entry.2.len() + PART_OVERHEAD;
                entry.0 += 1;
                taken.push((entry.1, entry.2.clone()));
            }
        }
        // What was not sent now stays, however often it was sent before.
        self.list
            .retain(|entry| entry.0 < transmits_max || taken.iter().all(|(id, _)| *id != entry.1));
        taken.into_iter().map(|(_, bytes)| bytes).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { key: u8, names: Vec<u8>, version: u64, len: usize },
    Fill { room: usize, transmits_max: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let push = (0..3u8, prop::collection::vec(0..5u8, 0..4), 0..6u64, 1..40usize)
        .prop_map(|(key, names, version, len)| Step::Push { key, names, version, len });
    let fill =
        (0..120usize, 1..5u32).prop_map(|(room, transmits_max)| Step::Fill { room, transmits_max });
    prop_oneof![3 => push, 1 => fill]
}

proptest! {
    #[test]
    fn the_queue_is_the_naive_one(steps in prop::collection::vec(step(), 1..60)) {
        let (mut queue, mut naive) = (Broadcasts::new(1_000), Naive::default());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push { key, names, version, len } => {
                    let (key, names) = (key.to_string(), names.iter().map(u8::to_string));
                    let names: Vec<String> = names.collect();
                    let bytes = Bytes::from(vec![number as u8; len]);
                    queue.push(About::new(&key, &names, version), bytes.clone()).unwrap();
                    naive.push(&key, &names, version, bytes);
                }
                Step::Fill { room, transmits_max } => {
                    let mut parts = Vec::new();
                    let left = queue.fill(room, transmits_max, &mut parts);
                    prop_assert_eq!(&parts, &naive.fill(room, transmits_max));
                    let used: usize = parts.iter().map(|part| part.len() + PART_OVERHEAD).sum();
                    prop_assert_eq!(left + used, room);
                }
            }
            prop_assert_eq!(queue.len(), naive.list.len());
            prop_assert_eq!(queue.order.len(), naive.list.len());
            let bytes: usize = naive.list.iter().map(|entry| entry.2.len()).sum();
            prop_assert_eq!(queue.bytes(), bytes);
            let slotted: usize =
                queue.slots.values().flat_map(|slots| slots.values()).map(Vec::len).sum();
            prop_assert_eq!(slotted, naive.list.len());
        }
    }
}
