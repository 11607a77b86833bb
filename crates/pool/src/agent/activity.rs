//! An agent's activity, derived from the best evidence there is: its hooks; its own record of the
//! conversation; its terminal marks; the foreground process; its output; its screen.

use std::time::Duration;

use agents::screen::{Composer, Dialog};
use agents::{Adapter, screen};
use protocol::{
    Activity, ActivityState, AgentEvent, Ask, AskKind, Event, Lifecycle, Notes, Session, Source, Timestamp,
};

use crate::agent::screen::{ScreenReading, ShellMark, TerminalMarks, WindowTitle};
use crate::agent::state::Agents;
use crate::pool::Pool;
use crate::queue::prompts::held_prompt;
use crate::queue::{admin, doubt, idempotency_index};
use crate::settings::Agent;

/// Time for which the hooks and the output of a working agent have to be silent before its screen counts instead of
/// the hooks.
pub const SILENCE: Duration = Duration::from_secs(5);

/// Silence after which a free composer counts as the end of a turn. It is longer than [`SILENCE`], because on a loaded
/// machine an agent that has accepted a long prompt may draw nothing for that time (Gemini CLI 0.61.0, 15,000
/// characters).
pub const LONG_SILENCE: Duration = Duration::from_secs(10);

/// A session as it is seen from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentObservation {
    /// Time since which its program has written nothing, if known.
    pub quiet_since: Option<Timestamp>,
    /// Silence after which its program counts as idle.
    pub idle_quiet: Duration,
    /// Marks in its output during this incarnation.
    pub marks: TerminalMarks,
    /// Time at which the pool last typed into it.
    pub delivered_at: Option<Timestamp>,
    /// Time at which a person last attended to it: attached, typed, or dismissed its bell.
    pub attended_at: Option<Timestamp>,
    /// For shells: true if the shell itself is in the foreground of its terminal, not a program that it
    /// started.
    pub own_foreground: Option<bool>,
    /// Time at which its user last interrupted it, according to the agent's own record.
    pub interrupted_at: Option<Timestamp>,
    /// The last reading of its screen.
    pub screen: Option<ScreenReading>,
    pub title: WindowTitle,
    /// True if an agent runs in it whose screen the pool can read.
    pub has_known_screen: bool,
    /// True if its agent may go on after the conversation whose end it reported.
    pub outlives_conversation: bool,
    /// True if further requests are queued behind the shown one: the screen may show one of those instead.
    pub has_queued_asks: bool,
    /// True if a description tells what its screen shows: a dialog, which it shows in the composer's place, is a
    /// question.
    pub is_described: bool,
    /// True if the questions that its hook reports are the dialogs on its screen.
    pub asks_on_screen: bool,
    /// True if nothing is configured to answer its dialog about its usage limit.
    pub leaves_limit_dialog: bool,
    /// True if its composer can be free while it works, because its description does not say how its screen
    /// looks at work.
    pub composer_while_busy: bool,
}

impl AgentObservation {
    /// An observation of a session with this agent, in which nothing is seen yet.
    #[must_use]
    pub fn of(agent: &Agent) -> Self {
        Self {
            has_known_screen: agent.shows_composer(),
            outlives_conversation: agent.adapter.outlives_conversation(),
            is_described: agent.is_described(),
            asks_on_screen: agent.adapter.asks_on_screen(),
            leaves_limit_dialog: !agent.dialogs.contains_key(screen::USAGE_LIMIT),
            composer_while_busy: agent.adapter == Adapter::None && agent.screen.works.is_none(),
            ..Self::default()
        }
    }

    /// True if the observation has no evidence of the activity.
    fn is_empty(&self) -> bool {
        let outside = self.quiet_since.is_none() && self.own_foreground.is_none();
        if self.has_known_screen {
            self.screen.is_none()
        } else {
            outside && self.marks == TerminalMarks::default()
        }
    }
}

