//! What an agent does, from all there is to see, the best evidence first: its own hook; its record of the conversation;
//! what its program tells the terminal; what runs in the foreground; whether it writes; how the screen looks.

use std::time::Duration;

use agents::screen::{self, Composer, Dialog};
use protocol::activity::{Ask, AskKind, Source};
use protocol::{Activity, ActivityState, Event, Lifecycle, MessageState, Notes, Reason, Session, Timestamp};

use crate::heard;
use crate::pool::Pool;
use crate::queue;

/// How long the hooks and the output of an agent that works must be silent before its screen is believed instead.
pub const SILENCE: Duration = Duration::from_secs(5);

/// What is seen of a session from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Since when its program has written nothing, where that is known.
    pub quiet_since: Option<Timestamp>,
    /// How long it must be silent to be idle.
    pub idle_quiet: Duration,
    /// What the program told the terminal in this incarnation.
    pub marks: Marks,
    /// When something was last typed into it by way of the pool.
    pub worked_at: Option<Timestamp>,
    /// Whether its own program is in the foreground of its terminal, and not another that it started. For shells.
    pub own_foreground: Option<bool>,
    /// When its user interrupted it last, as its own record tells.
    pub interrupted_at: Option<Timestamp>,
    /// How its screen looks, where somebody looked.
    pub screen: Option<Look>,
    /// What its window's title says.
    pub title: Title,
    /// Whether an agent whose look the pool knows runs in it.
    pub is_known: bool,
    /// True where a free composer does not prove that it is idle: its description does not say how it looks at work.
    pub keeps_composer: bool,
}

impl Seen {
    /// Whether nothing was seen that tells anything.
    fn is_nothing(&self) -> bool {
        let outside = self.quiet_since.is_none() && self.own_foreground.is_none();
        if self.is_known { self.screen.is_none() } else { outside && self.marks == Marks::default() }
    }
}

/// What a window's title says of its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Title {
    /// Nobody read it, or no title was seen.
    #[default]
    Unread,
    /// That a person is waited for, since this was seen first.
    Asks(Timestamp),
    /// Another thing, when it was read last.
    Other(Timestamp),
}

/// What a program told its terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// When it last showed its prompt (OSC 133 A, B, D).
    pub prompt_at: Option<Timestamp>,
    /// When it last began a command (OSC 133 C).
    pub command_at: Option<Timestamp>,
    /// How the last command ended, where it said so.
    pub code: Option<i32>,
    /// When it last rang the bell while nobody was attached.
    pub bell_at: Option<Timestamp>,
}

/// How a screen looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// When.
    pub at: Timestamp,
    /// Where the agent takes its prompts.
    pub composer: Composer,
    /// A dialog that is open.
    pub dialog: Option<Dialog>,
    /// Whether it says that it works.
    pub works: Option<bool>,
    /// What it says that it has running in the background.
    pub background: Option<String>,
}

/// The event of what a session's agent does now, where that is news.
#[must_use]
pub fn judged(pool: &Pool, session: &Session, seen: &Seen, now: Timestamp) -> Option<Event> {
    let tag = session.incarnation.as_ref().filter(|_| session.takes_prompts())?.tag;
    let before = pool.activity_in(session.id, tag).cloned().unwrap_or_default();
    let hooked = pool.notes(session.id).filter(|notes| notes.hooked == Some(tag));
    let after = match hooked {
        Some(notes) => corrected(pool, &before, notes, seen, now)?,
        // Who has not looked yet knows nothing better than what was known before.
        None if seen.is_nothing() => return None,
        None => guessed(pool, seen, now),
    };
    // That nothing is known of it is no news.
    let unknown = |activity: &Activity| activity.state == ActivityState::Unknown && activity.ask.is_none();
    if unknown(&before) && unknown(&after) {
        return None;
    }
    heard::turned(session, &before, Activity { tag: Some(tag), ..after })
}

