//! The main thread: what is being worked, and when it is over.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::message::{Claimed, REASON_MAX};
use protocol::request::{Ack, CLAIM_MAX, Fail, Held, Then};
use protocol::{Message, ProcId, Refusal, Request, Token};

use super::claimer::{Order, Orders};
use super::handler::{Ended, GRACE, Handlers, VERIFY, Verdict};
use super::keeper::{Job, is_lost};
use super::report::{self, Outcome};
use super::{Args, Event};
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{escape, out, time};

/// How long a claim waits for a message. It is made again then, so this only bounds how long one that
/// got lost unnoticed takes to be noticed.
const CLAIM_WAIT: Duration = Duration::from_secs(300);
/// The same where the end of the queue is waited for: what waits for its next try is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long settling may take after a second signal, once all handlers have ended.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How long settling may take after the first one, once no handler runs: then poold is away for longer than a restart.
const SETTLING: Duration = Duration::from_secs(20);

/// What is being worked, by the token of its claim.
pub(super) struct Worker<'a> {
    context: &'a Context,
    args: &'a Args,
    handlers: Handlers,
    orders: Orders,
    keeper: Sender<Job>,
    running: BTreeMap<Token, Running>,
    /// A claim is out, and whether anything was worked when it was made.
    claiming: Option<bool>,
    /// More waited when the last claim brought nothing.
    left: bool,
    /// It was told to end.
    told: bool,
    phase: Phase,
    failed: Option<Error>,
    /// By when what its handlers came to is settled, after it was told to end.
    settled_by: Option<Instant>,
}

struct Running {
    message: Message,
    process: Option<ProcId>,
    began: Instant,
    fate: Fate,
}

/// What is to become of a message.
enum Fate {
    /// Its handler decides.
    Open,
    /// Its handler is being ended, and then it is this.
    Ending(Outcome, Ending),
    /// It is being settled as this.
    Settling(Outcome, Option<String>),
}

/// How far the end of a handler is: nobody else may get its message while any of it works on.
#[derive(Default)]
struct Ending {
    /// It has ended itself.
    exited: bool,
    /// Whatever descends from it has.
    killed: bool,
}

/// How far this is.
enum Phase {
    Working,
    /// Nothing more is claimed.
    Draining,
    /// Told twice to end: by when, and with which exit code.
    Ending(Instant, u8),
}

impl<'a> Worker<'a> {
    /// Nothing is being worked yet.
    pub(super) fn new(
        context: &'a Context,
        args: &'a Args,
        handlers: Handlers,
        (orders, keeper): (Orders, Sender<Job>),
    ) -> Self {
        let running = BTreeMap::new();
        let (claiming, left, told, phase, failed) = (None, false, false, Phase::Working, None);
        let settled_by = None;
        Self {
            context,
            args,
            handlers,
            orders,
            keeper,
            running,
            claiming,
            left,
            told,
            phase,
            failed,
            settled_by,
        }
    }

