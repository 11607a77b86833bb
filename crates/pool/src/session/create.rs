//! `new`: a name, a slot and a record. The record is on disk before anything is started.

use std::collections::BTreeMap;

use protocol::policy::{Naming, Policy, RestartPolicy};
use protocol::request::New;
use protocol::session::Conversation;
use protocol::{
    ErrorCode, Event, Incarnation, Limits, Name, OsBytes, Refusal, Session, SessionId, Size, Tag, Timestamp,
};

use crate::pool::Pool;
use crate::refusal::refuse;
use crate::session::input;
use crate::session::launch_job::is_reserved_variable;
use crate::session::naming::{first_free, name_taken, next_number};
use crate::session::resolve::similarity;
use crate::settings::{Agent, EnvFilter, Settings};
use crate::slots::capacity::free;

/// The agent kind of a session with a command and no kind.
pub(crate) const COMMAND: &str = "command";

/// The agent kind of a session with neither.
pub(crate) const SHELL: &str = "shell";

/// Additional inputs to a creation.
#[derive(Debug)]
pub struct CreateInputs<'a> {
    /// A fresh random tag.
    pub tag: Tag,
    pub now: Timestamp,
    /// Now as `YYYYmmdd-HHMMSS`, for a generated name.
    pub stamp: &'a str,
    /// A fresh random id for its agent's conversation.
    pub conversation: &'a str,
    /// Number of waiters for a slot before it.
    pub ahead: usize,
    /// Names of all sessions in tmux, as last listed.
    pub tmux_names: &'a [String],
}

/// The decision on a creation.
#[derive(Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    /// A new session.
    Create(Creation),
    /// A session with this workspace exists, and runs or is about to.
    Existing(SessionId),
    /// A session with this workspace exists and is to be started again.
    Start(SessionId),
    /// The request is valid, but no slot is free.
    Full,
}

/// A decided session.
#[derive(Debug, PartialEq, Eq)]
pub struct Creation {
    /// The id.
    pub session: SessionId,
    /// The events of the intent.
    pub events: Vec<Event>,
}

/// Decides on `new`.
///
/// # Errors
/// Usage; conflict if a name is taken; refused if a limit cannot be enforced.
pub fn create(
    pool: &Pool,
    settings: &Settings,
    asked: &New,
    launch: &CreateInputs<'_>,
) -> Result<CreateOutcome, Refusal> {
    let (name, workspace) = names(pool, settings, asked, launch)?;
    if asked.reuse
        && let Some(existing) = pool.named(workspace.as_str())
    {
        if existing.lifecycle.holds_slot() {
            return Ok(CreateOutcome::Existing(existing.id));
        }
        return Ok(CreateOutcome::Start(existing.id));
    }
    for taken in [&name, &workspace] {
        if let Some(other) = pool.named(taken.as_str()) {
            return refuse(ErrorCode::Conflict, name_taken_hint(taken, other));
        }
    }
    let session = record(pool, settings, asked, launch, (name, workspace))?;
    if free(pool, settings) <= launch.ahead {
        return Ok(CreateOutcome::Full);
    }
    Ok(CreateOutcome::Create(Creation {
        session: session.id,
        events: vec![Event::SessionCreated(Box::new(session))],
    }))
}

/// The refusal if every slot is taken and nothing can be parked.
pub fn pool_full(pool: &Pool, settings: &Settings) -> Refusal {
    let (used, of) = (pool.slots_used(), settings.max_sessions);
    let how = "kill or park a session, wait with --wait-slot, or raise [pool] max_sessions";
    Refusal::refused(format!("the pool is full: {used} of {of} slots are taken; {how}"))
}

fn name_taken_hint(name: &Name, other: &Session) -> String {
    let other_way = if other.lifecycle.is_over() {
        format!(", `poolctl restart {}` starts it", other.name)
    } else {
        "; --reuse takes it as it is".to_owned()
    };
    format!("{}{other_way}", name_taken(name, other))
}

fn names(
    pool: &Pool,
    settings: &Settings,
    asked: &New,
    launch: &CreateInputs<'_>,
) -> Result<(Name, Name), Refusal> {
    let workspace = asked.workspace.as_deref().map(input::check_name).transpose()?;
    let name = match (&asked.name, &workspace) {
        (Some(name), _) => input::check_name(name.trim())?,
        (None, Some(workspace)) => workspace.clone(),
        (None, None) => generated_name(pool, settings, asked, launch)?,
    };
    let workspace = workspace.unwrap_or_else(|| name.clone());
    Ok((name, workspace))
}

