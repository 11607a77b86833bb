//! Prompts that wait, each with its reason, and are typed afterwards: a person types, copies or holds
//! the lock, the program does not read, is full-screen or gone.

use std::fs;
use std::path::PathBuf;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::agents::person::Person;
use crate::harness::{PATIENCE, Pool, Program, Talk, eventually, send_signal, wait_until};

/// An agent kind whose prompts wait for full-screen programs to end; a short typing pause.
const CONFIG: &str = "
[pool]
typing_pause = '6s'
[reaper]
grace = '300ms'
[agents.screens]
command = 'sh'
args = ['-c', 'stty raw -echo opost onlcr; while [ ! -e quit ]; do \"$SCREEN\" text; done; stty raw -echo; exec cat >out']
wait_for_screen = true
";

/// Creates a session whose program copies its raw terminal input to the file `name`.
fn recorder(pool: &Pool, name: &str) -> String {
    let out = pool.path(name);
    let id = pool.script(name, &format!("stty raw -echo; : >{0}; exec cat >{0}", out.display()));
    wait_until("the program reads", PATIENCE, || out.exists() && pool.show(&id)["current_command"] == "cat");
    id
}

/// Sends a prompt to the shell `sh`, which waits for this reason until a key ends what holds it back.
#[track_caller]
pub(super) fn prompt_waits_until(pool: &Pool, reason: &str, key: &str) {
    let message = pool.ok(&["send", "sh", "touch prompt"]);
    await_reason(pool, "sh", &message, reason);
    pool.ok(&["keys", "sh", key]);
    await_done(pool, "sh", &message);
    assert!(pool.dir("sh").join("work/prompt").exists());
}

/// Waits until the message waits with this reason, and checks that `show` and the queue both say so.
#[track_caller]
pub(super) fn await_reason(pool: &Pool, session: &str, message: &str, reason: &str) {
    let says = |value: &Value| value.as_str().is_some_and(|why| why.contains(reason));
    eventually(&format!("it waits: {reason}; {}", pool.show(session)), PATIENCE, || {
        says(&pool.show(session)["waits"]).then_some(())
    });
    let listed = pool.lines(&["queue", "ls", session]);
    let listed = listed.iter().find(|listed| listed["id"] == message.parse::<u64>().unwrap()).unwrap();
    assert!(listed["state"] == "queued" && says(&listed["reason"]), "{listed}");
    let one = pool.json(&["queue", "show", session, message]);
    assert!(one["state"] == "queued" && says(&one["reason"]), "{one}");
    for text in [pool.ok(&["show", session]), pool.ok(&["queue", "ls", session])] {
        assert!(text.contains(reason), "{text}");
    }
}

#[track_caller]
pub(super) fn await_done(pool: &Pool, session: &str, message: &str) {
    pool.ok(&["wait", session, "--for", &format!("message:{message}")]);
    assert_eq!(pool.show(session)["waits"], Value::Null);
}

#[test]
fn a_prompt_waits_while_somebody_types_in_an_attached_terminal() {
    let pool = Pool::with(CONFIG);
    let id = recorder(&pool, "web");
    let mut person = Person::attached(&pool, "web");
    // A person who is attached but does not type holds nothing back.
    pool.ok(&["send", "--wait", "done", &id, "first"]);
    person.types(b"dra");
    pool.await_file("web", |bytes| bytes.ends_with(b"dra"));
    let (pressed, message) = thread::scope(|scope| {
        let typing = scope.spawn(|| {
            let message = pool.ok(&["send", &id, "second"]);
            await_reason(&pool, &id, &message, "somebody is typing in it");
            message
        });
        let mut pressed = 0;
        while !typing.is_finished() {
            person.types(b"f");
            pressed += 1;
            thread::sleep(std::time::Duration::from_millis(50));
        }
        (pressed, typing.join().unwrap())
    });
    person.types(b"t\r");
    await_done(&pool, &id, &message);
    let wanted = format!("first\rdra{}t\rsecond\r", "f".repeat(pressed));
    let arrived = pool.await_file("web", |bytes| bytes.ends_with(b"second\r"));
    assert_eq!(String::from_utf8(arrived).unwrap(), wanted);
}

#[test]
fn a_prompt_waits_while_somebody_reads_in_copy_mode() {
    let pool = Pool::with(CONFIG);
    let id = recorder(&pool, "web");
    pool.tmux_text(&["copy-mode", "-t", "=web:"]);
    let message = pool.ok(&["send", &id, "text"]);
    await_reason(&pool, &id, &message, "it is in copy mode");
    assert_eq!(fs::read(pool.path("web")).unwrap(), b"");
    pool.tmux_text(&["send-keys", "-t", "=web:", "-X", "cancel"]);
    await_done(&pool, &id, &message);
    assert_eq!(pool.await_file("web", |bytes| bytes.ends_with(b"\r")), b"text\r");
}

