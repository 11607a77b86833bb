//! Exact exit codes of every program, whatever else happens at that moment; otherwise the code is reported as
//! unknown.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::await_slots;
use crate::faults::support::on_a_disk;
use crate::harness::{PATIENCE, Pool, Program, gone, number, send_signal, wait_until};

/// Exit codes with a meaning to shells or signals, and their neighbours; `POOL_EXITS=N` tests 0 to N-1.
const CODES: [i32; 40] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 42, 63, 64, 65, 77, 78, 99, 100, 113, 124, 125, 126, 127, 128, 129,
    130, 131, 134, 137, 139, 141, 143, 144, 159, 160, 191, 192, 199,
];
/// Number of those codes used for sessions that end at the moment of another event.
const AT_ONCE: usize = 16;

fn codes() -> Vec<i32> {
    match number("POOL_EXITS", 0) {
        0 => CODES.to_vec(),
        many => (0..i32::try_from(many).unwrap()).collect(),
    }
}

fn at_once() -> Vec<i32> {
    let codes = codes();
    let step = if number("POOL_EXITS", 0) == 0 { codes.len() / AT_ONCE } else { 1 };
    codes.into_iter().step_by(step).collect()
}

const ROOMY: &str = "[pool]\nmax_sessions = 400\nmin_free_disk = '0B'\n[reaper]\ngrace = '500ms'\n";

fn name(code: i32) -> String {
    format!("c{code}")
}

/// Runs `work` for each code, four at a time.
fn each(codes: &[i32], work: impl Fn(i32) + Sync) {
    thread::scope(|scope| {
        for part in codes.chunks(codes.len().div_ceil(4)) {
            scope.spawn(|| part.iter().for_each(|code| work(*code)));
        }
    });
}

/// Starts sessions that ignore a hang-up and exit with these codes when triggered; returns the trigger.
#[track_caller]
fn waiting(pool: &Pool, codes: &[i32]) -> Go {
    let path = pool.path("go");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Open for reading and writing, so that neither side waits for the other.
    let go = Go(fs::File::options().read(true).write(true).open(&path).unwrap());
    each(codes, |code| {
        let script = format!(
            "trap '' HUP TERM; exec 3<{}; touch ready; read -r line <&3; exit {code}",
            path.display()
        );
        pool.script(&name(code), &script);
    });
    for session in pool.lines(&["ls"]) {
        let ready = PathBuf::from(session["dir"].as_str().unwrap()).join("work/ready");
        wait_until("it is ready", PATIENCE, || ready.exists());
    }
    go
}

/// Trigger of waiting sessions: a line ends one of them.
struct Go(fs::File);

impl Go {
    fn go(&self, codes: &[i32]) {
        (&self.0).write_all("\n".repeat(codes.len()).as_bytes()).unwrap();
    }
}

/// Waits until all have ended; returns the code and the document of each.
fn ends(pool: &Pool, codes: &[i32]) -> Vec<(i32, Value)> {
    await_slots(pool, 0);
    let all = pool.lines(&["ls", "--all"]);
    let of = |code: &i32| all.iter().find(|session| session["name"] == name(*code).as_str()).unwrap().clone();
    codes.iter().map(|code| (*code, of(code))).collect()
}

/// Asserts that each code is exact or reported as unknown; returns the number of exact ones.
#[track_caller]
fn exact_or_unknown(pool: &Pool, ends: &[(i32, Value)]) -> usize {
    let mut exact = 0;
    for (code, shown) in ends {
        if shown["exit"].is_null() {
            let waited = pool.ctl(&["wait", &name(*code), "--for", "exit"]).expect(125);
            assert!(waited.stderr.contains("not known"), "{waited:?}");
            assert!(
                pool.ok(&["show", &name(*code)]).contains("not known"),
                "{}",
                pool.ok(&["show", &name(*code)])
            );
        } else {
            assert_eq!(
                (&shown["exit"]["code"], &shown["exit"]["signal"]),
                (&(*code).into(), &Value::Null),
                "{shown}"
            );
            exact += 1;
        }
    }
    exact
}

/// Waits until all have ended, and asserts that each code is exact; returns the document of each.
#[track_caller]
fn all_exact(what: &str, pool: &Pool, codes: &[i32]) -> Vec<(i32, Value)> {
    let ends = ends(pool, codes);
    let exact = exact_or_unknown(pool, &ends);
    // Past the test runner, which hides the output of passing tests.
    drop(writeln!(std::io::stderr(), "exits: {what}: {exact} of {} exact", codes.len()));
    assert_eq!(exact, codes.len(), "{ends:#?}");
    ends
}

