//! Peer pueue: `pueue add`, as a script would call it, one process for each task.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::drive::Done;
use super::subject::{BODY, Load, Subject, Work};
use crate::child::Spawned;
use crate::interrupt;

pub(super) const PROGRAM: &str = "pueued";
const CLIENT: &str = "pueue";

/// A running daemon with its own configuration.
pub(super) struct Pueue {
    _process: Spawned,
    config: PathBuf,
}

impl Pueue {
    /// Starts a daemon with its files in this directory.
    pub(super) fn start(dir: &Path) -> Result<Self> {
        let (state, config) = (dir.join("pueue"), dir.join("pueue.yml"));
        let (socket, shown) = (dir.join("pueue.sock"), state.display());
        fs::create_dir(&state)?;
        let text = format!(
            "shared:\n  pueue_directory: {shown}\n  runtime_directory: {shown}\n  use_unix_socket: true\n  \
             unix_socket_path: {}\nclient: {{}}\ndaemon: {{}}\n",
            socket.display()
        );
        fs::write(&config, text)?;
        let mut command = Command::new(PROGRAM);
        command.arg("--config").arg(&config);
        let process = Spawned::server(&mut command, &socket, &dir.join("pueue.out"))?;
        Ok(Self { _process: process, config })
    }
}

impl Subject for Pueue {
    fn name(&self) -> &'static str {
        "pueue add --stashed"
    }

    fn can(&self, load: Load) -> bool {
        load == Load { work: Work::Enqueue, clients: 1 }
    }

    fn run(&mut self, _load: Load, time: Duration) -> Result<Done> {
        let mut command = Command::new(CLIENT);
        command.arg("--config").arg(&self.config).args(["add", "--stashed", "--"]);
        command.arg(String::from_utf8_lossy(&BODY).as_ref()).stdin(Stdio::null()).stdout(Stdio::null());
        let (mut done, began) = (Done::default(), Instant::now());
        while began.elapsed() < time {
            interrupt::check()?;
            let begun = Instant::now();
            let status = command.status().context(CLIENT)?;
            ensure!(status.success(), "{CLIENT} add: {status}");
            done.times.push(begun.elapsed());
            done.operations += 1;
        }
        Ok(Done { took: began.elapsed(), ..done })
    }
}
