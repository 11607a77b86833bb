//! The end of a claim whose worker is silent or dead: what goes to the next worker at once, and what waits for a proof.

use protocol::{MessageState, Tag, Token};

use crate::pool::Pool;
use crate::queue::pending::PendingMessage;
use crate::queue::settle::LeaseEnd;
use crate::reap::state::Reaping;
use crate::worker::host::is_hosted;

/// Returns the consequence of the end of a claim's lease. None if the host that held it is dead: its handlers may live
/// on, and the proof that its session is gone frees the message.
pub fn lease_end(pool: &Pool, reaping: &Reaping, claim: &PendingMessage<'_>) -> Option<LeaseEnd> {
    let process = claim.holder.and_then(|holder| holder.process);
    let has_exited = process.is_some_and(|process| reaping.exited().contains(&process));
    if has_exited && is_hosted(pool, claim.holder) {
        return None;
    }
    let is_registered = claim.holder.is_some_and(|holder| holder.generator.is_some());
    Some(match process.filter(|_| is_registered) {
        // The token stays, because the reaper finds the holder's processes by it. The state `Revoking` keeps the holder
        // from using it.
        Some(_) if !has_exited => claim.token.map_or(LeaseEnd::Release, LeaseEnd::Revoke),
        _ => LeaseEnd::Release,
    })
}

/// True if a message stays with its dead holder, whose descendants may live on: the reaper still has to prove the
/// process tree of the claim gone, or the session of the host.
pub fn awaits_proof(pool: &Pool, reaping: &Reaping, message: &PendingMessage<'_>) -> bool {
    let is_being_ended = |token: Token| {
        let tag = Tag::for_claim(token);
        reaping.is_leased(tag) || reaping.has_survivors(tag)
    };
    let is_revoked = message.state == MessageState::Revoking && message.token.is_some_and(is_being_ended);
    is_revoked || is_hosted(pool, message.holder)
}
