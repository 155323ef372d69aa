//! Who is inside a tenant, so that an idle tenant leaves only when nobody is.
//!
//! One word holds both halves of the truth: the count of those inside, and a bit that closes
//! the gate for good. Closing succeeds only from "nobody inside", so nobody ever works on a
//! tenant that has left the map.

use crate::sync::{AtomicU64, Ordering};

const CLOSED: u64 = 1 << 63;

/// Counts entries; once closed it lets nobody in.
pub struct Gate(AtomicU64);

impl Default for Gate {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Gate {
    /// Enters, unless the gate has closed; then the tenant is gone and has to be made anew.
    ///
    /// Who entered leaves exactly once; `tenants::Visit` sees to it.
    #[must_use]
    pub fn enter(&self) -> bool {
        // Acquire pairs with the release of `drop`: what the last one inside did is seen by the
        // one who closes. A count beyond 63 bits is out of reach.
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        if before & CLOSED == 0 {
            return true;
        }
        self.leave();
        false
    }

    pub fn leave(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Closes if nobody is inside. `true` means that nobody will ever be again.
    pub fn close_if_empty(&self) -> bool {
        self.0.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn a_gate_closes_only_when_empty_and_stays_closed() {
        let gate = Gate::default();
        assert!(gate.enter());
        assert!(!gate.close_if_empty());
        gate.leave();
        assert!(gate.close_if_empty());
        assert!(!gate.enter());
        assert!(!gate.enter());
    }
}

#[cfg(all(test, feature = "model"))]
mod model_tests {
    use super::*;
    use crate::sync::Arc;

    #[test]
    fn nobody_is_inside_a_closed_gate() {
        loom::model(|| {
            let gate = Arc::new(Gate::default());
            let tenant_gone = Arc::new(crate::sync::AtomicBool::new(false));
            let visitor = {
                let (gate, tenant_gone) = (gate.clone(), tenant_gone.clone());
                loom::thread::spawn(move || {
                    if gate.enter() {
                        assert!(!tenant_gone.load(Ordering::Acquire));
                        gate.leave();
                    }
                })
            };
            if gate.close_if_empty() {
                tenant_gone.store(true, Ordering::Release);
            }
            visitor.join().expect("visitor ends");
        });
    }
}
