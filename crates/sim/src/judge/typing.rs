//! Typed text, at the moment when tmux is asked for it: nothing under a user's lock, nothing that was taken back or
//! is too late, and nothing to an agent that works.

use std::time::Duration;

use protocol::{MessageId, SessionId, Tag, Token};
use tokio::time::Instant;

use super::locks::is_fed;
use super::{INPUT, Judge, State};

/// Time that may pass between the decision to type and the call to tmux, and between a deadline and its effect.
const MOMENT: Duration = Duration::from_millis(300);
const LATE: Duration = Duration::from_secs(2);

impl Judge {
    /// Notes that a client holds a lock until this time.
    pub(super) fn holds_lock(&self, session: SessionId, token: Token, until: Instant) {
        let mut state = self.state();
        if state.forcing == 0 {
            state.held.insert(session, (token, until));
        }
    }

    /// Notes that the agent of a session has met its usage limit: the pool tells it to go on, as the holder of a lock
    /// may.
    pub(crate) fn limited(&self, session: SessionId) {
        self.state().limited.insert(session);
    }

    /// Notes that it was acknowledged that a message was taken back.
    pub(crate) fn withdrawn(&self, id: MessageId) {
        let mut state = self.state();
        let Some(body) = state.numbered.get(&id).cloned() else { return };
        if state.prompts.get(&body).is_none_or(|prompt| prompt.pasted == 0) {
            state.withdrawn.insert(body, Instant::now());
        }
    }

    /// Notes that a message was refused at its first and only attempt.
    pub(crate) fn text_refused(&self, body: &str) {
        self.state().refused.insert(body.to_owned());
    }

    /// Checks that a message that a worker gets was not refused.
    pub(crate) fn handed_out(&self, body: &[u8]) {
        let body = String::from_utf8_lossy(body);
        let is_refused = self.state().refused.contains(&*body);
        if is_refused {
            self.violated(format!("D2: {body:?} is claimed, and was refused"));
        }
    }

    /// Notes that a message that was just acknowledged may be typed for this long.
    pub(crate) fn mortal(&self, body: &str, ttl: Duration) {
        self.state().mortal.insert(body.to_owned(), Instant::now() + ttl);
    }

    /// Notes that Enter was pressed in the terminal of an incarnation while tmux failed, or soon after.
    pub(crate) fn entered_in_trouble(&self, tag: Tag) {
        let mut state = self.state();
        if let Some(text) = state.last.get(&tag).cloned()
            && let Some(prompt) = state.prompts.get_mut(&text)
        {
            prompt.entered_in_trouble = true;
        }
    }

    /// Checks a text that tmux is asked to paste into the pane of an incarnation. `has_clock` tells that the wall clock
    /// is never set.
    pub(crate) fn to_paste(&self, tag: Tag, text: &[u8], has_clock: bool) {
        let text = String::from_utf8_lossy(text).into_owned();
        let mut state = self.state();
        state.quiet.pasted.insert(tag);
        let is_prompt = text.starts_with("prompt") && !state.forgotten.contains(&tag);
        let broken = if is_prompt { against_paste(&state, tag, &text, has_clock) } else { None };
        drop(state);
        if let Some(broken) = broken {
            self.violated(broken);
        }
    }

    /// Checks bytes that tmux is asked to type into the pane of an incarnation. Clients that hold a lock type none.
    pub(crate) fn to_input(&self, tag: Tag, bytes: &[u8]) {
        let state = self.state();
        let session = state.started.get(&tag).map(|(session, _)| *session);
        let held = session.and_then(|session| state.held.get(&session));
        let is_held = held.is_some_and(|(_, until)| Instant::now() < *until);
        let is_broken = is_held && bytes.starts_with(INPUT.as_bytes()) && !state.forgotten.contains(&tag);
        drop(state);
        if is_broken {
            self.violated(format!("L5: input is typed into {tag}, and a client holds its lock"));
        }
    }
}

/// Returns the promise that is broken if this prompt is pasted now.
fn against_paste(state: &State, tag: Tag, text: &str, has_clock: bool) -> Option<String> {
    if state.refused.contains(text) {
        return Some(format!("D2: {text:?} is typed, and was refused"));
    }
    let now = Instant::now();
    let session =
        state.started.get(&tag).map(|(session, _)| *session).filter(|id| !state.limited.contains(id));
    let held = session.and_then(|session| state.held.get(&session));
    if held.is_some_and(|(token, until)| now < *until && !is_fed(state, *token, text)) {
        return Some(format!("L5: {text:?} is typed into {tag}, and a client holds its lock"));
    }
    let is_new =
        state.prompts.get(text).is_none_or(|prompt| prompt.pasted == 0) && !state.retried.contains(text);
    if is_new && state.withdrawn.get(text).is_some_and(|at| *at + MOMENT < now) {
        return Some(format!("Q: {text:?} is typed, and was taken back"));
    }
    let stood_still = state.still_until.is_some_and(|until| now < until + LATE);
    if is_new && has_clock && !stood_still && state.mortal.get(text).is_some_and(|until| *until + LATE < now)
    {
        return Some(format!("Q: {text:?} is typed, and is over its time limit"));
    }
    let turn = state.at_work.get(&tag).filter(|turn| turn.is_told && turn.began + MOMENT < now)?;
    let texts = &turn.texts;
    Some(format!("T: {text:?} is typed, and its agent has told that it works on {texts:?}"))
}
