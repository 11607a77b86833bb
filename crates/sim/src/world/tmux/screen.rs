//! The screens of agents: a composer, a dialog, and what a person sees and clears away.

use std::time::Duration;

use protocol::Tag;
use protocol::ids::PaneId;
use tokio::time::Instant;

use super::SimTmux;
use crate::climate::Climate;

/// Time after which whoever types has seen a dialog, with all that comes between the look and the keys.
const DIALOG_SEEN: Duration = Duration::from_secs(10);

/// The content of an agent's screen.
#[derive(Clone, Copy)]
pub(crate) enum Shows {
    /// Its composer, while it waits for a prompt.
    Rest,
    /// Its composer, and that it works.
    Work,
    /// A dialog in place of its composer.
    Dialog,
}

impl SimTmux {
    /// Notes what the screen of an agent in a pane shows from now on.
    pub(crate) fn show(&self, pane: PaneId, shows: Shows) {
        self.state().shows.insert(pane, (shows, Instant::now()));
    }

    /// Returns the screen of a pane into which this was typed: that of an agent that the pool knows, or just the text.
    pub(super) fn screen(&self, pane: PaneId, typed: Vec<u8>) -> Vec<u8> {
        let state = self.state();
        let Some((shows, _)) = state.shows.get(&pane).copied().filter(|_| state.climate.has_adapter) else {
            return typed;
        };
        let kept = typed.get(state.emptied.get(&pane).copied().unwrap_or_default()..).unwrap_or_default();
        let typed = String::from_utf8_lossy(kept).replace("<Escape>", "");
        let (rule, held) = ("─".repeat(40), typed.rsplit('\r').next().unwrap_or_default());
        let screen = match shows {
            Shows::Rest => format!("{rule}\n❯ {held}\n{rule}\n  ? for shortcuts\n"),
            Shows::Work => format!("✽ Working…\n\n{rule}\n❯ {held}\n{rule}\n  esc to interrupt\n"),
            Shows::Dialog => format!("{rule}\n Which one?\n❯ 1. This\n  2. That\n\n Esc to cancel\n"),
        };
        screen.into_bytes()
    }

    /// Empties the composer of an incarnation, as a person does who finds text of somebody else in it.
    pub(crate) fn empty_composer(&self, tag: Tag) {
        let mut state = self.state();
        let Some(pane) = state.inits.iter().find(|(_, (found, _))| *found == tag).map(|(pane, _)| *pane)
        else {
            return;
        };
        let length = self.0.fake.typed(pane).len();
        state.emptied.insert(pane, length);
    }

    /// Returns the length of what was typed into a pane until its composer was emptied.
    pub(crate) fn emptied(&self, pane: PaneId) -> usize {
        self.state().emptied.get(&pane).copied().unwrap_or_default()
    }

    /// True if an agent that the pool knows has shown a dialog for so long that whoever types can have seen it. A call
    /// that comes late proves nothing.
    pub(super) fn has_dialog(&self, pane: PaneId) -> bool {
        let state = self.state();
        let Climate { has_adapter, tmux_faults, server_stops, .. } = state.climate;
        let shown = state.shows.get(&pane);
        let is_seen =
            shown.is_some_and(|(shows, at)| matches!(shows, Shows::Dialog) && at.elapsed() > DIALOG_SEEN);
        is_seen && has_adapter && tmux_faults + server_stops == 0
    }
}
