//! The records of the pool's workers: hidden sessions, made from the configuration or by `worker add`.

use std::collections::BTreeMap;
use std::path::Path;

use protocol::policy::{Policy, RestartPolicy};
use protocol::request::AddWorker;
use protocol::session::WorkerChange;
use protocol::worker::{Selection, WorkerQueue, WorkerSpec};
use protocol::{
    ErrorCode, Event, Incarnation, Lifecycle, Name, OsBytes, PROMPT, Refusal, Session, SessionId, Spec, Tag,
    Timestamp, bounds,
};

use crate::pool::Pool;
use crate::queue::send::check_kind;
use crate::refusal::refuse;
use crate::session::create::COMMAND;
use crate::session::input;
use crate::session::launch_job::is_reserved_variable;
use crate::session::resolve::resolve;
use crate::settings::{Settings, WorkerSettings};

/// Most handlers of one `poolctl work`.
const CONCURRENCY_MAX: u32 = 1024;

/// Checks what the configuration and `worker add` have in common.
pub fn check(worker: &WorkerSpec) -> Result<(), Refusal> {
    let name = &worker.name;
    Name::of_worker(name).map_err(|why| {
        Refusal::usage(format!(
                "bad name of a worker {name:?}: {why}; the rules are those of session names, with at most 32 characters"
            ),
        )
    })?;
    check_kinds(&worker.kinds)?;
    input::check_command(&worker.command)?;
    if worker.concurrency == 0 || worker.session_concurrency == 0 || worker.fallback_after == 0 {
        return refuse(ErrorCode::Usage, "concurrency and the attempts before a fallback are at least 1");
    }
    bounds::check_lease(worker.lease_ms)?;
    if worker.idle_end_ms == 0 || worker.timeout_ms == Some(0) {
        return refuse(ErrorCode::Usage, "the times of a worker are above 0");
    }
    if worker.fallback.contains(name) {
        return refuse(ErrorCode::Usage, format!("worker {name} cannot be its own fallback"));
    }
    Ok(())
}

/// Checks the kinds of messages that a worker takes.
pub fn check_kinds(kinds: &[String]) -> Result<(), Refusal> {
    kinds.iter().try_for_each(|kind| check_kind(kind))?;
    if kinds.iter().any(|kind| kind == PROMPT) {
        return refuse(ErrorCode::Usage, "a worker works no prompts: they are typed into the session's pane");
    }
    Ok(())
}

/// Brings the records in line with the configuration. Those of an earlier one are marked as removed.
#[must_use]
pub fn configure(pool: &Pool, settings: &Settings, poolctl: &Path, now: Timestamp) -> Vec<Event> {
    let mut events = Vec::new();
    let mut next = pool.next_session();
    for (name, wanted) in &settings.workers {
        match pool.worker(name) {
            Some(session) => {
                let dir = session.dir.as_path();
                events.extend(changed(
                    session,
                    wanted.spec.clone(),
                    host_spec(settings, poolctl, wanted, dir),
                    wanted.max_restarts,
                ));
            }
            None => {
                let made = record(settings, poolctl, wanted, (SessionId(next), now));
                events.extend(made.map(|session| Event::SessionCreated(Box::new(session))));
                next += 1;
            }
        }
    }
    for (session, worker) in pool.workers().filter(|(_, worker)| !settings.workers.contains_key(&worker.name))
    {
        // The program of one that was added is this build's.
        let command = host_command(poolctl, worker);
        let spec = Spec { command, ..session.spec.clone() };
        let worker = WorkerSpec { removed: worker.configured, ..worker.clone() };
        events.extend(changed(session, worker, spec, session.policy.max_restarts));
    }
    events
}

/// True if a worker of the configuration has no record, because its session was removed.
pub fn lacks_record(pool: &Pool, settings: &Settings) -> bool {
    settings.workers.keys().any(|name| pool.worker(name).is_none())
}

fn changed(session: &Session, worker: WorkerSpec, spec: Spec, max_restarts: Option<u32>) -> Option<Event> {
    let same = session.worker.as_deref() == Some(&worker)
        && session.spec == spec
        && session.policy.max_restarts == max_restarts;
    let change = WorkerChange { session: session.id, worker, spec, max_restarts };
    (!same).then(|| Event::WorkerChanged(Box::new(change)))
}

