//! The table of requests, and the frame around every operation: it is carried out once, in a task of its own.

use std::sync::Arc;

use protocol::{ErrorCode, Lifecycle, Refusal, Reply, Request, Response, SessionId, Token};

use crate::decide::idempotency::{Begin, Op};
use crate::decide::lock;
use crate::engine::context::Daemon;
use crate::engine::handle::in_doubt;
use crate::sense::snapshot;
use crate::verb::{
    adopt, agent, attach, capture, care, claim, clear, drain, keys, kill, label, new, pin, prune, read,
    remove, rename, restart, restore, start, status, sync, terminal, update, wait,
};

/// Answers a request of a client.
pub(crate) async fn answer(daemon: &Arc<Daemon>, call: protocol::Call) -> Reply {
    if needs_tmux(&call.request) {
        snapshot::refresh(daemon).await?;
    }
    match call.request {
        Request::Ping => daemon.engine.turn(|_| Ok(Response::Done)).await?,
        Request::Status => status::status(daemon).await,
        Request::Inbox => status::inbox(daemon).await,
        Request::Sync => sync::sync(daemon).await,
        Request::List(list) => read::list(daemon, list).await,
        Request::Show(session) => read::show(daemon, session).await,
        Request::ShowMessage(id) => read::message(daemon, id).await,
        Request::Logs(session) => read::logs(daemon, session).await,
        Request::Candidates => read::candidates(daemon).await,
        Request::Config => read::config(daemon),
        Request::ConfigReload => read::reload(daemon),
        Request::Capture(capture) => capture::capture(daemon, capture).await,
        Request::Terminal(session) => terminal::terminal(daemon, session).await,
        Request::Attach(attach) => lock::under(call.lock, attach::attach(daemon, attach)).await,
        Request::Wait(wait) => wait::wait(daemon, wait).await,
        Request::New(_)
        | Request::ResolveMessage(_)
        | Request::Cancel(_)
        | Request::Retry(_)
        | Request::Purge(_)
        | Request::Keys(_)
        | Request::Input(_)
        | Request::Resize(_)
        | Request::Kill(_)
        | Request::Remove(_)
        | Request::Rename(_)
        | Request::Label(_)
        | Request::Restart(_)
        | Request::Park(_)
        | Request::Restore(_)
        | Request::Drain(_)
        | Request::Pin(_)
        | Request::Clear(_)
        | Request::Prune(_)
        | Request::Reap { .. }
        | Request::Update(_)
        | Request::Approve(_)
        | Request::Publish(_)
        | Request::Adopt(_) => operate(daemon, (call.op, call.lock), call.request).await,
        Request::RenewLock { session, token } => crate::verb::lock::renewed(daemon, session, token).await,
        Request::Unlock { session, token } => crate::verb::lock::unlocked(daemon, session, token).await,
        Request::Explain(session) => crate::verb::reap::explain(daemon, session).await,
        Request::Usage(wanted) => crate::verb::usage::usage(daemon, wanted).await,
        Request::Hook(hook) => crate::verb::hook::hook(daemon, hook).await,
        Request::Generators => claim::generators(daemon).await,
        Request::Body(id) => read::body(daemon, id).await,
        Request::Backup { path } => care::backup(daemon, path).await,
        Request::Check => care::check(daemon).await,
        Request::Compact => care::compact(daemon).await,
        // A subscriber's, a watcher's, a reaper's, or one that was answered before it came here.
        _ => Err(Refusal::new(ErrorCode::Usage, "that request belongs to another role")),
    }
}

/// Whether what is known of tmux matters for it.
pub(crate) fn needs_tmux(request: &Request) -> bool {
    !matches!(
        request,
        Request::Ping
            | Request::Sync
            | Request::Config
            | Request::ConfigReload
            | Request::Logs(_)
            | Request::ShowMessage(_)
            | Request::Body(_)
            | Request::ResolveMessage(_)
            | Request::Cancel(_)
            | Request::Retry(_)
            | Request::Purge(_)
            | Request::Backup { .. }
            | Request::Check
            | Request::Compact
            | Request::Pin(_)
            | Request::Prune(_)
            | Request::RenewLock { .. }
            | Request::Unlock { .. }
            | Request::Update(_)
            | Request::Hook(_)
            | Request::Approve(_)
            | Request::Publish(_)
            | Request::Adopt(_)
    )
}

