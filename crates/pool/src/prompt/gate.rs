//! The two gates that a prompt passes before it is typed: by the record, and by a snapshot of the pane.

use std::time::Duration;

use agents::Confirm;
use agents::screen::{Composer, Dialog, ScreenReading, USAGE_LIMIT};
use protocol::{Activity, ActivityState, MessageId, Session, Source, Timestamp};

use crate::agent::activity::{LONG_SILENCE, current_activity, waits_for_person};
use crate::pool::Pool;
use crate::prompt::blocked::Blocked;
use crate::prompt::pane::PaneSnapshot;
use crate::settings::{Agent, Settings};

/// Time for which an agent may still draw its composer after its hook reported that it waits, and that it works after a
/// prompt was typed: ten times what it usually takes (Gemini CLI 0.61.0: up to 2 s).
const DRAW_LIMIT: Duration = Duration::from_secs(3);

/// Checks by the record that a prompt may be typed into a session now.
///
/// # Errors
/// The reason against it.
pub fn record_gate(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    now: Timestamp,
) -> Result<(), Blocked> {
    let agent = settings.agent_of(session);
    let activity = current_activity(pool, session);
    if let Some(why) = limit_reason(&activity, now) {
        return Err(Blocked::for_now(why));
    }
    match activity.state {
        ActivityState::Attention if waits_for_person(&activity) => {
            let ask = activity.ask.as_ref().map_or("", |ask| ask.kind.as_str());
            Err(Blocked::for_now(format!("it waits for a person: {ask}")))
        }
        ActivityState::Busy if is_blocking(agent, &activity) => {
            Err(Blocked::for_now(match activity.source {
                Source::Process => RUNS_COMMAND.to_owned(),
                source => format!("its agent is busy ({})", source.as_str()),
            }))
        }
        _ if activity.source == Source::Screen
            && awaits_first_hook(pool, agent, session)
            && !is_ready_overdue(pool, settings, session, now) =>
        {
            Err(Blocked::for_now("its agent is not ready yet"))
        }
        ActivityState::Unknown if agent.confirm == Confirm::Hook && activity.source == Source::Hook => {
            let why = "its agent ended its conversation";
            // The agent's own command for a fresh context begins the next one at once.
            let stays = pool.age(now, activity.since) >= LONG_SILENCE;
            Err(if stays { Blocked::by_terminal(why) } else { Blocked::for_now(why) })
        }
        ActivityState::Unknown
            if agent.confirm == Confirm::Hook && !is_ready_overdue(pool, settings, session, now) =>
        {
            Err(Blocked::for_now("its agent is not ready yet"))
        }
        _ => Ok(()),
    }
}

const RUNS_COMMAND: &str = "its shell runs a command";

/// The reason against prompting an agent whose usage limit is reached.
pub fn limit_reason(activity: &Activity, now: Timestamp) -> Option<String> {
    let until = activity.limited_until.filter(|until| *until > now)?;
    Some(format!("its agent has reached its usage limit, for {} s more", until.since(now).as_secs()))
}

/// True if prompts wait for the end of this activity.
fn is_blocking(agent: &Agent, activity: &Activity) -> bool {
    match activity.source {
        Source::Hook | Source::Transcript => true,
        Source::Screen => agent.confirm == Confirm::Hook,
        Source::Terminal | Source::Process => agent.confirm == Confirm::Prompt,
        // A program that only writes may read at the same time, so its output blocks nothing.
        Source::Output | Source::Queue | Source::Nothing => false,
    }
}

/// True if the agent's first hook report is still to come, although its screen may already look ready. An agent that
/// chooses its conversation itself reports nothing before its first prompt.
fn awaits_first_hook(pool: &Pool, agent: &Agent, session: &Session) -> bool {
    let tag = session.tag();
    let has_reported = pool.notes(session.id).is_some_and(|notes| notes.hooked == tag);
    agent.confirm == Confirm::Hook && agent.is_told_its_conversation() && !has_reported
}

