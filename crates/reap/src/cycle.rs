//! One job: take the lease, end the processes, remove the pane, report.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use process::crash;
use protocol::reap::{Candidate, CandidateKind, Lease, Outcome, Verdict};
use protocol::{ErrorCode, SessionId, Tag};
use tmux::{Device, Driver};

use crate::error::Error;
use crate::link::Link;
use crate::memory::End;
use crate::pane::{self, Pane};
use crate::{Options, hook, ours, tree};

/// The tmux server of the pool, with what is known of how it takes commands: found out once, not by each job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Devices(Arc<Mutex<Option<Device>>>);

impl Devices {
    fn of(&self, tmux: PathBuf, socket: &Path) -> Device {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.take().filter(|device| device.binary == tmux && device.socket == socket);
        last.insert(known.unwrap_or_else(|| Device::new(tmux, socket))).clone()
    }
}

/// Does the whole job over a connection of its own.
pub(crate) async fn run(options: &Options, devices: &Devices, session: SessionId, tag: Tag) -> End {
    match lease_to_verdict(options, devices, (session, tag)).await {
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
    devices: &Devices,
    (session, tag): (SessionId, Tag),
) -> Result<End, Error> {
    let mut link = Link::open(options).await?;
    let lease = link.take_lease(session, tag).await?;
    let Candidate { kind, name, evidence, .. } = &lease.candidate;
    tracing::info!(?kind, %name, evidence, "leased");
    let outcome = match hook::before(&lease).await {
        Ok(()) => {
            let tmux = options.tmux.clone().unwrap_or_else(|| lease.tmux.as_path().to_owned());
            end(&devices.of(tmux, lease.tmux_socket.as_path()), &lease).await
        }
        Err(why) => Outcome::Refused { why },
    };
    tracing::info!(?outcome, "verdict");
    let reached = if outcome.is_gone() { End::Gone } else { End::Left };
    crash::point("reap-verdict");
    link.settle(Verdict { token: lease.token, session, tag, outcome: outcome.clone() }).await?;
    hook::after(&lease, &outcome).await;
    Ok(reached)
}

/// Ends what the lease is for. Processes first: the pane shows what they say at the end.
pub(crate) async fn end(tmux: &dyn Driver, lease: &Lease) -> Outcome {
    let candidate = &lease.candidate;
    let mut pane = None;
    match if has_pane(candidate) { pane::find(tmux, candidate).await } else { Pane::Gone } {
        Pane::NotOurs(why) => return Outcome::Untouched { why },
        // It was missing when it was named, and is not.
        Pane::Here(pane) if candidate.kind == CandidateKind::Leftover => {
            return Outcome::Untouched { why: format!("its pane {} is there", pane.pane) };
        }
        Pane::Here(found) => pane = Some(found),
        _ => {}
    }
    if let Err(why) = ours::check(lease, pane.is_some()).await {
        return Outcome::Untouched { why };
    }
    let tree::Ended { killed, mut left, spared } = tree::end(lease).await;
    crash::point("reap-ended");
    if candidate.remove_pane
        && let Err(why) = pane::remove(tmux, candidate).await
    {
        if killed.is_empty() && left.is_empty() {
            return Outcome::Untouched { why };
        }
        left.push(why);
    }
    match (left.is_empty(), spared.is_empty()) {
        (true, true) => Outcome::Gone { killed },
        (true, false) => Outcome::Spared { killed, left: spared },
        (false, _) => Outcome::Survivors { left },
    }
}

/// Workers, orphans and clients have none.
fn has_pane(candidate: &Candidate) -> bool {
    use CandidateKind::{Orphan, StaleClient, StaleWorker};
    !matches!(candidate.kind, Orphan | StaleClient | StaleWorker)
}
