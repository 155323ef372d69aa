//! What must hold of a run.

use super::world::{Client, Reign};

/// How long after its owner's end a lease may still be spent, seconds.
const LEASE_S: f64 = 3.0;
/// Clocks of gates run apart by this part at most in the simulation.
const DRIFT: f64 = 0.004;

/// In every window of time at most `k * (burst + rate * length)` is admitted, where `k` owners may
/// have had a say in it.
pub fn bound_holds(client: &Client, reigns: &[Reign]) -> Result<(), String> {
    let events = &client.admitted;
    for first in 0..events.len() {
        let mut sum = 0;
        for last in first..events.len() {
            sum += events[last].credits;
            let (from, to) = (events[first].at_s, events[last].at_s);
            let bucket = client.burst as f64 + client.rate * (to - from) * (1.0 + DRIFT);
            if sum as f64 <= bucket + 1e-6 {
                continue;
            }
            let says = |reign: &&Reign| reign.from_s <= to && reign.to_s + LEASE_S * 1.01 >= from;
            let owners = reigns.iter().filter(says).count();
            if sum as f64 > owners as f64 * bucket + 1e-6 {
                return Err(format!(
                    "client {} (rate {}, burst {}): {sum} admitted from {from:.3} s to {to:.3} s, \
                     and {owners} owners may give {:.0}",
                    client.at,
                    client.rate,
                    client.burst,
                    owners as f64 * bucket
                ));
            }
        }
    }
    Ok(())
}

/// Credits that one bucket, asked in the same order at the same times, admits.
pub fn ideal(client: &Client) -> u64 {
    let (mut credit, mut at_s, mut sum) = (client.burst as f64, 0.0, 0);
    for event in &client.asked_for {
        credit = (credit + client.rate * (event.at_s - at_s)).min(client.burst as f64);
        at_s = event.at_s;
        if event.credits as f64 <= credit {
            credit -= event.credits as f64;
            sum += event.credits;
        }
    }
    sum
}
