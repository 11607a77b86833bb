//! Waits until a pool is up: `poold` answers, its watcher and reaper are connected to it, and tmux was seen.

use std::thread;
use std::time::{Duration, Instant};

use process::runtime::logfile;
use protocol::hello::OLDEST_VERSION;
use protocol::paths::is_same;
use protocol::reply::Status;
use protocol::{ConnectError, ErrorCode, Paths, Request, Role};

use crate::calls::expect_status;
use crate::daemon_absence::DaemonAbsence;
use crate::show::{escape, status as shown};
use crate::up::{service, started};
use crate::{Client, Context, Error, supervisor_lock};

/// Time limit for an answer of `poold`.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The same at the end of the command's own time limit.
const ANSWER_LEAST: Duration = Duration::from_millis(100);
/// Interval at which the status is requested.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Limit for the watcher to see the tmux server, once all daemons are connected.
const SEEN_LIMIT: Duration = Duration::from_secs(3);
/// Lines of each log that are added to an error.
const LOG_LINES: usize = 5;

/// The pool's present status; `None` if `poold` does not answer.
pub(crate) fn status(context: &Context) -> Option<Status> {
    ask(context).ok()
}

/// The pool's present status, or the reason why `poold` does not answer.
pub(crate) fn ask(context: &Context) -> Result<Status, Error> {
    ask_within(context, answer_limit(context))
}

/// The time for an answer: what is left to this command, if that is less.
fn answer_limit(context: &Context) -> Duration {
    context.left().map_or(ANSWER_LIMIT, |left| left.clamp(ANSWER_LEAST, ANSWER_LIMIT))
}

/// The pool's present status; `None` if `poold` does not answer within this time.
pub(crate) fn status_within(context: &Context, limit: Duration) -> Option<Status> {
    ask_within(context, limit).ok()
}

fn ask_within(context: &Context, limit: Duration) -> Result<Status, Error> {
    Client::new(context, Some(limit)).ask_once(Request::Status, limit).and_then(expect_status)
}

/// Refuses to start or stop daemons if the running ones are of another pool, or have another state directory. That
/// happens if only some of the variables that name a pool are set, for example within a session.
///
/// # Errors
/// A usage error with what runs.
pub(crate) fn check_is_pool(context: &Context) -> Result<(), Error> {
    let Paths { pool, state, socket, up_lock, .. } = &context.paths;
    let limit = answer_limit(context);
    let mut client = Client::new(context, Some(limit)).of_any_pool();
    let found = client.ask_once(Request::Status, limit).and_then(expect_status).ok();
    let what = match found {
        Some(found) if found.pool != pool.as_str() || !is_same(found.state_dir.as_path(), state) => {
            let dir = found.state_dir.as_path().display();
            format!("poold at {} is that of the pool {} in {dir}", socket.display(), found.pool)
        }
        _ => match supervisor_lock::terms(up_lock).pool {
            Some(kept) if kept != pool.as_str() => {
                format!("{} is the directory of the pool {kept}", state.display())
            }
            _ => return Ok(()),
        },
    };
    Err(Error::usage(format!(
        "{what}, not of the pool {pool} in {}: name it by --pool, or set POOL_NAME, POOL_SOCKET and POOL_STATE_DIR to \
         those of one pool",
        state.display()
    )))
}

/// Refuses to start daemons, or to wait for them, at another socket than that of the present supervisor, or of a killed
/// one whose `poold` runs on.
///
/// # Errors
/// A usage error with both.
pub(crate) fn check_socket(paths: &Paths) -> Result<(), Error> {
    let Paths { state, socket, up_lock, lock, .. } = paths;
    let kept = supervisor_lock::last_terms(up_lock).socket;
    let Some(kept) = kept.filter(|kept| !is_same(kept.as_path(), socket)) else { return Ok(()) };
    let is_poold = |(name, _): &(String, _)| name == service::NAMES[0];
    if supervisor_lock::is_orphaned(up_lock) && !started::alive(paths)?.iter().any(is_poold) {
        return Ok(());
    }
    if let Some(holder) = supervisor_lock::holder(up_lock).filter(|_| !supervisor_lock::is_held(lock)) {
        return Err(Error::usage(format!(
            "a `poolctl up` (pid {}) tries to start poold at {}, not at {}: `poolctl down` first",
            holder.pid,
            kept.as_path().display(),
            socket.display()
        )));
    }
    Err(Error::usage(format!(
        "the pool in {} listens at {}, not at {}: check --socket and POOL_SOCKET",
        state.display(),
        kept.as_path().display(),
        socket.display()
    )))
}

