//! `capture` and `attach`.

use std::sync::Arc;

use protocol::reply::AttachCommand;
use protocol::request::{Attach, Capture, Extent};
use protocol::{ErrorCode, Lifecycle, OsBytes, Refusal, Reply, Response, Session, TmuxSessionId};
use tmux::act::Lines;
use tmux::{Answer, TmuxError};

use super::{input, life, shown};
use crate::context::{Daemon, pane_of};
use crate::files;
use crate::slow::{self, Purpose};

/// What is on the screen; of a session that is over, what was there last.
pub(super) async fn capture(daemon: &Arc<Daemon>, asked: Capture) -> Reply {
    let session = shown::find(daemon, asked.session.clone()).await?;
    let pane = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot()).and_then(pane_of);
    let Some(pane) = pane else { return last_screen(daemon, &session).await };
    let lines = match asked.extent {
        Extent::Visible => Lines::Visible,
        Extent::Last(n) => Lines::Last(n),
        Extent::All => Lines::All,
    };
    match daemon.tmux.capture(pane, lines, asked.ansi).await {
        Ok((Answer::Done, screen)) => Ok(Response::Screen(OsBytes(screen))),
        Ok((Answer::Gone, _)) => last_screen(daemon, &session).await,
        other => input::answered(other.map(|(answer, _)| answer)),
    }
}

async fn last_screen(daemon: &Daemon, session: &Session) -> Reply {
    let path = daemon.paths.meta_of(session.id).join(files::SCREEN);
    match slow::limited(Purpose::Launch, move || files::read_small(&path, files::SCREEN_MAX)).await {
        Some(Ok(screen)) => Ok(Response::Screen(OsBytes(screen))),
        _ => Err(Refusal::new(
            ErrorCode::NotFound,
            format!(
                "{} does not run, and no last screen of it was kept; `poolctl logs` has its output",
                session.name
            ),
        )),
    }
}

pub(super) async fn attach(daemon: &Arc<Daemon>, asked: Attach) -> Reply {
    let session = shown::find(daemon, asked.session.clone()).await?;
    let session = life::wake(daemon, session).await?;
    let touched = session.incarnation.as_ref().filter(|_| !asked.read_only).map(|run| run.tag);
    daemon.engine.post(move |turn| turn.rest.view.touched.extend(touched));
    let run = session
        .incarnation
        .as_ref()
        .filter(|_| matches!(session.lifecycle, Lifecycle::Live | Lifecycle::Draining));
    let Some(target) = run.and_then(|run| run.session) else {
        let how = format!("{0} does not run; `poolctl restart {0}` starts it", session.name);
        return Err(Refusal::new(ErrorCode::Refused, how));
    };
    // The client hands its terminal and its whole environment to whoever listens there.
    if let Err(error @ TmuxError::Foreign(_)) = tmux::owner::look(&daemon.device.socket) {
        return Err(Refusal::new(ErrorCode::Refused, error.to_string()));
    }
    Ok(Response::Attach(command(daemon, &session, target, &asked)))
}

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

/// `TMUX` is `socket,pid,session`.
fn is_same_server(daemon: &Daemon, outer: &OsBytes) -> bool {
    let socket = outer.0.rsplitn(3, |b| *b == b',').nth(2).map(|path| OsBytes(path.to_vec()));
    socket.is_some_and(|socket| {
        let canonical = |path: &std::path::Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        canonical(socket.as_path()) == canonical(&daemon.device.socket)
    })
}
