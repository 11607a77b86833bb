//! The JSON documents of sessions and messages, which scripts depend on. Each is a struct, so that no key can
//! be missing or slip in. Unknown values are null.

mod agent;
mod form;
mod lifecycle;
mod message;

use std::collections::BTreeMap;

use protocol::policy::{Budget, Policy};
use protocol::reply::{LockView, QueueCounts, Theme, TransportHealth};
use protocol::session::{Conversation, Origin};
use protocol::thought::{RestState, Thought};
use protocol::usage::Account;
use protocol::{
    Activity, Exit, Lifecycle, Limits, Name, OsBytes, PROMPT, PaneId, Reason, Session, SessionId,
    SessionView, Size, Timestamp, TmuxSessionId, Usage, redact,
};
use serde::Serialize;
use serde_json::Value;

pub(crate) use agent::known;
pub(crate) use form::Json;
pub(crate) use message::{MessageJson, with_history};

use crate::error_lines::ErrorLines;
use crate::show::resources::run_time;
use crate::show::time::{millis, rfc3339_of_seconds};
use lifecycle::Process;

/// A session, as `ls`, `show` and `new` print it.
#[derive(Debug, Serialize)]
pub(crate) struct SessionJson<'a> {
    id: SessionId,
    name: &'a Name,
    workspace: &'a Name,
    dir: &'a OsBytes,
    agent: &'a str,
    command: Vec<OsBytes>,
    cwd: &'a OsBytes,
    labels: BTreeMap<String, String>,
    lifecycle: Lifecycle,
    reason: Option<Reason>,
    detail: Option<&'a str>,
    #[serde(flatten)]
    activity: Json<&'a Activity>,
    waits: Option<&'a str>,
    confirm: Option<&'a str>,
    status: Option<&'static str>,
    rest_state: RestState,
    attached_clients: u32,
    size: Size,
    current_command: Option<&'a OsBytes>,
    current_directory: Option<&'a OsBytes>,
    processes: Option<Vec<TreeProcess<'a>>>,
    generator: Option<Generator>,
    tmux: Tmux<'a>,
    queue: Json<&'a QueueCounts>,
    total_requests: u64,
    active_requests: u64,
    adopted: bool,
    origin: Origin,
    created_at: Json<Timestamp>,
    last_activity_at: Json<Timestamp>,
    incarnations: u32,
    restarts: u32,
    started_at: Option<Json<Timestamp>>,
    duration_ms: Option<u64>,
    exit: Option<Json<Exit>>,
    account: Option<&'a Account>,
    limits: Json<&'a Limits>,
    unenforced: &'a [String],
    cgroup: Option<&'a OsBytes>,
    restart_policy: &'static str,
    policy: Json<&'a Policy>,
    budget: Json<&'a Budget>,
    resumed: bool,
    conversation: Option<&'a Conversation>,
    tokens: Option<u64>,
    context_limit: Option<u64>,
    skill: Option<&'a str>,
    parkable: bool,
    slot_wait: Option<u64>,
    drain_deadline: Option<Json<Timestamp>>,
    lock: Option<Json<&'a LockView>>,
    usage: Option<Json<&'a Usage>>,
    thought: Option<Json<&'a Thought>>,
    theme: Option<&'a Theme>,
    stderr: &'static str,
    errors: Option<Json<&'a ErrorLines>>,
    replay: Option<String>,
    transport_health: Json<&'a TransportHealth>,
    plan: Option<&'a str>,
    files: Option<&'a [String]>,
    verified_at: Option<Json<Timestamp>>,
    recovered: bool,
}

#[derive(Debug, Serialize)]
struct TreeProcess<'a> {
    #[serde(flatten)]
    process: Process,
    parent: u32,
    command: &'a OsBytes,
}

#[derive(Debug, Serialize)]
struct Generator {
    #[serde(flatten)]
    process: Process,
    kind: &'static str,
    last_activity_at: Json<Timestamp>,
}

#[derive(Debug, Serialize)]
struct Tmux<'a> {
    socket: &'a OsBytes,
    server_pid: Option<u32>,
    server_started_at: Option<String>,
    session_id: Option<TmuxSessionId>,
    pane_id: Option<PaneId>,
}

