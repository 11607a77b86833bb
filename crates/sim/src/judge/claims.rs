//! Claims of workers: one holder of a message at a time, with tokens that grow.

use protocol::request::ClaimRef;
use protocol::{MessageId, ProcId, Tag, Token};
use tokio::time::Instant;

use super::Judge;
use super::records::{Handled, Kept};

impl Judge {
    /// Notes that a worker has got a claim; one that `is_casual` loses it when it is silent, and is not ended first.
    /// `is_alive` tells whether a process lives.
    pub(crate) fn claimed(
        &self,
        (id, token): (MessageId, Token),
        worker: ProcId,
        is_casual: bool,
        is_alive: impl Fn(ProcId) -> bool,
    ) {
        let mut state = self.state();
        let before = state.claims.remove(&id);
        if !is_casual {
            state.claims.insert(id, (token, worker));
        }
        let handled =
            state.handled.get(&id).filter(|handled| handled.token != token && handled.is_proved).cloned();
        let newest = state.tokens.insert(id, token);
        state.tokens_since.insert(id, token);
        drop(state);
        if let Some((_, other)) =
            before.filter(|(old, other)| *old != token && *other != worker && is_alive(*other))
        {
            self.violated(format!(
                "L4: message {id} is claimed by {worker} while {other} holds it and lives"
            ));
        }
        if let Some(left) = handled.filter(|handled| is_alive(handled.process)) {
            let process = left.process;
            self.violated(format!(
                "L4: message {id} is claimed by {worker} while its handler {process} lives"
            ));
        }
        if newest.is_some_and(|newest| newest > token) {
            self.violated(format!("Q1: the tokens of message {id} went back"));
        }
    }

    /// True for the tag of a claim that was made before the database was put back.
    pub(crate) fn is_old_claim(&self, tag: Tag) -> bool {
        self.state().old_claims.contains(&tag)
    }

    /// Notes that a person takes a message back: its worker holds nothing any more.
    pub(crate) fn taken_back(&self, id: MessageId) {
        let mut state = self.state();
        state.claims.remove(&id);
        state.kept.remove(&id);
        state.handled.remove(&id);
    }

    /// Notes that a worker is about to report a claim.
    pub(crate) fn reported(&self, id: MessageId, token: Token) {
        let mut state = self.state();
        if state.claims.get(&id).is_some_and(|(held, _)| *held == token) {
            state.claims.remove(&id);
        }
        state.kept.retain(|_, kept| kept.token != token);
    }

    /// Notes that a worker is about to send a heartbeat for these claims, which it has had since `since` at most.
    pub(crate) fn beats(&self, held: &[ClaimRef], since: Instant) {
        let mut state = self.state();
        for one in held {
            let new = Kept { token: one.token, renewed: since, pending: None };
            let kept = state.kept.entry(one.id).or_insert(new.clone());
            if kept.token < one.token {
                *kept = new;
            }
            if kept.token == one.token {
                kept.pending = Some(Instant::now());
            }
        }
    }

    /// Notes the answer to a heartbeat that was `sent` at this time; `None` if there was none.
    pub(crate) fn beaten(&self, held: &[ClaimRef], sent: Instant, is_taken: Option<bool>) {
        self.count(format!("heartbeat:{is_taken:?}"));
        let mut state = self.state();
        let is_old =
            |one: &&ClaimRef| state.tokens_since.get(&one.id).is_some_and(|newest| *newest > one.token);
        let old = held.iter().find(is_old).map(|one| one.id);
        for one in held {
            match (is_taken, state.kept.get_mut(&one.id).filter(|kept| kept.token == one.token)) {
                (Some(true), Some(kept)) => (kept.renewed, kept.pending) = (sent, None),
                (None, Some(kept)) => kept.pending = None,
                (Some(false), Some(_)) => drop(state.kept.remove(&one.id)),
                (_, None) => {}
            }
        }
        drop(state);
        if let Some(id) = old.filter(|_| is_taken == Some(true)) {
            self.violated(format!("Q2: a heartbeat for message {id} under an old claim was accepted"));
        }
    }

    /// Notes that a process handles a claim.
    pub(crate) fn handles(&self, id: MessageId, token: Token, process: ProcId, host: Option<Tag>) {
        self.state().handled.insert(id, Handled { token, process, host, is_proved: host.is_some() });
    }

    /// Notes that the init of a host has died before the host: if the tmux server dies as well, nobody looks for what
    /// they left behind.
    pub(crate) fn has_no_init(&self, tag: Tag) {
        self.state().handled.values_mut().filter(|handled| handled.host == Some(tag)).for_each(|handled| {
            handled.is_proved = false;
        });
    }

    /// Notes that a worker begins to wait for messages, or waits no more.
    pub(crate) fn waits(&self, worker: ProcId, is_waiting: bool) {
        let mut state = self.state();
        if is_waiting {
            state.waiting.insert(worker)
        } else {
            state.waiting.remove(&worker)
        };
    }

    /// Checks that a worker that the reaper is to end for its silence is silent. `is_idle` if it is said to hold
    /// nothing. From now on its message waits until all that handles it is proved gone, however often a reaper fails.
    pub(crate) fn to_end_silent(&self, worker: ProcId, (tag, is_idle): (Tag, bool)) {
        self.count(if is_idle { "checked:silent and idle" } else { "checked:silent" });
        let mut state = self.state();
        let keeps = |kept: &Kept| Tag::for_claim(kept.token) == tag && kept.holds();
        let kept = state.kept.iter().find(|(_, kept)| keeps(kept)).map(|(id, _)| *id);
        let waits = is_idle && state.waiting.contains(&worker);
        for handled in state.handled.values_mut().filter(|handled| Tag::for_claim(handled.token) == tag) {
            handled.is_proved = true;
        }
        drop(state);
        if let Some(id) = kept {
            self.violated(format!(
                "L3: {worker} is to be ended, and has sent its heartbeats for message {id}"
            ));
        }
        if waits {
            self.violated(format!("C-02: {worker} is to be ended as silent, and waits for messages"));
        }
    }

    /// Notes that a worker's report that it processed a message under this claim was acknowledged.
    pub(crate) fn processed(&self, id: MessageId, token: Token) {
        let mut state = self.state();
        state.processed.insert(id);
        // After the database was restored, its newest claim may be an older one than the newest that was granted.
        let newest = state.tokens_since.get(&id).copied();
        drop(state);
        if newest.is_some_and(|newest| newest > token) {
            self.violated(format!("Q1: a report on message {id} under an old claim was accepted"));
        }
    }

    /// True if a worker's report that it processed the message was acknowledged.
    pub(crate) fn is_processed(&self, id: MessageId) -> bool {
        self.state().processed.contains(&id)
    }
}
