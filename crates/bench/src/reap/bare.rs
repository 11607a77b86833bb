//! Floors: the same processes, ended by someone who holds them already and searches for nothing else.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use process::handle::Handle;

use super::crowd;
use super::trees::Program;
use crate::create::bare::Bare;

/// Time limit of an end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures from the first TERM until the handle (on Linux a pidfd) of the last process reports its exit,
/// for this many programs.
pub(super) fn end(program: Program, count: usize) -> Result<Duration> {
    let mut children = Children(Vec::with_capacity(count));
    for _ in 0..count {
        children.0.push(start(program)?);
    }
    let ids = children
        .0
        .iter()
        .map(|child| process::identity::identify(child.id())?.context("the process has ended"));
    let handles = program.hold(&ids.collect::<Result<Vec<_>>>()?)?;
    term(&handles)
}

/// Measures from the command that removes this many sessions of a bare tmux until the last of their
/// processes and the command have ended.
pub(super) fn end_in_tmux(tmux: &Bare<'_>, count: usize) -> Result<Duration> {
    let names = crowd::names("bare", count);
    let words = Program::Tree.words();
    let roots = names.iter().map(|name| tmux.run_in(name, &words)).collect::<Result<Vec<_>>>()?;
    let handles = Program::Tree.hold(&roots)?;
    let began = Instant::now();
    tmux.remove(&names)?;
    all_end(&handles)?;
    Ok(began.elapsed())
}

fn term(handles: &[Handle]) -> Result<Duration> {
    let began = Instant::now();
    for handle in handles {
        handle.signal(Signal::SIGTERM)?;
    }
    all_end(handles)?;
    Ok(began.elapsed())
}

fn all_end(handles: &[Handle]) -> Result<()> {
    handles.iter().try_for_each(|handle| {
        ensure!(handle.wait(PATIENCE)?, "process {} does not end", handle.id());
        Ok(())
    })
}

fn start(program: Program) -> Result<Child> {
    let words = program.words();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| words.join(" "))
}

/// Child processes, killed on drop.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            drop(child.kill().and_then(|()| child.wait()));
        }
    }
}
