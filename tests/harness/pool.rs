//! A hermetic pool: directories, environment, daemons and a tmux server of its own; removed without a trace.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::blocking::Connection;
use protocol::tmux::HIDDEN_SESSION;
use protocol::{Hello, Request, Response, Role, SessionRef};
use serde_json::Value;
use tempfile::TempDir;

use super::daemons::{Daemon, Program};
use super::output::Output;
use super::procs::{find_marked, pids, send_signal, words};
use super::wait::{PATIENCE, eventually, pause, wait_until};

/// Uid of `nobody` on Linux.
const NOBODY: u32 = 65534;

/// Prints a skipped test, the reason and the running count on the real standard error.
pub(crate) fn skipped(reason: &str) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    // Written past the test runner's capture; failing to write harms nothing.
    drop(writeln!(std::io::stderr(), "skipped ({count} so far): {name}: {reason}"));
}

/// Adds to a configuration that the machine is never short, unless it says when: what a test finds does not
/// depend on what else runs.
fn of_a_roomy_machine(config: &str) -> String {
    const NEVER: &str = "[reaper]\nhost_memory = 'never'\nhost_disk = 'never'\n";
    if config.contains("host_") {
        config.to_owned()
    } else if config.contains("[reaper]\n") {
        config.replacen("[reaper]\n", NEVER, 1)
    } else {
        format!("{config}\n{NEVER}")
    }
}

/// A pool with an environment of its own.
#[derive(Debug)]
pub(crate) struct Pool {
    dir: TempDir,
    daemons: Mutex<Vec<(Program, Daemon)>>,
    /// Uid that everything runs as, if not the caller's.
    user: Option<u32>,
}

impl Pool {
    /// Creates directories and configuration; starts nothing.
    pub(crate) fn bare(config: &str) -> Self {
        // Short prefix: a socket path has at most 107 bytes.
        Self::bare_in("tp", config)
    }

    /// [`Pool::bare`] in a directory whose name starts with `prefix`.
    pub(crate) fn bare_in(prefix: &str, config: &str) -> Self {
        let dir = tempfile::Builder::new().prefix(prefix).rand_bytes(6).tempdir_in("/tmp").unwrap();
        for name in ["home", "work"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let pool = Self { dir, daemons: Mutex::default(), user: None };
        pool.configure(config);
        pool
    }

    /// [`Pool::bare`] as a user without root's privileges, whoever runs the test.
    pub(crate) fn bare_without_rights(config: &str) -> Self {
        let mut pool = Self::bare(config);
        if nix::unistd::geteuid().is_root() {
            for name in ["", "home", "work", "config.toml"] {
                std::os::unix::fs::chown(pool.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
            }
            pool.user = Some(NOBODY);
        }
        pool
    }

    /// Starts the three daemons and waits until they are connected.
    #[track_caller]
    pub(crate) fn with(config: &str) -> Self {
        let pool = Self::bare(config);
        pool.start_all();
        pool
    }

    /// [`Pool::with`] the default configuration but a short grace period.
    #[track_caller]
    pub(crate) fn new() -> Self {
        Self::with("[reaper]\ngrace = \"500ms\"\n")
    }

    /// A path in the test's own directory.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The pool's state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.path("s")
    }

    /// `poold`'s socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.state().join("run/poold.sock")
    }

    /// Socket of the pool's tmux server.
    pub(crate) fn tmux_socket(&self) -> PathBuf {
        self.state().join("run/tmux.sock")
    }

