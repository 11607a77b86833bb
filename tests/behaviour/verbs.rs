//! Each verb end to end, in human and in JSON form.

use std::fs::File;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;

use crate::harness::{Outer, Output, PATIENCE, Pool, Program, Talk, eventually, gone, wait_until};

#[test]
fn a_session_from_new_to_rm() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "cat"]);
    assert_eq!(id, "sess_1");
    let table = pool.ok(&["ls"]);
    assert!(table.contains("sess_1") && table.contains("web") && table.contains("live"), "{table}");
    assert_eq!(pool.ok(&["-q", "ls"]), "sess_1");
    let shown = pool.ok(&["show", "web"]);
    assert!(shown.contains("sess_1") && shown.contains("cat"), "{shown}");
    pool.ok(&["send", "web", "--wait", "done", "hello", "there"]);
    wait_until("it is on the screen", PATIENCE, || {
        pool.ok(&["capture", "web"]).contains("hello there\nhello there")
    });
    assert!(pool.json(&["capture", "web"])["text"].as_str().unwrap().starts_with("hello there\n"));
    pool.ok(&["keys", "web", "h", "é", "語", "Enter"]);
    wait_until("it is in the log", PATIENCE, || pool.ok(&["logs", "web"]).ends_with("hé語\nhé語"));
    let lines = pool.lines(&["logs", "web"]);
    assert_eq!(lines[0]["text"], "hello there");
    assert_eq!(pool.ok(&["capture", "web", "--lines", "1000"]).matches("hello there").count(), 2);
    pool.ok(&["label", "web", "team=core", "tier=2"]);
    pool.ok(&["label", "web", "--remove", "tier"]);
    assert_eq!(pool.show("web")["labels"], serde_json::json!({"team": "core"}));
    assert_eq!(pool.lines(&["ls", "--label", "team=core"]).len(), 1);
    assert_eq!(pool.lines(&["ls", "--label", "team=other"]).len(), 0);
    pool.ok(&["rename", "web", "site"]);
    assert_eq!(pool.tmux_sessions(), ["site"]);
    assert_eq!(pool.show("web")["name"], "site", "the workspace names it still");
    pool.ok(&["kill", "site"]);
    assert_eq!(pool.ok(&["ls"]).lines().filter(|line| line.contains("sess_1")).count(), 0);
    assert!(pool.ok(&["ls", "--all"]).contains("stopped"));
    assert_eq!(pool.lines(&["ls", "--state", "stopped"]).len(), 1);
    pool.ok(&["rm", "site"]);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 0);
}

#[test]
fn restart_is_the_same_session_with_a_new_run() {
    let pool = Pool::new();
    let id = pool.script("web", "echo run; exec cat");
    wait_until("it runs", PATIENCE, || pool.ok(&["logs", &id]).contains("run"));
    let before = (pool.show(&id), pool.pane_pids(&id));
    pool.ok(&["restart", &id]);
    let after = (pool.show(&id), pool.pane_pids(&id));
    assert_ne!(before.1, after.1);
    assert!(gone(before.1.0) && gone(before.1.1));
    for key in ["id", "name", "workspace", "command", "created_at", "dir"] {
        assert_eq!(before.0[key], after.0[key]);
    }
    assert_eq!(
        (&after.0["incarnations"], &after.0["restarts"], &after.0["lifecycle"]),
        (&2.into(), &1.into(), &"live".into())
    );
    wait_until("both runs are in the log", PATIENCE, || pool.ok(&["logs", &id]).matches("run").count() == 2);
    wait_until("the last run's pane is gone", PATIENCE, || pool.tmux_panes("#{session_name}") == ["web"]);
    pool.ok(&["kill", &id]);
    pool.ok(&["restart", &id]);
    assert_eq!(pool.show(&id)["incarnations"], 3);
}

#[test]
fn wait_looks_first_and_then_listens() {
    let pool = Pool::new();
    let id = pool.script("web", "while [ ! -e go ]; do sleep 0.02; done; exit 6");
    pool.ok(&["wait", &id, "--for", "queue-empty"]);
    std::thread::scope(|scope| {
        let waits: Vec<_> =
            (0..3).map(|_| scope.spawn(|| pool.ctl(&["wait", &id, "--for", "exit"]))).collect();
        std::fs::write(pool.dir(&id).join("work/go"), "").unwrap();
        waits.into_iter().for_each(|wait| drop(wait.join().unwrap().expect(6)));
    });
    pool.ctl(&["wait", &id, "--for", "exit"]).expect(6);
}

