//! Sessions as text.

use std::collections::BTreeMap;

use protocol::{Exit, Lifecycle, OsBytes, ProcId, Session, SessionId, SessionView, Timestamp, redact};

use crate::error_lines::ErrorLines;
use crate::show::json::json_name;
use crate::show::out::Style;
use crate::show::table::Table;
use crate::show::time::{due, when};
use crate::show::{agent, escape, hint, lifecycle, lock, resources, time, tree};

/// Returns a table of sessions. `needs` are the kinds of inbox items of each session.
pub(crate) fn sessions(
    views: &[SessionView],
    needs: &BTreeMap<SessionId, Vec<String>>,
    style: Style,
    now: Timestamp,
) -> String {
    let header = ["ID", "NAME", "AGENT", "STATE", "STATUS", "ACTIVITY", "QUEUE", "RUNS", "ACTIVE"];
    let mut table = Table::new(&header);
    for view in views {
        let session = &view.session;
        table.row([
            session.id.to_string(),
            session.name.to_string(),
            session.spec.agent.clone(),
            state(view),
            view.status().or(view.slot_wait.map(|_| "waiting")).unwrap_or_default().to_owned(),
            activity(view, needs.get(&session.id).map_or(&[], Vec::as_slice)),
            open_messages(view).to_string(),
            session.current_command.as_ref().map(OsBytes::to_string_lossy).unwrap_or_default(),
            when(session.last_activity_at, style, now),
        ]);
        if let Some(code) = agent::colour(view.activity.state).filter(|_| style.colour) {
            table.paint(5, code);
        }
    }
    table.render()
}

/// Formats the activity of the agent, and the other things of the session that wait for a person: `idle !held_back`.
fn activity(view: &SessionView, needs: &[String]) -> String {
    let asked = view.activity.ask.as_ref().map(|ask| ask.kind.as_str());
    // The inbox has one item for all lost sessions, and each of these shows itself that it is lost.
    let others = needs.iter().filter(|kind| asked != Some(kind.as_str()) && *kind != "lost");
    let others = others.map(|kind| format!("!{kind}"));
    let words = agent::state(view).map(str::to_owned).into_iter().chain(others);
    words.collect::<Vec<_>>().join(" ")
}

/// Returns everything about one session: a row per fact, then the question to a person, its processes and the
/// end of its output.
pub(crate) fn session(
    view: &SessionView,
    (errors, replay): (Option<&ErrorLines>, Option<&str>),
    style: Style,
    now: Timestamp,
) -> String {
    let session = &view.session;
    let command = redact::command(&session.spec.command);
    let command: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let mut rows = Rows(Table::new(&[]));
    rows.add("id", session.id.to_string());
    rows.add("name", session.name.to_string());
    rows.add("workspace", session.workspace.to_string());
    rows.add("state", state(view));
    rows.maybe("status", view.status().map(str::to_owned));
    rows.agent(view, style, now);
    rows.ending(view, style, now);
    rows.maybe("ended at latest", session.drain_deadline.map(|deadline| due(deadline.at(), style, now)));
    rows.maybe("errors", errors.map(|errors| error_lines(errors, style, now)));
    rows.maybe("next start", lifecycle::next_start(session, now));
    rows.maybe("waits", view.slot_wait.map(|position| format!("for a slot, position {position}")));
    rows.add("agent", session.spec.agent.clone());
    rows.add("command", command.join(" "));
    rows.add("cwd", session.spec.cwd.to_string_lossy());
    rows.add("dir", session.dir.to_string_lossy());
    rows.add("labels", labels(&session.labels));
    rows.bounds(view);
    rows.add("size", format!("{}x{}", session.spec.size.cols, session.spec.size.rows));
    rows.maybe("runs", session.current_command.as_ref().map(OsBytes::to_string_lossy));
    rows.maybe("runs in", view.current_dir.as_ref().map(OsBytes::to_string_lossy));
    rows.maybe("uses", view.usage.as_ref().map(resources::usage).filter(|used| !used.is_empty()));
    rows.run(view);
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
    rows.maybe("locked", view.lock.as_ref().map(|held| lock::line(held, style, now)));
    rows.add("created", when(session.created_at, style, now));
    rows.add("active", when(session.last_activity_at, style, now));
    let unseen = lifecycle::unseen_since(view, style, now);
    rows.maybe("observed", unseen.map(|since| format!("not since {since}")));
    rows.maybe("verified", session.verified_at.map(|at| when(at, style, now)));
    rows.add("origin", json_name(&session.origin));
    rows.maybe("adopted", session.origin.is_adopted().then(|| "yes".to_owned()));
    rows.maybe(
        "plan",
        view.plan.as_ref().map(|_| hint::command(&format!("poolctl show {} --plan", session.name))),
    );
    rows.maybe("wrote", view.files.first().map(|last| last_file_and_others(last, view.files.len() - 1)));
    let processes = tree::render(&view.processes);
    let processes = if processes.is_empty() { processes } else { format!("processes\n{processes}") };
    rows.0.render() + &agent::asked(view, style) + &processes + &agent::replay(replay)
}

