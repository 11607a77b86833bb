//! The handlers: how one is started, fed, waited for and ended.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use process::dependent::spawn_dependent;
use process::identity;
use process::kill::{self, Options};
use process::tree::Evidence;
use protocol::socket::Paths;
use protocol::{Claimed, Message, OsBytes, ProcId, SessionId, Tag, Token};

use super::pipes::{self, Span};
use super::{Args, Event};
use crate::context::Context;
use crate::show::escape;
use crate::show::time::rfc3339;

/// Time between TERM and KILL for a handler that is ended.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// Time after KILL in which all that descends from it is to be gone.
pub(super) const VERIFY: Duration = Duration::from_secs(5);
/// What a handler exits with to be tried later (`EX_TEMPFAIL` of sysexits.h).
const LATER: i32 = 75;

/// How a handler ended.
pub(super) struct Ended {
    status: io::Result<ExitStatus>,
    /// What it printed, where that is kept.
    pub output: Option<OsBytes>,
}

/// What the end of a handler says about its message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is worked.
    Done,
    /// It is to be tried later.
    Later,
    /// It failed, for this reason.
    Failed(String),
}

impl Ended {
    /// What it says.
    pub(super) fn verdict(&self) -> Verdict {
        let status = match &self.status {
            Ok(status) => status,
            Err(error) => return Verdict::Failed(format!("its end was not seen: {error}")),
        };
        match (status.code(), status.signal()) {
            (Some(0), _) => Verdict::Done,
            (Some(LATER), _) => Verdict::Later,
            (Some(code), _) => Verdict::Failed(format!("exit {code}")),
            (None, Some(signal)) => Verdict::Failed(format!("killed by signal {signal}")),
            (None, None) => Verdict::Failed("it ended in an unknown way".into()),
        }
    }
}

/// How handlers are run.
pub(super) struct Handlers {
    argv: Vec<OsString>,
    keeps_output: bool,
    /// Standard output is for documents alone.
    json: bool,
    session: SessionId,
    paths: Paths,
    events: Sender<Event>,
}

impl Handlers {
    /// Those that this command line asks for.
    pub(super) fn new(context: &Context, args: &Args, session: SessionId, events: Sender<Event>) -> Self {
        Self {
            argv: args.handler.clone(),
            keeps_output: args.result,
            json: context.style.json,
            session,
            paths: context.paths.clone(),
            events,
        }
    }

    /// Starts one for a message. Its end is an [`Event::Ended`]. It is killed when this thread ends.
    ///
    /// # Errors
    /// It cannot be executed.
    pub(super) fn start(&self, claimed: &Claimed, token: Token) -> io::Result<Option<ProcId>> {
        let (over, running) = io::pipe()?;
        let spans = [Span::new(over.try_clone()?), Span::new(over)];
        let mut child = spawn_dependent(self.command(&claimed.message, token)?)?;
        // Nobody has waited for it yet, so the number is its own.
        let process = identity::identify(child.id()).unwrap_or_default();
        let [fed, read] = spans;
        if let Some(stdin) = child.stdin.take() {
            let body = claimed.body.0.clone();
            thread::spawn(move || pipes::feed(stdin, &body, fed));
        }
        let output = child.stdout.take().map(|stdout| thread::spawn(move || pipes::collect(stdout, read)));
        let events = self.events.clone();
        thread::spawn(move || {
            let status = child.wait();
            drop(running);
            let output = output.and_then(|output| output.join().ok()).map(OsBytes);
            drop(events.send(Event::Ended(token, Ended { status, output })));
        });
        Ok(process)
    }

    /// Ends one and all that descends from it, in the background. What came of it is an [`Event::Killed`], its own
    /// end is told as any other.
    pub(super) fn end(&self, process: Option<ProcId>, token: Token) {
        let socket = Some(self.paths.socket.clone());
        let evidence = Evidence { init: process, sid: None, tag: Tag::of(token), cgroup: None, socket };
        let options = Options { grace: GRACE, verify: VERIFY, init_stands_by: false, ..Options::default() };
        let events = self.events.clone();
        thread::spawn(move || {
            let left = match kill::kill(&evidence, &options) {
                Ok(report) => {
                    let left = report.survivors.len() + report.foreign.len();
                    (left > 0).then(|| format!("{left} of its processes live on"))
                }
                Err(error) => Some(format!("its processes may live on: {error}")),
            };
            drop(events.send(Event::Killed(token, left)));
        });
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
        command.env("POOL_SESSION", self.session.to_string()).env("POOL_NAME", self.paths.pool.as_str());
        command.env("POOL_SOCKET", &self.paths.socket);
        // The lock under which this was started is this one's alone, and may end before.
        command.env_remove("POOL_LOCK_TOKEN").env_remove("POOL_LOCK_SESSION");
        // What descends from it is found by this, whatever becomes of its parents.
        command.env("POOL_INCARNATION", Tag::of(token).to_string());
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

/// A variable cannot have a NUL: one that has is passed as it is shown.
fn passable(value: String) -> String {
    if value.contains('\0') { escape::line(&value) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_it_ends_is_the_verdict() {
        let verdict = |raw| Ended { status: Ok(ExitStatus::from_raw(raw)), output: None }.verdict();
        assert_eq!(verdict(0), Verdict::Done);
        assert_eq!(verdict(75 << 8), Verdict::Later);
        assert_eq!(verdict(3 << 8), Verdict::Failed("exit 3".into()));
        assert_eq!(verdict(9), Verdict::Failed("killed by signal 9".into()));
    }
}
