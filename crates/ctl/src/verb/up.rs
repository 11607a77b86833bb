//! `up`: starts the three daemons of this pool, unless they run already, and keeps them running.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity;
use process::runtime::logfile;
use protocol::paths::{PathError, prepare_dir};
use protocol::reply::Status;
use protocol::{ErrorCode, OsBytes};
use serde_json::json;

use crate::daemon_absence::DaemonAbsence;
use crate::show::{escape, out, status, time};
use crate::supervisor_lock::{self, Terms};
use crate::up::{builds, health, orphans, programs, service, started, stop, supervisor};
use crate::{Context, Error};

/// Number of attempts, and the interval between them, to acquire the lock: another command may be testing it.
const LOCK_TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// Start the pool's daemons, unless they run already, and keep them running
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Supervise them in this process, not in the background
    #[arg(long)]
    foreground: bool,
    /// End and restart poold if it has not answered for this long, 1s at least; 0s: never [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = parse_watchdog)]
    watchdog: Option<Duration>,
    /// Only restart outdated daemons of a pool that has a supervisor, or whose supervisor was killed
    #[arg(long, hide = true)]
    if_kept: bool,
    /// Take over from the present supervisor, once it ends
    #[arg(long, hide = true, requires = "foreground")]
    next: bool,
    /// Started in the background by another `up`
    #[arg(long, hide = true, requires = "foreground")]
    detached: bool,
}

/// Time without an answer after which `poold` is restarted, unless the user sets another one.
const WATCHDOG: Duration = Duration::from_secs(30);

/// Shortest such time. Each answer has a sixth of it, so that a shorter one would end a `poold` that is only busy.
const WATCHDOG_LEAST: Duration = Duration::from_secs(1);

/// Time for which a supervisor waits for the end of the one that it replaces.
const NEXT_LIMIT: Duration = Duration::from_secs(60);

/// Parses the limit of the watchdog; 0 is none.
fn parse_watchdog(text: &str) -> Result<Duration, String> {
    match time::parse_duration(text)? {
        limit if limit.is_zero() || limit >= WATCHDOG_LEAST => Ok(limit),
        _ => Err("it must be 1s at least, or 0s for never".into()),
    }
}

/// Returns once the pool is up.
pub(crate) fn run(context: &Context, mut args: Args) -> Result<(), Error> {
    let mut context = context.clone();
    if args.if_kept
        && let Some(socket) = supervisor_lock::last_terms(&context.paths.up_lock).socket
    {
        // `scripts/install` knows the directory of a pool, but not its socket.
        context.paths.socket = socket.as_path().to_owned();
    }
    let context = &context;
    let paths = &context.paths;
    if !args.detached {
        health::check_is_pool(context)?;
        health::check_socket(paths)?;
    }
    let is_held = supervisor_lock::is_held(&paths.up_lock);
    if args.if_kept && !is_held && !is_left(context)? {
        return Ok(());
    }
    if std::env::var_os("POOL_INCARNATION").is_some_and(|value| !value.is_empty()) {
        return within_session(context, &args, is_held);
    }
    for dir in [&paths.state, &paths.run, &paths.logs] {
        prepare_dir(dir).map_err(|error: PathError| Error::failed(error.to_string()))?;
    }
    if !is_held && !args.detached {
        if let Some(found) = kept_by_others(context)? {
            return finish(context, &args, &found, true);
        }
        if orphans::are_left(context)? {
            args = inherit(&args, supervisor_lock::last_terms(&paths.up_lock));
            end_outdated(context)?;
        }
    }
    if args.foreground {
        return foreground(context, &args);
    }
    if is_held {
        let old = builds::kept(&builds::outdated(context, health::status(context).as_ref()));
        return if old.is_empty() { hurry(context, &args) } else { replace(context, &args, &old) };
    }
    programs::check_config(context)?;
    let already = health::status(context).is_some_and(|found| status::is_complete(&found));
    let mut child = detach(context, &args, &[])?;
    let found = health::wait(context, || is_supervised(context, &mut child));
    if found.as_ref().is_err_and(|error| error.code() == ErrorCode::Protocol) {
        end_supervisor(context, &mut child);
    }
    let found = found?;
    wait_for_supervisor(context, &mut child)?;
    finish(context, &args, &found, already)
}

