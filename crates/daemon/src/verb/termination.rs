//! Ending an incarnation: the verb commits that it is to end, the reaper ends and verifies it, the verb
//! answers.

use std::sync::Arc;
use std::time::Duration;

use pool::ReapRules;
use protocol::reap::Outcome;
use protocol::{ErrorCode, Event, Lifecycle, Refusal, Session, SessionId, SessionRef, Tag};

use crate::decide::idempotency::ClientOperation;
use crate::decide::lock;
use crate::engine::{Daemon, Turn, pane_of};

/// Time for a reaper to connect, before the daemon closes the pane itself.
const REAPER_LIMIT: Duration = Duration::from_secs(1);

/// The same after a start of the daemon, and after a reaper has disconnected: longer than the reaper's longest pause
/// between two attempts to connect, and than the supervisor's first pause before it restarts a reaper.
const REAPER_RETURN: Duration = Duration::from_secs(5);

/// Time for an end beyond its grace and the reaper's verification: for the reaper's other candidates.
const END_SLACK: Duration = Duration::from_secs(10);

/// Returns the time for an end with this grace: until the reaper itself gives up, and more.
fn end_limit(grace_ms: u64, rules: &ReapRules) -> Duration {
    Duration::from_millis(grace_ms.saturating_add(rules.verify_ms)) + END_SLACK
}

/// Maximum time for the reaper to close the pane of an incarnation that has ended.
const PANE_LIMIT: Duration = Duration::from_secs(5);

/// Commits that the incarnation of a session is to end, with the events that `decide` returns. Returns the
/// session as it is then.
pub(super) async fn begin(
    daemon: &Arc<Daemon>,
    op: &ClientOperation,
    (wanted, grace_ms): (SessionRef, Option<u64>),
    decide: fn(&Session) -> Vec<Event>,
) -> Result<Session, Refusal> {
    let (op, under, usual) = (op.clone(), lock::current(), daemon.settings().grace_ms);
    let commit = move |turn: &mut Turn<'_>| {
        let session = pool::session::resolve(turn.pool(), &wanted)?.clone();
        lock::check_unlocked(turn, session.id, under)?;
        let events = decide(&session);
        let run = session.running();
        if let Some(tag) = run.map(|run| run.tag) {
            expect_end(turn, tag, (grace_ms, usual));
        }
        // If nothing runs, there is no end to begin: the operation is recorded with the start of the next incarnation.
        if session.lifecycle.holds_slot() || !events.is_empty() {
            op.record_begun(turn, session.id);
        }
        turn.emit_all(events);
        turn.pool()
            .session(session.id)
            .cloned()
            .ok_or_else(|| pool::session::not_found(turn.pool(), &wanted.0))
    };
    daemon.engine.turn(commit).await?
}

/// Forgets the verdict on an earlier attempt to end an incarnation, and takes the grace that a user asks for,
/// or the `usual` one.
pub(super) fn expect_end(turn: &mut Turn<'_>, tag: Tag, (grace_ms, usual): (Option<u64>, u64)) {
    turn.volatile.reaping.forget_verdict(tag);
    pool::reap::ask_grace(turn, tag, (grace_ms, usual));
}

/// Waits until the incarnation is verified gone.
///
/// # Errors
/// The reaper could not end it, or not in time; without a reaper: its pane was closed, and nothing verified its end.
pub(super) async fn wait(daemon: &Arc<Daemon>, session: &Session) -> Result<(), Refusal> {
    wait_unless(daemon, session, |_| false).await
}

