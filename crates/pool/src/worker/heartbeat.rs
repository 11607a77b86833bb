//! The heartbeats of workers, which renew the leases of their claims.

use protocol::MessageId;
use protocol::request::ClaimRef;

use crate::queue::settle::current_claim;
use crate::turn::Turn;

/// Renews the leases of those claims that a connection still holds. Returns the messages that it no longer holds under
/// these tokens: its worker learns of that by the answer.
#[must_use]
pub fn heartbeat(turn: &mut Turn<'_>, connection: u64, claims: &[ClaimRef]) -> Vec<MessageId> {
    let (now, mono) = (turn.now(), turn.mono());
    let (pool, volatile) = turn.state();
    let workers = &mut volatile.workers;
    workers.seen(connection, now);
    let mut lost = Vec::new();
    for claim in claims {
        let current = current_claim(pool, *claim).ok();
        match current.and_then(|message| message.holder) {
            Some(holder) => workers.renew(claim.id, holder, connection, mono),
            None => {
                workers.cancel_heard(claim.id, claim.token, mono);
                lost.push(claim.id);
            }
        }
    }
    lost
}
