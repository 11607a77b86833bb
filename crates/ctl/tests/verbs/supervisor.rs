//! `up` and `down` with a pool of fake programs.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::identity::{self, identify};
use protocol::ProcId;
use protocol::hello::VERSION;
use serde_json::Value;

use crate::fake::{Pool, Ran, programs, until};

crate::tests! {
    up_keeps_three_daemons_and_down_stops_them, up_tells_why_it_failed,
    up_and_status_say_what_helps_while_poold_fails, down_of_a_pool_that_is_not_up_is_done,
    the_daemons_of_a_killed_supervisor_are_kept_and_stopped,
    none_is_started_beside_one_of_a_killed_supervisor, an_older_build_of_a_killed_supervisor_is_restarted,
    none_is_started_or_said_not_to_run_while_the_record_cannot_be_read, a_poold_that_hangs_is_ended_and_started_again,
    a_poold_that_is_stopped_is_named_by_up, up_starts_at_once_what_was_held_back, two_at_once_and_then_down_stay_down,
    a_supervisor_that_is_stopped_is_named_and_can_be_ended, a_supervisor_ends_with_its_directory,
    what_was_replaced_is_restarted_and_named_before, what_was_upgraded_elsewhere_is_restarted_and_named_before,
    a_socket_that_is_not_the_pools_is_not_waited_for, what_somebody_else_started_is_left_to_them,
    none_is_started_beside_a_poold_that_may_be_starting,
    an_older_build_that_somebody_else_started_is_not_said_to_be_restarted,
    a_poold_of_another_protocol_leaves_no_supervisor, an_older_protocol_is_restarted,
    up_is_refused_inside_a_session, down_ends_the_sessions_or_nothing,
}

/// A pool of fake programs, which is stopped even if the test fails.
struct Programs {
    pool: Pool,
    bin: PathBuf,
}

impl Programs {
    fn new() -> Self {
        let pool = Pool::empty();
        let bin = programs(pool.dir.path());
        Self { pool, bin }
    }

    fn run(&self, line: &str) -> Ran {
        Ran::new(&self.poolctl(line).output().unwrap())
    }

    /// Runs a `poolctl` that is told this socket.
    fn run_at(&self, socket: &Path, line: &str) -> Ran {
        Ran::new(&self.poolctl(line).env("POOL_SOCKET", socket).output().unwrap())
    }

    fn poolctl(&self, line: &str) -> Command {
        let mut command = self.pool.poolctl(line.split(' '));
        command.env("POOL_BIN_DIR", &self.bin);
        command
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        drop(self.pool.poolctl(["down"]).output());
    }
}

fn pid(bin: &Path, name: &str) -> Option<ProcId> {
    let text = std::fs::read_to_string(bin.join(format!("{name}.pid"))).ok()?;
    identify(text.trim().parse().ok()?).unwrap()
}

fn up_keeps_three_daemons_and_down_stops_them() {
    let programs = Programs::new();
    let (pool, bin) = (&programs.pool, programs.bin.as_path());
    let ran = programs.run("up --json");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap()["already"], false);
    let names = ["poold", "tmux-watch", "reaper"];
    let first = names.map(|name| pid(bin, name).unwrap());
    for id in first {
        let process = identity::read(id.pid).unwrap().unwrap();
        assert_eq!((process.sid, process.tpgid), (id.pid, None), "each leads a session without a terminal");
    }
    assert!(programs.run("up").success().contains("already up"));
    assert!(programs.run("up --foreground").success().contains("already up"));
    assert_eq!(names.map(|name| pid(bin, name).unwrap()), first, "nothing is started twice");

    kill(Pid::from_raw(i32::try_from(first[1].pid).unwrap()), Signal::SIGKILL).unwrap();
    until("another watcher", || pid(bin, "tmux-watch").is_some_and(|id| id != first[1]));
    assert_eq!(pid(bin, "poold"), Some(first[0]), "one that lives is left alone");
    assert!(programs.run("status").out.starts_with("pool default:"));

    let last = names.map(|name| pid(bin, name).unwrap());
    assert_eq!(programs.run("down").success(), "pool default stopped; 1 session lives on\n");
    assert!(last.iter().all(|id| identity::exited(*id).unwrap()), "they have ended");
    let log = |name: &str| std::fs::read_to_string(pool.dir.path().join("log").join(name)).unwrap();
    assert_eq!(log("poold.log"), "poold speaks\n");
    assert!(!log("up.log").contains("killed"), "{}", log("up.log"));
}