/// Returns the event if the agent's activity, by this observation, is news.
#[must_use]
pub fn derive_activity(
    pool: &Pool,
    session: &Session,
    observed: &AgentObservation,
    now: Timestamp,
) -> Option<Event> {
    let tag = session.incarnation.as_ref().filter(|_| session.takes_prompts())?.tag;
    let before = pool.activity_in(session.id, tag).cloned().unwrap_or_default();
    let hooked = pool.notes(session.id).filter(|notes| notes.hooked == Some(tag));
    let after = match hooked {
        Some(notes) => corrected_by_screen(pool, &before, notes, observed, now)?,
        // Without any evidence the activity stays as it was.
        None if observed.is_empty() => return None,
        None => from_outside(pool, observed, now),
    };
    // A change from unknown to unknown is no event.
    let unknown = |activity: &Activity| activity.state == ActivityState::Unknown && activity.ask.is_none();
    if unknown(&before) && unknown(&after) {
        return None;
    }
    activity_changed(session, &before, Activity { tag: Some(tag), ..after })
}

/// Time within which an agent has drawn its own dialog for a request that is left to its terminal.
const DRAWN: Duration = Duration::from_secs(3);

/// The activity of an agent with hooks. Other evidence corrects only what hooks cannot tell: an interruption
/// by the user, questions of Codex (0.169.0) in its plan mode, and that it goes on after the end of a conversation.
fn corrected_by_screen(
    pool: &Pool,
    before: &Activity,
    notes: &Notes,
    observed: &AgentObservation,
    now: Timestamp,
) -> Option<Activity> {
    let idle = |source, since| Activity { state: ActivityState::Idle, source, since, ..Activity::default() };
    let busy = before.state == ActivityState::Busy;
    let asked = before.state == ActivityState::Attention;
    let by_screen = asked && before.source == Source::Screen;
    let ended = before.state == ActivityState::Unknown
        && before.source == Source::Hook
        && observed.outlives_conversation;
    let is_later = |at: &Timestamp| pool.is_earlier(now, before.since, *at);
    if let Some(at) = observed.interrupted_at.filter(|at| (busy || by_screen) && is_later(at)) {
        return Some(idle(Source::Transcript, at));
    }
    // The same turn goes on, so it is busy since the same time.
    let busy_again = || Activity { state: ActivityState::Busy, ..idle(Source::Screen, before.since) };
    let questioned = before.ask.as_ref().is_some_and(|ask| ask.kind == AskKind::Question);
    if let WindowTitle::Other(at) = observed.title
        && by_screen
        && questioned
        && is_later(&at)
    {
        let again = busy_again();
        return corrected_by_screen(pool, &again, notes, observed, now).or(Some(again));
    }
    let look = observed.screen.as_ref()?;
    let said = notes.heard_at.into_iter().chain(observed.quiet_since).chain([before.since]);
    let silent_since = pool.latest(now, said);
    let silence = pool.age(now, silent_since);
    let silent =
        observed.quiet_since.is_some() && silence >= SILENCE && pool.is_earlier(now, silent_since, look.at);
    let ready = matches!(look.composer, Composer::Empty | Composer::Holds(_));
    // The title blinks while the agent asks, so the agent is not silent.
    let asks = match observed.title {
        WindowTitle::Asks(since) => silent || is_later(&look.at) && pool.is_earlier(now, since, look.at),
        WindowTitle::Other(at) => silent && !pool.is_earlier(now, look.at, at),
        WindowTitle::Unread => silent,
    };
    // A request that was left to the terminal and has been answered there.
    let left = before.ask.as_ref().is_some_and(Ask::is_left_to_terminal);
    let is_answered = asked && left && !observed.has_queued_asks && pool.age(look.at, before.since) >= DRAWN;
    match &look.dialog {
        None if is_answered && look.works == Some(true) => Some(busy_again()),
        None if observed.asks_on_screen && asked && !ready && is_later(&look.at) => Some(busy_again()),
        Some(dialog) => {
            let is_question = match dialog.name.as_str() {
                // The next of several questions has another id.
                screen::QUESTION => busy || by_screen,
                screen::USAGE_LIMIT => busy && observed.leaves_limit_dialog,
                _ => observed.is_described,
            };
            // A question that its hook reported with the same text is no other one.
            let is_new = before.ask.as_ref().is_none_or(|ask| ask.text != dialog.text);
            (asks && is_question && is_new).then(|| dialog_activity(look, dialog, AskKind::Question))
        }
        None if !silent || !(busy || asked || ended) => (by_screen && is_later(&look.at)).then(busy_again),
        None if look.works == Some(true) => by_screen.then(busy_again),
        None => {
            let rests = ready && !observed.composer_while_busy && (asked || silence >= LONG_SILENCE);
            rests.then(|| idle(Source::Screen, look.at))
        }
    }
}

