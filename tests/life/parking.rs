//! Many sessions on few slots: which are parked, which never are, and how each returns as it was.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{
    attached, await_lines, await_slots, events, few_slots, keeper, lines, most_running, running, slots,
    states,
};
use crate::harness::{Outer, PATIENCE, Pool, Talk, number, send_signal, wait_until};

/// An agent that resumes its conversation.
const TALKER: &str = r#"
[agents.talker]
command = "sh"
args = ["-c", 'echo "$*" >>runs; while IFS= read -r line; do printf "%s\n" "$line" >>got; done', "talker"]
start_args = ["--begin", "{conversation}"]
resume_args = ["--take-up", "{conversation}"]
"#;

#[track_caller]
fn send(pool: &Pool, session: &str, text: &str) -> String {
    pool.ok(&["send", session, text])
}

/// Sends text and waits until the agent has read it.
#[track_caller]
fn tell(pool: &Pool, session: &str, text: &str) {
    pool.ok(&["send", session, "--wait", "done", text]);
    let got = pool.dir(session).join("work/got");
    wait_until(&format!("{session} read {text}"), PATIENCE, || {
        std::fs::read_to_string(&got).is_ok_and(|got| got.lines().any(|line| line == text))
    });
}

#[test]
fn park_waits_for_a_launch_in_progress() {
    let pool = Pool::new();
    pool.script("first", "exec sleep 1000");
    let server = pool.tmux_pid().unwrap();
    send_signal(server, Signal::SIGSTOP);
    let mut new = Talk::start(pool.poolctl().args(["new", "late", "--", "sleep", "1000"]));
    wait_until("it starts", PATIENCE, || {
        let shown = pool.ctl(&["--json", "show", "late"]);
        shown.code == 0 && shown.json()["lifecycle"] == "starting"
    });
    let told = pool.ctl(&["--timeout", "300ms", "park", "late"]);
    send_signal(server, Signal::SIGCONT);
    assert_eq!(told.code, 6, "it waits: {told:?}");
    assert_eq!(new.await_end(), Some(0));
    pool.await_lifecycle("late", "parked");
}

#[test]
fn park_waits_for_the_launch_of_a_restart() {
    let pool = Pool::with("[reaper]\ngrace = '700ms'\n");
    let id = pool.script("web", "trap '' HUP TERM; echo begins; while :; do sleep 0.1; done");
    wait_until("it ignores signals", PATIENCE, || pool.ok(&["logs", &id]).contains("begins"));
    let mut restart = Talk::start(pool.poolctl().args(["restart", &id]));
    let is_told = || pool.event_kinds(&id).iter().any(|kind| kind == "session_draining");
    wait_until("it drains", PATIENCE, is_told);
    pool.ok(&["park", &id]);
    restart.await_end();
    let shown = pool.show(&id);
    assert_eq!((&shown["lifecycle"], &shown["restarts"]), (&"parked".into(), &1.into()), "{shown}");
}

/// Begins to park a session, and crashes the daemon meanwhile.
fn cut_short(pool: &Pool, park: &[&str], id: &str) {
    let first = Talk::start(pool.poolctl().args(park));
    pool.await_lifecycle(id, "draining");
    first.end();
    pool.restart_poold();
}

#[test]
fn a_forced_park_that_a_crash_cut_short_is_done_by_its_repeat() {
    let pool = Pool::new();
    let go = pool.path("go");
    let script = format!("trap 'test ! -e {} || exit 0' HUP TERM; while :; do sleep 0.1; done", go.display());
    let id = pool.script("web", &script);
    let _viewer = Talk::attached(&pool, "web");
    wait_until("a client is attached", PATIENCE, || pool.show(&id)["attached_clients"] == 1);
    let park = ["--timeout", "60s", "park", "--force", "web", "--grace", "4s", "--op-id", "p1"];
    cut_short(&pool, &park, &id);
    // Who attached is spared by the start, which does not know that the parking was forced.
    pool.await_lifecycle(&id, "live");
    fs::write(go, "").unwrap();
    pool.ok(&park);
    assert_eq!(pool.lifecycle(&id), "parked");
}

