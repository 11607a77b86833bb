//! The table of requests: how each is answered.

use std::sync::Arc;

use protocol::{Call, ErrorCode, Reply, Request, Response, variants};

use crate::decide::idempotency;
use crate::decide::lock::with_user_lock;
use crate::engine::Daemon;
use crate::sense::tmux_snapshot;
use crate::verb::caller::{Caller, other_role};
use crate::verb::operation::{InterruptedAnswer, OnInterruption, Operation};
use crate::verb::{
    adopt, approve, attach, backup, capture, check, clear, clear_context, compact, config, dismiss, down,
    drain, events, export, generators, hook, inbox, input, keys, kill, label, lock, logs, ls, new, park, pin,
    prune, queue, reap, rename, resize, restart, restore, rm, show, snapshot, stats, status, sync, terminal,
    thought, update, wait, work, worker,
};

/// The answer to a repeat of input that an earlier daemon began to write.
const INPUT_INTERRUPTED: InterruptedAnswer = (
    ErrorCode::Unavailable,
    "the daemon stopped while it did this to the terminal: it may have been done, and is not repeated; look there",
);

/// The answer to a repeat of a reset that an earlier daemon began.
const RESET_INTERRUPTED: InterruptedAnswer = (
    ErrorCode::Unavailable,
    "the daemon stopped, or its client left, while this was done: the session is started again, but its log may not be \
     empty; `poolctl clear` empties it",
);

/// The answer to a repeat of an approval that an earlier daemon began.
const APPROVAL_INTERRUPTED: InterruptedAnswer = (
    ErrorCode::Conflict,
    "the daemon stopped while the answer was given: look at the agent's terminal to see whether it arrived",
);

/// Returns the treatment of a repeat of a request that an earlier daemon began.
fn on_interruption(request: &Request) -> OnInterruption {
    match request {
        variants!(Request: Keys Input Resize) => OnInterruption::Answer(INPUT_INTERRUPTED),
        Request::Approve(_) => OnInterruption::Answer(APPROVAL_INTERRUPTED),
        Request::Restart(asked) if asked.clear => OnInterruption::Answer(RESET_INTERRUPTED),
        // The record does not tell whether the parking was forced. Without force, the daemon's start may have let the
        // session continue.
        variants!(Request: Park Rename) => OnInterruption::Repeat,
        _ => OnInterruption::Outcome,
    }
}

/// Runs a verb as an operation, at most once per operation id.
macro_rules! operate {
    ($operation:expr, $verb:path, $asked:expr) => {
        $operation.run(move |daemon, op| async move { $verb(&daemon, &op, $asked).await })
    };
}

