//! Starts handlers, feeds and waits for them, and ends them.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use process::identity;
use process::kill::{self, KillOptions};
use process::runtime::dependent::spawn_dependent;
use process::tree::Evidence;
use protocol::{Backoff, Claimed, Message, OsBytes, Paths, ProcId, Tag, Token};

use super::args::Args;
use super::event::WorkEvent;
use super::handler_exit::HandlerExit;
use super::pipes::{self, ServiceTime};
use crate::show::escape;
use crate::show::time::rfc3339;
use crate::{Context, threads};

/// Time between TERM and KILL for a handler that is ended.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// Time limit after KILL for the end of all descendants of the handler.
pub(super) const VERIFY: Duration = Duration::from_secs(5);

/// Errors of a start that pass: too many processes or open files, too little memory, a program that is being written.
const SHORTAGES: [Errno; 5] = [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE, Errno::ETXTBSY];

/// Maximum number of such failures in a row. Their pauses, from 1 s to 60 s, take about three minutes.
const SHORTAGES_MAX: u32 = 8;

/// Failed starts of handlers in a row, for lack of something that the system has again later.
pub(super) struct Shortage {
    /// Nothing is claimed before this time.
    pub until: Option<Instant>,
    pauses: Backoff,
    count: u32,
}

impl Default for Shortage {
    fn default() -> Self {
        Self { until: None, pauses: Backoff::new(Duration::from_secs(1), Duration::from_secs(60)), count: 0 }
    }
}

impl Shortage {
    /// Begins a pause after a failed start. Returns false if the failure does not pass, or has lasted for about three
    /// minutes.
    pub(super) fn pauses_after(&mut self, error: &io::Error) -> bool {
        let passes =
            error.raw_os_error().map(Errno::from_raw).is_some_and(|errno| SHORTAGES.contains(&errno));
        self.count += 1;
        self.until = Some(Instant::now() + self.pauses.pause());
        passes && self.count <= SHORTAGES_MAX
    }

    /// True after the first of them.
    pub(super) fn is_new(&self) -> bool {
        self.count == 1
    }
}

/// The settings with which handlers are run.
pub(super) struct HandlerRunner {
    argv: Vec<OsString>,
    keeps_output: bool,
    /// True if standard output is for JSON documents only.
    json: bool,
    paths: Paths,
    events: Sender<WorkEvent>,
}

impl HandlerRunner {
    /// The settings of this command line.
    pub(super) fn new(context: &Context, args: &Args, events: Sender<WorkEvent>) -> Self {
        Self {
            argv: args.handler.clone(),
            keeps_output: args.result,
            json: context.style.json,
            paths: context.paths.clone(),
            events,
        }
    }

    /// Starts the handler of a message. Its end is a [`WorkEvent::Ended`]. It is killed if the calling thread
    /// ends.
    pub(super) fn start(&self, claimed: &Claimed, token: Token) -> io::Result<Option<ProcId>> {
        let (ended, running) = io::pipe()?;
        let times = [ServiceTime::new(ended.try_clone()?), ServiceTime::new(ended)];
        let [fed, read] = times;
        let (body, events) = (claimed.body.0.clone(), self.events.clone());
        let (stdins, _) = threads::prepare(move |stdin| pipes::feed(stdin, &body, fed))?;
        let (stdouts, output) = threads::prepare(move |stdout| pipes::collect(stdout, read))?;
        let (children, _) = threads::prepare(move |mut child: Child| {
            let status = child.wait();
            drop(running);
            let output = output.join().ok().flatten().map(OsBytes);
            drop(events.send(WorkEvent::Ended(token, HandlerExit { status, output })));
        })?;
        let mut child = spawn_dependent(self.command(&claimed.message, token)?)?;
        // The child is not waited for yet, so no other process can have its id.
        let process = identity::identify(child.id()).unwrap_or_default();
        // Each thread gets the pipe, or the child, that it was started for.
        child.stdin.take().map(|stdin| stdins.send(stdin).ok());
        child.stdout.take().map(|stdout| stdouts.send(stdout).ok());
        drop((stdouts, children.send(child)));
        Ok(process)
    }

    /// Ends a handler and all of its descendants, in another thread. The result is a [`WorkEvent::Killed`];
    /// the handler's own end is reported as usual.
    pub(super) fn end(&self, process: Option<ProcId>, token: Token) {
        let socket = Some(self.paths.socket.clone());
        let evidence =
            Evidence { init: process, sid: None, tag: Tag::for_claim(token), cgroup: None, socket };
        let options =
            KillOptions { grace: GRACE, verify: VERIFY, init_exits_last: false, ..KillOptions::default() };
        let (events, unstarted) = (self.events.clone(), self.events.clone());
        let ending = threads::start(move || {
            let left = match kill::kill(&evidence, &options) {
                Ok(report) => {
                    let left = report.survivors.len() + report.foreign.len();
                    (left > 0).then(|| format!("{left} of its processes are still alive"))
                }
                Err(error) => Some(format!("its processes may still be alive: {error}")),
            };
            drop(events.send(WorkEvent::Killed(token, left)));
        });
        if let Err(error) = ending {
            let left = Some(format!("its processes are still alive: {error}"));
            drop(unstarted.send(WorkEvent::Killed(token, left)));
        }
    }

    fn command(&self, message: &Message, token: Token) -> io::Result<Command> {
        let [program, args @ ..] = self.argv.as_slice() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped());
        if self.keeps_output {
            command.stdout(Stdio::piped());
        } else if self.json {
            command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
        }
        for (name, value) in variables(message, token) {
            match value {
                Some(value) => command.env(name, passable(value)),
                None => command.env_remove(name),
            };
        }
        command.env("POOL_SESSION", message.session.to_string()).envs(self.paths.variables());
        // The lock under which the worker was started is not passed on: it may end before the handler.
        command.env_remove("POOL_LOCK_TOKEN").env_remove("POOL_LOCK_SESSION");
        // By this tag its descendants are found, even after the end of their parents.
        command.env("POOL_INCARNATION", Tag::for_claim(token).to_string());
        Ok(command)
    }
}

fn variables(message: &Message, token: Token) -> [(&'static str, Option<String>); 8] {
    [
        ("POOL_MESSAGE_ID", Some(message.id.to_string())),
        ("POOL_MESSAGE_KIND", Some(message.kind.clone())),
        ("POOL_MESSAGE_KEY", message.key.clone()),
        ("POOL_MESSAGE_ORIGIN", Some(message.origin.clone())),
        ("POOL_MESSAGE_ATTEMPT", Some(message.status.attempts.to_string())),
        ("POOL_MESSAGE_MAX_ATTEMPTS", Some(message.max_attempts.to_string())),
        ("POOL_MESSAGE_TOKEN", Some(token.to_string())),
        ("POOL_MESSAGE_CREATED_AT", Some(rfc3339(message.created_at))),
    ]
}

/// Escapes a value with a NUL, which a variable cannot contain.
fn passable(value: String) -> String {
    if value.contains('\0') { escape::line(&value) } else { value }
}
