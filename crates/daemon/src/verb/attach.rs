//! `attach`: the command with which a client attaches.

use std::sync::Arc;

use protocol::paths::is_same;
use protocol::reply::AttachCommand;
use protocol::request::Attach;
use protocol::{Lifecycle, OsBytes, Refusal, Reply, Response, Session, TmuxSessionId};
use tmux::TmuxError;

use crate::decide::lock;
use crate::effect::slot::Requester;
use crate::engine::{Daemon, in_doubt};
use crate::verb::operation::Awaiter;
use crate::verb::start::{StartOptions, start_next};
use crate::verb::transition::{is_about_to_run, wait_while};
use crate::verb::{session_view, termination};

/// Answers once the session runs. A parked or lost one is started.
pub(super) async fn attach(daemon: &Arc<Daemon>, asked: Attach) -> Reply {
    let session = session_view::resolve(daemon, asked.session.clone()).await?;
    let session = wake(daemon, session).await?;
    let tag = session.incarnation.as_ref().filter(|_| !asked.read_only).map(|run| run.tag);
    daemon.engine.post(move |turn| {
        let now = turn.now();
        turn.volatile.attend(tag, now);
    });
    let is_running = matches!(session.lifecycle, Lifecycle::Live | Lifecycle::Draining);
    let run = session.incarnation.as_ref().filter(|_| is_running);
    let Some(target) = run.and_then(|run| run.session) else {
        return Err(pool::session::not_running(&session));
    };
    // An attaching client passes its terminal and its whole environment to the server at this socket.
    if let Err(error @ TmuxError::Untrusted(_)) = tmux::trust::probe(&daemon.device.socket) {
        return Err(Refusal::refused(error.to_string()));
    }
    Ok(Response::Attach(command(daemon, &session, target, &asked)))
}

/// Starts a session that is parked or lost, or about to be parked. Returns it as it is then.
async fn wake(daemon: &Arc<Daemon>, session: Session) -> Result<Session, Refusal> {
    let id = session.id;
    if session.is_being_parked() || matches!(session.lifecycle, Lifecycle::Parked | Lifecycle::Lost) {
        let awaiter = Awaiter::new(daemon);
        let requester = Requester::Client(awaiter.waits());
        let (daemon, world) = (Arc::clone(daemon), daemon.world.clone());
        // In its own task, so that a client that disconnects does not stop it half-way. It takes no slot for one.
        let wake = async move {
            termination::wait_unless(&daemon, &session, |s| s.lifecycle == Lifecycle::Live).await?;
            start_next(&daemon, requester, (id, StartOptions::default()), |_| ()).await
        };
        let woken = world.detach("attach", lock::with_user_lock(lock::current(), wake));
        woken.await.ok_or_else(in_doubt)??;
    }
    wait_while(daemon, id, is_about_to_run).await?;
    session_view::resolve(daemon, id.into()).await
}

/// Returns the command for the caller's terminal: inside this tmux server it switches the client, inside
/// another one it nests, in a new window if asked.
fn command(daemon: &Daemon, session: &Session, target: TmuxSessionId, asked: &Attach) -> AttachCommand {
    let plain = daemon.device.attach_command(target, asked.read_only);
    let Some(outer) = &asked.tmux_env else { return AttachCommand { argv: plain, hint: None } };
    if is_same_server(daemon, outer) {
        return AttachCommand { argv: daemon.device.switch_command(target, asked.read_only), hint: None };
    }
    let mut nested: Vec<OsBytes> = vec!["env".into(), "-u".into(), "TMUX".into()];
    nested.extend(plain);
    if !asked.window {
        let hint = "this terminal is inside another tmux: its prefix key goes to the outer one first";
        return AttachCommand { argv: nested, hint: Some(hint.to_owned()) };
    }
    let mut argv: Vec<OsBytes> =
        ["tmux", "new-window", "-n", session.name.as_str()].map(OsBytes::from).to_vec();
    argv.extend(nested);
    AttachCommand { argv, hint: None }
}

/// True if this value of `TMUX`, which is `socket,pid,session`, names the pool's own server.
fn is_same_server(daemon: &Daemon, outer: &OsBytes) -> bool {
    let socket = outer.0.rsplitn(3, |b| *b == b',').nth(2).map(|path| OsBytes(path.to_vec()));
    socket.is_some_and(|socket| is_same(socket.as_path(), &daemon.device.socket))
}
