//! A process that serves more than the session in which it was started lives on and is reported; one that
//! serves the session alone ends with it.

use std::fs;
use std::path::Path;

use super::support::{Ours, Process, SOON, await_look, events, noted, slots, verdict};
use crate::faults::support::has;
use crate::harness::{PATIENCE, Pool, children, wait_until};

/// Listens on a path as a daemon, without any trace of its origin, and writes its pid to a file.
const LISTEN: &str = r#"
use IO::Socket::UNIX;
use POSIX ();
fork and exit;
POSIX::setsid();
fork and exit;
my $socket = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die $!;
open(STDIN, '<', '/dev/null');
open($_, '>', '/dev/null') for *STDOUT, *STDERR;
open(my $pids, '>>', $ARGV[1]) or exit 1;
syswrite($pids, "$$\n");
sleep 1000 while 1;
"#;

/// A shell command that starts such a listener.
fn listen(pool: &Pool, socket: &str, pids: &Path) -> String {
    let program = pool.path("listen.pl");
    fs::write(&program, LISTEN).unwrap();
    format!("perl {} {socket} {}", program.display(), pids.display())
}

/// Types a script into the session's shell, and waits until it has run.
#[track_caller]
fn run_in(pool: &Pool, id: &str, script: &str) {
    let (file, done) = (pool.path("script"), pool.path("done"));
    fs::write(&file, format!("{script}\necho $? >{}\n", done.display())).unwrap();
    pool.ok(&[
        "send",
        id,
        &format!("sh -e {}; [ -e {1} ] || echo failed >{1}", file.display(), done.display()),
    ]);
    let said = pool.await_file("done", |text| text.ends_with(b"\n"));
    assert_eq!(String::from_utf8_lossy(&said), "0\n", "{}", pool.ok(&["logs", id]));
    fs::remove_file(done).unwrap();
}

/// The one process whose pid a file lists.
#[track_caller]
fn pid_in(file: &Path) -> Process {
    let all = noted(file, 1);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}

/// Asserts that the remaining processes are ended by no rule and reported at most once, however often the
/// reaper looks.
#[track_caller]
fn is_told_once(pool: &Pool, id: &str) {
    for _ in 0..4 {
        await_look(pool);
    }
    let found = events(pool, "stale_found", Some(id));
    let told = found.len() <= 1 && found.iter().all(|event| event["action"] == "report");
    assert!(told && events(pool, "reap_finished", Some(id)).len() == 1, "{}", pool.journal());
}

#[test]
fn a_second_pool_a_tmux_server_and_an_ssh_agent_survive_the_end_of_the_shell_that_started_them() {
    if !has("perl") {
        return;
    }
    // Declared first: it ends after the pool in which it was started.
    let two = Pool::bare(SOON);
    let pool = Pool::with(SOON);
    let [tmux, listener, agent] = ["tmux.pid", "listener.pid", "agent.pid"].map(|name| pool.path(name));
    let socket = pool.path("agent").to_str().unwrap().to_owned();
    // Named explicitly: in this shell the first pool would be the default.
    let second = format!(
        "env -u POOL_INCARNATION -u POOL_SOCKET POOL_STATE_DIR={} POOL_CONFIG={} {}",
        two.state().display(),
        two.path("config.toml").display(),
        env!("CARGO_BIN_EXE_poolctl"),
    );
    // If there is no ssh-agent, another listener takes its place.
    let agents = format!(
        "if command -v ssh-agent; then eval $(ssh-agent -s -a {socket}); echo $SSH_AGENT_PID >{}; else {}; fi",
        agent.display(),
        listen(&pool, &socket, &agent),
    );
    let script = format!(
        "{second} up\n{second} new inner -- sleep 1000\n{}\n{agents}\n\
         tmux -S {} -f /dev/null new-session -d -P -F '#{{pid}}' 'exec sleep 1000' >{}\n",
        listen(&pool, pool.path("listener").to_str().unwrap(), &listener),
        pool.path("outside.sock").display(),
        tmux.display(),
    );
    let id = pool.ok(&["new", "sh", "--agent", "shell"]);
    run_in(&pool, &id, &script);

    let shell = Process::of(pool.pane_pids(&id).0).unwrap();
    let servers = [pid_in(&tmux), pid_in(&listener), pid_in(&agent)];
    let guard = Ours(servers.to_vec());
    let up = two.json(&["up"]);
    let of = |key: &str| Process::of(u32::try_from(up[key].as_u64().unwrap()).unwrap()).unwrap();
    let mut others = ["poold_pid", "tmux_watch_pid", "reaper_pid"].map(of).to_vec();
    let (inner, init) = two.pane_pids("inner");
    others.extend([inner, init, two.tmux_pid().unwrap()].map(|pid| Process::of(pid).unwrap()));
    others.extend(servers);
    let window = children(servers[0].pid);
    others.extend(window.iter().map(|pid| Process::of(*pid).unwrap()));
    assert_eq!(others.len(), 10, "the server of its own runs one program");

    pool.ok(&["kill", &id]);
    assert!(!shell.runs());
    let hurt = || others.iter().filter(|process| !process.runs()).collect::<Vec<_>>();
    assert_eq!(hurt(), Vec::<&Process>::new());
    assert_eq!((pool.lifecycle(&id).as_str(), slots(&pool)), ("stopped", 0));
    let left = verdict(&pool, &id)["spared"]["left"].to_string();
    for process in others.iter().filter(|process| process.pid != init) {
        assert!(left.contains(&format!("process {}@", process.pid)), "{process:?} is not named: {left}");
    }
    assert!(left.contains(&format!("serves {}", two.socket().display())), "{left}");

    // Searches for orphans do not name them either.
    is_told_once(&pool, &id);
    assert_eq!(hurt(), Vec::<&Process>::new());
    assert_eq!(two.lifecycle("inner"), "live");
    guard.end();
    two.ok(&["kill", "inner"]);
}

