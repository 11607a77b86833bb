//! Sessions as people read them.

use std::collections::BTreeMap;

use protocol::reply::SessionView;
use protocol::session::Exit;
use protocol::{OsBytes, Timestamp};

use crate::show::json::{status, word};
use crate::show::out::Style;
use crate::show::table::Table;
use crate::show::{escape, time, tree};

/// A table of sessions.
#[must_use]
pub(crate) fn sessions(views: &[SessionView], style: Style, now: Timestamp) -> String {
    let mut table = Table::new(&["ID", "NAME", "AGENT", "STATE", "STATUS", "QUEUE", "RUNS", "ACTIVE"]);
    for view in views {
        let session = &view.session;
        table.row([
            session.id.to_string(),
            session.name.to_string(),
            session.spec.agent.clone(),
            state(view),
            status(view).unwrap_or_default().to_owned(),
            (view.queue.queued + view.queue.claimed + view.queue.in_doubt).to_string(),
            session.current_command.as_ref().map(OsBytes::to_string_lossy).unwrap_or_default(),
            when(session.last_activity_at, style, now),
        ]);
    }
    table.render()
}

/// Everything about one session, a line each.
#[must_use]
pub(crate) fn session(view: &SessionView, style: Style, now: Timestamp) -> String {
    let session = &view.session;
    let incarnation = session.incarnation.as_ref();
    let command: Vec<String> =
        session.spec.command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let mut rows = Rows(Table::new(&[]));
    rows.add("id", session.id.to_string());
    rows.add("name", session.name.to_string());
    rows.add("workspace", session.workspace.to_string());
    rows.add("state", state(view));
    rows.maybe("detail", session.detail.clone());
    rows.maybe("status", status(view).map(str::to_owned));
    rows.maybe("exit", session.exit.map(|exit| ended(exit, style, now)));
    rows.add("agent", session.spec.agent.clone());
    rows.add("command", command.join(" "));
    rows.add("cwd", session.spec.cwd.to_string_lossy());
    rows.add("dir", session.dir.to_string_lossy());
    rows.add("labels", labels(&session.labels));
    rows.add("size", format!("{}x{}", session.spec.size.cols, session.spec.size.rows));
    rows.maybe("runs", session.current_command.as_ref().map(OsBytes::to_string_lossy));
    rows.maybe("runs in", view.current_dir.as_ref().map(OsBytes::to_string_lossy));
    rows.maybe("agent process", incarnation.and_then(|i| i.agent).map(|process| process.pid.to_string()));
    rows.maybe("init process", incarnation.and_then(|i| i.init).map(|process| process.pid.to_string()));
    rows.maybe("pane", incarnation.and_then(|i| i.pane).map(|pane| pane.to_string()));
    rows.maybe(
        "tmux server",
        incarnation.and_then(|i| i.server).map(|server| server.process.pid.to_string()),
    );
    rows.add("tmux socket", view.tmux_socket.to_string_lossy());
    rows.add("attached", session.attached_clients.to_string());
    let queue = &view.queue;
    let counts = [
        (queue.queued, "queued"),
        (queue.claimed, "claimed"),
        (queue.in_doubt, "in doubt"),
        (queue.dead, "dead"),
    ];
    rows.add("queue", counts.map(|(n, what)| format!("{n} {what}")).join(", "));
    rows.add("requests", session.total_requests.to_string());
    rows.add("incarnations", format!("{} ({} restarts)", session.incarnations, session.restarts));
    rows.maybe("locked", view.lock.as_ref().map(|(token, what)| format!("{what} (token {token})")));
    rows.add("created", when(session.created_at, style, now));
    rows.add("active", when(session.last_activity_at, style, now));
    rows.maybe("verified", session.verified_at.map(|at| when(at, style, now)));
    let processes = tree::render(&view.processes);
    rows.0.render() + &if processes.is_empty() { processes } else { format!("processes\n{processes}") }
}

