//! Reapers: candidates out, leases, verdicts in. A lease holds the session's lock. It ends with the verdict,
//! or with the connection; then the next reaper continues.

use std::sync::Arc;
use std::time::Duration;

use pool::observe::{Findings, Peer, account_reported, ended_by_tmux};
use pool::{Volatile, reap};
use protocol::reap::{Candidate, CandidateKind, Lease, Outcome, Verdict};
use protocol::{
    Call, ErrorCode, Event, Hello, Lifecycle, OsBytes, Reason, Refusal, Reply, Request, Response, Session,
    SessionId, Tag, Token, frame,
};
use tokio::time::{Instant, sleep, timeout};

use crate::decide::lock::LockGuard;
use crate::decide::worker;
use crate::effect::cgroup;
use crate::effect::last_screen::{PanePresence, save_screen};
use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::host::files;
use crate::net::answer::answer_call;
use crate::net::connection::Connection;
use crate::net::role::reaper_leases::Leases;
use crate::net::role::reaper_silence;
use crate::sense::{exit_reports, tmux_snapshot};
use crate::verb::dispatch;

/// Time that a reaper waits for a session's lock before it requests another candidate.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// Duration of a lease beyond two grace periods: verification, and a busy machine.
const LEASE_SLACK: Duration = Duration::from_secs(40);

/// Attempts to read the report of an ended incarnation, each with the time limit of the blocking pool, and
/// the pause between them.
const REPORT_TRIES: u32 = 3;
const REPORT_PAUSE: Duration = Duration::from_secs(1);

/// Maximum waiting time for a candidate.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(super) async fn register(
    daemon: &Arc<Daemon>,
    id: u64,
    hello: &Hello,
    pid: Option<u32>,
) -> Result<(), Refusal> {
    let build = hello.build.clone();
    let register = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        turn.volatile.reaping.reaper_connected(Peer { connection: id, build, pid }, now);
        turn.wake();
    };
    daemon.engine.turn(register).await
}

pub(super) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let mut leases = Leases::of_connection(connection.id);
    loop {
        let payload = tokio::select! {
            biased;
            // First, so that a verdict that was sent in time counts.
            payload = connection.reader.next() => payload,
            () = leases.overdue() => {
                tracing::warn!("a reaper did not settle its lease in time");
                break;
            }
            () = reaper_silence::too_long(daemon) => {
                tracing::warn!("a reaper was silent for too long, while something is to be ended");
                break;
            }
        };
        let call = match payload {
            Ok(Some(payload)) => frame::decode::<Call>(&payload),
            Ok(None) => break,
            Err(error) => Err(error),
        };
        let call = match call {
            Ok(call) => call,
            Err(error) => {
                tracing::info!(%error, "a reaper was disconnected");
                break;
            }
        };
        if leases.is_overdue() && !matches!(call.request, Request::Settle(_)) {
            tracing::warn!("a reaper goes on without settling its lease in time");
            break;
        }
        let id = call.id;
        let answering = answer(daemon, &mut leases, call);
        // A reaper sends nothing while it waits: anything read here ends the connection.
        let reply = tokio::select! {
            biased;
            reply = answering => reply,
            _ = connection.reader.next() => break,
        };
        if answer_call(daemon, &connection.outbox, (id, reply)).is_err() {
            break;
        }
    }
}

/// Answers a request: those of the role here, all others as for a client.
async fn answer(daemon: &Arc<Daemon>, leases: &mut Leases, call: Call) -> Reply {
    call.request.check_bounds()?;
    match call.request {
        Request::Candidates => {
            let context = Arc::clone(daemon);
            let list = move |turn: &mut Turn<'_>| candidates(turn, &context);
            Ok(Response::Candidates(daemon.engine.turn(list).await?))
        }
        Request::NextCandidate { wait_ms } => {
            next(daemon, Duration::from_millis(wait_ms).min(WAIT_MAX)).await
        }
        Request::TakeLease { session, tag } => lease(daemon, leases, session, tag).await,
        Request::Settle(verdict) => settle(daemon, leases, verdict).await,
        _ => dispatch::answer(daemon, None, call).await,
    }
}

