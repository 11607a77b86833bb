//! `adopt`: a tmux session that the pool did not create becomes one of its own. Its record is on disk before
//! its pane is marked.

use std::collections::BTreeMap;

use protocol::session::{DeleteMode, Origin};
use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{
    ErrorCode, Event, Incarnation, Lifecycle, Limits, Name, OsBytes, PaneId, Reason, Refusal, ServerId,
    Session, SessionId, Size, Spec, Tag, Timestamp, TmuxSessionId,
};

use crate::pool::Pool;
use crate::refusal::refuse;
use crate::session::create::{COMMAND, CreateInputs, Creation, SHELL, environment};
use crate::session::lifecycle::run_ended;
use crate::session::naming::{first_free, name_taken};
use crate::session::{create, input};
use crate::settings::Settings;
use crate::slots::capacity::free;

/// A pane that can be adopted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignPane {
    /// The server of the pane.
    pub server: ServerId,
    /// The id of the pane.
    pub id: PaneId,
    /// The pane, as it was seen.
    pub pane: TmuxPane,
    /// The name of the pane's tmux session.
    pub name: String,
    /// The time of the creation of the pane's tmux session.
    pub created_at: Timestamp,
}

/// The pane or session that a target names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdoptTarget {
    /// A session of the pool, or one that becomes so: its adoption is under way.
    Ours(SessionId),
    /// A pane that can be adopted.
    Foreign(Box<ForeignPane>),
}

/// The process in a pane to adopt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignProgram {
    /// The program and arguments.
    pub argv: Vec<OsBytes>,
    /// The working directory.
    pub cwd: OsBytes,
    /// The environment that it was started with, as far as it is known.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// The time of the last activity in its tmux session, or of the last output in its window, if tmux told.
    pub active_at: Option<Timestamp>,
}

/// The origin of a session whose pane is adopted. `started_at` is the time of the start of `poold`, for an
/// adoption that nobody requested.
pub fn adoption_origin(adoptee: &ForeignPane, started_at: Option<Timestamp>) -> Origin {
    match started_at {
        Some(started) if adoptee.created_at <= started => Origin::StartupDiscovery,
        _ => Origin::Adopted,
    }
}

/// Finds the pane with this id (`%3`), or the only pane of the tmux session with this id (`$3`) or exact
/// name.
///
/// # Errors
/// Not found; conflict if there are several panes; refused if the program has ended; unavailable if no server
/// answers.
pub fn adopt_target(pool: &Pool, state: &TmuxState, target: &str) -> Result<AdoptTarget, Refusal> {
    let Server::Up(server) = state.server else {
        return refuse(ErrorCode::Unavailable, "no tmux server answers at the pool's tmux socket");
    };
    let id = pane_meant(state, target)?;
    let missing = || Refusal::not_found(format!("no pane {id} in this tmux server"));
    let pane = state.panes.get(&id).ok_or_else(missing)?.clone();
    let tagged = pane.tag.and_then(|tag| pool.tagged(tag)).map(|session| session.id);
    if let Some(session) = tagged.or_else(|| adopting_session(pool, server, id)) {
        return Ok(AdoptTarget::Ours(session));
    }
    if pane.tag.is_some() {
        return refuse(
            ErrorCode::Conflict,
            format!(
                "{id} has the mark of another pool, or of an ended session; if none has it any more, as after the loss \
                 of a database, `tmux set-option -pu -t {id} @pool_id` in its server removes it, and \
                 `adopt --replace-pipe` takes it in"
            ),
        );
    }
    if pane.is_over() || pane.process.is_none() {
        return refuse(ErrorCode::Refused, format!("the program in {id} has ended"));
    }
    let session = state.sessions.get(&pane.session);
    let name = session.map(|s| s.name.clone()).unwrap_or_default();
    let created_at = Timestamp(session.map_or(0, |s| s.created_at.saturating_mul(1000)));
    Ok(AdoptTarget::Foreign(Box::new(ForeignPane { server, id, pane, name, created_at })))
}

/// The session that an adoption of this pane makes, while it is under way.
fn adopting_session(pool: &Pool, server: ServerId, pane: PaneId) -> Option<SessionId> {
    let is_its = |run: &Incarnation| run.pane == Some(pane) && run.server == Some(server);
    let adopts = |s: &&Session| is_being_adopted(s) && s.incarnation.as_ref().is_some_and(is_its);
    pool.sessions().find(adopts).map(|s| s.id)
}

