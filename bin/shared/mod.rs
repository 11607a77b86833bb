//! What the three daemons' mains share.
#![expect(dead_code, reason = "each main uses its part")]

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use protocol::socket::{Env, PathError, Paths};
use tracing_subscriber::EnvFilter;

/// Which pool is meant, and how much is said.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// The pool [env: POOL_NAME] [default: default]
    #[arg(long, value_name = "NAME")]
    pool: Option<OsString>,
    /// Where poold listens [env: POOL_SOCKET]
    #[arg(long, value_name = "PATH", value_parser = absolute)]
    socket: Option<PathBuf>,
    /// Say more on standard error [env: POOL_LOG]; twice, everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

impl Common {
    /// The variables that decide on paths.
    pub(crate) fn env(&self) -> Env {
        let environment = Env::from_environment();
        Env {
            pool: self.pool.clone().or(environment.pool),
            socket: self.socket.clone().map(PathBuf::into_os_string).or(environment.socket),
            ..environment
        }
    }

    /// Where `poold` listens, and its pool.
    pub(crate) fn poold(&self) -> Result<(PathBuf, String), PathError> {
        Paths::new(&self.env()).map(|paths| (paths.socket, paths.pool.to_string()))
    }

    /// Where the pool's own tmux server listens.
    pub(crate) fn tmux_socket(&self) -> Result<PathBuf, PathError> {
        Paths::new(&self.env()).map(|paths| paths.tmux_socket)
    }

    /// Log lines to standard error, by `-v` or `POOL_LOG`; a panic is logged and ends the process.
    fn start(&self) {
        let level = ["info", "debug", "trace"][usize::from(self.verbose.min(2))];
        let filter = EnvFilter::try_from_env("POOL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
        let ansi = std::io::stderr().is_terminal();
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
        std::panic::set_hook(Box::new(|panic| {
            tracing::error!(%panic, backtrace = %std::backtrace::Backtrace::force_capture(), "panic");
            std::process::abort();
        }));
        // Without paths nothing runs, and that is said later.
        if let Ok(paths) = Paths::new(&self.env())
            && let Err(error) = process::logfile::keep_short(paths.log(env!("CARGO_BIN_NAME")))
        {
            tracing::warn!(%error, "the log is not kept short");
        }
    }
}

/// The command line, once the log is open.
pub(crate) fn start<A: Parser>(common: impl FnOnce(&A) -> &Common) -> A {
    let args = A::parse();
    common(&args).start();
    args
}

/// The whole of a main whose every failure is 1.
pub(crate) fn main<A: Parser>(
    common: impl FnOnce(&A) -> &Common,
    run: impl FnOnce(A) -> anyhow::Result<()>,
) -> ExitCode {
    exit(run(start(common)), |_| 1)
}

/// Logs why it ends, if there is a reason.
pub(crate) fn exit<E: Display>(result: Result<(), E>, code: impl FnOnce(&E) -> u8) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    tracing::error!("{error:#}");
    ExitCode::from(code(&error))
}

/// Prints what there is to say; what is wrong with a configuration is a matter of usage, 2.
pub(crate) fn say(said: Result<String, String>) -> ExitCode {
    say_or(said, |_| 2)
}

/// Prints what there is to say, or why there is nothing: to a person who asked, so it is no line of a log.
pub(crate) fn say_or<E: Display>(said: Result<String, E>, code: impl FnOnce(&E) -> u8) -> ExitCode {
    let text = match said {
        Ok(text) => text,
        Err(error) => {
            // Where standard error is closed, the code alone tells.
            writeln!(std::io::stderr(), "{}: {error:#}", env!("CARGO_BIN_NAME")).ok();
            return ExitCode::from(code(&error));
        }
    };
    exit(writeln!(std::io::stdout(), "{}", text.trim_end()), |_| 1)
}
