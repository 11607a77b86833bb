//! A pool with its surroundings and the reference, side by side: does what a daemon does, and compares after
//! each step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pool::reap::Orphans;
use pool::session::{is_restarting, run_ended};
use pool::slots::EvictionInputs;
use pool::{ReapRules, Settings, prompt, queue, reap, session, slots};
use protocol::policy::{Budget, RestartPolicy};
use protocol::reap::{Action, CandidateKind, Rule};
use protocol::session::DeleteMode;
use protocol::{Epoch, ErrorCode, Event, Lifecycle, MessageState, Reason, Session, SessionId, Tag, Token};

use super::command::Command;
use super::host::Host;
use super::reference::{Seen, accepts};
use super::shell::{Lives, Waiter, tight};
use crate::queue::send_prompt;
use crate::world::World;

/// Time at which the clocks begin.
const START: u64 = 1_800_000_000_000;
/// Longer than any wait.
const AGES: u64 = 1000 * 3_600_000;

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) world: World,
    pub(crate) host: Host,
    pub(crate) settings: Settings,
    /// Milliseconds that have really passed.
    pub(crate) mono: u64,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) lives: Lives,
    pub(crate) tags: u64,
    seen: Seen,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            world: World { now: START, ..World::default() },
            host: Host::default(),
            settings: tight(),
            mono: 0,
            waiters: Vec::new(),
            lives: Lives::default(),
            tags: 0,
            seen: Seen::default(),
        }
    }
}

impl Machine {
    pub(crate) fn run(&mut self, commands: &[Command]) {
        for command in commands {
            self.step(command);
            self.follow();
            self.compare();
        }
        assert_eq!(self.world.rebuilt(), self.world.pool);
        self.wind_up();
    }

    fn step(&mut self, command: &Command) {
        match command {
            Command::New(asked) => {
                self.update_waiters();
                self.waiters.push(Waiter::New(asked.clone()));
                self.serve(self.waiters.len() - 1);
            }
            Command::Serve(place) => drop(self.serve(*place)),
            Command::Fill => while self.serve(0) {},
            Command::Evict => self.evict(),
            Command::Make(nth) => self.make(*nth),
            Command::NotMade(nth) => self.not_made(*nth),
            Command::Exit(nth, code) => self.with_program(*nth, |host, tag| host.exit(tag, *code)),
            Command::Vanish(nth) => self.with_program(*nth, Host::remove),
            Command::ServerDies { survivors } => self.host.server_dies(*survivors),
            Command::Reap(nth) => drop(self.reap(*nth)),
            Command::Continue(nth) => {
                if let Some(id) = self.nth(*nth, is_restarting) {
                    self.next(id);
                }
            }
            Command::Send(nth) => self.send(*nth),
            Command::Type(nth) => self.type_next(*nth),
            Command::Settle(nth) => self.settle(*nth),
            Command::Busy(nth) => {
                if let Some(id) = self.nth(*nth, |_| true).filter(|id| !self.seen.busy.remove(id)) {
                    self.seen.busy.insert(id);
                }
            }
            Command::Write(nth) => {
                let now = self.now();
                let id = self.nth(*nth, |s| s.lifecycle == Lifecycle::Live);
                id.map(|id| self.seen.quiet.insert(id, now));
            }
            Command::Attach(nth, clients) => {
                self.with_program(*nth, |host, tag| host.attach(tag, *clients));
            }
            Command::RestoreAll => self.restore_all(),
            Command::Rule(nth, rule, action) => self.rule(*nth, (*rule, *action)),
            Command::Idle => self.idle(),
            Command::Outdated => self.outdated(),
            Command::Pass(ms) => (self.mono, self.world.now) = (self.mono + ms, self.world.now + ms),
            Command::Jump(ms) => {
                self.world.now = self.world.now.saturating_add_signed(*ms);
                // A jump forward cannot be told from passing time.
                if *ms > 0 {
                    self.lives.values_mut().for_each(|life| life.starts.clear());
                }
            }
            Command::Crash => self.crash(),
            Command::Pin(..) | Command::Kill(_) | Command::Park(..) | Command::Drain(_) => self.ask(command),
            Command::Restart(_) | Command::Start(_) => self.ask(command),
        }
    }

