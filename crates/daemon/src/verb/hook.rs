//! `hook`: takes in the report of an agent's hook within one turn, and answers once it is on disk. A
//! permission request is answered once it is decided.

use std::sync::Arc;
use std::time::Duration;

use protocol::hook::{Decision, Hook, HookEvent};
use protocol::{Refusal, Reply, Response};
use tokio::time::{sleep, timeout};

use crate::decide::asks::{AwaitedDecision, stop_waiting};
use crate::decide::hook::take_in;
use crate::decide::hook_order::{self, is_typing_undecided};
use crate::engine::{Daemon, Turn};
use crate::sense::{aider_notification, hook_spool};

/// Time that a report waits for the ones before it: a hook that cannot connect spools its report soon after.
const EARLIER_LIMIT: Duration = Duration::from_millis(150);

/// Answers a hook's report: with the decision on a permission request, or with none if it is left to the
/// terminal.
pub(super) async fn hook(daemon: &Arc<Daemon>, hook: Box<Hook>) -> Reply {
    if aider_notification::is_notification(&hook) {
        aider_notification::resolve_in_background(daemon, *hook);
        return Ok(Response::Done);
    }
    // Reports may queue messages for workers.
    daemon.refresh_disk(0).await;
    let context = Arc::clone(daemon);
    let take_unless_early = move |turn: &mut Turn<'_>| {
        if hook_order::needs_spool_first(turn, &hook) {
            Err(hook)
        } else {
            Ok(take_in(turn, &context, *hook))
        }
    };
    let awaited = match daemon.engine.turn(take_unless_early).await? {
        Ok(asked) => asked,
        Err(hook) => {
            take_in_earlier(daemon, &hook).await?;
            let context = Arc::clone(daemon);
            daemon.engine.turn(move |turn| take_in(turn, &context, *hook)).await?
        }
    };
    match awaited {
        Some(awaited) => Ok(decision(daemon, awaited).await?.map_or(Response::Done, Response::Decided)),
        None => Ok(Response::Done),
    }
}

/// Waits for the decision, at most as long as the hook does. A hook that suppresses the agent's own dialog is
/// left to the terminal as soon as a client is attached.
///
/// # Errors
/// The daemon stops: the hook asks the next one.
async fn decision(daemon: &Arc<Daemon>, awaited: AwaitedDecision) -> Result<Option<Decision>, Refusal> {
    let AwaitedDecision { session, ask, mut decision, limit, hides_dialog } = awaited;
    // Once this hook waits no longer, the request can only be answered at the terminal.
    let _wait = daemon.engine.on_drop(move |turn| {
        stop_waiting(turn, session, ask);
    });
    let attached = move |turn: &mut Turn<'_>| {
        turn.pool().session(session).is_none_or(|s| s.attached_clients > 0).then_some(())
    };
    let attention = async {
        if hides_dialog {
            drop(daemon.engine.wait_on(session, None, attached).await);
        } else {
            std::future::pending::<()>().await;
        }
    };
    let mut is_left = false;
    tokio::select! {
        biased;
        decision = &mut decision => match decision {
            Ok(decision) => return Ok(Some(decision)),
            Err(_) => is_left = true,
        },
        () = sleep(limit) => {}
        () = attention => {}
    }
    // Fails if the daemon stops.
    let was_waiting = daemon.engine.turn(move |turn| stop_waiting(turn, session, ask)).await?;
    // Otherwise the request was answered before this turn.
    Ok(if is_left || was_waiting { None } else { decision.await.ok() })
}

/// Takes in the spooled reports that come before this one.
///
/// # Errors
/// Timeout: it is still undecided whether the session's prompt was typed, so no report of it may be taken in.
async fn take_in_earlier(daemon: &Arc<Daemon>, hook: &Hook) -> Result<(), Refusal> {
    let session = hook.session;
    let limit = match hook.signal {
        HookEvent::Permission { wait_ms, .. } => EARLIER_LIMIT.max(Duration::from_millis(wait_ms / 2)),
        _ => EARLIER_LIMIT,
    };
    let decided = move |turn: &mut Turn<'_>| (!is_typing_undecided(turn, session)).then_some(());
    daemon.engine.wait_on(session, Some(limit), decided).await?;
    // A disk that hangs must not delay the report for longer.
    timeout(limit, hook_spool::read_of(daemon, &[session])).await.ok();
    Ok(())
}
