//! Observation of one tmux server: connects, requests the reads that the model needs, and follows the
//! processes. In the order of events: `next` waits, `start` begins what is due, `handle` and `on_timer`
//! process the results.

mod incoming;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::ServerId;
use protocol::tmux::{Server, ServerProblem, TmuxState, TmuxTransport};
use tmux::Device;
use tmux::live::Scope;
use tokio::time::{Instant, sleep_until};

use crate::change_set::ChangeSet;
use crate::connection::Connection;
use crate::model::Model;
use crate::process_watch::{ProcessExit, ProcessWatch};
use crate::server_probe::{Failure, ServerProbe};
use crate::timing::{MIN_LISTING_INTERVAL, sweep_interval};
use crate::transport::TransportPolicy;
use crate::workarounds::{self, Workarounds};

/// Interval of the check that the socket's file is still the connected server's.
const SOCKET_CHECK: Duration = Duration::from_secs(2);
/// Divisor of the server's time: whole listings that resolve a contradiction take at most one part in this
/// many.
const WHOLE_READ_SHARE: u32 = 20;
/// Maximum delay of such a listing.
const WHOLE_READ_MAX_DELAY: Duration = Duration::from_secs(2);
/// Number of consecutive diagnoses without a finding, while an answer is awaited, after which the
/// connection counts as broken.
const MAX_SILENT_CHECKS: u32 = 4;
/// Times after connecting at which the server gets a SIGCHLD, because it may have missed the exit of the
/// hidden session's own program. No listing shows whether it did.
const SIGCHLD_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// Parameters of the observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) transport: Option<TmuxTransport>,
    pub(crate) sweep: Option<Duration>,
    /// Time without an answer after which the server is diagnosed.
    pub(crate) patience: Duration,
}

/// Progress of the observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceEvent {
    /// The whole server was read, beginning at this time; or there is none.
    Whole(Instant),
    /// A part of the server was read, beginning at this time.
    Part(Instant),
    /// The server answered.
    Alive,
    /// The server did not answer.
    Silence,
}

/// One observed tmux server.
pub(crate) struct Source {
    device: Device,
    plan: Plan,
    model: Model,
    processes: ProcessWatch,
    workarounds: Workarounds,
    probe: ServerProbe,
    policy: TransportPolicy,
    connection: Connection,
    transport: Option<TmuxTransport>,
    /// Identity of the connected server, and whether it has been read since.
    server: Option<ServerId>,
    useful: bool,
    /// File of the socket (device and inode) before connecting, and the time of its next check.
    socket_file: Option<(u64, u64)>,
    socket_due: Instant,
    reminders: VecDeque<Instant>,
    /// Pending reads, with the time of each request.
    pending: VecDeque<(Scope, Instant)>,
    /// Time of the last answer over the connection.
    last_answer: Option<Instant>,
    /// Start of the wait for an answer, and the last diagnosis of a server that gave none.
    waiting_since: Instant,
    last_diagnosis: Instant,
    /// Number of consecutive diagnoses without a finding.
    silent_checks: u32,
    /// Start of the last whole listing, and its duration.
    last_sweep: Instant,
    sweep_cost: Duration,
    /// True if a whole listing that begins from now on is requested.
    whole_requested: bool,
}