    /// A user's request about a session.
    fn ask(&mut self, command: &Command) {
        let (Command::Pin(nth, _) | Command::Kill(nth) | Command::Park(nth, _)) = command else {
            return self.ask_to_go_on(command);
        };
        let Some(id) = self.nth(*nth, |_| true) else { return };
        match command {
            Command::Pin(_, pinned) => {
                let event = session::pin(self.session(id), *pinned);
                assert_eq!(event.is_some(), self.lives[&id].pinned != *pinned);
                self.emit(event.into_iter().collect());
                self.life(id).pinned = *pinned;
            }
            Command::Kill(_) => {
                let events = session::kill(self.session(id));
                self.ended_by_user(id, events);
            }
            Command::Park(_, force) => self.park(id, *force),
            _ => unreachable!(),
        }
    }

    fn ask_to_go_on(&mut self, command: &Command) {
        let (Command::Drain(nth) | Command::Restart(nth) | Command::Start(nth)) = command else {
            unreachable!()
        };
        let Some(id) = self.nth(*nth, |_| true) else { return };
        match command {
            Command::Drain(_) => match session::drain(&self.world.pool, self.session(id), None) {
                Ok(events) => self.ended_by_user(id, events),
                Err(refusal) => {
                    let ends = self.is(id, Lifecycle::Draining) || self.is(id, Lifecycle::Starting);
                    assert_eq!(refusal.code, if ends { ErrorCode::Conflict } else { ErrorCode::Refused });
                    assert!(ends || !self.lives[&id].prompts().is_empty());
                }
            },
            Command::Restart(_) => {
                let events = session::restart(self.session(id));
                self.emit(events);
                if self.session(id).lifecycle.holds_slot() {
                    let renewed = session::reset_budget(self.session(id));
                    self.emit(renewed.into_iter().collect());
                    self.life(id).renew();
                }
            }
            _ => self.waiters.push(Waiter::Start(id)),
        }
    }

    /// A session that its user ended has to stay ended.
    fn ended_by_user(&mut self, id: SessionId, events: Vec<Event>) {
        // A parked session has no program to end.
        let aside = self.is(id, Lifecycle::Parked) && events.is_empty();
        if self.emit(events) && self.session(id).budget == Budget::default() {
            self.life(id).renew();
        }
        self.life(id).ended = Some(Lifecycle::Stopped).filter(|_| !aside);
    }

    fn park(&mut self, id: SessionId, force: bool) {
        let (session, life) = (self.session(id), &self.lives[&id]);
        let open = session.attached_clients > 0 || !life.prompts().is_empty();
        let parks = session.reason.is_some_and(Reason::parks);
        let expected = match session.lifecycle {
            Lifecycle::Parked => Ok(false),
            Lifecycle::Draining if parks => Ok(false),
            Lifecycle::Starting | Lifecycle::Draining => Err(ErrorCode::Conflict),
            Lifecycle::Stopped if session::is_restarting(session) => Err(ErrorCode::Conflict),
            Lifecycle::Live if open && !force => Err(ErrorCode::Conflict),
            Lifecycle::Live => Ok(true),
            Lifecycle::Stopped | Lifecycle::Lost | Lifecycle::Failed => Err(ErrorCode::Refused),
        };
        let decided = session::park(&self.world.pool, session, force);
        assert_eq!(decided.as_ref().map(|events| !events.is_empty()).map_err(|r| r.code), expected);
        if expected == Ok(true) {
            self.emit(decided.unwrap());
            self.life(id).ended = Some(Lifecycle::Parked);
        }
    }

    /// Parks a session for a waiter.
    fn evict(&mut self) {
        self.update_waiters();
        if self.waiters.len() <= slots::free(&self.world.pool, &self.settings) {
            return;
        }
        let Some(id) = self.victim() else { return };
        let session = self.session(id);
        assert!(self.lives[&id].is_parkable() && self.lives[&id].in_flight.is_none());
        assert_eq!(self.host.attached(session.incarnation.as_ref().unwrap().tag), 0);
        let event = session::begin_end(session, Reason::Evicted);
        self.world.emit(event);
    }

