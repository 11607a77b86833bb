//! A machine with a tmux server, reduced to jobs, panes and processes.

use std::collections::{BTreeMap, BTreeSet};

use protocol::tmux::{Server, TmuxPane, TmuxSession, TmuxState};
use protocol::{PaneId, ProcId, Tag, TmuxSessionId, WindowId};

use crate::world::{process, server};

/// Process numbers of programs, above those of servers.
const PROGRAMS: u32 = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Number of servers so far; the last one runs.
    servers: u32,
    up: bool,
    /// Jobs that no init has claimed.
    pub(crate) jobs: BTreeSet<Tag>,
    panes: BTreeMap<PaneId, TmuxPane>,
    attached: BTreeMap<Tag, u32>,
    /// The living programs, each with its process.
    alive: BTreeMap<Tag, ProcId>,
    dead: BTreeSet<ProcId>,
    made: u32,
}

impl Host {
    /// Claims the job and runs it.
    pub(crate) fn make(&mut self, tag: Tag) {
        assert!(self.jobs.remove(&tag));
        if !self.up {
            (self.servers, self.up) = (self.servers + 1, true);
        }
        self.made += 1;
        let (n, run) = (self.made, process(PROGRAMS + self.made));
        self.alive.insert(tag, run);
        let bare = TmuxPane::bare(TmuxSessionId(n), WindowId(n), run.pid);
        self.panes.insert(PaneId(n), TmuxPane { tag: Some(tag), process: Some(run), ..bare });
    }

    /// Ends a program by itself; its pane is left.
    pub(crate) fn exit(&mut self, tag: Tag, code: i32) {
        self.dead.extend(self.alive.remove(&tag));
        for pane in self.panes.values_mut().filter(|pane| pane.tag == Some(tag)) {
            (pane.dead, pane.exited, pane.exit_status) = (true, true, Some(code));
        }
    }

    /// Ends all programs with a pane.
    pub(crate) fn exit_all(&mut self) {
        let shown: Vec<Tag> = self.panes.values().filter_map(|pane| pane.tag).collect();
        shown.into_iter().for_each(|tag| self.exit(tag, 0));
    }

    /// Ends a program and removes its pane.
    pub(crate) fn remove(&mut self, tag: Tag) {
        self.dead.extend(self.alive.remove(&tag));
        self.panes.retain(|_, pane| pane.tag != Some(tag));
    }

    pub(crate) fn server_dies(&mut self, survivors: bool) {
        if !self.up {
            return;
        }
        self.up = false;
        self.dead.insert(server(self.servers).process);
        self.panes.clear();
        if !survivors {
            self.dead.extend(std::mem::take(&mut self.alive).into_values());
        }
    }

    pub(crate) fn attach(&mut self, tag: Tag, clients: u32) {
        self.attached.insert(tag, clients);
    }

    pub(crate) fn attached(&self, tag: Tag) -> u32 {
        self.attached.get(&tag).copied().unwrap_or(0)
    }

    pub(crate) fn state(&self) -> TmuxState {
        if !self.up {
            return TmuxState::default();
        }
        let session = |pane: &TmuxPane| {
            let attached = pane.tag.map_or(0, |tag| self.attached(tag));
            (
                pane.session,
                TmuxSession {
                    attached,
                    pooled: true,
                    ..TmuxSession::bare(format!("S{}", pane.session.0), 1)
                },
            )
        };
        let sessions = self.panes.values().map(session).collect();
        TmuxState { server: Server::Up(server(self.servers)), sessions, panes: self.panes.clone() }
    }

    pub(crate) fn dead(&self) -> Vec<ProcId> {
        self.dead.iter().copied().collect()
    }

    pub(crate) fn is_alive(&self, tag: Tag) -> bool {
        self.alive.contains_key(&tag)
    }

    /// True if anything of an incarnation exists, or may still begin to.
    pub(crate) fn has(&self, tag: Tag) -> bool {
        let shown = self.panes.values().any(|pane| pane.tag == Some(tag));
        shown || self.is_alive(tag) || self.jobs.contains(&tag)
    }

    /// Number of programs that run or may begin to.
    pub(crate) fn running(&self) -> usize {
        self.alive.len() + self.jobs.len()
    }
}
