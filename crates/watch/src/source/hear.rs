//! What came from tmux, taken in.

use nix::sys::signal::Signal;
use process::identity;
use protocol::tmux::{Means, Server, Trouble};
use protocol::{ProcId, ServerId};
use tmux::live::{Ask, Heard, Live, Read};
use tmux::{Listing, ServerRef, TmuxError};
use tokio::time::Instant;

use super::{REMINDERS, SOCKET, Seen, Source, file_of};
use crate::cure;
use crate::pace::interval;
use crate::procs;
use crate::server::{Failure, Socket, access_to, identify};
use crate::settle::stamp;
use crate::wire::{Said, Wire};

impl Source {
    /// Takes in what came from tmux.
    pub(super) fn hear(&mut self, said: Said) -> Option<Seen> {
        let now = Instant::now();
        match said {
            Said::Opened(means, Ok(live)) => self.opened(means, live, now),
            Said::Opened(means, Err(error)) => self.not_opened(means, &error, now),
            Said::Heard(Ok(Heard::Notice(notice))) => {
                tracing::trace!(?notice);
                self.model.notice(notice);
                None
            }
            Said::Heard(Ok(Heard::Read(ask, read))) => self.answered(ask, read, now),
            Said::Heard(Err(error)) => {
                tracing::info!(%error, "the connection to tmux is over");
                self.disconnect(now);
                None
            }
            Said::Listed(Ok(listing)) => Some(self.listed(listing, now)),
            Said::Listed(Err(error)) => {
                self.failed(Means::Listings, &error, now);
                Some(self.look(Failure::from(&error), now))
            }
        }
    }

    fn opened(&mut self, means: Means, live: Box<Live>, now: Instant) -> Option<Seen> {
        self.ladder.opened(means, now);
        if self.socket != file_of(&self.device.socket) {
            // Another server may have taken the path meanwhile: to whom this leads is not certain.
            self.ladder.lost(true, now);
            return None;
        }
        let Some(server) = identify(live.server()) else {
            self.ladder.lost(false, now);
            return Some(self.look(Failure::Other(not_found(live.server())), now));
        };
        if self.procs.follow_server(Some(server.process)) {
            self.ladder.lost(true, now);
            return None;
        }
        tracing::info!(%server, means = means.word(), "connected to tmux");
        (self.server, self.useful, self.answered) = (Some(server), false, None);
        self.socket_due = now + SOCKET;
        self.reminders = REMINDERS.iter().filter(|_| self.device.own).map(|after| now + *after).collect();
        self.model.connected();
        self.demanded = true;
        self.wire = Wire::Live(live);
        None
    }

    fn not_opened(&mut self, means: Means, error: &TmuxError, now: Instant) -> Option<Seen> {
        self.failed(means, error, now);
        // A listing will tell whether it is the server or the means that failed.
        let probes = !matches!(error, TmuxError::NoServer) && self.ladder.lists(now);
        (!probes).then(|| self.look(Failure::from(error), now))
    }

    fn failed(&mut self, means: Means, error: &TmuxError, now: Instant) {
        match error {
            TmuxError::NoServer => self.ladder.no_server(now),
            _ => {
                tracing::info!(%error, means = means.word(), "tmux was not reached");
                if matches!(error, TmuxError::TimedOut(_)) {
                    self.ladder.timed_out(means, now);
                } else {
                    self.ladder.failed(means, now);
                }
            }
        }
        if self.demanded {
            self.ladder.hurry(now);
        }
    }

    /// The connection is over.
    pub(super) fn disconnect(&mut self, now: Instant) {
        self.wire = Wire::Idle;
        self.silences = 0;
        self.asked.clear();
        self.reminders.clear();
        self.ladder.lost(self.useful, now);
    }

