//! Neither secrets nor words of a command can be read from any process's arguments, from tmux or from the
//! journal.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use protocol::OsBytes;
use protocol::request::New;
use serde_json::json;

use crate::harness::{PATIENCE, Pool, environ, pids, wait_until, words};

const SECRET: &str = "hunter2-secret-value";
const WORD: &str = "zebra-command-word";
/// Word of the test that passes it to `poolctl` as an argument.
const OTHER_WORD: &str = "okapi-command-word";

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Command lines of processes outside sessions that hold the secret or `word`.
fn tell_tales(word: &str) -> BTreeSet<String> {
    let tells = |pid: &u32| {
        let line = words(*pid);
        let agent = || environ(*pid).iter().any(|entry| entry.starts_with(b"POOL_SESSION="));
        // A process that has ended meanwhile has no environment and no command line.
        let is_there = || words(*pid) == line;
        ((contains(&line, SECRET) || contains(&line, word)) && !agent() && is_there())
            .then(|| String::from_utf8_lossy(&line).replace('\0', " "))
    };
    pids().iter().filter_map(tells).collect()
}

#[test]
fn no_secret_and_no_word_of_a_command_is_in_any_arguments() {
    let pool = Pool::new();
    // Passed on standard input, so that not even the caller's own arguments hold them.
    let script = format!("printf '%s' \"$TOKEN\" >got; : {WORD}; while [ ! -e go ]; do sleep 0.05; done");
    let bytes = |text: &str| OsBytes(text.as_bytes().to_vec());
    let new = New {
        name: Some("web".to_owned()),
        command: ["sh", "-c", &script].map(bytes).to_vec(),
        env: vec![(bytes("TOKEN"), bytes(SECRET))],
        caller_env: vec![(bytes("PATH"), bytes(&std::env::var("PATH").unwrap()))],
        ..New::default()
    };
    let new = json!({ "new": new });
    let over = AtomicBool::new(false);
    let found = thread::scope(|scope| {
        let scan = scope.spawn(|| {
            let mut found = BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                found.extend(tell_tales(WORD));
            }
            found
        });
        let answer = pool.ctl_in(&["rpc"], new.to_string().as_bytes()).expect(0).json();
        assert!(answer["ok"].is_object(), "{answer}");
        let dir = pool.show("web")["dir"].as_str().unwrap().to_owned();
        let got = pool.await_file(format!("{dir}/work/got"), |bytes| bytes.len() == SECRET.len());
        assert_eq!(got, SECRET.as_bytes(), "it arrives all the same");
        fs::write(format!("{dir}/work/go"), "").unwrap();
        pool.ctl(&["wait", "web", "--for", "exit"]).expect(0);
        over.store(true, Ordering::Relaxed);
        scan.join().unwrap()
    });
    assert_eq!(found, BTreeSet::new());
}

#[test]
fn tmux_and_the_journal_hold_no_secret() {
    let pool = Pool::new();
    let env = format!("TOKEN={SECRET}");
    let file = pool.path("env");
    fs::write(&file, format!("# comment\n{env}\n")).unwrap();
    let id = pool.ok(&[
        "new",
        "web",
        "--env-file",
        file.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &format!(": {OTHER_WORD}; exec sleep 1000"),
    ]);
    let mut told = vec![
        pool.tmux_text(&["show-environment", "-g"]),
        pool.tmux_text(&["show-environment", "-t", "=web:"]),
        pool.tmux_text(&["list-panes", "-a", "-F", "#{pane_start_command} #{pane_title} #{window_name}"]),
    ];
    told.extend(
        fs::read_dir(pool.state().join("run"))
            .unwrap()
            .flatten()
            .filter(|f| f.path().is_file())
            .map(|file| String::from_utf8_lossy(&fs::read(file.path()).unwrap()).into_owned()),
    );
    for text in &told {
        assert!(!text.contains(SECRET) && !text.contains(OTHER_WORD), "{text}");
    }
    for args in [vec!["--json", "events"], vec!["events"], vec!["--json", "show", &id], vec!["show", &id]] {
        assert!(!pool.ok(&args).contains(SECRET), "{args:?}");
    }
    assert_eq!(tell_tales(OTHER_WORD), BTreeSet::new());
}