fn up_tells_why_it_failed() {
    let programs = Programs::new();
    let bin = programs.bin.as_path();
    let reaper = bin.join("reaper");
    std::fs::remove_file(&reaper).unwrap();
    std::fs::write(&reaper, "#!/bin/sh\necho the reaper is broken\nexit 3\n").unwrap();
    std::fs::set_permissions(&reaper, PermissionsExt::from_mode(0o700)).unwrap();
    let ran = programs.run("up --timeout 6s");
    assert_eq!(ran.code, 6);
    assert!(
        ran.err.contains("reaper not connected") && ran.err.contains("the reaper is broken"),
        "{}",
        ran.err
    );
    assert_eq!(programs.run("status").code, 1);
    assert_eq!(programs.run("down").code, 0);
    until("the end of poold", || pid(bin, "poold").is_none());
}

fn up_and_status_say_what_helps_while_poold_fails() {
    let programs = Programs::new();
    let poold = programs.bin.join("poold");
    std::fs::remove_file(&poold).unwrap();
    std::fs::write(&poold, "#!/bin/sh\nexit 3\n").unwrap();
    std::fs::set_permissions(&poold, PermissionsExt::from_mode(0o700)).unwrap();
    let ran = programs.run("up --timeout 1s");
    assert!(ran.code == 6 && ran.err.contains("`poolctl down` and then `poolctl up`"), "{ran:?}");
    let ran = programs.run("status --timeout 500ms");
    assert!(ran.code == 7 && ran.err.contains("`poolctl down` and then `poolctl up`"), "{ran:?}");
}

fn down_of_a_pool_that_is_not_up_is_done() {
    let pool = Pool::empty();
    assert_eq!(pool.run("down").success(), "pool default was not running\n");
    let document = pool.json("down --json");
    assert_eq!(document, serde_json::json!({"pool": "default", "stopped": false, "sessions_alive": null}));
    let dir: Arc<OnceLock<PathBuf>> = Arc::default();
    let its_dir = Arc::clone(&dir);
    let pool = Pool::new(move |_| {
        let state_dir = its_dir.get().map_or_else(|| "/elsewhere".into(), |dir| dir.clone().into());
        let status = protocol::reply::Status { state_dir, ..crate::samples::status() };
        crate::fake::ok(protocol::Response::Status(Box::new(status)))
    });
    let ran = pool.run("down");
    assert_eq!((ran.code, ran.err.contains("POOL_STATE_DIR")), (2, true), "{}", ran.err);
    dir.set(pool.dir.path().to_owned()).unwrap();
    let ran = pool.run("down");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("not started by `poolctl up`"), "{}", ran.err);
}

/// The supervisor of a pool.
fn supervisor(pool: &Pool) -> ProcId {
    let text = std::fs::read_to_string(pool.dir.path().join("run/up.lock")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Kills the supervisor; its daemons live on.
fn kill_supervisor(pool: &Pool) {
    let id = supervisor(pool);
    kill(Pid::from_raw(i32::try_from(id.pid).unwrap()), Signal::SIGKILL).unwrap();
    until("the end of the supervisor", || identity::exited(id).unwrap());
}

fn the_daemons_of_a_killed_supervisor_are_kept_and_stopped() {
    let programs = Programs::new();
    let (pool, bin) = (&programs.pool, programs.bin.as_path());
    let names = ["poold", "tmux-watch", "reaper"];
    assert_eq!(programs.run("up").code, 0);
    let first = names.map(|name| pid(bin, name).unwrap());
    let says_unkept = || programs.run("status").out.contains("nobody restarts the daemons");
    assert!(!says_unkept());
    kill_supervisor(pool);
    assert!(says_unkept());
    assert!(programs.run("up").success().contains("already up"));
    assert!(!says_unkept());
    assert_eq!(names.map(|name| pid(bin, name).unwrap()), first, "those that run are left alone");
    kill(Pid::from_raw(i32::try_from(first[2].pid).unwrap()), Signal::SIGKILL).unwrap();
    until("another reaper", || pid(bin, "reaper").is_some_and(|id| id != first[2]));
    assert!(programs.run("down").success().starts_with("pool default stopped"));
    assert!(
        first.iter().all(|id| identity::exited(*id).unwrap()),
        "also those that the supervisor only found"
    );

    assert_eq!(programs.run("up").code, 0);
    let second = names.map(|name| pid(bin, name).unwrap());
    kill_supervisor(pool);
    assert!(programs.run("down").success().starts_with("pool default stopped"));
    assert!(second.iter().all(|id| identity::exited(*id).unwrap()), "those of one that was killed");
    assert_eq!(programs.run("down").success(), "pool default was not running\n");
}

const NAMES: [&str; 3] = ["poold", "tmux-watch", "reaper"];

fn signal(id: ProcId, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(id.pid).unwrap()), signal).unwrap();
}

