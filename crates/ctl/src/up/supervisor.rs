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
use protocol::reply::Status;

use crate::context::Context;
use crate::error::Error;
use crate::show::out;
use crate::show::status;
use crate::up::lock::Held;
use crate::up::service::{self, Backoff};
use crate::up::{health, kept, watchdog};
use crate::verb::down;

/// Length of one wait for the end of a daemon that is no child of this process.
const WAIT_PIECE: Duration = Duration::from_secs(60);
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

/// Time between two checks that the pool's directory still exists.
const PLACE_EVERY: Duration = Duration::from_secs(5);
/// Time limit for the first answer of `poold` after its start; later it counts as hung.
const FIRST_ANSWER: Duration = Duration::from_secs(90);
/// Time limit for a watcher or reaper to run without a connection to `poold`.
const UNCONNECTED: Duration = Duration::from_secs(60);
/// Grace of a hung daemon after its signal, to write a core dump or end, before KILL.
const HUNG_LIMIT: Duration = Duration::from_secs(2);

/// What wakes the loop.
pub(super) enum Wake {
    /// The service with this number ended, and how, where that is told.
    Ended(usize, Option<std::io::Result<ExitStatus>>),
    /// `poold` answered.
    Seen(Box<Status>),
    /// It has not answered for too long.
    Hung,
    /// Start at once what is held back.
    Look,
    /// End the sessions, then stop everything.
    StopSessions,
    /// Stop everything.
    Stop,
}

struct Service {
    name: &'static str,
    backoff: Backoff,
    running: Option<Running>,
    due: Instant,
    /// Since when it runs and is not connected to `poold`.
    unconnected: Option<Instant>,
}

struct Running {
    since: Instant,
    pid: u32,
    /// `None` where it could not be held, as one that had ended before cannot.
    handle: Option<Handle>,
    /// Set once `poold` has answered since this daemon was started.
    answered: bool,
}

