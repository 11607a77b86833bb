//! The JSON documents that scripts depend on. Each is a struct, so a key can neither be missing nor
//! slip in; what is not known is null.

mod agent;
mod life;
mod message;

use std::collections::BTreeMap;

use protocol::reply::{QueueCounts, SessionView, Theme};
use protocol::session::Conversation;
use protocol::usage::Account;
use protocol::{Lifecycle, OsBytes, Session, Timestamp, redact};
use serde::Serialize;

pub(crate) use agent::{ActivityJson, ThoughtJson};
pub(crate) use life::{BudgetJson, LimitsJson, LockJson, PolicyJson, UsageJson};
pub(crate) use message::{MessageJson, breaker, with_history};

use crate::show::time::{rfc3339, rfc3339_of_seconds};

/// A session, as `ls`, `show` and `new` print it.
#[derive(Debug, Serialize)]
pub(crate) struct SessionJson<'a> {
    id: String,
    name: &'a str,
    workspace: &'a str,
    dir: &'a OsBytes,
    agent: &'a str,
    command: Vec<OsBytes>,
    cwd: &'a OsBytes,
    labels: BTreeMap<String, String>,
    lifecycle: Lifecycle,
    reason: Option<protocol::Reason>,
    detail: Option<&'a str>,
    #[serde(flatten)]
    activity: ActivityJson<'a>,
    waits: Option<&'a str>,
    confirm: Option<&'a str>,
    status: Option<&'static str>,
    rest_state: &'static str,
    attached_clients: u32,
    current_command: Option<&'a OsBytes>,
    current_directory: Option<&'a OsBytes>,
    processes: Option<Vec<ProcessJson<'a>>>,
    generator: Option<Generator>,
    tmux: Tmux<'a>,
    queue: Queue,
    total_requests: u64,
    active_requests: u64,
    created_at: String,
    last_activity_at: String,
    incarnations: u32,
    restarts: u32,
    exit: Option<ExitJson>,
    account: Option<&'a Account>,
    limits: LimitsJson<'a>,
    unenforced: &'a [String],
    cgroup: Option<&'a OsBytes>,
    restart_policy: &'static str,
    policy: PolicyJson,
    budget: BudgetJson,
    resumed: bool,
    conversation: Option<&'a Conversation>,
    tokens: Option<u64>,
    context_limit: Option<u64>,
    skill: Option<&'a str>,
    parkable: bool,
    slot_wait: Option<u64>,
    lock: Option<LockJson<'a>>,
    usage: Option<UsageJson<'a>>,
    thought: Option<ThoughtJson<'a>>,
    theme: Option<&'a Theme>,
    replay: Option<String>,
    verified_at: Option<String>,
    recovered: bool,
}

#[derive(Debug, Serialize)]
struct ProcessJson<'a> {
    pid: u32,
    start_time: u64,
    parent: u32,
    command: &'a OsBytes,
}

#[derive(Debug, Serialize)]
struct Generator {
    pid: u32,
    start_time: u64,
    kind: &'static str,
    last_activity_at: String,
}

#[derive(Debug, Serialize)]
struct Tmux<'a> {
    socket: &'a OsBytes,
    server_pid: Option<u32>,
    server_started_at: Option<String>,
    session_id: Option<String>,
    pane_id: Option<String>,
}

