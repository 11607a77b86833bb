//! The pool's status, for people and as JSON.

use protocol::reply::{BreakerView, Capacity, Component, PendingAsk, Status};
use protocol::tmux::TmuxTransport;
use protocol::{AskKind, Timestamp};
use serde_json::{Map, Value, json};

use crate::show::json::Json;
use crate::show::out::Style;
use crate::show::table::Table;
use crate::show::time::{rfc3339_of_seconds, when};
use crate::show::{agent, escape, hint, queue, size};

/// The components that a pool needs besides `poold`.
const NEEDED: [&str; 2] = ["tmux-watch", "reaper"];

/// Maximum number of waiting sessions that are named in the overview.
const NAMED_MAX: usize = 5;

/// True if all components are connected and there is no problem.
pub(crate) fn is_healthy(status: &Status) -> bool {
    status.problems.is_empty() && is_complete(status)
}

/// True if all components are connected.
pub(crate) fn is_complete(status: &Status) -> bool {
    NEEDED.iter().all(|name| component(status, name).is_some_and(|component| component.connected))
}

/// Returns the component of this name.
pub(crate) fn component<'a>(status: &'a Status, name: &str) -> Option<&'a Component> {
    status.components.iter().find(|component| component.name == name)
}

/// Returns the document of `status --json`, without `outdated`, which needs more than the status.
pub(crate) fn document(status: &Status) -> Value {
    let server = status.tmux.server;
    json!({
        "pool": status.pool,
        "healthy": is_healthy(status),
        "build": status.build,
        "pid": status.process.pid,
        "start_time": status.process.start,
        "epoch": status.epoch,
        "seq": status.seq,
        "started_at": Json(status.started_at),
        "components": status.components.iter().map(component_document).collect::<Vec<_>>(),
        "tmux": {
            "socket": status.tmux.socket,
            "state": status.tmux.state,
            "detail": status.tmux.detail,
            "server_pid": server.map(|server| server.process.pid),
            "server_started_at": server.map(|server| rfc3339_of_seconds(server.started_at)),
            "seen_at": status.tmux.seen_at.map(Json),
            "connection": status.tmux.means,
            "open_files": status.tmux.open_files.map(share),
        },
        "sessions": status.sessions.iter().map(|(state, n)| (state.clone(), json!(n))).collect::<Map<_, _>>(),
        "slots": share((status.slots_used, status.slots_max)),
        "queue": Json(&status.queue),
        "foreign": status.foreign,
        "generators": status.generators,
        "breakers": status.breakers.iter().map(breaker_document).collect::<Vec<_>>(),
        "database_bytes": status.database_bytes,
        "quarantined": status.quarantined,
        "free_bytes": status.free_bytes,
        "state_dir": status.state_dir,
        "problems": status.problems.iter().map(|problem| hint::message(problem)).collect::<Vec<_>>(),
        "room": room_document(&status.room),
        "asking": status.asking.iter().map(asking_document).collect::<Vec<_>>(),
        "inbox": status.inbox,
        "stuck": status.stuck.iter().map(Json).collect::<Vec<_>>(),
    })
}

fn asking_document(asking: &PendingAsk) -> Value {
    json!({
        "session": asking.session,
        "name": asking.name,
        "kind": asking.kind,
        "answerable": asking.answerable,
        "since": Json(asking.since),
    })
}

fn room_document(room: &Capacity) -> Value {
    json!({
        "waiting": room.waiting,
        "memory_bytes": room.memory,
        "terminals": room.terminals.map(share),
        "cgroup": room.cgroup,
        "controllers": room.controllers,
        "without": room.without,
        "short_of": room.short_of,
    })
}

fn component_document(component: &Component) -> Value {
    json!({
        "name": component.name,
        "connected": component.connected,
        "build": component.build,
        "pid": component.pid,
        "since": Json(component.since),
    })
}

/// The document of a number in use and its limit.
fn share((used, max): (u64, u64)) -> Value {
    json!({"used": used, "max": max})
}

