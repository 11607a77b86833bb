//! The fold of events: the only place where a [`Pool`] changes. It is total: an event about an unknown
//! session or message changes nothing, and no event makes it panic.

use std::collections::BTreeSet;

use protocol::clock::Clock;
use protocol::event::LaneEvent;
use protocol::session::{SessionLock, WorkerChange};
use protocol::{
    AgentEvent, Event, Exit, Incarnation, Lifecycle, Message, OpId, OsBytes, Reason, Seq, Session, SessionId,
    Stamped, Tag, Timestamp, Token, variants,
};

use crate::clock;
use crate::pool::{Operation, OperationState, Pool};

impl Pool {
    /// Applies an event.
    pub fn apply(&mut self, stamped: &Stamped) {
        self.seq = self.seq.max(stamped.seq);
        self.apply_event(&stamped.event, (stamped.seq, stamped.at));
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one arm for each event: a new event does not compile unless named"
    )]
    fn apply_event(&mut self, event: &Event, (seq, at): (Seq, Timestamp)) {
        match event {
            // The pool.
            Event::PoolStarted { epoch, build, boot } => {
                self.epoch = self.epoch.max(*epoch);
                self.build.clone_from(build);
                self.boot.clone_from(boot);
            }
            Event::ClockRead(clock) => self.clock_read(clock),
            Event::NextSession { next } => self.next_session = self.next_session.max(*next),
            Event::TmuxServerChanged { server } => self.server = *server,
            Event::OperationBegun { op, digest, session, at } => {
                self.operation_changed(op, *digest, *at, OperationState::Begun(*session));
            }
            Event::OperationDone { op, digest, reply, at } => {
                self.operation_changed(op, *digest, *at, OperationState::Done(reply.clone()));
            }
            Event::OperationForgotten { op } => drop(self.operations.remove(op)),
            Event::TagRetired { tag, session } => drop(self.retired.insert(*tag, *session)),
            Event::TagForgotten(tag) => drop(self.retired.remove(tag)),

            // A session's record.
            Event::SessionCreated(session) => self.insert(session),
            Event::SessionDeleted { session, .. } => self.delete(*session),
            Event::SessionRenamed { session, name } => {
                self.change(*session, |s| s.name.clone_from(name));
                self.index_names();
            }
            Event::SessionLabelled { session, labels } => {
                self.change(*session, |s| s.labels.clone_from(labels));
            }
            Event::SessionPolicyChanged { session, policy } => {
                self.change(*session, |s| s.policy.clone_from(policy));
            }
            Event::BudgetChanged { session, budget } => {
                self.change(*session, |s| s.budget.clone_from(budget));
            }
            Event::ConversationChanged { session, conversation } => {
                self.change(*session, |s| s.conversation.clone_from(conversation));
            }
            Event::WorkerChanged(change) => {
                let WorkerChange { session, worker, spec, max_restarts } = &**change;
                self.change(*session, |s| {
                    s.worker = Some(Box::new(worker.clone()));
                    s.spec.clone_from(spec);
                    s.policy.max_restarts = *max_restarts;
                });
            }
            Event::SessionAccounted(session, account) => {
                self.change(*session, |s| s.account = Some(*account));
            }

            // A session's lifecycle.
            Event::SessionStarting { session, incarnation, incarnations, restarts } => {
                self.start(*session, at, incarnation, (*incarnations, *restarts));
            }
            Event::SessionLive { session, incarnation, recovered } => {
                self.go_live(*session, at, incarnation, *recovered);
            }
            Event::SessionDraining { session, reason, exit, missing_since } => {
                self.drain(*session, at, (*reason, *exit), *missing_since);
            }
            Event::GraceAsked(session, grace_ms) => {
                self.change(*session, |s| s.end_grace_ms = Some(*grace_ms));
            }
            Event::KeysPressed(session) => self.change(*session, |s| {
                s.keys_at = Some(at);
                s.attended = true;
            }),
            Event::DrainDeadlineSet(session, deadline) => {
                self.change(*session, |s| s.drain_deadline = Some(*deadline));
            }
            Event::SessionStopped { session, reason, exit } => {
                self.finish(*session, at, (Lifecycle::Stopped, *reason), *exit);
            }
            Event::SessionParked { session, reason, exit } => {
                self.finish(*session, at, (Lifecycle::Parked, *reason), *exit);
            }
            Event::SessionLost { session, reason, exit } => {
                self.finish(*session, at, (Lifecycle::Lost, *reason), *exit);
            }
            Event::SessionFailed { session, reason, detail, exit } => {
                self.finish(*session, at, (Lifecycle::Failed, *reason), *exit);
                self.change(*session, |s| s.detail = Some(detail.clone()));
            }

            // A session's incarnation.
            Event::SessionPlaced { session, incarnation } => {
                self.change_run(*session, incarnation.tag, |run| run.clone_from(incarnation));
            }
            Event::SessionObserved { session, at, dead, attached, current_command } => {
                self.observed(*session, *at, (*dead, *attached), current_command.as_ref());
            }

            // Messages.
            Event::MessageQueued(message) => self.message_queued(message),
            Event::MessageChanged { id, session, status } => {
                self.queues.changed((*id, *session), status, seq);
            }
            Event::MessageForgotten { id, session } => self.queues.forgotten(*id, *session),
            Event::BreakerChanged { session, kind, breaker, turned: _ } => {
                self.queues.breaker_changed(*session, kind, breaker);
            }
            Event::Lane(LaneEvent::Stuck { session, kind, standstill }) => {
                self.change(*session, |s| s.stuck.extend([(kind.clone(), standstill.since)]));
            }
            Event::Lane(LaneEvent::Unstuck { session, kind, .. }) => {
                self.change(*session, |s| s.stuck.retain(|known, _| known != kind));
            }

            // Users' locks.
            Event::LockGranted { session, lock } => self.change(*session, |s| s.lock = Some(lock.clone())),
            Event::LockUsedForSend { session, token, message } => {
                let pending = self.pending_messages_of(*session).map(|open| open.id).collect::<BTreeSet<_>>();
                self.change_lock(*session, *token, |lock| {
                    lock.prompts.retain(|prompt| pending.contains(prompt));
                    lock.prompts.insert(*message);
                });
            }
            Event::LockReleased { session, token, .. } | Event::LockRevoked { session, token, .. } => {
                self.change(*session, |s| s.lock = s.lock.take().filter(|lock| lock.token != *token));
                self.queues.lock_ended(*session, (seq, at));
            }

            Event::Agent(event) => self.agent_changed(event),

            // These events change no state: they are for subscribers only.
            variants!(Event:
                ReapStarted ReapFinished StaleFound LimitExceeded WatcherConnected WatcherLost ForeignSeen
                ForeignGone GeneratorRegistered GeneratorEnded LogResumed
            ) => {}
        }
    }

    fn clock_read(&mut self, clock: &Clock) {
        self.clock.clone_from(clock);
        self.queues.clock_read(|at| clock::moment_by(clock, at, clock.read_at));
    }

    fn operation_changed(&mut self, op: &OpId, digest: u64, at: Timestamp, state: OperationState) {
        self.operations.insert(op.clone(), Operation { digest, at, state });
    }

    fn message_queued(&mut self, message: &Message) {
        self.queues.queued(message, clock::moment(&self.clock, message.created_at));
        let Entered { active_at, .. } = self.entered(message.session, message.created_at);
        self.change(message.session, |s| {
            // When the database is loaded, the session's record already counts the message and later ones.
            if message.ordinal > s.total_requests {
                s.total_requests = message.ordinal;
                s.last_activity_at = active_at;
            }
        });
    }

    fn agent_changed(&mut self, event: &AgentEvent) {
        if self.sessions.contains_key(&event.session()) {
            self.agents.apply(event);
        }
    }

    fn insert(&mut self, session: &Session) {
        self.next_session = self.next_session.max(session.id.0.saturating_add(1));
        let before = self.sessions.insert(session.id, session.clone());
        if session.worker.is_some() {
            self.workers.insert(session.id);
        }
        self.index_tag(session.id, before.as_ref().and_then(Session::tag));
        if before.is_some() {
            return self.index_names();
        }
        for name in [&session.workspace, &session.name] {
            self.names.insert(name.as_str().to_owned(), session.id);
        }
    }

    fn delete(&mut self, id: SessionId) {
        if let Some(tag) = self.sessions.remove(&id).as_ref().and_then(Session::tag) {
            self.tags.remove(&(tag, id));
        }
        self.workers.remove(&id);
        self.queues.session_deleted(id);
        self.agents.session_deleted(id);
        self.index_names();
    }

    fn start(&mut self, id: SessionId, at: Timestamp, run: &Incarnation, (runs, restarts): (u32, u32)) {
        let at = self.entered(id, at);
        self.change(id, |s| {
            enter(s, Lifecycle::Starting, None, at);
            s.incarnation = Some(run.clone());
            s.incarnations = runs;
            s.restarts = restarts;
            s.exit = None;
            s.account = None;
            s.current_command = None;
            s.attached_clients = 0;
            s.keys_at = None;
            s.attended = false;
        });
    }

    fn go_live(&mut self, id: SessionId, at: Timestamp, run: &Incarnation, recovered: bool) {
        let entered = self.entered(id, at);
        self.change(id, |s| {
            // An adoption is no activity of the program.
            let adopted = s.lifecycle == Lifecycle::Starting && run.is_adopted();
            let active_at = if adopted { s.last_activity_at } else { entered.active_at };
            enter(s, Lifecycle::Live, None, Entered { active_at, ..entered });
            s.incarnation = Some(run.clone());
            s.recovered = recovered;
            s.verified_at = Some(at);
        });
    }

    fn drain(
        &mut self,
        id: SessionId,
        at: Timestamp,
        (reason, exit): (Reason, Option<Exit>),
        missing_since: Option<Timestamp>,
    ) {
        let entered = self.entered(id, at);
        self.change(id, |s| {
            let active_at = active_at_end(s, (reason, exit.or(s.exit)), entered);
            enter(s, Lifecycle::Draining, Some(reason), Entered { active_at, ..entered });
            s.exit = exit.or(s.exit);
            if let Some(run) = &mut s.incarnation {
                run.missing_since = missing_since;
            }
        });
    }

    fn finish(&mut self, id: SessionId, at: Timestamp, end: (Lifecycle, Reason), exit: Option<Exit>) {
        let entered = self.entered(id, at);
        self.change(id, |s| {
            let active_at = active_at_end(s, (end.1, exit.or(s.exit)), entered);
            enter(s, end.0, Some(end.1), Entered { active_at, ..entered });
            s.exit = exit.or(s.exit);
            s.attached_clients = 0;
            s.current_command = None;
        });
    }

    fn observed(
        &mut self,
        id: SessionId,
        at: Timestamp,
        (dead, attached): (bool, u32),
        command: Option<&OsBytes>,
    ) {
        self.change(id, |s| {
            s.verified_at = Some(at);
            s.attached_clients = attached;
            s.attended |= attached > 0;
            s.current_command = command.cloned();
            if let Some(run) = &mut s.incarnation {
                run.dead = dead;
                run.missing_since = None;
            }
        });
    }

    /// The times of a lifecycle change at `at`. A recorded activity that is later in the record than `at`
    /// dates from before the clock was set back.
    fn entered(&self, id: SessionId, at: Timestamp) -> Entered {
        let last = self.sessions.get(&id).map(|session| session.last_activity_at);
        Entered { at, active_at: self.latest(at, last.into_iter().chain([at])) }
    }

    /// Changes a session's incarnation if it has this tag.
    fn change_run(&mut self, id: SessionId, tag: Tag, f: impl FnOnce(&mut Incarnation)) {
        self.change(id, |s| {
            if let Some(run) = s.incarnation.as_mut().filter(|run| run.tag == tag) {
                f(run);
            }
        });
    }

    /// Changes a session's lock if it has this token.
    fn change_lock(&mut self, id: SessionId, token: Token, f: impl FnOnce(&mut SessionLock)) {
        self.change(id, |s| {
            if let Some(lock) = s.lock.as_mut().filter(|lock| lock.token == token) {
                f(lock);
            }
        });
    }

    fn change(&mut self, id: SessionId, f: impl FnOnce(&mut Session)) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let before = session.tag();
        f(session);
        self.index_tag(id, before);
    }

    /// Updates the index of tags; `before` is the tag that the session's incarnation had.
    fn index_tag(&mut self, id: SessionId, before: Option<Tag>) {
        let now = self.sessions.get(&id).and_then(Session::tag);
        if before != now {
            before.map(|tag| self.tags.remove(&(tag, id)));
            now.map(|tag| self.tags.insert((tag, id)));
        }
    }

    fn index_names(&mut self) {
        self.names.clear();
        for session in self.sessions.values() {
            for name in [&session.workspace, &session.name] {
                self.names.insert(name.as_str().to_owned(), session.id);
            }
        }
    }
}

