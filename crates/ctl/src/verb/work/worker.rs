//! The main thread: the messages in work, and the decision when to end.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::bounds::cut;
use protocol::message::REASON_MAX;
use protocol::request::{Ack, CLAIM_MAX, ClaimRef, Fail};
use protocol::{Claimed, Refusal, Request, Token, counted};

use super::args::Args;
use super::claimer::{Order, Orders};
use super::event::WorkEvent;
use super::handler::{GRACE, HandlerRunner, Shortage, VERIFY};
use super::handler_exit::{HandlerExit, Verdict};
use super::in_work::{HandlerState, MessageInWork, Phase, StopProgress};
use super::lease_keeper::{LeaseOrder, is_lost};
use super::report::{self, Outcome};
use crate::show::{escape, out, time};
use crate::signals::SAME_SIGNAL;
use crate::{Context, Error, exit};

/// Time for which a claim waits for a message, after which it is repeated: an unnoticed loss of the claim is detected
/// within that time.
const CLAIM_WAIT: Duration = Duration::from_secs(300);
/// The same with `--until-empty`: messages that wait for their next attempt are checked at this interval.
const EMPTY_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for settling after the second signal, once all handlers have ended.
const LAST_SETTLE_LIMIT: Duration = Duration::from_secs(3);

/// Time limit for settling after the first signal, once no handler runs; longer than a restart of `poold`
/// takes.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);

/// The worker: its messages by the tokens of their claims.
pub(super) struct Worker<'a> {
    context: &'a Context,
    args: &'a Args,
    handlers: HandlerRunner,
    orders: Orders,
    leases: Sender<LeaseOrder>,
    running: BTreeMap<Token, MessageInWork>,
    /// The unanswered claim, if there is one: true if messages were in work when it was made.
    claiming: Option<bool>,
    /// Since when no message is in work.
    idle_since: Instant,
    /// True if messages waited when the last claim was answered with none.
    more_wait: bool,
    shortage: Shortage,
    /// The first signal, and when it came.
    stopped_by: Option<(Signal, Instant)>,
    phase: Phase,
    failed: Option<Error>,
    /// The time limit for settling, after the first signal and once no handler runs.
    settled_by: Option<Instant>,
}

impl<'a> Worker<'a> {
    /// A worker without messages.
    pub(super) fn new(
        context: &'a Context,
        args: &'a Args,
        handlers: HandlerRunner,
        (orders, leases): (Orders, Sender<LeaseOrder>),
    ) -> Self {
        Self {
            context,
            args,
            handlers,
            orders,
            leases,
            running: BTreeMap::new(),
            claiming: None,
            idle_since: Instant::now(),
            more_wait: false,
            shortage: Shortage::default(),
            stopped_by: None,
            phase: Phase::Working,
            failed: None,
            settled_by: None,
        }
    }

    /// Handles events until the worker ends, and returns the code to exit with.
    pub(super) fn run(mut self, events: &Receiver<WorkEvent>) -> Result<u8, Error> {
        let mut finishing = false;
        loop {
            self.claim();
            if self.running.is_empty() && !matches!(self.phase, Phase::Working) {
                if self.claiming.is_none() {
                    break;
                }
                if !std::mem::replace(&mut finishing, true) {
                    self.orders.give(Order::Finish);
                }
            }
            match self.next(events) {
                Some(event) => self.handle(event),
                None => {
                    let left = counted(self.running.len() as u64, "message");
                    out::note(&format!("poolctl: {left} could not be settled until the end of the lease"));
                    break;
                }
            }
        }
        match (self.failed, self.phase) {
            (Some(error), _) => Err(error),
            (None, Phase::Ending(_, code)) => Ok(code),
            (None, _) => Ok(exit::OK),
        }
    }

