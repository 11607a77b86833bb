//! `watch`: the state of tmux as `poold` knows it, then the changes that its watcher sends.

use std::ops::ControlFlow;

use protocol::diff::{Change, diff};
use protocol::request::View;
use protocol::tmux::{Server, TmuxState};
use protocol::{Frame, Request, view_parts};

use crate::follow::{Follower, follow};
use crate::show::out::Style;
use crate::show::{change, out, time};
use crate::{Context, Error};

/// Show the state of tmux, and its changes as they happen
///
/// A line starts with + for something new, ~ for a change and - for something gone; a session is written
/// like $3, a pane like %7.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print exactly what tmux-watch sends, as JSON lines; `poolctl feed` reads them
    #[arg(long)]
    print: bool,
}

/// Prints until standard output is closed.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let style = Style { json: context.style.json || args.print, ..context.style };
    let mut watch = Watch { style, shown: None, parts: None };
    follow(context, context.unlimited_client(), &mut watch)
}

struct Watch {
    style: Style,
    /// The state that was printed.
    shown: Option<TmuxState>,
    /// The parts so far of an incomplete snapshot.
    parts: Option<TmuxState>,
}

impl Follower for Watch {
    fn request(&self) -> Request {
        Request::Watch
    }

    fn take(&mut self, frame: Frame) -> Result<ControlFlow<()>, Error> {
        match frame {
            Frame::Observed(observe) if self.style.json => out::json(&observe)?,
            Frame::Observed(observe) => {
                let now = time::rfc3339(time::now());
                let lines = self.lines(observe.view).into_iter().map(|line| format!("{now}  {line}\n"));
                out::text(&lines.collect::<String>())?;
            }
            // Too slow: poold drops the connection, and a new one begins with the state.
            Frame::Lagged { .. } => return Ok(ControlFlow::Break(())),
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl Watch {
    /// The changes in it, for people.
    fn lines(&mut self, view: View) -> Vec<String> {
        let changes = match view {
            View::Snapshot { state, part, more } => {
                let whole = view_parts::join(self.parts.take().filter(|_| part > 0), state);
                if more {
                    self.parts = Some(whole);
                    return Vec::new();
                }
                self.changes_to(&whole)
            }
            View::Diff(changes) => changes,
            View::Unchanged | View::Alive => return Vec::new(),
        };
        let known = self.shown.get_or_insert_default();
        let mut lines = Vec::new();
        for change in changes {
            lines.extend(change::line(known, &change, self.style));
            known.apply(change);
        }
        lines
    }

    /// Returns the changes from the printed state to this one. The first time, the server is among them. If the state
    /// of the server is unknown, nothing counts as gone.
    fn changes_to(&self, whole: &TmuxState) -> Vec<Change> {
        match &self.shown {
            Some(known) if matches!(whole.server, Server::Unknown(_)) => {
                diff(known, &TmuxState { server: whole.server.clone(), ..known.clone() })
            }
            Some(known) => diff(known, whole),
            None => {
                let none = TmuxState { server: whole.server.clone(), ..TmuxState::default() };
                [vec![Change::Server(whole.server.clone())], diff(&none, whole)].concat()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::TmuxSessionId;
    use protocol::tmux::TmuxSession;

    use super::*;

    fn state(sessions: &[(u32, &str)]) -> TmuxState {
        let session = |name: &str| TmuxSession::bare(name, 1);
        let sessions = sessions.iter().map(|(id, name)| (TmuxSessionId(*id), session(name)));
        TmuxState { sessions: sessions.collect(), ..TmuxState::default() }
    }

    fn watch() -> Watch {
        Watch { style: Style::default(), shown: None, parts: None }
    }

    #[test]
    fn the_state_comes_first_and_once() {
        let mut watch = watch();
        let part = |state, part, more| View::Snapshot { state, part, more };
        assert_eq!(watch.lines(part(state(&[(1, "a")]), 0, true)), Vec::<String>::new());
        let first = watch.lines(part(state(&[(2, "b")]), 1, false));
        assert_eq!(first, ["server: absent", "+ $1 a", "+ $2 b"]);
        assert_eq!(watch.lines(View::Alive), Vec::<String>::new());
        // From another snapshot, as after a lost connection, only the changes are printed.
        assert_eq!(
            watch.lines(part(state(&[(2, "c"), (3, "d")]), 0, false)),
            ["- $1 a", "~ $2 b → c", "+ $3 d"]
        );
        let changes = vec![Change::SessionGone(TmuxSessionId(2)), Change::Server(Server::unknown("x"))];
        assert_eq!(watch.lines(View::Diff(changes)), ["- $2 c", "server: unknown: x"]);
        assert_eq!(watch.lines(part(state(&[(3, "d")]), 0, false)), ["server: absent"]);
    }

    #[test]
    fn what_is_not_known_is_not_gone() {
        let mut watch = watch();
        let snapshot = |state| View::Snapshot { state, part: 0, more: false };
        watch.lines(snapshot(state(&[(1, "a")])));
        let unknown = TmuxState { server: Server::unknown("x"), ..TmuxState::default() };
        assert_eq!(watch.lines(snapshot(unknown.clone())), ["server: unknown: x"]);
        assert_eq!(watch.lines(snapshot(unknown)), Vec::<String>::new());
        assert_eq!(watch.lines(snapshot(state(&[(1, "b")]))), ["server: absent", "~ $1 a → b"]);
    }

    #[test]
    fn half_a_snapshot_of_a_lost_connection_is_forgotten() {
        let mut watch = watch();
        watch.lines(View::Snapshot { state: state(&[(1, "a")]), part: 0, more: true });
        let lines = watch.lines(View::Snapshot { state: state(&[(2, "b")]), part: 0, more: false });
        assert_eq!(lines, ["server: absent", "+ $2 b"]);
    }
}
