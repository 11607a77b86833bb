//! `new`: a name, a slot, a record. The record is on disk before anything is done.

use std::collections::BTreeMap;

use protocol::limits::Limits;
use protocol::policy::{Policy, RestartPolicy};
use protocol::request::New;
use protocol::session::Conversation;
use protocol::session::Size;
use protocol::{
    ErrorCode, Event, Incarnation, Lifecycle, Name, OsBytes, Refusal, Session, SessionId, Tag, Timestamp,
};

use super::{refuse, text};
use crate::launch::is_ours;
use crate::pool::Pool;
use crate::settings::{Agent, Naming, Passing, Settings};
use crate::slots;

/// The agent kind of a session that was given a command and no kind.
pub(super) const COMMAND: &str = "command";
/// The agent kind of a session that was given nothing.
const SHELL: &str = "shell";

/// What the shell adds to the request.
#[derive(Debug)]
pub struct Launch<'a> {
    /// A fresh random tag.
    pub tag: Tag,
    /// Now.
    pub now: Timestamp,
    /// Now as `YYYYmmdd-HHMMSS`, for a name.
    pub stamp: &'a str,
    /// A fresh random id for its agent's conversation.
    pub conversation: &'a str,
    /// How many wait for a slot before it.
    pub ahead: usize,
}

/// What an admitted request comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Admitted {
    /// These events, then the session's creation in tmux.
    Create(Made),
    /// There is such a session already, and it runs or is about to.
    Existing(SessionId),
    /// There is such a session already, and it is to be started again.
    Start(SessionId),
    /// All is well, but there is no slot for it.
    Full,
}

/// A decided session.
#[derive(Debug, PartialEq, Eq)]
pub struct Made {
    /// The session.
    pub session: SessionId,
    /// The intent.
    pub events: Vec<Event>,
}

/// Decides on `new`.
///
/// # Errors
/// Usage, conflict (the name is taken), or refused (a limit that cannot be held).
pub fn new(pool: &Pool, settings: &Settings, asked: &New, launch: &Launch<'_>) -> Result<Admitted, Refusal> {
    let (name, workspace) = names(pool, settings, asked, launch)?;
    if asked.reuse
        && let Some(existing) = pool.named(workspace.as_str())
    {
        if existing.lifecycle.holds_slot() {
            return Ok(Admitted::Existing(existing.id));
        }
        return Ok(Admitted::Start(existing.id));
    }
    for taken in [&name, &workspace] {
        if let Some(other) = pool.named(taken.as_str()) {
            return refuse(ErrorCode::Conflict, taken_by(taken, other));
        }
    }
    let session = record(pool, settings, asked, launch, (name, workspace))?;
    if slots::free(pool, settings) <= launch.ahead {
        return Ok(Admitted::Full);
    }
    Ok(Admitted::Create(Made { session: session.id, events: vec![Event::SessionCreated(Box::new(session))] }))
}

/// Every slot is taken, and nothing can be parked.
#[must_use]
pub fn full(pool: &Pool, settings: &Settings) -> Refusal {
    let (used, of) = (pool.slots_used(), settings.max_sessions);
    let how = "kill or park a session, wait with --wait-slot, or raise [pool] max_sessions";
    Refusal::new(ErrorCode::Refused, format!("the pool is full: {used} of {of} slots are taken; {how}"))
}

/// That the name is not free.
pub(super) fn taken(name: &Name, other: &Session) -> String {
    format!("{name} is the name or workspace of {} already", other.id)
}

fn taken_by(name: &Name, other: &Session) -> String {
    let state = match other.lifecycle {
        Lifecycle::Stopped | Lifecycle::Failed | Lifecycle::Lost => {
            format!(
                "; it is not running: `poolctl restart {}` starts it, `poolctl rm {0}` removes it",
                other.name
            )
        }
        _ => "; --reuse takes it as it is".to_owned(),
    };
    format!("{}{state}", taken(name, other))
}

