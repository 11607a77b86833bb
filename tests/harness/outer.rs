//! A terminal inside a tmux server that is not the pool's.

use std::path::Path;
use std::process::Command;

use super::output::Output;
use super::pool::Pool;

/// A command line in a terminal of another tmux server, until dropped.
pub(crate) struct Outer<'a>(&'a Pool);

impl<'a> Outer<'a> {
    /// Runs a shell's command line, which finds `poolctl` by its name.
    #[track_caller]
    pub(crate) fn run(pool: &'a Pool, line: &str) -> Self {
        let outer = Self(pool);
        let programs = Path::new(env!("CARGO_BIN_EXE_poolctl")).parent().unwrap();
        let line = format!("PATH='{}':$PATH; {line}", programs.display());
        outer.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", &line]).expect(0);
        outer
    }

    /// Runs a command of that server.
    pub(crate) fn tmux(&self, args: &[&str]) -> Output {
        let mut command: Command = self.0.command("tmux");
        Output::of(command.arg("-S").arg(self.0.path("outer.sock")).args(args), b"")
    }
}

impl Drop for Outer<'_> {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.tmux(&["kill-server"]));
    }
}
