//! `up`: start and keep the three daemons of this pool where they don't run yet.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::logfile;
use protocol::reply::Status;
use protocol::socket::{PathError, prepare_dir};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{out, status, time};
use crate::up::{builds, health, lock, programs, service, supervisor};
use crate::verb::{config, down};

/// How often the lock is tried for, and how long between two tries: somebody may just look at it.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// Start the pool's daemons where they don't run yet, and keep them running
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Stay and supervise, instead of doing so in the background
    #[arg(long)]
    pub foreground: bool,
    /// End and restart poold where it has not answered for this long (0s: never)
    #[arg(long, value_name = "DUR", value_parser = time::parse, default_value = "30s")]
    pub watchdog: Duration,
    /// Only restart daemons of a pool that is kept already
    #[arg(long, hide = true)]
    pub if_kept: bool,
    /// Take over from the supervisor that there is, once it ends
    #[arg(long, hide = true, requires = "foreground")]
    pub next: bool,
}

/// Returns when the pool is up.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let paths = &context.paths;
    if std::env::var_os("POOL_INCARNATION").is_some_and(|value| !value.is_empty()) {
        return Err(Error::refused(
            "this is a session of a pool, and the daemons would end with it: run `poolctl up` outside",
        ));
    }
    if args.if_kept && !lock::is_held(&paths.up_lock) {
        return Ok(exit::OK);
    }
    for dir in [&paths.state, &paths.run, &paths.logs] {
        prepare_dir(dir).map_err(|error: PathError| Error::failed(error.to_string()))?;
    }
    if args.foreground {
        return foreground(context, args);
    }
    if lock::is_held(&paths.up_lock) {
        let old = builds::outdated(context, health::look(context).as_ref());
        return if old.is_empty() { look_again(context) } else { take_over(context, args, &old) };
    }
    config::check_first(context)?;
    let already = health::look(context).is_some_and(|found| status::is_complete(&found));
    let mut child = detach(context, args, &[])?;
    let found = health::wait(context, || still_at_it(context, &mut child))?;
    supervised(context, &mut child)?;
    tell(context, &found, already)
}

/// Somebody keeps it already: what is held back after failures is started at once.
fn look_again(context: &Context) -> Result<u8, Error> {
    let path = &context.paths.up_lock;
    if let Some(handle) = lock::holder(path).and_then(|id| Handle::open(id).ok().flatten()) {
        // A supervisor of before ignores it.
        handle.signal(Signal::SIGHUP).ok();
    }
    let found = health::wait(context, || lock::is_held(path))?;
    tell(context, &found, true)
}

/// Its files were replaced since it was started: a new supervisor waits for the lock, the old one stops its daemons and
/// ends, and the new one starts them again. Sessions live on.
fn take_over(context: &Context, args: &Args, old: &[&str]) -> Result<u8, Error> {
    config::check_first(context)?;
    context.say(&format!("{} of an older build: restarting", old.join(", ")))?;
    let mut child = detach(context, args, &["--next"])?;
    if let Err(error) = down::stop(context) {
        child.kill().ok();
        child.wait().ok();
        return Err(error);
    }
    supervised(context, &mut child)?;
    let found = health::wait(context, || still_at_it(context, &mut child))?;
    tell(context, &found, false)
}

/// Waits until there is a supervisor, which a pool that is up already does not prove, and until its own has found out
/// whether it is the one.
fn supervised(context: &Context, child: &mut Child) -> Result<(), Error> {
    let path = &context.paths.up_lock;
    let decided = |child: &mut Child| {
        let ended = !matches!(child.try_wait(), Ok(None));
        ended || lock::holder(path).is_some_and(|holder| holder.pid == child.id())
    };
    while lock::holder(path).is_none() || !decided(child) {
        if !still_at_it(context, child) {
            let log = context.paths.log("up");
            return Err(Error::failed(format!("the supervisor ended, see {}", log.display())));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn foreground(context: &Context, args: &Args) -> Result<u8, Error> {
    let path = &context.paths.up_lock;
    let failed = |error: std::io::Error| Error::failed(format!("{}: {error}", path.display()));
    if args.next {
        let held = lock::wait_for(path).map_err(failed)?;
        supervisor::run(context, &held, args.watchdog)?;
        return Ok(exit::OK);
    }
    for _ in 0..TRIES {
        if let Some(held) = lock::take(path).map_err(failed)? {
            supervisor::run(context, &held, args.watchdog)?;
            return Ok(exit::OK);
        }
        // Only a mere look at the lock is waited out.
        if lock::holder(path).is_some() {
            break;
        }
        thread::sleep(PAUSE);
    }
    let found = health::wait(context, || lock::is_held(path))?;
    tell(context, &found, true)
}

/// Starts the supervisor in the background.
fn detach(context: &Context, args: &Args, more: &[&str]) -> Result<Child, Error> {
    let failed = |error: std::io::Error| Error::failed(format!("cannot start the supervisor: {error}"));
    let log = logfile::open(&context.paths.log("up")).map_err(failed)?;
    let mut command = Command::new(programs::this());
    programs::environment(&mut command, &context.paths);
    command.args(["up", "--foreground", "--watchdog"]).arg(format!("{}ms", args.watchdog.as_millis()));
    command.args(more).current_dir("/");
    command.stdout(Stdio::from(log.try_clone().map_err(failed)?)).stderr(Stdio::from(log));
    process::detach::spawn_detached(command).map_err(failed)
}

/// Whether the supervisor works, or has found that another one does.
fn still_at_it(context: &Context, child: &mut Child) -> bool {
    match child.try_wait() {
        Ok(None) => true,
        Ok(Some(status)) => status.signal().is_none() && lock::is_held(&context.paths.up_lock),
        Err(_) => false,
    }
}

fn tell(context: &Context, found: &Status, already: bool) -> Result<u8, Error> {
    let pid = |name| status::component(found, name).and_then(|component| component.pid);
    let [_, watch, reaper] = service::NAMES.map(pid);
    let poold = found.process.pid;
    let socket = context.paths.socket.to_string_lossy();
    if context.style.json {
        let document = json!({
            "pool": found.pool, "already": already, "socket": socket,
            "poold_pid": poold, "tmux_watch_pid": watch, "reaper_pid": reaper,
        });
        out::json(&document)?;
    } else {
        let already = if already { "already " } else { "" };
        let shown = |pid: Option<u32>| pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let (watch, reaper) = (shown(watch), shown(reaper));
        context.say(&format!(
            "pool {} is {already}up: poold {poold}, tmux-watch {watch}, reaper {reaper}; socket {socket}",
            found.pool
        ))?;
    }
    Ok(exit::OK)
}
