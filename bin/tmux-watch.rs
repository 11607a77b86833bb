//! `tmux-watch`: looks at tmux and the processes in it, and streams what changed to `poold`.

mod shared;
#[path = "shared/watching.rs"]
mod watching;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use protocol::socket::Paths;

/// Watch tmux for the pool
#[derive(Parser)]
#[command(name = "tmux-watch", version)]
struct Args {
    #[command(flatten)]
    common: shared::Common,
    /// Print snapshot and changes as JSON lines; needs no pool
    #[arg(long)]
    print: bool,
    /// With --print: the tmux socket, where it is not the pool's own
    #[arg(long, requires = "print")]
    tmux_socket: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    args.common.start();
    shared::exit(run(&args), |_| 1)
}

fn run(args: &Args) -> anyhow::Result<()> {
    let paths = Paths::new(&args.common.env())?;
    if args.print {
        let socket = args.tmux_socket.clone().unwrap_or(paths.tmux_socket);
        return watching::until_signal(async |told| {
            watch::print(tmux::Device::new("tmux", socket), std::io::stdout(), told).await
        });
    }
    let build = concat!("tmux-watch ", env!("CARGO_PKG_VERSION")).to_owned();
    let options = watch::Options { socket: paths.socket, pool: paths.pool.to_string(), build };
    watching::until_signal(async |told| watch::run(options, told).await)
}