/// Formats the files that an agent wrote in a line: the last one, and the number of others.
fn last_file_and_others(last: &str, others: usize) -> String {
    if others == 0 { last.to_owned() } else { format!("{last} and {others} more") }
}

/// Formats the state in a line, as the verbs that change a session print it:
/// `sess_1  web  stopped(exited), exit 0`.
pub(crate) fn state_line(view: &SessionView) -> String {
    let exit = view.session.exit.filter(|_| !view.session.lifecycle.holds_slot());
    let exit = exit.map(|exit| format!(", {}", exit_status(exit))).unwrap_or_default();
    format!("{}  {}  {}{exit}", view.session.id, view.session.name, state(view))
}

/// Returns why a session does not run, as a sentence: `sess_1 is lost: its tmux server went away`.
pub(crate) fn why_ended(view: &SessionView) -> String {
    let session = &view.session;
    let exit = session.exit.map(exit_status);
    let why = lifecycle::why(session, open_messages(view));
    let facts: Vec<String> = [why, session.detail.clone(), exit].into_iter().flatten().collect();
    let unknown = || lifecycle::unknown_exit(session).map(|why| format!("its exit status is {why}"));
    let facts = if facts.is_empty() { unknown().unwrap_or_default() } else { facts.join("; ") };
    let state = format!("{} is {}", session.id, json_name(&session.lifecycle));
    if facts.is_empty() { state } else { format!("{state}: {facts}") }
}

/// Formats labels in a line, without secrets.
pub(crate) fn labels(labels: &BTreeMap<String, String>) -> String {
    let labels = redact::labels(labels);
    let labels = labels.iter().map(|(key, value)| escape::line(&format!("{key}={value}")));
    labels.collect::<Vec<_>>().join(" ")
}

fn state(view: &SessionView) -> String {
    let state = json_name(&view.session.lifecycle);
    match view.session.reason.filter(|_| view.session.lifecycle != Lifecycle::Live) {
        Some(reason) => format!("{state}({})", lifecycle::short_reason(reason)),
        None => state,
    }
}

/// Formats the error lines: `3, the last one 2m ago: make: *** [all] Error 1`.
fn error_lines(errors: &ErrorLines, style: Style, now: Timestamp) -> String {
    let at = errors.last_at.map(|at| format!(" {}", when(at, style, now))).unwrap_or_default();
    let last = errors.last.as_ref().map(|line| format!(", the last one{at}: {line}"));
    format!("{}{}", errors.count, last.unwrap_or_default())
}

fn exit_status(exit: Exit) -> String {
    match (exit.code, exit.signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("exit {code}"),
        (None, None) => "exit unknown".to_owned(),
    }
}

/// Returns the number of a session's messages that are not final.
fn open_messages(view: &SessionView) -> u64 {
    view.queue.queued + view.queue.claimed + view.queue.in_doubt
}

