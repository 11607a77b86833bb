//! A change in tmux as a line of text.

use protocol::OsBytes;
use protocol::diff::Change;
use protocol::tmux::{Server, TmuxPane, TmuxSession, TmuxState};

use crate::show::escape;
use crate::show::json::json_name;
use crate::show::out::Style;

/// Formats a change against the `known` state; `None` if it changes nothing that is shown.
pub(crate) fn line(known: &TmuxState, change: &Change, style: Style) -> Option<String> {
    let (sign, text) = match change {
        Change::Server(server) => return Some(escape::line(&format!("server: {}", server_state(server)))),
        Change::Session(id, session) => match known.sessions.get(id) {
            None => ('+', format!("{id} {}", appeared(session))),
            Some(before) => ('~', format!("{id} {}", joined(session_changes(before, session))?)),
        },
        Change::Pane(id, pane) => match known.panes.get(id) {
            None => ('+', format!("{id} in {}", opened(pane))),
            Some(before) => ('~', format!("{id} {}", joined(pane_changes(before, pane))?)),
        },
        Change::SessionGone(id) => {
            let name = known.sessions.get(id).map(|session| format!(" {}", session.name));
            ('-', format!("{id}{}", name.unwrap_or_default()))
        }
        Change::PaneGone(id) => ('-', id.to_string()),
    };
    let colour = match sign {
        '+' => 32,
        '-' => 31,
        _ => 33,
    };
    Some(format!("{} {}", style.paint(colour, &sign.to_string()), escape::line(&text)))
}

fn server_state(server: &Server) -> String {
    match server {
        Server::Up(server) => format!("up (pid {})", server.process.pid),
        Server::Absent => "absent".to_owned(),
        Server::Unknown(silence) => {
            let pid = silence.server.map(|server| format!(" (pid {})", server.process.pid));
            format!("{}{}: {}", json_name(&silence.trouble), pid.unwrap_or_default(), silence.detail)
        }
    }
}

fn appeared(session: &TmuxSession) -> String {
    match session.attached {
        0 => session.name.clone(),
        attached => format!("{} ({attached} attached)", session.name),
    }
}

fn opened(pane: &TmuxPane) -> String {
    let runs = pane.current_command.as_ref().map(OsBytes::to_string_lossy);
    let runs = runs.unwrap_or_else(|| format!("pid {}", pane.pid));
    let state: Vec<String> = ended(pane).into_iter().chain(pane.dead.then(|| "dead".to_owned())).collect();
    format!("{} ({runs}) {}", pane.session, state.join(", ")).trim_end().to_owned()
}

fn joined(changes: Vec<String>) -> Option<String> {
    (!changes.is_empty()).then(|| changes.join(", "))
}

fn session_changes(before: &TmuxSession, now: &TmuxSession) -> Vec<String> {
    let renamed = (before.name != now.name).then(|| format!("{} → {}", before.name, now.name));
    let recreated = (before.created_at != now.created_at).then(|| "recreated".to_owned());
    let attached = (before.attached != now.attached).then(|| format!("{} attached", now.attached));
    renamed.into_iter().chain(recreated).chain(attached).collect()
}

fn pane_changes(before: &TmuxPane, now: &TmuxPane) -> Vec<String> {
    let mut changes = Vec::new();
    let mut differs = |differs: bool, text: &dyn Fn() -> String| {
        if differs {
            changes.push(text());
        }
    };
    differs(before.session != now.session, &|| format!("in {}", now.session));
    differs(before.window != now.window, &|| format!("in {}", now.window));
    differs(before.pid != now.pid, &|| format!("pid {} → {}", before.pid, now.pid));
    differs(ended(before) != ended(now), &|| ended(now).unwrap_or_else(|| "runs".to_owned()));
    differs(before.dead != now.dead, &|| if now.dead { "dead" } else { "alive" }.to_owned());
    let command = |pane: &TmuxPane| text(pane.current_command.as_ref());
    differs(before.current_command != now.current_command, &|| {
        format!("{} → {}", command(before), command(now))
    });
    differs(before.current_dir != now.current_dir, &|| format!("at {}", text(now.current_dir.as_ref())));
    let size = |pane: &TmuxPane| format!("{}x{}", pane.width, pane.height);
    differs(size(before) != size(now), &|| format!("{} → {}", size(before), size(now)));
    differs(before.in_mode != now.in_mode, &|| {
        if now.in_mode { "in a mode" } else { "not in a mode" }.to_owned()
    });
    differs(before.tag != now.tag, &|| match now.tag {
        Some(tag) => format!("tagged {tag}"),
        None => "not tagged".to_owned(),
    });
    differs(!before.detached && now.detached, &|| "detached from the pool".to_owned());
    changes
}

fn text(bytes: Option<&OsBytes>) -> String {
    bytes.map_or_else(|| "?".to_owned(), OsBytes::to_string_lossy)
}

