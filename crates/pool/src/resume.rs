//! Conversations that an agent cannot take up: it never wrote them, because its first prompt was cut off, or it has cleaned
//! its record up since.

use std::time::Duration;

use agents::Adapter;
use protocol::event::AgentEvent;
use protocol::policy::Budget;
use protocol::session::Conversation;
use protocol::session::Reason;
use protocol::{ActivityState, Event, Lifecycle, Session, Timestamp};

use crate::pool::Pool;
use crate::queue;
use crate::settings::Settings;

/// An agent that finds no conversation says so and ends within a second; a loaded machine takes longer.
const AT_ONCE: Duration = Duration::from_secs(30);

/// Whether its agent was to take up a conversation and ended soon, by a failure, before it said that it began. The
/// conversation may not be there any more, which its output and its record tell.
#[must_use]
pub fn broke_off(pool: &Pool, settings: &Settings, session: &Session) -> bool {
    let Some(run) = session.incarnation.as_ref().filter(|run| run.resumed) else { return false };
    let failed = session.exit.is_some_and(|exit| exit.code.is_some_and(|code| code != 0));
    let ended = session.lifecycle == Lifecycle::Stopped && session.reason == Some(Reason::Exited) && failed;
    // Claude Code (2.1.197) tells the end of one that it did not find, and no start.
    let spoke =
        pool.activity_in(session.id, run.tag).is_some_and(|known| known.state != ActivityState::Unknown);
    let known = settings.agent_of(session).adapter != Adapter::None;
    let begun = session.conversation.as_ref().is_some_and(|last| last.begun);
    ended && known && begun && !spoke && pool.age(session.changed_at, run.started_at) < AT_ONCE
}

/// Its agent has no such conversation: the session is started once more, with a new one. Its queue stays as it is.
#[must_use]
pub fn lost(pool: &Pool, session: &Session, now: Timestamp) -> Vec<Event> {
    let Some(last) = session.conversation.clone() else { return Vec::new() };
    let told = AgentEvent::ConversationLost { session: session.id, conversation: last.id.clone() };
    // One in which nothing was said is not taken up.
    let conversation = Some(Conversation { begun: false, ..last });
    let budget = Budget { due_at: Some(now), ..session.budget.clone() };
    let changes = [
        Event::Agent(told),
        Event::ConversationChanged { session: session.id, conversation },
        Event::BudgetChanged { session: session.id, budget },
    ];
    changes.into_iter().chain(queue::sent_from_the_start(pool, session.id, now)).collect()
}
