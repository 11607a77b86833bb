//! What `reaper` is within a session. It comes before anything else: nothing of it needs the rest,
//! and each session pays for what it loads.

use std::path::Path;
use std::process::ExitCode;

use process::init::{self, End};
use process::log_writer::{self, Options};

/// The session's init or its log writer, where the command line asks for one.
pub(crate) fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let (verb, path) = (words.next()?, words.next()?);
    match verb.to_str()? {
        "exec" => Some(end(init::exec(Path::new(&path)))),
        "log" => {
            let written = log_writer::write_log(&Options::parse(path, words));
            Some(written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
        }
        _ => None,
    }
}

/// Ends as the program ended.
fn end(end: End) -> ExitCode {
    match end {
        End::Code(code) => ExitCode::from(code),
        End::Signal(signal) => {
            init::resignal(signal);
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
    }
}