/// Hooks tell: what contradicts them is only what they cannot tell, an interruption by the user, and questions that Codex
/// (0.169.0) asks in its plan mode.
fn corrected(pool: &Pool, before: &Activity, notes: &Notes, seen: &Seen, now: Timestamp) -> Option<Activity> {
    let idle = |source, since| Activity { state: ActivityState::Idle, source, since, ..Activity::default() };
    let busy = before.state == ActivityState::Busy;
    let asked = before.state == ActivityState::Attention;
    let by_screen = asked && before.source == Source::Screen;
    if let Some(at) = seen.interrupted_at.filter(|at| (busy || by_screen) && *at > before.since) {
        return Some(idle(Source::Transcript, at));
    }
    // What its record says of this turn is not older than that.
    let busy_again = || Activity { state: ActivityState::Busy, ..idle(Source::Screen, before.since) };
    let questioned = before.ask.as_ref().is_some_and(|ask| ask.kind == AskKind::Question);
    if let Title::Other(at) = seen.title
        && by_screen
        && questioned
        && at > before.since
    {
        let again = busy_again();
        return corrected(pool, &again, notes, seen, now).or(Some(again));
    }
    let look = seen.screen.as_ref()?;
    let said = notes.heard_at.into_iter().chain(seen.quiet_since).chain([before.since]);
    let silent_since = pool.latest(now, said);
    let silent = seen.quiet_since.is_some()
        && pool.age(now, silent_since) >= SILENCE
        && pool.is_earlier(now, silent_since, look.at);
    let ready = matches!(look.composer, Composer::Empty | Composer::Holds(_));
    // Its title blinks while it asks: it is not silent.
    let asks = match seen.title {
        Title::Asks(since) => silent || look.at > since.max(before.since),
        Title::Other(at) => silent && look.at >= at,
        Title::Unread => silent,
    };
    match &look.dialog {
        Some(dialog) => {
            // The next of several questions is another one.
            let asks = asks && (busy || by_screen) && dialog.name == screen::QUESTION;
            asks.then(|| asks_on(look, dialog, AskKind::Question))
        }
        None if !silent || !(busy || asked) => (by_screen && look.at > before.since).then(busy_again),
        None if look.works == Some(true) => by_screen.then(busy_again),
        None => (ready && !seen.keeps_composer).then(|| idle(Source::Screen, look.at)),
    }
}

/// Nothing tells but what can be seen from outside.
fn guessed(pool: &Pool, seen: &Seen, now: Timestamp) -> Activity {
    let is = |state, source, since: Timestamp| Activity { state, source, since, ..Activity::default() };
    if seen.is_known {
        return by_screen(seen, now);
    }
    let marks = &seen.marks;
    let newest = marks.prompt_at.max(marks.command_at);
    if let Some(at) = marks.bell_at.filter(|at| bell_holds(pool, *at, newest, seen, now)) {
        let text = "it rang the bell".to_owned();
        let ask = Ask { id: at.0, kind: AskKind::Bell, text, tool: None, answerable: false };
        return Activity { ask: Some(ask), ..is(ActivityState::Attention, Source::Terminal, at) };
    }
    if let Some(at) = newest {
        let state =
            if marks.command_at > marks.prompt_at { ActivityState::Busy } else { ActivityState::Idle };
        let code = marks.code.filter(|code| *code != 0 && state == ActivityState::Idle);
        let detail = code.map(|code| format!("its last command ended with {code}"));
        return Activity { detail, ..is(state, Source::Terminal, at) };
    }
    if let Some(own) = seen.own_foreground {
        let state = if own { ActivityState::Idle } else { ActivityState::Busy };
        return is(state, Source::Process, now);
    }
    match seen.quiet_since {
        Some(since) if pool.age(now, since) >= seen.idle_quiet => {
            is(ActivityState::Idle, Source::Output, since)
        }
        Some(_) => is(ActivityState::Busy, Source::Output, now),
        None => Activity { since: now, ..Activity::default() },
    }
}

