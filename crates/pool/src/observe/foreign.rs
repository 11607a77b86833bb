//! tmux sessions that are not the pool's. They are reported and left alone, except for those that are to be
//! adopted.

use std::collections::BTreeMap;

use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{Event, PaneId, TmuxSessionId};

use crate::pool::Pool;
use crate::settings::Adoption;

/// The names of foreign tmux sessions, by id.
pub type ForeignSessions = BTreeMap<TmuxSessionId, String>;

/// Finds the tmux sessions none of whose panes is or was the pool's. A session that only shows panes of
/// others is a view of them, not a session of its own.
#[must_use]
pub fn foreign_sessions(pool: &Pool, state: &TmuxState) -> ForeignSessions {
    let mut foreign: BTreeMap<TmuxSessionId, bool> = BTreeMap::new();
    for pane in state.panes.values() {
        let ours = pane.tag.is_some_and(|tag| pool.tagged(tag).is_some() || pool.retired(tag).is_some());
        *foreign.entry(pane.session).or_insert(true) &= !ours;
    }
    let foreign = foreign.into_iter().filter(|(_, foreign)| *foreign);
    foreign.filter_map(|(id, _)| Some((id, state.sessions.get(&id)?.name.clone()))).collect()
}

/// The differences between two sets of foreign sessions.
#[must_use]
pub fn foreign_changes(before: &ForeignSessions, after: &ForeignSessions) -> Vec<Event> {
    let gone = before.iter().filter(|(id, _)| !after.contains_key(id));
    let seen = after.iter().filter(|(id, name)| before.get(id) != Some(name));
    gone.map(|(id, name)| Event::ForeignGone { tmux: *id, name: name.clone() })
        .chain(seen.map(|(id, name)| Event::ForeignSeen { tmux: *id, name: name.clone() }))
        .collect()
}

/// The panes that the configuration says to adopt: the first pane of each session, if it is open. A session
/// with a pane that the pool gave back is not adopted again by itself.
#[must_use]
pub fn panes_to_adopt(adoption: &Adoption, foreign: &ForeignSessions, state: &TmuxState) -> Vec<PaneId> {
    if *adoption == Adoption::Never || !matches!(state.server, Server::Up(_)) {
        return Vec::new();
    }
    let wanted = |name: &str| match adoption {
        Adoption::Never => false,
        Adoption::Prefix(prefix) => name.starts_with(prefix),
        Adoption::All => true,
    };
    let mut first: BTreeMap<TmuxSessionId, Option<PaneId>> = BTreeMap::new();
    for (id, pane) in &state.panes {
        let its = first.entry(pane.session).or_insert_with(|| is_adoptable(pane).then_some(*id));
        if pane.detached || pane.tag.is_some() {
            *its = None;
        }
    }
    let named = foreign.iter().filter(|(_, name)| wanted(name));
    named.filter_map(|(id, _)| first.get(id).copied().flatten()).collect()
}

/// True if a pane can be adopted without being named.
fn is_adoptable(pane: &TmuxPane) -> bool {
    pane.tag.is_none() && !pane.is_over() && !pane.detached && pane.process.is_some()
}
