//! A session's end takes all the processes it started, and no others.

use std::fs;

use crate::harness::{PATIENCE, Pool, alive, descendants, gone, wait_until};

/// Starts four kinds of child processes; each writes its pid to a file named after its kind.
const BROOD: &str = r#"
note() { printf 'echo $$ >%s.pid; exec sleep 1000' "$1"; }
sh -c "$(note plain)" &
setsid sh -c "$(note setsid)" &
( setsid sh -c "$(note forked)" & ) &
env -i "$(command -v sh)" -c "PATH=$PATH; trap '' HUP TERM; $(note bare)" &
until set -- *.pid && [ $# -ge 4 ]; do sleep 0.05; done
touch ready
"#;

fn brood(pool: &Pool, session: &str) -> Vec<u32> {
    let work = pool.dir(session).join("work");
    pool.await_file(work.join("ready"), |_| true);
    let pid = |name| {
        let file = work.join(format!("{name}.pid"));
        let text = pool.await_file(&file, |bytes| bytes.ends_with(b"\n"));
        String::from_utf8(text).unwrap().trim().parse().unwrap()
    };
    ["plain", "setsid", "forked", "bare"].map(pid).to_vec()
}

#[test]
fn all_children_are_gone_after_a_kill() {
    let pool = Pool::new();
    let other = pool.script("other", "exec sleep 1000");
    let id = pool.script("web", &format!("{BROOD} exec sleep 1000"));
    let pids = brood(&pool, &id);
    let (agent, init) = pool.pane_pids(&id);
    assert!(pids.iter().all(|pid| alive(*pid)));
    let below = descendants(init);
    assert!(pids.iter().all(|pid| below.contains(pid)), "all are below the init: {pids:?} {below:?}");
    pool.ctl(&["--timeout", "40s", "kill", &id]).expect(0);
    // The verb has been answered, so the ends are proved already.
    for pid in pids.into_iter().chain([agent, init]) {
        assert!(gone(pid), "{pid} runs on");
    }
    assert_eq!(pool.lifecycle(&other), "live");
    assert!(alive(pool.pane_pids(&other).0));
}

#[test]
fn all_children_are_gone_after_the_programs_own_end() {
    let pool = Pool::new();
    let id = pool.script("web", &format!("{BROOD} while [ ! -e go ]; do sleep 0.02; done; exit 4"));
    let pids = brood(&pool, &id);
    fs::write(pool.dir(&id).join("work/go"), "").unwrap();
    pool.ctl(&["--timeout", "40s", "wait", &id, "--for", "exit"]).expect(4);
    for pid in pids {
        wait_until("it is gone", PATIENCE, || gone(pid));
    }
}

#[test]
fn tmux_inside_a_session_does_not_reach_the_pool() {
    let pool = Pool::new();
    let keeper = pool.script("keeper", "exec sleep 1000");
    let script = "env >env; tmux kill-server; tmux -L default kill-server; tmux new-session -d -s mine 'exec sleep 1000'; \
                  tmux list-sessions >mine; tmux kill-server; touch ready; exec sleep 1000";
    let id = pool.script("web", script);
    let work = pool.dir(&id).join("work");
    pool.await_file(work.join("ready"), |_| true);
    assert!(fs::read_to_string(work.join("mine")).unwrap().starts_with("mine:"), "it has a tmux of its own");
    let env = fs::read_to_string(work.join("env")).unwrap();
    assert!(!env.lines().any(|line| line.starts_with("TMUX=") || line.starts_with("TMUX_PANE=")), "{env}");
    assert!(env.contains("TMUX_TMPDIR=") && env.contains(&format!("POOL_SESSION={id}")), "{env}");
    pool.ok(&["sync"]);
    assert_eq!((pool.lifecycle(&keeper).as_str(), pool.lifecycle(&id).as_str()), ("live", "live"));
}

#[test]
fn a_shell_sees_the_tmux_it_is_in() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "sh", "--agent", "shell"]);
    pool.ok(&["send", &id, "echo \"tmux is ${TMUX%%,*}\""]);
    let wanted = format!("tmux is {}", pool.tmux_socket().display());
    wait_until("it says so", PATIENCE, || pool.ok(&["logs", &id]).contains(&wanted));
}

#[test]
fn o5_what_a_session_leaves_behind_would_be_noticed() {
    let pool = Pool::new();
    pool.script("web", "exec sleep 1000");
    assert_eq!(pool.leaked(), []);
    let mut stray = pool.command("sleep");
    stray.arg("1000").env("POOL_SOCKET", pool.socket()).env("POOL_INCARNATION", "0".repeat(32));
    let mut stray = stray.spawn().unwrap();
    wait_until("it is found", PATIENCE, || pool.leaked().iter().any(|(pid, _)| *pid == stray.id()));
    stray.kill().unwrap();
    stray.wait().unwrap();
    assert_eq!(pool.leaked(), []);
}

#[test]
fn a_session_knows_itself() {
    let pool = Pool::new();
    let ctl = env!("CARGO_BIN_EXE_poolctl");
    let script = format!("{ctl} --json show - >shown; {ctl} label - seen=yes; exec sleep 1000");
    let id = pool.script("web", &script);
    wait_until("it labelled itself", PATIENCE, || pool.show(&id)["labels"]["seen"] == "yes");
    let shown = fs::read(pool.dir(&id).join("work/shown")).unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!(shown["id"], id.as_str());
    pool.ctl(&["show", "-"]).expect(2);
}
