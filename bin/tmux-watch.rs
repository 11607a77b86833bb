//! `tmux-watch`: looks at tmux and the processes in it, and streams what changed to `poold`.

mod shared;
#[path = "shared/watching.rs"]
mod watching;

/// Watch tmux for the pool
#[derive(clap::Parser)]
#[command(name = "tmux-watch", version)]
struct Args {
    #[command(flatten)]
    common: shared::Common,
    /// Print snapshot and changes as JSON lines; needs no pool
    #[arg(long)]
    print: bool,
    /// With --print: the tmux socket, where it is not the pool's own
    #[arg(long, requires = "print")]
    tmux_socket: Option<std::path::PathBuf>,
}

fn main() -> std::process::ExitCode {
    shared::main(|args: &Args| &args.common, run)
}

fn run(args: Args) -> anyhow::Result<()> {
    if args.print {
        let socket = args.tmux_socket.map_or_else(|| args.common.tmux_socket(), Ok)?;
        let device = tmux::Device::new("tmux", socket);
        return watching::until_signal(async |told| watch::print(device, std::io::stdout(), told).await);
    }
    let (socket, pool) = args.common.poold()?;
    let build = concat!("tmux-watch ", env!("CARGO_PKG_VERSION")).to_owned();
    let options = watch::Options { socket, pool, build };
    watching::until_signal(async |told| watch::run(options, told).await)
}
