//! A private tmux server, and jobs for its panes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::{Epoch, Tag, Token};
use tempfile::TempDir;
use tmux::{Create, Created, Device, LogOptions, PaneRef, Size, server_config};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Script in place of the pool's init and log writer: `SCRIPT exec JOB` runs a shell script, `SCRIPT log
/// DIR` writes.
const INIT: &str = "#!/bin/sh\ncase $1 in exec) . \"$2\" ;; log) exec cat >>\"$2/log\" ;; esac\n";

pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    pub(crate) device: Device,
    server: AtomicU32,
    issued: AtomicU64,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let mut device = Device::new("tmux", dir.path().join("socket"));
        device.start_server = true;
        let config = dir.path().join("conf");
        fs::write(&config, server_config::text(2000)).unwrap();
        device.config = Some(config);
        device.deadline = PATIENCE;
        Self { dir, device, server: AtomicU32::new(0), issued: AtomicU64::new(1) }
    }

    /// Returns the next token.
    pub(crate) fn token(&self) -> Token {
        Token { epoch: Epoch(1), n: self.issued.fetch_add(1, Ordering::Relaxed) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the job of a session that runs this shell script, in which `$d` is the rig's directory.
    pub(crate) fn job(&self, name: &str, script: &str) -> Create {
        let job = self.path(&format!("{name}.job"));
        fs::write(&job, format!("d='{}'\n{script}\n", self.dir.path().display())).unwrap();
        let mut tag = [0x5a; 16];
        tag.iter_mut().zip(name.bytes()).for_each(|(byte, letter)| *byte = letter);
        Create {
            name: name.parse().unwrap(),
            tag: Tag(tag),
            token: self.token(),
            size: Size { width: 80, height: 24 },
            history_limit: Some(2000),
            init: executable(&self.path("init"), INIT),
            job,
            log: LogOptions::new(self.dir.path()),
            start_server: true,
        }
    }

    pub(crate) async fn start(&self, name: &str, script: &str) -> Created {
        let created = self.device.create(&self.job(name, script)).await.unwrap();
        self.server.store(created.pane.server.pid, Ordering::Relaxed);
        created
    }

    /// Starts a session whose program copies its raw input to the file `out`.
    pub(crate) async fn recorder(&self, name: &str) -> Created {
        let script = "stty raw -echo; touch \"$d/ready\"; exec cat >\"$d/out\"";
        let created = self.start(name, script).await;
        until("the program runs", || self.path("ready").exists()).await;
        created
    }

    /// Returns the recorder's bytes once there are `length` of them.
    pub(crate) async fn recorded(&self, length: usize) -> Vec<u8> {
        until("the bytes arrive", || fs::metadata(self.path("out")).is_ok_and(|m| m.len() >= length as u64))
            .await;
        fs::read(self.path("out")).unwrap()
    }

    /// Runs tmux itself, for actions of a user or an agent.
    pub(crate) fn raw(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let output = command.arg("-uS").arg(&self.device.socket).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a session whose program has ended, after tmux had read its last words. tmux takes the end of a program
    /// for the end of its output, and discards what it has not read by then: the pool's init waits for that.
    pub(crate) async fn ended(&self, name: &str) -> PaneRef {
        let script = "echo last words; until [ -e \"$d/read\" ]; do sleep 0.01; done; exit 3";
        let pane = self.start(name, script).await.pane;
        let has_read = async || self.device.snapshot(pane).await.unwrap().screen.starts_with(b"last words\n");
        eventually("its last words", has_read).await;
        fs::write(self.path("read"), "").unwrap();
        self.dead(pane).await;
        pane
    }

    pub(crate) async fn dead(&self, pane: PaneRef) {
        eventually("the pane is dead", async || self.device.observe().await.unwrap().panes[&pane.pane].dead)
            .await;
    }

    pub(crate) fn signal(&self, pane: PaneRef, signal: Signal) {
        send(pane.server.pid, signal);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A failed test may have left the server stopped, and then it would not answer.
        if let Ok(pid @ 1..) = i32::try_from(*self.server.get_mut()) {
            let _may_be_gone = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
        let mut command = Command::new("tmux");
        let output =
            command.arg("-NS").arg(&self.device.socket).args(["display-message", "-p", "#{pid}"]).output();
        let pid = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()?.trim().parse().ok());
        if let Some(pid) = pid {
            send(pid, Signal::SIGKILL);
        }
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// Writes a script, in another process: a child that another test forks meanwhile would hold the file open for
/// writing, and the script could not be run ("text file busy").
pub(crate) fn executable(path: &Path, text: &str) -> PathBuf {
    if !path.exists() {
        let write = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
        let written = Command::new("sh").args(["-c", write]).arg(path).arg(text).status().unwrap();
        assert!(written.success());
    }
    path.to_owned()
}

/// Runs the rest of the test `name` in a process of its own, with these variables and `LC_TEST=kept`.
pub(crate) fn in_an_environment(name: &str, variables: &[(&str, &str)], rest: impl Future<Output = ()>) {
    if std::env::var_os("LC_TEST").is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(rest);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name]).envs(variables.iter().copied()).env("LC_TEST", "kept");
    let output = command.env_remove("SSH_AUTH_SOCK").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, async || holds()).await;
}

pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
