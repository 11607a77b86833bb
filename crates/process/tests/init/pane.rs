//! A pane without tmux: an init in a terminal of its own, with its output, its files, and the processes
//! started in its directory.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use process::init::InitExit;
use process::tree::Evidence;
use protocol::job::{ExitRecord, JOB_VERSION, Job};
use protocol::reap::Leftovers;
use protocol::{Limits, SessionId, Tag};

/// Time limit of a condition, long enough for a slow machine; only a failing test reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

/// Shell script that waits for [`Pane::go`].
pub(crate) const WAIT: &str = "while [ ! -e go ]; do sleep 0.01; done";

/// Returns the tag, unique to this run because members are searched on the whole machine.
pub(crate) fn tag() -> Tag {
    static TAG: LazyLock<Tag> = LazyLock::new(|| {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        Tag((since ^ u128::from(std::process::id()) << 96).to_be_bytes())
    });
    *TAG
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < DEADLINE, "waited in vain: {what}");
        // The pause grows with the time waited so far, because some conditions list all processes.
        std::thread::sleep((began.elapsed() / 8).clamp(Duration::from_millis(2), Duration::from_millis(100)));
    }
}

pub(crate) struct Pane {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) init: Child,
    /// Master side; closed at the end of the output, as tmux does.
    keys: Arc<Mutex<Option<fs::File>>>,
    pub(crate) output: Arc<Mutex<Vec<u8>>>,
    closed: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

fn read_screen(mut screen: fs::File, shown: &Mutex<Vec<u8>>, stop: &AtomicBool) {
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        let mut ready = [PollFd::new(screen.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, PollTimeout::from(10_u8)).is_ok_and(|count| count == 0) {
            continue;
        }
        // An error is the end of the output: no process has the terminal open.
        let Ok(length @ 1..) = screen.read(&mut buffer) else { return };
        shown.lock().unwrap().extend(&buffer[..length]);
    }
}

/// Returns a command that runs this program again in another role.
pub(crate) fn myself(role: &str, argument: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env_clear().env("TEST_ROLE", role).env("TEST_ARGUMENT", argument);
    command.env("TERM", "of-tmux").env("TMUX", "server").env("TMUX_PANE", "%1");
    command
}

pub(crate) fn job(dir: &Path, argv: &[&str]) -> Job {
    let variable = |name: &str, value: &str| (name.into(), value.into());
    Job {
        version: JOB_VERSION,
        session: SessionId(1),
        tag: tag(),
        argv: argv.iter().map(|word| (*word).into()).collect(),
        cwd: dir.into(),
        env: vec![
            variable("PATH", "/usr/local/bin:/usr/bin:/bin"),
            variable("POOL_INCARNATION", &tag().to_string()),
        ],
        see_tmux: false,
        socket: dir.join("sock").into(),
        grace_ms: 200,
        umask: 0o027,
        limits: Limits::default(),
        cgroup: None,
        leftovers: Leftovers::default(),
        private: None,
        stderr: None,
    }
}

pub(crate) fn write_job(dir: &Path, job: &Job) -> PathBuf {
    let path = dir.join(format!("{}.job", tag()));
    fs::write(&path, serde_json::to_vec(job).unwrap()).unwrap();
    path
}

impl Pane {
    /// Runs a shell script as the session's program.
    pub(crate) fn script(script: &str) -> Self {
        Self::run(&["sh", "-c", script], |_| ())
    }

    pub(crate) fn run(argv: &[&str], change: impl FnOnce(&mut Job)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut job = job(dir.path(), argv);
        change(&mut job);
        let path = write_job(dir.path(), &job);
        Self::start(dir, &path)
    }