/// `sess_1  web  stopped (exited), exit 0`, as the verbs that change a session answer.
#[must_use]
pub(crate) fn state_line(view: &SessionView) -> String {
    let exit = view.session.exit.filter(|_| !view.session.lifecycle.holds_slot());
    let exit = exit.map(|exit| format!(", {}", how(exit))).unwrap_or_default();
    format!("{}  {}  {}{exit}", view.session.id, view.session.name, state(view))
}

/// Labels in a row.
#[must_use]
pub(crate) fn labels(labels: &BTreeMap<String, String>) -> String {
    let labels = labels.iter().map(|(key, value)| escape::line(&format!("{key}={value}")));
    labels.collect::<Vec<_>>().join(" ")
}

/// A time: how long ago on a terminal, else exactly.
#[must_use]
pub(crate) fn when(at: Timestamp, style: Style, now: Timestamp) -> String {
    if style.terminal { format!("{} ago", time::ago(at, now)) } else { time::rfc3339(at) }
}

fn state(view: &SessionView) -> String {
    let state = word(&view.session.lifecycle);
    match view.session.reason.filter(|_| view.session.lifecycle != protocol::Lifecycle::Live) {
        Some(reason) => format!("{state}({})", word(&reason)),
        None => state,
    }
}

fn ended(exit: Exit, style: Style, now: Timestamp) -> String {
    format!("{}, {}", how(exit), when(exit.at, style, now))
}

fn how(exit: Exit) -> String {
    match (exit.code, exit.signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("exit {code}"),
        (None, None) => "exit unknown".to_owned(),
    }
}

/// A word of a command line, in quotes where a shell would need them.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

struct Rows(Table);

impl Rows {
    fn add(&mut self, key: &str, value: String) {
        self.0.row([key.to_owned(), value]);
    }

    fn maybe(&mut self, key: &str, value: Option<String>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::reply::TreeProcess;
    use protocol::{Lifecycle, Reason};

    use super::*;
    use crate::testing;

    const NOW: Timestamp = Timestamp(1_700_000_300_000);

    #[test]
    fn a_list_is_plain_and_stable_when_piped() {
        let view = testing::session("web");
        let expected = "ID      NAME  AGENT  STATE  STATUS  QUEUE  RUNS  ACTIVE\n\
                        sess_1  web   shell  live   idle    0      sh    2023-11-14T22:13:20.000Z\n";
        assert_eq!(sessions(std::slice::from_ref(&view), Style::default(), NOW), expected);
        let style = Style { terminal: true, ..Style::default() };
        assert!(sessions(&[view], style, NOW).ends_with("sh    5m ago\n"));
    }

    #[test]
    fn what_an_agent_supplied_cannot_write_to_the_terminal() {
        let mut view = testing::session("web");
        view.session.current_command = Some("\x1b[2Jevil\n".into());
        view.session.spec.command = vec!["sh".into(), "-c".into(), "echo '\x07'".into()];
        view.session.labels.insert("k".into(), "a\x1bb".into());
        let shown = sessions(&[view.clone()], Style::default(), NOW) + &session(&view, Style::default(), NOW);
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        assert!(shown.contains(r"sh -c 'echo '\''\x07'\'''"), "{shown}");
        assert!(!shown.contains("hunter2"));
    }

    #[test]
    fn a_state_has_its_reason() {
        let mut view = testing::session("web");
        assert_eq!(state_line(&view), "sess_1  web  live");
        view.session.lifecycle = Lifecycle::Stopped;
        view.session.reason = Some(Reason::Killed);
        view.session.exit = Some(Exit { code: None, signal: Some(15), at: NOW });
        assert_eq!(state_line(&view), "sess_1  web  stopped(killed), signal 15");
    }

    #[test]
    fn a_session_shows_where_it_is_and_its_processes() {
        let mut view = testing::session("web");
        let shown = session(&view, Style::default(), NOW);
        assert!(shown.contains("runs in        /tmp/sub\n") && !shown.contains("processes"), "{shown}");
        let process = protocol::ProcId { pid: 60, start: 6 };
        view.processes = vec![TreeProcess { process, parent: 1, command: "reaper".into() }];
        assert!(session(&view, Style::default(), NOW).ends_with("processes\n  60  reaper\n"));
    }
}