    /// The database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.state().join("pool.redb")
    }

    /// Command with the test's environment; of the caller's it keeps only `PATH`.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(in_search_path(program.as_ref()));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command.env_clear().current_dir(self.path("work"));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path("home")).env("TMPDIR", self.dir.path());
        command.env("SHELL", "/bin/sh").env("LANG", "C.UTF-8").env("TERM", "xterm-256color");
        command.env("XDG_CONFIG_HOME", self.path("xc")).env("XDG_STATE_HOME", self.path("xs"));
        command.env("POOL_STATE_DIR", self.state()).env("POOL_CONFIG", self.path("config.toml"));
        command
    }

    /// Replaces the configuration file without telling the running daemons.
    pub(crate) fn configure(&self, text: &str) {
        let path = self.path("config.toml");
        fs::write(&path, of_a_roomy_machine(text)).unwrap();
        // The mode is set whatever the umask is: a file that others can write to is refused.
        fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
    }

    /// Replaces the configuration file, and has `poold` read it.
    #[track_caller]
    pub(crate) fn reload(&self, text: &str) {
        self.configure(text);
        self.ok(&["config", "reload"]);
    }

    // ---- poolctl ----

    /// `poolctl` in the test's environment, for further arguments.
    pub(crate) fn poolctl(&self) -> Command {
        self.command(env!("CARGO_BIN_EXE_poolctl"))
    }

    /// Runs `poolctl`.
    #[track_caller]
    #[must_use = "look at the output or assert how it ended"]
    pub(crate) fn ctl<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        self.ctl_in(args, b"")
    }

    /// Runs `poolctl` with `input` on standard input.
    #[track_caller]
    #[must_use = "look at the output or assert how it ended"]
    pub(crate) fn ctl_in<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Output {
        Output::of(self.poolctl().args(in_own_directory(args)), input)
    }

    /// Runs `poolctl`, expects success; returns its output without the final newline.
    #[track_caller]
    pub(crate) fn ok<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        self.patient(&[], args).expect(0).text().to_owned()
    }

    /// Runs `poolctl --json`, expects success; returns its single document.
    #[track_caller]
    pub(crate) fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Value {
        self.patient(&["--json"], args).expect(0).json()
    }

    /// Runs `poolctl --json`, expects success; returns its documents.
    #[track_caller]
    pub(crate) fn lines<S: AsRef<OsStr>>(&self, args: &[S]) -> Vec<Value> {
        self.patient(&["--json"], args).expect(0).json_lines()
    }

    /// Runs `poolctl` with a timeout for busy machines unless `args` has one.
    #[track_caller]
    fn patient<S: AsRef<OsStr>>(&self, flags: &[&str], args: &[S]) -> Output {
        let mut command = self.poolctl();
        if !args.iter().any(|arg| arg.as_ref() == "--timeout") {
            command.arg("--timeout").arg(format!("{}s", PATIENCE.as_secs()));
        }
        Output::of(command.args(flags).args(in_own_directory(args)), b"")
    }

    /// Creates a session that runs a shell script; returns its id.
    #[track_caller]
    pub(crate) fn script(&self, name: &str, script: &str) -> String {
        self.ok(&["new", name, "--", "sh", "-c", script])
    }

    /// `show --json` of a session, without what is read from its log.
    #[track_caller]
    pub(crate) fn show(&self, session: &str) -> Value {
        match self.ask(Request::Show(SessionRef(session.to_owned()))) {
            Some(Response::Session(view)) => ctl::session_document(&view),
            // What is wrong, `poolctl` says.
            _ => self.json(&["show", session]),
        }
    }

    /// The directory of a session.
    #[track_caller]
    pub(crate) fn dir(&self, session: &str) -> PathBuf {
        PathBuf::from(self.show(session)["dir"].as_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn lifecycle(&self, session: &str) -> String {
        self.show(session)["lifecycle"].as_str().unwrap().to_owned()
    }

    /// `status --json`, healthy or not.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        self.ctl(&["--json", "status"]).json()
    }

    /// Waits until a session is in `state`; returns its document.
    #[track_caller]
    pub(crate) fn await_lifecycle(&self, session: &str, state: &str) -> Value {
        let began = Instant::now();
        loop {
            let shown = self.show(session);
            if shown["lifecycle"] == state {
                return shown;
            }
            assert!(began.elapsed() < PATIENCE, "{session} is not {state}: {shown}\n{}", self.journal());
            pause(began);
        }
    }

    /// The whole journal.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        self.lines(&["events"])
    }

    /// The whole journal as text, for messages.
    #[track_caller]
    pub(crate) fn journal(&self) -> String {
        self.ok(&["--json", "events"])
    }

    /// Kinds of a session's events, in order.
    #[track_caller]
    pub(crate) fn event_kinds(&self, session: &str) -> Vec<String> {
        let events = self.lines(&["events", "--session", session]);
        events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
    }

    /// Pids of the agent and of the pane's process, its init.
    #[track_caller]
    pub(crate) fn pane_pids(&self, session: &str) -> (u32, u32) {
        let shown = self.show(session);
        let agent = shown["generator"]["pid"].as_u64().unwrap_or_else(|| panic!("no agent: {shown}"));
        let pane = shown["tmux"]["pane_id"].as_str().unwrap().to_owned();
        let init = self.tmux_text(&["display-message", "-p", "-t", &pane, "#{pane_pid}"]);
        (u32::try_from(agent).unwrap(), init.parse().unwrap())
    }

    /// Waits until a file has the wanted content; a relative name is in the test's directory.
    #[track_caller]
    pub(crate) fn await_file(&self, name: impl AsRef<Path>, holds: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let path = self.path(name);
        let began = Instant::now();
        loop {
            let read = fs::read(&path);
            match read {
                Ok(bytes) if holds(&bytes) => return bytes,
                _ => assert!(began.elapsed() < PATIENCE, "{}: {read:?}", path.display()),
            }
            pause(began);
        }
    }

    // ---- tmux ----

    /// Runs tmux against the pool's own server; never starts one.
    #[track_caller]
    #[must_use = "look at the output or assert how it ended"]
    pub(crate) fn tmux<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        let mut command = self.command("tmux");
        Output::of(command.arg("-uN").arg("-S").arg(self.tmux_socket()).args(args), b"")
    }

    /// Runs tmux, expects success; returns its output without the final newline.
    #[track_caller]
    pub(crate) fn tmux_text<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        self.tmux(args).expect(0).text().to_owned()
    }

    /// Pid of the pool's tmux server, if it answers.
    pub(crate) fn tmux_pid(&self) -> Option<u32> {
        let mut command = self.command("tmux");
        command.arg("-N").arg("-S").arg(self.tmux_socket()).args(["display-message", "-p", "#{pid}"]);
        Output::of(&mut command, b"").text().parse().ok()
    }

    /// Names of the sessions in the pool's tmux server, without the watcher's hidden session.
    #[track_caller]
    pub(crate) fn tmux_sessions(&self) -> Vec<String> {
        let names = self.tmux_text(&["list-sessions", "-F", "#{session_name}"]);
        names.lines().filter(|name| *name != HIDDEN_SESSION).map(str::to_owned).collect()
    }

    /// Each pane of the pool's tmux server in `format`, without that of the watcher's hidden session.
    #[track_caller]
    pub(crate) fn tmux_panes(&self, format: &str) -> Vec<String> {
        let format = format!("#{{session_name}}\t{format}");
        let panes = self.tmux(&["list-panes", "-a", "-F", &format]).stdout;
        let panes = panes.lines().filter_map(|line| line.split_once('\t'));
        panes.filter(|(session, _)| *session != HIDDEN_SESSION).map(|(_, pane)| pane.to_owned()).collect()
    }

    // ---- daemons ----

    /// A daemon's command line, to be changed and given to [`Pool::start_as`].
    pub(crate) fn daemon(&self, program: Program) -> Command {
        self.command(program.path())
    }

    /// Starts a daemon without waiting for anything.
    #[track_caller]
    pub(crate) fn start(&self, program: Program) -> u32 {
        self.start_as(program, self.daemon(program))
    }

    /// Starts `poold`, and waits until it answers.
    #[track_caller]
    pub(crate) fn start_poold(&self) -> u32 {
        let pid = self.start(Program::Poold);
        self.await_poold();
        pid
    }

    /// Starts a daemon by `command`.
    #[track_caller]
    pub(crate) fn start_as(&self, program: Program, command: Command) -> u32 {
        let daemon = Daemon::start(command, &self.log(program));
        let pid = daemon.pid();
        self.daemons.lock().unwrap().push((program, daemon));
        pid
    }

    /// Starts all three daemons and waits until `status` reports all connected.
    #[track_caller]
    pub(crate) fn start_all(&self) {
        for program in Program::ALL {
            self.start(program);
        }
        self.await_complete();
    }

    /// Waits until `poold` answers.
    #[track_caller]
    pub(crate) fn await_poold(&self) {
        // `poold` takes no connection of another user, and this process may be one: then `poolctl` asks.
        let is_there = || self.ctl(&["ls", "--timeout", "1s"]).code == 0;
        wait_until("poold answers", PATIENCE, || match self.user {
            None => self.ask(Request::Ping).is_some(),
            Some(_) => is_there(),
        });
    }

    /// The answer to one request, over a connection of this process: a wait asks often, and a program for each look
    /// would cost many times as much.
    fn ask(&self, request: Request) -> Option<Response> {
        if self.user.is_some() {
            return None;
        }
        let hello = Hello::new(Role::Client, "", "test");
        let limit = Some(Duration::from_secs(1));
        Connection::connect_and_call(&self.socket(), &hello, limit, None, request).ok()?.1.ok()?.ok()
    }

    /// Waits until watcher and reaper are connected and tmux was observed without a problem. Sessions may have been
    /// lost, and messages be in doubt.
    #[track_caller]
    pub(crate) fn await_complete(&self) {
        if self.user.is_some() {
            // `poold` takes no connection of this process, so `poolctl` asks.
            return wait_until("the pool is complete", PATIENCE, || {
                let status = self.ctl(&["--json", "--timeout", "1s", "status"]);
                let found = serde_json::from_str::<Value>(&status.stdout).unwrap_or_default();
                let is_there = |component: &Value| component["connected"] == true;
                let all = found["components"].as_array().is_some_and(|all| all.iter().all(is_there));
                all && found["tmux"]["detail"].is_null()
            });
        }
        let began = Instant::now();
        loop {
            let answer = self.ask(Request::Status);
            if let Some(Response::Status(status)) = &answer {
                let connected = status.components.iter().filter(|component| component.connected).count();
                let is_seen = matches!(status.tmux.state.as_str(), "up" | "absent");
                if connected == 2 && is_seen && status.tmux.detail.is_none() {
                    return;
                }
            }
            assert!(began.elapsed() < PATIENCE, "the pool is not complete: {answer:?} {}", self.logs());
            pause(began);
        }
    }

    /// Pid of the daemon, if this test runs it.
    pub(crate) fn pid(&self, program: Program) -> Option<u32> {
        let daemons = self.daemons.lock().unwrap();
        daemons.iter().rev().find(|(other, _)| *other == program).map(|(_, daemon)| daemon.pid())
    }

    /// Exit code of the daemon started last, if it has ended.
    pub(crate) fn ended(&self, program: Program) -> Option<i32> {
        let mut daemons = self.daemons.lock().unwrap();
        let (_, daemon) = daemons.iter_mut().rev().find(|(other, _)| *other == program)?;
        daemon.ended()
    }

    /// Waits for the end of the daemon started last; returns its exit code.
    #[track_caller]
    pub(crate) fn await_end(&self, program: Program) -> i32 {
        eventually(&format!("{} ends", program.name()), PATIENCE, || self.ended(program))
    }

    /// Sends a signal to every instance of the daemon that this test started, and waits for their ends.
    #[track_caller]
    pub(crate) fn end(&self, program: Program, signal: Signal) {
        let mut daemons = self.daemons.lock().unwrap();
        for (_, daemon) in daemons.iter_mut().filter(|(other, _)| *other == program) {
            daemon.end(signal);
        }
        daemons.retain(|(other, _)| *other != program);
    }

    /// Sends a signal to one instance of a daemon, and waits for its end.
    #[track_caller]
    pub(crate) fn end_one(&self, pid: u32, signal: Signal) {
        let mut daemons = self.daemons.lock().unwrap();
        let at = daemons.iter().position(|(_, daemon)| daemon.pid() == pid).unwrap();
        daemons[at].1.end(signal);
        daemons.remove(at);
    }

    /// Kills the daemon with SIGKILL.
    #[track_caller]
    pub(crate) fn kill9(&self, program: Program) {
        self.end(program, Signal::SIGKILL);
    }

    /// Kills `poold` with SIGKILL, starts it again and waits until it answers.
    #[track_caller]
    pub(crate) fn restart_poold(&self) {
        self.kill9(Program::Poold);
        self.start_poold();
    }

    fn log(&self, program: Program) -> PathBuf {
        self.path(format!("{}.log", program.name()))
    }

    /// Last lines of the daemons' logs.
    pub(crate) fn logs(&self) -> String {
        let mut text = String::new();
        for program in Program::ALL {
            let log = fs::read_to_string(self.log(program)).unwrap_or_default();
            // The frames of a panic's backtrace are left out.
            let lines = log.lines().filter(|line| !line.starts_with("  "));
            let lines: Vec<&str> = lines.rev().take(60).collect();
            let lines: Vec<&str> = lines.into_iter().rev().collect();
            text.push_str(&format!("\n--- {}\n{}", program.name(), lines.join("\n")));
        }
        text
    }

    // ---- the end ----

    /// Running processes with this pool's mark in their environment, each with its incarnation.
    pub(crate) fn marked(&self) -> Vec<(u32, String)> {
        find_marked(&format!("POOL_SOCKET={}", self.socket().display()), "POOL_INCARNATION")
    }

    /// Running processes with the mark of an incarnation that has no pane.
    pub(crate) fn leaked(&self) -> Vec<(u32, String)> {
        let marked = self.marked();
        if marked.is_empty() {
            return marked;
        }
        let panes = self.tmux(&["list-panes", "-a", "-F", "#{@pool_id}"]);
        if panes.code != 0 {
            return Vec::new();
        }
        // One that was started since has its pane, and one whose pane was closed since is about to end: the caller
        // looks again.
        let is_leaked = |(_, tag): &(u32, String)| !panes.stdout.lines().any(|pane| pane == tag);
        marked.into_iter().filter(|found| !tag_is_empty(found) && is_leaked(found)).collect()
    }

    /// Continues the tmux server, found by its command line: a stopped server answers nothing.
    fn wake_tmux(&self) {
        let socket = self.tmux_socket();
        let is_server = |pid: &u32| {
            let line = words(*pid);
            let mut words = line.split(|byte| *byte == 0);
            words.next().is_some_and(|program| program.ends_with(b"tmux"))
                && words.any(|word| word == socket.as_os_str().as_bytes())
        };
        pids().into_iter().filter(is_server).for_each(|pid| send_signal(pid, Signal::SIGCONT));
    }

    fn end_all(&self) -> Result<(), String> {
        self.wake_tmux();
        if self.state().join("run/up.lock").exists() {
            let _down = self.ctl(&["down"]);
        }
        let leaked = settle(Duration::from_secs(8), || self.leaked());
        for program in Program::ALL {
            self.end(program, Signal::SIGKILL);
        }
        if let Some(pid) = self.tmux_pid() {
            let _killed = self.tmux(&["kill-server"]);
            wait_until("the tmux server ends", PATIENCE, || super::procs::gone(pid));
        }
        let mut left = self.marked();
        if !left.is_empty() {
            left.iter().for_each(|(pid, _)| send_signal(*pid, Signal::SIGTERM));
            left = settle(Duration::from_secs(4), || self.marked());
        }
        if !left.is_empty() {
            left = settle(PATIENCE, || {
                let left = self.marked();
                left.iter().for_each(|(pid, _)| send_signal(*pid, Signal::SIGKILL));
                left
            });
        }
        match (leaked.is_empty(), left.is_empty()) {
            (true, true) => Ok(()),
            (false, _) => Err(format!("these run on though their pane is gone: {leaked:?}")),
            _ => Err(format!("these could not be ended: {left:?}")),
        }
    }
}