fn breaker_document(view: &BreakerView) -> Value {
    let mut document = json!(Json(&view.breaker));
    document["session"] = json!(view.session);
    document["name"] = json!(view.name);
    document["kind"] = json!(view.kind);
    document
}

/// Returns the overview for people.
pub(crate) fn overview(status: &Status, is_healthy: bool, style: Style, now: Timestamp) -> String {
    let (code, word) = if is_healthy { (32, "healthy") } else { (31, "not healthy") };
    let mut text = format!("pool {}: {}\n", status.pool, style.paint(code, word));
    text.push_str(&table(status, style, now).render());
    for problem in &status.problems {
        text.push_str(&format!("{} {}\n", style.paint(31, "problem:"), escape::line(problem)));
    }
    text
}

fn table(status: &Status, style: Style, now: Timestamp) -> Table {
    let mut table = Table::new(&[]);
    let mut row = |key: &str, value: String| table.row([key.to_owned(), value]);
    let since = when(status.started_at, style, now);
    row("poold", format!("pid {}, {}, started {since}", status.process.pid, status.build));
    for name in NEEDED {
        row(name, component_line(component(status, name), style, now));
    }
    row("tmux", tmux_line(status, style, now));
    let sessions: Vec<String> = status.sessions.iter().map(|(state, n)| format!("{n} {state}")).collect();
    row("sessions", if sessions.is_empty() { "none".to_owned() } else { sessions.join(", ") });
    row("slots", slots_line(status));
    for short in &status.room.short_of {
        row("short of", escape::line(short));
    }
    row("limits", limits_line(&status.room));
    row("queue", queue_line(status, style, now));
    row("generators", status.generators.to_string());
    for held in &status.breakers {
        let why = queue::breaker(&held.kind, &held.breaker, now);
        row("held back", format!("{}  {}: {why}", held.session, held.name));
    }
    for asking in status.asking.iter().take(NAMED_MAX) {
        row("asks", asking_line(asking, style, now));
    }
    if status.asking.len() > NAMED_MAX {
        row("asks", format!("{} more: `poolctl ls`", status.asking.len() - NAMED_MAX));
    }
    if status.inbox > 0 {
        row("inbox", format!("{} waiting for you: see `poolctl inbox`", status.inbox));
    }
    if !status.foreign.is_empty() {
        row(
            "foreign",
            format!(
                "{} (outside of the pool; `poolctl adopt NAME` takes in one that no pool has marked)",
                status.foreign.join(" ")
            ),
        );
    }
    row("database", database_line(status));
    row("state", status.state_dir.to_string_lossy());
    table
}

/// Formats a session that waits for a person: `sess_1  web: dialog since 5m ago; answer it with …`.
fn asking_line(asking: &PendingAsk, style: Style, now: Timestamp) -> String {
    let PendingAsk { session, name, kind, answerable, since } = asking;
    let what = kind.map_or("attention", AskKind::as_str);
    let answer = agent::answer(*kind, *answerable, name.as_str());
    format!("{session}  {name}: {what} since {}; answer it with {answer}", when(*since, style, now))
}