/// Waits until the incarnation is verified gone, or `unless` is true of the session.
pub(super) async fn wait_unless(
    daemon: &Arc<Daemon>,
    session: &Session,
    unless: fn(&Session) -> bool,
) -> Result<(), Refusal> {
    let Some(run) = session.incarnation.clone().filter(|_| session.lifecycle.holds_slot()) else {
        return Ok(());
    };
    let (id, tag) = (session.id, run.tag);
    let reaper = move |turn: &mut Turn<'_>| {
        (outcome(turn, (id, tag), unless).is_some() || turn.volatile.reaping.has_reaper()).then_some(())
    };
    let absent = move |turn: &mut Turn<'_>| turn.age(turn.volatile.reaping.reaper_since());
    let absent = daemon.engine.turn(absent).await?;
    let limit = REAPER_LIMIT.max(REAPER_RETURN.saturating_sub(absent));
    match daemon.engine.wait_for(Some(limit), reaper).await {
        Ok(()) => {}
        Err(refusal) if refusal.code == ErrorCode::Timeout => {
            return close_pane(daemon, session, unless).await;
        }
        Err(refusal) => return Err(refusal),
    }
    let grace = move |turn: &mut Turn<'_>| turn.pool().session(id).and_then(|session| session.end_grace_ms);
    let grace = daemon.engine.turn(grace).await?;
    let settings = daemon.settings();
    let limit = end_limit(grace.unwrap_or(settings.grace_ms), &settings.reap);
    let verdict = daemon.engine.wait_for(Some(limit), move |turn| outcome(turn, (id, tag), unless)).await;
    match verdict {
        Ok(verdict) => verdict,
        Err(refusal) if refusal.code == ErrorCode::Timeout => {
            let is_begun = move |turn: &mut Turn<'_>| turn.volatile.reaping.is_leased(tag);
            let how = match daemon.engine.turn(is_begun).await? {
                true => "the reaper goes on",
                false => {
                    "the reaper has not begun: it tries again within a minute of a failure, or it hangs, which \
                     `poolctl status` tells"
                }
            };
            let why = format!("{} is not verified gone yet; {how}", session.name);
            Err(Refusal::timeout(why))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Returns the result of the end, once there is one. An error says why the reaper could not end the
/// incarnation.
fn outcome(
    turn: &Turn<'_>,
    (id, tag): (SessionId, Tag),
    unless: fn(&Session) -> bool,
) -> Option<Result<(), Refusal>> {
    let current = turn.pool().session(id).filter(|s| s.lifecycle.holds_slot() && s.is_run(tag));
    if current.is_none_or(unless) {
        return Some(Ok(()));
    }
    let failed = |what: String| Some(Err(Refusal::failed(what)));
    match turn.volatile.reaping.verdict(tag)? {
        Outcome::Gone { .. } | Outcome::Spared { .. } => None,
        Outcome::Survivors { left } => failed(format!("not all of it is gone; left: {}", left.join(", "))),
        Outcome::Refused { why } => failed(format!("nothing was done: {why}")),
        Outcome::Untouched { why } => {
            failed(format!("nothing was done: {why}; it stays draining and is tried again"))
        }
    }
}

fn runs_on() -> Refusal {
    Refusal::conflict("its end was taken back, and it runs on")
}

/// Closes the pane, which hangs up its programs, because no reaper is connected. Always returns an error, as nobody
/// verifies their end. Does nothing if the end was taken back while this waited for the session's lock.
async fn close_pane(
    daemon: &Arc<Daemon>,
    session: &Session,
    unless: fn(&Session) -> bool,
) -> Result<(), Refusal> {
    let Some(run) = &session.incarnation else { return Ok(()) };
    let grant = daemon.engine.lock_inside(session.id, "kill").await?;
    let (id, tag) = (session.id, run.tag);
    let goes_on = move |turn: &mut Turn<'_>| {
        let is_ending = turn.pool().session(id).is_some_and(|s| s.lifecycle == Lifecycle::Draining);
        outcome(turn, (id, tag), unless).or_else(|| (!is_ending).then(|| Err(runs_on())))
    };
    if let Some(result) = daemon.engine.turn(goes_on).await? {
        return result;
    }
    let pane = pane_of(run);
    let done = match pane {
        Some(pane) => match daemon.tmux.kill_pane(pane).await {
            Ok(tmux::Answer::Done) => "its pane was asked to close".to_owned(),
            Ok(answer) => format!("its pane was not closed: {answer}"),
            Err(error) => format!("its pane was not closed: {error}"),
        },
        None => "its pane is not known".to_owned(),
    };
    drop(grant);
    Err(Refusal::failed(format!(
        "no reaper is connected, so nobody verified that the processes of {} are gone; {done}. \
             Start it (`poolctl up`): it goes on from here",
        session.name
    )))
}

/// Waits until the pane of an incarnation that has ended is closed; until then its log is written to. A restart that
/// was called off leaves such a pane, and the reaper closes it under the session's lock.
pub(super) async fn await_closed_pane(daemon: &Arc<Daemon>, id: SessionId) {
    let closed = move |turn: &mut Turn<'_>| {
        let ended = turn.pool().session(id).filter(|session| session.lifecycle.is_over());
        let state = turn.volatile.observed.state();
        let left = ended.and_then(Session::tag).and_then(|tag| state.tagged_pane(tag));
        left.is_none().then_some(())
    };
    drop(daemon.engine.wait_for(Some(PANE_LIMIT), closed).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_the_time_that_its_verification_may_take() {
        let seconds = |verify_ms| {
            let rules = ReapRules { verify_ms, ..ReapRules::default() };
            end_limit(2000, &rules).as_secs()
        };
        assert_eq!([seconds(5000), seconds(60_000)], [17, 72]);
    }
}