/// Waits for a candidate.
async fn next(daemon: &Arc<Daemon>, wait: Duration) -> Reply {
    let context = Arc::clone(daemon);
    let first = move |turn: &mut Turn<'_>| candidates(turn, &context).into_iter().next();
    match daemon.engine.wait_for(Some(wait), first).await {
        Ok(candidate) => Ok(Response::Candidates(vec![candidate])),
        Err(refusal) if refusal.code == ErrorCode::Timeout => Ok(Response::Candidates(Vec::new())),
        Err(refusal) => Err(refusal),
    }
}

/// Gives out a lease: takes the session's lock, saves the session's last screen, and checks the reason again.
async fn lease(daemon: &Arc<Daemon>, leases: &mut Leases, session: SessionId, tag: Tag) -> Reply {
    if let Some((token, candidate)) = leases.of(tag) {
        return present(daemon, token, candidate).await;
    }
    let lock = daemon.engine.lock_inside(lock_id(session, tag), "reap");
    let Ok(grant) = timeout(LOCK_LIMIT, lock).await else {
        return Err(Refusal::conflict(format!("{session} is locked")));
    };
    let grant = grant?;
    // A worker has no screen.
    let pane = save_screen(daemon, session, tag).await;
    let findings = exit_reports::read_report(daemon, tag).await.unwrap_or_default();
    let note = move |turn: &mut Turn<'_>| {
        exit_reports::note_processes(turn, &findings);
        note_pane(turn, session, tag, pane)
    };
    if daemon.engine.turn(note).await? {
        // The reason for the end has changed: a new observation of tmux decides what becomes of the session.
        drop(tmux_snapshot::take(daemon).await);
    }
    let (context, token, connection) = (Arc::clone(daemon), grant.token(), leases.connection);
    let decide = move |turn: &mut Turn<'_>| {
        reap::note_silent_workers(turn);
        let found = candidates(turn, &context).into_iter().find(|c| c.tag == tag && c.session == session);
        let Some(candidate) = found else {
            return Err(Refusal::not_found("there is no reason to end it any more"));
        };
        reap::lease_taken(turn, &candidate);
        turn.emit(Event::ReapStarted { session, kind: candidate.kind, tag, token });
        let begun = (candidate.grace_ms, turn.mono());
        turn.volatile.reaping.lease(tag, connection, begun);
        Ok(lease_of(turn, &context, token, candidate))
    };
    let lease = daemon.engine.turn(decide).await??;
    crate::crash::point("reap-leased");
    let lasts = 2 * Duration::from_millis(lease.candidate.grace_ms + lease.verify_ms) + LEASE_SLACK;
    leases.deadline = Some(Instant::now() + lasts);
    leases.held.insert(token, (grant, lease.candidate.clone()));
    Ok(Response::Lease(Box::new(lease)))
}

/// Returns the current state of a lease that is held: a user may have asked for a shorter grace since.
async fn present(daemon: &Arc<Daemon>, token: Token, candidate: Candidate) -> Reply {
    let context = Arc::clone(daemon);
    let read = move |turn: &mut Turn<'_>| {
        let grace = turn.volatile.reaping.leased_grace(candidate.tag);
        let grace_ms = grace.unwrap_or(candidate.grace_ms);
        lease_of(turn, &context, token, Candidate { grace_ms, ..candidate })
    };
    Ok(Response::Lease(Box::new(daemon.engine.turn(read).await?)))
}

/// Returns the id under which a candidate is locked. Candidates without a session have ids of their own, so
/// that they do not wait for each other.
fn lock_id(session: SessionId, tag: Tag) -> SessionId {
    let low: [u8; 8] = std::array::from_fn(|n| tag.0[8 + n]);
    if session.0 == 0 { SessionId((1 << 63) | u64::from_be_bytes(low)) } else { session }
}

fn lease_of(turn: &Turn<'_>, daemon: &Daemon, token: Token, candidate: Candidate) -> Lease {
    let loaded = daemon.loaded();
    let session = turn.pool().session(candidate.session);
    let leftovers = session.map(|s| loaded.settings.agent_of(s).leftovers).unwrap_or_default();
    Lease {
        token,
        tmux_socket: daemon.tmux_socket(),
        protected: protected(turn, daemon),
        tmux: daemon.device.binary.clone().into(),
        socket: daemon.paths.socket.clone().into(),
        verify_ms: loaded.settings.reap.verify_ms,
        leftovers,
        run: daemon.paths.run.clone().into(),
        private: session.map(|s| s.dir.clone()),
        before: loaded.daemon.before.clone(),
        after: loaded.daemon.after.clone(),
        candidate,
    }
}

