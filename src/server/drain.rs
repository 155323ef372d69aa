//! One word from the shell to everything that serves: stop taking work, finish what you have.

use tokio::sync::watch;

/// Starts the drain; dropping it does too.
pub struct Drainer(watch::Sender<bool>);

/// Sees the drain; cheap to clone.
#[derive(Clone)]
pub struct Drain(watch::Receiver<bool>);

impl Drainer {
    pub fn new() -> (Self, Drain) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Drain(receiver))
    }

    pub fn start(&self) {
        self.0.send_replace(true);
    }
}

impl Drain {
    pub fn is_started(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Returns once the drain has started, at once if it already has.
    pub async fn started(&mut self) {
        // An error means that the shell is gone, which is an end like any other.
        let _ = self.0.wait_for(|started| *started).await;
    }
}
