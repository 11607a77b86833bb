//! tmux sessions that are not the pool's. They are reported and left alone, except for those that are to be
//! adopted.

use std::collections::BTreeMap;

use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{Event, PaneId, TmuxSessionId};

use crate::pool::Pool;
use crate::settings::Adoption;

/// The names of foreign tmux sessions, by id.
pub type ForeignSessions = BTreeMap<TmuxSessionId, String>;

/// Finds the tmux sessions that have never had a pane of the pool. A session that only shows panes of other sessions is
/// a view of them, and not listed.
pub fn foreign_sessions(pool: &Pool, state: &TmuxState) -> ForeignSessions {
    let mut foreign: BTreeMap<TmuxSessionId, bool> = BTreeMap::new();
    for pane in state.panes.values() {
        let ours = pane.tag.is_some_and(|tag| pool.has_tag(tag));
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

/// Returns the panes that the configuration says to adopt: open panes that are the only one of their session, as
/// `adopt` requires too. A session that once had a pane of a pool is not adopted again automatically.
pub fn panes_to_adopt(adoption: &Adoption, foreign: &ForeignSessions, state: &TmuxState) -> Vec<PaneId> {
    if *adoption == Adoption::Never || !matches!(state.server, Server::Up(_)) {
        return Vec::new();
    }
    let wanted = |name: &str| match adoption {
        Adoption::Never => false,
        Adoption::Prefix(prefix) => name.starts_with(prefix),
        Adoption::All => true,
    };
    let mut only: BTreeMap<TmuxSessionId, Option<PaneId>> = BTreeMap::new();
    for (id, pane) in &state.panes {
        let pane_alone = is_adoptable(pane).then_some(*id);
        only.entry(pane.session).and_modify(|other| *other = None).or_insert(pane_alone);
    }
    let is_new = |id| state.sessions.get(id).is_some_and(|session| !session.pooled);
    let named = foreign.iter().filter(|(id, name)| wanted(name) && is_new(id));
    named.filter_map(|(id, _)| only.get(id).copied().flatten()).collect()
}

/// True if a pane can be adopted automatically.
fn is_adoptable(pane: &TmuxPane) -> bool {
    pane.tag.is_none() && !pane.is_over() && !pane.detached && pane.process.is_some()
}
