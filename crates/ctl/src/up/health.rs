//! Waiting until a pool is up: `poold` answers, its watcher and reaper are connected to it, and tmux was seen.

use std::thread;
use std::time::{Duration, Instant};

use process::logfile;
use protocol::reply::Status;
use protocol::socket::Paths;
use protocol::{Request, Response};

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::show::{escape, status};
use crate::up::service;

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(2);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// Limit for the watcher to see the tmux server, once all daemons are connected.
const SEEN_LIMIT: Duration = Duration::from_secs(3);
/// How many lines of each log explain a failure.
const LINES: usize = 5;

/// The pool's status now; `None` where `poold` does not answer.
#[must_use]
pub(crate) fn look(context: &Context) -> Option<Status> {
    look_within(context, LOOK)
}

/// The same where it does so within this time.
#[must_use]
pub(crate) fn look_within(context: &Context, limit: Duration) -> Option<Status> {
    match Client::new(context, Some(limit)).ask_once(Request::Status, limit) {
        Ok(Response::Status(status)) => Some(*status),
        _ => None,
    }
}

/// The status, once the pool is up. `supervised` says whether somebody still works at that.
///
/// # Errors
/// It did not come up in time, or nobody works at it any more; with the ends of the logs.
pub(crate) fn wait(context: &Context, mut supervised: impl FnMut() -> bool) -> Result<Status, Error> {
    let began = Instant::now();
    let _progress = context.progress("the pool to come up");
    let mut complete_since = None;
    loop {
        let found = look(context);
        if let Some(status) = found.as_ref().filter(|status| status::is_complete(status)) {
            let since = *complete_since.get_or_insert_with(Instant::now);
            if status.tmux.state != "unknown" || since.elapsed() >= SEEN_LIMIT {
                return Ok(status.clone());
            }
        }
        if !supervised() {
            return Err(Error::failed(format!(
                "the pool did not come up: its supervisor ended{}",
                logs(&context.paths)
            )));
        }
        if context.limit().is_some_and(|limit| began.elapsed() >= limit) {
            let missing = missing(found.as_ref());
            return Err(Error::timeout(format!(
                "the pool is not up yet: {missing}; it is still being tried, see `poolctl status`{}",
                logs(&context.paths)
            )));
        }
        thread::sleep(PAUSE);
    }
}

fn missing(found: Option<&Status>) -> String {
    let Some(found) = found else { return "poold does not answer".to_owned() };
    let connected = |name: &str| status::component(found, name).is_some_and(|component| component.connected);
    let missing: Vec<&str> = service::NAMES[1..].iter().copied().filter(|name| !connected(name)).collect();
    format!("{} not connected", missing.join(" and "))
}

/// The last lines of the logs, each under its file's name.
fn logs(paths: &Paths) -> String {
    let mut text = String::new();
    for name in ["up"].into_iter().chain(service::NAMES) {
        let path = paths.log(name);
        let lines = logfile::last_lines(&path, LINES);
        if !lines.is_empty() {
            text.push_str(&format!("\n==> {}", path.display()));
        }
        for line in lines {
            text.push_str(&format!("\n{}", escape::line(&line)));
        }
    }
    text
}
