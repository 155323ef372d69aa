//! How long a body may keep us waiting.
//!
//! A pause has a bound, and so has dripping: a byte before the end of each pause would hold a
//! request open for ever. Only time in which we waited for that side counts, never time in which
//! it waited for us.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Who sends less than this many bytes in each second that we wait for it, after as long as one
/// pause may last, is given up. A modem sends a hundred times as much; the slowest store on its
/// worst day streams more.
const BYTES_PER_SEC_MIN: u64 = 64;

/// Watches one body that comes in.
#[derive(Debug)]
pub(super) struct Pace {
    pause_max: Duration,
    /// Made when we first have to wait, which for most bodies is never.
    timer: Option<Pin<Box<Sleep>>>,
    waiting_since: Option<Instant>,
    waited: Duration,
    bytes: u64,
}

/// The other side does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooSlow {
    pub waited: Duration,
}

impl Pace {
    pub fn new(pause_max: Duration) -> Self {
        Self { pause_max, timer: None, waiting_since: None, waited: Duration::ZERO, bytes: 0 }
    }

    /// Nothing has come. Wakes the task when the pause has lasted too long.
    pub fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<TooSlow> {
        if self.waiting_since.is_none() {
            let now = Instant::now();
            self.waiting_since = Some(now);
            let end = now + self.pause_max;
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(end),
                None => self.timer = Some(Box::pin(sleep_until(end))),
            }
        }
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        timer.as_mut().poll(cx).map(|()| TooSlow { waited: self.pause_max })
    }

    /// So many bytes have come.
    pub fn moved(&mut self, bytes: usize) -> Result<(), TooSlow> {
        self.bytes += bytes as u64;
        let Some(since) = self.waiting_since.take() else { return Ok(()) };
        self.waited += since.elapsed();
        let is_slow = self.waited.as_secs().saturating_mul(BYTES_PER_SEC_MIN) > self.bytes;
        match is_slow && self.waited > self.pause_max {
            true => Err(TooSlow { waited: self.waited }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const PAUSE: Duration = Duration::from_secs(10);

    /// Sends `bytes` after each `wait`, until it is given up or `times` are over.
    async fn drip(bytes: usize, wait: Duration, times: u32) -> Result<(), TooSlow> {
        let mut pace = Pace::new(PAUSE);
        for _ in 0..times {
            let pause = poll_fn(|cx| pace.poll_pause(cx));
            if let Ok(slow) = tokio::time::timeout(wait, pause).await {
                return Err(slow);
            }
            pace.moved(bytes)?;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_allowed_and_dripping_is_not() {
        let secs = Duration::from_secs;
        assert_eq!(drip(1, secs(11), 1).await, Err(TooSlow { waited: PAUSE }), "one pause");
        assert_eq!(drip(1, secs(9), 1).await, Ok(()), "shorter");
        assert_eq!(drip(1, secs(9), 9).await, Err(TooSlow { waited: secs(18) }), "dripping");
        assert_eq!(drip(1000, secs(9), 99).await, Ok(()), "slow, and moving");
    }
}
