//! The supervisor's loop: it starts the daemons that are due, and waits for the end of one or for a signal.
//! At its end it stops those that it started, the last one first. A daemon that somebody else had started before, as a
//! service manager does, is left to whoever did: this supervisor starts none in its place until `up` is run again.

use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use process::handle::Handle;
use protocol::reply::Status;
use protocol::{Backoff, Paths};

use crate::show::{out, status};
use crate::supervisor_lock::{self, SupervisorLock};
use crate::up::watchdog::{self, Finding};
use crate::up::{health, service, started, stop};
use crate::{Context, Error, signals, threads};

/// Length of one wait for the end of a daemon that is no child of this process.
const WAIT_PIECE: Duration = Duration::from_secs(60);
/// Interval at which a daemon that another supervisor runs is checked.
const FOREIGN_INTERVAL: Duration = Duration::from_secs(5);
/// The same of the pool's lock, if another `poold` holds it: one that is starting, at work on the database, or ending.
const LOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for all daemons together to stop before they are killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Time that each daemon has at least to stop, even if one before it used up the time of all.
const STOP_LEAST: Duration = Duration::from_secs(3);
/// Time limit for the end of killed daemons.
const KILL_LIMIT: Duration = Duration::from_secs(1);
/// Number of attempts, and the interval between them, to open a handle for a daemon that is to be stopped.
const HANDLE_TRIES: u32 = 5;
const HANDLE_PAUSE: Duration = Duration::from_millis(50);

/// Interval at which the existence of the pool's directory is checked.
const DIR_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit for the first answer of `poold` after its start, after which it counts as hung.
const FIRST_ANSWER: Duration = Duration::from_secs(90);
/// Time limit for a watcher or reaper to run without a connection to `poold`.
const UNCONNECTED: Duration = Duration::from_secs(60);
/// Grace of a hung daemon between its signal, at which it may write a core dump, and KILL.
const HUNG_LIMIT: Duration = Duration::from_secs(2);

/// An event that wakes the loop.
enum Wake {
    /// The service with this number ended, and its exit status, if it was a child.
    Ended(usize, Option<std::io::Result<ExitStatus>>),
    /// The watchdog asked `poold` for its status.
    Watchdog(Finding),
    /// Start the daemons that wait for their next start at once.
    Hurry,
    /// End the sessions, then stop everything.
    StopSessions,
    /// Stop everything.
    Stop,
}

struct Service {
    name: &'static str,
    backoff: Backoff,
    running: Option<Running>,
    /// False if somebody else started this daemon, and has to start it again; `None` while that is unknown.
    is_ours: Option<bool>,
    due: Instant,
    /// True once the log says that its start waits for the pool's lock.
    waits: bool,
    /// The time since which it runs without a connection to `poold`.
    unconnected: Option<Instant>,
}

struct Running {
    since: Instant,
    pid: u32,
    /// `None` if it could not be opened, for example because the daemon had ended.
    handle: Option<Handle>,
    /// True once `poold` has answered since the start of this daemon.
    answered: bool,
    /// False until the record of started daemons, which the next supervisor and `down` read, has this one.
    is_recorded: bool,
}

