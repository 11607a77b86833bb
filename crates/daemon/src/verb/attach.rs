//! `attach`: the command line with which a client attaches.

use std::sync::Arc;

use protocol::reply::AttachCommand;
use protocol::request::Attach;
use protocol::{ErrorCode, Lifecycle, OsBytes, Refusal, Reply, Response, Session, TmuxSessionId};
use tmux::TmuxError;

use crate::decide::lock;
use crate::engine::context::Daemon;
use crate::engine::handle::in_doubt;
use crate::verb::drain::{is_starting, wait_while};
use crate::verb::start::Again;
use crate::verb::{ending, shown, start};

/// Starts what is parked or lost, because somebody wants to look at it.
pub(crate) async fn wake(daemon: &Arc<Daemon>, session: Session) -> Result<Session, Refusal> {
    let aside =
        |s: &Session| s.is_being_parked() || matches!(s.lifecycle, Lifecycle::Parked | Lifecycle::Lost);
    let id = session.id;
    if aside(&session) {
        let daemon = Arc::clone(daemon);
        // In a task of its own: a client that leaves does not stop it half-way.
        let wake = async move {
            ending::ended_unless(&daemon, &session, |s| s.lifecycle == Lifecycle::Live).await?;
            start::again(&daemon, None, id, Again::default(), |_| ()).await
        };
        let woken = tokio::spawn(lock::under(lock::current(), wake));
        woken.await.map_err(|_| in_doubt())??;
    }
    wait_while(daemon, id, is_starting).await?;
    shown::find(daemon, id.into()).await
}

pub(crate) async fn attach(daemon: &Arc<Daemon>, asked: Attach) -> Reply {
    let session = shown::find(daemon, asked.session.clone()).await?;
    let session = wake(daemon, session).await?;
    let touched = session.incarnation.as_ref().filter(|_| !asked.read_only).map(|run| run.tag);
    daemon.engine.post(move |turn| turn.volatile.prompts.attend(touched));
    let run = session
        .incarnation
        .as_ref()
        .filter(|_| matches!(session.lifecycle, Lifecycle::Live | Lifecycle::Draining));
    let Some(target) = run.and_then(|run| run.session) else {
        let how = format!("{0} does not run; `poolctl restart {0}` starts it", session.name);
        return Err(Refusal::new(ErrorCode::Refused, how));
    };
    // The client hands its terminal and its whole environment to whoever listens there.
    if let Err(error @ TmuxError::Untrusted(_)) = tmux::trust::probe(&daemon.device.socket) {
        return Err(Refusal::new(ErrorCode::Refused, error.to_string()));
    }
    Ok(Response::Attach(command(daemon, &session, target, &asked)))
}

pub(crate) fn command(
    daemon: &Daemon,
    session: &Session,
    target: TmuxSessionId,
    asked: &Attach,
) -> AttachCommand {
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

/// `TMUX` is `socket,pid,session`.
pub(crate) fn is_same_server(daemon: &Daemon, outer: &OsBytes) -> bool {
    let socket = outer.0.rsplitn(3, |b| *b == b',').nth(2).map(|path| OsBytes(path.to_vec()));
    socket.is_some_and(|socket| {
        let canonical = |path: &std::path::Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        canonical(socket.as_path()) == canonical(&daemon.device.socket)
    })
}
