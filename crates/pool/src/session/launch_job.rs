//! The job of an incarnation: the program with its environment and limits, derived from the session's record.

use std::collections::BTreeMap;
use std::path::Path;

use agents::wiring::Wiring;
use protocol::hook::SPOOL_DIR;
use protocol::job::{JOB_VERSION, Job};
use protocol::{Incarnation, OsBytes, Paths, Session};

use crate::settings::Settings;

/// Time between TERM and KILL for processes that a program left behind, in milliseconds.
pub(crate) const LEFTOVER_GRACE_MS: u64 = 2000;

/// Additional inputs to a job.
#[derive(Debug, Clone, Copy)]
pub struct LaunchInputs<'a> {
    /// The pool's paths.
    pub paths: &'a Paths,
    /// The session's directory of temporary files, with a path short enough for sockets.
    pub tmp: &'a Path,
    /// The wiring of its agent's hooks.
    pub wiring: Option<&'a Wiring>,
}

/// Makes the job of an incarnation.
pub fn launch_job(
    session: &Session,
    run: &Incarnation,
    settings: &Settings,
    places: LaunchInputs<'_>,
) -> Job {
    let see_tmux = settings.agent_of(session).see_tmux;
    Job {
        version: JOB_VERSION,
        session: session.id,
        tag: run.tag,
        argv: argv(session, run, places.wiring),
        cwd: session.spec.cwd.clone(),
        env: environment(session, run, see_tmux, places),
        see_tmux,
        socket: places.paths.socket.clone().into(),
        grace_ms: LEFTOVER_GRACE_MS,
        umask: settings.umask,
        limits: session.spec.limits.clone(),
        cgroup: run.cgroup.clone(),
        leftovers: settings.agent_of(session).leftovers,
        private: Some(session.dir.clone()),
        stderr: None,
    }
}

/// The placeholder of the conversation's id in an agent's arguments.
const CONVERSATION: &[u8] = b"{conversation}";

/// The program, with the arguments that begin its conversation or resume it.
fn argv(session: &Session, run: &Incarnation, wiring: Option<&Wiring>) -> Vec<OsBytes> {
    let spec = &session.spec;
    let id = session.conversation.as_ref().map_or("", |conversation| conversation.id.as_str());
    let args = if run.resumed { &spec.resume_args } else { &spec.start_args };
    let named = args.iter().map(|word| OsBytes(replaced(&word.0, CONVERSATION, id.as_bytes())));
    let wired = wiring.iter().flat_map(|wiring| wiring.args.iter().cloned());
    spec.command.iter().cloned().chain(wired).chain(named).collect()
}

fn replaced(text: &[u8], what: &[u8], by: &[u8]) -> Vec<u8> {
    match text.windows(what.len()).position(|window| window == what) {
        Some(at) => [&text[..at], by, &replaced(&text[at + what.len()..], what, by)].concat(),
        None => text.to_vec(),
    }
}

/// The whole environment: the record's, then what the pool sets, which nothing overrides.
fn environment(
    session: &Session,
    run: &Incarnation,
    see_tmux: bool,
    LaunchInputs { paths, tmp, wiring }: LaunchInputs<'_>,
) -> Vec<(OsBytes, OsBytes)> {
    let mut env: BTreeMap<OsBytes, OsBytes> = session.spec.env.iter().cloned().collect();
    env.retain(|key, _| !is_reserved_variable(key));
    let dir = session.dir.as_path();
    env.entry("PWD".into()).or_insert_with(|| session.spec.cwd.clone());
    env.entry("TMPDIR".into()).or_insert_with(|| tmp.into());
    if !see_tmux {
        // A tmux command of the agent finds a server of its own here, never the pool's.
        env.insert("TMUX_TMPDIR".into(), tmp.into());
    }
    let ours: [(&str, OsBytes); 3] = [
        ("POOL_SESSION", session.id.to_string().into()),
        ("POOL_INCARNATION", run.tag.to_string().into()),
        ("POOL_WORKSPACE", session.workspace.as_str().into()),
    ];
    env.extend(ours.map(|(key, value)| (key.into(), value)));
    env.extend(paths.variables().map(|(key, value)| (key.into(), value.into())));
    env.insert("POOL_HOOKS".into(), dir.join(SPOOL_DIR).into());
    if let Some(wiring) = wiring {
        for (key, value) in &wiring.env {
            if wiring.overrides {
                env.insert(key.clone(), value.clone());
            } else {
                env.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    env.into_iter().collect()
}

/// True for variables that only the pool, tmux or a service manager sets. They are never passed on.
pub(crate) fn is_reserved_variable(key: &OsBytes) -> bool {
    let key = key.0.as_slice();
    let exact: [&[u8]; 3] = [b"TMUX", b"TMUX_PANE", b"NOTIFY_SOCKET"];
    let prefixes: [&[u8]; 3] = [b"POOL_", b"LISTEN_", b"WATCHDOG_"];
    exact.contains(&key) || prefixes.iter().any(|p| key.starts_with(p))
}