/// Returns the process ids that are never signalled: the tmux server, the daemons and their supervisor.
fn protected(turn: &Turn<'_>, daemon: &Daemon) -> Vec<u32> {
    let Volatile { observed, reaping, .. } = &*turn.volatile;
    let peers = observed.watcher().into_iter().chain(reaping.reapers()).filter_map(|peer| peer.pid);
    let supervisor = std::os::unix::process::parent_id();
    [daemon.process.pid, supervisor]
        .into_iter()
        .chain(observed.server_pid(turn.pool()))
        .chain(peers)
        .collect()
}

/// Returns the candidates that a reaper may end now.
fn candidates(turn: &Turn<'_>, daemon: &Daemon) -> Vec<Candidate> {
    let now = (turn.now(), turn.mono());
    pool::reap::candidates(turn.pool(), turn.volatile, &daemon.settings(), now)
}

/// Records who ended a program: the program itself if its pane is left, else tmux. Returns true if the reason on
/// record changes.
fn note_pane(turn: &mut Turn<'_>, id: SessionId, tag: Tag, pane: PanePresence) -> bool {
    let Some(session) = turn.pool().session(id) else { return false };
    let current = session.is_run(tag);
    let by_tmux = ended_by_tmux(session);
    let is_cut_off = exit_reports::is_cut_off(turn, session, session.exit);
    if session.lifecycle != Lifecycle::Draining || !current || !(by_tmux || is_cut_off) {
        return false;
    }
    let (exit, now) = (session.exit, turn.now());
    let (attached, current_command) = (session.attached_clients, session.current_command.clone());
    let reason = match pane {
        PanePresence::Present if !by_tmux => return false,
        PanePresence::Present => {
            turn.emit(Event::SessionObserved { session: id, at: now, dead: true, attached, current_command });
            return false;
        }
        PanePresence::Gone => Reason::TmuxGone,
        PanePresence::Unknown if lost_its_server(turn, session) => Reason::ServerGone,
        PanePresence::Unknown => return false,
    };
    turn.emit(Event::SessionDraining { session: id, reason, exit, missing_since: Some(now) });
    true
}

/// True if the session's tmux server is proved dead.
fn lost_its_server(turn: &Turn<'_>, session: &Session) -> bool {
    let server = session.incarnation.as_ref().and_then(|run| run.server);
    server.is_some_and(|server| turn.volatile.reaping.exited().contains(&server.process))
}

/// Records a verdict, if its lease is still valid.
async fn settle(daemon: &Arc<Daemon>, leases: &mut Leases, verdict: Verdict) -> Reply {
    let Some((grant, candidate)) = leases.held.remove(&verdict.token) else {
        return Err(Refusal::conflict("that lease is not valid any more"));
    };
    let verdict = Verdict { outcome: verdict.outcome.within_bounds(), ..verdict };
    // A task of its own: a reaper that disconnects now does not undo its verdict.
    let verdict = record(Arc::clone(daemon), (grant, candidate), verdict);
    let settled = daemon.world.detach("verdict", verdict);
    settled.await.unwrap_or_else(|| Err(Refusal::unavailable("the verdict was not recorded")))
}

/// Records a verdict whose lease was valid, and releases the session's lock.
async fn record(daemon: Arc<Daemon>, (grant, candidate): (LockGuard, Candidate), verdict: Verdict) -> Reply {
    let daemon = &daemon;
    let stops = verdict.outcome.is_gone() && ends_session(candidate.kind);
    let report = if stops { await_report(daemon, candidate.tag).await } else { None };
    // Files that do not answer are removed by the next start.
    let cleans_up = report.is_some();
    let findings = report.unwrap_or_default();
    let (context, tag, cgroup) = (Arc::clone(daemon), candidate.tag, candidate.cgroup.clone());
    let apply = move |turn: &mut Turn<'_>| {
        turn.volatile.reaping.end_lease(candidate.tag);
        let gone = verdict.outcome.is_gone();
        reap::lease_settled(turn, &candidate, &verdict.outcome);
        if has_waiters(candidate.kind) && !is_outdated(turn, &candidate, &verdict.outcome) {
            turn.volatile.reaping.note_verdict(candidate.tag, verdict.outcome.clone());
        }
        let (session, kind, tag) = (candidate.session, candidate.kind, candidate.tag);
        turn.emit(Event::ReapFinished { session, kind, tag, outcome: verdict.outcome });
        match (gone, kind, candidate.init) {
            (true, CandidateKind::StaleWorker, Some(process)) => {
                turn.volatile.reaping.forget_verdict(tag);
                turn.volatile.reaping.note_exited([process]);
                worker::free(turn, &context.settings(), (process, Some(tag)));
            }
            (true, ..) if stops => stop(turn, &findings, &candidate),
            _ => {}
        }
        turn.wake();
    };
    daemon.engine.turn(apply).await?;
    if cleans_up {
        clean_up(daemon, tag, cgroup).await;
    }
    drop(grant);
    Ok(Response::Done)
}