    fn inputs(&self) -> EvictionInputs<'_> {
        let (quiet_since, worked, busy) = (&self.seen.quiet, &self.seen.worked, &self.seen.busy);
        EvictionInputs {
            now: self.now(),
            quiet_since,
            delivered_at: worked,
            attended: &self.seen.touched,
            busy,
        }
    }

    fn victim(&self) -> Option<SessionId> {
        slots::next_to_park(&self.world.pool, &self.settings, &self.inputs())
    }

    fn idle(&mut self) {
        let inputs = self.inputs();
        let idle: Vec<SessionId> =
            slots::past_idle_timeout(&self.world.pool, &self.settings, &inputs).collect();
        for id in idle {
            let life = &self.lives[&id];
            let limit = life.asked.idle_timeout_ms.unwrap_or(1_800_000);
            let session = self.session(id);
            let quiet = self.seen.quiet[&id].max(session.last_activity_at);
            assert!(self.world.now - quiet.0 >= limit && !life.pinned && life.is_parkable());
            assert!(life.prompts().is_empty() && session.attached_clients == 0);
            let event = session::begin_end(session, Reason::Idle);
            self.world.emit(event);
        }
    }

    /// Applies a rule's action: what it ends stays ended, except for the session's policy; what it restarts
    /// is started once.
    fn rule(&mut self, nth: usize, (rule, wanted): (Rule, Action)) {
        let Some(id) = self.nth(nth, |s| s.lifecycle == Lifecycle::Live) else { return };
        let settings = {
            let reap = ReapRules { actions: [(rule, wanted)].into(), ..ReapRules::default() };
            Settings { reap, ..self.settings.clone() }
        };
        let decision = reap::decide(
            &self.world.pool,
            &settings,
            self.session(id),
            (rule, "because".to_owned()),
            self.now(),
        );
        let pinned = self.lives[&id].pinned;
        let expected = match (wanted, decision.action) {
            (Action::Park, _) if pinned || !self.lives[&id].is_parkable() => Action::Report,
            // The clock may have jumped; the number of starts is checked at each start.
            (Action::Restart, Action::Report) => {
                assert!(
                    session::check_restarts(&self.world.pool, &self.settings, self.session(id), self.now())
                        .is_err()
                );
                Action::Report
            }
            _ => wanted,
        };
        assert_eq!(decision.action, expected);
        self.emit(decision.events);
        let ends = matches!(expected, Action::Kill | Action::Restart);
        assert_eq!(self.is(id, Lifecycle::Draining), ends);
        match expected {
            Action::Kill => {
                let again = matches!(rule, Rule::Memory | Rule::Hung | Rule::StaleAgent);
                let policy = self.lives[&id].asked.restart.unwrap_or_default();
                let stays = !again || policy == RestartPolicy::No;
                self.life(id).ended = Some(Lifecycle::Stopped).filter(|_| stays);
            }
            Action::Restart => self.life(id).owed = true,
            Action::Park if self.host.attached(self.tag_of(id)) == 0 => {
                let event = session::begin_end(self.session(id), Reason::Idle);
                self.world.emit(event);
            }
            Action::Park | Action::Report => {}
        }
    }

    fn make(&mut self, nth: usize) {
        let Some(id) = self.starting(nth) else { return };
        self.host.make(self.tag_of(id));
        self.look();
        assert!(self.is(id, Lifecycle::Live));
        let now = self.now();
        self.seen.quiet.insert(id, now);
    }

    fn not_made(&mut self, nth: usize) {
        let Some(session) = self.starting(nth) else { return };
        self.host.jobs.remove(&self.tag_of(session));
        let (reason, detail) = (Reason::TmuxFailed, "it does not answer".to_owned());
        self.emit(vec![Event::SessionFailed { session, reason, detail, exit: None }]);
    }

    fn starting(&self, nth: usize) -> Option<SessionId> {
        let has_job = |s: &Session| s.incarnation.as_ref().is_some_and(|i| self.host.jobs.contains(&i.tag));
        self.nth(nth, |s| s.lifecycle == Lifecycle::Starting && has_job(s))
    }

    pub(crate) fn tag_of(&self, id: SessionId) -> Tag {
        self.session(id).incarnation.as_ref().unwrap().tag
    }

    /// Something happens to a running program.
    fn with_program(&mut self, nth: usize, happens: impl FnOnce(&mut Host, Tag)) {
        let alive = |s: &Session| s.incarnation.as_ref().is_some_and(|i| self.host.is_alive(i.tag));
        if let Some(id) = self.nth(nth, alive) {
            let tag = self.tag_of(id);
            happens(&mut self.host, tag);
        }
    }

    fn reap(&mut self, nth: usize) -> bool {
        let (state, dead) = (self.host.state(), self.host.dead());
        let pool = &self.world.pool;
        let drained = self.drained();
        let exited = dead.into_iter().collect();
        let now = self.now();
        let listed_from = Some(pool.moment(now, now));
        let (grace_ms, orphans) = (1, Orphans::default());
        let inputs = reap::ReapInputs {
            state: &state,
            exited: &exited,
            now,
            listed_from,
            grace_ms,
            drained: &drained,
            orphans: &orphans,
        };
        let all = crate::world::candidates(pool, &self.settings, &inputs);
        if all.is_empty() {
            return false;
        }
        let found = &all[nth % all.len()];
        if let Some(session) = pool.tagged(found.tag) {
            let drains = session.reason == Some(Reason::Drained) && found.kind == CandidateKind::Requested;
            let works = self.host.is_alive(found.tag) && !self.lives[&session.id].prompts().is_empty();
            assert!(!drains || !works, "it works off its queue first");
            // Without its job file the program can never start.
            if self.host.jobs.remove(&found.tag) {
                let over = run_ended(session.id, session.reason.unwrap(), None);
                self.world.emit(over);
            }
        }
        self.host.remove(found.tag);
        true
    }

    fn send(&mut self, nth: usize) {
        let Some(id) = self.nth(nth, |_| true) else { return };
        let expected = accepts(self.session(id));
        let sent = send_prompt(&mut self.world, id);
        assert_eq!(sent.is_ok(), expected, "{sent:?} {:?}", self.session(id));
        self.life(id).waiting.extend(sent.ok());
    }

    fn type_next(&mut self, nth: usize) {
        let Some(id) = self.nth(nth, |s| s.lifecycle.holds_slot()) else { return };
        let now = self.now();
        let Some(open) = queue::next_prompt(&self.world.pool, id, now) else { return };
        let token = Token { epoch: Epoch(1), n: self.tags };
        let (message, event) = (open.id, queue::begin_typing(&open, token, now));
        self.world.emit(event);
        let open = self.world.pool.find_pending(message).unwrap();
        let typed = queue::transition(&open, MessageState::Typed, None, now);
        let said = session::begin_conversation(self.session(id));
        let life = self.life(id);
        assert_eq!((life.in_flight, life.waiting.remove(0)), (None, message), "each in its turn");
        life.in_flight = Some(message);
        assert_eq!(said.is_some(), !life.spoken && life.can_resume());
        life.spoken = true;
        self.emit([Some(typed), said].into_iter().flatten().collect());
        self.seen.worked.insert(self.tag_of(id), self.now());
    }

    fn settle(&mut self, nth: usize) {
        let held: Vec<SessionId> =
            self.lives.iter().filter(|(_, life)| life.in_flight.is_some()).map(|(id, _)| *id).collect();
        let Some(id) = held.get(nth % held.len().max(1)).copied() else { return };
        let message = self.life(id).in_flight.take().unwrap();
        let open = self.world.pool.find_pending(message).unwrap();
        let done = queue::transition(&open, MessageState::Done, None, self.now());
        self.world.emit(done);
    }

    fn restore_all(&mut self) {
        let spacing = Duration::from_secs(2);
        let lost: Vec<SessionId> = self.world.pool.sessions().filter(|s| is_lost(s)).map(|s| s.id).collect();
        let events = session::restore_all(&self.world.pool, spacing, self.now());
        self.emit(events);
        for (n, id) in (0..).zip(lost) {
            assert_eq!(self.session(id).budget.due_at, Some(self.now().after(spacing * n)));
            let life = self.life(id);
            life.renew();
            life.owed = true;
        }
    }

    fn outdated(&mut self) {
        let (pool, now) = (&self.world.pool, self.now());
        let keep = Some(Duration::from_secs(3 * 3600));
        let gone: Vec<(SessionId, Reason)> = session::past_retention(pool, &self.settings, keep, now)
            .map(|(s, reason)| (s.id, reason))
            .collect();
        for (session, reason) in gone {
            let (record, life) = (self.session(session), &self.lives[&session]);
            let over = matches!(record.lifecycle, Lifecycle::Stopped | Lifecycle::Failed);
            let evicted =
                life.asked.ephemeral && !life.can_resume() && record.reason == Some(Reason::Evicted);
            let is_due = life.prompts().is_empty() && (life.asked.ttl_ms.is_some() || evicted);
            assert!(over || is_due, "kept for its user");
            assert!(!record.lifecycle.holds_slot() && record.budget.due_at.is_none());
            let mut events = queue::forget_messages(&self.world.pool, session, now);
            let mode = DeleteMode::KillTmux;
            let retired = record.incarnation.as_ref().map(|i| Event::TagRetired { tag: i.tag, session });
            events.extend(retired);
            events.push(Event::SessionDeleted { session, reason, mode, tmux_alive: false });
            self.emit(events);
            self.lives.remove(&session);
        }
    }

    fn crash(&mut self) {
        self.world.pool = {
            let rebuilt = self.world.rebuilt();
            assert_eq!(rebuilt, self.world.pool);
            rebuilt
        };
        // Waiting users ask again, or do not; the other waiters return by themselves.
        (self.waiters, self.seen) = (Vec::new(), Seen::default());
        let now = self.now();
        let live = self.world.pool.sessions().filter(|s| s.lifecycle == Lifecycle::Live);
        self.seen.quiet = live.map(|s| (s.id, now)).collect();
    }
}

