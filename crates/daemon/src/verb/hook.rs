//! Reports of hooks: taken in within one turn, answered once that is on disk. A request for a permission is answered when it is
//! decided.

use std::sync::Arc;
use std::time::Duration;

use protocol::hook::{Decision, Hook, HookEvent};
use protocol::{Refusal, Reply, Response, SessionId};
use tokio::time::{sleep, timeout};

use crate::decide::asks::{Asked, left};
use crate::decide::hook::take;
use crate::decide::hook_order;
use crate::decide::hook_order::is_undecided;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::sense::{hook_spool, notification};

/// A hook's report, and its answer.
pub(crate) async fn hook(daemon: &Arc<Daemon>, hook: Box<Hook>) -> Reply {
    if notification::is_notification(&hook) {
        notification::look_into(daemon, *hook);
        return Ok(Response::Done);
    }
    let context = Arc::clone(daemon);
    let at_once = move |turn: &mut Turn<'_>| {
        if hook_order::is_early(turn, &hook) { Err(hook) } else { Ok(take(turn, &context, *hook)) }
    };
    let asked = match daemon.engine.turn(at_once).await? {
        Ok(asked) => asked,
        Err(hook) => {
            earlier_first(daemon, &hook).await?;
            let context = Arc::clone(daemon);
            daemon.engine.turn(move |turn| take(turn, &context, *hook)).await?
        }
    };
    match asked {
        Some(asked) => Ok(decided(daemon, asked).await.map_or(Response::Done, Response::Decided)),
        None => Ok(Response::Done),
    }
}

/// Waits for the decision, at most as long as the hook does. Where it keeps the agent from asking at the terminal, it
/// is left to the terminal as soon as somebody is there.
pub(crate) async fn decided(daemon: &Arc<Daemon>, asked: Asked) -> Option<Decision> {
    let Asked { session, ask, mut decision, limit, hides_dialog } = asked;
    let _left = Left { daemon: Arc::clone(daemon), session, ask };
    let attached = move |turn: &mut Turn<'_>| {
        turn.pool().session(session).is_none_or(|s| s.attached_clients > 0).then_some(())
    };
    let somebody = async {
        if hides_dialog {
            drop(daemon.engine.wait_on(session, None, attached).await);
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        decision = &mut decision => return decision.ok(),
        () = sleep(limit) => {}
        () = somebody => {}
    }
    match daemon.engine.turn(move |turn| left(turn, session, ask)).await {
        // Somebody had answered before this turn: that counts.
        Ok(false) => decision.await.ok(),
        _ => None,
    }
}

/// When nobody waits for a decision any more, it can only be answered at the terminal.
pub(crate) struct Left {
    daemon: Arc<Daemon>,
    session: SessionId,
    ask: u64,
}

impl Drop for Left {
    fn drop(&mut self) {
        let (session, ask) = (self.session, self.ask);
        self.daemon.engine.post(move |turn| {
            left(turn, session, ask);
        });
    }
}

/// How long a report waits for what comes before it: its hook leaves it in a file soon after.
pub(crate) const LIMIT: Duration = Duration::from_millis(150);

/// Takes in what goes before it.
///
/// # Errors
/// It takes too long: nothing may be heard of the session yet.
pub(crate) async fn earlier_first(daemon: &Arc<Daemon>, hook: &Hook) -> Result<(), Refusal> {
    let session = hook.session;
    let limit = match hook.signal {
        HookEvent::Permission { wait_ms, .. } => LIMIT.max(Duration::from_millis(wait_ms / 2)),
        _ => LIMIT,
    };
    let decided = move |turn: &mut Turn<'_>| (!is_undecided(turn, session)).then_some(());
    daemon.engine.wait_on(session, Some(limit), decided).await?;
    // A disk that hangs keeps nothing from being heard.
    timeout(limit, hook_spool::read_of(daemon, &[session])).await.ok();
    Ok(())
}
