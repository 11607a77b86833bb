//! Reports of agents' hooks, within a turn. Live ones come from [`crate::verb::hook`], spooled ones from
//! [`crate::sense::hook_spool`].

use std::time::Duration;

use agents::Adapter;
use agents::prompt::{TextMatch, compare};
use pool::agent::{HookInputs, HookOutcome, is_before};
use pool::clock::{self, Moment};
use pool::{Agent, agent, queue};
use protocol::hook::{Hook, HookEvent, Start};
use protocol::{Event, MessageState, Timestamp};

use crate::decide::asks::{self, AwaitedDecision};
use crate::decide::prompt::typed_text;
use crate::decide::{follow_up, usage_limit};
use crate::engine::{Daemon, Turn};

/// Margin by which a hook is answered before it would stop waiting.
const MARGIN: Duration = Duration::from_millis(500);

/// Applies the report of a hook. Returns the awaited decision if the hook waits for one.
pub(crate) fn take_in(turn: &mut Turn<'_>, daemon: &Daemon, hook: Hook) -> Option<AwaitedDecision> {
    apply(turn, daemon, (hook, Origin::Hook))
}

/// The origin of a report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A hook of the agent.
    Hook,
    /// The agent's own record, which may be read before its hook reports.
    Record,
}

fn apply(turn: &mut Turn<'_>, daemon: &Daemon, (hook, origin): (Hook, Origin)) -> Option<AwaitedDecision> {
    if !turn.volatile.agents.is_new_report(hook.id) {
        return None;
    }
    let mut hook = hook.within_bounds();
    let moment;
    (hook.at, moment) = time_of(turn, &hook);
    let session = turn.pool().session(hook.session)?.clone();
    let settings = &daemon.loaded().settings;
    let (agent, rules) = (settings.agent_of(&session), &settings.queue);
    let current = turn.volatile.agents.turn(session.id).map(str::to_owned);
    let inputs = HookInputs {
        agent,
        rules,
        turn: current.as_deref(),
        text_match: compare_prompt(turn, agent, (&hook, moment)),
        queued_asks: turn.volatile.agents.queued_asks(session.id),
        asked_at: turn.volatile.agents.asked_at(session.id),
        moment,
        now: turn.now(),
    };
    let HookOutcome { events, open_asks: open } = agent::handle_hook(turn.pool(), &session, &hook, inputs);
    if events.is_empty() {
        return None;
    }
    if let HookEvent::Prompt { turn: begun, .. } = &hook.signal
        && events.iter().any(accepts)
    {
        turn.volatile.agents.begin_turn(session.id, begun.clone());
    }
    turn.emit_all(events);
    turn.volatile.agents.note_artefacts(session.id, &hook);
    if matches!(hook.signal, HookEvent::Permission { .. }) {
        turn.volatile.agents.note_asked(session.id, hook.id, moment);
    }
    asks::note_open_asks(turn, session.id, &open);
    // Any report but that of a start shows that the agent was given something to do.
    if !matches!(hook.signal, HookEvent::Started { .. }) {
        // A late report does not move the time back: something may have been typed since.
        let before = turn.volatile.prompts.delivered_at().get(&hook.tag).copied();
        let at = turn.pool().latest(turn.now(), before.into_iter().chain([hook.at]));
        turn.volatile.prompts.reported(hook.tag, at);
    }
    // One message for each turn: if the agent's record told of its end first, the hook's report queues no other.
    let ends_turn = matches!(hook.signal, HookEvent::TurnOver { .. });
    let is_told = ends_turn && turn.volatile.agents.note_end_of_turn(session.id, origin == Origin::Record);
    if !is_told {
        follow_up::queue_message(turn, daemon, &session, (agent, &hook));
    }
    match hook.signal {
        HookEvent::TurnOver { .. } => usage_limit::limit_lifted(turn, session.id, moment),
        HookEvent::TurnFailed { limited: true, .. } => usage_limit::limit_reported(turn, daemon, session.id),
        _ => {}
    }
    let HookEvent::Permission { wait_ms, .. } = hook.signal else { return None };
    open.iter().find(|ask| ask.id == hook.id && ask.answerable)?;
    let limit = Duration::from_millis(wait_ms).saturating_sub(MARGIN);
    let decision = turn.waiting.decisions.wait(session.id, hook.id);
    let hides_dialog = agent.adapter == Adapter::Codex;
    Some(AwaitedDecision { session: session.id, ask: hook.id, decision, limit, hides_dialog })
}

/// Returns the time and the moment of a report.
fn time_of(turn: &Turn<'_>, hook: &Hook) -> (Timestamp, Moment) {
    let (_, boot) = turn.pool().started_by();
    let awake = hook.awake.as_ref().filter(|awake| awake.boot == boot);
    clock::stamped(turn.pool().clock(), turn.reading(), hook.at, awake.map(|awake| awake.ms))
}

/// Applies a report that was reconstructed from the agent's own record.
pub(crate) fn take_in_recorded(turn: &mut Turn<'_>, daemon: &Daemon, hook: Hook) {
    drop(apply(turn, daemon, (hook, Origin::Record)));
}

/// True if the event confirms a prompt.
fn accepts(event: &Event) -> bool {
    matches!(event, Event::MessageChanged { status, .. } if status.state == MessageState::Accepted)
}

/// Compares the prompt in a report with the typed one. The report of a cleared context confirms the agent's own command
/// for that.
fn compare_prompt(turn: &Turn<'_>, agent: &Agent, (hook, moment): (&Hook, Moment)) -> TextMatch {
    let is_clear = matches!(hook.signal, HookEvent::Started { source: Start::Cleared });
    if !is_clear && !matches!(hook.signal, HookEvent::Prompt { .. }) {
        return TextMatch::Different;
    }
    let Some(open) = queue::held_prompt(turn.pool(), hook.session) else { return TextMatch::Different };
    let Ok(Some((message, body))) = turn.message(open.id) else { return TextMatch::Different };
    // An earlier prompt with the same text is another one, however late its hook reports.
    if message.typing_began().is_some_and(|began| is_before(turn.pool(), (moment, turn.now()), began)) {
        return TextMatch::Different;
    }
    let body = typed_text(turn, agent, &message, body);
    let HookEvent::Prompt { text, cut, .. } = &hook.signal else {
        return if agent.is_clear(&body) { TextMatch::Exact } else { TextMatch::Different };
    };
    let found = compare(agent.adapter, &String::from_utf8_lossy(&body), text, *cut);
    // A person who settles a prompt that was left to them may type another text: only exactly the same text counts.
    let is_left = turn.volatile.prompts.left_to_person(hook.session) == Some(open.id);
    if is_left && found != TextMatch::Exact { TextMatch::Different } else { found }
}
