//! The command line of `tmux-watch`.

use crate::shared;

/// Watch tmux for the pool
#[derive(clap::Parser)]
#[command(name = "tmux-watch", version)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: shared::Common,
    /// Replace the connected watcher
    #[arg(long, conflicts_with = "print")]
    pub(crate) take_over: bool,
    /// How to learn of changes (native, control, listings), instead of the best way that works
    #[arg(long = "means", value_name = "MEANS")]
    pub(crate) transport: Option<protocol::tmux::TmuxTransport>,
    /// Print the observations as JSON lines, without a pool
    #[arg(long)]
    pub(crate) print: bool,
    /// With --print: the tmux socket, if it is not the pool's own
    #[arg(short = 'S', long, requires = "print", value_parser = shared::absolute)]
    pub(crate) tmux_socket: Option<std::path::PathBuf>,
}