    #[expect(unsafe_code, reason = "the terminal is made the controlling one between fork and exec")]
    pub(crate) fn start(dir: tempfile::TempDir, job: &Path) -> Self {
        let ends = openpty(None, None).unwrap();
        let mut command = myself("init", job);
        command.current_dir(dir.path());
        for stream in [Command::stdin, Command::stdout, Command::stderr] {
            stream(&mut command, Stdio::from(ends.slave.try_clone().unwrap()));
        }
        for end in [ends.master.as_raw_fd(), ends.slave.as_raw_fd()] {
            // SAFETY: sets a flag of an open descriptor.
            unsafe { nix::libc::fcntl(end, nix::libc::F_SETFD, nix::libc::FD_CLOEXEC) };
        }
        // SAFETY: both calls are async-signal-safe, and nothing is allocated.
        unsafe {
            command.pre_exec(|| {
                nix::libc::setsid();
                nix::libc::ioctl(0, nix::libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let init = command.spawn().unwrap();
        let (output, closed) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (shown, stop) = (Arc::clone(&output), Arc::clone(&closed));
        let screen = fs::File::from(ends.master.try_clone().unwrap());
        let keys = Arc::new(Mutex::new(Some(fs::File::from(ends.master))));
        let close = Arc::clone(&keys);
        let reader = Some(std::thread::spawn(move || {
            read_screen(screen, &shown, &stop);
            *close.lock().unwrap() = None;
        }));
        Self { dir, init, keys, output, closed, reader }
    }

    /// Closes the master side, as `kill-pane` does.
    pub(crate) fn hang_up(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
    }

    pub(crate) fn type_keys(&mut self, keys: &[u8]) {
        self.keys.lock().unwrap().as_mut().unwrap().write_all(keys).unwrap();
    }

    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    pub(crate) fn wait_for_output(&self, text: &str) {
        wait_until(text, || self.output().contains(text));
    }

    pub(crate) fn file(&self, extension: &str) -> PathBuf {
        self.dir.path().join(format!("{}.{extension}", tag()))
    }

    /// Releases a script that contains [`WAIT`].
    pub(crate) fn go(&self) {
        fs::write(self.dir.path().join("go"), "").unwrap();
    }

    pub(crate) fn record(&self) -> ExitRecord {
        serde_json::from_slice(&fs::read(self.file("exit")).unwrap()).unwrap()
    }

    pub(crate) fn started(&self) -> protocol::job::Started {
        wait_until("the program's start", || self.file("started").exists());
        serde_json::from_slice(&fs::read(self.file("started")).unwrap()).unwrap()
    }

    pub(crate) fn evidence(&self) -> Evidence {
        let init = self.started().init;
        Evidence { init: Some(init), sid: Some(init.pid), tag: tag(), cgroup: None, socket: None }
    }

    /// Waits for the init to exit.
    pub(crate) fn end(&mut self) -> InitExit {
        let mut status = None;
        wait_until("the init's end", || {
            status = self.init.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        match status.code() {
            Some(code) => InitExit::Code(u8::try_from(code).unwrap()),
            None => InitExit::Signal(status.signal().unwrap()),
        }
    }

    /// Waits for the init to exit, and asserts that nothing is left: no process in its directory, and none
    /// that has its terminal open, however fast it forks.
    pub(crate) fn end_alone(&mut self) -> InitExit {
        let end = self.end();
        assert_eq!(self.living(), Vec::<u32>::new(), "left behind");
        if let Some(reader) = self.reader.take() {
            wait_until("the terminal's last user", || reader.is_finished());
        }
        end
    }

    /// Lists the living processes whose working directory is the pane's.
    pub(crate) fn living(&self) -> Vec<u32> {
        let here = self.dir.path().canonicalize().unwrap();
        let inside = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == here);
        let names =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let alive = |pid: &u32| process::identity::identify(*pid).unwrap().is_some() && !is_exiting(*pid);
        names.filter_map(|name| name.parse().ok()).filter(inside).filter(alive).collect()
    }
}

/// True if the process is exiting within the kernel and executes no more code: `PF_EXITING`
/// (include/linux/sched.h). On a busy machine a process that a signal of the terminal has ended can be in
/// this state for a while.
fn is_exiting(pid: u32) -> bool {
    const PF_EXITING: u32 = 4;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let mut fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let flags: Option<u32> = fields.nth(6).and_then(|flags| flags.parse().ok());
    flags.is_none_or(|flags| flags & PF_EXITING != 0)
}

impl Drop for Pane {
    fn drop(&mut self) {
        drop((self.init.kill(), self.init.wait()));
        for pid in self.living() {
            let Ok(Some(id)) = process::identity::identify(pid) else { continue };
            if let Ok(Some(handle)) = process::handle::Handle::open(id) {
                drop(handle.signal(nix::sys::signal::Signal::SIGKILL));
            }
        }
    }
}