/// True if a session has run for `ready_limit`: its agent is ready, or never reports it.
pub fn is_ready_overdue(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> bool {
    let started = session.incarnation.as_ref().map(|run| run.started_at);
    started.is_none_or(|at| pool.age(now, at) >= settings.ready_limit)
}

/// Checks by a snapshot of the pane that a prompt may be typed now.
///
/// # Errors
/// The reason against it.
pub fn pane_gate(settings: &Settings, agent: &Agent, pane: &PaneSnapshot) -> Result<(), Blocked> {
    if pane.in_mode {
        return Err(Blocked::by_terminal("it is in copy mode"));
    }
    if let Some(ago) = pane.typed_ago.filter(|ago| *ago < settings.typing_pause) {
        return Err(Blocked::for_time("somebody is typing in it", settings.typing_pause - ago));
    }
    if let Some(bytes) = pane.unread.filter(|bytes| *bytes > 0) {
        let why = format!("its program has not read what was typed before ({bytes} bytes)");
        return Err(Blocked::by_terminal(why));
    }
    if agent.confirm == Confirm::Prompt && pane.is_at_prompt == Some(false) {
        return Err(Blocked::for_now(RUNS_COMMAND));
    }
    if pane.holds_unfinished_line {
        return Err(Blocked::by_terminal("somebody left an unfinished line in it: press Enter or C-c there"));
    }
    if pane.alternate && agent.waits_for_screen {
        let is_left = agent.confirm == Confirm::Prompt && pane.is_at_prompt == Some(true);
        let left = "it shows the screen of a program that has ended: run `reset` there";
        return Err(Blocked::by_terminal(if is_left { left } else { "it shows a full-screen program" }));
    }
    if pane.takes_pastes == Some(false) && agent.asks_for_pastes() {
        return Err(Blocked::for_now("its agent does not take pastes yet"));
    }
    let Some(seen) = pane.screen.as_ref().filter(|_| agent.shows_composer()) else { return Ok(()) };
    match (&seen.dialog, &seen.composer) {
        (Some(dialog), _) => Err(Blocked::by_terminal(format!("it shows a dialog: {}", dialog.name))),
        (None, Composer::Holds(text)) => Err(Blocked::by_terminal(holds_text(text))),
        (None, Composer::Hidden) => Err(Blocked::by_terminal("its composer is not visible")),
        // A new version of a known agent may look different: then its hook tells that it waits. A full screen is the
        // agent's editor and not the agent. The description of an agent covers every screen in which it takes prompts.
        (None, Composer::Unknown)
            if pane.alternate
                || !agent.adapter.knows_screen()
                || pane.said_idle_ago.is_none_or(|ago| ago < DRAW_LIMIT) =>
        {
            Err(Blocked::by_terminal("its screen does not show where it takes prompts"))
        }
        // A `Stop` hook of the user may have made the agent continue after its hook reported the end of the turn.
        (None, Composer::Empty | Composer::Unknown) if seen.works == Some(true) => {
            Err(Blocked::for_now("its screen shows that it works"))
        }
        (None, Composer::Empty | Composer::Unknown) => {
            match pane.unheard_ago.filter(|_| agent.shows_work()) {
                // The empty composer may be the one from before the prompt that was typed last.
                Some(ago) if ago < DRAW_LIMIT => {
                    let why = "its agent may not have drawn yet that it works on what was typed before";
                    Err(Blocked::for_time(why, DRAW_LIMIT - ago))
                }
                _ => Ok(()),
            }
        }
    }
}

/// Returns a dialog about the usage limit with the screen that shows it, if nothing else blocks a prompt: any other
/// obstacle, above all a person at the terminal, also forbids pressing keys.
pub fn usage_limit_dialog<'a>(
    settings: &Settings,
    agent: &Agent,
    pane: &'a PaneSnapshot,
) -> Option<(&'a ScreenReading, &'a Dialog)> {
    let seen = pane.screen.as_ref()?;
    let dialog = seen.dialog.as_ref().filter(|dialog| dialog.name == USAGE_LIMIT)?;
    let without = PaneSnapshot { screen: None, ..pane.clone() };
    pane_gate(settings, agent, &without).is_ok().then_some((seen, dialog))
}

/// Maximum length of a line, in bytes, in a terminal that collects lines for its program. The kernel drops the rest,
/// and the program takes the cut line for a whole one.
pub const LINE_MAX: usize = 4095;

/// Checks that the text of a prompt fits the terminal, which cuts long lines if its program reads line by line.
/// `cuts_lines` is `None` if nobody looked, as the text is short.
///
/// # Errors
/// The reason against it.
pub fn line_gate((id, text): (MessageId, &[u8]), cuts_lines: Option<bool>) -> Result<(), Blocked> {
    let longest = text.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::len).max().unwrap_or(0);
    if cuts_lines != Some(true) || longest <= LINE_MAX {
        return Ok(());
    }
    let reason = format!(
        "it has a line of {longest} bytes, and its program reads line by line, of which its terminal takes {LINE_MAX} \
         bytes: cancel it, and send shorter lines"
    );
    Err(Blocked::by_text(id, reason))
}

/// The reason for a text in the composer; a beginning of it is shown.
pub(crate) fn holds_text(text: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    format!("its composer holds text: {shown:?}")
}
