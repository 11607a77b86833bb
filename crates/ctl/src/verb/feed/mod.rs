//! `feed`: be the watcher from standard input.

mod input;
mod lines;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use protocol::blocking::Connection;
use protocol::reply::Ask;
use protocol::request::Observe;
use protocol::{Frame, Reply, Request, Response, Role, TransportError};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::follow::{arrived, has, wait};
use crate::show::{out, time};
use input::Input;
use lines::Lines;

/// The most observations that wait for their answers.
const ROOM: usize = 4;

/// Be the watcher: observations as JSON lines on standard input
///
/// A line is what `poolctl watch --print` and `tmux-watch --print` print:
///   {"watcher":7,"seq":1,"asked":0,"age_ms":0,"complete":true,"view":{"diff":[…]}}
/// All but the view may be left out, and the view may stand alone:
///   {"snapshot":{"server":…,"sessions":{…},"panes":{…}}}
///   {"diff":[{"session_gone":"$3"},…]}
///   "unchanged"
///   "alive"
///
/// What poold asks for is printed, a line each: {"ask":{"snapshot":{"n":3}}} wants a snapshot
/// taken from now on, answered like {"asked":3,"snapshot":{…}}, and {"ask":"snapshot"} any
/// snapshot, after a gap.
///
/// It ends, and poold has no watcher again, when standard input ends and all is answered.
/// Nothing is sent but these lines: a watcher that is silent for some seconds is taken for
/// dead, so send "alive" lines. A bad line ends it with 2, and nothing after it is sent.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Take the place of a watcher that is there; without it that is a conflict
    #[arg(long)]
    pub take_over: bool,
}

/// Feeds what comes until nothing does any more.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let role = if args.take_over { Role::NextWatcher } else { Role::Watcher };
    let limit = context.limit();
    let connection = context.client().connect(role, limit).map_err(|error| error.refusal())?;
    let feed = Feed {
        connection,
        input: Input::start()?,
        lines: Lines::new()?,
        ready: VecDeque::new(),
        bad: None,
        unanswered: 0,
        answered_at: Instant::now(),
        limit,
    };
    feed.run()
}

struct Feed {
    connection: Connection,
    input: Input,
    lines: Lines,
    /// What the last line said, as far as it is not sent.
    ready: VecDeque<Observe>,
    /// What is wrong with the line after which nothing is sent.
    bad: Option<Error>,
    unanswered: usize,
    /// When the last answer came, or that which is waited for was sent.
    answered_at: Instant,
    /// How long an answer may take.
    limit: Option<Duration>,
}

impl Feed {
    fn run(mut self) -> Result<u8, Error> {
        loop {
            while self.unanswered < ROOM
                && let Some(observe) = self.next()
            {
                self.send(observe)?;
            }
            // With nothing unanswered there was room for all that there is.
            if self.unanswered == 0 && (self.bad.is_some() || self.input.is_over()) {
                return self.bad.map_or_else(|| self.input.finish(), Err).map(|()| exit::OK);
            }
            self.hear()?;
        }
    }

    /// What is to be sent next, if it is there.
    fn next(&mut self) -> Option<Observe> {
        while self.ready.is_empty() && self.bad.is_none() {
            let (number, line) = self.input.next()?;
            match self.lines.take(&line) {
                Ok(observes) => self.ready = observes.into(),
                Err(why) => self.bad = Some(Error::usage(format!("line {number}: {why}"))),
            }
        }
        self.ready.pop_front()
    }

    fn send(&mut self, observe: Observe) -> Result<(), Error> {
        if self.unanswered == 0 {
            self.answered_at = Instant::now();
        }
        self.unanswered += 1;
        self.connection.set_timeout(self.limit);
        match self.connection.send(Request::Observe(observe)) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Why the connection is lost: what came before its end may say so.
    fn lost(&mut self, error: TransportError) -> Error {
        while let Ok(frame) = self.connection.next_frame() {
            if let Err(error) = self.take(frame) {
                return error;
            }
        }
        error.refusal().into()
    }

    /// Waits for more, be it from `poold` or to be sent.
    fn hear(&mut self) -> Result<(), Error> {
        if let Some(frame) = arrived(&mut self.connection).map_err(transport)? {
            return self.take(frame);
        }
        let reads = self.unanswered < ROOM && self.bad.is_none() && !self.input.is_over();
        let mut fds = vec![PollFd::new(self.connection.as_fd(), PollFlags::POLLIN)];
        if reads {
            fds.push(PollFd::new(self.input.as_fd(), PollFlags::POLLIN));
        }
        let left = self.limit.filter(|_| self.unanswered > 0);
        let left = left.map(|limit| limit.saturating_sub(self.answered_at.elapsed()));
        wait(&mut fds, left)?;
        let ready = |fd: &PollFd<'_>| has(fd, PollFlags::all());
        let (spoken, more) = (ready(&fds[0]), fds.get(1).is_some_and(ready));
        if spoken {
            self.connection.set_timeout(self.limit);
            let frame = self.connection.next_frame().map_err(transport)?;
            return self.take(frame);
        }
        if more {
            return self.input.read();
        }
        match left {
            Some(Duration::ZERO) => {
                let waited = time::short(self.answered_at.elapsed());
                Err(Error::timeout(format!(
                    "poold has not answered for {waited}; what was sent may be applied"
                )))
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), Error> {
        match frame {
            Frame::Reply { reply, .. } => self.answer(reply),
            Frame::Ask(ask @ Ask::Snapshot { .. }) => out::json(&json!({ "ask": ask })),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, reply: Reply) -> Result<(), Error> {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.answered_at = Instant::now();
        match reply? {
            Response::SendSnapshot => out::json(&json!({ "ask": "snapshot" })),
            _ => Ok(()),
        }
    }
}

fn transport(error: TransportError) -> Error {
    error.refusal().into()
}