#[test]
fn logs_are_followed_to_the_end() {
    let pool = Pool::new();
    let id = pool.script("web", "for n in 1 2 3; do echo line $n; sleep 0.1; done");
    let logs = pool.ctl(&["logs", "-f", &id]).expect(0);
    assert_eq!(logs.stdout.lines().collect::<Vec<_>>(), ["line 1", "line 2", "line 3"]);
}

#[test]
fn new_takes_a_prompt_a_size_and_an_environment() {
    let pool = Pool::new();
    let id = pool.ok(&[
        "new",
        "web",
        "--size",
        "77x22",
        "--env",
        "A=b c",
        "--prompt",
        "hello",
        "--",
        "sh",
        "-c",
        "stty size; echo \"A=$A\"; read line; echo \"got $line\"; exec sleep 1000",
    ]);
    wait_until("it got the prompt", PATIENCE, || pool.ok(&["logs", &id]).contains("got hello"));
    let logs = pool.ok(&["logs", &id]);
    // The terminal may echo typed text before or between the lines.
    assert!(logs.contains("22 77\n") && logs.contains("A=b c\n"), "{logs}");
    assert_eq!(pool.show(&id)["total_requests"], 1);
}

#[test]
fn agents_are_a_table_of_the_configuration() {
    let pool = Pool::with(
        "[agents.robot]\ncommand = 'sh'\nargs = ['-c', 'echo \"I am $ROLE\"; exec cat']\nenv = { ROLE = 'robot' }\n",
    );
    let id = pool.ok(&["new", "--agent", "robot"]);
    let shown = pool.show(&id);
    assert!(shown["name"].as_str().unwrap().starts_with("robot-"), "{shown}");
    assert_eq!(shown["agent"], "robot");
    wait_until("it speaks", PATIENCE, || pool.ok(&["logs", &id]).starts_with("I am robot"));
    assert_eq!(pool.lines(&["ls", "--agent", "robot"]).len(), 1);
    assert_eq!(pool.lines(&["ls", "--agent", "shell"]).len(), 0);
}

#[test]
fn rm_refuses_what_is_worked_on() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    pool.tmux_text(&["copy-mode", "-t", "=web:"]);
    pool.ok(&["send", &id, "waits"]);
    pool.ctl(&["rm", &id]).expect(4);
    assert_eq!(pool.lifecycle(&id), "live");
    pool.ok(&["rm", "--force", &id]);
}

#[test]
fn the_configuration_is_shown_checked_and_reloaded() {
    let pool = Pool::with("[pool]\nmax_sessions = 3\n");
    assert_eq!(pool.ok(&["config", "path"]), pool.path("config.toml").to_str().unwrap());
    assert!(pool.ok(&["config", "show"]).contains("max_sessions = 3"));
    pool.ok(&["config", "check"]);
    assert!(pool.ok(&["config", "reload"]).contains("nothing changed"));
    pool.configure("[pool]\nmax_sessions = 3\n[tmux]\nsocket = 'default'\n");
    assert!(pool.ok(&["config", "reload"]).contains("need a restart"));
    pool.configure("[pool]\nmax_sessions = 3\n");
    assert_eq!(pool.ok(&["config", "reload"]), "the new configuration is in force", "it was put back");
    pool.configure("[pool]\nmax_sesions = 3\n");
    assert!(pool.ctl(&["config", "check"]).expect(2).stderr.contains("max_sessions"));
    pool.ctl(&["config", "reload"]).expect(2);
    assert_eq!(pool.status()["slots"]["max"], 3, "what is wrong changes nothing");
    std::fs::remove_file(pool.path("config.toml")).unwrap();
    assert!(pool.ctl(&["config", "reload"]).expect(2).stderr.contains("there is no"));
    let told = pool.ctl(&["--json", "status"]).expect(1).json()["problems"].to_string();
    assert!(told.contains("config.toml is gone"), "{told}");
    std::os::unix::fs::symlink("gone.toml", pool.path("config.toml")).unwrap();
    let why = "is a link whose target is missing";
    assert!(pool.ctl(&["config", "reload"]).expect(2).stderr.contains(why));
    let told = pool.ctl(&["--json", "status"]).expect(1).json()["problems"].to_string();
    assert!(told.contains("would not start again") && told.contains(why), "{told}");
}

#[test]
fn a_configuration_file_that_somebody_named_has_to_exist() {
    let pool = Pool::bare("");
    std::fs::remove_file(pool.path("config.toml")).unwrap();
    let check = pool.ctl(&["config", "check"]).expect(2);
    let poold = Output::of(&mut pool.command(env!("CARGO_BIN_EXE_poold")), b"").expect(2);
    for told in [check, poold] {
        assert!(told.stderr.contains("config.toml: make the file, or start without POOL_CONFIG"), "{told:?}");
    }
}