#[test]
fn g10_what_exits_at_once_has_its_exact_code() {
    let (pool, codes) = (Pool::with(ROOMY), codes());
    each(&codes, |code| drop(pool.script(&name(code), &format!("exit {code}"))));
    for (code, shown) in all_exact("at once", &pool, &codes) {
        assert_eq!(
            (&shown["lifecycle"], &shown["reason"]),
            (&"stopped".into(), &"exited".into()),
            "{shown} {:?}",
            pool.lines(&["events", "--session", &name(code)])
        );
        pool.ctl(&["wait", &name(code), "--for", "exit"]).expect(code);
        assert!(shown["account"]["max_rss_kib"].as_u64().unwrap() > 0, "{shown}");
    }
}

#[test]
fn g25_codes_are_exact_where_the_server_is_killed_at_that_moment() {
    let (pool, codes) = (Pool::with(ROOMY), at_once());
    let go = waiting(&pool, &codes);
    let server = pool.tmux_pid().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| go.go(&codes));
        send_signal(server, Signal::SIGKILL);
    });
    wait_until("the server is gone", PATIENCE, || gone(server));
    all_exact("tmux killed at that moment", &pool, &codes);
}

#[test]
fn g25_codes_are_exact_where_the_server_is_told_to_end_at_that_moment() {
    let (pool, codes) = (Pool::with(ROOMY), at_once());
    let go = waiting(&pool, &codes);
    thread::scope(|scope| {
        scope.spawn(|| go.go(&codes));
        pool.tmux_text(&["kill-server"]);
    });
    all_exact("kill-server at that moment", &pool, &codes);
}

#[test]
fn g25_codes_are_exact_where_poold_is_away() {
    let (pool, codes) = (Pool::with(ROOMY), at_once());
    let go = waiting(&pool, &codes);
    pool.kill9(Program::Poold);
    go.go(&codes);
    let run = pool.state().join("run");
    wait_until("all of them ended", PATIENCE, || {
        let files = fs::read_dir(&run).unwrap().flatten();
        files.filter(|file| file.path().extension().is_some_and(|e| e == "exit")).count() == codes.len()
    });
    pool.start_poold();
    all_exact("poold away", &pool, &codes);
}

#[test]
fn g25_codes_are_exact_where_poold_and_the_server_are_killed_at_that_moment() {
    let (pool, codes) = (Pool::with(ROOMY), at_once());
    let go = waiting(&pool, &codes);
    let server = pool.tmux_pid().unwrap();
    pool.kill9(Program::Poold);
    thread::scope(|scope| {
        scope.spawn(|| go.go(&codes));
        send_signal(server, Signal::SIGKILL);
    });
    pool.start_poold();
    all_exact("tmux and poold killed at that moment", &pool, &codes);
}

#[test]
fn g25_codes_are_exact_where_the_disk_is_full() {
    let Some((mount, pool)) = on_a_disk(&format!("{ROOMY}[queue]\nmin_free_disk = '0B'\n"), "48m") else {
        return;
    };
    pool.start_all();
    let codes = at_once();
    let go = waiting(&pool, &codes);
    // Fills the rest of the disk: one of the next commits of `poold` may fail, and it reports that.
    let mut rest = fs::File::create(pool.state().join("rest")).unwrap();
    let full = std::io::copy(&mut std::io::repeat(0), &mut rest).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    go.go(&codes);
    let run = pool.state().join("run");
    wait_until("all of them ended", PATIENCE, || {
        let left = pool.marked();
        let inits = left.iter().filter(|(_, tag)| run.join(format!("{tag}.taken")).exists());
        inits.count() == 0
    });
    mount.resize("96m");
    // `poold` may be about to exit over a failed commit; if the next commit succeeds, it goes on.
    wait_until("poold has ended or goes on", PATIENCE, || {
        let label = ["--timeout", "2s", "label", &name(codes[0]), "seen=yes"];
        pool.ended(Program::Poold).is_some() || pool.ctl(&label).code == 0
    });
    if pool.ended(Program::Poold).is_some() {
        pool.restart_poold();
    }
    all_exact("on a full disk", &pool, &codes);
}