#[test]
fn a_late_repeat_of_a_park_that_a_crash_cut_short_spares_what_was_started_since() {
    let pool = Pool::new();
    let id = pool.script("web", "trap '' HUP TERM; while :; do sleep 0.1; done");
    let park = ["--timeout", "60s", "park", "--force", "web", "--grace", "2s", "--op-id", "p1"];
    cut_short(&pool, &park, &id);
    pool.await_lifecycle(&id, "parked");
    pool.ok(&["restore", "web"]);
    let runs = pool.pane_pids(&id);
    pool.ok(&park);
    assert_eq!((pool.lifecycle(&id).as_str(), pool.pane_pids(&id)), ("live", runs));
}

/// The hold on starts is lost with the connection to the daemon that crashed.
#[test]
fn a_pool_whose_sessions_are_stopped_starts_none_that_waits_over_a_crash() {
    let pool = Pool::bare(&few_slots(1).replace("grace = '300ms'", "grace = '3s'"));
    pool.ok(&["up"]);
    let waits = keeper(&pool, "waits");
    pool.ok(&["park", "waits"]);
    let holds = pool.script("holds", "trap '' HUP TERM; while :; do sleep 0.1; done");
    send(&pool, "waits", "hello");
    wait_until("it is in line", PATIENCE, || !pool.show(&waits)["slot_wait"].is_null());
    let mut down = Talk::start(pool.poolctl().args(["--timeout", "60s", "down", "--stop-sessions"]));
    pool.await_lifecycle(&holds, "draining");
    let poold = u32::try_from(pool.status()["pid"].as_u64().unwrap()).unwrap();
    send_signal(poold, Signal::SIGKILL);
    assert_eq!(down.await_end(), Some(0), "{}", down.errors());
    assert!(pool.marked().is_empty(), "nothing runs: {:?}", pool.marked());
}

#[test]
fn a_pool_whose_sessions_are_stopped_starts_none_that_waits() {
    let pool = Pool::bare(&few_slots(1));
    pool.ok(&["up"]);
    let waits = keeper(&pool, "waits");
    pool.ok(&["park", "waits"]);
    pool.script("holds", "exec sleep 1000");
    send(&pool, "waits", "hello");
    wait_until("it is in line", PATIENCE, || !pool.show(&waits)["slot_wait"].is_null());
    let mut new =
        Talk::start(pool.poolctl().args(["new", "late", "--wait-slot", "1m", "--", "sleep", "1000"]));
    wait_until("another one is, too", PATIENCE, || pool.status()["room"]["waiting"] == 2);
    let down = pool.json(&["down", "--stop-sessions"]);
    assert_eq!(down["sessions_alive"], 0, "{down}");
    assert_eq!(new.await_end(), Some(5), "{}", new.errors());
    pool.ok(&["up"]);
    pool.await_lifecycle(&waits, "live");
    pool.ok(&["down", "--stop-sessions"]);
}

#[test]
fn what_its_user_split_off_keeps_no_session_from_starting_again() {
    let pool = Pool::with(&few_slots(4));
    let id = keeper(&pool, "web");
    for end in ["park", "kill"] {
        pool.tmux_text(&["split-window", "-d", "-t", "=web:", "exec sleep 1000"]);
        pool.ok(&[end, &id]);
        pool.ok(&["restart", &id]);
        assert_eq!(pool.lifecycle(&id), "live", "after {end}");
        // The tmux session of its own last run gives up the name, too.
        pool.ok(&["restart", &id]);
        assert_eq!(pool.lifecycle(&id), "live", "after {end} and another restart");
    }
    let names = pool.tmux_text(&["list-sessions", "-F", "#{session_name}"]);
    assert_eq!(names.lines().filter(|name| name.starts_with("left-")).count(), 2, "{names}");
}

/// Parks a session once it counts as idle; returns its document then.
#[track_caller]
fn park(pool: &Pool, session: &str) -> Value {
    pool.ok(&["park", session]);
    let shown = pool.show(session);
    assert_eq!((&shown["lifecycle"], &shown["reason"]), (&"parked".into(), &"parked".into()), "{shown}");
    shown
}

#[test]
fn t23_an_idle_ephemeral_session_is_the_first_to_go_at_the_cap_and_is_removed() {
    let pool = Pool::with(&few_slots(2));
    let kept = keeper(&pool, "kept");
    let shell = pool.ok(&["new", "scratch", "--agent", "shell", "--ephemeral"]);
    pool.ok(&["send", &shell, "--wait", "done", "true"]);
    pool.ok(&["--timeout", "60s", "new", "next", "--agent", "keeper", "--wait-slot", "60s"]);
    assert_eq!(pool.lifecycle(&kept), "live", "idle for longer, and not ephemeral");
    wait_until("it is removed", PATIENCE, || pool.ctl(&["show", &shell]).code == 3);
}