    fn answered(&mut self, ask: Ask, read: Read, now: Instant) -> Option<Seen> {
        let asked = self.asked.pop_front().filter(|(asked, _)| *asked == ask);
        // Still that process: so it was when it answered.
        let server = self.server.filter(|server| ask != Ask::All || lives(*server));
        let (Some((_, began)), Some(server)) = (asked, server) else {
            tracing::warn!(?ask, "not the answer that was waited for");
            self.disconnect(now);
            return None;
        };
        tracing::trace!(?ask, took = ?now.duration_since(began));
        (self.since, self.answered, self.silences) = (now, Some(now), 0);
        self.looks.answered();
        self.cure.in_reach();
        self.model.read(ask, read, server, |pid| stamped(pid, server));
        self.follow(now);
        if ask == Ask::All {
            (self.useful, self.cost) = (true, now.duration_since(began));
            self.ladder.useful();
            if let Wire::Live(live) = &self.wire {
                self.means = Some(live.means());
            }
        }
        Some(match ask {
            Ask::All => Seen::Whole(began),
            Ask::Alive => Seen::Alive,
            _ => Seen::Part(began),
        })
    }

    fn listed(&mut self, listing: Listing, now: Instant) -> Seen {
        let began = self.since;
        let found = listing.server;
        let known = self.model.server().filter(|server| ServerRef::from(*server) == found && lives(*server));
        let Some(server) = known.or_else(|| identify(found)) else {
            self.ladder.failed(Means::Listings, now);
            return self.look(Failure::Other(not_found(found)), now);
        };
        self.procs.follow_server(Some(server.process));
        self.looks.answered();
        self.cure.in_reach();
        self.ladder.listed(now);
        self.cost = now.duration_since(began);
        self.model.clean();
        self.model.all(listing, server, |pid| stamped(pid, server));
        self.follow(now);
        if self.ladder.lists(now) {
            self.means = Some(Means::Listings);
            self.ladder.list_at(began + self.plan.sweep.unwrap_or_else(|| interval(self.cost)));
        }
        if self.demanded {
            self.ladder.hurry(now);
        }
        Seen::Whole(began)
    }

    /// Holds the processes of the panes that were read, and looks what runs in them.
    fn follow(&mut self, now: Instant) {
        let whole = self.model.state().panes.len();
        let read = self.model.take_read();
        let swept = read.len() >= whole && whole > 1;
        for id in read {
            let pane = self.model.state().panes.get(&id);
            let process = pane.and_then(|pane| pane.process);
            let lost = pane.filter(|pane| pane.dead && !pane.has_known_end()).map(|pane| pane.pid);
            let looked_at = pane.is_some_and(|pane| pane.current_command.is_some());
            if self.procs.follow(id, pane, now)
                && let Some(process) = process
            {
                self.model.ended(id, process, None);
                self.cure.ended(id, process.pid, now);
            }
            lost.into_iter().for_each(|pid| self.cure.ended(id, pid, now));
            // Of those that are read again and again, a few are looked at each time.
            if !swept || !looked_at {
                procs::front(&mut self.model, id);
            }
        }
        let state = self.model.state();
        self.cure.retain(|id| state.panes.contains_key(&id));
    }

    /// Looks why the server does not answer.
    pub(super) fn look(&mut self, failure: Failure, now: Instant) -> Seen {
        self.looked = now;
        let known = self.model.server();
        match self.looks.look(failure, known, &self.device.socket, now) {
            Server::Unknown(silence) => {
                if silence.trouble == Trouble::Unreachable
                    && let Some(server) = silence.server
                    && self.cure.out_of_reach(now)
                    && access_to(&self.device.socket) == Socket::Missing
                {
                    let state = self.model.state();
                    cure::signal(server, Signal::SIGUSR1, || cure::is_parent(server, &state.panes));
                }
                self.model.silent(silence);
                Seen::Silence
            }
            _ => {
                self.model.absent();
                self.follow(now);
                self.procs.follow_server(None);
                self.cure.in_reach();
                Seen::Whole(self.since)
            }
        }
    }
}

/// The stamp of a living child of the server.
fn stamped(pid: u32, server: ServerId) -> Option<ProcId> {
    stamp(identity::read(pid).ok().flatten(), server.process)
}

fn lives(server: ServerId) -> bool {
    matches!(identity::identify(server.process.pid), Ok(Some(process)) if process == server.process)
}

fn not_found(server: ServerRef) -> String {
    format!("the tmux server says it is pid {}, and that is another process", server.pid)
}