/// Answers a request of a client, or without a caller of a reaper.
///
/// An arm says how: by a read or an operation, and whether it depends on the observed state of tmux, which is
/// [`refreshed`] first.
#[expect(clippy::too_many_lines, reason = "every request is named, so that a new one cannot be forgotten")]
pub(crate) async fn answer(daemon: &Arc<Daemon>, caller: Option<&Caller>, call: Call) -> Reply {
    let Call { id, op, lock, request } = call;
    let caller = caller.ok_or_else(other_role);
    let operation = Operation::new(daemon, (op.clone(), lock), &request, on_interruption(&request));
    match request {
        // Reads.
        Request::Ping => daemon.engine.turn(|_| Ok(Response::Done)).await?,
        Request::Status => refreshed(daemon, status::status(daemon)).await,
        Request::Inbox => refreshed(daemon, inbox::inbox(daemon)).await,
        Request::List(asked) => refreshed(daemon, ls::ls(daemon, asked)).await,
        Request::Snapshot(asked) => refreshed(daemon, snapshot::snapshot(daemon, asked)).await,
        Request::Show(of) => refreshed(daemon, show::show(daemon, of)).await,
        Request::Logs(of) => logs::logs(daemon, of).await,
        Request::Events(asked) => events::events(daemon, asked, caller?.parts(id)).await,
        Request::ShowMessage(message) => queue::show(daemon, message).await,
        Request::Body(message) => queue::body(daemon, message).await,
        Request::ListMessages(of) => queue::list_all(daemon, of, caller?.parts(id)).await,
        Request::Messages(asked) => queue::list(daemon, asked, caller?.parts(id)).await,
        Request::Generators => refreshed(daemon, generators::generators(daemon)).await,
        Request::Candidates => refreshed(daemon, reap::candidates(daemon)).await,
        Request::Explain(of) => refreshed(daemon, reap::explain(daemon, of)).await,
        Request::Usage(of) => refreshed(daemon, stats::stats(daemon, of)).await,
        Request::Capture(asked) => refreshed(daemon, capture::capture(daemon, asked)).await,
        Request::Terminal(of) => refreshed(daemon, terminal::terminal(daemon, of)).await,
        Request::Wait(asked) => refreshed(daemon, wait::wait(daemon, asked)).await,
        Request::Config => config::config(daemon),
        Request::Export => export::export(daemon, caller?.parts(id)).await,
        Request::Check => check::check(daemon).await,
        // Changes that may be repeated without an operation id.
        Request::Sync => sync::sync(daemon).await,
        Request::Attach(asked) => {
            refreshed(daemon, with_user_lock(lock, attach::attach(daemon, asked))).await
        }
        Request::HoldStarts => down::hold_starts(daemon, caller?).await,
        Request::ConfigReload => config::reload(daemon),
        Request::Backup { path } => backup::backup(daemon, path).await,
        Request::Compact => compact::compact(daemon).await,
        Request::Hook(report) => hook::hook(daemon, report).await,
        Request::Register(asked) => work::register(daemon, caller?, asked).await,
        Request::RenewLock { session, token } => lock::renew(daemon, session, token).await,
        Request::Unlock { session, token } => lock::unlock(daemon, session, token).await,
        Request::Withdraw(op) => {
            daemon.engine.turn(move |turn| idempotency::withdraw(turn, op)).await.map(|()| Response::Done)
        }
        // Repeats of these get the claim or the lock that the first one got.
        Request::Claim(asked) => work::claim(daemon, caller?, op, asked).await,
        Request::Lock(asked) => lock::lock(daemon, caller?, (op, lock), asked).await,
        // A repeat gets the message of the first one.
        Request::ClearContext(asked) => clear_context::clear_context(daemon, (op, lock), asked).await,
        // Operations.
        Request::New(asked) => refreshed(daemon, operate!(operation, new::new, *asked)).await,
        Request::Adopt(asked) => operate!(operation, adopt::adopt, asked).await,
        Request::Kill(asked) => refreshed(daemon, operate!(operation, kill::kill, asked)).await,
        Request::Restart(asked) => refreshed(daemon, operate!(operation, restart::restart, asked)).await,
        Request::Park(asked) => refreshed(daemon, operate!(operation, park::park, asked)).await,
        Request::Restore(asked) => refreshed(daemon, operate!(operation, restore::restore, asked)).await,
        Request::Drain(asked) => refreshed(daemon, operate!(operation, drain::drain, asked)).await,
        Request::Remove(asked) => refreshed(daemon, operate!(operation, rm::rm, asked)).await,
        Request::Prune(asked) => operate!(operation, prune::prune, asked).await,
        Request::Rename(asked) => refreshed(daemon, operate!(operation, rename::rename, asked)).await,
        Request::Label(asked) => refreshed(daemon, operate!(operation, label::label, asked)).await,
        Request::Dismiss(of) => operate!(operation, dismiss::dismiss, of).await,
        Request::Pin(asked) => operate!(operation, pin::pin, asked).await,
        Request::Update(asked) => operate!(operation, update::update, asked).await,
        Request::AddWorker(asked) => operate!(operation, worker::add, *asked).await,
        Request::Clear(of) => refreshed(daemon, operate!(operation, clear::clear, of)).await,
        Request::Reap { force } => refreshed(daemon, operate!(operation, reap::reap, force)).await,
        Request::ResolveMessage(asked) => operate!(operation, queue::resolve, asked).await,
        Request::Cancel(message) => operate!(operation, queue::cancel, message).await,
        Request::Retry(message) => operate!(operation, queue::retry, message).await,
        Request::Purge(asked) => operate!(operation, queue::purge, asked).await,
        Request::Publish(asked) => operate!(operation, thought::publish, *asked).await,
        Request::Approve(asked) => operate!(operation, approve::approve, asked).await,
        Request::Keys(asked) => refreshed(daemon, operate!(operation, keys::keys, asked)).await,
        Request::Input(asked) => refreshed(daemon, operate!(operation, input::input, asked)).await,
        Request::Resize(asked) => refreshed(daemon, operate!(operation, resize::resize, asked)).await,
        // Answered by the engine itself, in the turn that decides: `net::role::client`.
        variants!(Request: Send Heartbeat Ack Fail DecisionTaken) => Err(other_role()),
        // Requests of subscribers, of the watcher, and of reapers.
        variants!(Request: Subscribe Watch Output Observe WatchingBy NextCandidate TakeLease Settle) => {
            Err(other_role())
        }
    }
}

/// Refreshes the observed state of tmux, if no watcher does, and then answers with `work`.
async fn refreshed(daemon: &Arc<Daemon>, work: impl Future<Output = Reply>) -> Reply {
    tmux_snapshot::refresh(daemon).await?;
    work.await
}

#[cfg(test)]
mod tests {
    use protocol::request::{Approve, Input, Keys, Kill, Park, Rename, Resize, Restart};
    use protocol::{SessionRef, Size};

    use super::*;

    #[test]
    fn what_may_have_reached_a_terminal_is_neither_done_again_nor_said_to_be_done() {
        let session = || SessionRef("a".to_owned());
        let resets = |clear| Request::Restart(Restart { session: session(), clear, ..Restart::default() });
        let (size, answers) = (Size { cols: 80, rows: 24 }, vec!["1".to_owned()]);
        for request in [
            Request::Keys(Keys { session: session(), keys: vec!["C-c".to_owned()] }),
            Request::Input(Input { session: session(), bytes: "x".into() }),
            Request::Resize(Resize { session: session(), size }),
            Request::Approve(Approve { session: session(), deny: false, ask: None, reason: None, answers }),
            resets(true),
        ] {
            assert!(matches!(on_interruption(&request), OnInterruption::Answer(_)), "{request:?}");
        }
        // The record of the session tells what became of these, or they change nothing if they were done before.
        for request in [Request::Kill(Kill { session: session(), grace_ms: None }), resets(false)] {
            assert!(matches!(on_interruption(&request), OnInterruption::Outcome), "{request:?}");
        }
        for request in [
            Request::Park(Park { session: session(), force: true, grace_ms: None }),
            Request::Rename(Rename { session: session(), name: "b".to_owned() }),
        ] {
            assert!(matches!(on_interruption(&request), OnInterruption::Repeat), "{request:?}");
        }
    }
}
