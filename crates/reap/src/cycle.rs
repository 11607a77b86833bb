//! One job: take the lease, end the processes, remove the pane, report.

use std::path::PathBuf;

use protocol::reap::{Candidate, CandidateKind, Lease, Outcome, Verdict};
use protocol::{ErrorCode, SessionId, Tag};
use tmux::{Device, Driver};

use crate::error::Error;
use crate::link::Link;
use crate::memory::End;
use crate::pane::{self, Pane};
use crate::{Options, tree};

/// Does the whole job over a connection of its own. `tmux` is the tmux program.
pub(crate) async fn run(options: &Options, tmux: PathBuf, session: SessionId, tag: Tag) -> End {
    match lease_to_verdict(options, tmux, session, tag).await {
        Ok(end) => end,
        Err(Error::Refused(refusal)) if matches!(refusal.code, ErrorCode::Conflict | ErrorCode::NotFound) => {
            tracing::debug!(%refusal, "not leased");
            End::NoLease
        }
        Err(error) => {
            tracing::warn!(%error, "not leased or not reported");
            End::NoLease
        }
    }
}

async fn lease_to_verdict(
    options: &Options,
    tmux: PathBuf,
    session: SessionId,
    tag: Tag,
) -> Result<End, Error> {
    let mut link = Link::open(options).await?;
    let lease = link.take_lease(session, tag).await?;
    let Candidate { kind, name, evidence, .. } = &lease.candidate;
    tracing::info!(?kind, %name, evidence, "leased");
    let device = Device::new(tmux, lease.tmux_socket.as_path());
    let outcome = end(&device, &lease).await;
    tracing::info!(?outcome, "verdict");
    let reached = if matches!(outcome, Outcome::Gone { .. }) { End::Gone } else { End::Left };
    link.settle(Verdict { token: lease.token, session, tag, outcome }).await?;
    Ok(reached)
}

/// Ends what the lease is for. Processes first: the pane shows what they say at the end.
pub(crate) async fn end(tmux: &dyn Driver, lease: &Lease) -> Outcome {
    let candidate = &lease.candidate;
    // A worker has no pane.
    let has_pane = candidate.kind != CandidateKind::StaleWorker;
    match if has_pane { pane::find(tmux, candidate).await } else { Pane::Gone } {
        Pane::NotOurs(why) => return Outcome::Untouched { why },
        // It was missing when it was named, and is not.
        Pane::Here(pane) if candidate.kind == CandidateKind::Leftover => {
            return Outcome::Untouched { why: format!("its pane {} is there", pane.pane) };
        }
        _ => {}
    }
    let tree::Ended { killed, mut left } = tree::end(candidate, &lease.protected).await;
    if candidate.remove_pane
        && let Err(why) = pane::remove(tmux, candidate).await
    {
        if killed.is_empty() && left.is_empty() {
            return Outcome::Untouched { why };
        }
        left.push(why);
    }
    if left.is_empty() { Outcome::Gone { killed } } else { Outcome::Survivors { left } }
}