#[test]
fn a_prompt_for_a_pane_that_died_meanwhile_goes_into_the_next_one() {
    let pool = Pool::with(CONFIG);
    let script = format!("stty raw -echo; cat >>{}", pool.path("web").display());
    let id = pool.script("web", &script);
    pool.tmux_text(&["set-option", "-w", "-t", "=web:", "remain-on-exit", "on"]);
    pool.ok(&["send", "--wait", "done", &id, "before"]);
    pool.tmux_text(&["copy-mode", "-t", "=web:"]);
    let message = pool.ok(&["send", &id, "after"]);
    await_reason(&pool, &id, &message, "it is in copy mode");
    let (agent, _) = pool.pane_pids(&id);
    // The prompt may be tried before the program's end is known.
    pool.kill9(Program::Watch);
    pool.kill9(Program::Reaper);
    send_signal(agent, Signal::SIGKILL);
    wait_until("its pane is dead", PATIENCE, || pool.tmux_panes("#{pane_dead}") == ["1"]);
    pool.start(Program::Watch);
    pool.start(Program::Reaper);
    pool.await_lifecycle(&id, "stopped");
    assert_eq!(pool.json(&["queue", "show", &id, &message])["state"], "queued");
    // A session that has ended accepts no more messages until it is to run again.
    pool.ctl(&["send", &id, "never"]).expect(5);
    pool.ok(&["restart", &id]);
    await_done(&pool, &id, &message);
    assert_eq!(pool.await_file("web", |bytes| bytes.ends_with(b"after\r")), b"before\rafter\r");
}

/// A session whose program reads nothing until the returned file exists; then it writes its input to `out`.
#[track_caller]
fn deaf(pool: &Pool) -> (String, PathBuf) {
    let go = pool.path("go");
    let script = format!(
        "stty raw -echo; touch {1}; while [ ! -e {0} ]; do sleep 0.05; done; exec cat >{2}",
        go.display(),
        pool.path("raw").display(),
        pool.path("out").display()
    );
    let id = pool.script("deaf", &script);
    pool.await_file("raw", |_| true);
    (id, go)
}

#[test]
fn t22_what_a_program_never_reads_stays_typed_and_what_comes_behind_it_waits() {
    let pool = Pool::with(CONFIG);
    let (id, go) = deaf(&pool);
    let first = pool.ok(&["send", &id, "first"]);
    let typed = eventually("it is typed", PATIENCE, || {
        let first = pool.json(&["queue", "show", &id, &first]);
        (first["state"] == "typed" && !first["reason"].is_null()).then_some(first)
    });
    assert_eq!(typed["reason"], "typed, and its program has not read it yet");
    let second = pool.ok(&["send", &id, "second"]);
    let shown = pool.json(&["queue", "show", &id, &second]);
    assert_eq!(shown["state"], "queued", "{shown}");
    pool.ctl(&["--timeout", "3s", "wait", &id, "--for", &format!("message:{first},message:{second}")])
        .expect(6);
    fs::write(go, "").unwrap();
    await_done(&pool, &id, &second);
    assert_eq!(pool.await_file("out", |bytes| bytes.ends_with(b"second\r")), b"first\rsecond\r");
    assert_eq!(pool.json(&["queue", "show", &id, &first])["state"], "done");
}

#[test]
fn a_prompt_waits_for_a_program_that_has_not_read_what_somebody_typed() {
    let pool = Pool::with(CONFIG);
    let (id, go) = deaf(&pool);
    pool.ok(&["keys", &id, "a", "b"]);
    let message = pool.ok(&["send", &id, "text"]);
    await_reason(&pool, &id, &message, "its program has not read what was typed before (2 bytes)");
    fs::write(go, "").unwrap();
    await_done(&pool, &id, &message);
    assert_eq!(pool.await_file("out", |bytes| bytes.ends_with(b"\r")), b"abtext\r");
}