/// Keeps the daemons running until a signal says to stop, or the pool's directory is gone.
///
/// # Errors
/// Signals cannot be received.
pub(crate) fn run(context: &Context, held: &Held, watchdog: Duration) -> Result<(), Error> {
    let (sender, wakes) = mpsc::channel();
    receive_signals(sender.clone())?;
    let now = Instant::now();
    let service =
        |name| Service { name, backoff: Backoff::new(), running: None, due: now, unconnected: None };
    let mut services = service::NAMES.map(service);
    adopt(context, &mut services, &sender);
    if let Err(error) = process::logfile::keep_short(context.paths.log("up")) {
        out::note(&format!("the log of up is not kept short: {error}"));
    }
    if !watchdog.is_zero() {
        let (context, wakes) = (context.clone(), sender.clone());
        thread::spawn(move || watchdog::run(&context, watchdog, &wakes));
    }
    let mut place_at = now + PLACE_EVERY;
    loop {
        for (number, service) in services.iter_mut().enumerate() {
            if service.running.is_none() && service.due <= Instant::now() {
                service.start(context, number, &sender);
            }
        }
        if place_at <= Instant::now() {
            if !held.is_in_place(&context.paths.up_lock) {
                out::note("the pool's directory was removed or replaced: its daemons are stopped");
                break;
            }
            place_at = Instant::now() + PLACE_EVERY;
        }
        let due = services.iter().filter(|service| service.running.is_none()).map(|service| service.due);
        let next = due.fold(place_at, Instant::min).saturating_duration_since(Instant::now());
        match wakes.recv_timeout(next) {
            Ok(Wake::Ended(number, status)) => services[number].ended(status.as_ref()),
            Ok(Wake::Seen(status)) => seen(&mut services, &status),
            Ok(Wake::Hung) => hung(&mut services[0]),
            Ok(Wake::Look) => services.iter_mut().for_each(Service::hurry),
            Ok(Wake::StopSessions) => stop_sessions(context, &sender),
            Ok(Wake::Stop) => break,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
    stop(&mut services, &wakes);
    Ok(())
}

/// Takes over the daemons that an earlier supervisor started and that live: nothing is started beside them.
fn adopt(context: &Context, services: &mut [Service], wakes: &Sender<Wake>) {
    let alive = kept::alive(&context.paths).unwrap_or_else(|error| {
        out::note(&format!("daemons of before are not taken over: {error}"));
        Vec::new()
    });
    if let Err(error) = kept::tidy(&context.paths, &alive) {
        out::note(&format!("which daemons run is not written down: {error}"));
    }
    for (name, handle) in alive {
        let found = services.iter_mut().enumerate().find(|(_, service)| service.name == name);
        let Some((number, service)) = found.filter(|(_, service)| service.running.is_none()) else {
            // One too many: two supervisors had started it.
            end(&handle, STOP_LEAST).ok();
            continue;
        };
        let pid = handle.id().pid;
        let Ok(Some(watched)) = Handle::open(handle.id()) else { continue };
        out::note(&format!("{name} runs already, pid {pid}"));
        let handle = Some(handle);
        service.running = Some(Running { since: Instant::now(), pid, handle, answered: false });
        let wakes = wakes.clone();
        thread::spawn(move || {
            // Waits in pieces: it is no child, so only a handle tells of its end.
            while !watched.wait(WAIT_PIECE).unwrap_or(true) {}
            drop(wakes.send(Wake::Ended(number, None)));
        });
    }
}

/// `poold` answered; a watcher or reaper that works is connected to it.
fn seen(services: &mut [Service], found: &Status) {
    for service in services {
        let Some(running) = &mut service.running else { continue };
        running.answered = true;
        let connected = service.name == service::NAMES[0]
            || status::component(found, service.name).is_some_and(|component| component.connected);
        let since = *service.unconnected.get_or_insert_with(Instant::now);
        if connected {
            service.unconnected = None;
        } else if since.elapsed() >= UNCONNECTED {
            out::note(&format!("{} has not been connected for {UNCONNECTED:?}: it is ended", service.name));
            service.unconnected = None;
            end_hung(running, Signal::SIGTERM);
        }
    }
}

/// `poold` does not answer any more: it is ended, and started again once that is over.
fn hung(service: &mut Service) {
    let Some(running) = &mut service.running else { return };
    if running.answered || running.since.elapsed() >= FIRST_ANSWER {
        out::note(&format!("{} (pid {}) does not answer: it is ended", service.name, running.pid));
        end_hung(running, Signal::SIGABRT);
    }
}

/// Ends it with this signal, or, where it cannot even take that, by KILL.
fn end_hung(running: &mut Running, signal: Signal) {
    let Ok(Some(handle)) = running.held() else { return };
    let told = handle.signal(signal).and_then(|_| handle.wait(HUNG_LIMIT));
    if !told.unwrap_or(false) {
        handle.signal(Signal::SIGKILL).ok();
    }
}

/// In a thread of its own: the daemons are needed for it.
fn stop_sessions(context: &Context, wakes: &Sender<Wake>) {
    let (context, wakes) = (context.clone(), wakes.clone());
    thread::spawn(move || match down::end_sessions(&context) {
        Ok(()) => drop(wakes.send(Wake::Stop)),
        Err(error) => out::note(&format!("not stopped, as not all sessions ended: {error}")),
    });
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
                let handle = hold(pid).ok().flatten();
                let noted = handle.as_ref().map(|handle| kept::note(&context.paths, self.name, handle.id()));
                if let Some(Err(error)) = noted {
                    out::note(&format!("that {} runs is not written down: {error}", self.name));
                }
                self.running = Some(Running { since: now, pid, handle, answered: false });
                watch(child, number, wakes.clone());
            }
            Err(error) => {
                let pause = self.backoff.after(Duration::ZERO);
                self.due = now + pause;
                out::note(&format!("{} cannot be started: {error}; next try in {pause:?}", self.name));
            }
        }
    }

    /// Starts it at once, as if it had never failed.
    fn hurry(&mut self) {
        self.backoff = Backoff::new();
        self.due = Instant::now();
    }

    fn ended(&mut self, status: Option<&std::io::Result<ExitStatus>>) {
        let told = |status: &std::io::Result<ExitStatus>| {
            status.as_ref().map_or_else(ToString::to_string, ToString::to_string)
        };
        let how = status.map_or_else(|| "an earlier supervisor had started it".to_owned(), told);
        self.unconnected = None;
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
        drop(wakes.send(Wake::Ended(number, Some(status))));
    });
}

/// TERM and INT stop the supervisor. HUP does not, so that it outlives the terminal it was started on: it starts at once
/// what is held back. USR1 ends the sessions first.
fn receive_signals(wakes: Sender<Wake>) -> Result<(), Error> {
    let mut signals = SigSet::empty();
    let all = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1];
    all.into_iter().for_each(|signal| signals.add(signal));
    // Before the first thread is made, so that each inherits it.
    signals.thread_block().map_err(|error| Error::failed(format!("cannot hold back signals: {error}")))?;
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            let wake = match signal {
                Signal::SIGHUP => Wake::Look,
                Signal::SIGUSR1 => Wake::StopSessions,
                _ => Wake::Stop,
            };
            if wakes.send(wake).is_err() {
                return;
            }
        }
    });
    Ok(())
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
    let mut running = services.iter().filter(|service| service.running.is_some()).count();
    let deadline = deadline.max(Instant::now() + KILL_LIMIT);
    while running > 0 {
        match wakes.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Wake::Ended(..)) => running -= 1,
            Ok(_) => {}
            Err(_) => return,
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
