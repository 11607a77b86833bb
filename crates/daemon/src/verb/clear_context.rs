//! `reset --soft`: queues the agent's own command for a fresh context. It is typed as any prompt is, once.

use std::sync::Arc;

use protocol::request::{ClearContext, Send};
use protocol::{Lifecycle, OpId, OsBytes, PROMPT, Refusal, Reply, Session, Token};

use crate::decide::{idempotency, queue};
use crate::engine::{Daemon, Turn};

pub(super) async fn clear_context(
    daemon: &Arc<Daemon>,
    (op, lock): (Option<OpId>, Option<Token>),
    asked: ClearContext,
) -> Reply {
    let op = idempotency::check_id(op)?;
    daemon.refresh_disk(0).await;
    let context = Arc::clone(daemon);
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::session::resolve(turn.pool(), &asked.session)?;
        // A repeat is answered, whatever the session does by now.
        let is_repeat = turn.pool().message_by_operation(&op).is_some();
        let text = command(&context, session, is_repeat)?;
        let mut send = Send {
            session: session.id.into(),
            body: OsBytes::from(text),
            kind: PROMPT.to_owned(),
            origin: asked.origin,
            enter: true,
            raw: true,
            ..Send::default()
        };
        let body = queue::body(&mut send)?;
        queue::send_under(turn, &context, (&op, lock), (&send, body))
    };
    daemon.engine.turn(decide).await?
}

/// Returns the command of a session's agent.
///
/// # Errors
/// Refused: the agent has none, or does not run.
fn command(daemon: &Daemon, session: &Session, is_repeat: bool) -> Result<String, Refusal> {
    let (kind, name) = (&session.spec.agent, &session.name);
    let refused = |why: String| {
        let cure = format!("`poolctl reset {name}` begins anew in a new process");
        Err(Refusal::refused(format!("{why}; {cure}")))
    };
    let Some(clear) = daemon.loaded().settings.agent_of(session).clear.clone() else {
        return refused(format!(
            "{name} runs {kind}, which has no command for a fresh context ([agents.{kind}] clear)"
        ));
    };
    if !is_repeat && !matches!(session.lifecycle, Lifecycle::Starting | Lifecycle::Live) {
        return refused(format!("{name} does not run"));
    }
    Ok(clear)
}