/// Ends the supervisor that was just started, with its daemons.
fn end_supervisor(context: &Context, child: &mut Child) {
    let holder = supervisor_lock::holder(&context.paths.up_lock);
    let is_stopped =
        holder.is_some_and(|holder| holder.pid == child.id()) && stop::supervisor(context).is_ok();
    if !is_stopped {
        child.kill().ok();
    }
    child.wait().ok();
}

/// Handles `up` within a session: succeeds only if everything runs already, because a daemon that is started here
/// would end with the session.
fn within_session(context: &Context, args: &Args, is_held: bool) -> Result<(), Error> {
    let found = match is_held {
        _ if args.foreground => None,
        true => health::status(context).filter(status::is_complete),
        false => kept_by_others(context)?,
    };
    match found.filter(|found| builds::kept(&builds::outdated(context, Some(found))).is_empty()) {
        Some(found) => finish(context, args, &found, true),
        None => Err(Error::refused(
            "the daemons would end with the session that this shell runs in: run `poolctl up` outside of the \
             pool's sessions",
        )),
    }
}

/// Returns the status of a pool that is complete and whose daemons were all started by somebody else, like a service
/// manager. No supervisor is started for it: it would start the daemons again that the service manager stops.
///
/// # Errors
/// A `poold` runs that speaks another protocol, or that somebody else has started and that is not reached. A
/// supervisor could not start a second `poold`, nor restart the running one.
fn kept_by_others(context: &Context) -> Result<Option<Status>, Error> {
    let asked = health::ask(context);
    // Read after the status, so that daemons which another `up` has just started are on record.
    let alive = started::alive(&context.paths)?;
    let error = match asked {
        Ok(found) => return Ok(Some(found).filter(|found| alive.is_empty() && status::is_complete(found))),
        Err(error) => error,
    };
    let is_ours = alive.iter().any(|(name, _)| name == service::NAMES[0]);
    let is_final = match error.code() {
        ErrorCode::Protocol => !is_ours || !health::is_too_old(context),
        _ => {
            let is_there = supervisor_lock::is_held(&context.paths.lock);
            is_there && !is_ours && !DaemonAbsence::new(context).is_starting()
        }
    };
    if is_final { Err(error) } else { Ok(None) }
}

/// True if a supervisor in the background was killed, and its daemons run on. A supervisor in the foreground is left
/// to whoever started it.
fn is_left(context: &Context) -> Result<bool, Error> {
    let terms = supervisor_lock::last_terms(&context.paths.up_lock);
    Ok(!terms.is_foreground && orphans::are_left(context)?)
}

/// Returns these arguments with the settings of the supervisor before, unless the user names others.
fn inherit(args: &Args, terms: Terms) -> Args {
    programs::keep_config(terms.config);
    // A supervisor of an older build accepted a limit below the least one.
    let kept = terms.watchdog_ms.map(Duration::from_millis);
    let kept = kept.map(|limit| if limit.is_zero() { limit } else { limit.max(WATCHDOG_LEAST) });
    Args { watchdog: args.watchdog.or(kept), ..args.clone() }
}

/// Ends the daemons that a killed supervisor has left, if any of them runs an older build. The next supervisor starts
/// them again.
fn end_outdated(context: &Context) -> Result<(), Error> {
    let old = builds::kept(&builds::outdated(context, health::status(context).as_ref()));
    if old.is_empty() {
        return Ok(());
    }
    programs::check_config(context)?;
    context.say(&format!("older build: {old}; restarting"))?;
    let daemons = started::alive(&context.paths)?;
    orphans::end(daemons.iter().map(|(_, handle)| handle.id()).collect())
}

/// Asks the current supervisor to start at once the daemons that wait for their next start after a failure.
fn hurry(context: &Context, args: &Args) -> Result<(), Error> {
    let path = &context.paths.up_lock;
    check_goes_on(context)?;
    if let Some(handle) = supervisor_lock::holder(path).and_then(|id| Handle::open(id).ok().flatten()) {
        // A supervisor of an older build ignores it.
        handle.signal(Signal::SIGHUP).ok();
    }
    let found = health::wait(context, || supervisor_lock::is_held(path))?;
    finish(context, args, &found, true)
}