fn tag_is_empty((_, tag): &(u32, String)) -> bool {
    tag.is_empty()
}

/// Prints a note beside a test's failure.
#[expect(clippy::print_stderr, reason = "the test runner shows it with the test that failed")]
fn tell(text: &str) {
    eprintln!("{text}");
}

/// Repeats `look` until it finds nothing or `limit` has passed; returns the last result.
fn settle(limit: Duration, mut look: impl FnMut() -> Vec<(u32, String)>) -> Vec<(u32, String)> {
    let deadline = Instant::now() + limit;
    loop {
        let found = look();
        if found.is_empty() || Instant::now() >= deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        if panicking {
            tell(&self.logs());
        }
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.end_all())) {
            Ok(Ok(())) => {}
            Ok(Err(left)) if panicking => tell(&left),
            Ok(Err(left)) => panic!("{left}"),
            Err(_) if panicking => {}
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// The path of a program that is named without one, if it is found. Given a path, the standard library starts a program
/// without fork, which would copy the page tables of this process: it has hundreds of megabytes after some hundred
/// tests.
fn in_search_path(program: &OsStr) -> PathBuf {
    let dirs = std::env::var_os("PATH").filter(|_| !program.as_encoded_bytes().contains(&b'/'));
    let found = dirs.iter().flat_map(std::env::split_paths).map(|dir| dir.join(program));
    found.into_iter().find(|path| path.is_file()).unwrap_or_else(|| program.into())
}

/// The same arguments with `--cwd own` added to `new` and `run`, the directory that most tests expect.
fn in_own_directory<S: AsRef<OsStr>>(args: &[S]) -> Vec<OsString> {
    let mut words: Vec<OsString> = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
    let ours = words.iter().take_while(|word| *word != "--");
    let is_said = ours.clone().any(|word| word.as_encoded_bytes().starts_with(b"--cwd"));
    let verb = ours.take(3).position(|word| word == "new" || word == "run");
    let flags = words.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"--"));
    if let Some(verb) = verb.filter(|verb| !is_said && (*verb == 0 || flags)) {
        words.splice(verb + 1..=verb, ["--cwd".into(), "own".into()]);
    }
    words
}
