//! The log of the program's standard error, if it is kept apart from the terminal: a thread copies it from a pipe, as
//! the log writer of a pane does. The thread is started after the fork, which needs a single-threaded process.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use protocol::job::Job;

use super::exit_status::print_message;
use crate::log_writer::{self, WriterOptions};

/// Time for the rest to be written once the tree is gone. Only a daemon that outlives the session keeps the
/// pipe open longer; what that writes then is lost.
const FINISH_LIMIT: Duration = Duration::from_secs(2);

/// The thread at work: its channel ends with it.
pub(super) struct Writing(Receiver<()>);

/// Starts to copy from the pipe, if there is one. If that fails, the program writes to a closed pipe, which is better
/// than a full one that nobody reads.
pub(super) fn start(job: &Job, pipe: Option<OwnedFd>) -> Option<Writing> {
    let (log, pipe) = (job.stderr.as_ref()?, pipe?);
    let options = WriterOptions {
        dir: log.dir.as_path().to_owned(),
        tag: Some(job.tag),
        max_size: log.max_size,
        keep: log.keep,
        compress: log.compress,
        resumed: false,
    };
    let (sender, ended) = channel::<()>();
    let write = move || {
        if let Err(error) = log_writer::write_from(File::from(pipe), &options) {
            print_message(&format!("the standard error of the program is not logged: {error}"));
        }
        drop(sender);
    };
    match thread::Builder::new().spawn(write) {
        Ok(_) => Some(Writing(ended)),
        Err(error) => {
            print_message(&format!("the standard error of the program is not logged: {error}"));
            None
        }
    }
}

/// Waits until everything is written, for a bounded time.
pub(super) fn finish(writing: Option<Writing>) {
    if let Some(Writing(ended)) = writing {
        // The channel ends when the writing thread drops its sender.
        let _ended = ended.recv_timeout(FINISH_LIMIT);
    }
}