    fn next(&mut self, events: &Receiver<WorkEvent>) -> Option<WorkEvent> {
        let settling = self.stopped_by.is_some()
            && self.running.values().all(|one| matches!(one.state, HandlerState::Settling(..)));
        let by = match self.phase {
            Phase::Ending(by, _) => Some(by),
            _ if settling && !self.running.is_empty() => {
                Some(*self.settled_by.get_or_insert_with(|| Instant::now() + SETTLE_LIMIT))
            }
            _ => None,
        };
        loop {
            let Some(until) = by.into_iter().chain(self.first_overdue()).chain(self.shortage.until).min()
            else {
                return events.recv().ok();
            };
            match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(event) => return Some(event),
                Err(RecvTimeoutError::Timeout)
                    if self.shortage.until.is_some_and(|at| at <= Instant::now()) =>
                {
                    return Some(WorkEvent::PauseOver);
                }
                Err(RecvTimeoutError::Timeout) if by.is_none_or(|by| by > Instant::now()) => {
                    self.end_overdue();
                }
                Err(_) => return None,
            }
        }
    }

    /// The time at which the first handler has run for too long.
    fn first_overdue(&self) -> Option<Instant> {
        let limit = self.args.handler_timeout?;
        let running = self.running.values().filter(|one| matches!(one.state, HandlerState::Running));
        running.map(|one| one.began + limit).min()
    }

    /// Ends the handlers that have run for too long.
    fn end_overdue(&mut self) {
        let Some(limit) = self.args.handler_timeout else { return };
        let running = self.running.iter_mut().filter(|(_, one)| matches!(one.state, HandlerState::Running));
        for (token, one) in running.filter(|(_, one)| one.began.elapsed() >= limit) {
            one.state = HandlerState::Stopping(Outcome::Retry, StopProgress::default());
            self.handlers.end(one.process, *token);
        }
    }

    /// Claims as many messages as further handlers may run.
    fn claim(&mut self) {
        let places = if self.args.once { 1 } else { self.args.concurrency };
        let taken = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        let max = places.saturating_sub(taken).min(CLAIM_MAX);
        let is_working = matches!(self.phase, Phase::Working) && self.shortage.until.is_none();
        if max == 0 || self.claiming.is_some() || !is_working {
            return;
        }
        let wait = match self.args.until_empty {
            true if taken == 0 && !self.more_wait => Duration::ZERO,
            true => EMPTY_INTERVAL,
            // While messages are in work, the idle time has not begun.
            false => match self.args.idle_end {
                Some(limit) if taken > 0 => limit.min(CLAIM_WAIT),
                Some(limit) => {
                    let left = limit.saturating_sub(self.idle_since.elapsed());
                    left.clamp(Duration::from_millis(1), CLAIM_WAIT)
                }
                None => CLAIM_WAIT,
            },
        };
        self.claiming = Some(taken > 0);
        self.orders.give(Order::Claim { max, wait_ms: time::millis(wait) });
    }

    fn handle(&mut self, event: WorkEvent) {
        match event {
            WorkEvent::Signal(signal) => self.stop(signal),
            WorkEvent::PauseOver => self.shortage.until = None,
            WorkEvent::Claimed(messages, more_wait) => self.claimed(messages, more_wait),
            WorkEvent::Broken(error) => {
                self.claiming = None;
                self.fail(error);
            }
            WorkEvent::Ended(token, exit) => self.ended(token, exit),
            WorkEvent::Killed(token, None) => self.stopping(token, |progress| progress.killed = true),
            WorkEvent::Killed(token, Some(left)) => self.leave_to_lease(token, &left),
            WorkEvent::Stale(token) => self.end_stale(token),
            WorkEvent::Settled(token, settled) => self.settled(token, settled),
        }
    }

    /// Stops claiming at the first signal, and ends the handlers at the second, or when the terminal is closed.
    fn stop(&mut self, signal: Signal) {
        if self.stopped_by.is_some_and(|(first, at)| first == signal && at.elapsed() < SAME_SIGNAL) {
            return;
        }
        let is_first = self.stopped_by.is_none();
        self.stopped_by.get_or_insert_with(|| (signal, Instant::now()));
        self.drain();
        if is_first && signal != Signal::SIGHUP {
            if !self.running.is_empty() && !self.context.style.quiet {
                out::note("poolctl: waiting for the running handlers; a second signal ends them");
            }
        } else if !matches!(self.phase, Phase::Ending(..)) {
            let code = exit::of_signal(signal);
            self.phase = Phase::Ending(Instant::now() + GRACE + VERIFY + LAST_SETTLE_LIMIT, code);
            let running = self.running.iter_mut();
            for (token, one) in running.filter(|(_, one)| matches!(one.state, HandlerState::Running)) {
                one.state = HandlerState::Stopping(Outcome::GivenBack, StopProgress::default());
                self.handlers.end(one.process, *token);
            }
        }
    }

    fn drain(&mut self) {
        if matches!(self.phase, Phase::Working) {
            self.phase = Phase::Draining;
        }
    }

    /// Begins to end with this error, unless an earlier one is set.
    fn fail(&mut self, error: Error) {
        self.drain();
        self.failed.get_or_insert(error);
    }

    fn claimed(&mut self, messages: Vec<Claimed>, more_wait: bool) {
        let was_busy = self.claiming.take().unwrap_or(true);
        let none = messages.is_empty();
        for claimed in messages {
            let Some(token) = claimed.message.status.token else {
                self.fail(Error::failed(format!(
                    "message {} was claimed without a token",
                    claimed.message.id
                )));
                continue;
            };
            self.begin(claimed, token);
        }
        self.more_wait = more_wait;
        let over = if none {
            // A host whose messages wait for a free handler is not idle.
            let is_idle = self.running.is_empty()
                && !(self.args.host && more_wait)
                && self.args.idle_end.is_some_and(|limit| self.idle_since.elapsed() >= limit);
            is_idle || self.args.until_empty && !was_busy && !more_wait
        } else {
            self.args.once
        };
        if over {
            self.drain();
        }
    }

    /// Starts a handler, or returns the message to the queue if no more are started.
    fn begin(&mut self, claimed: Claimed, token: Token) {
        let mut running = MessageInWork {
            message: claimed.message.clone(),
            process: None,
            began: Instant::now(),
            state: HandlerState::Running,
        };
        let mut why = "not started".to_owned();
        if matches!(self.phase, Phase::Working) && self.shortage.until.is_none() {
            match self.handlers.start(&claimed, token) {
                Ok(process) => {
                    running.process = process;
                    self.shortage = Shortage::default();
                    drop(self.leases.send(LeaseOrder::Hold(ClaimRef { id: running.message.id, token })));
                    self.running.insert(token, running);
                    return;
                }
                Err(error) => {
                    why = format!("cannot run {}: {error}", self.args.handler[0].display());
                    self.not_started(&error, &why);
                }
            }
        }
        self.running.insert(token, running);
        self.settle(token, Outcome::GivenBack, Some(why), None);
    }

    /// Pauses if the system lacked something for a moment, and ends the worker otherwise.
    fn not_started(&mut self, error: &io::Error, why: &str) {
        if self.args.once || !self.shortage.pauses_after(error) {
            self.fail(Error::failed(why));
        } else if self.shortage.is_new() {
            out::note(&format!("poolctl: {why}; tries again"));
        }
    }

    fn ended(&mut self, token: Token, exit: HandlerExit) {
        let Some(running) = self.running.get(&token) else { return };
        match running.state {
            HandlerState::Running => match exit.verdict() {
                Verdict::Done => self.settle(token, Outcome::Done, None, Some(exit)),
                Verdict::Later(reason) => self.settle(token, Outcome::Later, Some(reason), None),
                Verdict::Dead(reason) => self.settle(token, Outcome::Dead, Some(reason), None),
                Verdict::Failed(reason) => self.settle(token, Outcome::Retry, Some(reason), None),
            },
            HandlerState::Stopping(..) => self.stopping(token, |progress| progress.exited = true),
            HandlerState::Settling(..) => {}
        }
    }

    /// Updates the progress of ending a handler, and settles its message once none of its processes is left.
    fn stopping(&mut self, token: Token, update: impl FnOnce(&mut StopProgress)) {
        let Some(running) = self.running.get_mut(&token) else { return };
        let HandlerState::Stopping(outcome, progress) = &mut running.state else { return };
        update(progress);
        match (&*progress, *outcome) {
            (StopProgress { exited: true, killed: true }, Outcome::Stale) => {
                self.finish(token, (Outcome::Stale, Some("no longer held")));
            }
            (StopProgress { exited: true, killed: true }, outcome) => {
                let limit = self.args.handler_timeout.filter(|_| outcome == Outcome::Retry);
                let why = limit.map(|limit| format!("ran for longer than {limit:?}"));
                self.settle(token, outcome, Some(why.unwrap_or_else(|| "told to end".into())), None);
            }
            _ => {}
        }
    }

    /// Leaves a message to the end of its lease, as a process of its handler may be alive.
    fn leave_to_lease(&mut self, token: Token, what: &str) {
        if let Some(running) = self.running.get(&token) {
            out::note(&format!("poolctl: message {} is not settled: {what}", running.message.id));
            drop(self.leases.send(LeaseOrder::Drop(token)));
            self.finish(token, (Outcome::Left, Some(what)));
        }
    }

    /// Orders the message to be settled with this outcome.
    fn settle(&mut self, token: Token, outcome: Outcome, reason: Option<String>, exit: Option<HandlerExit>) {
        let Some(running) = self.running.get_mut(&token) else { return };
        let held = ClaimRef { id: running.message.id, token };
        let request = match outcome.disposition() {
            None => Request::Ack(Ack { held, result: exit.and_then(|exit| exit.output) }),
            Some(then) => {
                let reason = cut(reason.as_deref().unwrap_or_default(), REASON_MAX).to_owned();
                Request::Fail(Fail { held, reason, then })
            }
        };
        running.state = HandlerState::Settling(outcome, reason);
        drop(self.leases.send(LeaseOrder::Settle(held, request)));
    }

    /// Ends the handler of a message whose claim was lost; the message is not settled.
    fn end_stale(&mut self, token: Token) {
        let Some(running) = self.running.get_mut(&token) else { return };
        match &mut running.state {
            HandlerState::Running => {
                self.handlers.end(running.process, token);
                running.state = HandlerState::Stopping(Outcome::Stale, StopProgress::default());
            }
            HandlerState::Stopping(outcome, _) => *outcome = Outcome::Stale,
            HandlerState::Settling(..) => {}
        }
    }

    fn settled(&mut self, token: Token, settled: Result<(), Refusal>) {
        let Some(running) = self.running.get(&token) else { return };
        let HandlerState::Settling(outcome, reason) = &running.state else { return };
        let (outcome, reason) = (*outcome, reason.clone());
        match settled {
            Ok(()) => self.finish(token, (outcome, reason.as_deref())),
            Err(refusal) => {
                if !is_lost(&refusal) {
                    out::note(&format!("poolctl: not settled: {}", escape::line(&refusal.message)));
                }
                self.finish(token, (Outcome::Stale, Some(&refusal.message)));
            }
        }
    }

    /// Removes the message and prints its outcome. The worker begins to end if standard output is closed.
    fn finish(&mut self, token: Token, (outcome, reason): (Outcome, Option<&str>)) {
        let Some(running) = self.running.remove(&token) else { return };
        self.idle_since = Instant::now();
        let took = running.began.elapsed();
        if let Err(error) = report::print(self.context, &running.message, (outcome, reason), took) {
            self.fail(error);
        }
    }
}