/// True if the server is gone, with or without the programs.
fn is_lost(s: &Session) -> bool {
    s.lifecycle == Lifecycle::Lost
        || s.lifecycle == Lifecycle::Draining && s.reason == Some(Reason::ServerGone)
        || s.lifecycle == Lifecycle::Failed
            && s.incarnations > 1
            && matches!(s.reason, Some(Reason::TmuxFailed | Reason::NameTaken | Reason::Setup))
}

/// Comparisons after every step.
impl Machine {
    /// Observes tmux and decides on ended sessions, once each.
    fn follow(&mut self) {
        self.look();
        self.note_cut_off_drains();
        for twice in [false, true] {
            let events = session::decide_restarts(&self.world.pool, &self.settings, self.now());
            assert!(!twice || events.is_empty(), "{events:?}");
            self.emit(events);
        }
        // A prompt that an agent had at its end is over.
        for event in prompt::fail_abandoned(
            &self.world.pool,
            &prompt::abandoned(&self.world.pool, self.now()),
            self.now(),
        ) {
            let Event::MessageChanged { id, session, .. } = event else { panic!("{event:?}") };
            assert_eq!(self.life(session).in_flight.take(), Some(id));
            self.world.emit(event);
        }
        for session in self.world.pool.sessions() {
            let life = self.lives.get_mut(&session.id).unwrap();
            assert!(session.budget.exhausted || !life.exhausted, "only somebody who starts it changes that");
            life.exhausted = session.budget.exhausted;
        }
    }