/// Refuses to wait for a supervisor that is stopped: it would start nothing.
fn check_goes_on(context: &Context) -> Result<(), Error> {
    let Some(pid) = supervisor_lock::stopped_holder(&context.paths.up_lock) else { return Ok(()) };
    Err(Error::failed(format!(
        "the supervisor (`poolctl up`, pid {pid}) is stopped, and restarts nothing: `kill -CONT {pid}` lets it go on"
    )))
}

/// Replaces the supervisor of an older build: the new one waits for the lock, the old one stops its daemons
/// and ends, and the new one starts them again. Sessions live on.
fn replace(context: &Context, args: &Args, old: &str) -> Result<(), Error> {
    let path = &context.paths.up_lock;
    let (holder, terms) = (supervisor_lock::holder(path), supervisor_lock::terms(path));
    if let Some(holder) = holder.filter(|_| terms.is_foreground) {
        let what = format!(
            "older build: {old}; the pool is kept by `poolctl up --foreground` (pid {}): restart that",
            holder.pid
        );
        return refuse(args, what);
    }
    let args = &inherit(args, terms);
    started::check(&context.paths)?;
    programs::check_config(context)?;
    context.say(&format!("older build: {old}; restarting"))?;
    let mut child = detach(context, args, &["--next"])?;
    if let Err(error) = stop::supervisor(context) {
        child.kill().ok();
        child.wait().ok();
        return Err(error);
    }
    wait_for_supervisor(context, &mut child)?;
    let found = health::wait(context, || is_supervised(context, &mut child))?;
    finish(context, args, &found, false)
}

/// Refuses to restart daemons that somebody else keeps. With `--if-kept` this is only a note: `scripts/install` goes
/// on.
fn refuse(args: &Args, what: String) -> Result<(), Error> {
    if !args.if_kept {
        return Err(Error::refused(what));
    }
    out::note(&format!("poolctl: {what}"));
    Ok(())
}