/// Keeps the daemons running until a signal stops it, or the pool's directory is gone.
pub(crate) fn run(context: &Context, lock: &SupervisorLock, watchdog: Duration) -> Result<(), Error> {
    started::check(&context.paths)?;
    let (sender, wakes) = mpsc::channel();
    receive_signals(sender.clone())?;
    let now = Instant::now();
    let mut services = service::NAMES.map(|name| Service::new(name, now));
    adopt(context, &mut services, &sender);
    if let Err(error) = process::runtime::logfile::start_rotation(context.paths.log("up")) {
        out::note(&format!("the log of up cannot be kept short: {error}"));
    }
    if !watchdog.is_zero() {
        let (context, wakes) = (context.clone(), sender.clone());
        let report = move |finding| wakes.send(Wake::Watchdog(finding)).is_ok();
        if let Err(error) = threads::start(move || watchdog::run(&context, watchdog, report)) {
            out::note(&format!("whether poold answers is not watched: {error}"));
        }
    }
    let mut check_at = now + DIR_INTERVAL;
    loop {
        start_due(context, &mut services, &sender);
        if check_at <= Instant::now() {
            if !lock.is_in_place(&context.paths.up_lock) {
                out::note("the pool's directory was removed or replaced: stopping its daemons");
                break;
            }
            check_at = Instant::now() + DIR_INTERVAL;
        }
        let due = services.iter().filter(|service| service.running.is_none()).map(|service| service.due);
        let next = due.fold(check_at, Instant::min).saturating_duration_since(Instant::now());
        match wakes.recv_timeout(next) {
            Ok(Wake::Ended(number, status)) => services[number].ended(status.as_ref()),
            Ok(Wake::Watchdog(Finding::Answered(status))) => check_connections(&mut services, &status),
            Ok(Wake::Watchdog(Finding::Hung)) => end_hung_poold(&mut services[0]),
            Ok(Wake::Hurry) => services.iter_mut().for_each(Service::hurry),
            Ok(Wake::StopSessions) => stop_sessions(context, &sender),
            Ok(Wake::Stop) => break,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
    stop_all(&mut services, &wakes);
    Ok(())
}

/// Starts the daemons that are due. If `poold` is found to be somebody else's, the others get a moment to connect.
fn start_due(context: &Context, services: &mut [Service], wakes: &Sender<Wake>) {
    for number in 0..services.len() {
        let was_unknown = services[0].is_ours.is_none();
        let service = &mut services[number];
        if service.running.is_none() && service.due <= Instant::now() {
            service.start(context, (number, was_unknown), wakes);
        } else if let Some(running) = &mut service.running {
            // Tried again at each round if it failed, as it does on a full disk; the log has said so at the start.
            running.record(&context.paths, service.name).ok();
        }
        if was_unknown && services[0].is_ours == Some(false) {
            let due = Instant::now() + LOCK_INTERVAL;
            services[1..].iter_mut().for_each(|service| service.due = service.due.max(due));
        }
    }
}

/// Takes over the live daemons of an earlier supervisor, so that no daemon is started twice.
fn adopt(context: &Context, services: &mut [Service], wakes: &Sender<Wake>) {
    let alive = started::alive(&context.paths).unwrap_or_else(|error| {
        out::note(&format!("cannot take over the daemons of an earlier supervisor: {error}"));
        Vec::new()
    });
    if let Err(error) = started::rewrite(&context.paths, &alive) {
        out::note(&format!("cannot record the running daemons: {error}"));
    }
    for (name, handle) in alive {
        let found = services.iter_mut().enumerate().find(|(_, service)| service.name == name);
        let Some((number, service)) = found.filter(|(_, service)| service.running.is_none()) else {
            // A duplicate: two supervisors had started it.
            terminate(&handle, STOP_LEAST).ok();
            continue;
        };
        service.is_ours = Some(true);
        let (pid, wakes) = (handle.id().pid, wakes.clone());
        let Ok(Some(watched)) = Handle::open(handle.id()) else { continue };
        let watching = threads::start(move || {
            // The end of a process that is no child is reported by a handle only. A wait for a handle has a limit, so
            // it is repeated.
            while !watched.wait(WAIT_PIECE).unwrap_or(true) {}
            drop(wakes.send(Wake::Ended(number, None)));
        });
        if let Err(error) = watching {
            out::note(&format!("{name} already runs, pid {pid}, and cannot be watched: {error}"));
            continue;
        }
        out::note(&format!("{name} already runs, pid {pid}"));
        let (since, handle) = (Instant::now(), Some(handle));
        service.running = Some(Running { since, pid, handle, answered: false, is_recorded: true });
    }
}

/// Ends a watcher or reaper that has run without a connection to `poold` for too long.
fn check_connections(services: &mut [Service], found: &Status) {
    for service in services {
        let Some(running) = &mut service.running else { continue };
        running.answered = true;
        let connected = service.name == service::NAMES[0]
            || status::component(found, service.name).is_some_and(|component| component.connected);
        let since = *service.unconnected.get_or_insert_with(Instant::now);
        if connected {
            service.unconnected = None;
        } else if since.elapsed() >= UNCONNECTED {
            out::note(&format!("{} has not been connected for {UNCONNECTED:?}: ending it", service.name));
            service.unconnected = None;
            end_hung(running, Signal::SIGTERM);
        }
    }
}

/// Ends a `poold` that does not answer; it is started again after its end.
fn end_hung_poold(service: &mut Service) {
    let Some(running) = &mut service.running else { return };
    if running.answered || running.since.elapsed() >= FIRST_ANSWER {
        out::note(&format!("{} (pid {}) does not answer: ending it", service.name, running.pid));
        end_hung(running, Signal::SIGABRT);
    }
}

/// Ends a daemon with this signal, or with KILL if it does not react.
fn end_hung(running: &mut Running, signal: Signal) {
    let Ok(Some(handle)) = running.handle() else { return };
    let ended = handle.signal(signal).and_then(|_| handle.wait(HUNG_LIMIT));
    if !ended.unwrap_or(false) {
        handle.signal(Signal::SIGKILL).ok();
    }
}

/// Ends the sessions in another thread, while this one keeps the daemons running, which are needed for that.
fn stop_sessions(context: &Context, wakes: &Sender<Wake>) {
    let (context, wakes) = (context.clone(), wakes.clone());
    let stopping = threads::start(move || match stop::sessions(&context) {
        Ok(_no_starts) => {
            drop(wakes.send(Wake::Stop));
            // No session is started while this thread is parked: until the daemons and this process have ended.
            loop {
                thread::park();
            }
        }
        Err(error) => out::note(&format!("not stopping, as not all sessions ended: {error}")),
    });
    if let Err(error) = stopping {
        out::note(&format!("not stopping: {error}"));
    }
}

impl Service {
    fn new(name: &'static str, due: Instant) -> Self {
        let backoff = service::backoff();
        Self { name, backoff, running: None, is_ours: None, due, waits: false, unconnected: None }
    }

    /// Starts the daemon, unless somebody else runs it. `is_unknown` is true while it is unknown who runs `poold`: the
    /// daemons beside it may then be somebody else's, too.
    fn start(&mut self, context: &Context, (number, is_unknown): (usize, bool), wakes: &Sender<Wake>) {
        let now = Instant::now();
        if self.is_ours == Some(false) || is_run_by_another(context, self.name) {
            if self.is_ours.is_none() {
                out::note(&format!("{} was started by somebody else, and is left alone", self.name));
                self.is_ours = Some(false);
            }
            self.due = now + FOREIGN_INTERVAL;
            return;
        }
        if (number == 0 || is_unknown) && supervisor_lock::is_held(&context.paths.lock) {
            if !self.waits {
                out::note(&format!("{} waits: another poold holds the pool's lock", self.name));
                self.waits = true;
            }
            self.due = now + LOCK_INTERVAL;
            return;
        }
        (self.is_ours, self.waits) = (Some(true), false);
        let started = exit_reporter(number, wakes.clone())
            .and_then(|children| Ok((service::start(&context.paths, self.name)?, children)));
        match started {
            Ok((child, children)) => {
                let pid = child.id();
                out::note(&format!("{} started, pid {pid}", self.name));
                let mut running =
                    Running { since: now, pid, handle: None, answered: false, is_recorded: false };
                if let Err(error) = running.record(&context.paths, self.name) {
                    out::note(&format!("cannot record that {} runs: {error}", self.name));
                }
                self.running = Some(running);
                // The thread waits for it.
                children.send(child).ok();
            }
            Err(error) => {
                let pause = self.backoff.pause();
                self.due = now + pause;
                out::note(&format!("cannot start {}: {error}; next try in {pause:?}", self.name));
            }
        }
    }

    /// Makes the daemon due now. Earlier failures are forgotten, and also that somebody else had started it.
    fn hurry(&mut self) {
        self.backoff.reset();
        self.is_ours = self.is_ours.filter(|is_ours| *is_ours);
        self.due = Instant::now();
    }

    fn ended(&mut self, status: Option<&std::io::Result<ExitStatus>>) {
        let text = |status: &std::io::Result<ExitStatus>| {
            status.as_ref().map_or_else(ToString::to_string, ToString::to_string)
        };
        let how = status.map_or_else(|| "started by an earlier supervisor".to_owned(), text);
        self.unconnected = None;
        let lived = self.running.take().map(|running| running.since.elapsed()).unwrap_or_default();
        let pause = service::pause_after(&mut self.backoff, lived);
        self.due = Instant::now() + pause;
        out::note(&format!("{} ended ({how}); next start in {pause:?}", self.name));
    }
}

/// True if another supervisor runs this daemon. Called while this supervisor's own daemon does not run.
fn is_run_by_another(context: &Context, name: &str) -> bool {
    let Some(found) = health::status_within(context, health::ANSWER_LIMIT) else { return false };
    name == service::NAMES[0] || status::component(&found, name).is_some_and(|component| component.connected)
}

impl Running {
    /// Puts the daemon on record, unless it is there, or has ended.
    fn record(&mut self, paths: &Paths, name: &str) -> Result<(), Error> {
        if !self.is_recorded {
            if let Some(handle) = self.handle()? {
                started::add(paths, name, handle.id()).map_err(|error| Error::failed(error.to_string()))?;
            }
            self.is_recorded = true;
        }
        Ok(())
    }

    /// The handle, which is opened now if it is not yet.
    fn handle(&mut self) -> Result<Option<&Handle>, Error> {
        for tries_left in (0..HANDLE_TRIES).rev() {
            if self.handle.is_some() {
                break;
            }
            match service::open_child(self.pid) {
                Ok(handle) => {
                    self.handle = handle;
                    break;
                }
                Err(error) if tries_left == 0 => return Err(error),
                Err(_) => thread::sleep(HANDLE_PAUSE),
            }
        }
        Ok(self.handle.as_ref())
    }
}

/// Starts a thread that reports the end of the child that it is sent.
fn exit_reporter(number: usize, wakes: Sender<Wake>) -> std::io::Result<Sender<Child>> {
    let watch = move |mut child: Child| {
        let status = child.wait();
        // The receiver is gone once the loop has ended.
        drop(wakes.send(Wake::Ended(number, Some(status))));
    };
    Ok(threads::prepare(watch)?.0)
}

/// TERM and INT stop the supervisor, USR1 ends the sessions first. HUP does not stop it, so that it outlives
/// the terminal on which it was started: it starts the daemons that wait for their next start at once.
fn receive_signals(wakes: Sender<Wake>) -> Result<(), Error> {
    let stopping = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1];
    signals::receive(stopping, move |signal| {
        let wake = match signal {
            Signal::SIGHUP => Wake::Hurry,
            Signal::SIGUSR1 => Wake::StopSessions,
            _ => Wake::Stop,
        };
        wakes.send(wake).is_ok()
    })
}

/// Stops the last daemon first, so that `poold`, for which the others work, ends last.
fn stop_all(services: &mut [Service], wakes: &Receiver<Wake>) {
    let deadline = Instant::now() + STOP_LIMIT;
    for service in services.iter_mut().rev() {
        let Some(running) = &mut service.running else { continue };
        let left = deadline.saturating_duration_since(Instant::now()).max(STOP_LEAST);
        match running.handle().and_then(|handle| handle.map_or(Ok(true), |handle| terminate(handle, left))) {
            Ok(true) => {}
            Ok(false) => out::note(&format!("{} did not stop in time and was killed", service.name)),
            Err(error) => out::note(&format!("cannot stop {}: {error}", service.name)),
        }
    }
    // Waits for their ends, so that no zombie is left to another process.
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

/// Ends a daemon with TERM, and after the limit with KILL. Returns false if it was killed.
fn terminate(handle: &Handle, limit: Duration) -> Result<bool, Error> {
    let failed = |error: process::Error| Error::failed(error.to_string());
    handle.signal(Signal::SIGTERM).map_err(failed)?;
    let ended = handle.wait(limit).map_err(failed)?;
    if !ended {
        handle.signal(Signal::SIGKILL).map_err(failed)?;
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::started::tests::pool_in;

    #[test]
    fn a_daemon_that_could_not_be_recorded_is_recorded_later() {
        let dir = tempfile::tempdir().unwrap();
        let paths = pool_in(dir.path());
        // A directory at the place of the record: nothing can be added to it.
        let record = paths.run.join("up.daemons");
        std::fs::create_dir_all(&record).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (since, pid) = (Instant::now(), child.id());
        let mut running = Running { since, pid, handle: None, answered: false, is_recorded: false };
        assert!(running.record(&paths, "reaper").is_err() && !running.is_recorded);
        std::fs::remove_dir(&record).unwrap();
        for _ in 0..2 {
            running.record(&paths, "reaper").unwrap();
            let alive = started::alive(&paths).unwrap();
            assert_eq!(alive.iter().map(|(_, handle)| handle.id().pid).collect::<Vec<_>>(), [pid]);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
