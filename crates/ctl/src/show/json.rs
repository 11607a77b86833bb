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
use form::document;
use lifecycle::Process;

document! {
    /// A session, as `ls`, `show` and `new` print it.
    pub(crate) struct SessionJson<'a>(
        view: &'a SessionView, now: Timestamp;
        session = &view.session, incarnation = session.incarnation.as_ref()
    ) {
        id: SessionId = session.id,
        name: &'a Name = &session.name,
        workspace: &'a Name = &session.workspace,
        dir: &'a OsBytes = &session.dir,
        agent: &'a str = &session.spec.agent,
        command: Vec<OsBytes> = redact::command(&session.spec.command),
        cwd: &'a OsBytes = &session.spec.cwd,
        labels: BTreeMap<String, String> = redact::labels(&session.labels),
        lifecycle: Lifecycle = session.lifecycle,
        reason: Option<Reason> = session.reason,
        detail: Option<&'a str> = session.detail.as_deref(),
        #[serde(flatten)]
        activity: Json<&'a Activity> = Json(&view.activity),
        waits: Option<&'a str> = view.waits.as_deref(),
        confirm: Option<&'a str> = Some(view.confirm.as_str()).filter(|how| !how.is_empty()),
        status: Option<&'static str> = view.status(),
        rest_state: RestState = view.rest_state(now),
        attached_clients: u32 = session.attached_clients,
        size: Size = session.spec.size,
        current_command: Option<&'a OsBytes> = session.current_command.as_ref(),
        current_directory: Option<&'a OsBytes> = view.current_dir.as_ref(),
        processes: Option<Vec<TreeProcess<'a>>> = None,
        generator: Option<Generator> = generator(session),
        tmux: Tmux<'a> = tmux(view),
        queue: Json<&'a QueueCounts> = Json(&view.queue),
        total_requests: u64 = session.total_requests,
        active_requests: u64 = view.queue.claimed,
        adopted: bool = session.origin.is_adopted(),
        origin: Origin = session.origin,
        created_at: Json<Timestamp> = Json(session.created_at),
        last_activity_at: Json<Timestamp> = Json(session.last_activity_at),
        incarnations: u32 = session.incarnations,
        restarts: u32 = session.restarts,
        started_at: Option<Json<Timestamp>> = incarnation.map(|i| Json(i.started_at)),
        duration_ms: Option<u64> = run_time(session, now).map(millis),
        exit: Option<Json<Exit>> = session.exit.map(Json),
        account: Option<&'a Account> = session.account.as_ref(),
        limits: Json<&'a Limits> = Json(&session.spec.limits),
        unenforced: &'a [String] = incarnation.map(|i| i.unenforced.as_slice()).unwrap_or_default(),
        cgroup: Option<&'a OsBytes> = incarnation.and_then(|i| i.cgroup.as_ref()),
        restart_policy: &'static str = session.policy.restart.as_str(),
        policy: Json<&'a Policy> = Json(&session.policy),
        budget: Json<&'a Budget> = Json(&session.budget),
        resumed: bool = incarnation.is_some_and(|i| i.resumed),
        conversation: Option<&'a Conversation> = session.conversation.as_ref(),
        tokens: Option<u64> = view.tokens(),
        context_limit: Option<u64> = view.context_limit(),
        skill: Option<&'a str> = view.notes.skill.as_deref(),
        parkable: bool = view.parkable,
        slot_wait: Option<u64> = view.slot_wait,
        drain_deadline: Option<Json<Timestamp>> = session.drain_deadline.map(|deadline| Json(deadline.at())),
        lock: Option<Json<&'a LockView>> = view.lock.as_ref().map(Json),
        usage: Option<Json<&'a Usage>> = view.usage.as_ref().map(Json),
        thought: Option<Json<&'a Thought>> = view.thought.as_ref().map(Json),
        theme: Option<&'a Theme> = view.theme.as_ref(),
        stderr: &'static str = if session.spec.separate_stderr { "separate" } else { "terminal" },
        errors: Option<Json<&'a ErrorLines>> = None,
        replay: Option<String> = view.replay.clone(),
        transport_health: Json<&'a TransportHealth> = Json(&view.transport_health),
        plan: Option<&'a str> = None,
        files: Option<&'a [String]> = None,
        verified_at: Option<Json<Timestamp>> = session.verified_at.map(Json),
        recovered: bool = session.recovered,
    }
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