/// Reads the report of an incarnation's init, again while its files do not answer. None if they never do.
async fn await_report(daemon: &Daemon, tag: Tag) -> Option<Findings> {
    for attempt in 0..REPORT_TRIES {
        if attempt > 0 {
            sleep(REPORT_PAUSE).await;
        }
        let report = exit_reports::read_report(daemon, tag).await;
        if report.is_some() {
            return report;
        }
    }
    None
}

/// True if the operator's command refused an end by a rule, but a user has asked for the end since.
fn is_outdated(turn: &Turn<'_>, candidate: &Candidate, outcome: &Outcome) -> bool {
    let reason = turn.pool().session(candidate.session).and_then(|s| s.reason);
    let by_rule = reason.and_then(pool::reap::rule_of).is_some();
    matches!(outcome, Outcome::Refused { .. }) && !by_rule
}

/// True if a verb may wait for the verdict.
fn has_waiters(kind: CandidateKind) -> bool {
    match kind {
        CandidateKind::Requested
        | CandidateKind::ZombiePane
        | CandidateKind::RetiredTag
        | CandidateKind::Leftover
        | CandidateKind::StaleWorker => true,
        CandidateKind::Orphan | CandidateKind::StaleClient => false,
    }
}

/// True if a verdict of this kind is about the incarnation of a session.
fn ends_session(kind: CandidateKind) -> bool {
    match kind {
        CandidateKind::Requested
        | CandidateKind::ZombiePane
        | CandidateKind::RetiredTag
        | CandidateKind::Leftover => true,
        CandidateKind::StaleWorker | CandidateKind::Orphan | CandidateKind::StaleClient => false,
    }
}

/// Ends a session whose processes are proved gone, if this is its current incarnation.
fn stop(turn: &mut Turn<'_>, findings: &Findings, candidate: &Candidate) {
    turn.volatile.reaping.note_exited(findings.exited.iter().copied());
    let current = turn
        .pool()
        .session(candidate.session)
        .filter(|s| s.lifecycle == Lifecycle::Draining && s.is_run(candidate.tag));
    if let Some(session) = current {
        let exit = findings.exits.get(&candidate.tag).copied().or(session.exit);
        let is_cut_off = exit_reports::is_cut_off(turn, session, exit);
        let reason = match session.reason {
            _ if (is_cut_off || ended_by_tmux(session)) && lost_its_server(turn, session) => {
                Reason::ServerGone
            }
            Some(reason) if !exit_reports::ended_before_drained(turn, session) => reason,
            _ => Reason::Exited,
        };
        let account = findings.accounts.get(&candidate.tag);
        let account = account.and_then(|account| account_reported(turn.pool(), candidate.tag, *account));
        turn.emit_all(account);
        turn.emit(pool::session::run_ended(candidate.session, reason, exit));
    }
    if let Some((server, pane)) = candidate.server.zip(candidate.pane).filter(|_| candidate.remove_pane) {
        // The reaper has seen the pane's end, which the watcher may report later.
        turn.volatile.observed.remove_pane(server, pane, candidate.tag);
    }
    turn.volatile.reaping.forget_verdict(candidate.tag);
}

/// Removes the files and the control group of an incarnation that has ended.
async fn clean_up(daemon: &Daemon, tag: Tag, group: Option<OsBytes>) {
    let run = daemon.paths.run.clone();
    let remove = move || {
        if let Some(group) = &group {
            cgroup::remove(group.as_path());
        }
        files::remove_run_files(&run, tag);
    };
    // A file system that does not answer: they are removed at the next start.
    daemon.blocking.with_timeout(Purpose::Housekeeping, remove).await;
}
