//! Cleanup: no process of a benchmark is left behind.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity;
use protocol::ProcId;

use crate::report;

/// Time for processes to exit by themselves: a tmux server with a thousand sessions takes 5 s.
const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);

/// Waits until these processes have ended, and kills those that do not.
pub(crate) fn end(processes: &BTreeSet<ProcId>) -> Result<()> {
    let left = wait(processes, PATIENCE)?;
    if left.is_empty() {
        return Ok(());
    }
    report(&format!("killing {} processes that did not exit", left.len()));
    for id in left {
        if let Some(handle) = Handle::open(id)? {
            handle.signal(Signal::SIGKILL)?;
        }
    }
    Ok(())
}

/// Waits, and returns the processes that still run.
fn wait(processes: &BTreeSet<ProcId>, patience: Duration) -> Result<Vec<ProcId>> {
    let deadline = Instant::now() + patience;
    let mut left: Vec<ProcId> = processes.iter().copied().collect();
    loop {
        let mut alive = Vec::new();
        for id in left {
            if !identity::exited(id)? {
                alive.push(id);
            }
        }
        if alive.is_empty() || Instant::now() >= deadline {
            return Ok(alive);
        }
        left = alive;
        thread::sleep(TICK);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn those_that_live_are_left() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = identity::identify(child.id()).unwrap().unwrap();
        let gone = ProcId { start: id.start + 1, ..id };
        let left = wait(&[id, gone].into(), Duration::ZERO).unwrap();
        child.kill().unwrap();
        assert_eq!(left, [id]);
        assert_eq!(wait(&[id].into(), PATIENCE).unwrap(), []);
        child.wait().unwrap();
    }
}