/// Formats the end of the pane's process, if it has ended.
fn ended(pane: &TmuxPane) -> Option<String> {
    match (pane.exit_signal, pane.exit_status) {
        (Some(signal), _) => Some(format!("ended by signal {signal}")),
        (None, Some(status)) => Some(format!("exited {status}")),
        (None, None) => pane.exited.then(|| "exited".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use protocol::tmux::{NoAnswer, ServerProblem};
    use protocol::{PaneId, ProcId, ServerId, Tag, TmuxSessionId, WindowId};

    use super::*;

    const SERVER: ServerId = ServerId { process: ProcId { pid: 12, start: 1 }, started_at: 1 };

    type Edit<'a> = &'a dyn Fn(&mut TmuxPane);

    fn web(name: &str) -> TmuxSession {
        TmuxSession::bare(name, 1)
    }

    fn pane() -> TmuxPane {
        let bare = TmuxPane::bare(TmuxSessionId(3), WindowId(4), 60);
        TmuxPane { current_command: Some("claude".into()), ..bare }
    }

    fn known() -> TmuxState {
        TmuxState {
            server: Server::Up(SERVER),
            sessions: [(TmuxSessionId(3), web("web"))].into(),
            panes: [(PaneId(7), pane())].into(),
        }
    }

    fn shown(known: &TmuxState, change: &Change) -> String {
        line(known, change, Style::default()).unwrap_or_default()
    }

    #[test]
    fn appearing_and_disappearing() {
        let (none, all) = (TmuxState::default(), known());
        let session = Change::Session(TmuxSessionId(3), TmuxSession { attached: 2, ..web("web") });
        assert_eq!(shown(&none, &session), "+ $3 web (2 attached)");
        assert_eq!(shown(&none, &Change::Session(TmuxSessionId(3), web("web"))), "+ $3 web");
        assert_eq!(shown(&none, &Change::Pane(PaneId(7), pane())), "+ %7 in $3 (claude)");
        let dead = TmuxPane { current_command: None, exit_status: Some(3), dead: true, ..pane() };
        assert_eq!(shown(&none, &Change::Pane(PaneId(7), dead)), "+ %7 in $3 (pid 60) exited 3, dead");
        assert_eq!(shown(&all, &Change::SessionGone(TmuxSessionId(3))), "- $3 web");
        assert_eq!(shown(&none, &Change::SessionGone(TmuxSessionId(3))), "- $3");
        assert_eq!(shown(&all, &Change::PaneGone(PaneId(7))), "- %7");
    }

    #[test]
    fn differences() {
        let known = known();
        let session = |session| shown(&known, &Change::Session(TmuxSessionId(3), session));
        assert_eq!(session(web("www")), "~ $3 web → www");
        let other = TmuxSession { attached: 1, ..TmuxSession::bare("www", 2) };
        assert_eq!(session(other), "~ $3 web → www, recreated, 1 attached");
        assert_eq!(session(web("web")), "", "nothing is different");
        let pane_line = |change: Edit| {
            let mut pane = pane();
            change(&mut pane);
            shown(&known, &Change::Pane(PaneId(7), pane))
        };
        let lines: [(&str, Edit); 14] = [
            ("", &|pane| pane.process = Some(ProcId { pid: 60, start: 5 })),
            ("~ %7 in $9, in @9", &|pane| (pane.session, pane.window) = (TmuxSessionId(9), WindowId(9))),
            ("~ %7 pid 60 → 61", &|pane| pane.pid = 61),
            ("~ %7 exited", &|pane| pane.exited = true),
            ("~ %7 exited 3", &|pane| (pane.exited, pane.exit_status) = (true, Some(3))),
            ("~ %7 ended by signal 9", &|pane| (pane.exited, pane.exit_signal) = (true, Some(9))),
            ("~ %7 dead", &|pane| pane.dead = true),
            ("~ %7 claude → vim", &|pane| pane.current_command = Some("vim".into())),
            ("~ %7 claude → ?", &|pane| pane.current_command = None),
            ("~ %7 at /tmp", &|pane| pane.current_dir = Some("/tmp".into())),
            ("~ %7 80x24 → 80x30", &|pane| pane.height = 30),
            ("~ %7 in a mode", &|pane| pane.in_mode = true),
            ("~ %7 tagged abababababababababababababababab", &|pane| pane.tag = Some(Tag([0xab; 16]))),
            ("~ %7 detached from the pool", &|pane| pane.detached = true),
        ];
        for (expected, change) in lines {
            assert_eq!(pane_line(change), expected);
        }
        let mut before = self::known();
        before.panes.insert(PaneId(7), TmuxPane { dead: true, exit_status: Some(3), ..pane() });
        assert_eq!(shown(&before, &Change::Pane(PaneId(7), pane())), "~ %7 runs, alive");
    }

    #[test]
    fn the_server_is_present_absent_or_in_trouble() {
        let server = |server| shown(&TmuxState::default(), &Change::Server(server));
        assert_eq!(server(Server::Up(SERVER)), "server: up (pid 12)");
        assert_eq!(server(Server::Absent), "server: absent");
        let stopped = NoAnswer {
            trouble: ServerProblem::Stopped,
            server: Some(SERVER),
            detail: "SIGSTOP\x1b".to_owned(),
            pid: Some(SERVER.process.pid),
        };
        assert_eq!(server(Server::Unknown(stopped)), "server: stopped (pid 12): SIGSTOP\\x1b");
        assert_eq!(server(Server::unknown("why")), "server: unknown: why");
    }

    #[test]
    fn no_name_commands_the_terminal() {
        let session = Change::Session(TmuxSessionId(9), web("\x1b[2J\n"));
        assert_eq!(shown(&known(), &session), "+ $9 \\x1b[2J\\n");
        let colour = Style { colour: true, ..Style::default() };
        let painted = line(&known(), &session, colour);
        assert_eq!(painted.as_deref(), Some("\x1b[32m+\x1b[0m $9 \\x1b[2J\\n"));
    }
}