/// The activity of a program without hooks.
fn from_outside(pool: &Pool, observed: &AgentObservation, now: Timestamp) -> Activity {
    if observed.has_known_screen {
        return from_screen(observed, now);
    }
    if let Some(at) = asking_bell(pool, observed, now) {
        let text = "it rang the bell".to_owned();
        let ask = Ask { id: at.0, kind: AskKind::Bell, text, tool: None, answerable: false };
        let (state, source) = (ActivityState::Attention, Source::Terminal);
        return Activity { state, source, since: at, ask: Some(ask), ..Activity::default() };
    }
    without_bell(pool, observed, now)
}

/// The activity of a program apart from its bell, while the bell asks for a person.
pub fn activity_under_bell(pool: &Pool, observed: &AgentObservation, now: Timestamp) -> Option<Activity> {
    asking_bell(pool, observed, now).map(|_| without_bell(pool, observed, now))
}

/// True if the activity shown is in this state, or is a bell and the program is in this state apart from the bell.
pub fn is_in_state(agents: &Agents, shown: &Activity, state: ActivityState) -> bool {
    let rings = shown.ask.as_ref().is_some_and(|ask| ask.kind == AskKind::Bell);
    let under = shown.tag.filter(|_| rings).and_then(|tag| agents.under_bell(tag));
    shown.state == state || under.is_some_and(|under| under.state == state)
}

/// The activity of a program without hooks and a known screen, apart from its bell.
fn without_bell(pool: &Pool, observed: &AgentObservation, now: Timestamp) -> Activity {
    let is = |state, source, since: Timestamp| Activity { state, source, since, ..Activity::default() };
    let marks = &observed.marks;
    // A program that has the terminal may write the marks of a prompt itself.
    let is_others = observed.own_foreground == Some(false) && !marks.runs_command();
    if let Some(ShellMark { at, .. }) = marks.last_of_shell().filter(|_| !is_others) {
        let state = if marks.runs_command() { ActivityState::Busy } else { ActivityState::Idle };
        let code = marks.code.filter(|code| *code != 0 && state == ActivityState::Idle);
        let detail = code.map(|code| format!("its last command ended with {code}"));
        return Activity { detail, ..is(state, Source::Terminal, at) };
    }
    if let Some(own) = observed.own_foreground {
        let state = if own { ActivityState::Idle } else { ActivityState::Busy };
        return is(state, Source::Process, now);
    }
    match observed.quiet_since {
        Some(since) if pool.age(now, since) >= observed.idle_quiet => {
            is(ActivityState::Idle, Source::Output, since)
        }
        Some(_) => is(ActivityState::Busy, Source::Output, now),
        None => Activity { since: now, ..Activity::default() },
    }
}

/// Time after a bell within which output does not end the request: most programs write something just after
/// it.
const BELL_OUTPUT: Duration = Duration::from_secs(30);