/// Asserts that, where the agent kind says so, a prompt waits until a full-screen program ends.
#[track_caller]
fn waits_for_screen(program: &str, leave: &[&str]) {
    let pool = Pool::with(CONFIG);
    let (work, screen) = (pool.path("work"), format!("SCREEN={program}"));
    let text: String = (1..500).map(|n| format!("row {n}\n")).collect();
    fs::write(work.join("text"), text).unwrap();
    let id = pool.ok(&["new", "web", "--agent", "screens", "--env", &screen, "--cwd", "."]);
    wait_until("it is drawn", PATIENCE, || pool.ok(&["capture", &id]).starts_with("row 1\n"));
    let message = pool.ok(&["send", &id, "text"]);
    await_reason(&pool, &id, &message, "it shows a full-screen program");
    fs::write(work.join("quit"), "").unwrap();
    pool.ok(&[&["keys", &id], leave].concat());
    await_done(&pool, &id, &message);
    assert_eq!(pool.await_file(work.join("out"), |bytes| bytes.ends_with(b"\r")), b"text\r");
}

#[test]
fn a_prompt_waits_until_less_is_left() {
    waits_for_screen("less", &["q"]);
}

#[test]
fn a_prompt_waits_until_vi_is_left() {
    waits_for_screen("vi", &["Escape", ":", "q", "Enter"]);
}

#[test]
fn l05_a_prompt_waits_while_somebody_holds_the_lock() {
    let pool = Pool::with(CONFIG);
    let id = recorder(&pool, "web");
    let mut holder =
        Talk::start(pool.poolctl().args(["lock", "web", "--", "sh", "-c", "echo held; read -r end"]));
    wait_until("it is held", PATIENCE, || holder.lines() == ["held"]);
    let message = pool.ok(&["send", &id, "text"]);
    await_reason(&pool, &id, &message, "a user holds its lock");
    holder.hang_up();
    holder.await_end();
    await_done(&pool, &id, &message);
    assert_eq!(pool.await_file("web", |bytes| bytes.ends_with(b"\r")), b"text\r");
}

/// Twenty senders at once, each text of several lines: every text arrives whole, none inside another, each
/// sender's in order.
#[test]
fn t07_what_twenty_send_at_once_arrives_whole_and_in_each_senders_order() {
    const SENDERS: usize = 20;
    const EACH: usize = 2;
    let pool = Pool::with(CONFIG);
    let id = recorder(&pool, "web");
    let text = |sender: usize, n: usize| {
        format!("begin {sender} {n}\n{}end {sender} {n}", "a line of it\n".repeat(sender))
    };
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (pool, id) = (&pool, &id);
            scope.spawn(move || {
                (0..EACH).for_each(|n| {
                    let sent =
                        pool.ctl_in(&["--timeout", "30s", "send", id, "-"], text(sender, n).as_bytes());
                    drop(sent.expect(0));
                });
            });
        }
    });
    let empty = ["--timeout", "10s", "wait", &id, "--for", "queue-empty"];
    wait_until("all of it went", 4 * PATIENCE, || pool.ctl(&empty).code == 0);
    let all = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\r').count() == SENDERS * EACH;
    let arrived = String::from_utf8(pool.await_file("web", all)).unwrap();
    let mut next = [0; SENDERS];
    for one in arrived.strip_suffix('\r').unwrap().split('\r') {
        let sender: usize = one.split([' ', '\n']).nth(1).unwrap().parse().unwrap();
        assert_eq!(one, text(sender, next[sender]), "whole, and in its order");
        next[sender] += 1;
    }
    assert_eq!(next, [EACH; SENDERS]);
    let listed = pool.lines(&["queue", "ls", &id]);
    assert!(listed.len() == SENDERS * EACH && listed.iter().all(|message| message["state"] == "done"));
}

/// Waits until the message is `typed` with this reason.
#[track_caller]
fn await_typed(pool: &Pool, session: &str, message: &str, reason: &str) {
    eventually(&format!("typed: {reason}"), PATIENCE, || {
        let shown = pool.json(&["queue", "show", session, message]);
        assert!(["queued", "typing", "typed"].contains(&shown["state"].as_str().unwrap()), "{shown}");
        (shown["state"] == "typed" && shown["reason"] == reason).then_some(())
    });
}

