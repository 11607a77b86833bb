//! The end of a run: whether everything has settled, and whether the pool's word agrees with the world.

mod messages;
mod panes;
mod retention;
mod starts;
mod verdict;

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::request::{List, Resolution, ResolveMessage, Restart};
use protocol::{
    Lifecycle, MessageReason, MessageState, Reason, Request, Response, Role, SessionId, SessionView, Tag,
};

use tokio::time::Instant;
use world::clock::Clock;

use crate::client::Client;
use crate::judge::Asked;
use crate::land::Land;
use crate::rested;
use crate::world::machine::Kind;

use verdict::Verdict;

/// The reason of a prompt that its agent reported as another one, or not at all.
const UNCONFIRMED: &str = "typed, and the agent has not confirmed it";

/// Time after which the end of a session is overdue: its grace and a minute, with a margin. Then the status says that
/// it is not proved gone.
const OVERDUE: Duration = Duration::from_secs(75);
const NOT_GONE: &str = "not proved gone";

/// Compares. `None` if it has not settled yet and there is still time.
pub(crate) async fn judge(land: &Land, is_last: bool) -> Option<()> {
    match compare(land).await {
        Ok(()) => Some(()),
        Err(Verdict::Pending(_)) if !is_last => None,
        Err(Verdict::Pending(why)) => {
            land.judge.violated(format!("it does not settle: {why}"));
            Some(())
        }
        Err(Verdict::Broken(why)) => {
            land.judge.violated(why);
            Some(())
        }
    }
}

async fn compare(land: &Land) -> Result<(), Verdict> {
    let lost = || Verdict::Pending("the daemon does not answer".to_owned());
    let mut client = Client::connect(&land.net, Role::Client, None).await.ok_or_else(lost)?;
    let sessions = list(&mut client, false).await?;
    let hosts = list(&mut client, true).await?;
    let existing = sessions.iter().map(|found| found.session.id).collect();
    if let Err(why) = land.judge.compare_sessions(&existing) {
        // The subscriber may still have to hear that a session was removed because its time was over; or it got the
        // state only, without that event.
        let may_be_over = land.climate.expires();
        if may_be_over && !messages::has_seen_all(land, &mut client).await? {
            return Err(Verdict::Pending(why));
        }
        if !may_be_over || !land.judge.has_missed_events() {
            return Err(Verdict::Broken(why));
        }
    }
    check_overdue(land, &mut client, &sessions).await?;
    resolve_doubts(land, &mut client, &sessions).await.ok_or_else(lost)?;
    start_restored(land, &mut client, &hosts).await.ok_or_else(lost)?;
    for found in &sessions {
        let session = &found.session;
        if matches!(session.lifecycle, Lifecycle::Starting | Lifecycle::Draining) {
            messages::empty_composer(land, found);
            let open = unfinished(&mut client, session.id).await.ok_or_else(lost)?;
            let (name, state, reason) = (&session.name, session.lifecycle, session.reason);
            return Err(Verdict::Pending(format!("{name} is {state:?} ({reason:?}): {open:?}")));
        }
    }
    let live: BTreeSet<Tag> = sessions
        .iter()
        .filter(|found| found.session.lifecycle == Lifecycle::Live)
        .filter_map(|found| Some(found.session.incarnation.as_ref()?.tag))
        .collect();
    let living = land.machine.living();
    let running: BTreeSet<Tag> = living
        .iter()
        .filter(|found| matches!(found.kind, Kind::Agent | Kind::Host | Kind::Foreign))
        .filter_map(|found| found.tag)
        .filter(|tag| !land.judge.is_forgotten(*tag))
        .collect();
    if let Some(tag) = live.difference(&running).next() {
        return Err(Verdict::Pending(format!("{tag} is said to be live, and does not run")));
    }
    if let Some(tag) = running.difference(&live).next() {
        return Err(Verdict::Pending(format!("{tag} runs, and is not said to be live")));
    }
    let runs = sessions.iter().chain(&hosts);
    let runs: BTreeSet<Tag> =
        runs.filter_map(|found| Some(found.session.incarnation.as_ref()?.tag)).collect();
    if let Some((file, _)) = land.run_files().into_iter().find(|(_, tag)| !runs.contains(tag)) {
        return Err(Verdict::Pending(format!("the file {file} is left of an incarnation of no session")));
    }
    if let Some(name) = panes::shared_name(&sessions) {
        return Err(Verdict::Broken(format!("D: two sessions have the name {name}")));
    }
    let panes = panes::differs(land, &sessions, &hosts).await;
    let open = [starts::owed(land, &sessions), panes, retention::due(land, &sessions)];
    if let Some(why) = open.into_iter().flatten().next() {
        return Err(Verdict::Pending(why));
    }
    messages::compare(land, &mut client, &sessions).await?;
    if let Some(why) = rested::contradiction(land, &mut client, &sessions).await {
        return Err(Verdict::Pending(why));
    }
    check_health(land, &mut client).await
}