/// The times of a change of lifecycle.
#[derive(Clone, Copy)]
struct Entered {
    at: Timestamp,
    /// Time of the session's last activity, including this change.
    active_at: Timestamp,
}

/// Returns the last activity of a session that ends. The end itself counts as an activity, except for the loss of the
/// tmux server, and for a hang-up, which such a loss causes and which may be found first.
fn active_at_end(session: &Session, (reason, exit): (Reason, Option<Exit>), entered: Entered) -> Timestamp {
    let is_hung_up = reason == Reason::Exited && exit.is_some_and(|exit| exit.is_hangup());
    let is_passive = is_hung_up || reason == Reason::ServerGone;
    if is_passive { session.last_activity_at } else { entered.active_at }
}

fn enter(session: &mut Session, lifecycle: Lifecycle, reason: Option<Reason>, at: Entered) {
    if session.lifecycle != lifecycle || session.reason != reason {
        session.changed_at = at.at;
        session.last_activity_at = at.active_at;
    }
    session.lifecycle = lifecycle;
    session.reason = reason;
    session.detail = None;
    if lifecycle != Lifecycle::Draining || reason != Some(Reason::Drained) {
        session.drain_deadline = None;
    }
    if lifecycle != Lifecycle::Draining {
        session.end_grace_ms = None;
    }
}
