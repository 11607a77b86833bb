//! The supervisor's loop: start what is due, wait for an end or a signal. At the end it stops what
//! it started, the last one first. A daemon that somebody else runs already is left to them, and
//! looked after once they stop.

use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use process::handle::Handle;
use process::identity;

use crate::context::Context;
use crate::error::Error;
use crate::show::out;
use crate::show::status;
use crate::up::service::{self, Backoff};
use crate::up::{health, logfile};

/// Time between two looks at the size of the logs.
const CAP_EVERY: Duration = Duration::from_secs(60);
/// Time between two looks whether somebody else still runs a daemon.
const LEAVE_TO_THEM: Duration = Duration::from_secs(5);
/// How long all daemons together may take to stop before they are killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How long each has at least, also where one before it used up the time of all.
const STOP_LEAST: Duration = Duration::from_secs(3);
/// How long those that were killed may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(1);
/// How often a daemon that could not be held is tried again when it is to be stopped.
const HOLD_TRIES: u32 = 5;
const HOLD_PAUSE: Duration = Duration::from_millis(50);

/// What wakes the loop.
enum Wake {
    /// The service with this number ended.
    Ended(usize, std::io::Result<ExitStatus>),
    /// Stop everything.
    Stop,
}

struct Service {
    name: &'static str,
    backoff: Backoff,
    running: Option<Running>,
    due: Instant,
}

struct Running {
    since: Instant,
    pid: u32,
    /// `None` where it could not be held, as one that had ended before cannot.
    handle: Option<Handle>,
}

/// Keeps the daemons running until a signal says to stop.
///
/// # Errors
/// Signals cannot be received.
pub(crate) fn run(context: &Context) -> Result<(), Error> {
    let (sender, wakes) = mpsc::channel();
    receive_signals(sender.clone())?;
    let now = Instant::now();
    let service = |name| Service { name, backoff: Backoff::new(), running: None, due: now };
    let mut services = service::NAMES.map(service);
    let mut cap_at = now + CAP_EVERY;
    loop {
        for (number, service) in services.iter_mut().enumerate() {
            if service.running.is_none() && service.due <= Instant::now() {
                service.start(context, number, &sender);
            }
        }
        if cap_at <= Instant::now() {
            cap_logs(context);
            cap_at = Instant::now() + CAP_EVERY;
        }
        let due = services.iter().filter(|service| service.running.is_none()).map(|service| service.due);
        let next = due.fold(cap_at, Instant::min).saturating_duration_since(Instant::now());
        match wakes.recv_timeout(next) {
            Ok(Wake::Ended(number, status)) => services[number].ended(&status),
            Ok(Wake::Stop) => break,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
    stop(&mut services, &wakes);
    Ok(())
}

impl Service {
    fn start(&mut self, context: &Context, number: usize, wakes: &Sender<Wake>) {
        let now = Instant::now();
        if is_run_by_another(context, self.name) {
            self.due = now + LEAVE_TO_THEM;
            return;
        }
        match service::start(&context.paths, self.name) {
            Ok(child) => {
                let pid = child.id();
                out::note(&format!("{} started, pid {pid}", self.name));
                self.running = Some(Running { since: now, pid, handle: hold(pid).ok().flatten() });
                watch(child, number, wakes.clone());
            }
            Err(error) => {
                let pause = self.backoff.after(Duration::ZERO);
                self.due = now + pause;
                out::note(&format!("{} cannot be started: {error}; next try in {pause:?}", self.name));
            }
        }
    }

    fn ended(&mut self, status: &std::io::Result<ExitStatus>) {
        let how = status.as_ref().map_or_else(ToString::to_string, ToString::to_string);
        let lived = self.running.take().map(|running| running.since.elapsed()).unwrap_or_default();
        let pause = self.backoff.after(lived);
        self.due = Instant::now() + pause;
        out::note(&format!("{} ended ({how}); next start in {pause:?}", self.name));
    }
}

/// Whether a daemon that is not ours does this work. Ours does not run when this is asked.
fn is_run_by_another(context: &Context, name: &str) -> bool {
    let Some(found) = health::look(context) else { return false };
    name == service::NAMES[0] || status::component(&found, name).is_some_and(|component| component.connected)
}

/// Takes hold of a child of this process; `None` where it has ended.
fn hold(pid: u32) -> Result<Option<Handle>, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::failed(format!("cannot hold pid {pid}: {error}"));
    let found = identity::read(pid).map_err(|error| failed(&error))?;
    match found.filter(|process| process.ppid == std::process::id()) {
        Some(process) => Handle::open(process.id).map_err(|error| failed(&error)),
        None => Ok(None),
    }
}

impl Running {
    /// Takes hold of it where that failed when it was started.
    fn held(&mut self) -> Result<Option<&Handle>, Error> {
        for tries_left in (0..HOLD_TRIES).rev() {
            if self.handle.is_some() {
                break;
            }
            match hold(self.pid) {
                Ok(handle) => {
                    self.handle = handle;
                    break;
                }
                Err(error) if tries_left == 0 => return Err(error),
                Err(_) => thread::sleep(HOLD_PAUSE),
            }
        }
        Ok(self.handle.as_ref())
    }
}

/// Takes note of its end.
fn watch(mut child: Child, number: usize, wakes: Sender<Wake>) {
    thread::spawn(move || {
        let status = child.wait();
        // The loop is over where nobody receives this.
        drop(wakes.send(Wake::Ended(number, status)));
    });
}

/// TERM and INT stop the supervisor; HUP does not, so that it outlives the terminal it was started on.
fn receive_signals(wakes: Sender<Wake>) -> Result<(), Error> {
    let mut signals = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|signal| signals.add(signal));
    // Before the first thread is made, so that each inherits it.
    signals.thread_block().map_err(|error| Error::failed(format!("cannot hold back signals: {error}")))?;
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if signal != Signal::SIGHUP && wakes.send(Wake::Stop).is_err() {
                return;
            }
        }
    });
    Ok(())
}