#[test]
fn a_configuration_file_that_is_gone_at_the_next_start_is_told() {
    let pool = Pool::bare("");
    let config = pool.path("xc/tmux-pool/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "[pool]\nmax_sessions = 3\n").unwrap();
    let restart = || {
        pool.kill9(Program::Poold);
        let mut poold = pool.daemon(Program::Poold);
        poold.env_remove("POOL_CONFIG");
        pool.start_as(Program::Poold, poold);
        pool.await_poold();
        pool.status()
    };
    assert_eq!(restart()["slots"]["max"], 3);
    std::fs::remove_file(&config).unwrap();
    let told = restart()["problems"].to_string();
    assert!(told.contains("config.toml is gone, and only the defaults are in force"), "{told}");
    std::fs::write(&config, "").unwrap();
    pool.ok(&["config", "reload"]);
    std::fs::remove_file(&config).unwrap();
    let told = restart()["problems"].to_string();
    assert!(!told.contains("is gone"), "its user does without it: {told}");
}

#[test]
fn a_program_of_the_pool_that_is_gone_is_a_problem() {
    let pool = Pool::bare("");
    let bin = pool.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let programs = [("poolctl", env!("CARGO_BIN_EXE_poolctl")), ("reaper", Program::Reaper.path())];
    for (name, program) in programs {
        std::os::unix::fs::symlink(program, bin.join(name)).unwrap();
    }
    let mut poold = pool.daemon(Program::Poold);
    poold.env("POOL_BIN_DIR", &bin);
    pool.start_as(Program::Poold, poold);
    pool.await_poold();
    let told = || pool.status()["problems"].to_string();
    assert!(!told().contains("is not there"), "{}", told());
    let id = pool.script("web", "exec sleep 1000");
    for (name, _) in programs {
        std::fs::remove_file(bin.join(name)).unwrap();
        assert!(told().contains(&format!("the program {name} is not there")), "{}", told());
    }
    let refused = pool.ctl(&["restart", "web"]).expect(1).stderr;
    assert!(
        refused.contains("is not there") && refused.contains("after an upgrade, `poolctl up`"),
        "{refused}"
    );
    assert!(refused.contains("nothing was ended"), "{refused}");
    assert_eq!(pool.lifecycle(&id), "live");
}

#[test]
fn the_help_of_the_reaper_says_what_it_can_do_without_a_daemon() {
    let pool = Pool::bare("");
    let reaper = |args: &[&str]| Output::of(pool.command(env!("CARGO_BIN_EXE_reaper")).args(args), b"");
    let help = reaper(&["--help"]).expect(0).text().to_owned();
    for part in ["End what poold names", "--once", "--dry-run", "--json", "--socket", "--pool"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    reaper(&["--once", "--dry-run"]).expect(2);
    let told = reaper(&["--json"]).expect(2);
    assert!(told.stderr.contains("--dry-run"), "{told:?}");
}

/// Returns the words offered for the last word of a line, as the script for fish asks for them.
fn completed(pool: &Pool, line: &str) -> Vec<String> {
    let mut asked = pool.poolctl();
    asked.env("_POOLCTL_COMPLETE", "fish").arg("--").args(line.split(' '));
    let output = Output::of(&mut asked, b"").expect(0);
    assert_eq!(output.stderr, "", "it would be printed into the line of a person");
    let value = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
    output.text().lines().map(value).collect()
}

#[test]
fn a_shell_completes_what_the_pool_has() {
    let pool = Pool::new();
    pool.script("web", "exec sleep 1000");
    pool.ok(&["label", "web", "team=core"]);
    pool.ok(&["worker", "add", "index", "--kind", "a", "--all", "--", "cat"]);
    pool.script("api", "exit 0");
    pool.ok(&["wait", "api", "--for", "exit"]);
    assert_eq!(completed(&pool, "poolctl kill "), ["web", "api"], "what runs comes first");
    assert_eq!(completed(&pool, "poolctl send a"), ["api"]);
    assert_eq!(completed(&pool, "poolctl kill web --gr"), ["--grace"]);
    assert_eq!(completed(&pool, "poolctl label --label "), ["team=core"]);
    assert_eq!(completed(&pool, "poolctl worker stop "), ["index"]);
    assert!(completed(&pool, "poolctl new --agent ").contains(&"claude".to_owned()));
    let unreached = completed(&pool, "poolctl --socket /nonexistent kill ");
    assert!(unreached.iter().all(|word| word.starts_with("--")), "only options are left: {unreached:?}");
    let conditions = completed(&pool, "poolctl wait web --for ");
    assert_eq!(conditions.len(), 10);
    for condition in conditions {
        let number = if condition.ends_with(':') { "1" } else { "" };
        let accepted = pool.ctl(&["wait", "nosuch", "--for", &format!("{condition}{number}")]);
        assert!(accepted.stderr.contains("no session"), "{condition}: {accepted:?}");
    }
}

#[test]
fn completions_and_help_are_there_without_a_daemon() {
    let pool = Pool::bare("");
    for shell in ["bash", "zsh", "fish"] {
        let script = pool.ok(&["completions", shell]);
        assert!(script.contains("_POOLCTL_COMPLETE"), "{shell}");
    }
    pool.ctl(&["completions", "tcsh"]).expect(2);
    let offered = ["poolctl ", "poolctl help ", "poolctl attach --", "poolctl new --", "poolctl up --"];
    let offered = offered.map(|line| completed(&pool, line)).concat();
    for hidden in ["become", "--detached", "--if-kept"] {
        assert!(!offered.contains(&hidden.to_owned()), "{hidden} is offered, which is not for people");
    }
    for word in ["restart", "queues-and-workers", "--read-only", "--max-runtime"] {
        assert!(offered.contains(&word.to_owned()), "{word} is not offered");
    }
    let help = pool.ok(&["--help"]);
    for verb in ["new", "send", "run", "wait", "events"] {
        assert!(help.contains(verb), "{verb}");
    }
    assert!(!help.contains("become"), "what is not for people is absent");
    pool.ctl::<&str>(&[]).expect(2);
}

#[test]
fn up_and_down_keep_a_pool() {
    let pool = Pool::bare("");
    let up = pool.json(&["up"]);
    assert_eq!(up["already"], false);
    assert_eq!(pool.json(&["up"])["already"], true, "it is idempotent");
    pool.ctl(&["status"]).expect(0);
    let id = pool.script("web", "exec sleep 1000");
    let (agent, init) = pool.pane_pids(&id);
    let down = pool.json(&["down"]);
    assert_eq!((&down["stopped"], &down["sessions_alive"]), (&true.into(), &1.into()));
    let poold = u32::try_from(up["poold_pid"].as_u64().unwrap()).unwrap();
    wait_until("poold is gone", PATIENCE, || gone(poold));
    pool.ctl(&["--timeout", "300ms", "ls"]).expect(7);
    pool.ok(&["up"]);
    assert_eq!(pool.pane_pids(&id), (agent, init));
    pool.ok(&["down", "--stop-sessions"]);
    assert!(gone(agent) && gone(init));
}

#[test]
fn daemons_keep_no_file_of_the_script_that_started_them() {
    let pool = Pool::bare("");
    let lock = pool.path("deploy.lock");
    let script = "exec 9>>\"$1\"; perl -e 'open(F, \">&=\", 9) && flock(F, 2) or die' && \"$0\" up";
    let mut up = pool.command("sh");
    up.args(["-c", script, env!("CARGO_BIN_EXE_poolctl")]).arg(&lock);
    Output::of(&mut up, b"").expect(0);
    pool.script("web", "exec sleep 1000");
    let free = Flock::lock(File::open(&lock).unwrap(), FlockArg::LockExclusiveNonblock);
    assert!(free.is_ok(), "neither a daemon nor the tmux server holds it");
    pool.ok(&["down", "--stop-sessions"]);
}

#[test]
fn a_session_stops_its_own_pool_and_no_other() {
    let (pool, other) = (Pool::bare(""), Pool::bare(""));
    let [up, _] = [&pool, &other].map(|pool| pool.json(&["up"]));
    let id = pool.script("web", "exec sleep 1000");
    // The socket of one pool, and the directory of another one.
    for verb in ["up", "down"] {
        let refused = Output::of(pool.poolctl().env("POOL_SOCKET", other.socket()).arg(verb), b"").expect(2);
        assert!(refused.stderr.contains("POOL_STATE_DIR"), "{}", refused.stderr);
    }
    // The name of one pool, and the directory of another one.
    let renamed = Output::of(pool.poolctl().env("POOL_NAME", "other").arg("down"), b"").expect(2);
    assert!(renamed.stderr.contains("is that of the pool default"), "{}", renamed.stderr);
    assert_eq!(pool.lifecycle(&id), "live");
    // A session knows the directory of its pool.
    pool.script("end", &format!("exec '{}' down --stop-sessions", env!("CARGO_BIN_EXE_poolctl")));
    let poold = u32::try_from(up["poold_pid"].as_u64().unwrap()).unwrap();
    wait_until("the pool is down", PATIENCE, || gone(poold));
    other.ctl(&["status"]).expect(0);
    other.ok(&["down"]);
}

#[test]
fn attach_needs_a_terminal() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    pool.ctl(&["attach", &id]).expect(2);
    pool.ctl(&["attach", "nobody"]).expect(2);
    let outer = Outer::run(&pool, "exec poolctl attach web");
    wait_until("a client is attached", PATIENCE, || pool.show(&id)["attached_clients"] == 1);
    pool.ctl(&["rm", &id]).expect(4);
    drop(outer);
    wait_until("it is detached", PATIENCE, || pool.show(&id)["attached_clients"] == 0);
}

#[test]
fn reap_shows_what_it_would_do() {
    let pool = Pool::new();
    pool.script("web", "exec sleep 1000");
    let candidates = pool.json(&["reap", "--dry-run"]);
    assert_eq!(candidates["candidates"].as_array().unwrap().len(), 0, "{candidates}");
    assert_eq!(pool.json(&["reap"]), candidates);
    pool.ctl(&["reap", "--explain"]).expect(2);
}

#[test]
fn shells_end_together_by_a_hang_up_and_what_saves_its_work_at_term_is_let() {
    let pool = Pool::with("[reaper]\ngrace = '10m'\n");
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        pool.ok(&["new", name, "--agent", "shell", "--", "bash", "-i"]);
    }
    let saves = "trap 'sleep 0.5; touch saved; exit 0' TERM; touch ready; while :; do sleep 0.1; done";
    pool.script("saver", saves);
    let dir = pool.dir("saver");
    pool.await_file(dir.join("work/ready"), |_| true);
    pool.ok(&[&["kill"][..], &names, &["saver"]].concat());
    for name in names {
        assert_eq!(pool.show(name)["exit"]["signal"], 1, "{name}");
    }
    assert_eq!(pool.show("saver")["exit"]["code"], 0);
    assert!(dir.join("work/saved").exists());
}

