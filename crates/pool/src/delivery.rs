//! When a prompt may be typed, and what is done until it is known that it arrived. It is typed once: while nothing
//! confirms it, Enter may be pressed again, and only where what was typed is seen to stand in the agent's composer.

use std::time::Duration;

use agents::Confirm;
use agents::screen::Composer;
use protocol::activity::Source;
use protocol::{Activity, ActivityState, Session, Timestamp};

use crate::activity::{self, Look};
use crate::pool::Pool;
use crate::settings::{Agent, Settings};

/// Pause before Enter, without which programs take it for a part of the paste; and a little more for each byte, up
/// to the longest. Measured with real agents.
const ENTER_PAUSE: Duration = Duration::from_millis(150);
const ENTER_BYTES_PER_SECOND: u32 = 40_000;
const ENTER_PAUSE_MAX: Duration = Duration::from_millis(750);
/// Time for the agent's hook before Enter is pressed again: ten times what it takes as a rule.
const CONFIRM_PAUSE: Duration = Duration::from_millis(900);
/// The longest pause between two looks at a prompt that nothing confirms.
const CONFIRM_PAUSE_MAX: Duration = Duration::from_secs(8);
/// How long an agent may take to draw its composer once its hook said that it waits: ten times what it takes as a rule.
const DRAW_LIMIT: Duration = Duration::from_secs(3);
/// How often Enter is pressed again.
const ENTERS_MAX: u32 = 5;
/// Looks after which a prompt that nothing confirms is left to a person.
const LOOKS_MAX: u32 = 7;

/// The pause between a text of so many bytes and Enter.
#[must_use]
pub fn settle(bytes: u32) -> Duration {
    ENTER_PAUSE_MAX.min(ENTER_PAUSE + Duration::from_secs(1) * bytes / ENTER_BYTES_PER_SECOND)
}

