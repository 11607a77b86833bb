//! The reason why no daemon answers, as far as its disk, its locks and its log show it.

use process::inspect::machine;
use process::runtime::logfile;
use protocol::{Paths, Refusal};

use crate::show::{escape, size};
use crate::{Context, supervisor_lock};

/// Free bytes on its disk below which a database cannot be written.
const FULL_DISK: u64 = 1 << 20;

/// Lines of poold's log that are looked at.
const LOG_LINES: usize = 20;

/// The record of poold's log that it has started.
const READY: &str = " INFO daemon::run: ready";

/// Where the reason is looked for.
#[derive(Debug)]
pub(crate) struct DaemonAbsence {
    paths: Paths,
    /// True if the user named the socket.
    names_socket: bool,
}

impl DaemonAbsence {
    pub(crate) fn new(context: &Context) -> Self {
        Self { paths: context.paths.clone(), names_socket: context.names_socket }
    }

    /// True if a supervisor keeps the daemon running.
    pub(crate) fn is_kept(&self) -> bool {
        supervisor_lock::is_held(&self.paths.up_lock)
    }

    /// Returns the reason why no daemon answers if its disk is full: then it ends, and cannot start again.
    pub(crate) fn full_disk(&self) -> Option<Refusal> {
        let free = machine::free_disk(&self.paths.state).filter(|free| *free < FULL_DISK)?;
        let (state, free) = (self.paths.state.display(), size::short(free));
        let why =
            format!("the disk of {state} is full ({free} left), and poold cannot run: free some space there");
        Some(Refusal::storage(why))
    }

    /// Returns the reason why no daemon answers if a supervisor runs: another `poolctl up` would not start one.
    pub(crate) fn of_kept_daemon(&self, was_reached: bool) -> Option<Refusal> {
        let absent = !self.paths.socket.exists() || !was_reached;
        // Who names another socket asks for another pool.
        let absent = absent && !self.names_socket;
        let holder = supervisor_lock::holder(&self.paths.up_lock).filter(|_| absent)?;
        let (socket, pid) = (self.paths.socket.display(), holder.pid);
        if !self.paths.socket.exists() && supervisor_lock::is_held(&self.paths.lock) {
            let why = format!(
                "poold runs, but its socket {socket} is gone: `poolctl down` and `poolctl up` make a new one; sessions run on"
            );
            return Some(Refusal::unavailable(why));
        }
        let file = self.paths.log("poold");
        let log = file.display();
        let next = match last_error(&logfile::last_lines(&file, LOG_LINES)) {
            Some(text) => format!("{log} ends with: {}", escape::line(&text)),
            None => format!("{log} is empty: `poolctl down` and then `poolctl up` try again at once"),
        };
        let why = format!(
            "no poold answers at {socket}, although its supervisor runs (`poolctl up`, pid {pid}) and keeps trying; \
             {next}"
        );
        Some(Refusal::unavailable(why))
    }
}

/// Returns the last error of a log in one line, although it may take several lines in the log; the log's last line if
/// it has no error, or if poold has started since.
fn last_error(lines: &[String]) -> Option<String> {
    let last = lines.len().checked_sub(1)?;
    let error = lines.iter().rposition(|line| line.contains(" ERROR "));
    let from = error.filter(|from| !lines[*from..].iter().any(|line| line.contains(READY))).unwrap_or(last);
    let rest = lines[from + 1..].iter().take_while(|line| !begins_record(line));
    Some(lines[from..=from].iter().chain(rest).map(|line| line.trim()).collect::<Vec<_>>().join(" "))
}

/// True for the first line of a record in a log, which begins with its time: `2026-11-29T10:20:36.123456Z `.
fn begins_record(line: &str) -> bool {
    let time = line.split(' ').next().unwrap_or_default();
    humantime::parse_rfc3339(time).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_several_lines_is_told_whole() {
        let told =
            |lines: &[&str]| last_error(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let log = [
            "2026-11-29T10:20:31.1Z INFO a: b",
            "2026-11-29T10:20:32.2Z ERROR poold: config.toml: TOML parse error at line 3",
            "  |",
            "3 | bad",
            "no value",
            "2026-11-29T10:20:33.3Z INFO c: d",
            "2026-11-29T10:20:34.4Z  INFO daemon::run: ready pool=default",
        ];
        let whole =
            "2026-11-29T10:20:32.2Z ERROR poold: config.toml: TOML parse error at line 3 | 3 | bad no value";
        assert_eq!(told(&log[..5]).as_deref(), Some(whole));
        assert_eq!(told(&log[..6]).as_deref(), Some(whole), "a record behind it is not of it");
        assert_eq!(told(&log).as_deref(), Some(log[6]), "it is over: poold has started since");
        assert_eq!(told(&log[..1]).as_deref(), Some(log[0]));
    }
}