    /// A drain that was cut off had messages left at the end of its program, and its session ends as any that nobody
    /// ended.
    fn note_cut_off_drains(&mut self) {
        let is_lost = |s: &&Session| {
            let unasked = [Reason::TmuxGone, Reason::StartupMissingTmux, Reason::ServerGone, Reason::Exited];
            s.reason.is_some_and(|reason| unasked.contains(&reason))
        };
        for session in self.world.pool.sessions().filter(is_lost) {
            let life = self.lives.get_mut(&session.id).unwrap();
            life.ended = life.ended.filter(|_| life.prompts().is_empty());
        }
    }

    /// The sessions that have worked off their queues: all are at rest.
    fn drained(&self) -> BTreeSet<SessionId> {
        let pool = &self.world.pool;
        pool.sessions().filter(|s| session::is_drained(pool, s)).map(|s| s.id).collect()
    }

    fn look(&mut self) {
        let (state, dead) = (self.host.state(), self.host.dead());
        self.world.drained = self.drained();
        while !self.world.see(&state, &dead).is_empty() {}
    }

    fn compare(&self) {
        self.compare_slots();
        self.compare_starts();
        let inputs = self.inputs();
        let now = self.world.now;
        let mut expected = BTreeMap::new();
        for session in self.world.pool.sessions() {
            let life = &self.lives[&session.id];
            let since = self.seen.evictable(&self.settings, session, life, now);
            let found = slots::evictable(&self.world.pool, &self.settings, session, &inputs).ok();
            assert_eq!(found.map(|found| (found.has_work, found.since.0)), since, "{session:?}");
            let order = |(has_work, since)| (has_work, !session.policy.ephemeral, since, session.id);
            expected.extend(since.map(|since| (order(since), session.id)));
            let open: Vec<_> = self.world.pool.pending_messages_of(session.id).map(|open| open.id).collect();
            assert_eq!(open, life.prompts(), "none is lost, and each keeps its place");
        }
        assert_eq!(
            self.victim(),
            expected.into_values().next(),
            "idle ones first, of these the ephemeral ones"
        );
        assert_eq!(self.lives.len(), self.world.pool.sessions().count());
    }