/// Lists all sessions, or those of the pool's workers.
async fn list(client: &mut Client, workers: bool) -> Result<Vec<SessionView>, Verdict> {
    let list = Request::List(List { all: true, workers, ..List::default() });
    match client.call(None, list).await {
        Some(Ok(Response::Sessions(sessions))) => Ok(sessions),
        _ => Err(Verdict::Pending("the sessions are not listed".to_owned())),
    }
}

/// Checks that the status tells of the sessions that should have been ended long ago.
async fn check_overdue(land: &Land, client: &mut Client, sessions: &[SessionView]) -> Result<(), Verdict> {
    let now = land.clock.now();
    let is_overdue = |found: &&SessionView| {
        let session = &found.session;
        session.lifecycle == Lifecycle::Draining
            && session.reason != Some(Reason::Drained)
            && now.since(session.changed_at) > OVERDUE
    };
    let overdue = sessions.iter().find(is_overdue).filter(|_| land.climate.clock_steps == 0);
    let Some(overdue) = overdue else { return Ok(()) };
    let Some(Ok(Response::Status(status))) = client.call(None, Request::Status).await else { return Ok(()) };
    land.judge.count("checked:overdue");
    let is_gone = || land.judge.seen() < status.seq;
    if status.problems.iter().any(|problem| problem.contains(NOT_GONE)) || is_gone() {
        return Ok(());
    }
    let (name, told) = (&overdue.session.name, &status.problems);
    Err(Verdict::Broken(format!(
        "O3: {name} is not ended for long, and the status tells nothing of that: {told:?}"
    )))
}

/// Checks that the pool is healthy, and that every record of its database can be read.
async fn check_health(land: &Land, client: &mut Client) -> Result<(), Verdict> {
    let lost = || Verdict::Pending("the daemon does not answer".to_owned());
    match client.call(None, Request::Check).await.ok_or_else(lost)? {
        Ok(Response::Checked(checked)) if checked.problems.is_empty() && checked.quarantined.is_empty() => {}
        other => return Err(Verdict::Broken(format!("D: the database: {other:?}"))),
    }
    match client.call(None, Request::Status).await.ok_or_else(lost)? {
        Ok(Response::Status(status)) => {
            match status.problems.iter().find(|problem| !is_lasting(land, problem)) {
                None if land.judge.seen() != status.seq => {
                    let seen = land.judge.seen();
                    Err(Verdict::Pending(format!(
                        "the subscriber has event {}, and not {}",
                        seen.0, status.seq.0
                    )))
                }
                None => Ok(()),
                Some(problem) => Err(Verdict::Pending(format!("unhealthy: {problem:?}"))),
            }
        }
        other => Err(Verdict::Broken(format!("no status: {other:?}"))),
    }
}

