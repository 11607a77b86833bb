//! The end of a claim whose worker is silent or dead: what goes to the next worker at once, and what waits for a proof.

use protocol::reap::{Action, Rule};
use protocol::{MessageState, Tag};

use crate::pool::Pool;
use crate::queue::pending::PendingMessage;
use crate::queue::settle::LeaseEnd;
use crate::reap::rules::rule_action;
use crate::reap::state::Reaping;
use crate::settings::Settings;
use crate::worker::host::is_hosted;

/// Returns the consequence of the end of a claim's lease. None if its holder is a dead host: handlers of the host may
/// live on, so the message is freed by the proof that the host's session is gone.
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

/// True if a message stays with its dead holder, because descendants of that may live on, until the reaper has proved
/// the process tree of the claim, or the session of the host, gone. `proved` is the claim for which that was just
/// proved. If the rule `stale_worker` only reports, there will be no proof, and the message does not wait for one.
pub fn awaits_proof(
    (pool, settings): (&Pool, &Settings),
    message: &PendingMessage<'_>,
    proved: Option<Tag>,
) -> bool {
    let is_proved = proved.is_some() && message.token.map(Tag::for_claim) == proved;
    let rule = || rule_action(settings, pool.session(message.session), Rule::StaleWorker).0;
    let is_revoked = message.state == MessageState::Revoking && !is_proved && rule() != Action::Report;
    is_revoked || is_hosted(pool, message.holder)
}