    /// The slots are never exceeded, and one is in use exactly while something exists or may begin.
    fn compare_slots(&self) {
        let used = self.world.pool.slots_used();
        assert!(used <= self.settings.max_sessions && self.host.running() <= used);
        let mut taken = 0;
        for session in self.world.pool.sessions() {
            let there = session.incarnation.as_ref().is_some_and(|run| self.host.has(run.tag));
            let holds = session.lifecycle.holds_slot() || is_restarting(session);
            // The clock was set back, so the observation counts as older than the last change, and proves nothing about
            // it.
            let unsure = self.now() < session.changed_at;
            assert!(!holds || there || is_restarting(session) || unsure, "a slot leaks: {session:?}");
            let alive = session.incarnation.as_ref().is_some_and(|run| self.host.is_alive(run.tag));
            assert!(holds || !alive, "it runs without a slot: {session:?}");
            taken += usize::from(holds);
        }
        assert_eq!(taken, used);
        assert_eq!(slots::free(&self.world.pool, &self.settings), self.settings.max_sessions - used);
    }

    fn compare_starts(&self) {
        let (pool, now) = (&self.world.pool, self.now());
        let wanting: BTreeSet<SessionId> = slots::wanting_start(pool, now).into_iter().collect();
        let next = slots::next_start(pool, now);
        for session in pool.sessions() {
            let life = &self.lives[&session.id];
            let parked = session.lifecycle == Lifecycle::Parked;
            let waits = parked && !life.waiting.is_empty();
            // A policy only starts a session that is over.
            let due = session.budget.due_at.is_some();
            assert!(due || !life.owed, "a rule ended it, and it is not started again: {session:?}");
            assert!(
                !due || life.owed || !session.lifecycle.holds_slot(),
                "it runs and is to start: {session:?}"
            );
            if wanting.contains(&session.id) {
                assert!(!session.lifecycle.holds_slot() && !session.budget.exhausted);
                let stays = life.ended.is_some();
                assert!(!stays || (waits && life.ended == Some(Lifecycle::Parked)), "{session:?}");
                continue;
            }
            let at = session
                .budget
                .due_at
                .filter(|_| !session.lifecycle.holds_slot() && !session.budget.exhausted);
            assert!(at.is_none_or(|at| next.is_some_and(|next| next <= at)), "{next:?} {session:?}");
            assert!(!waits || at.is_some(), "what is parked with a prompt is started: {session:?}");
        }
        if let Some(at) = next {
            assert!(at > now && !slots::wanting_start(pool, at).is_empty());
        }
    }

    /// Once every program has ended, every slot is free.
    fn wind_up(&mut self) {
        self.waiters.clear();
        while self.starting(0).is_some() {
            self.not_made(0);
        }
        // Programs that outlived their server have to be ended.
        self.host.exit_all();
        self.world.now += AGES;
        self.look();
        while self.reap(0) {
            self.look();
        }
        while let Some(id) = self.nth(0, is_restarting) {
            let events = session::kill(self.session(id));
            assert!(self.emit(events));
        }
        assert_eq!(self.world.pool.slots_used(), 0);
    }
}
