//! `up`: start and keep the three daemons of this pool where they don't run yet.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use protocol::reply::Status;
use protocol::socket::{PathError, prepare_dir};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{out, status};
use crate::up::{health, lock, logfile, programs, service, supervisor};

/// How often the lock is tried for, and how long between two tries: somebody may just look at it.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// Start the pool's daemons where they don't run yet, and keep them running
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Stay and supervise, instead of doing so in the background
    #[arg(long)]
    pub foreground: bool,
}

/// Returns when the pool is up.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let paths = &context.paths;
    if std::env::var_os("POOL_INCARNATION").is_some_and(|value| !value.is_empty()) {
        return Err(Error::refused(
            "this is a session of a pool, and the daemons would end with it: run `poolctl up` outside",
        ));
    }
    for dir in [&paths.state, &paths.run, &paths.logs] {
        prepare_dir(dir).map_err(|error: PathError| Error::failed(error.to_string()))?;
    }
    if args.foreground {
        return foreground(context);
    }
    if lock::is_held(&paths.up_lock) {
        let found = health::wait(context, || lock::is_held(&paths.up_lock))?;
        return tell(context, &found, true);
    }
    let already = health::look(context).is_some_and(|found| status::is_complete(&found));
    let mut child = detach(context)?;
    let found = health::wait(context, || still_at_it(context, &mut child))?;
    supervised(context, &mut child)?;
    tell(context, &found, already)
}

/// Waits until there is a supervisor, which a pool that is up already does not prove.
fn supervised(context: &Context, child: &mut Child) -> Result<(), Error> {
    let path = &context.paths.up_lock;
    while lock::holder(path).is_none() {
        if !still_at_it(context, child) {
            let log = service::log(&context.paths, "up");
            return Err(Error::failed(format!("the supervisor ended, see {}", log.display())));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn foreground(context: &Context) -> Result<u8, Error> {
    let path = &context.paths.up_lock;
    for _ in 0..TRIES {
        let taken =
            lock::take(path).map_err(|error| Error::failed(format!("{}: {error}", path.display())))?;
        if let Some(_held) = taken {
            supervisor::run(context)?;
            return Ok(exit::OK);
        }
        thread::sleep(PAUSE);
    }
    let found = health::wait(context, || lock::is_held(path))?;
    tell(context, &found, true)
}

/// Starts the supervisor in the background.
fn detach(context: &Context) -> Result<Child, Error> {
    let failed = |error: std::io::Error| Error::failed(format!("cannot start the supervisor: {error}"));
    let log = logfile::open(&service::log(&context.paths, "up")).map_err(failed)?;
    let mut command = Command::new(programs::this());
    programs::environment(&mut command, &context.paths);
    command.args(["up", "--foreground"]).current_dir("/");
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
