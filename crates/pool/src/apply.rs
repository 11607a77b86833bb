//! The fold: the only place where a [`Pool`] changes. Total: an event about something unknown is
//! ignored, and nothing panics.

use protocol::session::Reason;
use protocol::{Event, Exit, Incarnation, Lifecycle, Session, SessionId, Stamped, Tag, Timestamp};

use crate::clock;
use crate::pool::{Operation, OperationState, Pool};

impl Pool {
    /// Takes a fact in.
    pub fn apply(&mut self, stamped: &Stamped) {
        self.seq = self.seq.max(stamped.seq);
        if !self.apply_session(&stamped.event, stamped.at) && !self.apply_end(&stamped.event, stamped.at) {
            self.apply_rest(&stamped.event);
        }
    }

    /// Facts about one session. Answers whether it was one.
    fn apply_session(&mut self, event: &Event, at: Timestamp) -> bool {
        match event {
            Event::SessionCreated(session) => self.insert(session),
            Event::SessionDeleted { session, .. } => self.forget(*session),
            Event::SessionStarting { session, incarnation, incarnations, restarts } => {
                self.start(*session, at, incarnation, (*incarnations, *restarts));
            }
            Event::SessionLive { session, incarnation, recovered } => {
                let entered = self.active(*session, at);
                self.change(*session, |s| {
                    enter(s, Lifecycle::Live, None, entered);
                    s.incarnation = Some(incarnation.clone());
                    s.recovered = *recovered;
                    s.verified_at = Some(at);
                });
            }
            Event::SessionPlaced { session, incarnation } => self.change(*session, |s| {
                with_incarnation(s, |i| {
                    if i.tag == incarnation.tag {
                        *i = incarnation.clone();
                    }
                });
            }),
            Event::SessionRenamed { session, name } => {
                if let Some(s) = self.sessions.get_mut(session) {
                    s.name = name.clone();
                }
                self.index_names();
            }
            Event::SessionLabelled { session, labels } => {
                self.change(*session, |s| s.labels = labels.clone());
            }
            Event::SessionDraining { session, reason, exit, missing_since } => {
                let at = self.active(*session, at);
                self.change(*session, |s| {
                    enter(s, Lifecycle::Draining, Some(*reason), at);
                    keep_exit(s, *exit);
                    if let Some(incarnation) = &mut s.incarnation {
                        incarnation.missing_since = *missing_since;
                    }
                });
            }
            Event::SessionObserved { session, at: seen, dead, attached, current_command } => {
                self.change(*session, |s| {
                    s.verified_at = Some(*seen);
                    s.attached_clients = *attached;
                    s.current_command = current_command.clone();
                    with_incarnation(s, |i| {
                        i.dead = *dead;
                        i.missing_since = None;
                    });
                });
            }
            Event::AgentStarted { session, tag, init, agent } => self.change(*session, |s| {
                with_incarnation(s, |i| {
                    if i.tag == *tag {
                        i.init = Some(*init);
                        i.agent = Some(*agent);
                    }
                });
            }),
            _ => return false,
        }
        true
    }

    /// Facts about the end of a session's run. Answers whether it was one.
    fn apply_end(&mut self, event: &Event, at: Timestamp) -> bool {
        match event {
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
            _ => return false,
        }
        true
    }