fn slots_line(status: &Status) -> String {
    let room = &status.room;
    let taken = format!("{} of {} taken", status.slots_used, status.slots_max);
    let waiting = (room.waiting > 0).then(|| format!("{} waiting", room.waiting));
    let memory = room.memory.map(|bytes| format!("{} memory available", size::short(bytes)));
    let terminals = room.terminals.map(|(used, max)| format!("{used}/{max} terminals in use"));
    let facts = [Some(taken), waiting, memory, terminals];
    facts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The resources that control groups can limit, by the names of the controllers.
const LIMITABLE: [(&str, &str); 3] = [("memory", "memory"), ("pids", "tasks"), ("cpu", "CPU share")];

/// Formats which limits control groups enforce, and why not the others.
fn limits_line(room: &Capacity) -> String {
    let (enforced, others): (Vec<_>, Vec<_>) = LIMITABLE
        .iter()
        .partition(|(controller, _)| room.controllers.iter().any(|known| known == controller));
    let named = |which: &[&(&str, &str)]| which.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    let below = room.cgroup.as_ref().map(|path| format!(" below {}", path.to_string_lossy()));
    let by_groups = (!enforced.is_empty())
        .then(|| format!("{} by control groups{}", named(&enforced), below.unwrap_or_default()));
    let why = room.without.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    // Without a control group poold itself watches the memory.
    let watched = others.iter().any(|(_, name)| *name == "memory").then(|| "memory is watched".to_owned());
    let unbounded: Vec<_> = others.into_iter().filter(|(_, name)| *name != "memory").collect();
    let unbounded = (!unbounded.is_empty()).then(|| format!("{} cannot be bounded{why}", named(&unbounded)));
    [by_groups, watched, unbounded].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn database_line(status: &Status) -> String {
    let size = size::short(status.database_bytes);
    let free = status.free_bytes.map(|bytes| format!(", {} free on its disk", size::short(bytes)));
    let quarantined = match status.quarantined {
        0 => String::new(),
        n => format!(", {n} unreadable records in quarantine (see `poolctl check`)"),
    };
    size + &free.unwrap_or_default() + &quarantined
}

fn component_line(component: Option<&Component>, style: Style, now: Timestamp) -> String {
    let Some(component) = component else { return "never connected".to_owned() };
    let since = when(component.since, style, now);
    if !component.connected {
        return format!("not connected, lost {since}");
    }
    let pid = component.pid.map(|pid| format!("pid {pid}, ")).unwrap_or_default();
    let build = component.build.as_deref().map(|build| format!("{build}, ")).unwrap_or_default();
    format!("{pid}{build}connected {since}")
}

fn tmux_line(status: &Status, style: Style, now: Timestamp) -> String {
    let tmux = &status.tmux;
    let pid = tmux.server.map(|server| format!("pid {}", server.process.pid));
    let connection = tmux.means.map(|means| match means {
        TmuxTransport::Native | TmuxTransport::Control => format!("{} connection", means.as_str()),
        TmuxTransport::Listings => means.as_str().to_owned(),
    });
    let files = tmux.open_files.map(|(used, max)| format!("{used}/{max} files open"));
    let socket = format!("socket {}", tmux.socket.to_string_lossy());
    let verified = verified(component(status, NEEDED[0]), style, now);
    let detail = tmux.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default();
    let facts = [pid, connection, files, Some(socket), Some(verified)];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    format!("{}{detail}, {}", tmux.state, facts.join(", "))
}

/// Formats the time since which a watcher keeps the known state of tmux up to date, or since which none does.
fn verified(watcher: Option<&Component>, style: Style, now: Timestamp) -> String {
    match watcher {
        Some(watcher) if watcher.connected => format!("watched since {}", when(watcher.since, style, now)),
        Some(watcher) => format!("unverified since {}", when(watcher.since, style, now)),
        None => "unverified".to_owned(),
    }
}

fn queue_line(status: &Status, style: Style, now: Timestamp) -> String {
    let queue = &status.queue;
    let oldest = queue.oldest_at.map(|at| format!("; oldest waits since {}", when(at, style, now)));
    let counts = format!(
        "{} queued, {} claimed, {} in doubt, {} dead",
        queue.queued, queue.claimed, queue.in_doubt, queue.dead
    );
    counts + &oldest.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use protocol::{Breaker, SessionId};

    use super::*;
    use crate::manual::contract_tests;
    use crate::testing::status;

    #[test]
    fn a_healthy_pool_is_complete_and_has_no_problem() {
        let mut status = status();
        assert!(is_healthy(&status));
        status.problems.push("disk low".into());
        assert!(!is_healthy(&status) && is_complete(&status));
        status.problems.clear();
        status.components[1].connected = false;
        assert!(!is_healthy(&status));
        status.components.clear();
        assert!(!is_complete(&status), "a component that never connected is missing");
    }

    #[test]
    fn the_overview_names_problems() {
        let mut status = status();
        status.problems.push("tmux is missing\x1b[2J".into());
        let text = overview(&status, is_healthy(&status), Style::default(), Timestamp(0));
        assert!(text.starts_with("pool default: not healthy\n"), "{text}");
        assert!(text.ends_with("problem: tmux is missing\\x1b[2J\n"), "{text}");
        assert!(text.contains("slots       1 of 16 taken\n"), "{text}");
        assert!(text.contains("database    1K, 8G free on its disk\n"), "{text}");
    }

    #[test]
    fn open_breakers_and_quarantined_records_are_named() {
        let mut status = status();
        let breaker = Breaker { failures: 3, opened_at: Some(Timestamp(0)), ..Breaker::default() };
        let (session, name) = (SessionId(1), "web".parse().unwrap());
        status.breakers = vec![BreakerView { session, name, kind: "summarize".into(), breaker }];
        (status.quarantined, status.generators) = (2, 4);
        let text = overview(&status, is_healthy(&status), Style::default(), Timestamp(0));
        let held = "held back   sess_1  web: summarize failed 3 times in a row\n";
        assert!(text.contains(held) && text.contains("2 unreadable records in quarantine"), "{text}");
        let document = document(&status);
        assert_eq!((&document["quarantined"], &document["generators"]), (&json!(2), &json!(4)));
        assert_eq!(document["free_bytes"], 8_u64 << 30);
        let first = &document["breakers"][0];
        assert_eq!(
            (&first["kind"], &first["session"], &first["failures"]),
            (&json!("summarize"), &json!("sess_1"), &json!(3))
        );
    }

    #[test]
    fn waiting_sessions_are_named_with_the_command_and_are_no_problem() {
        let mut status = status();
        assert_eq!(document(&status)["asking"], json!([]));
        assert!(!overview(&status, is_healthy(&status), Style::default(), Timestamp(0)).contains("\nasks "));
        let asking = |number: u64, kind, answerable| PendingAsk {
            session: SessionId(number),
            name: format!("s{number}").parse().unwrap(),
            kind,
            answerable,
            since: Timestamp(number),
        };
        let kinds = [
            (Some(AskKind::Permission), true, "permission", "approve s1`, `poolctl approve s1 --deny`"),
            (Some(AskKind::Permission), false, "permission", "attach s2`"),
            (Some(AskKind::Dialog), false, "dialog", "attach s3`"),
            (Some(AskKind::Message), false, "message", "queue resolve s4 ID --as 'done|retry|dead'`"),
            (None, false, "attention", "attach s5`"),
        ];
        let found = kinds.iter().zip(1..).map(|((kind, answerable, ..), n)| asking(n, *kind, *answerable));
        status.asking = found.collect();
        let text = overview(&status, is_healthy(&status), Style::default(), Timestamp(0));
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("asks ")).collect();
        assert_eq!(lines.len(), kinds.len(), "{text}");
        for (n, (line, (_, _, word, answer))) in (1..).zip(lines.iter().zip(&kinds)) {
            let begin = format!(
                "asks        sess_{n}  s{n}: {word} since 1970-01-01T00:00:00.00{n}Z; answer it with `poolctl "
            );
            assert!(line.strip_prefix(&begin).is_some_and(|rest| rest.starts_with(answer)), "{line}");
        }
        status.asking.extend([asking(6, None, false), asking(7, None, false)]);
        let text = overview(&status, is_healthy(&status), Style::default(), Timestamp(0));
        assert!(text.contains("asks        2 more: `poolctl ls`\n") && !text.contains("s6"), "{text}");
        assert!(text.starts_with("pool default: healthy\n") && is_healthy(&status));
        let document = document(&status);
        assert_eq!(document["asking"].as_array().map(Vec::len), Some(7));
        let first = json!({
            "session": "sess_1", "name": "s1", "kind": "permission", "answerable": true,
            "since": "1970-01-01T00:00:00.001Z"
        });
        assert_eq!((&document["asking"][0], &document["asking"][4]["kind"]), (&first, &Value::Null));
    }

    #[test]
    fn capacity_and_enforced_limits_are_shown() {
        let mut status = status();
        let text = overview(&status, is_healthy(&status), Style::default(), Timestamp(0));
        assert!(
            text.contains("limits      memory is watched; tasks, CPU share cannot be bounded\n"),
            "{text}"
        );
        status.room = Capacity {
            waiting: 2,
            memory: Some(8 << 30),
            terminals: Some((12, 4096)),
            cgroup: Some("/sys/fs/cgroup/x".into()),
            controllers: vec!["memory".into(), "pids".into()],
            without: Some("cpu is not delegated".into()),
            short_of: vec!["96% of the disk are in use".into()],
        };
        let text = overview(&status, is_healthy(&status), Style::default(), Timestamp(0));
        let slots = "slots       1 of 16 taken, 2 waiting, 8G memory available, 12/4096 terminals in use\n";
        let limits = "limits      memory, tasks by control groups below /sys/fs/cgroup/x; \
                      CPU share cannot be bounded: cpu is not delegated\n";
        assert!(text.contains(slots) && text.contains(limits), "{text}");
        assert!(text.contains("short of    96% of the disk are in use\n"), "{text}");
        let expected = json!({
            "waiting": 2, "memory_bytes": 8_u64 << 30, "terminals": {"used": 12, "max": 4096},
            "cgroup": "/sys/fs/cgroup/x", "controllers": ["memory", "pids"], "without": "cpu is not delegated",
            "short_of": ["96% of the disk are in use"]
        });
        assert_eq!(document(&status)["room"], expected);
    }

    #[test]
    fn the_document_has_its_keys() {
        let mut document = document(&status());
        // The verb adds them.
        (document["outdated"], document["unkept"]) = (json!([]), json!(false));
        contract_tests::check(&document, "JSON of the pool");
        assert_eq!(document["healthy"], true);
        assert_eq!(document["slots"], json!({"used": 1, "max": 16}));
        assert_eq!(document["sessions"], json!({"live": 1}));
        assert_eq!(document["tmux"]["server_pid"], 50);
        assert_eq!(document["tmux"]["connection"], "native");
        assert_eq!(document["tmux"]["open_files"], json!({"used": 37, "max": 65_536}));
        assert_eq!(document["components"][0]["since"], "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn unknown_facts_about_tmux_are_null() {
        let mut status = status();
        (status.tmux.means, status.tmux.open_files) = (None, None);
        let document = document(&status);
        for key in ["detail", "seen_at", "connection", "open_files"] {
            assert_eq!(document["tmux"].get(key), Some(&Value::Null), "{key}");
        }
    }

    #[test]
    fn the_transport_and_foreign_sessions_are_shown() {
        let mut status = status();
        let line = |status: &Status| tmux_line(status, Style::default(), Timestamp(0));
        assert_eq!(
            line(&status),
            "up, pid 50, native connection, 37/65536 files open, socket /state/run/tmux.sock, \
             watched since 1970-01-01T00:00:00.000Z"
        );
        status.tmux.state = "stopped".into();
        status.tmux.detail = Some("SIGSTOP; kill -CONT 50".into());
        (status.tmux.means, status.tmux.open_files) = (Some(TmuxTransport::Listings), None);
        status.components[0].connected = false;
        assert_eq!(
            line(&status),
            "stopped: SIGSTOP; kill -CONT 50, pid 50, listings, socket /state/run/tmux.sock, \
             unverified since 1970-01-01T00:00:00.000Z"
        );
        status.foreign = vec!["mine".into(), "other".into()];
        let text = overview(&status, is_healthy(&status), Style::default(), Timestamp(0));
        let hint = "foreign     mine other (outside of the pool; `poolctl adopt NAME` takes in one that no pool has marked)\n";
        assert!(text.contains(hint), "{text}");
    }
}