/// True if `poold` refuses this client, for example because it has its maximum of connections. A refusal shows that it
/// does not hang.
pub(crate) fn is_refused(context: &Context, limit: Duration) -> bool {
    let refused = Client::new(context, Some(limit)).connect(Role::Client, Some(limit));
    matches!(refused, Err(ConnectError::Refused(_) | ConnectError::Version { .. }))
}

/// True if `poold` speaks a protocol that is too old for this program, and has to be restarted.
pub(crate) fn is_too_old(context: &Context) -> bool {
    let limit = answer_limit(context);
    let found = Client::new(context, Some(limit)).connect(Role::Client, Some(limit));
    matches!(found, Err(ConnectError::Version { version, .. }) if version < OLDEST_VERSION)
}

/// Returns the status once the pool is up. `supervised` is true while a supervisor runs.
///
/// # Errors
/// It did not come up in time, or the supervisor ended; with the ends of the logs. At once if what listens does not
/// speak this protocol.
pub(crate) fn wait(context: &Context, mut supervised: impl FnMut() -> bool) -> Result<Status, Error> {
    let began = Instant::now();
    let _progress = context.progress("the pool to come up");
    let mut complete_since = None;
    loop {
        let found = match ask(context) {
            Err(error) if error.code() == ErrorCode::Protocol => return Err(error),
            found => found.ok(),
        };
        if let Some(status) = found.as_ref().filter(|status| shown::is_complete(status)) {
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
        let left =
            context.left().or_else(|| context.limit().map(|limit| limit.saturating_sub(began.elapsed())));
        if left.is_some_and(|left| left.is_zero()) {
            let missing = missing(context, found.as_ref());
            return Err(Error::timeout(format!(
                "the pool is not up yet: {missing}; the supervisor keeps trying, {}{}",
                how_to_go_on(found.as_ref()),
                logs(&context.paths)
            )));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the advice for a pool of which a daemon is missing.
fn how_to_go_on(found: Option<&Status>) -> &'static str {
    match found {
        Some(_) => "see `poolctl status`",
        None => {
            "and the logs tell why; once that is mended, `poolctl down` and then `poolctl up` try again at once"
        }
    }
}

fn missing(context: &Context, found: Option<&Status>) -> String {
    let Some(found) = found else {
        return match DaemonAbsence::new(context).stopped_daemon() {
            Some(pid) => format!("poold (pid {pid}) is stopped, and goes on after `kill -CONT {pid}`"),
            None => "poold does not answer".to_owned(),
        };
    };
    let connected = |name: &str| shown::component(found, name).is_some_and(|component| component.connected);
    let missing: Vec<&str> = service::NAMES[1..].iter().copied().filter(|name| !connected(name)).collect();
    format!("{} not connected", missing.join(" and "))
}

/// The last lines of the logs, each under the path of its file.
fn logs(paths: &Paths) -> String {
    let mut text = String::new();
    for name in ["up"].into_iter().chain(service::NAMES) {
        let path = paths.log(name);
        let lines = logfile::last_lines(&path, LOG_LINES);
        if !lines.is_empty() {
            text.push_str(&format!("\n==> {}", path.display()));
        }
        for line in lines {
            text.push_str(&format!("\n{}", escape::line(&line)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor_lock::Terms;
    use crate::up::started::tests::pool_in;

    #[test]
    fn no_other_socket_is_served_beside_that_of_a_supervisor() {
        let dir = tempfile::tempdir().unwrap();
        let paths = pool_in(dir.path());
        let other = dir.path().join("q.sock");
        let terms = Terms { socket: Some(other.as_path().into()), ..Terms::default() };
        supervisor_lock::leave_orphaned(&paths.up_lock, &terms);
        assert!(check_socket(&paths).is_ok(), "nothing is left of it");
        let mut poold = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let id = process::identity::identify(poold.id()).unwrap().unwrap();
        started::add(&paths, service::NAMES[0], id).unwrap();
        let told = check_socket(&paths).unwrap_err().to_string();
        assert!(told.contains(&format!("listens at {}, not at ", other.display())), "{told}");
        let _up = supervisor_lock::try_acquire(&paths.up_lock, &terms).unwrap().unwrap();
        let told = check_socket(&paths).unwrap_err().to_string();
        let tries = format!("tries to start poold at {}, not at ", other.display());
        assert!(told.contains(&tries) && told.ends_with("`poolctl down` first"), "{told}");
        assert!(check_socket(&Paths { socket: other, ..paths }).is_ok());
        poold.kill().unwrap();
        poold.wait().unwrap();
    }
}
