//! Messages for which it is unknown whether they arrived, and their treatment: their own (`send --in-doubt`), or that
//! of the configuration. By default a person decides.

use std::time::Duration;

use protocol::{Event, InDoubt, MessageId, MessageReason, MessageState, SessionId, Timestamp};

use crate::pool::Pool;
use crate::queue::pending::PendingMessage;
use crate::queue::settle::queue_again;
use crate::queue::transition::transition;
use crate::settings::QueueRules;

/// Time for which an agent may still report that it took a prompt: twice the maximum measured for the slowest
/// one, a Codex under load (6.3 s).
pub(crate) const CONFIRMS_WITHIN: Duration = Duration::from_secs(12);

/// The treatment of a message in doubt: its own, or that of the configuration.
fn treatment(rules: &QueueRules, message: &PendingMessage<'_>) -> InDoubt {
    permitted(message, message.in_doubt.unwrap_or(rules.in_doubt))
}

/// Returns the treatment, or `Hold` in place of `Retry` if only a person may decide on the message.
fn permitted(message: &PendingMessage<'_>, wanted: InDoubt) -> InDoubt {
    match wanted {
        InDoubt::Retry if message.needs_person => InDoubt::Hold,
        wanted => wanted,
    }
}

/// Puts a message in doubt. One that is not to be held is dead in the same commit: nobody is asked.
#[must_use]
pub fn doubt(
    rules: &QueueRules,
    message: &PendingMessage<'_>,
    why: &MessageReason,
    now: Timestamp,
) -> Vec<Event> {
    let states: &[MessageState] = match treatment(rules, message) {
        InDoubt::Dead => &[MessageState::InDoubt, MessageState::Dead],
        InDoubt::Hold | InDoubt::Retry => &[MessageState::InDoubt],
    };
    states.iter().map(|state| transition(message, *state, Some(why.clone()), now)).collect()
}

/// Puts prompts in doubt that were being typed when their sessions ended, because no pane tells whether the text
/// arrived. Sessions in which a delivery is still active (`attended`) are left to that.
#[must_use]
pub fn doubt_cut_off(
    pool: &Pool,
    rules: &QueueRules,
    attended: impl Fn(SessionId) -> bool,
    now: Timestamp,
) -> Vec<Event> {
    let typing = pool
        .held_messages()
        .filter(|message| message.state == MessageState::Typing && !attended(message.session));
    let over = typing.filter(|message| pool.session(message.session).is_none_or(|s| !s.takes_prompts()));
    over.flat_map(|message| doubt(rules, &message, &MessageReason::SessionEnded, now)).collect()
}

/// Settles messages in doubt that wait for no person: one to be sent again, once its agent can no longer report that it
/// has the text; and one that was put in doubt by a damaged record, or before the configuration said `dead`. `why`
/// reads the reason of a doubt.
#[must_use]
pub fn settle_doubts(
    pool: &Pool,
    rules: &QueueRules,
    why: impl Fn(MessageId) -> Option<MessageReason>,
    now: Timestamp,
) -> Vec<Event> {
    let doubted = pool.held_messages().filter(|message| message.state == MessageState::InDoubt);
    let settled = doubted.filter_map(|message| match treatment(rules, &message) {
        InDoubt::Hold => None,
        InDoubt::Dead => Some(transition(&message, MessageState::Dead, why(message.id), now)),
        // The agent may still report that it has this prompt.
        InDoubt::Retry if pool.age(now, message.since) < CONFIRMS_WITHIN => None,
        // This was the last attempt: the doubt itself is the reason of the end.
        InDoubt::Retry if message.attempts >= rules.max_attempts => {
            Some(transition(&message, MessageState::Dead, why(message.id), now))
        }
        InDoubt::Retry => {
            Some(queue_again(rules, &message, MessageReason::TypedAgain, Some(Duration::ZERO), now))
        }
    });
    settled.collect()
}

/// True if a message in doubt waits for a person.
pub fn waits_for_person(message: &PendingMessage<'_>) -> bool {
    let own = message.in_doubt.map(|wanted| permitted(message, wanted));
    message.state == MessageState::InDoubt && own != Some(InDoubt::Retry)
}
