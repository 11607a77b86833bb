//! The fields of each event in its document.

use std::time::Duration;

use protocol::event::LaneEvent;
use protocol::session::SessionLock;
use protocol::{
    Activity, AgentEvent, Event, Holder, Incarnation, Message, MessageReason, MessageState, MessageStatus,
    ServerId, Session, Spec, redact, variants,
};
use serde_json::{Value, json};

use crate::show::json::{Json, known};
use crate::show::time::rfc3339_of_seconds;

/// Returns the fields of an event; `None` if it is never in the journal. A field `kind` is renamed, because
/// `kind` in the document is the kind of the event. Every variant and its fields are named, so that a new one
/// cannot be forgotten.
#[expect(clippy::too_many_lines, reason = "every event is named, so that a new one cannot be forgotten")]
pub(super) fn fields(event: &Event) -> Option<Value> {
    let fields = match event {
        Event::PoolStarted { epoch, build, boot } => json!({"epoch": epoch, "build": build, "boot": boot}),
        Event::SessionCreated(session) => session_document(session),
        Event::SessionStarting { session: _, incarnation, incarnations, restarts } => json!({
            "incarnation": incarnation_document(incarnation), "incarnations": incarnations,
            "restarts": restarts
        }),
        Event::SessionLive { session: _, incarnation, recovered } => {
            json!({"incarnation": incarnation_document(incarnation), "recovered": recovered})
        }
        Event::SessionRenamed { session: _, name } => json!({"name": name}),
        Event::SessionLabelled { session: _, labels } => json!({"labels": redact::labels(labels)}),
        Event::SessionDraining { session: _, reason, exit, missing_since } => json!({
            "reason": reason, "exit": exit.map(Json), "missing_since": missing_since.map(Json)
        }),
        Event::SessionStopped { session: _, reason, exit }
        | Event::SessionLost { session: _, reason, exit }
        | Event::SessionParked { session: _, reason, exit } => {
            json!({"reason": reason, "exit": exit.map(Json)})
        }
        Event::SessionFailed { session: _, reason, detail, exit } => {
            json!({"reason": reason, "detail": detail, "exit": exit.map(Json)})
        }
        Event::SessionDeleted { session: _, reason, mode, tmux_alive } => {
            json!({"reason": reason, "mode": mode, "tmux_alive": tmux_alive})
        }
        Event::SessionPolicyChanged { session: _, policy } => json!(Json(policy)),
        Event::BudgetChanged { session: _, budget } => json!(Json(budget)),
        Event::LimitExceeded { session: _, limit, used, allowed, ended } => {
            json!({"limit": limit, "used": used, "allowed": allowed, "ended": ended})
        }
        Event::LogResumed { session: _ } => json!({}),
        Event::DrainDeadlineSet(_, deadline) => json!({"deadline": Json(deadline.at())}),
        Event::WorkerChanged(change) => json!({"worker": change.worker.name}),
        Event::TagRetired { session: _, tag } => json!({"tag": tag}),
        Event::MessageQueued(message) => message_document(message),
        Event::MessageChanged { session: _, id, status } => with(json!({"id": id}), status_document(status)),
        Event::GeneratorRegistered { session: _, id, kinds, process } => {
            json!({"id": id, "kinds": kinds, "process": process})
        }
        Event::GeneratorEnded { session: _, id, reason } => json!({"id": id, "reason": reason}),
        Event::BreakerChanged { session: _, kind, breaker, turned: _ } => {
            with(json!({"message_kind": kind}), json!(Json(breaker)))
        }
        Event::Lane(LaneEvent::Stuck { session: _, kind, standstill }) => {
            with(json!({"message_kind": kind}), json!(Json(standstill)))
        }
        Event::Lane(LaneEvent::Unstuck { session: _, kind, since, reason }) => {
            json!({"message_kind": kind, "since": Json(since), "reason": reason})
        }
        Event::ReapStarted { session: _, kind, tag, token } => {
            json!({"candidate_kind": kind, "tag": tag, "token": token})
        }
        Event::ReapFinished { session: _, kind, tag, outcome } => {
            json!({"candidate_kind": kind, "tag": tag, "outcome": outcome})
        }
        Event::StaleFound { session: _, rule, action, evidence } => {
            json!({"rule": rule, "action": action, "evidence": evidence})
        }
        Event::LockGranted { session: _, lock } => lock_document(lock),
        Event::LockReleased { session: _, token, reason }
        | Event::LockRevoked { session: _, token, reason } => json!({"token": token, "reason": reason}),
        Event::WatcherConnected { build } => json!({"build": build}),
        Event::WatcherLost { reason } => json!({"reason": reason}),
        Event::TmuxServerChanged { server } => json!({"server": server.map(server_document)}),
        Event::ForeignSeen { tmux, name } | Event::ForeignGone { tmux, name } => {
            json!({"tmux": tmux, "name": name})
        }
        Event::Agent(event) => return agent_fields(event),
        variants!(Event:
            NextSession SessionObserved SessionPlaced SessionAccounted GraceAsked KeysPressed MessageForgotten
            OperationDone OperationBegun OperationForgotten ConversationChanged LockUsedForSend TagForgotten
            ClockRead
        ) => return None,
    };
    Some(fields)
}