/// Decides on `worker add`.
///
/// # Errors
/// Usage; conflict if there is a worker of this name; not found if a fallback or a named session is not: only a
/// selection by properties is for later ones.
pub fn add(
    pool: &Pool,
    settings: &Settings,
    poolctl: &Path,
    asked: &AddWorker,
    now: Timestamp,
) -> Result<Session, Refusal> {
    let worker = WorkerSpec { configured: false, removed: false, ..asked.worker.clone() };
    check(&worker)?;
    input::check_directory(&asked.cwd)?;
    input::check_environment(&asked.env)?;
    input::check_environment(&asked.caller_env)?;
    let name = &worker.name;
    if let Some(other) = pool.worker(name).and_then(|session| session.worker.as_deref()) {
        let hint = if other.configured && !other.removed {
            format!("it is in the configuration: change [workers.{name}] there, then `poolctl config reload`")
        } else {
            format!("`poolctl worker rm {name}` removes it")
        };
        return refuse(ErrorCode::Conflict, format!("there is a worker {name} already; {hint}"));
    }
    if let WorkerQueue::Sessions(Selection::Named(sessions)) = &worker.sessions {
        sessions.iter().try_for_each(|session| resolve(pool, session).map(drop))?;
    }
    if let Some(unknown) = worker.fallback.iter().find(|name| pool.worker(name).is_none()) {
        return refuse(ErrorCode::NotFound, format!("no worker {unknown:?} to fall back to"));
    }
    let mut env: BTreeMap<OsBytes, OsBytes> =
        asked.caller_env.iter().filter(|(name, _)| settings.env.passes(&name.0)).cloned().collect();
    env.extend(asked.env.iter().cloned());
    let wanted = WorkerSettings {
        spec: worker.clone(),
        cwd: Some(asked.cwd.clone()),
        env: env.into_iter().collect(),
        limits: asked.limits.clone(),
        max_restarts: asked.max_restarts,
    };
    let made = record(settings, poolctl, &wanted, (SessionId(pool.next_session()), now));
    let made = made.ok_or_else(|| Refusal::usage(format!("bad name {name:?}")))?;
    input::check_launch_size(&made.spec.command, &made.spec.env)?;
    Ok(made)
}

/// The record of a worker that has not run yet.
fn record(
    settings: &Settings,
    poolctl: &Path,
    wanted: &WorkerSettings,
    (id, now): (SessionId, Timestamp),
) -> Option<Session> {
    let name = Name::of_worker(&wanted.spec.name).ok()?;
    let dir = settings.sessions_dir.join(id.to_string());
    let spec = host_spec(settings, poolctl, wanted, &dir);
    let never = Incarnation::intended(Tag([0; 16]), now);
    let session = Session::intended(id, (name.clone(), name), dir.into(), spec, never);
    let policy = Policy {
        restart: RestartPolicy::OnFailure,
        max_restarts: wanted.max_restarts,
        pinned: true,
        ..Policy::default()
    };
    let worker = Some(Box::new(wanted.spec.clone()));
    Some(Session {
        lifecycle: Lifecycle::Parked,
        incarnation: None,
        incarnations: 0,
        policy,
        worker,
        ..session
    })
}

/// The program of a worker's host.
fn host_spec(settings: &Settings, poolctl: &Path, wanted: &WorkerSettings, dir: &Path) -> Spec {
    let env = wanted.env.iter().filter(|(key, _)| !is_reserved_variable(key)).cloned().collect();
    Spec {
        agent: COMMAND.to_owned(),
        command: host_command(poolctl, &wanted.spec),
        cwd: wanted.cwd.clone().unwrap_or_else(|| dir.join("work").into()),
        env,
        size: settings.size,
        start_args: Vec::new(),
        resume_args: Vec::new(),
        limits: wanted.limits.clone(),
        separate_stderr: false,
        context_limit: None,
    }
}

fn host_command(poolctl: &Path, worker: &WorkerSpec) -> Vec<OsBytes> {
    let ms = |ms: u64| format!("{ms}ms");
    let mut words: Vec<OsBytes> = vec![poolctl.into(), "work".into(), "--host".into()];
    let mut flag = |name: &str, value: Option<String>| {
        words.extend(value.into_iter().flat_map(|value| [name.into(), value.into()]));
    };
    // The limits on handlers are those of the claims, which change with the configuration.
    flag("--concurrency", Some(CONCURRENCY_MAX.to_string()));
    flag("--idle-end", Some(ms(worker.idle_end_ms)));
    flag("--lease", worker.lease_ms.map(ms));
    flag("--handler-timeout", worker.timeout_ms.map(ms));
    if worker.result {
        words.push("--result".into());
    }
    words.push("--".into());
    words.extend(worker.command.iter().cloned());
    words
}