/// Without a reader, the state of each prompt stays `typed`, however often it is checked, and never becomes
/// `done`.
#[test]
fn a_prompt_is_done_once_it_was_read_and_not_before() {
    let pool = Pool::with("[pool]\nmax_sessions = 100\n");
    let names: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
    for name in &names {
        pool.ok(&["new", name, "--", "sleep", "1000"]);
    }
    let sent: Vec<String> = names.iter().map(|name| pool.ok(&["send", name, "hello"])).collect();
    for (name, id) in names.iter().zip(&sent) {
        await_typed(&pool, name, id, "typed, and its program has not read it yet");
    }
    // The program's end does not count as reading, nor does its end while `poold` is away.
    for (n, (name, id)) in names.iter().zip(&sent).enumerate() {
        let (agent, init) = pool.pane_pids(name);
        let is_away = n == 0;
        if is_away {
            pool.kill9(Program::Poold);
        }
        if n % 2 == 0 {
            send_signal(if is_away { agent } else { init }, Signal::SIGKILL);
        } else {
            pool.ok(&["kill", name]);
        }
        if is_away {
            pool.start_poold();
        }
        let shown = eventually("it is over", PATIENCE, || {
            let shown = pool.json(&["queue", "show", name, id]);
            (shown["state"] != "typed").then_some(shown)
        });
        assert_eq!(shown["state"], "dead", "{shown}");
    }
    // Discarded input was not read, although nothing waits in the terminal any more.
    if std::process::Command::new("perl").arg("-v").output().is_ok() {
        let script = "use POSIX; sleep 2; tcflush(0, TCIFLUSH); sleep 1000";
        pool.ok(&["new", "flush", "--", "perl", "-e", script]);
        let id = pool.ok(&["send", "flush", "hello"]);
        let thrown = "typed, and its program threw it away, or has not got it yet: `poolctl queue resolve`";
        await_typed(&pool, "flush", &id, thrown);
    }
    // A prompt to a program that reads its input is done.
    pool.ok(&["new", "cat", "--", "cat"]);
    assert_eq!(pool.json(&["send", "cat", "--wait", "done", "hello"])["state"], "done");
}

#[test]
fn a_shell_is_done_when_it_is_in_front_again_and_what_runs_in_it_gets_no_prompt() {
    let pool = Pool::with("");
    for (name, shell) in [("bash", "bash"), ("dash", "dash")] {
        if std::process::Command::new(shell).args(["-c", ":"]).output().is_err() {
            continue;
        }
        pool.ok(&["new", name, "--agent", "shell", "--", shell, "-i"]);
        let done = |text: &str| pool.json(&["send", name, "--wait", "done", text]);
        let quick = done("touch quick");
        assert_eq!(
            (&quick["state"], &quick["reason"]),
            (&"done".into(), &"its shell is in front again".into())
        );
        assert!(pool.dir(name).join("work/quick").exists(), "{name}");
        for slow in ["sleep 1; touch slow", "x=$(sleep 1); touch inner"] {
            let file = slow.rsplit(' ').next().unwrap();
            assert_eq!(done(slow)["state"], "done");
            assert!(pool.dir(name).join("work").join(file).exists(), "{name}: {slow}");
        }
        // A program that a person started by hand in the shell gets no prompt.
        pool.ok(&["keys", name, "c", "a", "t", "Space", ">", "c", "a", "u", "g", "h", "t", "Enter"]);
        wait_until("cat runs", PATIENCE, || pool.dir(name).join("work/caught").exists());
        let next = pool.ok(&["send", name, "touch after"]);
        await_reason(&pool, name, &next, "its shell runs a command");
        pool.ok(&["keys", name, "C-d"]);
        await_done(&pool, name, &next);
        assert_eq!(std::fs::read(pool.dir(name).join("work/caught")).unwrap(), b"");
        assert!(pool.dir(name).join("work/after").exists());
    }
}

/// `wait --for idle`; prints everything known about the session on failure.
#[track_caller]
fn await_idle(pool: &Pool, session: &str) {
    let waited = pool.ctl(&["--timeout", "30s", "wait", session, "--for", "idle"]);
    let known = || {
        let queue = pool.ok(&["queue", "ls", session]);
        format!("{}\n{queue}\n{}\n{}", pool.show(session), pool.ok(&["capture", session]), pool.logs())
    };
    assert_eq!(waited.code, 0, "{waited:?}\n{}", known());
}

#[test]
fn waiting_for_idle_waits_for_what_is_queued_typed_or_worked_on() {
    let pool = Pool::with("");
    pool.ok(&["new", "bash", "--agent", "shell", "--", "bash", "-i"]);
    pool.ok(&[
        "new",
        "none",
        "--",
        "sh",
        "-c",
        "while read -r line; do sleep 1; echo \"$line\" >>done; done",
    ]);
    for n in 0..3 {
        let file = format!("file{n}");
        pool.ok(&["send", "bash", &format!("sleep 0.3; touch {file}")]);
        await_idle(&pool, "bash");
        assert!(pool.dir("bash").join("work").join(&file).exists(), "{file}");
        let id = pool.ok(&["send", "none", "x"]);
        await_idle(&pool, "none");
        assert_eq!(pool.json(&["queue", "show", "none", &id])["state"], "done");
    }
}
