//! The text that is typed for a message, and the one that was typed before it.

use pool::prompt::KeyLine;
use pool::{Agent, Pool, queue};
use protocol::{Incarnation, Message, MessageReason, MessageState, PROMPT, SessionId, Step, Timestamp};

use crate::engine::Turn;

/// Number of finished prompts among which the one that was typed last is searched: others were given up before.
const SEARCHED: usize = 8;

/// Returns the text that is typed for a message: its body; or the agent's `go_on` prompt, if the current
/// conversation already contains the body. `message` has the token of the attempt.
pub(crate) fn typed_text(turn: &Turn<'_>, agent: &Agent, message: &Message, body: Vec<u8>) -> Vec<u8> {
    let text = match &agent.go_on {
        Some(go_on) if is_in_conversation(turn, message) => go_on.clone().into_bytes(),
        _ => body,
    };
    // `typing` differs between two prompts in a row, `attempt` between two attempts at the same prompt.
    let typing = message.ordinal.wrapping_add(u64::from(message.status.attempts));
    let attempt = message.status.token.map_or(0, |token| token.epoch.0.wrapping_add(token.n));
    agents::prompt::make_distinct(agent.adapter, text, typing % 7 + 7 * (attempt % 9))
}

/// True if the present conversation of the agent contains the message, whose turn an outage has cut short.
pub(crate) fn is_in_conversation(turn: &Turn<'_>, message: &Message) -> bool {
    let run = turn.pool().session(message.session).and_then(|session| session.incarnation.as_ref());
    let is_new_conversation = |at: Timestamp| {
        run.is_some_and(|run| !run.resumed && turn.pool().is_earlier(turn.now(), at, run.started_at))
    };
    message.suspended_at().is_some_and(|at| !is_new_conversation(at))
}

/// Remembers, before this daemon types into an incarnation for the first time, the text that an earlier one left there
/// without its Enter: a text that is typed now would be appended to it.
pub(crate) fn recall_unentered(turn: &mut Turn<'_>, session: SessionId, run: &Incarnation) {
    let prompts = &mut turn.volatile.prompts;
    let is_first = prompts.begin_recall(run.tag);
    if !is_first
        || prompts.delivered_at().contains_key(&run.tag)
        || prompts.key_line(run.tag) != KeyLine::default()
    {
        return;
    }
    let Some((message, body)) = last_typed(turn, session) else { return };
    let into_earlier = is_typed_before(turn.pool(), turn.now(), message.typing_began(), run.started_at);
    if !into_earlier && is_left_in_terminal(&message.steps) {
        turn.volatile.prompts.leave_unentered(run.tag, &String::from_utf8_lossy(&body), None);
    }
}

/// True if a text was typed before an incarnation started, so that it is not in its terminal.
fn is_typed_before(pool: &Pool, now: Timestamp, typed_at: Option<Timestamp>, started_at: Timestamp) -> bool {
    typed_at.is_some_and(|at| pool.is_surely_earlier(now, at, started_at))
}

/// Returns the prompt of a session that was typed last, with its text. It may be the next one, to be typed again.
fn last_typed(turn: &Turn<'_>, session: SessionId) -> Option<(Message, Vec<u8>)> {
    let finished = turn.pool().finished_messages_of(session).filter(|(_, _, kind, _)| *kind == PROMPT);
    let mut finished: Vec<_> = finished.map(|(id, _, _, at)| (at, id)).collect();
    finished.sort_unstable();
    let next = queue::waiting_prompt(turn.pool(), session).map(|next| next.id);
    let ids = next.into_iter().chain(finished.into_iter().rev().take(SEARCHED).map(|(_, id)| id));
    ids.filter_map(|id| turn.message(id).ok()?).max_by_key(|(message, _)| message.typing_began())
}

/// True if a message with this history stood in the terminal without having been taken, when it was typed last.
fn is_left_in_terminal(steps: &[Step]) -> bool {
    let since = steps.iter().rev().take_while(|step| step.state != MessageState::Typing);
    since.filter_map(|step| step.reason.as_ref()).any(MessageReason::is_left_in_terminal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_an_earlier_incarnation_is_not_in_the_terminal_of_this_one() {
        let is_before = |typed_at, started_at| {
            is_typed_before(&Pool::default(), Timestamp(9000), typed_at, Timestamp(started_at))
        };
        assert!(is_before(Some(Timestamp(1000)), 2000));
        assert!(!is_before(Some(Timestamp(2000)), 1000) && !is_before(None, 1000));
    }

    #[test]
    fn a_text_is_left_in_the_terminal_until_it_is_typed_again() {
        use MessageState::{Dead, Done, InDoubt, Queued, Typed, Typing};
        let doubt = || Some(MessageReason::NoEnter);
        let step = |state, reason| Step { at: Timestamp(1), state, attempts: 1, reason };
        let typing = || step(Typing, None);
        let done = [typing(), step(Typed, None), step(Done, None)];
        assert!(!is_left_in_terminal(&done));
        assert!(is_left_in_terminal(&[typing(), step(InDoubt, doubt()), step(Dead, doubt())]));
        let retried = [typing(), step(InDoubt, doubt()), step(Queued, Some(MessageReason::Retried))];
        assert!(is_left_in_terminal(&retried));
        assert!(!is_left_in_terminal(&[retried, done].concat()));
    }
}
