//! Reports of agents' hooks, within a turn. Live ones come by [`crate::verb::hook`], those that hooks left in files by
//! [`crate::sense::hook_spool`].

use std::time::Duration;

use agents::Adapter;
use agents::prompt::{TextMatch, compare};
use pool::heard::{Heard, Hearing};
use pool::{Agent, heard, queue};
use protocol::hook::{Hook, HookEvent};
use protocol::{Event, MessageState};

use crate::decide::asks;
use crate::decide::asks::Asked;
use crate::decide::{follow_up, usage_limit};
use crate::engine::Turn;
use crate::engine::context::Daemon;

/// The hook is answered a little before it stops waiting.
const MARGIN: Duration = Duration::from_millis(500);

/// Takes a report in. Answers who waits for a decision.
pub(crate) fn take(turn: &mut Turn<'_>, daemon: &Daemon, hook: Hook) -> Option<Asked> {
    if !turn.volatile.agents.is_new_report(hook.id) {
        return None;
    }
    let hook = hook.within_bounds();
    let session = turn.pool().session(hook.session)?.clone();
    let settings = &daemon.loaded().settings;
    let (agent, rules) = (settings.agent_of(&session), &settings.queue);
    let its = turn.volatile.agents.turn(session.id).map(str::to_owned);
    let hearing = Hearing {
        agent,
        rules,
        turn: its.as_deref(),
        same: same(turn, agent, &hook),
        behind: turn.volatile.agents.queued_asks(session.id),
        now: turn.now(),
    };
    let Heard { events, open } = heard::heard(turn.pool(), &session, &hook, hearing);
    if events.is_empty() {
        return None;
    }
    if let HookEvent::Prompt { turn: begun, .. } = &hook.signal
        && events.iter().any(accepts)
    {
        turn.volatile.agents.begin_turn(session.id, begun.clone());
    }
    turn.emit_all(events);
    asks::keep(turn, session.id, &open);
    let now = turn.now();
    turn.volatile.prompts.delivered(hook.tag, hook.at.min(now));
    follow_up::follow(turn, daemon, &session, (agent, &hook));
    if matches!(hook.signal, HookEvent::TurnOver { .. }) {
        usage_limit::lifted(turn, session.id);
    }
    let HookEvent::Permission { wait_ms, .. } = hook.signal else { return None };
    open.iter().find(|ask| ask.id == hook.id && ask.answerable)?;
    let limit = Duration::from_millis(wait_ms).saturating_sub(MARGIN);
    let decision = turn.waiting.decisions.wait(session.id, hook.id);
    let hides_dialog = agent.adapter == Adapter::Codex;
    Some(Asked { session: session.id, ask: hook.id, decision, limit, hides_dialog })
}

/// Takes in what an agent recorded and no hook said.
pub(crate) fn recorded(turn: &mut Turn<'_>, daemon: &Daemon, hook: Hook) {
    drop(take(turn, daemon, hook));
}

/// Whether a prompt is taken by this.
fn accepts(event: &Event) -> bool {
    matches!(event, Event::MessageChanged { status, .. } if status.state == MessageState::Accepted)
}

/// How the prompt that was heard compares with the one that was typed.
fn same(turn: &Turn<'_>, agent: &Agent, hook: &Hook) -> TextMatch {
    let HookEvent::Prompt { text, cut, .. } = &hook.signal else { return TextMatch::Different };
    let Some(open) = queue::held_prompt(turn.pool(), hook.session) else { return TextMatch::Different };
    let Ok(Some((message, body))) = turn.message(open.id) else { return TextMatch::Different };
    // One that said the same before is not this one, however late its hook is heard.
    if message.typing_began().is_some_and(|began| hook.at < began && began <= turn.now()) {
        return TextMatch::Different;
    }
    let body = crate::decide::prompt::text_of(turn, agent, &message, body);
    compare(agent.adapter, &String::from_utf8_lossy(&body), text, *cut)
}
