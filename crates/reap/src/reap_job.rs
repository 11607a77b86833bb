//! One job: take the lease, end the processes, remove the pane, report.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use process::kill::GraceLimit;
use process::runtime::crash;
use protocol::reap::{Candidate, CandidateKind, Lease, Outcome, Verdict};
use protocol::{ErrorCode, SessionId, Tag, Token};
use tmux::{Device, Driver};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::error::Error;
use crate::link::Link;
use crate::pane::{self, PaneState};
use crate::retry_backoff::JobResult;
use crate::{Options, operator_command, ownership, processes};

/// Time between two looks at the present grace of an end.
const GRACE_PAUSE: Duration = Duration::from_millis(250);

/// The pool's tmux server, shared by all jobs, with the knowledge whether it takes commands without a
/// client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Devices(Arc<Mutex<Option<Device>>>);

impl Devices {
    fn of(&self, tmux: PathBuf, socket: &Path) -> Device {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.take().filter(|device| device.binary == tmux && device.socket == socket);
        last.insert(known.unwrap_or_else(|| Device::new(tmux, socket))).clone()
    }
}

/// Runs the whole job over a connection of its own.
pub(crate) async fn run(options: &Options, devices: &Devices, session: SessionId, tag: Tag) -> JobResult {
    match lease_to_verdict(options, devices, (session, tag)).await {
        Ok(end) => end,
        Err(Error::Refused(refusal)) if matches!(refusal.code, ErrorCode::Conflict | ErrorCode::NotFound) => {
            tracing::debug!(%refusal, "not leased");
            JobResult::NoLease
        }
        Err(error) => {
            tracing::warn!(%error, "lease or report failed");
            JobResult::NoLease
        }
    }
}

async fn lease_to_verdict(
    options: &Options,
    devices: &Devices,
    (session, tag): (SessionId, Tag),
) -> Result<JobResult, Error> {
    let mut link = Link::open(options).await?;
    let lease = link.take_lease(session, tag).await?;
    let Candidate { kind, name, evidence, .. } = &lease.candidate;
    tracing::info!(?kind, %name, evidence, "leased");
    let (outcome, token) = match operator_command::run_before(&lease, operator_command::LIMIT).await {
        Ok(()) => {
            let tmux = options.tmux.clone().unwrap_or_else(|| lease.tmux.as_path().to_owned());
            let device = devices.of(tmux, lease.tmux_socket.as_path());
            end_within_grace(options, &mut link, &device, &lease).await
        }
        Err(why) => (Outcome::Refused { why }, lease.token),
    };
    tracing::info!(?outcome, "verdict");
    let outcome = outcome.within_bounds();
    let reached = reached(lease.candidate.kind, &outcome);
    crash::point("reap-verdict");
    link.settle(Verdict { token, session, tag, outcome: outcome.clone() }).await?;
    operator_command::run_after(&lease, &outcome, operator_command::LIMIT).await;
    Ok(reached)
}

/// Returns the result of a job. `poold` holds back a rule whose end of a session was refused; it names anything else
/// again at once.
fn reached(kind: CandidateKind, outcome: &Outcome) -> JobResult {
    match outcome {
        Outcome::Gone { .. } | Outcome::Spared { .. } => JobResult::Gone,
        Outcome::Refused { .. } if kind == CandidateKind::Requested => JobResult::Refused,
        Outcome::Refused { .. } | Outcome::Survivors { .. } | Outcome::Untouched { .. } => JobResult::Left,
    }
}

/// Ends the candidate of a lease, with a shorter grace as soon as a user asks for one. Returns the token of the lease
/// under which it ended.
async fn end_within_grace(
    options: &Options,
    link: &mut Link,
    tmux: &dyn Driver,
    lease: &Lease,
) -> (Outcome, Token) {
    let (limit, over) = (GraceLimit::default(), Notify::new());
    let ending = async {
        let outcome = end(tmux, lease, &limit).await;
        over.notify_one();
        outcome
    };
    tokio::join!(ending, follow_grace(options, link, lease, (&limit, &over)))
}

/// Lowers the limit to the grace that the lease has now, until the candidate has ended or the grace has passed. If
/// `poold` is restarted, the lease is taken again from the new one. Returns the token of the last lease.
async fn follow_grace(
    options: &Options,
    link: &mut Link,
    lease: &Lease,
    (limit, over): (&GraceLimit, &Notify),
) -> Token {
    let (session, tag) = (lease.candidate.session, lease.candidate.tag);
    let (began, mut grace) = (Instant::now(), Duration::from_millis(lease.candidate.grace_ms));
    let (mut token, mut leased_after) = (lease.token, Duration::ZERO);
    while began.elapsed() < grace {
        if timeout(GRACE_PAUSE, over.notified()).await.is_ok() {
            break;
        }
        match link.take_lease(session, tag).await {
            Ok(now) => {
                if now.token != token {
                    (token, leased_after) = (now.token, began.elapsed());
                }
                grace = grace.min(leased_after + Duration::from_millis(now.candidate.grace_ms));
            }
            Err(Error::Lost(error)) => {
                tracing::debug!(%error, "the present grace is not known yet");
                if let Ok(anew) = Link::open(options).await {
                    *link = anew;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the present grace is not known");
                break;
            }
        }
        limit.lower(grace);
    }
    token
}

/// Ends the candidate of a lease. Processes first, so that the pane shows their last words.
pub(crate) async fn end(tmux: &dyn Driver, lease: &Lease, limit: &GraceLimit) -> Outcome {
    let candidate = &lease.candidate;
    let (mut pane, mut remove_pane) = (None, candidate.remove_pane);
    match if has_pane(candidate) { pane::find(tmux, candidate).await } else { PaneState::Gone } {
        PaneState::NotOurs(why) if !ownership::is_own_init(lease).await => return Outcome::Untouched { why },
        // The pane belongs to somebody else now, for another program: the session's own processes are ended, and the
        // pane is left.
        PaneState::NotOurs(_) => remove_pane = false,
        // The pane was missing when the candidate was named, and exists now.
        PaneState::Here(pane) if candidate.kind == CandidateKind::Leftover => {
            return Outcome::Untouched { why: format!("its pane {} exists", pane.pane) };
        }
        PaneState::Here(found) => pane = Some(found),
        _ => {}
    }
    if let Err(why) = ownership::check(lease, pane.is_some()).await {
        return Outcome::Untouched { why };
    }
    let processes::Ended { killed, mut left, spared } = processes::end(lease, limit).await;
    crash::point("reap-ended");
    if remove_pane && let Err(why) = pane::remove(tmux, candidate).await {
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

/// True unless the candidate is a worker, an orphan or a client.
fn has_pane(candidate: &Candidate) -> bool {
    use CandidateKind::{Orphan, StaleClient, StaleWorker};
    !matches!(candidate.kind, Orphan | StaleClient | StaleWorker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poold_waits_after_a_refusal_only_if_a_rule_was_to_end_a_session() {
        let refused = Outcome::Refused { why: "not now".to_owned() };
        assert_eq!(reached(CandidateKind::Requested, &refused), JobResult::Refused);
        assert_eq!(reached(CandidateKind::Orphan, &refused), JobResult::Left);
        let untouched = Outcome::Untouched { why: "no answer".to_owned() };
        assert_eq!(reached(CandidateKind::Requested, &untouched), JobResult::Left);
    }
}