/// How long after a bell a program may go on writing that still waits for somebody: most write something just after it.
const BELL_OUTPUT: Duration = Duration::from_secs(30);
/// How long a bell asks for somebody at most.
const BELL_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Whether a bell still asks for somebody: not once it was answered (something was typed, a prompt or a command came
/// after it), once its program goes on by itself, nor for ever. Somebody who attached has heard it, and it is gone.
fn bell_holds(pool: &Pool, at: Timestamp, newest: Option<Timestamp>, seen: &Seen, now: Timestamp) -> bool {
    newest.max(seen.worked_at).is_none_or(|then| at > then)
        && seen.quiet_since.is_none_or(|wrote| wrote < at.after(BELL_OUTPUT))
        && pool.age(now, at) < BELL_LIMIT
}

/// An agent that has not said anything yet: only its screen tells whether it is ready.
fn by_screen(seen: &Seen, now: Timestamp) -> Activity {
    let Some(look) = &seen.screen else { return Activity { since: now, ..Activity::default() } };
    let is = |state| Activity { state, source: Source::Screen, since: look.at, ..Activity::default() };
    match (&look.dialog, &look.composer) {
        (Some(dialog), _) => asks_on(look, dialog, AskKind::Dialog),
        (None, _) if look.works == Some(true) => is(ActivityState::Busy),
        (None, Composer::Empty | Composer::Holds(_)) => is(ActivityState::Idle),
        _ => Activity { since: look.at, ..Activity::default() },
    }
}

/// An agent that asks on its screen.
#[must_use]
pub fn asks_on(look: &Look, dialog: &Dialog, kind: AskKind) -> Activity {
    // The same dialog is the same request.
    let id = match kind {
        AskKind::Question => queue::hash(&[dialog.name.as_bytes(), dialog.text.as_bytes()]),
        // One with choices is another one where it offers others.
        _ if !screen::choices(&dialog.text).is_empty() => {
            queue::hash(&[dialog.name.as_bytes(), screen::strip_markers(&dialog.text).as_bytes()])
        }
        _ => queue::hash(&[dialog.name.as_bytes()]),
    };
    let ask = Ask { id, kind, text: dialog.text.clone(), tool: None, answerable: false };
    let (state, source) = (ActivityState::Attention, Source::Screen);
    let detail = Some(dialog.name.clone());
    Activity { state, source, since: look.at, ask: Some(ask), detail, ..Activity::default() }
}

/// What a session's agent does, as it is shown: where a prompt is in doubt, a person is asked about that first.
#[must_use]
pub fn shown(pool: &Pool, session: &Session) -> Activity {
    let limited = session.lifecycle == Lifecycle::Parked && session.reason == Some(Reason::Limited);
    if !matches!(session.lifecycle, Lifecycle::Live | Lifecycle::Draining) && !limited {
        return Activity { since: session.changed_at, ..Activity::default() };
    }
    let tag = session.incarnation.as_ref().map(|run| run.tag);
    let known = pool.activity(session.id).filter(|activity| activity.tag == tag);
    doubt(pool, session).or_else(|| known.cloned()).unwrap_or_else(|| Activity {
        since: session.changed_at,
        tag,
        ..Activity::default()
    })
}

/// A prompt of which only a person can say what became of it.
fn doubt(pool: &Pool, session: &Session) -> Option<Activity> {
    let open = queue::held_prompt(pool, session.id).filter(|open| open.state == MessageState::InDoubt)?;
    let id = open.id;
    let how = queue::resolve_command(session.name.as_str(), id);
    let text = format!("message {id} may not have arrived as it was sent: {how}");
    let ask = Ask { id: id.0, kind: AskKind::Message, text, tool: None, answerable: false };
    let (state, source) = (ActivityState::Attention, Source::Queue);
    Some(Activity { state, source, since: open.since, ask: Some(ask), ..Activity::default() })
}

/// Whether a person is waited for.
#[must_use]
pub fn asks(activity: &Activity) -> bool {
    activity.ask.as_ref().is_some_and(|ask| ask.kind != AskKind::Bell)
}