/// Counts of messages.
#[derive(Debug, Serialize)]
pub(crate) struct Queue {
    queued: u64,
    claimed: u64,
    in_doubt: u64,
    dead: u64,
    oldest_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct ExitJson {
    code: Option<i32>,
    signal: Option<i32>,
    at: String,
}

impl<'a> SessionJson<'a> {
    /// The document of a session at this time.
    #[must_use]
    pub(crate) fn new(view: &'a SessionView, now: Timestamp) -> Self {
        let session = &view.session;
        let incarnation = session.incarnation.as_ref();
        Self {
            id: session.id.to_string(),
            name: session.name.as_str(),
            workspace: session.workspace.as_str(),
            dir: &session.dir,
            agent: &session.spec.agent,
            command: redact::command(&session.spec.command),
            cwd: &session.spec.cwd,
            labels: redact::labels(&session.labels),
            lifecycle: session.lifecycle,
            reason: session.reason,
            detail: session.detail.as_deref(),
            activity: ActivityJson::new(&view.activity),
            waits: view.waits.as_deref(),
            confirm: Some(view.confirm.as_str()).filter(|how| !how.is_empty()),
            status: view.status(),
            rest_state: view.rest_state(now).as_str(),
            attached_clients: session.attached_clients,
            current_command: session.current_command.as_ref(),
            current_directory: view.current_dir.as_ref(),
            processes: None,
            generator: generator(session),
            tmux: tmux(view),
            queue: queue(&view.queue),
            total_requests: session.total_requests,
            active_requests: view.queue.claimed,
            created_at: rfc3339(session.created_at),
            last_activity_at: rfc3339(session.last_activity_at),
            incarnations: session.incarnations,
            restarts: session.restarts,
            exit: session.exit.map(|e| ExitJson { code: e.code, signal: e.signal, at: rfc3339(e.at) }),
            account: session.account.as_ref(),
            limits: LimitsJson::new(&session.spec.limits),
            unenforced: incarnation.map(|i| i.unenforced.as_slice()).unwrap_or_default(),
            cgroup: incarnation.and_then(|i| i.cgroup.as_ref()),
            restart_policy: session.policy.restart.as_str(),
            policy: PolicyJson::new(&session.policy),
            budget: BudgetJson::new(&session.budget),
            resumed: incarnation.is_some_and(|i| i.resumed),
            conversation: session.conversation.as_ref(),
            tokens: view.tokens(),
            context_limit: view.context_limit(),
            skill: view.notes.skill.as_deref(),
            parkable: view.parkable,
            slot_wait: view.slot_wait,
            lock: view.lock.as_ref().map(LockJson::new),
            usage: view.usage.as_ref().map(UsageJson::new),
            thought: view.thought.as_ref().map(ThoughtJson::new),
            theme: view.theme.as_ref(),
            replay: None,
            verified_at: session.verified_at.map(rfc3339),
            recovered: session.recovered,
        }
    }

    /// The same with its processes and the end of what it wrote, which are known where one session is shown.
    #[must_use]
    pub(crate) fn in_full(self, view: &'a SessionView, replay: Option<String>) -> Self {
        let processes = view.processes.iter().map(|found| ProcessJson {
            pid: found.process.pid,
            start_time: found.process.start,
            parent: found.parent,
            command: &found.command,
        });
        Self { processes: Some(processes.collect()), replay, ..self }
    }
}

fn generator(session: &Session) -> Option<Generator> {
    let agent = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot())?.agent?;
    let last_activity_at = rfc3339(session.last_activity_at);
    Some(Generator {
        pid: agent.pid,
        start_time: agent.start,
        kind: protocol::message::PROMPT,
        last_activity_at,
    })
}

fn tmux(view: &SessionView) -> Tmux<'_> {
    let incarnation = view.session.incarnation.as_ref();
    let server = incarnation.and_then(|i| i.server);
    Tmux {
        socket: &view.tmux_socket,
        server_pid: server.map(|s| s.process.pid),
        server_started_at: server.map(|s| rfc3339_of_seconds(s.started_at)),
        session_id: incarnation.and_then(|i| i.session).map(|id| id.to_string()),
        pane_id: incarnation.and_then(|i| i.pane).map(|id| id.to_string()),
    }
}

/// The document of a queue's counts.
#[must_use]
pub(crate) fn queue(counts: &QueueCounts) -> Queue {
    Queue {
        queued: counts.queued,
        claimed: counts.claimed,
        in_doubt: counts.in_doubt,
        dead: counts.dead,
        oldest_at: counts.oldest_at.map(rfc3339),
    }
}

