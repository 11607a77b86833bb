//! `worker ls`, and a worker as the other commands print it.

use std::collections::BTreeMap;

use protocol::reply::{ClaimView, GeneratorView};
use protocol::request::List;
use protocol::worker::WorkerSpec;
use protocol::{Lifecycle, Reason, Request, Session, SessionId, SessionView, Timestamp};
use serde_json::{Value, json};

use crate::calls::{self, expected};
use crate::show::out;
use crate::show::table::Table;
use crate::show::time::rfc3339;
use crate::{Context, Error};

pub(super) fn list(context: &Context) -> Result<(), Error> {
    let mut client = context.client();
    let mut views = calls::sessions(&mut client, List { all: true, workers: true, ..List::default() })?;
    views.sort_by(|a, b| a.session.name.cmp(&b.session.name));
    let generators = expected!(client.ask(Request::Generators)?, Generators)?;
    let held = in_work(generators);
    let holds = |session: SessionId| held.get(&session).map(Vec::as_slice).unwrap_or_default();
    let workers = views.iter().filter_map(|view| Some((view, view.session.worker.as_deref()?)));
    if context.style.json {
        return workers
            .map(|(view, worker)| document(view, worker, holds(view.session.id)))
            .try_for_each(|document| out::json(&document));
    }
    if context.style.quiet {
        return workers.map(|(_, worker)| &worker.name).try_for_each(|name| out::line(name));
    }
    let header = ["NAME", "STATE", "KINDS", "SESSIONS", "WAITING", "HANDLERS", "STARTS", "SINCE", "NOTE"];
    let mut table = Table::new(&header);
    for (view, worker) in workers {
        table.row(row(view, worker, holds(view.session.id)));
    }
    out::text(&table.render())
}

/// The claims of the pool's workers, by the session of the host.
fn in_work(generators: Vec<GeneratorView>) -> BTreeMap<SessionId, Vec<ClaimView>> {
    let of = generators.into_iter().filter_map(|view| Some((view.session?, view.holds)));
    let mut held: BTreeMap<SessionId, Vec<ClaimView>> = BTreeMap::new();
    of.for_each(|(session, holds)| held.entry(session).or_default().extend(holds));
    held
}

/// Prints a worker after a change of it.
pub(super) fn print(context: &Context, view: &SessionView) -> Result<(), Error> {
    let Some(worker) = view.session.worker.as_deref() else { return Ok(()) };
    if context.style.json {
        return out::json(&document(view, worker, &[]));
    }
    context.say(&format!("{}  {}", worker.name, state(view, worker)))
}

/// The state of a worker: `waiting` for messages, `running`, `stopped` by a user, `restarting` after a
/// failure while messages wait, or `failed` too often.
fn state(view: &SessionView, worker: &WorkerSpec) -> &'static str {
    let session = &view.session;
    match (session.lifecycle, session.reason) {
        _ if worker.removed => "removed",
        _ if session.budget.exhausted => "failed",
        (Lifecycle::Stopped, Some(Reason::Killed)) => "stopped",
        (Lifecycle::Starting, _) => "starting",
        (Lifecycle::Live, _) => "running",
        (Lifecycle::Draining, _) => "ending",
        _ if session.budget.due_at.is_some() && view.queue.queued > 0 => "restarting",
        _ => "waiting",
    }
}

/// The last failure of a worker's host.
fn note(session: &Session) -> Option<String> {
    let failed = session.budget.exhausted || session.budget.due_at.is_some();
    let exit = session.exit.map(|exit| format!("exit {}", exit.shell_code()));
    session.detail.clone().or(exit).filter(|_| failed)
}

fn row(view: &SessionView, worker: &WorkerSpec, holds: &[ClaimView]) -> [String; 9] {
    let session = &view.session;
    let kinds = if worker.kinds.is_empty() { "all but prompt".to_owned() } else { worker.kinds.join(",") };
    [
        worker.name.clone(),
        state(view, worker).to_owned(),
        kinds,
        worker.sessions.to_string(),
        view.queue.queued.to_string(),
        format!("{}/{}", holds.len(), worker.concurrency),
        session.incarnations.to_string(),
        rfc3339(session.changed_at),
        note(session).unwrap_or_default(),
    ]
}

fn document(view: &SessionView, worker: &WorkerSpec, holds: &[ClaimView]) -> Value {
    let session = &view.session;
    let run = session.running();
    let at = |at: Option<Timestamp>| at.map(rfc3339);
    let holds =
        holds.iter().map(|held| json!({"id": held.held.id, "session": held.session, "kind": held.kind}));
    json!({
        "name": worker.name,
        "state": state(view, worker),
        "configured": worker.configured,
        "session": session.id,
        "command": worker.command,
        "kinds": worker.kinds,
        "sessions": worker.sessions.to_string(),
        "session_concurrency": worker.session_concurrency,
        "concurrency": worker.concurrency,
        "idle_end_ms": worker.idle_end_ms,
        "fallback": worker.fallback,
        "fallback_after": worker.fallback_after,
        "pid": run.and_then(|run| run.agent).map(|agent| agent.pid),
        "starts": session.incarnations,
        "failures": session.budget.failures,
        "next_start_at": at(session.budget.due_at),
        "last_exit": session.exit.map(|exit| exit.shell_code()),
        "since": rfc3339(session.changed_at),
        "queued": view.queue.queued,
        "holds": holds.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use protocol::request::ClaimRef;
    use protocol::worker::{Selection, WorkerQueue};
    use protocol::{MessageId, Token};

    use super::*;
    use crate::manual::contract_tests;
    use crate::testing::session;

    fn worker() -> WorkerSpec {
        WorkerSpec {
            name: "build".into(),
            command: vec!["make".into()],
            kinds: vec!["build".into()],
            sessions: WorkerQueue::Sessions(Selection::all()),
            session_concurrency: 1,
            concurrency: 2,
            idle_end_ms: 60_000,
            lease_ms: None,
            timeout_ms: None,
            result: false,
            fallback: vec!["other".into()],
            fallback_after: 3,
            configured: true,
            removed: false,
        }
    }

    #[test]
    fn a_worker_has_every_key_of_the_contract() {
        let mut view = session("build");
        let held = ClaimRef { id: MessageId(7), token: Token::default() };
        let holds = ClaimView { held, session: SessionId(2), kind: "build".into(), deadline_at: None };
        let value = document(&view, &worker(), &[holds]);
        contract_tests::check(&value, "JSON of a worker");
        assert_eq!(value["holds"], json!([{"id": 7, "session": "sess_2", "kind": "build"}]));
        assert_eq!((&value["state"], &value["pid"]), (&json!("running"), &json!(61)));
        view.session.lifecycle = Lifecycle::Stopped;
        let value = document(&view, &worker(), &[]);
        contract_tests::check(&value, "JSON of a worker");
        assert_eq!((&value["state"], &value["pid"]), (&json!("waiting"), &Value::Null));
    }
}