/// Why nothing is typed into a session now, as far as the record tells.
///
/// # Errors
/// The reason, for people.
pub fn gate(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> Result<(), String> {
    let agent = settings.agent_of(session);
    let activity = activity::shown(pool, session);
    if let Some(why) = limited(&activity, now) {
        return Err(why);
    }
    match activity.state {
        ActivityState::Attention if activity::asks(&activity) => {
            let ask = activity.ask.as_ref().map_or("", |ask| ask.kind.as_str());
            Err(format!("it waits for a person: {ask}"))
        }
        ActivityState::Busy if holds_back(agent, &activity) => Err(match activity.source {
            Source::Process => NOT_IN_FRONT.to_owned(),
            source => format!("its agent is busy ({})", source.as_str()),
        }),
        _ if activity.source == Source::Screen
            && awaits_word(pool, agent, session)
            && !is_late(pool, settings, session, now) =>
        {
            Err("its agent is not ready yet".to_owned())
        }
        ActivityState::Unknown if agent.confirm == Confirm::Hook && activity.source == Source::Hook => {
            Err("its agent ended its conversation".to_owned())
        }
        ActivityState::Unknown
            if agent.confirm == Confirm::Hook && !is_late(pool, settings, session, now) =>
        {
            Err("its agent is not ready yet".to_owned())
        }
        _ => Ok(()),
    }
}

const NOT_IN_FRONT: &str = "another program is in front of its shell";

/// Why nothing is said to an agent that has used up what it may.
#[must_use]
pub fn limited(activity: &Activity, now: Timestamp) -> Option<String> {
    let until = activity.limited_until.filter(|until| *until > now)?;
    Some(format!("its agent has used up what it may, for {} s more", until.since(now).as_secs()))
}

/// Whether a prompt waits for what is busy so.
fn holds_back(agent: &Agent, activity: &Activity) -> bool {
    match activity.source {
        Source::Hook | Source::Transcript => true,
        Source::Screen => agent.confirm == Confirm::Hook,
        Source::Terminal | Source::Process => agent.confirm == Confirm::Prompt,
        // A program that writes may well read at the same time.
        Source::Output | Source::Queue | Source::Nothing => false,
    }
}

/// Its agent's hook says when it is ready, before that its screen may look so; one that chooses its conversation itself
/// says nothing before its first prompt.
fn awaits_word(pool: &Pool, agent: &Agent, session: &Session) -> bool {
    let tag = session.incarnation.as_ref().map(|run| run.tag);
    let heard = pool.notes(session.id).is_some_and(|notes| notes.hooked == tag);
    agent.confirm == Confirm::Hook && agent.is_told_its_conversation() && !heard
}

/// Whether a session has been up for so long that its agent is either ready or never says so.
#[must_use]
pub fn is_late(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> bool {
    let started = session.incarnation.as_ref().map(|run| run.started_at);
    started.is_none_or(|at| pool.age(now, at) >= settings.ready_limit)
}

/// What is seen of a terminal just before something is typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Glance {
    /// It is in copy mode.
    pub in_mode: bool,
    /// It shows a full-screen program.
    pub alternate: bool,
    /// How long ago somebody typed, where somebody is attached.
    pub typed_ago: Option<Duration>,
    /// How long ago its session was last active, where that is known: it began, somebody attached, or typed.
    pub active_ago: Option<Duration>,
    /// Bytes that its program has not read, where that is known.
    pub unread: Option<u32>,
    /// Whether a shell is itself in the foreground of its terminal, where that is known.
    pub in_front: Option<bool>,
    /// How it looks, where the agent's look is known.
    pub look: Option<Look>,
    /// How long ago its agent's own hook said that it waits for a prompt, where that was its last word.
    pub said_idle_ago: Option<Duration>,
    /// Whether its program asked for bracketed pastes, where that is known.
    pub takes_pastes: Option<bool>,
}

/// Why nothing is typed into a terminal now, by how it looks.
///
/// # Errors
/// The reason, for people.
pub fn look(settings: &Settings, agent: &Agent, glance: &Glance) -> Result<(), String> {
    if glance.in_mode {
        return Err("it is in copy mode".to_owned());
    }
    if glance.typed_ago.is_some_and(|ago| ago < settings.typing_pause) {
        return Err("somebody is typing in it".to_owned());
    }
    if let Some(bytes) = glance.unread.filter(|bytes| *bytes > 0) {
        return Err(format!("its program has not read what was typed before ({bytes} bytes)"));
    }
    if agent.confirm == Confirm::Prompt && glance.in_front == Some(false) {
        return Err(NOT_IN_FRONT.to_owned());
    }
    if glance.alternate && agent.waits_for_screen {
        return Err("it shows a full-screen program".to_owned());
    }
    if glance.takes_pastes == Some(false) && agent.asks_for_pastes() {
        return Err("its agent does not take pastes yet".to_owned());
    }
    let Some(seen) = glance.look.as_ref().filter(|_| agent.shows_composer()) else { return Ok(()) };
    match (&seen.dialog, &seen.composer) {
        (Some(dialog), _) => Err(format!("it shows a dialog: {}", dialog.name)),
        (None, Composer::Holds(text)) => Err(holds_text(text)),
        (None, Composer::Hidden) => Err("its composer is not to be seen".to_owned()),
        // A new version of a known agent may look otherwise, and says itself that it waits; what fills the screen is no agent
        // but its editor. Of a described one all is described that takes prompts.
        (None, Composer::Unknown)
            if glance.alternate
                || !agent.adapter.knows_screen()
                || glance.said_idle_ago.is_none_or(|ago| ago < DRAW_LIMIT) =>
        {
            Err("its screen does not show where it takes prompts".to_owned())
        }
        (None, Composer::Empty | Composer::Unknown) => Ok(()),
    }
}

/// Whether what keeps a prompt from being typed, as [`look`] and the shell say it, is ended by somebody at the terminal alone.
#[must_use]
pub fn needs_somebody(why: &str) -> bool {
    let ends = [
        "it is in copy mode",
        "it shows a ",
        "its composer ",
        "its terminal knows prompts",
        "its screen does not show",
        "its program has not read",
    ];
    ends.iter().any(|begin| why.starts_with(begin))
}

/// The sentence for a text in a composer, of which so much is shown.
pub(crate) fn holds_text(text: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    format!("its composer holds text: {shown:?}")
}

/// Whether a text that was typed so long ago is seen to stand in its agent's composer, with nobody else at it since: then
/// Enter can only mean that.
#[must_use]
pub fn stands(settings: &Settings, (text, age): (&str, Duration), glance: &Glance) -> bool {
    // Who is attached is seen to have typed by whole seconds.
    let since = settings.typing_pause.max(age + Duration::from_secs(1));
    // What it has not read yet may be the Enter of before.
    let read = glance.unread.is_none_or(|bytes| bytes == 0);
    let alone = read && !glance.in_mode && glance.typed_ago.is_none_or(|ago| ago >= since);
    let Some(look) = glance.look.as_ref().filter(|_| alone) else { return false };
    let rests = look.dialog.is_none() && look.works != Some(true);
    let Composer::Holds(line) = &look.composer else { return false };
    rests && agents::prompt::ends_with_line(text, line)
}

/// Whether nobody was at a terminal since something was typed into it so long ago, whoever is attached now.
#[must_use]
pub fn is_untouched(age: Duration, glance: &Glance) -> bool {
    // It is known by whole seconds.
    !glance.in_mode && glance.active_ago.is_some_and(|ago| ago >= age + Duration::from_secs(1))
}

/// A prompt that was typed and that nothing has confirmed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unconfirmed {
    /// How often somebody looked.
    pub looks: u32,
    /// How often Enter was pressed again.
    pub enters: u32,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// Press Enter again: what was typed stands in the composer.
    Enter,
    /// Wait, and look again.
    Wait,
    /// Leave it to a person.
    Leave(String),
}

impl Unconfirmed {
    /// How long to wait before the next look.
    #[must_use]
    pub fn pause(&self) -> Duration {
        CONFIRM_PAUSE.saturating_mul(1 << self.looks.min(4)).min(CONFIRM_PAUSE_MAX)
    }

    /// What to do about it. `stands`: it is [seen](stands) to wait for Enter. `busy`: a hook was heard since it was typed,
    /// so the agent is at something, and Enter could mean another thing by now.
    #[must_use]
    pub fn next(&mut self, stands: bool, busy: bool) -> Then {
        self.looks += 1;
        if stands && !busy && self.enters < ENTERS_MAX {
            self.enters += 1;
            return Then::Enter;
        }
        if self.looks < LOOKS_MAX {
            return Then::Wait;
        }
        Then::Leave(if stands {
            "typed, and it stands in the composer still: press Enter there".to_owned()
        } else {
            "typed, and the agent has not confirmed it".to_owned()
        })
    }
}
