//! The arguments of `work`.

use std::ffi::OsString;
use std::time::Duration;

use crate::args::{kind, pair};
use crate::show::time;

/// Work the messages of sessions: run a handler for each
///
/// The handler gets the body on standard input, and in its environment POOL_MESSAGE_ID, _KIND, _KEY, _ORIGIN,
/// _ATTEMPT, _MAX_ATTEMPTS, _TOKEN and _CREATED_AT, POOL_SESSION, POOL_NAME, POOL_SOCKET and POOL_STATE_DIR. Exit
/// 0 completes the message, 75 defers it, 65 gives it up (it is dead at once), anything else fails it, and it is
/// tried again. After the first Ctrl-C or TERM the running handlers finish; the second one ends them, and their
/// messages are returned to the queue, except those with a process that could not be ended.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sessions; of several, each gets its turn
    #[arg(value_name = "SESSION", required_unless_present_any = ["label", "agent", "all", "host"])]
    pub(super) sessions: Vec<String>,
    /// All sessions with this label instead, also later ones; of several, with all of them
    #[arg(long, value_name = "K=V", value_parser = pair, conflicts_with = "sessions")]
    pub(super) label: Vec<(String, String)>,
    /// All sessions with this kind of agent instead, also later ones
    #[arg(long, value_name = "KIND", conflicts_with = "sessions")]
    pub(super) agent: Option<String>,
    /// All sessions instead, also later ones
    #[arg(long, conflicts_with_all = ["sessions", "label", "agent"])]
    pub(super) all: bool,
    /// As the host of a worker of the pool, which starts it in the worker's session
    #[arg(long, hide = true, conflicts_with_all = ["sessions", "label", "agent", "all", "kind"])]
    pub(super) host: bool,
    /// Only messages of this kind; may be repeated: several are worked in the order of sending [default: all
    /// but prompt]
    #[arg(long, value_parser = kind)]
    pub(super) kind: Vec<String>,
    /// Handlers at a time; messages of one kind are worked one at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) concurrency: u32,
    /// Interval of heartbeats to the pool; at most a third of the lease [default: 15s]
    #[arg(long, value_name = "DUR", value_parser = time::parse_positive_duration)]
    pub(super) heartbeat: Option<Duration>,
    /// Lease: without a heartbeat for this long, the messages go to other workers; from 1s to 24h [default:
    /// from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_positive_duration)]
    pub(super) lease: Option<Duration>,
    /// Store the first 64 KiB of the handler's output as the message's result, instead of printing it
    #[arg(long)]
    pub(super) result: bool,
    /// End after one message
    #[arg(long)]
    pub(super) once: bool,
    /// End when no message of these kinds waits
    #[arg(long)]
    pub(super) until_empty: bool,
    /// End after this long without a message
    #[arg(long, value_name = "DUR", value_parser = time::parse_positive_duration, conflicts_with = "until_empty")]
    pub(super) idle_end: Option<Duration>,
    /// End a handler that runs for longer than this, and fail its attempt
    #[arg(long, value_name = "DUR", value_parser = time::parse_positive_duration)]
    pub(super) handler_timeout: Option<Duration>,
    /// The program and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "HANDLER")]
    pub(super) handler: Vec<OsString>,
}
