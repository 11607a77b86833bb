//! Requests when the disk is full, and requests that are repeated minutes later.

use std::time::Duration;

use protocol::{Refusal, Request, Response, SessionRef};
use tokio::time::{Instant, sleep};

use super::Actor;
use crate::actors::errands;
use crate::actors::worker::JOB;

/// Time within which the pool notices that the disk is full.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// Words of a refusal for lack of disk space.
const FULL: &str = "min_free_disk";

impl Actor {
    /// Checks that a message that was sent at this time, and is taken now, was not sent with a full disk.
    pub(super) fn check_disk(&self, began: Instant) {
        let full = self.land.machine.full_since();
        if let Some(since) =
            full.filter(|since| self.land.climate.full_disks > 0 && *since + NOTICED_WITHIN < began)
        {
            let since = since.elapsed();
            self.land
                .judge
                .violated(format!("D10: a message is taken, and the disk is full since {since:?}"));
        }
    }

    /// Checks that a full disk keeps nobody from what settles messages.
    pub(super) fn check_refusal(&self, name: &str, refusal: &Refusal) {
        if refusal.message.contains(FULL) {
            self.land.judge.violated(format!("D10: {name} is refused: {}", refusal.message));
        }
    }

    /// Sends a message, and repeats that minutes later: it is the same message. Clients are in time for ten minutes.
    pub(super) async fn repeat_late(&mut self, session: SessionRef) {
        let body = format!("{JOB} repeated late");
        let (op, send) = (self.land.operation(), errands::message(session, body, JOB));
        let Some(Ok(Response::Sent(first))) = self.repeat(&op, Request::Send(send.clone())).await else {
            return;
        };
        sleep(Duration::from_millis(self.rng.between(121_000, 290_000))).await;
        self.land.judge.count("checked:repeated late");
        match self.repeat(&op, Request::Send(send)).await {
            Some(Ok(Response::Sent(again))) if again.message.id == first.message.id => {}
            Some(Err(_)) if self.land.climate.finished_max == 1 => {}
            other => self.land.judge.violated(format!(
                "O1: message {} was sent again, and that is answered {other:.200?}",
                first.message.id
            )),
        }
    }
}