impl Source {
    /// Creates an idle source.
    pub(crate) fn new(device: Device, plan: Plan) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            policy: TransportPolicy::new(plan.transport, device.own, now),
            device,
            plan,
            model: Model::default(),
            processes: ProcessWatch::new()?,
            workarounds: Workarounds::default(),
            probe: ServerProbe::default(),
            connection: Connection::Idle,
            transport: None,
            server: None,
            useful: false,
            socket_file: None,
            socket_due: now,
            reminders: VecDeque::new(),
            pending: VecDeque::new(),
            last_answer: None,
            waiting_since: now,
            last_diagnosis: now,
            silent_checks: 0,
            last_sweep: now,
            sweep_cost: Duration::ZERO,
            whole_requested: false,
        })
    }

    /// True if this source watches this server with these parameters.
    pub(crate) fn matches(&self, device: &Device, plan: &Plan) -> bool {
        let same = self.device.binary == device.binary && self.device.socket == device.socket;
        same && self.device.own == device.own && self.plan == *plan
    }

    /// Takes the server on record for the one seen last, unless one was seen.
    pub(crate) fn suppose(&mut self, server: Option<ServerId>) {
        self.model.suppose(server);
    }

    /// The known state of tmux.
    pub(crate) fn state(&self) -> &TmuxState {
        self.model.state()
    }

    /// Takes the parts of the state that may have changed since the last call.
    pub(crate) fn take_changes(&mut self) -> ChangeSet {
        self.model.take_changes()
    }

    /// The transport in use, once something has been read.
    pub(crate) fn transport(&self) -> Option<TmuxTransport> {
        self.transport
    }

    /// Time of the server's last answer, while the connection lasts and the server is known to be up.
    pub(crate) fn answered_at(&self) -> Option<Instant> {
        let up = matches!(self.model.state().server, Server::Up(_))
            && matches!(self.connection, Connection::Live(_));
        self.last_answer.filter(|_| up)
    }

    /// Requests a whole listing that begins from now on, soon.
    pub(crate) fn request_whole(&mut self) {
        self.whole_requested = true;
        self.model.queue_whole();
        self.policy.retry_now(Instant::now());
    }

    /// Requests a sign of life of the server, soon.
    pub(crate) fn request_ping(&mut self) {
        let now = Instant::now();
        match &mut self.connection {
            Connection::Live(live) if self.pending.iter().all(|(scope, _)| *scope != Scope::Alive) => {
                live.request(Scope::Alive);
                if self.pending.is_empty() {
                    self.waiting_since = now;
                }
                self.pending.push_back((Scope::Alive, now));
            }
            Connection::Idle => self.policy.retry_now(now),
            _ => {}
        }
    }

    /// Waits for the next progress. Cancel-safe.
    pub(crate) async fn next(&mut self) -> SourceEvent {
        loop {
            let now = Instant::now();
            let (start_due, timer) = (self.is_start_due(now), self.next_timer());
            // In this order: pending events are handled before any read is requested, so that one batch
            // covers all of them.
            let event = tokio::select! {
                biased;
                exits = self.processes.next_exits() => self.processes_ended(&exits),
                event = self.connection.next() => self.handle(event),
                () = std::future::ready(()), if start_due => {
                    self.start(now);
                    None
                }
                () = sleep_until(timer) => self.on_timer(Instant::now()),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// True if a connection, a listing or a read is due.
    fn is_start_due(&self, now: Instant) -> bool {
        match &self.connection {
            Connection::Idle => now >= self.idle_until(),
            Connection::Live(_) => self.pending.is_empty() && self.model.has_reads(self.may_read_whole(now)),
            Connection::Opening(..) | Connection::Listing(_) => false,
        }
    }

    fn may_read_whole(&self, now: Instant) -> bool {
        self.whole_requested || now >= self.whole_read_at()
    }

    /// Starts the connection, the listing or the reads that are due.
    fn start(&mut self, now: Instant) {
        let allowed = self.may_read_whole(now);
        match &mut self.connection {
            Connection::Idle => {
                let transport = self.policy.choose(now);
                if transport == TmuxTransport::Listings {
                    self.last_sweep = now;
                }
                (self.waiting_since, self.whole_requested) = (now, false);
                self.socket_file = file_identity(&self.device.socket);
                self.connection = Connection::open(transport, &self.device);
            }
            Connection::Live(live) => {
                for scope in self.model.next_batch(allowed) {
                    if scope == Scope::All {
                        (self.last_sweep, self.whole_requested) = (now, false);
                    }
                    live.request(scope);
                    self.waiting_since = now;
                    self.pending.push_back((scope, now));
                }
            }
            Connection::Opening(..) | Connection::Listing(_) => {}
        }
    }

    /// Time of the next attempt while idle. With listings as the only transport, contradictions are
    /// resolved sooner.
    fn idle_until(&self) -> Instant {
        let due = self.policy.due();
        let doubts = self.transport == Some(TmuxTransport::Listings) && self.model.has_reads(true);
        if doubts { due.min(self.last_sweep + MIN_LISTING_INTERVAL) } else { due }
    }

    fn next_timer(&self) -> Instant {
        let waits = match &self.connection {
            Connection::Idle => self.idle_until(),
            Connection::Live(_) if self.pending.is_empty() && self.model.has_reads(true) => {
                self.whole_read_at().min(self.socket_due)
            }
            Connection::Live(_) if self.pending.is_empty() => self.sweep_at().min(self.socket_due),
            Connection::Live(_) => self.diagnosis_at().min(self.socket_due),
            Connection::Opening(..) | Connection::Listing(_) => self.diagnosis_at(),
        };
        let others = [self.processes.due(), self.workarounds.due(), self.reminders.front().copied()];
        others.into_iter().flatten().fold(waits, Instant::min)
    }

    /// Earliest time of a whole listing that resolves a contradiction.
    fn whole_read_at(&self) -> Instant {
        self.last_sweep + (self.sweep_cost * WHOLE_READ_SHARE).min(WHOLE_READ_MAX_DELAY)
    }

    fn sweep_at(&self) -> Instant {
        self.last_sweep + self.plan.sweep.unwrap_or_else(|| sweep_interval(self.sweep_cost))
    }

    fn diagnosis_at(&self) -> Instant {
        self.waiting_since.max(self.last_diagnosis) + self.plan.patience
    }

    /// Does the work that is due by the clock.
    fn on_timer(&mut self, now: Instant) -> Option<SourceEvent> {
        self.processes.sample_foreground(&mut self.model, now);
        self.run_workarounds(now);
        if matches!(self.connection, Connection::Live(_)) && now >= self.socket_due {
            self.socket_due = now + SOCKET_CHECK;
            if self.socket_file != file_identity(&self.device.socket) {
                tracing::warn!("tmux's socket was replaced; reconnecting");
                self.disconnect(now);
            }
        }
        let waits = match &self.connection {
            Connection::Idle => false,
            Connection::Live(_) => !self.pending.is_empty(),
            Connection::Opening(..) | Connection::Listing(_) => true,
        };
        if waits && now >= self.diagnosis_at() {
            let event = self.diagnose(Failure::Silent, now);
            self.reconnect_if_silent(now);
            return Some(event);
        }
        if matches!(self.connection, Connection::Live(_)) && !waits && now >= self.sweep_at() {
            self.model.queue_whole();
        }
        Some(SourceEvent::Part(now))
    }

    /// Disconnects if the connection stays silent although the server looks healthy.
    fn reconnect_if_silent(&mut self, now: Instant) {
        let Server::Unknown(no_answer) = &self.model.state().server else { return };
        if no_answer.trouble == ServerProblem::Unknown && matches!(self.connection, Connection::Live(_)) {
            self.silent_checks += 1;
            if self.silent_checks >= MAX_SILENT_CHECKS {
                tracing::warn!("no answer over the connection to tmux; reconnecting");
                self.disconnect(now);
            }
        }
    }

    /// Checks whether the server noticed the exits of its panes' processes, and signals it if not.
    fn run_workarounds(&mut self, now: Instant) {
        let Some(server) = self.model.server().or(self.server) else { return };
        let state = self.model.state();
        let is_over = |id| state.panes.get(&id).is_none_or(|pane| pane.dead && pane.has_exit_status());
        let actions = self.workarounds.check(now, is_over, |pid| workarounds::is_zombie_child(pid, server));
        let reminded = self.reminders.front().is_some_and(|due| *due <= now);
        if reminded {
            self.reminders.pop_front();
        }
        if actions.remind {
            workarounds::signal_server(server, Signal::SIGCHLD, || true);
        } else if reminded {
            workarounds::signal_server(server, Signal::SIGCHLD, || false);
        }
        for id in actions.reread {
            if self.model.state().panes.contains_key(&id) {
                self.model.queue_pane(id);
            }
        }
    }

    /// Records exits of processes.
    fn processes_ended(&mut self, exits: &[ProcessExit]) -> Option<SourceEvent> {
        let now = Instant::now();
        for exit in exits {
            match *exit {
                ProcessExit::Pane(id, process, how) => {
                    self.model.process_ended(id, process, how);
                    self.workarounds.pane_exited(id, process.pid, now);
                }
                ProcessExit::Server(_) => {
                    if matches!(self.connection, Connection::Live(_)) {
                        self.disconnect(now);
                    }
                    self.policy.retry_now(now);
                }
            }
        }
        (!exits.is_empty()).then_some(SourceEvent::Part(now))
    }
}

/// Device and inode of a file.
fn file_identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|found| process::runtime::untrusted_file::id(&found))
}