/// Time for which a bell asks for a person at most.
const BELL_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Returns the time of a bell that still asks for a person. It asks until somebody attends to it (attaches, types,
/// sends a prompt or dismisses it), a prompt or command mark follows, the program goes on by itself, or [`BELL_LIMIT`]
/// is over.
fn asking_bell(pool: &Pool, observed: &AgentObservation, now: Timestamp) -> Option<Timestamp> {
    let marks = &observed.marks;
    let at = marks.bell_at.filter(|_| !observed.has_known_screen)?;
    let answers = [observed.delivered_at, observed.attended_at];
    let age = pool.age(now, at);
    let asks = answers.into_iter().flatten().all(|then| pool.is_earlier(now, then, at))
        // For a bell from before a start of `poold`; a mark that is read after a bell clears the bell at once.
        && marks.last_of_shell().is_none_or(|mark| !pool.is_earlier(now, at, mark.at))
        && observed.quiet_since.is_none_or(|wrote| pool.age(now, wrote) + BELL_OUTPUT > age)
        && age < BELL_LIMIT;
    asks.then_some(at)
}

/// The activity of an agent without any hook report yet: only its screen tells whether it is ready.
fn from_screen(observed: &AgentObservation, now: Timestamp) -> Activity {
    let Some(look) = &observed.screen else { return Activity { since: now, ..Activity::default() } };
    let is = |state| Activity { state, source: Source::Screen, since: look.at, ..Activity::default() };
    match (&look.dialog, &look.composer) {
        (Some(dialog), _) => dialog_activity(look, dialog, AskKind::Dialog),
        (None, _) if look.works == Some(true) => is(ActivityState::Busy),
        (None, Composer::Empty | Composer::Holds(_)) => is(ActivityState::Idle),
        _ => Activity { since: look.at, ..Activity::default() },
    }
}

/// The activity of an agent with a dialog on its screen.
pub fn dialog_activity(look: &ScreenReading, dialog: &Dialog, kind: AskKind) -> Activity {
    // The same dialog is the same request.
    let id = match kind {
        AskKind::Question => idempotency_index::hash(&[dialog.name.as_bytes(), dialog.text.as_bytes()]),
        // A dialog with other choices is another request.
        _ if !screen::choices(&dialog.text).is_empty() => {
            idempotency_index::hash(&[dialog.name.as_bytes(), screen::strip_markers(&dialog.text).as_bytes()])
        }
        _ => idempotency_index::hash(&[dialog.name.as_bytes()]),
    };
    let ask = Ask { id, kind, text: dialog.text.clone(), tool: None, answerable: false };
    let (state, source) = (ActivityState::Attention, Source::Screen);
    let detail = Some(dialog.name.clone());
    Activity { state, source, since: look.at, ask: Some(ask), detail, ..Activity::default() }
}

/// Returns the activity of a session's agent as it is shown: first what the agent asks, then a prompt in doubt, because
/// a person has to resolve both.
pub fn current_activity(pool: &Pool, session: &Session) -> Activity {
    let tag = session.tag();
    let known = pool.activity(session.id).filter(|activity| activity.tag == tag);
    // Its prompts wait for the end of the usage limit, whatever the reason for which it was parked.
    let limited =
        session.lifecycle == Lifecycle::Parked && known.is_some_and(|known| known.limited_until.is_some());
    if !matches!(session.lifecycle, Lifecycle::Live | Lifecycle::Draining) && !limited {
        return Activity { since: session.changed_at, ..Activity::default() };
    }
    let asks = known.filter(|known| waits_for_person(known)).cloned();
    asks.or_else(|| doubted_prompt(pool, session)).or_else(|| known.cloned()).unwrap_or_else(|| Activity {
        since: session.changed_at,
        tag,
        ..Activity::default()
    })
}

/// Asks a person to resolve a prompt in doubt.
fn doubted_prompt(pool: &Pool, session: &Session) -> Option<Activity> {
    let open = held_prompt(pool, session.id).filter(doubt::waits_for_person)?;
    let id = open.id;
    let how = admin::resolve_command(session.name.as_str(), id);
    let text = format!("message {id} may not have arrived as it was sent: {how}");
    let ask = Ask { id: id.0, kind: AskKind::Message, text, tool: None, answerable: false };
    let (state, source) = (ActivityState::Attention, Source::Queue);
    Some(Activity { state, source, since: open.since, ask: Some(ask), ..Activity::default() })
}

/// True if the agent waits for a person. A bell does not count.
pub fn waits_for_person(activity: &Activity) -> bool {
    activity.ask.as_ref().is_some_and(|ask| ask.kind != AskKind::Bell)
}

/// Returns the event of a change of activity, if it is news.
#[must_use]
pub fn activity_changed(session: &Session, before: &Activity, after: Activity) -> Option<Event> {
    let same =
        |a: &Activity, b: &Activity| (a.state, &a.ask, a.limited_until) == (b.state, &b.ask, b.limited_until);
    let turned = !same(before, &after) || before.tag != after.tag;
    if !turned && (before.source, &before.detail) == (after.source, &after.detail) {
        return None;
    }
    let since = if turned { after.since } else { before.since };
    let activity = Activity { since, ..after };
    Some(Event::Agent(AgentEvent::ActivityChanged { session: session.id, activity, turned }))
}
