//! Effects on a session's pane: under its lock, once, with their answers.

use std::sync::Arc;

use protocol::{Event, Refusal, Reply, Response, SessionRef};
use tmux::{Answer, PaneRef, TmuxError};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn, pane_of};
use crate::verb::session_view;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PaneEffect {
    /// Its user presses keys, which give these characters.
    Keys(String),
    /// Its user types this text.
    Input(String),
    /// A viewer sets its size.
    Resize,
}

impl PaneEffect {
    /// The purpose of its lock, for people.
    fn purpose(&self) -> &'static str {
        match self {
            Self::Keys(_) => "keys",
            Self::Input(_) => "input",
            Self::Resize => "resize",
        }
    }

    /// The characters that it types; it may leave a line or a dialog half done.
    fn typed(&self) -> Option<&str> {
        match self {
            Self::Keys(text) | Self::Input(text) => Some(text),
            Self::Resize => None,
        }
    }
}

/// Performs an effect on the pane of a running session, under its lock, and counts it as an act of its user.
pub(super) async fn act(
    daemon: &Arc<Daemon>,
    op: &ClientOperation,
    (session, kind): (SessionRef, PaneEffect),
    effect: impl AsyncFnOnce(PaneRef) -> Result<Answer, TmuxError>,
) -> Reply {
    let session = session_view::resolve(daemon, session).await?;
    let grant = daemon.engine.lock(session.id, kind.purpose()).await?;
    let id = session.id;
    let (begun, is_typed) = (op.clone(), kind.typed().is_some());
    let begin = move |turn: &mut Turn<'_>| {
        begun.record_begun(turn, id);
        let session = pool::session::get(turn.pool(), id)?.clone();
        let now = turn.now();
        turn.volatile.attend(session.tag(), now);
        let run = session.incarnation.as_ref().filter(|_| session.takes_prompts());
        let pane = run.and_then(pane_of).ok_or_else(|| pool::session::not_running(&session))?;
        if is_typed {
            turn.emit(Event::KeysPressed(id));
        }
        Ok(pane)
    };
    let pane = daemon.engine.turn(begin).await??;
    let done = effect(pane).await;
    let is_done = matches!(done, Ok(Answer::Done)) || done.as_ref().is_err_and(TmuxError::in_doubt);
    let typed = kind.typed().and_then(|text| typed_of(&done, text));
    let (operation, reply) = (op.clone(), reply_of(done));
    let answer = reply.clone();
    let conclude = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        // Recorded a second time: tmux may have taken the keys long after they were recorded first.
        if let Some(text) = typed {
            turn.emit(Event::KeysPressed(id));
            turn.volatile.prompts.typed(pane.tag, &text);
        }
        if is_done {
            turn.volatile.prompts.delivered(pane.tag, now);
        }
        operation.record_answer(turn, &answer);
    };
    daemon.engine.turn(conclude).await?;
    // The lock is released before a prompt may be typed, so that these keys do not count as pressed during it.
    drop(grant);
    reply
}

/// Returns what was typed of a text. If that is in doubt, its letters count, but no key that ends or discards a line.
fn typed_of(effect: &Result<Answer, TmuxError>, text: &str) -> Option<String> {
    match effect {
        Ok(Answer::Done) => Some(text.to_owned()),
        Err(error) if error.in_doubt() => Some(text.replace(char::is_control, "")),
        _ => None,
    }
}

/// Returns the reply for the result of an effect.
pub(super) fn reply_of(effect: Result<Answer, TmuxError>) -> Reply {
    let failed = |message: &str| Err(Refusal::failed(message));
    match effect {
        Ok(Answer::Done) => Ok(Response::Done),
        Ok(Answer::InMode) => failed("the pane is in copy mode, which would swallow it; nothing was typed"),
        Ok(Answer::InputOff) => failed("the pane does not take input; nothing was typed"),
        Ok(Answer::Dead | Answer::Gone) => failed("its program ended; nothing was typed"),
        Ok(Answer::Already) => failed("it was typed before; nothing was done"),
        Ok(Answer::Piped) => failed("its output is piped to a command of its user; nothing was done"),
        Ok(Answer::Attached) => failed("a client is attached; nothing was done"),
        Ok(Answer::NotOurs) => failed("the pane has lost the pool's mark; nothing was done"),
        Ok(Answer::OtherServer) => failed("another tmux server answers; nothing was done"),
        Err(error) if error.in_doubt() => {
            Err(Refusal::unavailable(format!("{error}; it may have been done")))
        }
        Err(error) => Err(Refusal::unavailable(format!("{error}; nothing was done"))),
    }
}

/// Returns the refusal for a pane that could not be read. Reading changes nothing, so nothing is in doubt.
pub(super) fn unseen(look: Result<Answer, TmuxError>) -> Refusal {
    let failed = |why: &str| Refusal::failed(format!("{why}; its screen was not read"));
    match look {
        Ok(Answer::Dead | Answer::Gone) => failed("its program ended"),
        Ok(Answer::NotOurs) => failed("the pane has lost the pool's mark"),
        Ok(Answer::OtherServer) => failed("another tmux server answers"),
        Ok(
            Answer::Done
            | Answer::InMode
            | Answer::InputOff
            | Answer::Attached
            | Answer::Already
            | Answer::Piped,
        ) => failed("tmux showed nothing"),
        Err(error @ TmuxError::TooLong(_)) => {
            Refusal::refused(format!("{error}; ask for fewer lines with --lines"))
        }
        Err(error) => Refusal::unavailable(format!(
            "{error}; its screen was not read: `poolctl status` shows how the server is"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_counts_as_ended_only_if_the_key_for_that_was_taken() {
        let text = "one\rtwo\u{15}";
        assert_eq!(typed_of(&Ok(Answer::Done), text).as_deref(), Some(text));
        assert_eq!(typed_of(&Ok(Answer::InMode), text), None);
        assert_eq!(typed_of(&Err(TmuxError::NoServer), text), None);
        let in_doubt = Err(TmuxError::TimedOut(Duration::from_secs(5)));
        assert_eq!(typed_of(&in_doubt, text).as_deref(), Some("onetwo"));
    }

    #[test]
    fn a_look_that_showed_nothing_leaves_nothing_in_doubt() {
        let silent = || TmuxError::TimedOut(Duration::from_secs(5));
        let looks = [Ok(Answer::Gone), Ok(Answer::OtherServer), Err(silent()), Err(TmuxError::NoServer)];
        for look in looks.map(unseen) {
            let said = look.message;
            assert!(said.contains("its screen was not read") && !said.contains("done"), "{said}");
        }
        assert!(reply_of(Err(silent())).is_err_and(|refusal| refusal.message.contains("may have been done")));
    }
}
