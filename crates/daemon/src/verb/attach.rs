//! `attach`: the command with which a client attaches.

use std::sync::Arc;

use protocol::paths::is_same;
use protocol::reply::AttachCommand;
use protocol::request::Attach;
use protocol::{Lifecycle, OsBytes, Refusal, Reply, Response, Session, Timestamp, TmuxSessionId};
use tmux::act::Client;
use tmux::{ServerRef, TmuxError};

use crate::decide::lock;
use crate::effect::slot::Requester;
use crate::engine::{Daemon, Turn, in_doubt, pane_of};
use crate::verb::operation::Awaiter;
use crate::verb::start::{StartOptions, start_next};
use crate::verb::transition::{is_about_to_run, wait_while};
use crate::verb::{session_view, termination};

/// Answers once the session runs. A parked or lost one is started.
pub(super) async fn attach(daemon: &Arc<Daemon>, asked: Attach) -> Reply {
    let session = session_view::resolve(daemon, asked.session.clone()).await?;
    let options = StartOptions { wait_ms: asked.wait_slot_ms, ..StartOptions::default() };
    let session = wake(daemon, session, options).await?;
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
    let server = run.and_then(pane_of).map(|pane| pane.server);
    Ok(Response::Attach(command(daemon, &session, (server, target), &asked).await?))
}

/// Starts a session that is parked or lost, or about to be parked. Returns it as it is then.
async fn wake(daemon: &Arc<Daemon>, session: Session, options: StartOptions) -> Result<Session, Refusal> {
    let id = session.id;
    if session.is_being_parked() || matches!(session.lifecycle, Lifecycle::Parked | Lifecycle::Lost) {
        let awaiter = Awaiter::new(daemon);
        let requester = Requester::Client(awaiter.waits());
        let (daemon, world) = (Arc::clone(daemon), daemon.world.clone());
        // In a task of its own, so that it continues if the client disconnects. It takes no slot for a client that is
        // gone.
        let wake = async move {
            termination::wait_unless(&daemon, &session, |s| s.lifecycle == Lifecycle::Live).await?;
            start_next(&daemon, requester, (id, options), |_| ()).await
        };
        let woken = world.detach("attach", lock::with_user_lock(lock::current(), wake));
        woken.await.ok_or_else(in_doubt)??;
    }
    wait_while(daemon, id, is_about_to_run).await?;
    session_view::resolve(daemon, id.into()).await
}

/// Returns the client that was used last, preferably one that can type.
fn last_used(turn: &Turn<'_>, viewers: Vec<Client>) -> Option<Client> {
    let age = |client: &Client| turn.age(Timestamp(client.active_at.saturating_mul(1000)));
    viewers.into_iter().min_by_key(|client| (client.read_only, client.control, age(client)))
}

/// Returns the command for the caller's terminal: inside this tmux server it switches the client that shows it, inside
/// another one it nests, in a new window if asked.
async fn command(
    daemon: &Daemon,
    session: &Session,
    (server, target): (Option<ServerRef>, TmuxSessionId),
    asked: &Attach,
) -> Result<AttachCommand, Refusal> {
    let refused = |why: &str| Err(Refusal::refused(why));
    let viewers = match (server, &asked.terminal) {
        (Some(server), Some(terminal)) => daemon.tmux.viewers(server, terminal).await,
        _ => Ok(None),
    };
    let viewers = viewers.map_err(|error| {
        Refusal::unavailable(format!(
            "{error}; it is not known whether this runs inside of the pool's tmux server"
        ))
    })?;
    if let Some(viewers) = viewers {
        let Some(viewer) = daemon.engine.turn(move |turn| last_used(turn, viewers)).await? else {
            return refused(
                "this runs inside of the pool's tmux server, where nobody is attached who could see it: run \
                 `attach` in a terminal of your own, or read the session with `capture`",
            );
        };
        let argv = daemon.device.switch_command(&viewer.name, target, asked.read_only);
        return Ok(AttachCommand { argv, hint: None });
    }
    // `TMUX` names the session itself: this also finds a terminal inside of the pane, like that of `script`.
    if asked.tmux_env.as_ref().is_some_and(|outer| is_inside(daemon, outer, (server, target))) {
        return refused("this runs inside of that session, which would show itself");
    }
    let plain = daemon.device.attach_command(target, asked.read_only);
    if asked.tmux_env.is_none() {
        return Ok(AttachCommand { argv: plain, hint: None });
    }
    let mut nested: Vec<OsBytes> = vec!["env".into(), "-u".into(), "TMUX".into()];
    nested.extend(plain);
    if !asked.window {
        let hint = "this terminal is inside another tmux: its prefix key goes to the outer one first";
        return Ok(AttachCommand { argv: nested, hint: Some(hint.to_owned()) });
    }
    let mut argv: Vec<OsBytes> =
        ["tmux", "new-window", "-n", session.name.as_str()].map(OsBytes::from).to_vec();
    argv.extend(nested);
    Ok(AttachCommand { argv, hint: None })
}

/// True if this value of `TMUX`, which is `socket,pid,session`, names this session of the pool's own server.
fn is_inside(
    daemon: &Daemon,
    outer: &OsBytes,
    (server, session): (Option<ServerRef>, TmuxSessionId),
) -> bool {
    let mut parts = outer.0.rsplitn(3, |b| *b == b',');
    let mut number = || str::from_utf8(parts.next()?).ok()?.parse::<u32>().ok();
    let (number, pid) = (number(), number());
    let socket = parts.next().map(|path| OsBytes(path.to_vec()));
    number == Some(session.0)
        && server.is_some_and(|server| pid == Some(server.pid))
        && socket.is_some_and(|socket| is_same(socket.as_path(), &daemon.device.socket))
}