/// Waits until a supervisor holds the lock (the daemons may be up without one), and until the started supervisor
/// either is that holder or has ended because another one is.
fn wait_for_supervisor(context: &Context, child: &mut Child) -> Result<(), Error> {
    let path = &context.paths.up_lock;
    let decided = |child: &mut Child| {
        let ended = !matches!(child.try_wait(), Ok(None));
        ended || supervisor_lock::holder(path).is_some_and(|holder| holder.pid == child.id())
    };
    while supervisor_lock::holder(path).is_none() || !decided(child) {
        if !is_supervised(context, child) {
            let log = context.paths.log("up");
            return Err(Error::failed(format!("the supervisor ended, see {}", log.display())));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn foreground(context: &Context, args: &Args) -> Result<(), Error> {
    let path = &context.paths.up_lock;
    let failed = |error: std::io::Error| Error::failed(format!("{}: {error}", path.display()));
    let watchdog = args.watchdog.unwrap_or(WATCHDOG);
    let terms = Terms {
        build: Some(builds::VERSION.to_owned()),
        pool: Some(context.paths.pool.to_string()),
        socket: Some(context.paths.socket.as_path().into()),
        config: programs::config(),
        watchdog_ms: Some(time::millis(watchdog)),
        is_foreground: !args.detached,
    };
    if args.next {
        let (former, began) = (supervisor_lock::holder(path), Instant::now());
        while began.elapsed() < NEXT_LIMIT {
            if let Some(lock) = supervisor_lock::try_acquire(path, &terms).map_err(failed)? {
                return supervisor::run(context, &lock, watchdog);
            }
            // Another supervisor has taken over.
            if supervisor_lock::holder(path).is_some_and(|holder| Some(holder) != former) {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        return Err(Error::timeout(format!("the supervisor before has not ended within {NEXT_LIMIT:?}")));
    }
    for _ in 0..LOCK_TRIES {
        if let Some(lock) = supervisor_lock::try_acquire(path, &terms).map_err(failed)? {
            return supervisor::run(context, &lock, watchdog);
        }
        // Tries again only if the file has no holder's name: then the lock was held for a moment, by a command that
        // tests it.
        if supervisor_lock::holder(path).is_some() {
            break;
        }
        thread::sleep(PAUSE);
    }
    check_goes_on(context)?;
    let found = health::wait(context, || supervisor_lock::is_held(path))?;
    tell(context, &found, true)
}

/// Starts the supervisor in the background.
fn detach(context: &Context, args: &Args, more: &[&str]) -> Result<Child, Error> {
    let failed = |error: std::io::Error| Error::failed(format!("cannot start the supervisor: {error}"));
    let path = context.paths.log("up");
    let log = logfile::open(&path).map_err(|error| match DaemonAbsence::new(context).unwritable_disk() {
        Some(refusal) => Error::from(refusal),
        None => failed(std::io::Error::other(format!("{}: {error}", path.display()))),
    })?;
    let mut command = Command::new(programs::this());
    programs::environment(&mut command, &context.paths);
    command.args(["up", "--foreground", "--detached"]);
    if let Some(watchdog) = args.watchdog {
        command.arg("--watchdog").arg(format!("{}ms", watchdog.as_millis()));
    }
    command.args(more).current_dir("/");
    command.stdout(Stdio::from(log.try_clone().map_err(failed)?)).stderr(Stdio::from(log));
    process::runtime::detach::spawn_detached(command).map_err(failed)
}

/// True if the started supervisor runs, or has ended because another one holds the lock.
fn is_supervised(context: &Context, child: &mut Child) -> bool {
    match child.try_wait() {
        Ok(None) => true,
        Ok(Some(status)) => status.signal().is_none() && supervisor_lock::is_held(&context.paths.up_lock),
        Err(_) => false,
    }
}

/// Tells that the pool is up.
///
/// # Errors
/// Somebody else has started a daemon of an older build.
fn finish(context: &Context, args: &Args, found: &Status, already: bool) -> Result<(), Error> {
    tell(context, found, already)?;
    builds::others(&builds::outdated(context, Some(found))).map_or(Ok(()), |what| refuse(args, what))
}

fn tell(context: &Context, found: &Status, already: bool) -> Result<(), Error> {
    let pid = |name| status::component(found, name).and_then(|component| component.pid);
    let [_, watch, reaper] = service::NAMES.map(pid);
    let poold = found.process.pid;
    let socket = &context.paths.socket;
    for problem in found.problems.iter().filter(|_| !context.style.quiet) {
        out::note(&format!("poolctl: problem: {}", escape::line(problem)));
    }
    if context.style.json {
        let document = json!({
            "pool": found.pool, "already": already, "socket": OsBytes::from(socket.as_path()),
            "poold_pid": poold, "tmux_watch_pid": watch, "reaper_pid": reaper,
        });
        out::json(&document)
    } else {
        let already = if already { "already " } else { "" };
        let shown = |pid: Option<u32>| pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let (watch, reaper) = (shown(watch), shown(reaper));
        context.say(&format!(
            "pool {} is {already}up: poold {poold}, tmux-watch {watch}, reaper {reaper}; socket {}",
            found.pool,
            socket.display()
        ))?;
        match started_by_others(context, found) {
            Some(others) => context
                .say(&format!("`poolctl up` did not start these daemons, and leaves them alone: {others}")),
            None => Ok(()),
        }
    }
}

/// The daemons of this pool that no `up` has started, with their parents; `None` if there are none, or that is unknown.
fn started_by_others(context: &Context, found: &Status) -> Option<String> {
    let alive = started::alive(&context.paths).ok()?;
    let is_recorded = |pid: u32| alive.iter().any(|(_, handle)| handle.id().pid == pid);
    let is_ours = |pid: u32| is_recorded(pid) || started::is_child_of_supervisor(&context.paths, pid);
    let pid = |name: &'static str| match name == service::NAMES[0] {
        true => Some(found.process.pid),
        false => status::component(found, name).filter(|one| one.connected).and_then(|one| one.pid),
    };
    let other = |name: &'static str| {
        let pid = pid(name).filter(|pid| !is_ours(*pid))?;
        let parent = identity::read(pid).ok()??.ppid;
        Some(format!("{name} (pid {pid}, parent {parent})"))
    };
    let others: Vec<String> = service::NAMES.into_iter().filter_map(other).collect();
    (!others.is_empty()).then(|| others.join(", "))
}
