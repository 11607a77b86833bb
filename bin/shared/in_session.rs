//! Roles of `reaper` within a session, as its init and as its log writer. Checked before anything else is
//! set up, because each session pays for what it loads.

#[path = "panics.rs"]
mod panics;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use process::init::{self, InitExit};
use process::log_writer::{self, WriterOptions};

/// Runs the init or the log writer, if the command line asks for one.
pub(crate) fn run() -> Option<ExitCode> {
    panics::set_abort_hook();
    let mut words = std::env::args_os().skip(1);
    let (verb, path) = (words.next()?, words.next()?);
    match verb.to_str()? {
        "exec" | "log" if path.as_encoded_bytes().starts_with(b"-") => Some(usage(&path)),
        "exec" => Some(end(init::exec(Path::new(&path)))),
        "log" => {
            let written = log_writer::write_log(&WriterOptions::parse(path, words));
            Some(written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
        }
        _ => None,
    }
}

/// Answers a person who calls a role by hand: an option is never taken for a path, which would be created.
fn usage(option: &OsStr) -> ExitCode {
    let text = "Usage: reaper exec JOB_FILE | reaper log DIR [OPTIONS]\n\
                These roles are run by a session itself, not by hand. See: reaper --help";
    if option == "--help" || option == "-h" {
        return match writeln!(io::stdout(), "{text}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    drop(writeln!(io::stderr(), "{text}"));
    ExitCode::from(2)
}

/// Exits as the program did.
fn end(end: InitExit) -> ExitCode {
    match end {
        InitExit::Code(code) => ExitCode::from(code),
        InitExit::Signal(signal) => {
            init::resignal(signal);
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
    }
}
