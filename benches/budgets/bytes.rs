//! Memory of an owner per client that it tracks.

use std::sync::atomic::Ordering;

use freehold::clients::{Decision, Key, Kind, Terms};
use freehold::ratelimit::Budget;

use super::{BYTES, MS, gate};

pub fn report() {
    println!("allocated bytes per tracked client, its name aside:");
    for clients in [125, 250, 500, 700, 1000] {
        let (filled, _) = bytes(clients, 1000, 0);
        println!("  {clients:>5} of one tenant as they came: {filled:6.1}");
    }
    let (filled, swept) = bytes(1000, 1000, 0);
    println!("  1000 at the bound of 1000: {filled:.1}, after a sweep {swept:.1}  bar 96");
    let (worst, at) = (1..=64)
        .map(|step| step * 25)
        .map(|clients| (bytes(clients, usize::MAX, 0).1, clients))
        .fold((0.0, 0), |most: (f64, usize), next| if next.0 > most.0 { next } else { most });
    println!("  the most after a sweep of 25 to 1600 without a bound: {worst:.1} at {at}");
    let (filled, swept) = bytes(1000, 1000, 20_000);
    println!("  1000 and the ghosts of 20,000 that went in debt: {filled:.1}, swept {swept:.1}");
    after_one_shots([2000, 10_000, 100_000, 1_000_000]);
}

/// What an owner has allocated after so many names of one request each, at a bound of 1000.
fn after_one_shots(names: impl IntoIterator<Item = usize>) {
    let terms = Terms { budget: Budget { rate: 1.0, burst: 1000 }, tracked_max: 1000 };
    let gate = gate("owner", "owner");
    let before_bytes = BYTES.load(Ordering::Relaxed);
    let mut came = 0;
    for names in names {
        while came < names {
            let client = format!("client-{came:09}");
            let key = Key { kind: Kind::ClientWrites, tenant: "tenant-0", client: &client };
            let decision = gate.decide(key, 100, terms, 1000 * MS + came as i64);
            assert!(matches!(decision, Decision::Admitted(_)), "{decision:?}");
            came += 1;
        }
        println!(
            "  in all after {names:>7} names: {}",
            BYTES.load(Ordering::Relaxed) - before_bytes
        );
    }
}

/// Per client, when all have come and after a sweep that finds all in debt.
fn bytes(clients: usize, tracked_max: usize, before: usize) -> (f64, f64) {
    let terms = Terms { budget: Budget { rate: 1.0, burst: 1_000_000 }, tracked_max };
    let gate = gate("owner", "owner");
    let names: Vec<String> =
        (0..before + clients).map(|number| format!("client-{number:09}")).collect();
    let before_bytes = BYTES.load(Ordering::Relaxed);
    for (at, client) in names.iter().enumerate() {
        let key = Key { kind: Kind::ClientWrites, tenant: "tenant-0", client };
        // Those that come later owe more, so that each that goes stays as a ghost.
        let n = 1000 + at as u64;
        let decision = gate.decide(key, n, terms, 1000 * MS + at as i64);
        assert!(matches!(decision, Decision::Admitted(_)), "{decision:?}");
    }
    let kept: usize = names[before..].iter().map(String::len).sum();
    let per_client = || {
        let now = BYTES.load(Ordering::Relaxed) - before_bytes - kept;
        now as f64 / clients as f64
    };
    let filled = per_client();
    gate.sweep(1001 * MS);
    let counts = gate.counts(1001 * MS).owner;
    assert_eq!((counts.accounts, counts.evictions.in_debt), (clients, before as u64));
    (filled, per_client())
}