fn none_is_started_beside_one_of_a_killed_supervisor() {
    let programs = Programs::new();
    let (pool, bin) = (&programs.pool, programs.bin.as_path());
    assert_eq!(programs.run("up").code, 0);
    let first = NAMES.map(|name| pid(bin, name).unwrap());
    kill_supervisor(pool);
    assert_eq!(programs.run("up").code, 0);
    // The watcher and the reaper lose their connections for a moment.
    signal(first[0], Signal::SIGKILL);
    until("another poold", || pid(bin, "poold").is_some_and(|id| id != first[0]));
    assert_eq!([pid(bin, "tmux-watch"), pid(bin, "reaper")], [Some(first[1]), Some(first[2])]);
    assert!(programs.run("down").success().starts_with("pool default stopped"));
    assert!(first.iter().all(|id| identity::exited(*id).unwrap()), "also those of before");
}

fn an_older_build_of_a_killed_supervisor_is_restarted() {
    let programs = Programs::new();
    let (pool, bin) = (&programs.pool, programs.bin.as_path());
    let build = bin.join("build");
    programs.run("up --if-kept").success();
    assert_eq!(pid(bin, "poold"), None, "there was no pool");
    for line in ["up --if-kept", "up"] {
        programs.run("down").success();
        std::fs::write(&build, "poold 0.0.1").unwrap();
        let up = programs.poolctl("up --watchdog 7s").env("POOL_CONFIG", "/its/config").output().unwrap();
        Ran::new(&up).success();
        std::fs::remove_file(&build).unwrap();
        let first = NAMES.map(|name| pid(bin, name).unwrap());
        kill_supervisor(pool);
        assert!(programs.run(line).success().contains("older build: poold; restarting"), "{line}");
        assert!(first.iter().all(|id| identity::exited(*id).unwrap()), "{line}");
        assert!(!programs.run("status").out.contains("older build"), "{line}");
        let lock = std::fs::read_to_string(pool.dir.path().join("run/up.lock")).unwrap();
        let lock: Value = serde_json::from_str(&lock).unwrap();
        let terms = (&lock["watchdog_ms"], &lock["config"]);
        assert_eq!(terms, (&7000.into(), &"/its/config".into()), "{line}: as before");
    }
    kill_supervisor(pool);
    assert!(programs.run("down --if-kept").success().contains("stopped"));
}

fn none_is_started_or_said_not_to_run_while_the_record_cannot_be_read() {
    let programs = Programs::new();
    let record = programs.pool.dir.path().join("run/up.daemons");
    std::fs::create_dir(&record).unwrap();
    for line in ["up", "up --foreground", "down"] {
        let ran = programs.run(line);
        assert_eq!(ran.code, 1, "{line}: {ran:?}");
        let told = "cannot know which daemons of this pool run";
        assert!(ran.err.contains(told) && ran.err.contains("up.daemons"), "{line}: {}", ran.err);
    }
    assert_eq!(pid(&programs.bin, "poold"), None, "none was started");
    std::fs::remove_dir(&record).unwrap();
    assert_eq!(programs.run("up").code, 0);
    assert!(programs.run("down").success().starts_with("pool default stopped"));
}

fn a_poold_that_hangs_is_ended_and_started_again() {
    let programs = Programs::new();
    let bin = programs.bin.as_path();
    assert_eq!(programs.run("up --watchdog 1s").code, 0);
    let first = pid(bin, "poold").unwrap();
    // The watchdog begins once poold has answered: before, it may take long to start.
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(first, Signal::SIGSTOP);
    until("another poold", || pid(bin, "poold").is_some_and(|id| id != first));
    assert!(identity::exited(first).unwrap());
    until("it answers", || programs.run("status --timeout 1s").code == 0);
}

