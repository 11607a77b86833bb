//! The panes of the tmux server: those of sessions that run are there under the names of these, and no others.

use std::collections::BTreeSet;

use protocol::{Lifecycle, Session, SessionView, Tag};

use super::starts::is_restarting;
use crate::land::Land;

/// The note of a session that has another name in tmux.
const NAMED_ELSE: &str = "tmux has it as";

/// Returns which pane is left of an incarnation that is over, or has another name than its session without a note.
pub(super) async fn differs(land: &Land, sessions: &[SessionView], hosts: &[SessionView]) -> Option<String> {
    let panes = land.tmux.panes().await;
    let may_have_one = |session: &Session| session.lifecycle.holds_slot() || is_restarting(session);
    let records = || sessions.iter().chain(hosts).map(|found| &found.session);
    let running: BTreeSet<Tag> =
        records().filter(|it| may_have_one(it)).filter_map(|it| Some(it.incarnation.as_ref()?.tag)).collect();
    // The pool leaves alone the panes of before the database was put back.
    let is_own = |tag: &Tag| land.judge.has_server(*tag) && !land.judge.is_forgotten(*tag);
    if let Some(tag) = panes.keys().find(|tag| is_own(tag) && !running.contains(*tag)) {
        return Some(format!("the pane of {tag} is left, and its incarnation is over"));
    }
    let is_misnamed = |session: &&Session| {
        let name = session.incarnation.as_ref().and_then(|run| panes.get(&run.tag));
        let is_told = session.detail.as_ref().is_some_and(|detail| detail.contains(NAMED_ELSE));
        session.lifecycle == Lifecycle::Live
            && name.is_some_and(|name| name != session.name.as_str())
            && !is_told
    };
    let misnamed = records().find(is_misnamed)?;
    Some(format!("{} has another name in tmux, which is not told: {panes:?}", misnamed.name))
}

/// Returns the name that two sessions have.
pub(super) fn shared_name(sessions: &[SessionView]) -> Option<String> {
    let mut names = BTreeSet::new();
    let mut all = sessions.iter().map(|found| found.session.name.as_str());
    all.find(|name| !names.insert(*name)).map(str::to_owned)
}