fn pane_meant(state: &TmuxState, target: &str) -> Result<PaneId, Refusal> {
    if let Ok(pane) = target.parse::<PaneId>() {
        return Ok(pane);
    }
    let by_id = target.parse::<TmuxSessionId>().ok().filter(|id| state.sessions.contains_key(id));
    let name = target.strip_prefix('=').unwrap_or(target);
    let by_name = || state.sessions.iter().find(|(_, session)| session.name == name).map(|(id, _)| *id);
    let Some(session) = by_id.or_else(by_name) else {
        return refuse(ErrorCode::NotFound, no_tmux_session(state, target));
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

fn no_tmux_session(state: &TmuxState, target: &str) -> String {
    let shown: String = target.chars().take(80).collect();
    let names: Vec<&str> = state.sessions.values().map(|s| s.name.as_str()).take(8).collect();
    let there =
        if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
    format!("no session {shown:?} in this tmux server; {there}")
}

/// Decides on `adopt`.
///
/// # Errors
/// Usage; conflict if the workspace is taken; refused without a free slot.
pub fn adopt(
    pool: &Pool,
    settings: &Settings,
    adoptee: &ForeignPane,
    (program, workspace, origin): (ForeignProgram, Option<&str>, Origin),
    launch: &CreateInputs<'_>,
) -> Result<Creation, Refusal> {
    let workspace = workspace.map(input::check_name).transpose()?;
    input::check_launch_size(&program.argv, &[])?;
    input::check_directory(&program.cwd)?;
    if let Some(wanted) = &workspace
        && let Some(other) = pool.named(wanted.as_str())
    {
        return refuse(ErrorCode::Conflict, name_taken(wanted, other));
    }
    if free(pool, settings) <= launch.ahead {
        return Err(create::pool_full(pool, settings));
    }
    let name = free_name(pool, &adoptee.name, launch.tmux_names)?;
    let workspace = workspace.unwrap_or_else(|| name.clone());
    let record = record(pool, settings, (adoptee, program), (name, workspace), launch);
    let session = Session { origin, ..record };
    Ok(Creation { session: session.id, events: vec![Event::SessionCreated(Box::new(session))] })
}

/// Returns a free valid name, as close to the tmux session's name as possible. The names of other sessions in tmux are
/// not free, so that no name means two sessions.
fn free_name(pool: &Pool, shown: &str, tmux_names: &[String]) -> Result<Name, Refusal> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let lower = shown.to_lowercase();
    let clean: String = lower.chars().map(|c| if allowed(c) { c } else { '-' }).take(48).collect();
    let clean = clean.trim_matches(['-', '_']);
    let base = if clean.parse::<Name>().is_ok() { clean.to_owned() } else { format!("tmux-{clean}") };
    let others: Vec<String> = tmux_names.iter().filter(|name| *name != shown).cloned().collect();
    input::check_name(&first_free(pool, base.trim_end_matches('-'), &others))
}

fn record(
    pool: &Pool,
    settings: &Settings,
    (adoptee, program): (&ForeignPane, ForeignProgram),
    names: (Name, Name),
    launch: &CreateInputs<'_>,
) -> Session {
    let id = SessionId(pool.next_session());
    // An unknown time, or one ahead of the pool's clock, counts as now.
    let past = |at: Timestamp| if at.0 == 0 { launch.now } else { at.min(launch.now) };
    let created_at = past(adoptee.created_at);
    let last_activity_at = past(program.active_at.unwrap_or(created_at)).max(created_at);
    let pane = &adoptee.pane;
    let command = without_dash(program.argv);
    let agent = agent_kind(settings, &command);
    let variables = settings.agents.get(&agent).map(|agent| &agent.env);
    let env = environment(&settings.env, &program.env, variables.unwrap_or(&BTreeMap::new()), &[]);
    // An environment that is too large, or that no program can be started with, is not recorded. A later start of the
    // session goes without it.
    let fits = input::check_launch_size(&command, &env).and_then(|()| input::check_environment(&env));
    let env = if fits.is_ok() { env } else { Vec::new() };
    let incarnation = Incarnation {
        server: Some(adoptee.server),
        session: Some(pane.session),
        pane: Some(adoptee.id),
        init: pane.process,
        agent: pane.process,
        ..Incarnation::intended(launch.tag, launch.now)
    };
    let spec = Spec {
        agent,
        command,
        cwd: program.cwd,
        env,
        size: Size { cols: pane.width.max(1), rows: pane.height.max(1) },
        start_args: Vec::new(),
        resume_args: Vec::new(),
        limits: Limits::default(),
        context_limit: None,
        separate_stderr: false,
    };
    let dir = settings.sessions_dir.join(id.to_string()).into();
    let current_command = pane.current_command.clone();
    let intended = Session::intended(id, names, dir, spec, incarnation);
    Session { current_command, created_at, last_activity_at, ..intended }
}

/// The command by which a program is started again. Argument zero of a login shell is its name behind a dash,
/// which is no file.
fn without_dash(mut argv: Vec<OsBytes>) -> Vec<OsBytes> {
    let shell = argv.first().and_then(|name| name.0.strip_prefix(b"-")).map(<[u8]>::to_vec);
    if let Some(shell) = shell.filter(|shell| !shell.is_empty()) {
        argv.splice(..1, [OsBytes(shell), OsBytes(b"-l".to_vec())]);
    }
    argv
}

/// Programs that are shells where they run without a script.
const SHELLS: [&str; 10] = ["ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"];

/// The agent kind with the program's name; `shell` for a shell with options alone; else `command`.
fn agent_kind(settings: &Settings, argv: &[OsBytes]) -> String {
    let Some((program, args)) = argv.split_first() else { return COMMAND.to_owned() };
    let name = program.as_path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let kind = match name {
        name if settings.agents.contains_key(name) => name,
        name if SHELLS.contains(&name) && reads_terminal(args) => SHELL,
        _ => COMMAND,
    };
    kind.to_owned()
}

/// Options of shells that are followed by a word of their own.
const WITH_WORD: [&[u8]; 6] = [b"-o", b"+o", b"-O", b"+O", b"--rcfile", b"--init-file"];

/// True if a shell with these arguments runs neither a script nor a command that is given to it.
fn reads_terminal(args: &[OsBytes]) -> bool {
    let mut args = args.iter().map(|arg| arg.0.as_slice());
    while let Some(arg) = args.next() {
        let is_option = matches!(arg.first(), Some(b'-' | b'+'));
        let runs_command = match arg {
            [b'-', b'-', long @ ..] => long.starts_with(b"command"),
            short => short.contains(&b'c'),
        };
        if !is_option || runs_command {
            return false;
        }
        if WITH_WORD.contains(&arg) {
            args.next();
        }
    }
    true
}

/// Ends an adoption that certainly failed. The pane stays as it is, and its tag is not retired, because panes with
/// retired tags are removed. The record is deleted, unless messages were sent to it meanwhile, which wait for a
/// restart. A record that stays gets an incarnation with this tag that never ran, so that no later action on the
/// session's last incarnation touches the person's pane.
#[must_use]
pub fn abandon_adoption(pool: &Pool, id: SessionId, (tag, now): (Tag, Timestamp), why: &str) -> Vec<Event> {
    let Some(session) = pool.session(id).filter(|session| session.lifecycle.holds_slot()) else {
        return Vec::new();
    };
    let reason = Reason::TmuxFailed;
    if pool.pending_messages_of(id).next().is_none() && pool.finished_messages_of(id).next().is_none() {
        let mode = DeleteMode::Detach;
        return vec![Event::SessionDeleted { session: id, reason, mode, tmux_alive: true }];
    }
    let incarnation = Incarnation::intended(tag, now);
    let (incarnations, restarts) = (session.incarnations, session.restarts);
    let end = match session.reason.filter(|_| session.lifecycle == Lifecycle::Draining) {
        Some(asked) => run_ended(id, asked, None),
        None => {
            let detail = format!("its pane was not adopted: {why}");
            Event::SessionFailed { session: id, reason, detail, exit: None }
        }
    };
    vec![Event::SessionStarting { session: id, incarnation, incarnations, restarts }, end]
}

/// True if a starting session is being adopted: its pane was there before.
pub fn is_being_adopted(session: &Session) -> bool {
    let placed = |run: &Incarnation| run.pane.is_some() && run.is_adopted();
    session.lifecycle == Lifecycle::Starting && session.incarnation.as_ref().is_some_and(placed)
}