/// Carries an operation out once, whoever asks for it how often. In a task of its own: a client
/// that leaves does not stop it half-way.
pub(crate) async fn operate(
    daemon: &Arc<Daemon>,
    (id, lock): (Option<protocol::OpId>, Option<Token>),
    request: Request,
) -> Reply {
    if let Some(token) = lock {
        let held = daemon.engine.turn(move |turn| turn.volatile.locks.is_held(token)).await?;
        held.then_some(()).ok_or_else(lock::stale)?;
    }
    let asker = Asker { daemon: Arc::clone(daemon), here: Some(Arc::default()) };
    let op = Op::new(id, &request)?.under(lock);
    let op = asker.here.iter().fold(op, Op::asked_by);
    let daemon = Arc::clone(daemon);
    let work = async move { once(&daemon, op, request).await };
    tokio::spawn(lock::under(lock, work)).await.map_err(|_| in_doubt())?
}

/// Somebody who waits for an answer: one that leaves leaves every line.
pub(crate) struct Asker {
    daemon: Arc<Daemon>,
    here: Option<Arc<()>>,
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.here = None;
        self.daemon.engine.post(|turn| {
            if turn.volatile.scheduler.waiting.len() > 0 {
                turn.wake();
            }
        });
    }
}

pub(crate) async fn once(daemon: &Arc<Daemon>, op: Op, request: Request) -> Reply {
    let begin = op.clone();
    match daemon.engine.turn(move |turn| begin.begin(turn)).await? {
        Begin::Answered(reply) => reply,
        Begin::Running(answer) => answer.await.map_err(|_| in_doubt())?,
        Begin::Hanging(session) => settled(daemon, session, &request).await,
        Begin::Fresh => {
            let reply = carry_out(daemon, &op, request).await;
            let answer = reply.clone();
            daemon.engine.turn(move |turn| op.over(turn, &answer)).await?;
            reply
        }
    }
}

pub(crate) async fn carry_out(daemon: &Arc<Daemon>, op: &Op, request: Request) -> Reply {
    match request {
        Request::New(new) => new::new(daemon, op, *new).await,
        Request::Purge(purge) => crate::verb::queue::purge(daemon, op, purge).await,
        Request::ResolveMessage(_) | Request::Cancel(_) | Request::Retry(_) => {
            let (op, context) = (op.clone(), Arc::clone(daemon));
            daemon
                .engine
                .turn(move |turn| crate::decide::queue::administrate(turn, &context, &op, &request))
                .await?
        }
        Request::Keys(keys) => keys::keys(daemon, op, keys).await,
        Request::Input(asked) => terminal::input(daemon, op, asked).await,
        Request::Resize(asked) => terminal::resize(daemon, op, asked).await,
        Request::Kill(kill) => kill::kill(daemon, op, kill).await,
        Request::Remove(remove) => remove::remove(daemon, op, remove).await,
        Request::Rename(rename) => rename::rename(daemon, op, rename).await,
        Request::Label(label) => label::label(daemon, op, label).await,
        Request::Restart(restart) => restart::restart(daemon, op, restart).await,
        Request::Adopt(adopt) => adopt::adopt(daemon, op, adopt).await,
        Request::Park(park) => crate::verb::park::park(daemon, op, park).await,
        Request::Restore(restore) => restore::restore(daemon, op, restore).await,
        Request::Drain(session) => drain::drain(daemon, op, session).await,
        Request::Pin(pin) => pin::pin(daemon, op, pin).await,
        Request::Clear(session) => clear::clear(daemon, op, session).await,
        Request::Prune(prune) => prune::prune(daemon, op, prune).await,
        Request::Reap { force } => crate::verb::reap::run(daemon, op, force).await,
        Request::Update(update) => update::update(daemon, op, update).await,
        Request::Approve(approve) => agent::approve(daemon, op, approve).await,
        Request::Publish(publish) => agent::publish(daemon, op, *publish).await,
        _ => Err(Refusal::new(ErrorCode::Usage, "not an operation")),
    }
}

/// What became of an operation that an earlier daemon had begun, or that nobody knew the end of.
pub(crate) async fn settled(daemon: &Arc<Daemon>, session: SessionId, request: &Request) -> Reply {
    if let Request::Keys(_) | Request::Input(_) | Request::Resize(_) = request {
        let why =
            "the daemon stopped while this was done to the terminal; it may have been, and is not done again";
        return Err(Refusal::new(ErrorCode::Unavailable, why));
    }
    if let Request::Approve(_) = request {
        let why =
            "the daemon stopped while the answer was given: whether the agent has it, its terminal tells";
        return Err(Refusal::new(ErrorCode::Conflict, why));
    }
    let shower = Arc::clone(daemon);
    let look = move |turn: &mut crate::engine::Turn<'_>| {
        let Some(record) = turn.pool().session(session) else {
            // Given up, and forgotten.
            return Some(start::outcome(turn, &shower, session));
        };
        let over = !pool::is_between(record)
            && !matches!(record.lifecycle, Lifecycle::Starting | Lifecycle::Draining);
        over.then(|| start::outcome(turn, &shower, session))
    };
    daemon.engine.wait_for(Some(start::OUTCOME_LIMIT), look).await?
}