#[test]
fn a_variable_without_a_value_here_is_named() {
    let pool = Pool::new();
    let new = pool.ctl(&["new", "web", "--env", "SURELY_NOT_SET", "--env", "PATH", "--", "true"]).expect(0);
    assert_eq!(new.stderr, "poolctl: SURELY_NOT_SET has no value here, so it is not passed on\n");
    let quiet = pool.ctl(&["-q", "new", "--env", "SURELY_NOT_SET", "--", "true"]).expect(0);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn a_run_that_is_told_to_end_ends_its_session() {
    let pool = Pool::new();
    // `run` leaves HUP alone where it is ignored, as below `nohup`.
    let signals = [("term", Signal::SIGTERM), ("hup", Signal::SIGHUP)].into_iter();
    for (name, signal) in signals.filter(|(_, signal)| !process::identity::caller_ignores(*signal)) {
        let mut run =
            Talk::start(pool.poolctl().args(["run", "--rm", name, "--cwd", "own", "--", "sleep", "1000"]));
        eventually("it runs", PATIENCE, || (pool.ctl(&["show", name]).code == 0).then_some(()));
        pool.await_lifecycle(name, "live");
        crate::harness::send_signal(run.pid(), signal);
        let code = run.await_end();
        assert!(code.is_some_and(|code| code > 128), "{name}: {code:?} {}", run.errors());
        assert_eq!(pool.ctl(&["show", name]).code, 3, "{name} is removed");
    }
}

#[test]
fn a_run_that_waits_for_a_slot_ends_by_a_signal_and_starts_nothing() {
    let pool = Pool::with("[pool]\nmax_sessions = 1\n");
    let first = pool.script("first", "exec sleep 1000");
    for (name, signal) in [("int", Signal::SIGINT), ("term", Signal::SIGTERM)] {
        let mut run =
            Talk::start(pool.poolctl().args(["run", name, "--wait-slot", "1h", "--", "touch", "started"]));
        wait_until("it waits", PATIENCE, || pool.status()["room"]["waiting"] == 1);
        crate::harness::send_signal(run.pid(), signal);
        assert_eq!(run.await_end(), None, "it ends by the signal: {}", run.errors());
        assert!(run.errors().contains("interrupted before the session ran"), "{}", run.errors());
        wait_until("its place is free", PATIENCE, || pool.status()["room"]["waiting"] == 0);
    }
    pool.ok(&["rm", "--force", &first]);
    pool.ok(&["run", "last", "--", "true"]);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 1, "only the last one was created");
}
