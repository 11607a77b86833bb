//! Prompts that were typed and not confirmed yet. Their text is never typed again here, but Enter is pressed again
//! while the text is seen in the composer.

use std::time::Duration;

/// Shortest pause before Enter, measured with real agents: without it, programs take Enter for a part of the
/// paste. Longer texts get a longer pause, up to a maximum.
const ENTER_PAUSE: Duration = Duration::from_millis(150);

const ENTER_BYTES_PER_SECOND: u32 = 40_000;

const ENTER_PAUSE_MAX: Duration = Duration::from_millis(750);

/// Time for the agent's hook before Enter is pressed again: ten times what it usually takes.
const CONFIRM_PAUSE: Duration = Duration::from_millis(900);

/// Longest pause between two checks of an unconfirmed prompt.
const CONFIRM_PAUSE_MAX: Duration = Duration::from_secs(8);

/// Number of times that Enter is pressed again.
const ENTERS_MAX: u32 = 5;

/// Number of checks after which an unconfirmed prompt is left to a person.
const CHECKS_MAX: u32 = 7;

/// The pause between a text of this size and Enter.
pub fn enter_delay(bytes: u32) -> Duration {
    ENTER_PAUSE_MAX.min(ENTER_PAUSE + Duration::from_secs(1) * bytes / ENTER_BYTES_PER_SECOND)
}

/// A prompt that was typed and that nothing confirmed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unconfirmed {
    pub checks: u32,
    /// Number of times that Enter was pressed again.
    pub enters: u32,
}

/// The next step for an unconfirmed prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Press Enter again: the text stands in the composer.
    PressEnter,
    /// Wait, and check again.
    Wait,
    /// Leave it to a person, for this reason.
    LeaveToPerson(String),
}

impl Unconfirmed {
    /// Time until the next check.
    pub fn pause(&self) -> Duration {
        CONFIRM_PAUSE.saturating_mul(1 << self.checks.min(4)).min(CONFIRM_PAUSE_MAX)
    }

    /// The next step. `stands`: the text [stands in the composer](super::pane::stands_in_composer). `busy`: a
    /// hook reported since it was typed, so Enter could mean something else by now.
    #[must_use]
    pub fn next(&mut self, stands: bool, busy: bool) -> NextStep {
        self.checks += 1;
        if stands && !busy && self.enters < ENTERS_MAX {
            self.enters += 1;
            return NextStep::PressEnter;
        }
        if self.checks < CHECKS_MAX {
            return NextStep::Wait;
        }
        NextStep::LeaveToPerson(if stands {
            "typed, and it stands in the composer still: press Enter there".to_owned()
        } else {
            "typed, and the agent has not confirmed it".to_owned()
        })
    }
}
