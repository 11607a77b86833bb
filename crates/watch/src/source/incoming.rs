//! Handling of events from tmux.

use nix::sys::signal::Signal;
use process::identity;
use protocol::tmux::{Server, ServerProblem, TmuxTransport};
use protocol::{ProcId, ServerId};
use tmux::live::{Live, LiveEvent, Reading, Scope};
use tmux::{Listing, ServerRef, TmuxError};
use tokio::time::Instant;

use super::{SIGCHLD_DELAYS, SOCKET_CHECK, Source, SourceEvent, file_identity};
use crate::connection::{Connection, ConnectionEvent};
use crate::process_watch;
use crate::server_probe::{Failure, identify};
use crate::stamp::stamp_of_child;
use crate::timing::listing_interval;
use crate::workarounds;

impl Source {
    /// Handles an event from tmux.
    pub(super) fn handle(&mut self, event: ConnectionEvent) -> Option<SourceEvent> {
        let now = Instant::now();
        match event {
            ConnectionEvent::Opened(transport, Ok(live)) => self.opened(transport, live, now),
            ConnectionEvent::Opened(transport, Err(error)) => self.open_failed(transport, &error, now),
            ConnectionEvent::Live(Ok(LiveEvent::Notice(notice))) => {
                tracing::trace!(?notice);
                self.model.notice(notice);
                None
            }
            ConnectionEvent::Live(Ok(LiveEvent::Read(scope, read))) => self.read_done(scope, read, now),
            ConnectionEvent::Live(Err(error)) => {
                tracing::info!(%error, "the connection to tmux ended");
                self.disconnect(now);
                None
            }
            ConnectionEvent::Listed(Ok(listing)) => Some(self.listed(listing, now)),
            ConnectionEvent::Listed(Err(error)) => {
                self.transport_failed(TmuxTransport::Listings, &error, now);
                Some(self.diagnose(Failure::from(&error), now))
            }
        }
    }

    fn opened(&mut self, transport: TmuxTransport, live: Box<Live>, now: Instant) -> Option<SourceEvent> {
        self.policy.opened(transport, now);
        if self.socket_file != file_identity(&self.device.socket) {
            // Another server may have replaced the socket meanwhile: the peer's identity is uncertain.
            self.policy.lost(true, now);
            return None;
        }
        let Some(server) = identify(live.server()) else {
            self.policy.lost(false, now);
            return Some(self.diagnose(Failure::Other(pid_mismatch(live.server())), now));
        };
        if self.processes.watch_server(Some(server.process)) {
            self.policy.lost(true, now);
            return None;
        }
        tracing::info!(%server, transport = transport.as_str(), "connected to tmux");
        (self.server, self.useful, self.last_answer) = (Some(server), false, None);
        self.socket_due = now + SOCKET_CHECK;
        self.reminders =
            SIGCHLD_DELAYS.iter().filter(|_| self.device.own).map(|after| now + *after).collect();
        self.model.connected();
        self.whole_requested = true;
        self.connection = Connection::Live(live);
        None
    }

    fn open_failed(
        &mut self,
        transport: TmuxTransport,
        error: &TmuxError,
        now: Instant,
    ) -> Option<SourceEvent> {
        self.transport_failed(transport, error, now);
        // A listing will tell whether the server or the transport failed.
        let lists_next = !matches!(error, TmuxError::NoServer) && self.policy.uses_listings(now);
        (!lists_next).then(|| self.diagnose(Failure::from(error), now))
    }

    fn transport_failed(&mut self, transport: TmuxTransport, error: &TmuxError, now: Instant) {
        match error {
            TmuxError::NoServer => self.policy.no_server(now),
            _ => {
                tracing::info!(%error, transport = transport.as_str(), "tmux could not be reached");
                if matches!(error, TmuxError::TimedOut(_)) {
                    self.policy.timed_out(transport, now);
                } else {
                    self.policy.failed(transport, now);
                }
            }
        }
        if self.whole_requested {
            self.policy.retry_now(now);
        }
    }

    /// Drops the connection.
    pub(super) fn disconnect(&mut self, now: Instant) {
        self.connection = Connection::Idle;
        self.silent_checks = 0;
        self.pending.clear();
        self.reminders.clear();
        self.policy.lost(self.useful, now);
    }

