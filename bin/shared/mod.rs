//! Command line, logging and exit codes shared by the mains of the three daemons.
#![expect(dead_code, reason = "each main uses its part")]

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use process::runtime::containment::is_contained;
use process::runtime::terminal::takes_colours;
use protocol::Paths;
use protocol::paths::{Env, PathError};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Options for the pool and the log level.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// The pool [env: POOL_NAME] [default: default]
    #[arg(long, value_name = "NAME")]
    pool: Option<OsString>,
    /// poold's socket [env: POOL_SOCKET]
    #[arg(long, value_name = "PATH", value_parser = absolute)]
    socket: Option<PathBuf>,
    /// Log more to standard error [env: POOL_LOG]; twice, everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

pub(crate) fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

impl Common {
    /// Environment that determines the paths, with the options applied.
    pub(crate) fn env(&self) -> Env {
        let environment = Env::from_environment();
        Env {
            pool: self.pool.clone().or(environment.pool),
            socket: self.socket.clone().map(PathBuf::into_os_string).or(environment.socket),
            ..environment
        }
    }

    /// Path of `poold`'s socket, and name of its pool.
    pub(crate) fn poold(&self) -> Result<(PathBuf, String), PathError> {
        Paths::new(&self.env()).map(|paths| (paths.socket, paths.pool.to_string()))
    }

    /// Path of the socket of the pool's own tmux server.
    pub(crate) fn tmux_socket(&self) -> Result<PathBuf, PathError> {
        Paths::new(&self.env()).map(|paths| paths.tmux_socket)
    }

    /// Starts logging to standard error, at the level of `-v` or `POOL_LOG`. A line that cannot be written, on a full
    /// disk for instance, is lost. A panic is logged, and aborts the process unless it is contained.
    fn start(&self) {
        let level = ["info", "debug", "trace"][usize::from(self.verbose.min(2))];
        let given = std::env::var("POOL_LOG").ok().filter(|given| !given.is_empty());
        let filter = given.as_deref().and_then(log_filter);
        let is_wrong = given.is_some() && filter.is_none();
        let ansi = std::io::stderr().is_terminal() && takes_colours();
        let filter = filter.unwrap_or_else(|| EnvFilter::new(level));
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        // It would report the failure of a write to standard error, which panics if that cannot be written.
        log.with_ansi(ansi).log_internal_errors(false).init();
        std::panic::set_hook(Box::new(|panic| {
            tracing::error!(%panic, backtrace = %std::backtrace::Backtrace::force_capture(), "panic");
            if !is_contained() {
                std::process::abort();
            }
        }));
        if is_wrong {
            tracing::warn!(
                ?given,
                "POOL_LOG is ignored: it is neither a level (error, warn, info, debug, trace) nor PART=LEVEL"
            );
        }
        // Without paths nothing runs; `run` reports that.
        if let Ok(paths) = Paths::new(&self.env())
            && let Err(error) = process::runtime::logfile::start_rotation(paths.log(env!("CARGO_BIN_NAME")))
        {
            tracing::warn!(%error, "the log cannot be truncated");
        }
    }
}

/// Returns the filter for a level, or several for parts of the program (`poold=debug,info`); `None` if it is none: a
/// mistyped level would be taken for a part, and nothing else be logged.
fn log_filter(given: &str) -> Option<EnvFilter> {
    let words: Vec<&str> = given.split(',').map(str::trim).collect();
    let is_level = |word: &&str| word.contains('=') || word.parse::<LevelFilter>().is_ok();
    words.iter().all(is_level).then(|| words.join(",").parse().ok())?
}

/// Parses the command line and starts logging.
pub(crate) fn start<A: Parser>(common: impl FnOnce(&A) -> &Common) -> A {
    process::runtime::descriptors::keep_from_children();
    let args = A::parse();
    common(&args).start();
    args
}

/// Runs a main whose every failure exits with 1, but for wrong paths and names, which are of usage.
pub(crate) fn main<A: Parser>(
    common: impl FnOnce(&A) -> &Common,
    run: impl FnOnce(A) -> anyhow::Result<()>,
) -> ExitCode {
    exit(run(start(common)), |error: &anyhow::Error| if error.is::<PathError>() { 2 } else { 1 })
}

/// Logs the error, if any, and returns its exit code.
pub(crate) fn exit<E: Display>(result: Result<(), E>, code: impl FnOnce(&E) -> u8) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    tracing::error!("{error:#}");
    ExitCode::from(code(&error))
}

/// Prints a result; an error is one of usage, exit code 2.
pub(crate) fn print(text: Result<String, String>) -> ExitCode {
    print_or(text, |_| 2)
}

/// Prints a result, or its error to standard error, without log format: a person asked for it.
pub(crate) fn print_or<E: Display>(text: Result<String, E>, code: impl FnOnce(&E) -> u8) -> ExitCode {
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            // If standard error is closed, the exit code alone tells.
            writeln!(std::io::stderr(), "{}: {error:#}", env!("CARGO_BIN_NAME")).ok();
            return ExitCode::from(code(&error));
        }
    };
    exit(writeln!(std::io::stdout(), "{}", text.trim_end()), |_| 1)
}
