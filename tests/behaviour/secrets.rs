//! Nobody reads a secret or a word of a command from a process's arguments, from tmux or from the journal.

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
/// Of the test that gives it to `poolctl` in its arguments.
const OTHER_WORD: &str = "okapi-command-word";

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Command lines that hold the secret or this word, of processes that are not in a session.
fn tell_tales(word: &str) -> BTreeSet<String> {
    let tells = |pid: &u32| {
        let line = words(*pid);
        let agent = || environ(*pid).iter().any(|entry| entry.starts_with(b"POOL_SESSION="));
        // One that has ended meanwhile has no environment any more, and no words either.
        let is_there = || words(*pid) == line;
        ((contains(&line, SECRET) || contains(&line, word)) && !agent() && is_there())
            .then(|| String::from_utf8_lossy(&line).replace('\0', " "))
    };
    pids().iter().filter_map(tells).collect()
}

#[test]
fn no_secret_and_no_word_of_a_command_is_in_any_arguments() {
    let pool = Pool::new();
    // Given on standard input, so that not even the caller's own arguments hold them.
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

#[test]
fn only_what_is_allowed_of_the_callers_environment_goes_along() {
    let pool = Pool::new();
    let mut command = pool.poolctl();
    command
        .env("AWS_SECRET", SECRET)
        .env("TMUX", "/x,1,0")
        .env("LC_TIME", "C")
        .env("POOL_SESSION", "sess_99");
    command.args(["new", "web", "--", "sh", "-c", "env >env; exec sleep 1000"]);
    drop(crate::harness::Output::of(&mut command, b"").expect(0));
    let dir = pool.show("web")["dir"].as_str().unwrap().to_owned();
    let env = pool.await_file(format!("{dir}/work/env"), |bytes| contains(bytes, "POOL_SESSION="));
    let env = String::from_utf8(env).unwrap();
    assert!(env.contains("LC_TIME=C\n") && env.contains("POOL_SESSION=sess_1\n"), "{env}");
    assert!(!env.contains(SECRET) && !env.contains("TMUX=") && !env.contains("NOTIFY_SOCKET"), "{env}");
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