fn names(
    pool: &Pool,
    settings: &Settings,
    asked: &New,
    launch: &Launch<'_>,
) -> Result<(Name, Name), Refusal> {
    let workspace = asked.workspace.as_deref().map(text::name).transpose()?;
    let name = match (&asked.name, &workspace) {
        (Some(name), _) => text::name(name.trim())?,
        (None, Some(workspace)) => workspace.clone(),
        (None, None) => made_up(pool, settings, asked, launch)?,
    };
    let workspace = workspace.unwrap_or_else(|| name.clone());
    Ok((name, workspace))
}

fn made_up(pool: &Pool, settings: &Settings, asked: &New, launch: &Launch<'_>) -> Result<Name, Refusal> {
    match settings.naming {
        Naming::Numeric => text::name(&first_free(pool, &next_number(pool).to_string())),
        Naming::Timestamp => {
            let agent = agent_kind(asked);
            let base = format!("{agent}-{}", launch.stamp);
            text::name(&first_free(pool, &base))
        }
    }
}

/// This name, or where it is taken, the same with a number behind.
pub(super) fn first_free(pool: &Pool, base: &str) -> String {
    let free = |name: &String| pool.named(name).is_none();
    let numbered = (2..).map(|n| format!("{base}-{n}"));
    std::iter::once(base.to_owned()).chain(numbered).find(free).unwrap_or_default()
}

/// One more than the highest name that is plain digits.
fn next_number(pool: &Pool) -> u64 {
    let digits = |name: &String| name.bytes().all(|b| b.is_ascii_digit());
    pool.names
        .keys()
        .filter(|name| digits(name))
        .filter_map(|name| name.parse().ok())
        .max()
        .map_or(1, |n: u64| n.saturating_add(1))
}

fn agent_kind(asked: &New) -> &str {
    match &asked.agent {
        Some(agent) => agent,
        None if asked.command.is_empty() => SHELL,
        None => COMMAND,
    }
}

fn record(
    pool: &Pool,
    settings: &Settings,
    asked: &New,
    launch: &Launch<'_>,
    names: (Name, Name),
) -> Result<Session, Refusal> {
    let id = SessionId(pool.next_session());
    let dir = settings.sessions_dir.join(id.to_string());
    let kind = agent_kind(asked);
    let agent = agent(settings, kind)?;
    let cwd = asked.cwd.as_ref().or(asked.caller_cwd.as_ref()).cloned();
    let cwd = cwd.unwrap_or_else(|| dir.join("work").into());
    text::directory(&cwd)?;
    text::labels(&asked.labels)?;
    text::environment(&asked.env)?;
    let env = environment(&settings.env, asked, &agent);
    text::environment(&env)?;
    let command = command(asked, &agent, &env);
    text::command(&command)?;
    text::launch_size(&command, &env)?;
    let size = checked_size(asked.size.unwrap_or(settings.size))?;
    let limits = limits(settings, asked, &agent)?;
    let policy = policy(settings, asked, &agent)?;
    let words = |words: &[String]| words.iter().map(|word| word.as_str().into()).collect();
    let (start_args, resume_args): (Vec<OsBytes>, Vec<OsBytes>) =
        (words(&agent.start_args), words(&agent.resume_args));
    let conversation = Conversation { id: launch.conversation.to_owned(), begun: false };
    let conversation = (!resume_args.is_empty()).then_some(conversation);
    let context_limit = agent.context_limit;
    let agent = kind.to_owned();
    let spec =
        protocol::Spec { agent, command, cwd, env, size, start_args, resume_args, limits, context_limit };
    let incarnation = Incarnation::intended(launch.tag, launch.now);
    let session = Session::intended(id, names, dir.into(), spec, incarnation);
    Ok(Session { labels: asked.labels.clone(), policy, conversation, ..session })
}

