//! A prompt that was typed into a shell: the shell's own prompt goes, and comes back.

use std::sync::Arc;
use std::time::Duration;

use protocol::activity::Source;
use protocol::{ActivityState, MessageId, MessageState, Refusal, SessionId, Tag};

use super::{Typed, settled};
use crate::context::Daemon;
use crate::engine::Turn;

/// How long a prompt may take to come back where nothing tells that it went.
const PROMPT_LIMIT: Duration = Duration::from_secs(3);

/// A shell: its prompt went, and comes back.
pub(super) async fn prompted(daemon: &Arc<Daemon>, session: SessionId, typed: Typed) -> Result<(), Refusal> {
    // A look may be faster than the record that it was typed.
    let (id, tag, since) = (typed.id, typed.pane.tag, typed.begun);
    let began = move |turn: &mut Turn<'_>| {
        let marks = turn.rest.agents.marks.get(&tag);
        let mark = marks.and_then(|marks| marks.command_at.max(marks.prompt_at)).is_some_and(|at| at > since);
        let activity = turn.pool().activity_in(session, tag);
        let busy =
            activity.is_some_and(|a| a.state == ActivityState::Busy && tells(a.source) && a.since >= since);
        (mark || busy || gone(turn, (session, tag), id)).then_some(())
    };
    if typed.state == MessageState::Typed {
        if daemon.engine.wait_for(Some(PROMPT_LIMIT), began).await.is_err() {
            let why = Some("unconfirmed");
            return settled(daemon, (session, id), MessageState::Done, why).await;
        }
        settled(daemon, (session, id), MessageState::Accepted, None).await?;
    }
    let back = move |turn: &mut Turn<'_>| {
        let marks = turn.rest.agents.marks.get(&tag);
        let prompt = marks.and_then(|marks| marks.prompt_at.filter(|at| Some(*at) > marks.command_at));
        let activity = turn.pool().activity_in(session, tag);
        let idle =
            activity.is_some_and(|a| a.state == ActivityState::Idle && tells(a.source) && a.since >= since);
        (prompt.is_some_and(|at| at > since) || idle || gone(turn, (session, tag), id)).then_some(())
    };
    daemon.engine.wait_for(None, back).await?;
    settled(daemon, (session, id), MessageState::Done, Some("its prompt came back")).await
}

fn tells(source: Source) -> bool {
    matches!(source, Source::Terminal | Source::Process)
}

/// Whether it moved on, or its shell is over.
fn gone(turn: &Turn<'_>, (session, tag): (SessionId, Tag), id: MessageId) -> bool {
    let open = turn.pool().open_message(session, id);
    let given = open.is_some_and(|open| matches!(open.state, MessageState::Typed | MessageState::Accepted));
    !given || turn.pool().tagged(tag).is_none_or(|found| found.id != session || !found.takes_prompts())
}