fn generated_name(
    pool: &Pool,
    settings: &Settings,
    asked: &New,
    launch: &CreateInputs<'_>,
) -> Result<Name, Refusal> {
    match settings.naming {
        Naming::Numeric => next_number(pool, launch.tmux_names),
        Naming::Timestamp => {
            let kind = agent_kind(asked);
            // The name begins with it: a mistyped kind is refused as such, not as a bad name.
            agent(settings, kind)?;
            let base = format!("{kind}-{}", launch.stamp);
            input::check_name(&first_free(pool, &base, launch.tmux_names))
        }
    }
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
    launch: &CreateInputs<'_>,
    names: (Name, Name),
) -> Result<Session, Refusal> {
    let id = SessionId(pool.next_session());
    let dir = settings.sessions_dir.join(id.to_string());
    let kind = agent_kind(asked);
    let agent = agent(settings, kind)?;
    let cwd = asked.cwd.as_ref().or(asked.caller_cwd.as_ref()).cloned();
    let cwd = cwd.unwrap_or_else(|| dir.join("work").into());
    input::check_directory(&cwd)?;
    input::check_labels(&asked.labels)?;
    input::check_environment(&asked.env)?;
    let env = environment(&settings.env, &asked.caller_env, &agent.env, &asked.env);
    input::check_environment(&env)?;
    let command = command(asked, &agent, &env);
    input::check_command(&command)?;
    input::check_launch_size(&command, &env)?;
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
    let spec = protocol::Spec {
        agent,
        command,
        cwd,
        env,
        size,
        start_args,
        resume_args,
        limits,
        context_limit,
        separate_stderr: asked.separate_stderr,
    };
    let incarnation = Incarnation::intended(launch.tag, launch.now);
    let session = Session::intended(id, names, dir.into(), spec, incarnation);
    Ok(Session { labels: asked.labels.clone(), policy, conversation, ..session })
}

/// The limits. Those that only a control group can enforce are refused without one.
fn limits(settings: &Settings, asked: &New, agent: &Agent) -> Result<Limits, Refusal> {
    let limits = asked.limits.clone().or(&agent.limits);
    let bounds = settings.enforceable;
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
            "an ephemeral session is removed at its end: it cannot have a restart policy",
        );
    }
    input::check_reap_actions(&asked.reap)?;
    let parks = asked.idle_timeout_ms.is_some_and(|ms| ms != u64::MAX);
    if parks && agent.resume_args.is_empty() && !agent.parkable {
        let kind = agent_kind(asked);
        let why = format!(
            "{kind} cannot resume its conversation, so it is never parked automatically and takes no idle time-out; \
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
    let near = known.iter().find(|known| similarity(known, kind) >= 0.8);
    let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    let why = format!("no agent kind {kind:?} in the configuration; there are {}{hint}", known.join(", "));
    refuse(ErrorCode::Usage, why)
}

/// The environment: the caller's, overridden by the agent's, overridden by the request's.
pub(crate) fn environment(
    passing: &EnvFilter,
    caller_env: &[(OsBytes, OsBytes)],
    agent_env: &BTreeMap<String, String>,
    asked_env: &[(OsBytes, OsBytes)],
) -> Vec<(OsBytes, OsBytes)> {
    let mut env: BTreeMap<OsBytes, OsBytes> = BTreeMap::new();
    env.extend(caller_env.iter().filter(|(name, _)| passing.passes(&name.0)).cloned());
    env.extend(agent_env.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())));
    env.extend(asked_env.iter().cloned());
    env.retain(|key, _| !is_reserved_variable(key));
    env.into_iter().collect()
}

/// The command: the request's, else the agent's, else the caller's shell.
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

/// Returns a size that a terminal may have.
///
/// # Errors
/// Usage.
pub fn checked_size(size: Size) -> Result<Size, Refusal> {
    if size.is_valid() {
        return Ok(size);
    }
    refuse(ErrorCode::Usage, "a terminal has 1 to 10000 columns and rows")
}