    fn read_done(&mut self, scope: Scope, read: Reading, now: Instant) -> Option<SourceEvent> {
        let request = self.pending.pop_front().filter(|(request, _)| *request == scope);
        // The process is the same now, so it was when it answered.
        let server = self.server.filter(|server| scope != Scope::All || is_alive(*server));
        let (Some((_, began)), Some(server)) = (request, server) else {
            tracing::warn!(?scope, "unexpected answer from tmux; reconnecting");
            self.disconnect(now);
            return None;
        };
        tracing::trace!(?scope, took = ?now.duration_since(began));
        (self.waiting_since, self.last_answer, self.silent_checks) = (now, Some(now), 0);
        self.probe.answered();
        self.workarounds.socket_reachable();
        self.model.put_reading(scope, read, server, |pid| stamp(pid, server));
        self.watch_processes(now);
        if scope == Scope::All {
            (self.useful, self.sweep_cost) = (true, now.duration_since(began));
            self.log_whole();
            self.policy.useful();
            if let Connection::Live(live) = &self.connection {
                self.transport = Some(live.transport());
            }
        }
        Some(match scope {
            Scope::All => SourceEvent::Whole(began),
            Scope::Alive => SourceEvent::Alive,
            _ => SourceEvent::Part(began),
        })
    }

    fn listed(&mut self, listing: Listing, now: Instant) -> SourceEvent {
        let began = self.waiting_since;
        let found = listing.server;
        let known =
            self.model.server().filter(|server| ServerRef::from(*server) == found && is_alive(*server));
        let Some(server) = known.or_else(|| identify(found)) else {
            self.policy.failed(TmuxTransport::Listings, now);
            return self.diagnose(Failure::Other(pid_mismatch(found)), now);
        };
        self.processes.watch_server(Some(server.process));
        self.probe.answered();
        self.workarounds.socket_reachable();
        self.policy.listed(now);
        self.sweep_cost = now.duration_since(began);
        self.model.clear_queue();
        self.model.put_listing(listing, server, |pid| stamp(pid, server));
        self.log_whole();
        self.watch_processes(now);
        if self.policy.uses_listings(now) {
            self.transport = Some(TmuxTransport::Listings);
            self.policy.schedule_listing(
                began + self.plan.sweep.unwrap_or_else(|| listing_interval(self.sweep_cost)),
            );
        }
        if self.whole_requested {
            self.policy.retry_now(now);
        }
        SourceEvent::Whole(began)
    }

    /// Logs that the whole server was read.
    fn log_whole(&self) {
        let state = self.model.state();
        let (sessions, panes) = (state.sessions.len(), state.panes.len());
        tracing::debug!(sessions, panes, took = ?self.sweep_cost, "read the whole server");
    }

    /// Follows the processes of the panes that were read, and reads their foreground commands.
    fn watch_processes(&mut self, now: Instant) {
        let whole = self.model.state().panes.len();
        let read = self.model.take_refreshed();
        let is_sweep = read.len() >= whole && whole > 1;
        let mut to_look_at = Vec::new();
        for id in read {
            let pane = self.model.state().panes.get(&id);
            let process = pane.and_then(|pane| pane.process);
            let lost = pane.filter(|pane| pane.dead && !pane.has_exit_status()).map(|pane| pane.pid);
            let has_command = pane.is_some_and(|pane| pane.current_command.is_some());
            if self.processes.watch_pane(id, pane, now)
                && let Some(process) = process
            {
                self.model.process_ended(id, process, None);
                self.workarounds.pane_exited(id, process.pid, now);
            }
            lost.into_iter().for_each(|pid| self.workarounds.pane_exited(id, pid, now));
            // A sweep reads all panes again and again; the timer samples their commands in slices.
            if !is_sweep || !has_command {
                to_look_at.push(id);
            }
        }
        process_watch::read_foreground(&mut self.model, &to_look_at);
        let state = self.model.state();
        self.workarounds.retain(|id| state.panes.contains_key(&id));
    }

    /// Finds out why the server does not answer.
    pub(super) fn diagnose(&mut self, failure: Failure, now: Instant) -> SourceEvent {
        self.last_diagnosis = now;
        let known = self.model.server();
        match self.probe.diagnose(failure, known, &self.device.socket, now) {
            Server::Unknown(no_answer) => {
                if no_answer.trouble == ServerProblem::Unreachable
                    && let Some(server) = no_answer.server
                    && self.workarounds.socket_missing(now)
                    && matches!(tmux::trust::probe(&self.device.socket), Err(TmuxError::NoServer))
                {
                    let state = self.model.state();
                    workarounds::signal_server(server, Signal::SIGUSR1, || {
                        workarounds::is_parent(server, &state.panes)
                    });
                }
                self.model.set_unknown(no_answer);
                SourceEvent::Silence
            }
            _ => {
                self.model.set_absent();
                self.watch_processes(now);
                self.processes.watch_server(None);
                self.workarounds.socket_reachable();
                SourceEvent::Whole(self.waiting_since)
            }
        }
    }
}

/// Stamps a living child of the server.
fn stamp(pid: u32, server: ServerId) -> Option<ProcId> {
    stamp_of_child(identity::read_each(&[pid]).remove(&pid), server.process)
}

fn is_alive(server: ServerId) -> bool {
    matches!(identity::identify(server.process.pid), Ok(Some(process)) if process == server.process)
}

fn pid_mismatch(server: ServerRef) -> String {
    format!("the tmux server reports pid {}, which is another process", server.pid)
}