fn agent_fields(event: &AgentEvent) -> Option<Value> {
    Some(match event {
        AgentEvent::ActivityChanged { session: _, activity, turned: _ } => {
            let Activity { state, source, since, ask, detail, limited_until, tag: _ } = activity;
            json!({
                "state": state, "source": source, "since": Json(since), "ask": ask, "detail": detail,
                "limited_until": limited_until.map(Json)
            })
        }
        AgentEvent::ThoughtPublished { session: _, thought } => json!({
            "text": thought.text, "state": thought.state, "source": thought.source,
            "rest_state": thought.rest_state, "commit_candidate": thought.commit_candidate,
            "objective_changed_at": thought.objective_changed_at.map(Json), "objective": thought.objective,
            "token_count": known(thought.token_count), "context_limit": known(thought.context_limit),
            "updated_at": Json(thought.updated_at), "place": thought.place
        }),
        // Text, because JSON readers with 53-bit numbers would round it.
        AgentEvent::AskAnswered { session: _, ask, allowed, by } => {
            json!({"ask": ask.to_string(), "allowed": allowed, "by": by})
        }
        AgentEvent::ConversationLost { session: _, conversation } => json!({"conversation": conversation}),
        AgentEvent::AgentNoted { .. } => return None,
    })
}

/// Adds the fields of another object to an object.
fn with(mut object: Value, other: Value) -> Value {
    if let (Value::Object(fields), Value::Object(others)) = (&mut object, other) {
        fields.extend(others);
    }
    object
}

/// The record of a session, with its lock as fields beside the others.
fn session_document(session: &Session) -> Value {
    let record = json!({
        "id": session.id, "name": session.name, "workspace": session.workspace, "dir": session.dir,
        "spec": spec_document(&session.spec), "labels": redact::labels(&session.labels),
        "reason": session.origin, "adopted": session.origin.is_adopted(),
        "lifecycle": session.lifecycle, "lifecycle_reason": session.reason, "detail": session.detail,
        "incarnation": session.incarnation.as_ref().map(incarnation_document),
        "incarnations": session.incarnations, "restarts": session.restarts,
        "exit": session.exit.map(Json), "total_requests": session.total_requests,
        "recovered": session.recovered, "created_at": Json(session.created_at),
        "changed_at": Json(session.changed_at), "last_activity_at": Json(session.last_activity_at),
        "verified_at": session.verified_at.map(Json), "current_command": session.current_command,
        "attached_clients": session.attached_clients, "policy": Json(&session.policy),
        "budget": Json(&session.budget), "conversation": session.conversation, "account": session.account
    });
    with(record, session.lock.as_ref().map_or(Value::Null, lock_document))
}

/// The program, without its environment.
fn spec_document(spec: &Spec) -> Value {
    let Spec {
        agent,
        command,
        cwd,
        env: _,
        size,
        start_args,
        resume_args,
        limits,
        context_limit,
        separate_stderr,
    } = spec;
    json!({
        "agent": agent, "command": redact::command(command), "cwd": cwd, "size": size,
        "start_args": redact::command(start_args), "resume_args": redact::command(resume_args),
        "limits": Json(limits), "context_limit": context_limit, "separate_stderr": separate_stderr
    })
}

fn incarnation_document(incarnation: &Incarnation) -> Value {
    json!({
        "tag": incarnation.tag, "server": incarnation.server.map(server_document),
        "session": incarnation.session, "pane": incarnation.pane, "init": incarnation.init, "agent": incarnation.agent,
        "started_at": Json(incarnation.started_at), "missing_since": incarnation.missing_since.map(Json),
        "dead": incarnation.dead, "cgroup": incarnation.cgroup, "unenforced": incarnation.unenforced,
        "resumed": incarnation.resumed
    })
}

fn server_document(server: ServerId) -> Value {
    json!({"process": server.process, "started_at": rfc3339_of_seconds(server.started_at)})
}

/// A user's lock, without its operation.
fn lock_document(lock: &SessionLock) -> Value {
    let SessionLock { token, purpose, holder, lease_ms, since, op: _, prompts, outer } = lock;
    json!({
        "token": token, "purpose": redact::text(purpose), "holder": holder, "lease_ms": lease_ms,
        "since": Json(since), "prompts": prompts, "outer": outer
    })
}

/// A message that has just been queued, without its operation, digest and history.
fn message_document(message: &Message) -> Value {
    let fields = json!({
        "id": message.id, "ordinal": message.ordinal, "message_kind": message.kind, "key": message.key,
        "origin": message.origin, "cause": message.cause, "priority": message.priority,
        "size": message.size, "enter": message.enter, "max_attempts": message.max_attempts,
        "created_at": Json(message.created_at), "expires_at": message.expires_at.map(Json),
        "in_doubt": message.in_doubt
    });
    with(fields, status_document(&message.status))
}

/// A status, without the operation of the claim.
fn status_document(status: &MessageStatus) -> Value {
    let MessageStatus { state, attempts, token, holder, not_before, changed_at, reason, result } = status;
    let holder = holder.as_ref().map(|holder| {
        let Holder { generator, process, lease_ms, op: _, host: _ } = holder;
        let claimed = *state == MessageState::Claimed;
        let deadline_at = claimed.then(|| Json(changed_at.after(Duration::from_millis(*lease_ms))));
        json!({
            "generator": generator, "process": process, "lease_ms": lease_ms, "deadline_at": deadline_at
        })
    });
    json!({
        "state": state, "attempts": attempts, "token": token, "holder": holder,
        "not_before": not_before.map(Json), "changed_at": Json(changed_at),
        "reason": reason.as_ref().map(ToString::to_string),
        "reason_code": reason.as_ref().and_then(MessageReason::code), "result": result
    })
}
