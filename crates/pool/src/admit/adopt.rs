//! `adopt`: a tmux session that the pool did not create becomes one of its own. Its record is on disk
//! before its pane is marked.

use protocol::limits::Limits;
use protocol::session::Size;
use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{
    ErrorCode, Event, Incarnation, Lifecycle, Name, OsBytes, PaneId, Refusal, ServerId, Session, SessionId,
    Spec, TmuxSessionId,
};

use super::create::{COMMAND, Launch, Made, first_free, full, taken};
use super::{refuse, text};
use crate::pool::Pool;
use crate::settings::Settings;
use crate::slots;

/// The pane that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoptee {
    /// Its server.
    pub server: ServerId,
    /// Its id.
    pub id: PaneId,
    /// What was seen of it.
    pub pane: TmuxPane,
    /// The name of its tmux session.
    pub name: String,
}

/// What a target means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// It is the pool's already.
    Ours(SessionId),
    /// It can be adopted.
    Foreign(Box<Adoptee>),
}

/// What its process tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its program and arguments.
    pub argv: Vec<OsBytes>,
    /// Its working directory.
    pub cwd: OsBytes,
}

/// The pane with this id (`%3`), or the only pane of the tmux session with this id (`$3`) or exact name.
///
/// # Errors
/// Not found; conflict where there are several panes; refused where its program has ended;
/// unavailable where no server is seen.
pub fn target(pool: &Pool, state: &TmuxState, target: &str) -> Result<Target, Refusal> {
    let Server::Up(server) = state.server else {
        return refuse(ErrorCode::Unavailable, "no tmux server answers at the pool's tmux socket");
    };
    let id = pane_meant(state, target)?;
    let missing = || Refusal::new(ErrorCode::NotFound, format!("no pane {id} in this tmux server"));
    let pane = state.panes.get(&id).ok_or_else(missing)?.clone();
    if let Some(session) = pane.tag.and_then(|tag| pool.tagged(tag)) {
        return Ok(Target::Ours(session.id));
    }
    if pane.tag.is_some() {
        return refuse(
            ErrorCode::Conflict,
            format!("{id} has the mark of another pool, or of an ended session"),
        );
    }
    if pane.is_over() || pane.process.is_none() {
        return refuse(ErrorCode::Refused, format!("the program in {id} has ended"));
    }
    let name = state.sessions.get(&pane.session).map(|s| s.name.clone()).unwrap_or_default();
    Ok(Target::Foreign(Box::new(Adoptee { server, id, pane, name })))
}

fn pane_meant(state: &TmuxState, target: &str) -> Result<PaneId, Refusal> {
    if let Ok(pane) = target.parse::<PaneId>() {
        return Ok(pane);
    }
    let by_id = target.parse::<TmuxSessionId>().ok().filter(|id| state.sessions.contains_key(id));
    let name = target.strip_prefix('=').unwrap_or(target);
    let by_name = || state.sessions.iter().find(|(_, session)| session.name == name).map(|(id, _)| *id);
    let Some(session) = by_id.or_else(by_name) else {
        return refuse(ErrorCode::NotFound, not_found(state, target));
    };
    let panes: Vec<PaneId> =
        state.panes.iter().filter(|(_, pane)| pane.session == session).map(|(id, _)| *id).collect();
    match panes.as_slice() {
        [one] => Ok(*one),
        [] => refuse(ErrorCode::NotFound, format!("{target} has no panes of its own")),
        many => {
            let many: Vec<String> = many.iter().map(ToString::to_string).collect();
            refuse(
                ErrorCode::Conflict,
                format!("{target} has several panes; name one of {}", many.join(", ")),
            )
        }
    }
}

fn not_found(state: &TmuxState, target: &str) -> String {
    let shown: String = target.chars().take(80).collect();
    let names: Vec<&str> = state.sessions.values().map(|s| s.name.as_str()).take(8).collect();
    let there =
        if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
    format!("no session {shown:?} in this tmux server; {there}")
}

/// Decides on `adopt`.
///
/// # Errors
/// Usage, conflict (the workspace is taken) or refused (no slot).
pub fn adopt(
    pool: &Pool,
    settings: &Settings,
    adoptee: &Adoptee,
    (program, workspace): (Program, Option<&str>),
    launch: &Launch<'_>,
) -> Result<Made, Refusal> {
    let workspace = workspace.map(text::name).transpose()?;
    text::launch_size(&program.argv, &[])?;
    text::directory(&program.cwd)?;
    if let Some(wanted) = &workspace
        && let Some(other) = pool.named(wanted.as_str())
    {
        return refuse(ErrorCode::Conflict, taken(wanted, other));
    }
    if slots::free(pool, settings) <= launch.ahead {
        return Err(full(pool, settings));
    }
    let name = free_name(pool, &adoptee.name)?;
    let workspace = workspace.unwrap_or_else(|| name.clone());
    let session = record(pool, settings, (adoptee, program), (name, workspace), launch);
    Ok(Made { session: session.id, events: vec![Event::SessionCreated(Box::new(session))] })
}

/// The tmux session's name, or what can be made of it under the rules for names.
fn free_name(pool: &Pool, shown: &str) -> Result<Name, Refusal> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let lower = shown.to_lowercase();
    let clean: String = lower.chars().map(|c| if allowed(c) { c } else { '-' }).take(48).collect();
    let clean = clean.trim_matches(['-', '_']);
    let base = if clean.parse::<Name>().is_ok() { clean.to_owned() } else { format!("tmux-{clean}") };
    text::name(&first_free(pool, base.trim_end_matches('-')))
}

fn record(
    pool: &Pool,
    settings: &Settings,
    (adoptee, program): (&Adoptee, Program),
    names: (Name, Name),
    launch: &Launch<'_>,
) -> Session {
    let id = SessionId(pool.next_session());
    let pane = &adoptee.pane;
    let incarnation = Incarnation {
        server: Some(adoptee.server),
        session: Some(pane.session),
        pane: Some(adoptee.id),
        init: pane.process,
        agent: pane.process,
        ..Incarnation::intended(launch.tag, launch.now)
    };
    let spec = Spec {
        agent: agent_kind(settings, &program.argv),
        command: program.argv,
        cwd: program.cwd,
        env: Vec::new(),
        size: Size { cols: pane.width.max(1), rows: pane.height.max(1) },
        start_args: Vec::new(),
        resume_args: Vec::new(),
        limits: Limits::default(),
        context_limit: None,
    };
    let dir = settings.sessions_dir.join(id.to_string()).into();
    let current_command = pane.current_command.clone();
    Session { current_command, ..Session::intended(id, names, dir, spec, incarnation) }
}

/// The kind whose name the program has, if there is one.
fn agent_kind(settings: &Settings, argv: &[OsBytes]) -> String {
    let program = argv.first().and_then(|word| word.as_path().file_name()).and_then(|name| name.to_str());
    let known = program.filter(|name| settings.agents.contains_key(*name));
    known.unwrap_or(COMMAND).to_owned()
}

/// Whether a session that is starting is one that is being adopted: its pane was there before.
#[must_use]
pub fn is_adoption(session: &Session) -> bool {
    let placed = |run: &Incarnation| run.pane.is_some() && run.is_adopted();
    session.lifecycle == Lifecycle::Starting && session.incarnation.as_ref().is_some_and(placed)
}
