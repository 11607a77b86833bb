//! The screens of agents: a composer, a dialog, and what a person sees and clears away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{PaneId, Tag};
use tmux::PaneRef;
use tokio::time::Instant;

/// Age from which on whoever types can have seen a dialog or a person's line, including the time between the look at
/// the screen and the keys.
const SEEN: Duration = Duration::from_secs(10);

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
    /// The panes in whose composers a person has begun a line, and since when.
    lines: BTreeMap<PaneId, Instant>,
    /// The incarnations whose panes were closed with such a line.
    lost_lines: BTreeSet<Tag>,
    /// The panes in copy mode.
    modes: BTreeSet<PaneId>,
    /// The time at which a person typed into each pane to which they are attached, in seconds of the wall clock.
    typed_at: BTreeMap<PaneId, u64>,
}

impl Screens {
    /// Notes what the screen of an agent in a pane shows from now on.
    pub(super) fn show(&mut self, pane: PaneId, shows: Shows) {
        self.shown.insert(pane, (shows, Instant::now()));
    }

    /// Returns the screen of a pane into which this was typed.
    pub(super) fn draw(&self, pane: PaneId, typed: Vec<u8>) -> Vec<u8> {
        let Some((shows, _)) = self.shown.get(&pane) else { return typed };
        let typed = String::from_utf8_lossy(self.kept(pane, &typed)).replace("<Escape>", "");
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
        self.lines.remove(&pane);
        self.typed_at.remove(&pane);
        self.modes.remove(&pane);
    }

    /// Notes that a pane was closed.
    pub(super) fn close(&mut self, pane: PaneRef) {
        if self.has_line(pane.pane) {
            self.lost_lines.insert(pane.tag);
        }
    }

    /// True if the pane of an incarnation was closed with the line of a person.
    pub(super) fn lost_line(&self, tag: Tag) -> bool {
        self.lost_lines.contains(&tag)
    }

    /// True if the agent of a pane shows that it waits for a prompt, and what was typed into it is entered.
    pub(super) fn is_empty(&self, pane: PaneId, typed: &[u8]) -> bool {
        let kept = self.kept(pane, typed);
        let rests = self.shown.get(&pane).is_some_and(|(shows, _)| matches!(shows, Shows::Rest));
        rests && kept.last().is_none_or(|byte| *byte == b'\r') && !self.modes.contains(&pane)
    }

    /// Notes whether a pane is in copy mode.
    pub(super) fn set_mode(&mut self, pane: PaneId, in_mode: bool) {
        if in_mode {
            self.modes.insert(pane)
        } else {
            self.modes.remove(&pane)
        };
    }

    /// Notes that a person has begun a line in the composer of a pane. `now` is the time of the wall clock, in seconds,
    /// if the person stays attached.
    pub(super) fn begin_line(&mut self, pane: PaneId, now: Option<u64>) {
        self.lines.insert(pane, Instant::now());
        self.typed_at.extend(now.map(|now| (pane, now)));
    }

    /// Notes that the line in the composer of a pane is entered, or deleted.
    pub(super) fn end_line(&mut self, pane: PaneId) {
        self.lines.remove(&pane);
    }

    /// Notes that the person who typed into a pane has detached: tmux reports the typing of attached clients only.
    pub(super) fn forget_typist(&mut self, pane: PaneId) {
        self.typed_at.remove(&pane);
    }

    /// Returns when a person has typed into a pane, in seconds of the wall clock.
    pub(super) fn typed_at(&self, pane: PaneId) -> Option<u64> {
        self.typed_at.get(&pane).copied()
    }

    /// True if a composer holds a line that a person has begun.
    pub(super) fn is_begun(&self, pane: PaneId) -> bool {
        self.lines.contains_key(&pane)
    }

    /// True if a person's line has been in the composer for so long that whoever types can have seen it.
    pub(super) fn has_line(&self, pane: PaneId) -> bool {
        self.lines.get(&pane).is_some_and(|since| since.elapsed() > SEEN)
    }

    /// Empties the composer of a pane into which `length` bytes were typed so far.
    pub(super) fn empty(&mut self, pane: PaneId, length: usize) {
        self.emptied.insert(pane, length);
        self.lines.remove(&pane);
    }

    /// Returns the length of what was typed into a pane until its composer was emptied.
    pub(super) fn emptied(&self, pane: PaneId) -> usize {
        self.emptied.get(&pane).copied().unwrap_or_default()
    }

    /// Returns the part of what was typed into a pane that nobody has deleted.
    fn kept<'a>(&self, pane: PaneId, typed: &'a [u8]) -> &'a [u8] {
        typed.get(self.emptied(pane)..).unwrap_or_default()
    }

    /// True if a pane has shown a dialog for so long that whoever types can have seen it.
    pub(super) fn has_dialog(&self, pane: PaneId) -> bool {
        let shown = self.shown.get(&pane);
        shown.is_some_and(|(shows, at)| matches!(shows, Shows::Dialog) && at.elapsed() > SEEN)
    }
}
