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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use process::handle::Handle;
    use tmux::Device;

    use super::*;
    use crate::source::Plan;
    use crate::tests::Tmux;

    fn source(device: Device) -> Source {
        let plan = Plan { transport: None, sweep: None, patience: Duration::from_secs(20) };
        Source::new(device, plan).unwrap()
    }

    #[tokio::test]
    async fn a_connection_to_a_socket_that_was_replaced_meanwhile_is_not_used() {
        let mut tmux = Tmux::new();
        tmux.create("one", "exec sleep 1000").await;
        let mut source = source(tmux.device.clone());
        for (file, is_used) in [(Some((0, 0)), false), (file_identity(&tmux.device.socket), true)] {
            let live = Live::open(&tmux.device, TmuxTransport::Native).await.unwrap();
            source.socket_file = file;
            assert_eq!(source.opened(TmuxTransport::Native, Box::new(live), Instant::now()), None);
            assert_eq!(matches!(source.connection, Connection::Live(_)), is_used, "{file:?}");
        }
    }

    #[tokio::test]
    async fn a_listing_of_a_server_that_has_ended_since_is_not_believed() {
        let me = identity::me().unwrap();
        for (process, is_believed) in [(ProcId { start: me.start + 1, ..me }, false), (me, true)] {
            let server = ServerId { process, started_at: 1 };
            let mut source = source(Device::new("tmux", "/nowhere/at/all"));
            source.server = Some(server);
            source.pending.push_back((Scope::All, Instant::now()));
            let listing =
                Listing { server: server.into(), sessions: BTreeMap::new(), panes: BTreeMap::new() };
            let event = source.read_done(Scope::All, Reading::All(listing), Instant::now());
            assert_eq!(matches!(event, Some(SourceEvent::Whole(_))), is_believed, "{event:?}");
            assert_eq!(source.model.server(), Some(server).filter(|_| is_believed));
        }
    }

    /// On a shell with the name of a tmux server, which the signal ends.
    #[cfg_attr(not(target_os = "linux"), ignore = "a process has the name of its file")]
    #[tokio::test]
    async fn a_server_out_of_reach_is_told_to_listen_only_where_nobody_does() {
        for listens in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let [program, socket] = ["tmux", "socket"].map(|name| dir.path().join(name));
            symlink("/bin/sh", &program).unwrap();
            let mut server =
                Command::new(&program).args(["-c", "read -r line"]).stdin(Stdio::piped()).spawn().unwrap();
            let _input = server.stdin.take();
            let process = identity::identify(server.id()).unwrap().unwrap();
            let _other = listens.then(|| UnixListener::bind(&socket).unwrap());
            let mut source = source(Device::new("tmux", &socket));
            source.suppose(Some(ServerId { process, started_at: 1 }));
            // The fourth failure is late enough.
            for seconds in [0, 2, 4, 6] {
                let now = Instant::now() + Duration::from_secs(seconds);
                assert_eq!(source.diagnose(Failure::NoServer, now), SourceEvent::Silence);
            }
            // It ends by the first signal that it was sent.
            if let Some(process) = Handle::open(process).unwrap() {
                process.signal(Signal::SIGTERM).unwrap();
            }
            let first = if listens { Signal::SIGTERM } else { Signal::SIGUSR1 };
            assert_eq!(server.wait().unwrap().signal(), Some(first as i32));
        }
    }
}