fn a_poold_that_is_stopped_is_named_by_up() {
    let programs = Programs::new();
    programs.run("up --watchdog 0s").success();
    let poold = pid(&programs.bin, "poold").unwrap();
    // The fake one does not take its lock.
    let lock = std::fs::File::create(programs.pool.dir.path().join("run/poold.lock")).unwrap();
    let mut held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).ok().unwrap();
    write!(held, "{}", poold.pid).unwrap();
    signal(poold, Signal::SIGSTOP);
    until("it is stopped", || matches!(identity::state(poold), Ok(identity::State::Stopped)));
    let ran = programs.run("up --timeout 1s");
    signal(poold, Signal::SIGCONT);
    assert!(ran.code == 6 && ran.err.contains(&format!("`kill -CONT {}`", poold.pid)), "{ran:?}");
}

fn up_starts_at_once_what_was_held_back() {
    let programs = Programs::new();
    let bin = programs.bin.as_path();
    let (reaper, aside) = (bin.join("reaper"), bin.join("aside"));
    std::fs::rename(&reaper, &aside).unwrap();
    // The pauses have grown to 1, 2 and 4 s.
    assert_eq!(programs.run("up --timeout 4s").code, 6);
    std::fs::rename(&aside, &reaper).unwrap();
    let began = std::time::Instant::now();
    programs.run("up").success();
    assert!(began.elapsed().as_secs() < 3, "{:?}", began.elapsed());
}

fn two_at_once_and_then_down_stay_down() {
    let programs = Programs::new();
    for _ in 0..3 {
        std::thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| programs.run("up").success()));
            both.into_iter().for_each(|one| drop(one.join().unwrap()));
        });
        programs.run("down").success();
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert_eq!(programs.run("status").code, 7);
    }
}

fn a_supervisor_that_is_stopped_is_named_and_can_be_ended() {
    let programs = Programs::new();
    programs.run("up").success();
    let up = supervisor(&programs.pool);
    signal(up, Signal::SIGSTOP);
    until("it is stopped", || matches!(identity::state(up), Ok(identity::State::Stopped)));
    let how = format!("`kill -CONT {}`", up.pid);
    let ran = programs.run("status");
    assert!(ran.code == 1 && ran.out.contains(&how), "{ran:?}");
    let ran = programs.run("status --json");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&document["unkept"], &document["healthy"]), (&true.into(), &false.into()));
    for line in ["up", "up --foreground"] {
        let ran = programs.run(line);
        assert!(ran.code == 1 && ran.err.contains(&how), "{ran:?}");
    }
    signal(pid(&programs.bin, "poold").unwrap(), Signal::SIGKILL);
    let ran = programs.run("ls --timeout 500ms");
    assert!(ran.code == 7 && ran.err.contains(&how), "{ran:?}");
    assert!(programs.run("down").success().starts_with("pool default stopped"));
    assert!(identity::exited(up).unwrap());
}

fn a_supervisor_ends_with_its_directory() {
    let programs = Programs::new();
    let (pool, bin) = (&programs.pool, programs.bin.as_path());
    assert_eq!(programs.run("up").code, 0);
    let all = NAMES.map(|name| pid(bin, name).unwrap());
    std::fs::remove_dir_all(pool.dir.path().join("run")).unwrap();
    until("their end", || all.iter().all(|id| identity::exited(*id).unwrap()));
}

fn what_was_replaced_is_restarted_and_named_before() {
    let programs = Programs::new();
    let bin = programs.bin.as_path();
    let replace = |name: &str| {
        let (path, fresh) = (bin.join(name), bin.join("fresh"));
        std::fs::copy(std::env::current_exe().unwrap(), &fresh).unwrap();
        std::fs::rename(fresh, path).unwrap();
    };
    NAMES.into_iter().for_each(replace);
    assert_eq!(programs.run("up").code, 0);
    assert!(!programs.run("status").out.contains("older build"));
    let first = NAMES.map(|name| pid(bin, name).unwrap());
    replace("poold");
    replace("reaper");
    let status = programs.run("status").out;
    assert!(status.contains("older build: poold, reaper"), "{status}");
    // A replaced program can be started.
    signal(first[2], Signal::SIGKILL);
    until("another reaper", || pid(bin, "reaper").is_some_and(|id| id != first[2]));
    programs.run("up --if-kept").success();
    let second = NAMES.map(|name| pid(bin, name).unwrap());
    assert!(first.iter().zip(second).all(|(before, now)| *before != now), "{first:?} {second:?}");
    assert!(!programs.run("status").out.contains("older build"));
    assert!(programs.run("up").success().contains("already up"));
}