#[test]
fn what_serves_a_session_alone_goes_with_it() {
    if !has("perl") {
        return;
    }
    let pool = Pool::with(SOON);
    let [tmux, listener, helper] = ["tmux.pid", "listener.pid", "helper.pid"].map(|name| pool.path(name));
    let script = format!(
        "{}\ntmux new-session -d -P -F '#{{pid}}' 'exec sleep 1000' >{}\n\
         setsid sh -c 'echo $$ >{}; exec sleep 1000' </dev/null >/dev/null 2>&1 &\nexec sleep 1000",
        listen(&pool, "$TMPDIR/listener", &listener),
        tmux.display(),
        helper.display(),
    );
    let id = pool.script("web", &script);
    let all = [&tmux, &listener, &helper].map(|file| pid_in(file));
    pool.ok(&["kill", &id]);
    let left: Vec<_> = all.iter().filter(|process| process.runs()).collect();
    assert_eq!(left, Vec::<&Process>::new(), "{all:?}");
    assert!(verdict(&pool, &id)["gone"].is_object(), "{}", pool.journal());
    assert_eq!(slots(&pool), 0);
}

#[test]
fn what_was_detached_is_left_and_told_where_that_is_wanted() {
    let config = format!("{SOON}[agents.jobs]\ncommand = 'sh'\nleftovers = 'report'\n");
    for leftovers in ["report", "kill"] {
        let pool = Pool::with(&config.replace("'report'", &format!("'{leftovers}'")));
        let id = pool.ok(&["new", "sh", "--agent", "jobs"]);
        let job = pool.path("job.pid");
        let start = format!(
            "nohup setsid sh -c 'echo $$ >{}; exec sleep 1000' </dev/null >/dev/null 2>&1 &",
            job.display()
        );
        run_in(&pool, &id, &start);
        let job = pid_in(&job);
        let guard = Ours(vec![job]);
        let (_, init) = pool.pane_pids(&id);
        wait_until("the init has adopted it", PATIENCE, || children(init).contains(&job.pid));
        pool.ok(&["kill", &id]);
        assert_eq!(slots(&pool), 0);
        assert_eq!(job.runs(), leftovers == "report");
        if leftovers == "report" {
            let left = verdict(&pool, &id)["spared"]["left"].to_string();
            assert!(
                left.contains(&format!("process {}@", job.pid)) && left.contains("was detached"),
                "{left}"
            );
            is_told_once(&pool, &id);
            assert!(job.runs(), "{}", pool.journal());
        }
        guard.end();
    }
}

#[test]
fn a_program_that_a_person_started_in_a_sessions_pane_is_left_alone() {
    let pool = Pool::with("[reaper]\ngrace = '200ms'\ninterval = '100ms'\n[restart]\nbackoff = '50ms'\n");
    let pids = pool.path("pids");
    let own = format!("trap '' HUP TERM; echo $$ >>{}; while :; do sleep 1; done", pids.display());
    let (first, again) = (pool.script("first", "exec sleep 1000"), pool.script("again", "exec cat"));
    // This program outlives its terminal, and is ended all the same.
    let ours = pool.path("ours");
    let deaf =
        pool.script("deaf", &format!("trap '' HUP; echo $$ >{}; while :; do sleep 1; done", ours.display()));
    let ours = pid_in(&ours);
    for name in ["first", "again", "deaf"] {
        pool.tmux_text(&["respawn-pane", "-k", "-t", &format!("={name}:"), &own]);
    }
    let theirs = Ours(noted(&pids, 3));
    for id in [&first, &again, &deaf] {
        let ended = pool.await_lifecycle(id, "stopped");
        assert_eq!(ended["reason"], "tmux_gone", "{ended}");
    }
    // The record goes, or goes on with a program of its own: neither is a reason to touch the pane.
    pool.ok(&["rm", &first]);
    // The name of the session is taken as long as the user's tmux session has it.
    assert_ne!(pool.ctl(&["restart", &again]).code, 0);
    assert!(pool.tmux_sessions().contains(&"again".to_owned()), "{:?}", pool.tmux_sessions());
    pool.tmux_text(&["rename-session", "-t", "=again", "theirs"]);
    pool.ok(&["restart", &again]);
    pool.ok(&["send", &again, "--wait", "done", "text"]);
    pool.ok(&["rm", "--force", &again]);
    let before = pool.ok(&["events", "--kind", "stale_found"]).lines().count();
    pool.ok(&["sync"]);
    wait_until("the reaper has looked", PATIENCE, || pool.ctl(&["reap"]).code == 0);
    assert_eq!(pool.ok(&["events", "--kind", "stale_found"]).lines().count(), before);
    assert!(theirs.0.iter().all(|process| process.runs()), "they run on");
    assert!(!ours.runs());
    wait_until("their output is logged no longer", PATIENCE, || {
        pool.tmux_panes("#{pane_pid} #{pane_pipe}#{@pool_id}").iter().all(|pane| pane.ends_with(" 0"))
    });
    assert_eq!(pool.tmux_panes("#{pane_pid}").len(), 3);
}