impl<'a> SessionJson<'a> {
    /// Creates the document of a session at this time.
    pub(crate) fn new(view: &'a SessionView, now: Timestamp) -> Self {
        let session = &view.session;
        let incarnation = session.incarnation.as_ref();
        Self {
            id: session.id,
            name: &session.name,
            workspace: &session.workspace,
            dir: &session.dir,
            agent: &session.spec.agent,
            command: redact::command(&session.spec.command),
            cwd: &session.spec.cwd,
            labels: redact::labels(&session.labels),
            lifecycle: session.lifecycle,
            reason: session.reason,
            detail: session.detail.as_deref(),
            activity: Json(&view.activity),
            waits: view.waits.as_deref(),
            confirm: Some(view.confirm.as_str()).filter(|how| !how.is_empty()),
            status: view.status(),
            rest_state: view.rest_state(now),
            attached_clients: session.attached_clients,
            size: session.spec.size,
            current_command: session.current_command.as_ref(),
            current_directory: view.current_dir.as_ref(),
            processes: None,
            generator: generator(session),
            tmux: tmux(view),
            queue: Json(&view.queue),
            total_requests: session.total_requests,
            active_requests: view.queue.claimed,
            adopted: session.origin.is_adopted(),
            origin: session.origin,
            created_at: Json(session.created_at),
            last_activity_at: Json(session.last_activity_at),
            incarnations: session.incarnations,
            restarts: session.restarts,
            started_at: incarnation.map(|i| Json(i.started_at)),
            duration_ms: run_time(session, now).map(millis),
            exit: session.exit.map(Json),
            account: session.account.as_ref(),
            limits: Json(&session.spec.limits),
            unenforced: incarnation.map(|i| i.unenforced.as_slice()).unwrap_or_default(),
            cgroup: incarnation.and_then(|i| i.cgroup.as_ref()),
            restart_policy: session.policy.restart.as_str(),
            policy: Json(&session.policy),
            budget: Json(&session.budget),
            resumed: incarnation.is_some_and(|i| i.resumed),
            conversation: session.conversation.as_ref(),
            tokens: view.tokens(),
            context_limit: view.context_limit(),
            skill: view.notes.skill.as_deref(),
            parkable: view.parkable,
            slot_wait: view.slot_wait,
            drain_deadline: session.drain_deadline.map(|deadline| Json(deadline.at())),
            lock: view.lock.as_ref().map(Json),
            usage: view.usage.as_ref().map(Json),
            thought: view.thought.as_ref().map(Json),
            theme: view.theme.as_ref(),
            stderr: if session.spec.separate_stderr { "separate" } else { "terminal" },
            errors: None,
            replay: view.replay.clone(),
            transport_health: Json(&view.transport_health),
            plan: None,
            files: None,
            verified_at: session.verified_at.map(Json),
            recovered: session.recovered,
        }
    }

    /// Adds the processes, the error lines, the end of the output, the plan and the files, which are known only
    /// if a single session is shown.
    #[must_use]
    pub(crate) fn in_full(
        self,
        view: &'a SessionView,
        (errors, replay): (Option<&'a ErrorLines>, Option<String>),
    ) -> Self {
        let processes = view.processes.iter().map(|found| TreeProcess {
            process: found.process.into(),
            parent: found.parent,
            command: &found.command,
        });
        let (plan, files) = (view.plan.as_deref(), Some(view.files.as_slice()));
        let (processes, errors) = (Some(processes.collect()), errors.map(Json));
        Self { processes, errors, replay, plan, files, ..self }
    }
}

fn generator(session: &Session) -> Option<Generator> {
    let agent = session.running()?.agent?;
    let last_activity_at = Json(session.last_activity_at);
    Some(Generator { process: agent.into(), kind: PROMPT, last_activity_at })
}

fn tmux(view: &SessionView) -> Tmux<'_> {
    let incarnation = view.session.incarnation.as_ref();
    let server = incarnation.and_then(|i| i.server);
    Tmux {
        socket: &view.tmux_socket,
        server_pid: server.map(|s| s.process.pid),
        server_started_at: server.map(|s| rfc3339_of_seconds(s.started_at)),
        session_id: incarnation.and_then(|i| i.session),
        pane_id: incarnation.and_then(|i| i.pane),
    }
}

/// Returns the name that a state or a reason has in JSON.
pub(crate) fn json_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::ProcId;
    use protocol::reply::TreeProcess;
    use serde_json::Value;

    use super::*;
    use crate::manual::contract_tests;
    use crate::testing::session;

    #[test]
    fn a_session_has_every_key_of_the_contract() {
        let mut view = session("web");
        let value = serde_json::to_value(SessionJson::new(&view, Timestamp(0))).unwrap();
        contract_tests::check(&value, "JSON of a session");
        assert_eq!(value["id"], "sess_1");
        assert_eq!(value["tmux"]["pane_id"], "%4");
        assert_eq!(value["tmux"]["server_started_at"], "2023-11-14T22:13:20.000Z");
        assert_eq!(value["status"], "idle");
        assert_eq!((&value["current_directory"], &value["processes"]), (&"/tmp/sub".into(), &Value::Null));
        let process = ProcId { pid: 60, start: 6 };
        view.processes = vec![TreeProcess { process, parent: 1, command: "reaper".into() }];
        let shown = SessionJson::new(&view, Timestamp(0)).in_full(&view, (None, None));
        let process = serde_json::json!({"pid": 60, "start_time": 6, "parent": 1, "command": "reaper"});
        assert_eq!(serde_json::to_value(shown).unwrap()["processes"], serde_json::json!([process]));
        view.session.incarnation = None;
        view.session.lifecycle = Lifecycle::Stopped;
        let value = serde_json::to_value(SessionJson::new(&view, Timestamp(0))).unwrap();
        contract_tests::check(&value, "JSON of a session");
        assert!(value["generator"].is_null() && value["status"].is_null());
        assert!(!value.to_string().contains("hunter2"), "the environment is secret");
    }
}