/// Quotes a word of a command line if a shell would need it.
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

    /// Adds the reason for the state and the end of the last program.
    fn ending(&mut self, view: &SessionView, style: Style, now: Timestamp) {
        let session = &view.session;
        let why =
            lifecycle::why(session, open_messages(view)).filter(|_| session.lifecycle != Lifecycle::Live);
        self.maybe("why", why);
        self.maybe("detail", session.detail.clone());
        let exit = session.exit.map(|exit| format!("{}, {}", exit_status(exit), when(exit.at, style, now)));
        let run_time = resources::run_time(session, now);
        self.maybe("duration", run_time.map(time::short));
        self.maybe("exit", exit.or_else(|| lifecycle::unknown_exit(session)));
        self.maybe("used in total", session.account.as_ref().map(resources::account));
        self.maybe("start with", lifecycle::how_to_start(session));
    }

    /// Adds the activity of the agent and further facts about it.
    fn agent(&mut self, view: &SessionView, style: Style, now: Timestamp) {
        self.maybe("activity", agent::activity(view, style, now));
        self.maybe("limited", agent::usage_limit(view, style, now));
        self.add("rest", view.rest_state(now).as_str().to_owned());
        self.maybe("prompt waits", view.waits.clone());
        self.maybe("confirmed", agent::confirmation(view));
        self.maybe("tokens", agent::tokens(view));
        self.maybe("skill", view.notes.skill.clone());
        let thought = view.thought.as_ref();
        self.maybe("thought", thought.and_then(|thought| thought.text.clone()));
        self.maybe("thinks", thought.map(|thought| agent::thought(thought, style, now)));
        self.maybe("colours", view.theme.as_ref().map(agent::theme));
    }

    /// Adds the processes and the pane of a session that runs. Those of a session that has ended may belong to others
    /// by now.
    fn run(&mut self, view: &SessionView) {
        let session = &view.session;
        let run = session.running();
        let pid = |process: Option<ProcId>| process.map(|process| process.pid.to_string());
        self.maybe("agent process", pid(run.and_then(|run| run.agent)));
        self.maybe("init process", pid(run.and_then(|run| run.init)));
        self.maybe("pane", run.and_then(|run| run.pane).map(|pane| pane.to_string()));
        self.maybe("tmux server", pid(run.and_then(|run| run.server).map(|server| server.process)));
        let group = run.and_then(|run| run.cgroup.as_ref());
        self.maybe("cgroup", group.map(OsBytes::to_string_lossy));
    }

    /// Adds the limits, the policy and the conversation.
    fn bounds(&mut self, view: &SessionView) {
        let Session { spec, policy, incarnation, conversation, .. } = &view.session;
        self.add("limits", resources::limits(&spec.limits));
        for limit in incarnation.iter().flat_map(|i| &i.unenforced) {
            self.add("not enforced", limit.clone());
        }
        self.add("policy", lifecycle::policy(policy));
        let parkable = match (view.parkable, policy.pinned) {
            (true, false) => "automatically",
            (true, true) => "only by `poolctl park`, as it is pinned",
            (false, _) => "only by `poolctl park`",
        };
        self.add("parkable", hint::message(parkable));
        self.maybe(
            "conversation",
            conversation.as_ref().map(|conversation| {
                let resumed = incarnation.as_ref().is_some_and(|i| i.resumed);
                let how = if resumed { " (resumed)" } else { "" };
                format!("{}{how}", conversation.id)
            }),
        );
    }

    fn maybe(&mut self, key: &str, value: Option<String>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::Reason;
    use protocol::activity::{Ask, AskKind};
    use protocol::reply::{LockView, TreeProcess};
    use protocol::session::Conversation;

    use super::*;
    use crate::testing;

    const NOW: Timestamp = Timestamp(1_700_000_300_000);

    #[test]
    fn a_list_is_plain_and_stable_when_piped() {
        let view = testing::session("web");
        let expected = "ID      NAME  AGENT  STATE  STATUS  ACTIVITY  QUEUE  RUNS  ACTIVE\n\
                        sess_1  web   shell  live   idle    unknown   0      sh    2023-11-14T22:13:20.000Z\n";
        assert_eq!(sessions(std::slice::from_ref(&view), &BTreeMap::new(), Style::default(), NOW), expected);
        let style = Style { terminal: true, ..Style::default() };
        assert!(sessions(&[view], &BTreeMap::new(), style, NOW).ends_with("sh    5m ago\n"));
    }

    #[test]
    fn a_row_names_what_waits_for_a_person_besides_the_question() {
        let mut view = testing::session("web");
        let ask = |kind| Ask { id: 1, kind, text: String::new(), tool: None, answerable: false };
        view.activity.ask = Some(ask(AskKind::Dialog));
        let needs = ["dialog".to_owned(), "unconfirmed".to_owned()];
        assert_eq!(activity(&view, &needs), "unknown !unconfirmed");
    }

    #[test]
    fn supplied_text_cannot_command_the_terminal() {
        let mut view = testing::session("web");
        view.session.current_command = Some("\x1b[2Jevil\n".into());
        view.session.spec.command = vec!["sh".into(), "-c".into(), "echo '\x07'".into()];
        view.session.labels.insert("k".into(), "a\x1bb".into());
        let shown = sessions(&[view.clone()], &BTreeMap::new(), Style::default(), NOW)
            + &session(&view, (None, None), Style::default(), NOW);
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
        (view.session.reason, view.session.exit) = (Some(Reason::Exited), None);
        let told = why_ended(&view);
        assert!(told.starts_with("sess_1 is stopped: its exit status is not known: its init"), "{told}");
    }

    #[test]
    fn where_a_session_comes_from_is_shown() {
        let shown = |view: &SessionView| session(view, (None, None), Style::default(), NOW);
        let mut view = testing::session("web");
        let has = |text: &str, row: [&str; 2]| text.lines().any(|line| line.split_whitespace().eq(row));
        assert!(has(&shown(&view), ["origin", "api_create"]), "{}", shown(&view));
        view.session.origin = protocol::session::Origin::Adopted;
        let text = shown(&view);
        assert!(has(&text, ["origin", "adopted"]) && has(&text, ["adopted", "yes"]), "{text}");
    }

    #[test]
    fn a_session_shows_its_policy_and_limits() {
        let mut view = testing::session("web");
        let shown = |view: &SessionView| {
            let text = session(view, (None, None), Style::default(), NOW);
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let has = |view: &SessionView, line: &str| {
            assert!(shown(view).iter().any(|shown| shown == line), "{line}: {:#?}", shown(view));
        };
        has(&view, "limits none");
        has(&view, "policy no restart");
        has(&view, "parkable only by `poolctl park`");
        view.session.spec.limits = "mem=2G,tasks=9".parse().unwrap();
        view.session.spec.limits.best_effort = true;
        let incarnation = view.session.incarnation.as_mut().unwrap();
        incarnation.unenforced = vec!["tasks: no control group".into()];
        incarnation.resumed = true;
        view.session.conversation = Some(Conversation { id: "abc".into(), begun: true });
        (view.parkable, view.slot_wait) = (true, Some(2));
        view.lock = Some(LockView {
            token: "3.17".parse().unwrap(),
            purpose: "deploy".into(),
            holder: Some(ProcId { pid: 12, start: 5 }),
            since: Some(NOW),
            ..LockView::default()
        });
        has(&view, "locked deploy (pid 12, token 3.17), since 2023-11-14T22:18:20.000Z");
        has(&view, "limits mem=2G,tasks=9 (as far as they can be enforced)");
        has(&view, "not enforced tasks: no control group");
        has(&view, "conversation abc (resumed)");
        has(&view, "parkable automatically");
        has(&view, "waits for a slot, position 2");
        (view.session.lifecycle, view.session.reason) = (Lifecycle::Parked, Some(Reason::Evicted));
        view.session.budget.due_at = Some(NOW.after(std::time::Duration::from_secs(12)));
        has(&view, "state parked(evicted)");
        has(&view, "why parked to free its slot for another session");
        has(&view, "exit not known: its init was killed, or could not write, before it left an exit record");
        has(&view, "start with a prompt, `poolctl attach web` or `poolctl restore web`");
        has(&view, "next start in 12s");
        let listed = sessions(std::slice::from_ref(&view), &BTreeMap::new(), Style::default(), NOW);
        assert!(listed.contains("parked(evicted)  waiting"), "{listed}");
    }

    #[test]
    fn an_ended_session_shows_no_process_and_no_pane() {
        let mut view = testing::session("web");
        let run = view.session.incarnation.as_mut().unwrap();
        (run.init, run.agent) = (Some(ProcId { pid: 5, start: 6 }), Some(ProcId { pid: 7, start: 8 }));
        (run.pane, run.cgroup) = (Some(protocol::PaneId(3)), Some("/group".into()));
        let shown = |view: &SessionView| session(view, (None, None), Style::default(), NOW);
        let rows = ["agent process", "init process", "pane", "cgroup"];
        assert!(rows.iter().all(|row| shown(&view).contains(&format!("\n{row}  "))), "{}", shown(&view));
        view.session.lifecycle = Lifecycle::Stopped;
        assert!(!rows.iter().any(|row| shown(&view).contains(&format!("\n{row}  "))), "{}", shown(&view));
    }

    #[test]
    fn a_session_shows_where_it_is_and_its_processes() {
        let mut view = testing::session("web");
        let shown = session(&view, (None, None), Style::default(), NOW);
        assert!(shown.contains("runs in        /tmp/sub\n") && !shown.contains("processes"), "{shown}");
        let process = ProcId { pid: 60, start: 6 };
        view.processes = vec![TreeProcess { process, parent: 1, command: "reaper".into() }];
        assert!(session(&view, (None, None), Style::default(), NOW).ends_with("processes\n  60  reaper\n"));
    }
}