fn cap_logs(context: &Context) {
    for name in ["up"].into_iter().chain(service::NAMES) {
        if let Err(error) = logfile::cap(&service::log(&context.paths, name)) {
            out::note(&format!("the log of {name} cannot be put aside: {error}"));
        }
    }
}

/// Stops the last one first, so that none loses the one it works for before it is told to stop.
fn stop(services: &mut [Service], wakes: &Receiver<Wake>) {
    let deadline = Instant::now() + STOP_LIMIT;
    for service in services.iter_mut().rev() {
        let Some(running) = &mut service.running else { continue };
        let left = deadline.saturating_duration_since(Instant::now()).max(STOP_LEAST);
        match running.held().and_then(|handle| handle.map_or(Ok(true), |handle| end(handle, left))) {
            Ok(true) => {}
            Ok(false) => out::note(&format!("{} did not stop in time and was killed", service.name)),
            Err(error) => out::note(&format!("{} cannot be stopped: {error}", service.name)),
        }
    }
    // Their ends are noted before the supervisor's own, so that none is left as a zombie of its heir.
    let running = services.iter().filter(|service| service.running.is_some()).count();
    let deadline = deadline.max(Instant::now() + KILL_LIMIT);
    for _ in 0..running {
        let ended = wakes.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        if ended.is_err() {
            return;
        }
    }
}

/// Whether it ended without being killed.
fn end(handle: &Handle, limit: Duration) -> Result<bool, Error> {
    let failed = |error: process::Error| Error::failed(error.to_string());
    handle.signal(Signal::SIGTERM).map_err(failed)?;
    let ended = handle.wait(limit).map_err(failed)?;
    if !ended {
        handle.signal(Signal::SIGKILL).map_err(failed)?;
    }
    Ok(ended)
}