/// What bounds it. What can only be bounded by a control group is refused where there is none.
fn limits(settings: &Settings, asked: &New, agent: &Agent) -> Result<Limits, Refusal> {
    let limits = asked.limits.clone().or(&agent.limits);
    let bounds = settings.bounds;
    let missing =
        [("tasks", limits.tasks.is_some() && !bounds.tasks), ("cpu", limits.cpu.is_some() && !bounds.cpu)];
    let missing: Vec<&str> =
        missing.into_iter().filter(|(_, missing)| *missing).map(|(name, _)| name).collect();
    if missing.is_empty() || limits.best_effort {
        return Ok(limits);
    }
    let why = format!(
        "{} cannot be limited here: there is no delegated control group (`poolctl status` says why); \
         `--limits best-effort` starts it without",
        missing.join(" and ")
    );
    refuse(ErrorCode::Refused, why)
}

fn policy(settings: &Settings, asked: &New, agent: &Agent) -> Result<Policy, Refusal> {
    let restart =
        asked.restart.unwrap_or(if asked.ephemeral { RestartPolicy::No } else { settings.restart.policy });
    if asked.ephemeral && restart != RestartPolicy::No {
        return refuse(
            ErrorCode::Usage,
            "what is removed at its end cannot be started again: ephemeral and restart",
        );
    }
    super::text::reap(&asked.reap)?;
    let parks = asked.idle_timeout_ms.is_some_and(|ms| ms != u64::MAX);
    if parks && agent.resume_args.is_empty() && !agent.parkable {
        let kind = agent_kind(asked);
        let why = format!(
            "{kind} cannot take up where it was, so it is never parked by itself: an idle time-out says nothing for it; \
             [agents.{kind}] parkable = true allows it"
        );
        return refuse(ErrorCode::Usage, why);
    }
    Ok(Policy {
        restart,
        max_restarts: asked.max_restarts,
        idle_timeout_ms: asked.idle_timeout_ms,
        ttl_ms: asked.ttl_ms,
        max_runtime_ms: asked.max_runtime_ms.filter(|ms| *ms != u64::MAX),
        ephemeral: asked.ephemeral,
        pinned: asked.pinned,
        reap: asked.reap.clone(),
    })
}

fn agent(settings: &Settings, kind: &str) -> Result<Agent, Refusal> {
    if let Some(agent) = settings.agents.get(kind) {
        return Ok(agent.clone());
    }
    if kind == COMMAND {
        return Ok(Agent::default());
    }
    let known: Vec<&str> = settings.agents.keys().map(String::as_str).collect();
    refuse(
        ErrorCode::Usage,
        format!("no agent kind {kind:?} in the configuration; there are {}", known.join(", ")),
    )
}

/// The caller's, then the agent's, then what the user asked for; later ones win.
fn environment(passing: &Passing, asked: &New, agent: &Agent) -> Vec<(OsBytes, OsBytes)> {
    let mut env: BTreeMap<OsBytes, OsBytes> = BTreeMap::new();
    env.extend(asked.caller_env.iter().filter(|(name, _)| passing.passes(&name.0)).cloned());
    env.extend(agent.env.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())));
    env.extend(asked.env.iter().cloned());
    env.retain(|key, _| !is_ours(key));
    env.into_iter().collect()
}

/// What was asked for, else the agent's, else the caller's shell.
fn command(asked: &New, agent: &Agent, env: &[(OsBytes, OsBytes)]) -> Vec<OsBytes> {
    if !asked.command.is_empty() {
        return asked.command.clone();
    }
    if !agent.command.is_empty() {
        return agent.command.iter().map(|word| word.as_str().into()).collect();
    }
    let shell = env.iter().find(|(key, value)| key.0 == b"SHELL" && value.0.starts_with(b"/"));
    vec![shell.map_or_else(|| "/bin/sh".into(), |(_, value)| value.clone())]
}

fn checked_size(size: Size) -> Result<Size, Refusal> {
    let fits = |n: u16| (1..=10_000).contains(&n);
    if fits(size.cols) && fits(size.rows) {
        return Ok(size);
    }
    refuse(ErrorCode::Usage, "a terminal has 1 to 10000 columns and rows")
}
