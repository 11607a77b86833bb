//! Messages for workers that follow from a hook's report, where the configuration enables them: queued in the
//! same commit.

use pool::Agent;
use protocol::hook::{Hook, HookEvent, ToolUse};
use protocol::request::Send;
use protocol::{MessageId, MessageState, OpId, OsBytes, Session, SessionRef};
use serde_json::json;

use crate::decide::queue;
use crate::engine::{Daemon, Turn};

/// Queues the message that follows from a report, if any. A refusal (full queue, kind held back) is only
/// logged, because it must not block the agent.
pub(crate) fn queue_message(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    session: &Session,
    (agent, hook): (&Agent, &Hook),
) {
    let (kind, key, body) = match &hook.signal {
        HookEvent::ToolUsed(used) if agent.observations => {
            let key = used.id.clone().unwrap_or_else(|| format!("{:016x}", hook.id));
            ("observation", format!("tool:{key}"), observation(used, current_prompt(turn, session)))
        }
        HookEvent::TurnOver { said, turn: number } if agent.summaries => {
            let body = json!({ "last_assistant_message": said, "turn": number, "cwd": session.spec.cwd });
            ("summarize", format!("turn:{:016x}", hook.id), body.to_string())
        }
        _ => return,
    };
    let mut send = Send {
        session: SessionRef::from(session.id),
        body: OsBytes::from(body),
        kind: kind.to_owned(),
        key: Some(key.chars().filter(|c| !c.is_control()).take(protocol::message::KEY_MAX / 4).collect()),
        origin: format!("hook:{}", session.id),
        ..Send::default()
    };
    // The corrected time of a repeated report may be another one.
    let stamp = hook.awake.as_ref().map_or(hook.at.0, |awake| awake.ms);
    let op = OpId::Random((u128::from(hook.id) << 64 | u128::from(stamp)).to_be_bytes());
    let sent = queue::body(&mut send).and_then(|body| queue::send(turn, daemon, (&op, None), (&send, body)));
    if let Err(refusal) = sent {
        tracing::warn!(session = %session.id, %refusal, kind, "the message for a hook was not queued");
    }
}

/// Returns the prompt at which the agent works; `None` if a person typed it.
fn current_prompt(turn: &Turn<'_>, session: &Session) -> Option<MessageId> {
    let open = pool::queue::held_prompt(turn.pool(), session.id);
    open.filter(|open| open.state == MessageState::Accepted).map(|open| open.id)
}

fn observation(used: &ToolUse, prompt: Option<MessageId>) -> String {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    json!({
        "tool_name": used.tool,
        "tool_input": value(&used.input),
        "tool_response": value(&used.response),
        "failed": used.failed,
        "prompt": prompt,
        "cwd": used.cwd,
    })
    .to_string()
}