/// Environment of a session that is created from a directory and with variables of its own.
fn environment_of(pool: &Pool, name: &str, flags: &[&str]) -> String {
    let mut command = pool.poolctl();
    command.env("AWS_SECRET", SECRET).env("EDITOR", "ed").env("LC_TIME", "C").current_dir(pool.path("home"));
    command.env("TMUX", "/x,1,0").env("TERM_PROGRAM", "x").env("POOL_SESSION", "sess_99").env("SHLVL", "7");
    command.args(["new", name]).args(flags).args([
        "--",
        "sh",
        "-c",
        "env >env.part; mv env.part env; exec sleep 1000",
    ]);
    drop(crate::harness::Output::of(&mut command, b"").expect(0));
    let env = pool.await_file(pool.path("home/env"), |bytes| contains(bytes, "POOL_SESSION="));
    fs::remove_file(pool.path("home/env")).unwrap();
    String::from_utf8(env).unwrap()
}

#[test]
fn a_session_starts_as_in_the_callers_shell_without_what_is_of_its_terminal() {
    let pool = Pool::new();
    let env = environment_of(&pool, "web", &[]);
    let lines: BTreeSet<&str> = env.lines().collect();
    let secret = format!("AWS_SECRET={SECRET}");
    for line in ["LC_TIME=C", "EDITOR=ed", secret.as_str(), "POOL_SESSION=sess_1", "TERM=tmux-256color"] {
        assert!(lines.contains(line), "{line}: {env}");
    }
    for name in ["TMUX=", "TERM_PROGRAM=", "NOTIFY_SOCKET=", "SHLVL=7"] {
        assert!(!lines.iter().any(|line| line.starts_with(name)), "{name}: {env}");
    }
    // This also holds for restarts, whoever causes them; and the value is shown nowhere.
    pool.ok(&["restart", "web"]);
    let again = pool.await_file(pool.path("home/env"), |bytes| contains(bytes, "POOL_SESSION="));
    assert!(String::from_utf8(again).unwrap().contains(&secret));
    assert!(!pool.ok(&["--json", "show", "web"]).contains(SECRET));

    fs::remove_file(pool.path("home/env")).unwrap();
    let clean = environment_of(&pool, "clean", &["--clean-env"]);
    assert!(clean.contains("LC_TIME=C\n") && !clean.contains(SECRET) && !clean.contains("EDITOR"), "{clean}");
    pool.reload("[env]\npass = ['*']\ndrop = ['AWS_*']\n");
    let dropped = environment_of(&pool, "dropped", &[]);
    assert!(dropped.contains("EDITOR=ed\n") && !dropped.contains(SECRET), "{dropped}");
}

#[test]
fn a_program_that_cannot_be_run_is_named_with_its_directory() {
    let pool = Pool::new();
    let said = pool.ctl(&["new", "web", "--cwd", "/tmp", "--", "./serve && more"]).expect(1).stderr;
    assert!(said.contains("in \"/tmp\"") && said.contains("sh -c"), "{said}");
}

#[test]
fn what_the_pool_writes_is_private() {
    let pool = Pool::new();
    pool.script("web", "echo text; exec sleep 1000");
    let dir = pool.show("web")["dir"].as_str().unwrap().to_owned();
    let log = format!("{dir}/logs/output.log");
    wait_until("it logs", PATIENCE, || fs::metadata(&log).is_ok_and(|m| m.len() > 0));
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let state = pool.state();
    let state = state.to_str().unwrap();
    for path in [state, &format!("{state}/run"), &format!("{state}/sessions"), &dir, &format!("{dir}/logs")] {
        assert_eq!(mode(path), 0o700, "{path}");
    }
    for path in [&log, &format!("{state}/pool.redb"), &format!("{state}/run/poold.sock")] {
        assert_eq!(mode(path), 0o600, "{path}");
    }
}