/// The word of a state or reason: what it is in JSON.
#[must_use]
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::ProcId;
    use protocol::reap::{Action, Rule};
    use protocol::reply::{LockView, TreeProcess};
    use protocol::usage::Usage;
    use serde_json::Value;

    use super::*;
    use crate::manual::contract_tests;
    use crate::testing::session;

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    fn sorted(text: &'static str) -> Vec<&'static str> {
        let mut keys: Vec<_> = text.split([',', ' ', '\n']).filter(|key| !key.is_empty()).collect();
        keys.sort_unstable();
        keys
    }

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
        let shown = SessionJson::new(&view, Timestamp(0)).in_full(&view, None);
        let process = serde_json::json!({"pid": 60, "start_time": 6, "parent": 1, "command": "reaper"});
        assert_eq!(serde_json::to_value(shown).unwrap()["processes"], serde_json::json!([process]));
        view.session.incarnation = None;
        view.session.lifecycle = Lifecycle::Stopped;
        let value = serde_json::to_value(SessionJson::new(&view, Timestamp(0))).unwrap();
        contract_tests::check(&value, "JSON of a session");
        assert!(value["generator"].is_null() && value["status"].is_null());
        assert!(!value.to_string().contains("hunter2"), "the environment is secret");
    }

    #[test]
    fn a_life_is_shown_with_all_its_keys() {
        let mut view = session("web");
        let record = &mut view.session;
        record.spec.limits = "mem=2G,cpus=0-1".parse().unwrap();
        record.spec.command = ["claude", "--api-key=hunter2"].map(OsBytes::from).to_vec();
        record.policy.idle_timeout_ms = Some(u64::MAX);
        record.policy.restart = protocol::policy::RestartPolicy::OnFailure;
        record.budget.starts = vec![Timestamp(0), Timestamp(1)];
        record.budget.due_at = Some(Timestamp(1000));
        record.account = Some(Account { user_us: 5, ..Account::default() });
        record.conversation = Some(Conversation { id: "abc".into(), begun: true });
        record.incarnation.as_mut().unwrap().unenforced = vec!["tasks: no control group".into()];
        let usage = Usage { processes: 2, ..Usage::default() };
        (view.usage, view.parkable, view.slot_wait) = (Some(usage), true, Some(3));
        record.policy.reap = [(Rule::Hung, Action::Park)].into();
        view.lock = Some(LockView {
            token: "3.17".parse().unwrap(),
            purpose: "deploy --token=hunter2".into(),
            holder: Some(ProcId { pid: 12, start: 5 }),
            since: Some(Timestamp(0)),
            expires_at: Some(Timestamp(1000)),
            inner: Some("keys".into()),
            waiting: 2,
        });
        let value = serde_json::to_value(SessionJson::new(&view, Timestamp(0))).unwrap();
        let limits = "memory cpu tasks disk open_files core file_size nice cpus best_effort text";
        assert_eq!(keys(&value["limits"]), sorted(limits));
        assert_eq!(value["limits"]["memory"], 2_u64 << 30);
        assert_eq!(
            (&value["limits"]["text"], &value["limits"]["tasks"]),
            (&"mem=2G,cpus=0-1".into(), &Value::Null)
        );
        let policy = "restart max_restarts idle_timeout_ms ttl_ms max_runtime_ms ephemeral pinned reap";
        assert_eq!(keys(&value["policy"]), sorted(policy));
        assert_eq!(value["policy"]["idle_timeout_ms"], "never");
        assert_eq!(value["policy"]["reap"], serde_json::json!({"hung": "park"}));
        let lock = serde_json::json!({
            "token": "3.17", "purpose": "deploy --token=…redacted…", "holder": {"pid": 12, "start_time": 5},
            "since": "1970-01-01T00:00:00.000Z", "expires_at": "1970-01-01T00:00:01.000Z", "inner": "keys",
            "waiting": 2
        });
        assert_eq!(value["lock"], lock);
        assert_eq!(
            (&value["restart_policy"], &value["policy"]["restart"]),
            (&"on-failure".into(), &"on-failure".into())
        );
        let budget = serde_json::json!({
            "restarts_in_window": 2, "failures": 0, "due_at": "1970-01-01T00:00:01.000Z", "exhausted": false
        });
        assert_eq!(value["budget"], budget);
        assert_eq!(keys(&value["account"]), sorted("user_us system_us max_rss_kib oom_kills"));
        assert_eq!(value["conversation"], serde_json::json!({"id": "abc", "begun": true}));
        assert_eq!(value["unenforced"], serde_json::json!(["tasks: no control group"]));
        let usage = "processes memory memory_by cpu_us cpu_percent disk log";
        assert_eq!(keys(&value["usage"]), sorted(usage));
        assert!(value["usage"]["memory_by"].is_null(), "{value}");
        assert_eq!((&value["parkable"], &value["slot_wait"]), (&true.into(), &3.into()));
        assert_eq!(value["command"], serde_json::json!(["claude", "--api-key=…redacted…"]));
    }
}
