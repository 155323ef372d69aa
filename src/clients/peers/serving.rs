//! The other side of a pair: what a gate answers that is asked.
//!
//! Plain calls without a wait; the edge brings the messages.

use std::sync::Arc;

use super::super::exchange::{Answers, Batch, HandOver};
use super::{Budgets, Gates};
use crate::wire::budgets::{Hello, VERSION, Welcome};

/// Why nobody is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloRefused {
    #[error("version {given} is not spoken here, only {VERSION}")]
    Version { given: u32 },
    #[error("the secrets that budgets are placed by differ: -client-identity.secret-file")]
    Placement,
    #[error("this gate is not in the ring {gates}")]
    NotServed { gates: Gates },
    #[error("{id} is this gate's own id: two gates have the same, or one asks itself")]
    Ourselves { id: Arc<str> },
}

impl Budgets {
    /// Answers whoever opens a stream.
    pub fn greet(&self, hello: &Hello) -> Result<Welcome, HelloRefused> {
        let us = self.shared.gate.us();
        if hello.version != VERSION {
            return Err(HelloRefused::Version { given: hello.version });
        }
        if hello.gates != self.shared.gates {
            return Err(HelloRefused::NotServed { gates: hello.gates });
        }
        if hello.placement != self.shared.placement {
            return Err(HelloRefused::Placement);
        }
        if hello.id == *us {
            return Err(HelloRefused::Ourselves { id: Arc::clone(us) });
        }
        Ok(Welcome { id: Arc::clone(us), version: VERSION })
    }

    /// Answers a batch of whoever said this hello; `None` to one that is older than what it has
    /// been answered.
    pub fn serve(&self, hello: &Hello, batch: &Batch) -> Option<Answers> {
        let shared = &self.shared;
        let terms_of = &*shared.terms_of;
        shared.gate.serve(&hello.id, hello.incarnation, batch, &terms_of, shared.now_ns())
    }

    /// Takes over what another gate had.
    pub fn take_over(&self, hand_over: HandOver) {
        let shared = &self.shared;
        let terms_of = &*shared.terms_of;
        shared.gate.take_over(hand_over, &terms_of, shared.now_ns());
    }
}
