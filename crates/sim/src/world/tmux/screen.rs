//! The screens of agents: a composer, a dialog, and what a person sees and clears away.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::ids::PaneId;
use tokio::time::Instant;

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

/// The screens of the agents that have drawn one.
#[derive(Default)]
pub(super) struct Screens {
    /// The content of each screen, and the time at which it was drawn.
    shown: BTreeMap<PaneId, (Shows, Instant)>,
    /// Length of what was typed into each pane until a person emptied its composer.
    emptied: BTreeMap<PaneId, usize>,
}

impl Screens {
    /// Notes what the screen of an agent in a pane shows from now on.
    pub(super) fn show(&mut self, pane: PaneId, shows: Shows) {
        self.shown.insert(pane, (shows, Instant::now()));
    }

    /// Returns the screen of a pane into which this was typed.
    pub(super) fn draw(&self, pane: PaneId, typed: Vec<u8>) -> Vec<u8> {
        let Some((shows, _)) = self.shown.get(&pane) else { return typed };
        let kept = typed.get(self.emptied(pane)..).unwrap_or_default();
        let typed = String::from_utf8_lossy(kept).replace("<Escape>", "");
        let (rule, held) = ("─".repeat(40), typed.rsplit('\r').next().unwrap_or_default());
        let screen = match shows {
            Shows::Rest => format!("{rule}\n❯ {held}\n{rule}\n  ? for shortcuts\n"),
            Shows::Work => format!("✽ Working…\n\n{rule}\n❯ {held}\n{rule}\n  esc to interrupt\n"),
            Shows::Dialog => format!("{rule}\n Which one?\n❯ 1. This\n  2. That\n\n Esc to cancel\n"),
        };
        screen.into_bytes()
    }

    /// Begins the screen of a new pane: one of an earlier server may have had its id.
    pub(super) fn clear(&mut self, pane: PaneId) {
        self.shown.remove(&pane);
        self.emptied.remove(&pane);
    }

    /// Empties the composer of a pane into which so much was typed.
    pub(super) fn empty(&mut self, pane: PaneId, length: usize) {
        self.emptied.insert(pane, length);
    }

    /// Returns the length of what was typed into a pane until its composer was emptied.
    pub(super) fn emptied(&self, pane: PaneId) -> usize {
        self.emptied.get(&pane).copied().unwrap_or_default()
    }

    /// True if a pane has shown a dialog for so long that whoever types can have seen it.
    pub(super) fn has_dialog(&self, pane: PaneId) -> bool {
        let shown = self.shown.get(&pane);
        shown.is_some_and(|(shows, at)| matches!(shows, Shows::Dialog) && at.elapsed() > DIALOG_SEEN)
    }
}
