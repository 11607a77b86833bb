//! `feed`: acts as the watcher, with observations from standard input.

mod input;
mod lines;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use protocol::blocking::Connection;
use protocol::reply::WatcherCommand;
use protocol::request::Observe;
use protocol::{Frame, Reply, Request, Response, Role, TransportError};
use serde_json::json;

use crate::follow::arrived;
use crate::show::{out, time};
use crate::{Context, Error, poll};
use input::Input;
use lines::Lines;

/// Maximal number of unanswered observations.
const UNANSWERED_MAX: usize = 4;

/// Act as the watcher: send observations from standard input, as JSON lines
///
/// A line is what `poolctl watch --print` and `tmux-watch --print` print:
///   {"watcher":7,"seq":1,"asked":0,"age_ms":0,"complete":true,"view":{"diff":[…]}}
/// "sent_at_ms", milliseconds awake since the boot, tells how long the line was under way: leave it
/// out of lines that were recorded.
/// Everything but the view may be left out, and the view may stand alone:
///   {"snapshot":{"server":…,"sessions":{…},"panes":{…}}}
///   {"diff":[{"session_gone":"$3"},…]}
///   "unchanged"
///   "alive"
///
/// Requests of poold are printed, one per line: {"ask":{"snapshot":{"n":3}}} asks for a snapshot
/// taken from now on, answered like {"asked":3,"snapshot":{…}}, and {"ask":"snapshot"} for any
/// snapshot, after a gap.
///
/// It ends, and leaves poold without a watcher, when standard input ends and all is answered.
/// Only these lines are sent: poold takes a watcher that is silent for some seconds for dead,
/// so send "alive" lines. After an invalid line nothing is sent, and the exit code is 2.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Replace a connected watcher, which is a conflict otherwise
    #[arg(long)]
    take_over: bool,
}

/// Sends lines until the end of standard input.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
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
    /// The observations of the last line that are not sent yet.
    ready: VecDeque<Observe>,
    /// The defect of an invalid line.
    bad: Option<Error>,
    unanswered: usize,
    /// The time of the last answer, or of the first unanswered observation.
    answered_at: Instant,
    /// Time limit for an answer.
    limit: Option<Duration>,
}

impl Feed {
    fn run(mut self) -> Result<(), Error> {
        loop {
            while self.unanswered < UNANSWERED_MAX
                && let Some(observe) = self.next()
            {
                self.send(observe)?;
            }
            // Everything is answered, so everything that was read is sent.
            if self.unanswered == 0 && (self.bad.is_some() || self.input.is_over()) {
                return self.bad.map_or_else(|| self.input.finish(), Err);
            }
            self.wait()?;
        }
    }

    /// The next observation, if one has arrived.
    fn next(&mut self) -> Option<Observe> {
        while self.ready.is_empty() && self.bad.is_none() {
            let (number, line) = self.input.next()?;
            match self.lines.parse(&line) {
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

    /// The reason for which the connection was lost: a frame before its end may name it.
    fn lost(&mut self, error: TransportError) -> Error {
        while let Ok(frame) = self.connection.next_frame() {
            if let Err(error) = self.take(frame) {
                return error;
            }
        }
        error.refusal().into()
    }

    /// Waits for a frame of `poold`, or for a line.
    fn wait(&mut self) -> Result<(), Error> {
        if let Some(frame) = arrived(&mut self.connection).map_err(transport)? {
            return self.take(frame);
        }
        let reads = self.unanswered < UNANSWERED_MAX && self.bad.is_none() && !self.input.is_over();
        let mut fds = vec![PollFd::new(self.connection.as_fd(), PollFlags::POLLIN)];
        if reads {
            fds.push(PollFd::new(self.input.as_fd(), PollFlags::POLLIN));
        }
        let left = self.limit.filter(|_| self.unanswered > 0);
        let left = left.map(|limit| limit.saturating_sub(self.answered_at.elapsed()));
        poll::wait(&mut fds, left)?;
        let ready = |fd: &PollFd<'_>| poll::has(fd, PollFlags::all());
        let (answers, more) = (ready(&fds[0]), fds.get(1).is_some_and(ready));
        if answers {
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
                    "poold has not answered for {waited}; what was sent may have been applied"
                )))
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), Error> {
        match frame {
            Frame::Reply { reply, .. } => self.answer(reply),
            Frame::Command(ask @ WatcherCommand::Snapshot { .. }) => out::json(&json!({ "ask": ask })),
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