    fn apply_rest(&mut self, event: &Event) {
        match event {
            Event::PoolStarted { epoch, build, boot } => {
                self.epoch = self.epoch.max(*epoch);
                self.build.clone_from(build);
                self.boot.clone_from(boot);
            }
            Event::ClockRead(clock) => {
                self.clock.clone_from(clock);
                self.book.expiries.clock_read(|at| clock::moment_by(clock, at, clock.read_at));
            }
            Event::NextSession { next } => self.next_session = self.next_session.max(*next),
            Event::TagRetired { tag, session } => {
                self.retired.insert(*tag, *session);
            }
            Event::TagForgotten(tag) => drop(self.retired.remove(tag)),
            Event::MessageQueued(message) => {
                self.book.queued(message, clock::moment(&self.clock, message.created_at));
                let Entered { active_at, .. } = self.active(message.session, message.created_at);
                self.change(message.session, |s| {
                    s.total_requests = s.total_requests.max(message.ordinal);
                    s.last_activity_at = active_at;
                });
            }
            Event::MessageChanged { id, session, status } => self.book.changed(*id, *session, status),
            Event::MessageForgotten { id, session } => self.book.forgotten(*id, *session),
            Event::BreakerChanged { session, kind, breaker, .. } => {
                self.book.breaker_changed(*session, kind, breaker);
            }
            Event::SessionPolicyChanged { session, policy } => {
                self.change(*session, |s| s.policy = policy.clone());
            }
            Event::BudgetChanged { session, budget } => self.change(*session, |s| s.budget = budget.clone()),
            Event::ConversationChanged { session, conversation } => {
                self.change(*session, |s| s.conversation = conversation.clone());
            }
            Event::SessionAccounted { session, account } => {
                self.change(*session, |s| s.account = Some(*account));
            }
            Event::LockGranted { session, lock } => self.change(*session, |s| s.lock = Some(lock.clone())),
            Event::LockUsedForSend { session, token } => self.change(*session, |s| {
                if let Some(lock) = s.lock.as_mut().filter(|lock| lock.token == *token) {
                    lock.used_for_send = true;
                }
            }),
            Event::LockReleased { session, token, .. } | Event::LockRevoked { session, token, .. } => {
                self.change(*session, |s| s.lock = s.lock.take().filter(|lock| lock.token != *token));
            }
            Event::Agent(event) if self.sessions.contains_key(&event.session()) => self.agents.apply(event),
            Event::TmuxServerChanged { server } => self.server = *server,
            Event::OperationBegun { op, digest, session, at } => {
                let begun = Operation { digest: *digest, at: *at, state: OperationState::Begun(*session) };
                self.operations.insert(op.clone(), begun);
            }
            Event::OperationDone { op, digest, reply, at } => {
                let done = Operation { digest: *digest, at: *at, state: OperationState::Done(reply.clone()) };
                self.operations.insert(op.clone(), done);
            }
            Event::OperationForgotten { op } => {
                self.operations.remove(op);
            }
            _ => {}
        }
    }

    fn insert(&mut self, session: &Session) {
        self.next_session = self.next_session.max(session.id.0.saturating_add(1));
        let before = self.sessions.insert(session.id, session.clone());
        self.index_tag(session.id, before.as_ref().and_then(tag_of));
        if before.is_some() {
            return self.index_names();
        }
        for name in [&session.workspace, &session.name] {
            self.names.insert(name.as_str().to_owned(), session.id);
        }
    }

    fn forget(&mut self, id: SessionId) {
        if let Some(tag) = self.sessions.remove(&id).as_ref().and_then(tag_of) {
            self.tags.remove(&(tag, id));
        }
        self.book.dropped(id);
        self.agents.dropped(id);
        self.index_names();
    }

    fn start(&mut self, id: SessionId, at: Timestamp, run: &Incarnation, (runs, restarts): (u32, u32)) {
        let at = self.active(id, at);
        self.change(id, |s| {
            enter(s, Lifecycle::Starting, None, at);
            s.incarnation = Some(run.clone());
            s.incarnations = runs;
            s.restarts = restarts;
            s.exit = None;
            s.account = None;
            s.current_command = None;
            s.attached_clients = 0;
        });
    }

    fn finish(&mut self, id: SessionId, at: Timestamp, end: (Lifecycle, Reason), exit: Option<Exit>) {
        let at = self.active(id, at);
        self.change(id, |s| {
            enter(s, end.0, Some(end.1), at);
            keep_exit(s, exit);
            s.attached_clients = 0;
            s.current_command = None;
        });
    }

    /// The times of a session that changes now. A greater one on record is of before the clock was set back.
    fn active(&self, id: SessionId, at: Timestamp) -> Entered {
        let last = self.sessions.get(&id).map(|session| session.last_activity_at);
        Entered { at, active_at: self.latest(at, last.into_iter().chain([at])) }
    }

    fn change(&mut self, id: SessionId, f: impl FnOnce(&mut Session)) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let before = tag_of(session);
        f(session);
        self.index_tag(id, before);
    }

    /// Keeps what is derived of a session's incarnation, which had this tag before.
    fn index_tag(&mut self, id: SessionId, before: Option<Tag>) {
        let now = self.sessions.get(&id).and_then(tag_of);
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

/// The times of a session's change.
#[derive(Clone, Copy)]
struct Entered {
    at: Timestamp,
    /// Its last activity, this change included.
    active_at: Timestamp,
}

fn tag_of(session: &Session) -> Option<Tag> {
    session.incarnation.as_ref().map(|run| run.tag)
}

fn enter(session: &mut Session, lifecycle: Lifecycle, reason: Option<Reason>, at: Entered) {
    if session.lifecycle != lifecycle || session.reason != reason {
        session.changed_at = at.at;
        session.last_activity_at = at.active_at;
    }
    session.lifecycle = lifecycle;
    session.reason = reason;
    session.detail = None;
}

/// How a program ended stays known once it is known.
fn keep_exit(session: &mut Session, exit: Option<Exit>) {
    session.exit = exit.or(session.exit);
}

fn with_incarnation(session: &mut Session, f: impl FnOnce(&mut Incarnation)) {
    if let Some(incarnation) = &mut session.incarnation {
        f(incarnation);
    }
}