/// True for a problem that stays until a person acts or something is sent. It is about sessions that fail at each
/// start, have used up their budget of restarts, come from a restored database, or were lost; or about workers that
/// failed and have nothing to do.
fn is_lasting(land: &Land, problem: &str) -> bool {
    let is_of_copy = problem.starts_with("not started by themselves, as this pool is a copy or was restored");
    problem.starts_with("started by themselves too often")
        || problem.starts_with("end within a minute of each start")
        || is_of_copy && land.judge.timeline() > 0
        || problem.ends_with("starts what was lost")
        || problem.ends_with("tries again")
        || problem.starts_with("worker helper: it failed")
}

/// Starts the pool's worker where a restored database keeps it from starting by itself, as the status asks a person to
/// do. `None` if the connection is lost.
async fn start_restored(land: &Land, client: &mut Client, hosts: &[SessionView]) -> Option<()> {
    for host in hosts.iter().filter(|_| land.judge.timeline() > 0) {
        if host.session.budget.exhausted && !host.session.lifecycle.holds_slot() {
            let session = host.session.id.into();
            let restart = Restart { session, grace_ms: None, fresh: false, clear: false, wait_slot_ms: None };
            drop(client.call(Some(land.operation()), Request::Restart(restart)).await?);
        }
    }
    Some(())
}

/// Gives up the prompts in doubt, as a person would who has looked. `None` if the connection is lost.
async fn resolve_doubts(land: &Land, client: &mut Client, sessions: &[SessionView]) -> Option<()> {
    for found in sessions {
        let list = Request::ListMessages(found.session.id.into());
        let Ok(Response::Messages(messages)) = client.call(None, list).await? else { continue };
        for message in messages.into_iter().filter(|message| is_left_to_person(land, message)) {
            land.judge.count("final:in doubt");
            check_doubt(land, &message);
            land.judge.asked(Asked::End(message.id));
            let resolve = ResolveMessage { id: message.id, resolution: Resolution::Dead };
            drop(client.call(Some(land.operation()), Request::ResolveMessage(resolve)).await?);
        }
    }
    Some(())
}

/// True if only a person can tell what became of a prompt: it is in doubt; or unconfirmed in a run in which people
/// type, as it may stand in one line with their words.
fn is_left_to_person(land: &Land, message: &protocol::Message) -> bool {
    let is_unconfirmed = || {
        let reason = message.status.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        message.status.state == MessageState::Typed
            && land.climate.typing > 0
            && reason.starts_with(UNCONFIRMED)
    };
    message.status.state == MessageState::InDoubt || is_unconfirmed()
}

/// Checks that a prompt of which Enter is said to be missing was not entered.
fn check_doubt(land: &Land, message: &protocol::Message) {
    // A late Enter may have come after the doubt. After a step of the clock the time of the doubt is not known.
    let may_fail = land.climate.tmux_faults + land.climate.server_stops + land.climate.socket_losses > 0;
    let age = land.clock.now().since(message.status.changed_at);
    let at = Instant::now().checked_sub(age).filter(|_| land.climate.clock_steps == 0);
    if may_fail && at.is_none_or(|at| land.tmux.was_troubled(at)) {
        return;
    }
    let body = land.judge.message(message.id).map(|(_, body)| body);
    let Some(body) = body.filter(|body| !land.judge.is_cut_short(body)) else {
        return;
    };
    let typed = land.judge.prompt(&body);
    let is_entered = typed.entered >= typed.pasted && !typed.entered_by_person && !typed.entered_in_trouble;
    if message.status.reason == Some(MessageReason::NoEnter) && is_entered {
        land.judge.violated(format!("{body:?} ({}) is in doubt, and its Enter was pressed", message.id));
    }
}

/// Returns the unfinished messages of a session, in words. `None` if the connection is lost.
async fn unfinished(client: &mut Client, session: SessionId) -> Option<Vec<String>> {
    let list = Request::ListMessages(session.into());
    let Ok(Response::Messages(messages)) = client.call(None, list).await? else { return None };
    let open = messages.into_iter().filter(|message| !message.status.state.is_final());
    Some(
        open.map(|message| format!("{} {:?} {:?}", message.id, message.status.state, message.status.reason))
            .collect(),
    )
}
