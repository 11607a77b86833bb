//! The names of sessions in tmux, if a person gave them names that the pool cannot take over.

use protocol::tmux::{TmuxPane, TmuxSession};
use protocol::{Lifecycle, Session};

use crate::observe::state::Observed;
use crate::pool::Pool;

/// Returns the name that a session has in tmux, if it differs from its own: because it is not valid, or is another
/// session's.
pub fn tmux_name<'a>(pool: &Pool, observed: &'a Observed, session: &Session) -> Option<&'a str> {
    // An observation from before the pool's own renaming shows the old name.
    let renamed = observed.renamed_at(session.id);
    if renamed.is_some_and(|at| observed.listed_from().is_none_or(|listed| listed <= at)) {
        return None;
    }
    let shown = shown_in(observed, session).filter(|_| session.lifecycle != Lifecycle::Starting)?;
    let name = observed.state().sessions.get(&shown)?.name.as_str();
    // A tmux session that shows several of the pool's sessions has the name of one of them.
    let is_of_another =
        |other: &Session| other.name.as_str() == name && shown_in(observed, other) == Some(shown);
    (name != session.name.as_str() && !pool.sessions().any(is_of_another)).then_some(name)
}

/// True if the next start of a session would fail because of its name: tmux has it under another name, and its own
/// name is that of another session of the pool, or of a tmux session of the user's. A tmux session that an ended
/// incarnation left does not count, as it gives up the name.
pub fn is_name_taken(pool: &Pool, observed: &Observed, session: &Session) -> bool {
    let name = session.name.as_str();
    let is_its_users = |shown: &TmuxSession| shown.name == name && !shown.pooled;
    tmux_name(pool, observed, session).is_some()
        && (named_in_tmux(pool, observed, name).is_some()
            || observed.state().sessions.values().any(is_its_users))
}

/// Returns the session that has this name in tmux, but not in the pool.
pub fn named_in_tmux<'a>(pool: &'a Pool, observed: &Observed, name: &str) -> Option<&'a Session> {
    pool.sessions().find(|session| tmux_name(pool, observed, session) == Some(name))
}

/// True if the tmux session of this name shows an incarnation that is not on record: of another pool, or from before
/// the database was replaced.
pub fn is_of_unknown_incarnation(pool: &Pool, observed: &Observed, name: &str) -> bool {
    let state = observed.state();
    let of_name = |id| state.sessions.get(id).is_some_and(|session| session.name == name);
    let is_unknown = |pane: &TmuxPane| pane.tag.is_some_and(|tag| !pool.has_tag(tag));
    state.panes.values().any(|pane| of_name(&pane.session) && is_unknown(pane))
}

/// Returns the tmux session that shows the pane of a session.
fn shown_in(observed: &Observed, session: &Session) -> Option<protocol::TmuxSessionId> {
    session.running().and_then(|run| observed.pane_of(run)).map(|pane| pane.session)
}
