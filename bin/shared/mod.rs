//! What the three daemons' mains share.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::IsTerminal;
use std::process::ExitCode;

use protocol::socket::Env;
use tracing_subscriber::EnvFilter;

/// Which pool is meant, and how much is said.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// The pool's name
    #[arg(long, env = "POOL_NAME")]
    pool: Option<OsString>,
    /// Where poold listens
    #[arg(long, env = "POOL_SOCKET")]
    socket: Option<OsString>,
    /// Say more; twice, everything
    #[arg(short, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Common {
    /// The variables that decide on paths.
    pub(crate) fn env(&self) -> Env {
        let environment = Env::from_environment();
        Env { pool: self.pool.clone(), socket: self.socket.clone(), ..environment }
    }

    /// Log lines to standard error, by `-v` or `POOL_LOG`; a panic is logged and ends the process.
    pub(crate) fn start(&self) {
        let level = ["info", "debug", "trace"][usize::from(self.verbose.min(2))];
        let filter = EnvFilter::try_from_env("POOL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
        let ansi = std::io::stderr().is_terminal();
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
        std::panic::set_hook(Box::new(|panic| {
            tracing::error!(%panic, backtrace = %std::backtrace::Backtrace::force_capture(), "panic");
            std::process::abort();
        }));
    }
}

/// Logs why it ends, if there is a reason.
pub(crate) fn exit<E: Display>(result: Result<(), E>, code: impl FnOnce(&E) -> u8) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    tracing::error!("{error:#}");
    ExitCode::from(code(&error))
}
