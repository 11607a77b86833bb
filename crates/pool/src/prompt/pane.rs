//! The state of a session's pane, as it is read before something is typed and while nothing confirms it.

use std::time::Duration;

use agents::screen::Composer;

use crate::agent::screen::ScreenReading;
use crate::settings::Settings;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PaneSnapshot {
    /// True if it is in copy mode.
    pub in_mode: bool,
    /// True if it shows a full-screen program.
    pub alternate: bool,
    /// Time since an attached client last typed.
    pub typed_ago: Option<Duration>,
    /// Time since the last activity in its tmux session, if known: creation, attaching, typing.
    pub active_ago: Option<Duration>,
    /// True if no client was ever attached to its tmux session.
    pub never_attached: bool,
    /// Bytes that its program has not read, if known.
    pub unread: Option<u32>,
    /// For shells: true if the shell itself is in the foreground, and runs nothing in itself (`read`, a function, a
    /// loop), if known.
    pub is_at_prompt: Option<bool>,
    /// The rows of its screen down to the cursor's.
    pub rows: Vec<String>,
    /// True if somebody left text behind the shell's prompt, or `poolctl keys` left text in another program.
    pub holds_unfinished_line: bool,
    /// The reading of its screen, if the agent's screen is known.
    pub screen: Option<ScreenReading>,
    /// Time since the agent's hook reported that it waits for a prompt, if that was its last report.
    pub said_idle_ago: Option<Duration>,
    /// Time since something was last typed into it through the pool, if its agent has reported nothing since.
    pub unheard_ago: Option<Duration>,
    /// True if its program asked for bracketed pastes, if known.
    pub takes_pastes: Option<bool>,
}

/// True if a text that was typed `age` ago is in the agent's composer and nobody has typed since: then Enter can only
/// send that text.
pub fn stands_in_composer(settings: &Settings, (text, age): (&str, Duration), pane: &PaneSnapshot) -> bool {
    // tmux knows the typing of attached clients to the second only.
    let since = settings.typing_pause.max(age + Duration::from_secs(1));
    // Unread bytes may be an Enter that the program has yet to read.
    let read = pane.unread.is_none_or(|bytes| bytes == 0);
    let alone = read && !pane.in_mode && pane.typed_ago.is_none_or(|ago| ago >= since);
    let Some(screen) = pane.screen.as_ref().filter(|_| alone) else { return false };
    let rests = screen.dialog.is_none() && screen.works != Some(true);
    let Composer::Holds(line) = &screen.composer else { return false };
    rests && agents::prompt::ends_with_line(text, line)
}

/// True if nobody was at the terminal since something was typed into it `age` ago, whoever is attached now.
pub fn is_untouched(age: Duration, pane: &PaneSnapshot) -> bool {
    // tmux knows the activity to the second only. A text that was typed within a second of the session's creation
    // counts as typed at the creation.
    let since = age + Duration::from_secs(1);
    // A client may also show the terminal through another session of its group.
    let alone = !pane.in_mode && pane.typed_ago.is_none_or(|ago| ago >= since);
    alone && pane.active_ago.is_some_and(|ago| pane.never_attached || ago >= since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_untouched_if_nobody_was_there_since_or_ever() {
        let untouched = |active_ago: Option<u64>, never_attached, in_mode| {
            let active_ago = active_ago.map(Duration::from_secs);
            let pane = PaneSnapshot { in_mode, active_ago, never_attached, ..PaneSnapshot::default() };
            is_untouched(Duration::from_secs(5), &pane)
        };
        assert!(untouched(Some(6), false, false) && !untouched(Some(5), false, false));
        assert!(untouched(Some(5), true, false), "it was typed as soon as its session was created");
        assert!(!untouched(Some(60), true, true), "it is in copy mode");
        assert!(!untouched(None, true, false), "nothing is known");
        let (typed_ago, active_ago) = (Some(Duration::from_secs(1)), Some(Duration::from_secs(5)));
        let view = PaneSnapshot { typed_ago, active_ago, never_attached: true, ..PaneSnapshot::default() };
        assert!(!is_untouched(Duration::from_secs(5), &view), "typed in another session of its group");
    }
}