fn what_was_upgraded_elsewhere_is_restarted_and_named_before() {
    let programs = Programs::new();
    let bin = programs.bin.as_path();
    let (old, build) = (bin.join("old"), bin.join("build"));
    // By a process of its own: a file that this one has open for writing cannot be executed.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&old).status();
    assert!(copied.unwrap().success());
    std::fs::write(&build, "poold 0.0.1").unwrap();
    let mut up = Command::new(&old);
    let told = programs.poolctl("up");
    up.arg("up").env_clear().envs(told.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Ran::new(&up.output().unwrap()).success();
    std::fs::remove_file(build).unwrap();
    let status = || programs.run("status").out;
    assert!(status().contains("older build: poold;"), "by its version: {}", status());
    std::fs::remove_file(&old).unwrap();
    assert!(status().contains("older build: up, poold;"), "its program is gone: {}", status());

    let first = pid(bin, "poold").unwrap();
    signal(first, Signal::SIGKILL);
    let log = || std::fs::read_to_string(programs.pool.dir.path().join("log/up.log")).unwrap();
    let why = format!("cannot start poold: {}: ", old.display());
    until("it says what it cannot start", || log().contains(&why));
    assert!(programs.run("up").success().contains("older build: up; restarting"));
    assert!(pid(bin, "poold").is_some_and(|id| id != first) && !status().contains("older build"));
}

fn a_socket_that_is_not_the_pools_is_not_waited_for() {
    let programs = Programs::new();
    let (own, nowhere) = (programs.bin.join("own.sock"), programs.bin.join("nowhere.sock"));
    programs.run_at(&own, "up").success();
    let began = std::time::Instant::now();
    let ran = programs.run_at(&nowhere, "ls");
    assert!(ran.code == 7 && ran.err.contains("no poold answers at"), "{ran:?}");
    // The usual limit for a poold that its supervisor restarts is 10 s.
    assert!(began.elapsed().as_secs() < 9, "{:?}", began.elapsed());
    let ran = programs.run_at(&nowhere, "up");
    assert!(ran.code == 2 && ran.err.contains("own.sock, not at"), "{ran:?}");
    // An installation does not know the socket.
    programs.run("up --if-kept").success();
    programs.run_at(&own, "status").success();
}

/// A fake program that this test runs itself, as a service manager does.
struct Others(Child);

impl Others {
    fn start(programs: &Programs, name: &str) -> Self {
        let mut command = Command::new(programs.bin.join(name));
        command.env("POOL_STATE_DIR", programs.pool.dir.path()).env("POOL_SOCKET", programs.pool.socket());
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn what_somebody_else_started_is_left_to_them() {
    let programs = Programs::new();
    let (pool, bin) = (&programs.pool, programs.bin.as_path());
    let [poold, watch, reaper] = NAMES.map(|name| Others::start(&programs, name));
    let complete = |is_so: bool| until("the status", || (programs.run("status").code == 0) == is_so);
    complete(true);
    let left =
        format!("leaves them alone: poold (pid {}, parent {}), tmux-watch", poold.0.id(), std::process::id());
    for line in ["up", "up --foreground"] {
        let told = programs.run(line).success();
        assert!(told.contains("already up") && told.contains(&left), "{line}: {told}");
    }
    assert!(!pool.dir.path().join("run/up.lock").exists(), "there is no supervisor");

    drop(reaper);
    complete(false);
    let told = programs.run("up").success();
    assert!(told.contains(&left) && !told.contains("reaper (pid"), "{told}");
    let log = std::fs::read_to_string(pool.dir.path().join("log/up.log")).unwrap();
    for name in ["poold", "tmux-watch"] {
        assert!(log.contains(&format!("{name} was started by somebody else, and is left alone")), "{log}");
    }
    let before = watch.0.id();
    drop(watch);
    complete(false);
    let told = programs.run("up").success();
    assert!(!told.contains("tmux-watch (pid"), "it is this supervisor's, once that is asked for: {told}");
    assert!(pid(bin, "tmux-watch").is_some_and(|id| id.pid != before));
    assert_eq!(pid(bin, "poold").map(|id| id.pid), Some(poold.0.id()));
}

fn none_is_started_beside_a_poold_that_may_be_starting() {
    let programs = Programs::new();
    let dir = programs.pool.dir.path();
    let lock = std::fs::File::create(dir.join("run/poold.lock")).unwrap();
    let mut held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).ok().unwrap();
    write!(held, "{}", std::process::id()).unwrap();
    assert_eq!(programs.run("up --timeout 1s").code, 6);
    let log = || std::fs::read_to_string(dir.join("log/up.log")).unwrap_or_default();
    until("they wait", || log().matches(" waits: another poold holds the pool's lock").count() == 3);
    assert!(NAMES.iter().all(|name| pid(&programs.bin, name).is_none()), "{}", log());
    drop(held);
    programs.run("up").success();
}

fn an_older_build_that_somebody_else_started_is_not_said_to_be_restarted() {
    let programs = Programs::new();
    std::fs::write(programs.bin.join("build"), "poold 0.0.1").unwrap();
    let [poold, watch, reaper] = NAMES.map(|name| Others::start(&programs, name));
    let complete = |is_so: bool| until("the status", || (programs.run("status").code == 0) == is_so);
    complete(true);
    let whose = format!("older build: poold (pid {}), not started by `poolctl up`", poold.0.id());
    let is_told = |line: &str, code: i32| {
        let ran = programs.run(line);
        let told = format!("{}{}", ran.out, ran.err);
        assert!(ran.code == code && told.contains(&whose) && !told.contains("restarting"), "{line}: {ran:?}");
    };
    is_told("status", 0);
    is_told("up", 5);
    drop(reaper);
    complete(false);
    // A reaper is started, and the pool has a supervisor.
    is_told("up", 5);
    complete(true);
    is_told("up", 5);
    is_told("up --if-kept", 0);
    let document: Value = serde_json::from_str(&programs.run("status --json").out).unwrap();
    assert_eq!(document["outdated"], serde_json::json!(["poold"]));
    assert_eq!(pid(&programs.bin, "tmux-watch").map(|id| id.pid), Some(watch.0.id()));
}

fn a_poold_of_another_protocol_leaves_no_supervisor() {
    let side = |version: u16| if version == 1 { "upgrade fake" } else { "upgrade poolctl" };
    for version in [1, VERSION + 1] {
        let programs = Programs::new();
        programs.pool.speak(version);
        for line in ["up", "up --foreground"] {
            let ran = programs.run(line);
            assert!(ran.code == 8 && ran.err.contains(side(version)), "{line}: {ran:?}");
        }
        assert!(!programs.pool.dir.path().join("run/up.lock").exists());

        // One that `up` starts.
        let programs = Programs::new();
        std::fs::write(programs.bin.join("version"), version.to_string()).unwrap();
        let ran = programs.run("up");
        assert!(ran.code == 8 && ran.err.contains(side(version)), "{ran:?}");
        assert!(programs.run("down").success().contains("was not running"));
        assert_eq!(pid(&programs.bin, "poold"), None);
    }
}

fn an_older_protocol_is_restarted() {
    let programs = Programs::new();
    let (pool, bin) = (&programs.pool, programs.bin.as_path());
    programs.run("up").success();
    for is_killed in [false, true] {
        let first = pid(bin, "poold").unwrap();
        std::fs::write(bin.join("version"), format!("{} 1", first.pid)).unwrap();
        assert_eq!(programs.run("status").code, 8);
        if is_killed {
            kill_supervisor(pool);
        }
        assert!(programs.run("up").success().contains("older build: poold; restarting"), "{is_killed}");
        assert!(pid(bin, "poold").is_some_and(|id| id != first), "{is_killed}");
    }
    let newer = pid(bin, "poold").unwrap();
    std::fs::write(bin.join("version"), format!("{} {}", newer.pid, VERSION + 1)).unwrap();
    assert_eq!(programs.run("up").code, 8);
    kill_supervisor(pool);
    assert_eq!(programs.run("up").code, 8);
    assert_eq!(pid(bin, "poold"), Some(newer), "a newer one is left alone");
}

fn up_is_refused_inside_a_session() {
    let pool = Pool::empty();
    let ran = Ran::new(&pool.poolctl(["up"]).env("POOL_INCARNATION", "ab").output().unwrap());
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(!pool.dir.path().join("run/up.lock").exists());
}

fn down_ends_the_sessions_or_nothing() {
    let pool = Pool::new(|_| crate::fake::Answer::Silence);
    assert_eq!(pool.run("down --stop-sessions").code, 6);
    let pool = Pool::empty();
    assert_eq!(pool.run("down --stop-sessions").success(), "pool default was not running\n");
    let lock = std::fs::File::create(pool.dir.path().join("run/up.lock")).unwrap();
    let _held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).ok().unwrap();
    assert_eq!(pool.run("down --stop-sessions").code, 7, "there is a supervisor");
    std::fs::rename(pool.dir.path().join("run/up.lock"), pool.dir.path().join("run/poold.lock")).unwrap();
    assert_eq!(pool.run("down").code, 1, "there is a daemon");
}