#[test]
fn c11_many_sessions_work_on_few_slots() {
    let messages = number("POOL_PARKING_MESSAGES", 60);
    let (sessions, slots_max) = if messages < 1000 { (10, 3) } else { (20, 4) };
    let pool = Pool::with(&few_slots(slots_max));
    let name = |n: usize| format!("s{n}");
    let text = |session: usize, n: usize| format!("{} message {n}", name(session));
    let taken = Mutex::new(0);
    let (most, ()) = most_running(&pool, || {
        for n in 0..sessions {
            let prompt = text(n, 0);
            pool.ok(&[
                "--timeout",
                "60s",
                "new",
                &name(n),
                "--agent",
                "keeper",
                "--wait-slot",
                "60s",
                "--prompt",
                &prompt,
            ]);
        }
        for n in sessions..messages {
            send(&pool, &name(n % sessions), &text(n % sessions, n / sessions));
        }
        let limit = PATIENCE + Duration::from_millis(600) * u32::try_from(messages).unwrap();
        let began = Instant::now();
        loop {
            let status = pool.status();
            let now = status["slots"]["used"].as_u64().unwrap();
            let mut most = taken.lock().unwrap();
            *most = now.max(*most);
            drop(most);
            if status["queue"]["queued"] == 0 && status["queue"]["claimed"] == 0 {
                break;
            }
            assert!(began.elapsed() < limit, "not all done: {status}\n{}", pool.logs());
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(most <= slots_max && *taken.lock().unwrap() <= slots_max as u64, "{most} of {slots_max} ran");
    assert_eq!(pool.status()["queue"]["in_doubt"], 0);
    for n in 0..sessions {
        let wanted: Vec<String> =
            (0..messages.saturating_sub(n).div_ceil(sessions)).map(|m| text(n, m)).collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        await_lines(&pool, &name(n), "got", &wanted);
    }
    assert!(events(&pool, "session_parked").len() >= sessions - slots_max);
    let states = states(&pool);
    let settled = states.iter().filter(|(state, _)| ["live", "parked", "draining"].contains(&state.as_str()));
    assert_eq!(settled.map(|(_, n)| n).sum::<usize>(), sessions, "{states:?}");
}

#[test]
fn a_parked_session_is_woken_by_a_prompt_an_attach_a_restore_and_a_restart() {
    let pool = Pool::with(&few_slots(4));
    let id = pool.ok(&["new", "web", "--agent", "keeper", "--label", "a=b"]);
    // A session parked before it has noted its run never notes it.
    let await_runs = |runs: usize| {
        wait_until("it noted its run", PATIENCE, || lines(&pool, &id, "runs").len() == runs);
    };
    tell(&pool, &id, "one");
    let before = pool.show(&id);
    let parked = park(&pool, &id);
    for key in ["id", "name", "workspace", "dir", "agent", "labels", "cwd", "created_at", "total_requests"] {
        assert_eq!(before[key], parked[key], "{key}");
    }
    assert_eq!((&parked["rest_state"], &parked["status"]), (&"sleeping".into(), &Value::Null));
    assert!(running(&pool).is_empty() && slots(&pool) == 0, "its slot is free and its program gone");
    tell(&pool, &id, "two");
    park(&pool, &id);
    pool.ok(&["restore", &id]);
    assert_eq!(pool.lifecycle(&id), "live");
    await_runs(3);
    park(&pool, &id);
    pool.ok(&["restart", &id]);
    assert_eq!(pool.lifecycle(&id), "live");
    await_runs(4);
    park(&pool, &id);
    let outer = Outer::run(&pool, &format!("exec poolctl attach {id}"));
    wait_until("a client is attached", PATIENCE, || pool.show(&id)["attached_clients"] == 1);
    assert_eq!(pool.lifecycle(&id), "live");
    drop(outer);
    tell(&pool, &id, "three");
    assert_eq!(lines(&pool, &id, "got"), ["one", "two", "three"]);
    assert_eq!(lines(&pool, &id, "runs").len(), 5, "each woke it once, in the same directory");
    assert_eq!(pool.show(&id)["incarnations"], 5);
}

#[test]
fn park_is_refused_while_somebody_is_attached_or_work_is_left() {
    let pool = Pool::with(&few_slots(4));
    let id = keeper(&pool, "web");
    let client = attached(&pool, &id);
    let refused = pool.ctl(&["park", &id]).expect(4);
    assert!(refused.stderr.contains("attached") && refused.stderr.contains("--force"), "{refused:?}");
    drop(client.end());
    wait_until("no client is attached", PATIENCE, || pool.show(&id)["attached_clients"] == 0);
    let message = pool.ok(&["send", &id, "--kind", "observation", "text"]);
    let refused = pool.ctl(&["park", &id]).expect(4);
    assert!(refused.stderr.contains("not worked yet"), "{refused:?}");
    assert_eq!(pool.lifecycle(&id), "live");
    pool.ok(&["park", "--force", &id]);
    assert_eq!(pool.lifecycle(&id), "parked");
    // A message for a worker wakes no agent.
    send_observation(&pool, &id);
    assert_eq!((pool.lifecycle(&id).as_str(), slots(&pool)), ("parked", 0));
    pool.ok(&["queue", "cancel", &id, &message]);
    pool.ctl(&["park", "nobody"]).expect(3);
    pool.script("over", "exit 0");
    pool.await_lifecycle("over", "stopped");
    pool.ctl(&["park", "over"]).expect(5);
}

fn send_observation(pool: &Pool, session: &str) {
    pool.ok(&["send", session, "--kind", "observation", "more"]);
    pool.ok(&["sync"]);
}

#[test]
fn c11_the_idlest_that_may_be_parked_gives_its_slot_up() {
    let pool = Pool::with(&few_slots(2));
    let (first, second) = (keeper(&pool, "first"), keeper(&pool, "second"));
    tell(&pool, &second, "one");
    // The logs decide which session is the idlest.
    wait_until("its echo is logged", PATIENCE, || {
        pool.ctl(&["logs", &second, "--raw"]).expect(0).stdout.ends_with("one\r\n")
    });
    tell(&pool, &first, "two");
    let third = pool.ok(&["new", "third", "--agent", "keeper", "--wait-slot", "20s"]);
    let shown = pool.show(&second);
    assert_eq!((&shown["lifecycle"], &shown["reason"]), (&"parked".into(), &"evicted".into()), "{shown}");
    assert_eq!((pool.lifecycle(&first).as_str(), pool.lifecycle(&third).as_str()), ("live", "live"));
    // Pinned and attached sessions and those with unfinished messages never give up their slots.
    pool.ok(&["pin", &first]);
    pool.ok(&["send", &third, "--kind", "observation", "text"]);
    let client = attached(&pool, &third);
    tell(&pool, &third, "three");
    let refused = pool.ctl(&["new", "fourth", "--agent", "keeper"]).expect(5);
    assert!(refused.stderr.contains("full"), "{refused:?}");
    assert_eq!((pool.lifecycle(&first).as_str(), pool.lifecycle(&third).as_str()), ("live", "live"));
    pool.ok(&["unpin", &first]);
    pool.ok(&["new", "fourth", "--agent", "keeper"]);
    assert_eq!((pool.lifecycle(&first).as_str(), pool.lifecycle(&third).as_str()), ("parked", "live"));
    drop(client);
}

#[test]
fn c11_an_agent_that_has_only_said_that_it_started_is_not_parked_for_another() {
    let ctl = env!("CARGO_BIN_EXE_poolctl");
    let report = r#"echo "{\"event\":\"started\"}" | "#;
    let agent = format!(
        "[pool]\nmax_sessions = 1\n[agents.hooked]\ncommand = 'sh'\nconfirm = 'hook'\nparkable = true\n\
         args = ['-c', '{report}{ctl} hook generic; exec cat']\n"
    );
    let pool = Pool::with(&agent);
    let id = pool.ok(&["new", "first", "--agent", "hooked"]);
    wait_until("it has reported", PATIENCE, || pool.show(&id)["activity_source"] == "hook");
    let refused = pool.ctl(&["new", "second", "--agent", "hooked"]).expect(5);
    assert!(refused.stderr.contains("full"), "{refused:?}");
    assert_eq!(pool.lifecycle(&id), "live");
}

#[test]
fn c11_those_who_create_the_same_session_together_park_one_for_it() {
    let pool = Pool::with(&few_slots(4));
    let ids: Vec<String> = ["a", "b", "c", "d"].map(|name| keeper(&pool, name)).into();
    for id in &ids {
        tell(&pool, id, "text");
    }
    let same = ["new", "--workspace", "same", "--reuse", "--agent", "keeper", "--wait-slot", "20s"];
    let made: BTreeSet<String> = thread::scope(|scope| {
        let asked: Vec<_> = (0..6).map(|_| scope.spawn(|| pool.ok(&same))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert_eq!(made.len(), 1, "{made:?}");
    pool.ok(&["sync"]);
    let parked = ids.iter().filter(|id| pool.lifecycle(id) != "live").count();
    assert_eq!(parked, 1);
    // The same holds for a start.
    let over = ids.iter().find(|id| pool.lifecycle(id) == "parked").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| pool.ok(&["restore", over]));
        }
    });
    pool.ok(&["sync"]);
    let live = pool.lines(&["ls"]).iter().filter(|shown| shown["lifecycle"] == "live").count();
    assert_eq!((live, pool.lifecycle(over).as_str()), (4, "live"));
}

#[test]
fn c11_shells_and_unknown_programs_are_parked_by_name_alone() {
    let pool = Pool::with(&few_slots(1));
    let refused = pool.ctl(&["new", "web", "--idle-timeout", "200ms", "--", "cat"]).expect(2);
    assert!(refused.stderr.contains("never parked automatically"), "{refused:?}");
    let id = pool.ok(&["new", "web", "--", "cat"]);
    pool.ok(&["send", &id, "--wait", "done", "text"]);
    let refused = pool.ctl(&["new", "next", "--agent", "keeper"]).expect(5);
    assert!(refused.stderr.contains("full"), "{refused:?}");
    assert_eq!(pool.show(&id)["parkable"], false);
    assert_eq!(pool.lifecycle(&id), "live");
    park(&pool, &id);
    keeper(&pool, "next");
}

#[test]
fn c12_what_is_idle_for_longer_than_it_may_is_parked() {
    let pool = Pool::with(&few_slots(4));
    let id = pool.ok(&["new", "web", "--agent", "keeper", "--idle-timeout", "700ms"]);
    let pinned = pool.ok(&["new", "kept", "--agent", "keeper", "--idle-timeout", "700ms", "--pin"]);
    let never = pool.ok(&["new", "never", "--agent", "keeper"]);
    let shown = pool.await_lifecycle(&id, "parked");
    assert_eq!(shown["reason"], "idle");
    assert_eq!((pool.lifecycle(&pinned).as_str(), pool.lifecycle(&never).as_str()), ("live", "live"));
    // A message wakes it; afterwards it is parked again.
    tell(&pool, &id, "one");
    pool.await_lifecycle(&id, "parked");
    assert_eq!(lines(&pool, &id, "got"), ["one"]);
    // The time since the last activity counts, not the age of the session.
    let busy = pool.ok(&[
        "new",
        "busy",
        "--agent",
        "keeper",
        "--idle-timeout",
        "6s",
        "--",
        "sh",
        "-c",
        "for n in $(seq 40); do echo $n; sleep 0.2; done; touch quiet; exec cat",
    ]);
    let quiet = pool.dir(&busy).join("work/quiet");
    wait_until("it is parked", PATIENCE, || pool.lifecycle(&busy) == "parked");
    assert!(quiet.exists(), "not while it wrote");
}

#[test]
fn a_conversation_is_begun_once_and_taken_up_after_that() {
    let pool = Pool::with(&format!("{}{TALKER}", few_slots(2)));
    let id = pool.ok(&["new", "web", "--agent", "talker"]);
    let conversation = || pool.show(&id)["conversation"]["id"].as_str().unwrap().to_owned();
    let first = format!("--begin {}", conversation());
    assert_eq!(conversation().len(), 36);
    await_lines(&pool, &id, "runs", &[&first]);
    // Nothing was said, so there is nothing to resume: it starts a new conversation.
    park(&pool, &id);
    pool.ok(&["restore", &id]);
    let talk = conversation();
    let begin = format!("--begin {talk}");
    await_lines(&pool, &id, "runs", &[&first, &begin]);
    assert_eq!(pool.show(&id)["resumed"], false);
    tell(&pool, &id, "one");
    for n in 1..=2 {
        park(&pool, &id);
        tell(&pool, &id, &format!("more {n}"));
        let shown = pool.show(&id);
        assert_eq!((&shown["resumed"], &shown["parkable"]), (&true.into(), &true.into()));
        assert_eq!(conversation(), talk);
    }
    let take_up = format!("--take-up {talk}");
    await_lines(&pool, &id, "runs", &[&first, &begin, &take_up, &take_up]);
    pool.ok(&["restart", &id]);
    await_lines(&pool, &id, "runs", &[&first, &begin, &take_up, &take_up, &take_up]);
    pool.ok(&["restart", "--fresh", &id]);
    let fresh = conversation();
    assert_ne!(fresh, talk);
    assert_eq!(pool.show(&id)["resumed"], false);
    let fresh = format!("--begin {fresh}");
    await_lines(&pool, &id, "runs", &[&first, &begin, &take_up, &take_up, &take_up, &fresh]);
}

#[test]
fn who_waits_to_be_woken_is_woken_in_order_and_no_message_fails() {
    let pool = Pool::with(&few_slots(1));
    for name in ["a", "b", "c"] {
        let id = keeper(&pool, name);
        park(&pool, &id);
    }
    pool.script("holder", "exec sleep 1000");
    let first = events(&pool, "session_starting").len();
    for name in ["c", "a", "b"] {
        send(&pool, name, "text");
    }
    wait_until("all wait", PATIENCE, || pool.status()["room"]["waiting"] == 3);
    let places: Vec<Value> =
        ["c", "a", "b"].iter().map(|name| pool.show(name)["slot_wait"].clone()).collect();
    assert_eq!(places, [1, 2, 3]);
    pool.ok(&["kill", "holder"]);
    for name in ["c", "a", "b"] {
        await_lines(&pool, name, "got", &["text"]);
    }
    let started: Vec<Value> = events(&pool, "session_starting")[first..].to_vec();
    let of = |name: &str| pool.show(name)["id"].clone();
    let order: Vec<&Value> = started.iter().map(|event| &event["session"]).collect();
    assert_eq!(order, [&of("c"), &of("a"), &of("b")], "{started:#?}");
}

#[test]
fn a_full_pool_wakes_a_session_once_there_is_a_slot() {
    let pool = Pool::with(&few_slots(1));
    let id = keeper(&pool, "web");
    park(&pool, &id);
    pool.script("holder", "exec sleep 1000");
    pool.ctl(&["restore", &id]).expect(5);
    pool.ctl(&["restart", &id]).expect(5);
    assert_eq!(pool.lifecycle(&id), "parked", "a refusal changes nothing");
    let mut restore = pool.poolctl();
    restore.args(["restore", &id, "--wait-slot", "30s"]);
    let mut restore = Talk::start(&mut restore);
    wait_until("it waits", PATIENCE, || pool.status()["room"]["waiting"] == 1);
    pool.ok(&["kill", "holder"]);
    assert_eq!(restore.await_end(), Some(0), "{}", restore.errors());
    assert_eq!(pool.lifecycle(&id), "live");
    await_slots(&pool, 1);
}

#[test]
fn a_prompt_that_comes_while_it_is_being_parked_wakes_it() {
    let pool = Pool::with(&few_slots(2));
    let id = pool.ok(&[
        "new", "web", "--agent", "keeper", "--", "sh", "-c",
        "trap 'sleep 0.3; exit' HUP TERM; while :; do if IFS= read -r line; then echo \"$line\" >>got; fi; done",
    ]);
    for n in 0..5 {
        let text = format!("message {n}");
        thread::scope(|scope| {
            scope.spawn(|| pool.ctl(&["park", &id]));
            wait_until("it is being parked", PATIENCE, || pool.lifecycle(&id) != "live");
            send(&pool, &id, &text);
        });
        wait_until("it was read", PATIENCE, || lines(&pool, &id, "got").len() > n);
        // Its prompt is finished too: a session with a prompt in flight is not parked.
        pool.ok(&["wait", &id, "--for", "queue-empty"]);
    }
    let wanted: Vec<String> = (0..5).map(|n| format!("message {n}")).collect();
    assert_eq!(lines(&pool, &id, "got"), wanted);
}
