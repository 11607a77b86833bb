//! The output of the session that `run` shows, and the end of its program, for which it is shown.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

use protocol::reply::LogFiles;
use protocol::request::{Until, Wait};
use protocol::{ErrorCode, Request, SessionRef, SessionView, Tag, Timestamp};

use crate::client::ANSWER_MARGIN;
use crate::show::{escape, out, time};
use crate::tail::{CleanOutput, Sink, Tail};
use crate::{Client, Context, Error, expect_session, session_log, threads};
use logs::clean::{Cleaner, Mode};

/// The reason for which the end is not waited for any more.
pub(super) enum End {
    Exited(Box<SessionView>),
    /// By the user's second signal.
    Interrupted,
    /// The end cannot be waited for.
    Unknown(Error),
}

/// Receives the end; never an error, so that those of [`Tail::follow`] are of the output alone.
pub(super) type Ends = Receiver<Result<End, Error>>;

/// Sends the end of the session's program, from another thread.
pub(super) fn report_exit(
    context: &Context,
    session: &SessionRef,
    sender: &Sender<Result<End, Error>>,
    rm: bool,
) {
    let limit = context.waiting_limit();
    // poold reports the end of the time, with the state of the session, unless it hangs.
    let late = limit.map(|limit| limit + ANSWER_MARGIN);
    let (mut client, session, ends) = (Client::new(context, late), session.clone(), sender.clone());
    let began = Instant::now();
    let wait = move || {
        let wait =
            Wait { session: session.clone(), until: vec![Until::Exit], timeout_ms: limit.map(time::millis) };
        let view = client.ask(Request::Wait(wait)).and_then(expect_session);
        let view = view.map_err(|error| match (error.code(), limit) {
            (ErrorCode::Timeout, Some(limit)) if began.elapsed() < limit + ANSWER_MARGIN => {
                let later = if rm { "; it is removed when it ends" } else { "" };
                Error::timeout(format!("{session} has not ended within {limit:?}{later}"))
            }
            _ => error,
        });
        // The receiver is gone if streaming failed.
        drop(ends.send(Ok(view.map_or_else(End::Unknown, |view| End::Exited(Box::new(view))))));
    };
    if let Err(error) = threads::require(wait) {
        drop(sender.send(Ok(End::Unknown(error))));
    }
}

/// Waits for the end alone.
pub(super) fn wait(ends: &Ends) -> End {
    match ends.recv() {
        Ok(Ok(end)) => end,
        Ok(Err(error)) => End::Unknown(error),
        Err(_) => End::Unknown(Error::failed("the waiting thread ended")),
    }
}

/// The output of the session: from its terminal, and from its standard error if that is separate.
pub(super) struct Output {
    session: SessionRef,
    /// `None` once it cannot be read.
    tail: Option<Tail>,
    sink: CleanOutput,
    errors: Option<Errors>,
    /// False once some of it could not be read.
    is_shown: bool,
    /// Keeps poold from removing the session by itself before this command is done with it.
    _hold: Option<File>,
}

impl Output {
    /// The output of a session; for one that existed before, from this time on. Notes on standard error if it cannot
    /// be read.
    pub(super) fn new(
        context: &Context,
        client: &mut Client,
        session: &SessionRef,
        (separate_stderr, since): (bool, Option<Timestamp>),
    ) -> Self {
        let sink = CleanOutput::new(context.style.terminal);
        let files = session_log::files(client, session);
        let hold = files.as_ref().ok().and_then(|files| logs::hold(files.dir.as_path()));
        let session = session.clone();
        let mut output = Self { session, tail: None, sink, errors: None, is_shown: true, _hold: hold };
        match files {
            Ok(files) => {
                let errors = separate_stderr.then(|| follow_errors(&session_log::stderr_of(&files)));
                match errors.transpose() {
                    Ok(errors) => output.errors = errors,
                    Err(error) => output.tell_unread(&error),
                }
                let mut tail = Tail::new(&files);
                match since.map_or(Ok(()), |at| tail.skip_to_time(at)) {
                    Ok(()) => output.tail = Some(tail),
                    Err(error) => output.tell_unread(&error),
                }
            }
            Err(error) => output.tell_unread(&error),
        }
        output
    }

    /// Prints the output until the end. If it cannot be read, notes that on standard error and waits for the end
    /// without output, as the program runs on.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn follow(&mut self, ends: &Ends) -> Result<End, Error> {
        let Some(tail) = &mut self.tail else { return Ok(wait(ends)) };
        match tail.follow(&mut self.sink, ends) {
            Err(error) if !matches!(error, Error::Output(_)) => {
                self.tail = None;
                self.tell_unread(&error);
                Ok(wait(ends))
            }
            followed => followed,
        }
    }

    /// Prints what the session wrote before its end. Returns false if some of its output could not be read.
    ///
    /// # Errors
    /// Standard output, or standard error, cannot be written.
    pub(super) fn finish(&mut self, view: &SessionView, ends: &Ends) -> Result<bool, Error> {
        let tail = self.tail.as_mut();
        let rest = tail.map_or(Ok(None), |tail| tail.finish(&mut self.sink, view.session.tag(), ends));
        let errors = self.errors.take().map_or(Ok(()), |errors| errors.finish(view));
        if let Ok(Some(_)) = rest {
            out::note("poolctl: the rest of its output is not printed");
        }
        for finished in [rest.map(drop), errors] {
            match finished {
                Err(error) if !matches!(error, Error::Output(_)) => self.tell_unread(&error),
                finished => finished?,
            }
        }
        Ok(self.is_shown)
    }

    fn tell_unread(&mut self, error: &Error) {
        self.is_shown = false;
        let (why, id) = (escape::lines(&error.to_string()), &self.session);
        out::note(&format!(
            "poolctl: {why}; the rest of its output is not printed: `poolctl logs {id}`, while it is there"
        ));
    }
}

/// The thread that copies the session's standard error to that of this command.
struct Errors {
    end: Sender<Result<Option<Tag>, Error>>,
    thread: JoinHandle<Result<(), Error>>,
}

fn follow_errors(files: &LogFiles) -> Result<Errors, Error> {
    let (end, ends) = mpsc::channel();
    let (mut tail, terminal) = (Tail::new(files), std::io::stderr().is_terminal());
    let mut sink = ErrorOutput(Cleaner::new(if terminal { Mode::Safe } else { Mode::Plain }));
    let copy = move || {
        let run = tail.follow(&mut sink, &ends)?;
        tail.finish(&mut sink, run, &ends).map(drop)
    };
    Ok(Errors { end, thread: threads::require(copy)? })
}

impl Errors {
    /// Waits until everything is copied that the session wrote before its end.
    fn finish(self, view: &SessionView) -> Result<(), Error> {
        // The receiver is gone if copying failed.
        drop(self.end.send(Ok(view.session.tag())));
        self.thread.join().unwrap_or_else(|_| Err(Error::failed("a thread panicked")))
    }
}

/// Standard error, without control sequences.
struct ErrorOutput(Cleaner);

impl Sink for ErrorOutput {
    fn write(&mut self, _offset: u64, piece: &[u8]) -> Result<(), Error> {
        std::io::stderr().write_all(&self.0.clean(piece)).map_err(Error::Output)
    }
}