    /// Works until it is over. The code to exit with.
    pub(super) fn run(mut self, events: &Receiver<Event>) -> Result<u8, Error> {
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
                Some(event) => self.take(event),
                None => {
                    let left = self.running.len();
                    out::note(&format!(
                        "poolctl: {left} messages could not be settled; their leases run out"
                    ));
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

    fn next(&mut self, events: &Receiver<Event>) -> Option<Event> {
        let settling = self.told && self.running.values().all(|one| matches!(one.fate, Fate::Settling(..)));
        let by = match self.phase {
            Phase::Ending(by, _) => Some(by),
            _ if settling && !self.running.is_empty() => {
                Some(*self.settled_by.get_or_insert_with(|| Instant::now() + SETTLING))
            }
            _ => None,
        };
        match by {
            Some(by) => events.recv_timeout(by.saturating_duration_since(Instant::now())).ok(),
            None => events.recv().ok(),
        }
    }

    /// Claims as many as there are places for.
    fn claim(&mut self) {
        let places = if self.args.once { 1 } else { self.args.concurrency };
        let taken = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        let max = places.saturating_sub(taken).min(CLAIM_MAX);
        if max == 0 || self.claiming.is_some() || !matches!(self.phase, Phase::Working) {
            return;
        }
        let wait = match self.args.until_empty {
            true if taken == 0 && !self.left => Duration::ZERO,
            true => LOOK_AGAIN,
            false => CLAIM_WAIT,
        };
        self.claiming = Some(taken > 0);
        self.orders.give(Order::Claim { max, wait_ms: time::millis(wait) });
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Signal(signal) => self.told(signal),
            Event::Claimed(messages, left) => self.claimed(messages, left),
            Event::Broken(error) => {
                self.claiming = None;
                self.fail(error);
            }
            Event::Ended(token, ended) => self.ended(token, ended),
            Event::Killed(token, None) => self.ending(token, |ending| ending.killed = true),
            Event::Killed(token, Some(left)) => self.left(token, &left),
            Event::Stale(token) => self.stale(token),
            Event::Settled(token, settled) => self.settled(token, settled),
        }
    }

    /// The first signal stops claiming, the second one ends what runs.
    fn told(&mut self, signal: Signal) {
        if !std::mem::replace(&mut self.told, true) {
            self.drain();
            if !self.running.is_empty() && !self.context.style.quiet {
                out::note("poolctl: what runs is waited for; told once more, it is ended");
            }
        } else if !matches!(self.phase, Phase::Ending(..)) {
            let code = u8::try_from(128 + signal as i32).unwrap_or(exit::INTERRUPTED);
            self.phase = Phase::Ending(Instant::now() + GRACE + VERIFY + LAST_WORDS, code);
            let open = self.running.iter_mut().filter(|(_, running)| matches!(running.fate, Fate::Open));
            for (token, running) in open {
                running.fate = Fate::Ending(Outcome::GivenBack, Ending::default());
                self.handlers.end(running.process, *token);
            }
        }
    }

    fn drain(&mut self) {
        if matches!(self.phase, Phase::Working) {
            self.phase = Phase::Draining;
        }
    }

    /// No more is begun; the first reason counts.
    fn fail(&mut self, error: Error) {
        self.drain();
        self.failed.get_or_insert(error);
    }

    fn claimed(&mut self, messages: Vec<Claimed>, left: bool) {
        let was_busy = self.claiming.take().unwrap_or(true);
        let none = messages.is_empty();
        for claimed in messages {
            let Some(token) = claimed.message.status.token else {
                self.fail(Error::failed(format!("message {} came without a token", claimed.message.id)));
                continue;
            };
            self.begin(claimed, token);
        }
        self.left = left;
        let over = if none { self.args.until_empty && !was_busy && !left } else { self.args.once };
        if over {
            self.drain();
        }
    }

    /// Starts a handler, unless no more are to be.
    fn begin(&mut self, claimed: Claimed, token: Token) {
        let mut running = Running {
            message: claimed.message.clone(),
            process: None,
            began: Instant::now(),
            fate: Fate::Open,
        };
        let mut why = "not begun".to_owned();
        if matches!(self.phase, Phase::Working) {
            match self.handlers.start(&claimed, token) {
                Ok(process) => {
                    running.process = process;
                    drop(self.keeper.send(Job::Hold(Held { id: running.message.id, token })));
                    self.running.insert(token, running);
                    return;
                }
                Err(error) => why = format!("cannot run {}: {error}", self.args.handler[0].display()),
            }
            self.fail(Error::failed(why.clone()));
        }
        self.running.insert(token, running);
        self.settle(token, Outcome::GivenBack, Some(why), None);
    }

    fn ended(&mut self, token: Token, ended: Ended) {
        let Some(running) = self.running.get(&token) else { return };
        match running.fate {
            Fate::Open => match ended.verdict() {
                Verdict::Done => self.settle(token, Outcome::Done, None, Some(ended)),
                Verdict::Later => self.settle(token, Outcome::Later, Some("exit 75".into()), None),
                Verdict::Failed(reason) => self.settle(token, Outcome::Retry, Some(reason), None),
            },
            Fate::Ending(..) => self.ending(token, |ending| ending.exited = true),
            Fate::Settling(..) => {}
        }
    }

    /// Takes note of how far the end of a handler is. Once nothing of it is left, this is over.
    fn ending(&mut self, token: Token, note: impl FnOnce(&mut Ending)) {
        let Some(Running { fate: Fate::Ending(outcome, ending), .. }) = self.running.get_mut(&token) else {
            return;
        };
        note(ending);
        match (&*ending, *outcome) {
            (Ending { exited: true, killed: true }, Outcome::Stale) => {
                self.over(token, (Outcome::Stale, Some("no longer held")));
            }
            (Ending { exited: true, killed: true }, outcome) => {
                self.settle(token, outcome, Some("told to end".into()), None);
            }
            _ => {}
        }
    }

    /// Something of a handler could not be ended: its message is left to its lease.
    fn left(&mut self, token: Token, what: &str) {
        if let Some(running) = self.running.get(&token) {
            out::note(&format!("poolctl: message {} is not settled: {what}", running.message.id));
            self.over(token, (Outcome::Left, Some(what)));
        }
    }

    /// Has it settled.
    fn settle(&mut self, token: Token, outcome: Outcome, reason: Option<String>, ended: Option<Ended>) {
        let Some(running) = self.running.get_mut(&token) else { return };
        let held = Held { id: running.message.id, token };
        let then = match outcome {
            Outcome::Done => None,
            Outcome::Later => Some(Then::Later(None)),
            Outcome::GivenBack => Some(Then::GiveBack),
            Outcome::Retry | Outcome::Stale | Outcome::Left => Some(Then::Retry),
        };
        let request = match then {
            None => Request::Ack(Ack { held, result: ended.and_then(|ended| ended.output) }),
            Some(then) => {
                let reason = short(reason.as_deref().unwrap_or_default());
                Request::Fail(Fail { held, reason, then })
            }
        };
        running.fate = Fate::Settling(outcome, reason);
        drop(self.keeper.send(Job::Settle(held, request)));
    }

    /// It is somebody else's by now: its handler is ended, and nothing is settled.
    fn stale(&mut self, token: Token) {
        let Some(running) = self.running.get_mut(&token) else { return };
        match &mut running.fate {
            Fate::Open => {
                self.handlers.end(running.process, token);
                running.fate = Fate::Ending(Outcome::Stale, Ending::default());
            }
            Fate::Ending(outcome, _) => *outcome = Outcome::Stale,
            Fate::Settling(..) => {}
        }
    }

    fn settled(&mut self, token: Token, settled: Result<(), Refusal>) {
        let Some(Running { fate: Fate::Settling(outcome, reason), .. }) = self.running.get(&token) else {
            return;
        };
        let (outcome, reason) = (*outcome, reason.clone());
        match settled {
            Ok(()) => self.over(token, (outcome, reason.as_deref())),
            Err(refusal) => {
                if !is_lost(&refusal) {
                    out::note(&format!("poolctl: not settled: {}", escape::line(&refusal.message)));
                }
                self.over(token, (Outcome::Stale, Some(&refusal.message)));
            }
        }
    }

    /// Says what became of it. Where nobody reads that any more, this ends.
    fn over(&mut self, token: Token, (outcome, reason): (Outcome, Option<&str>)) {
        let Some(running) = self.running.remove(&token) else { return };
        let took = running.began.elapsed();
        if let Err(error) = report::print(self.context, &running.message, (outcome, reason), took) {
            self.fail(error);
        }
    }
}

/// As much of a reason as the pool takes.
fn short(reason: &str) -> String {
    let fits = reason.char_indices().take_while(|(at, c)| at + c.len_utf8() <= REASON_MAX);
    fits.map(|(_, c)| c).collect()
}
