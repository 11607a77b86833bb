//! `tmux-watch`: looks at tmux and the processes in it, and streams what changed to `poold`.

#[path = "shared/watch_args.rs"]
mod args;
mod shared;
#[path = "shared/watching.rs"]
mod watching;

fn main() -> std::process::ExitCode {
    shared::main(|args: &args::Args| &args.common, run)
}

fn run(args: args::Args) -> anyhow::Result<()> {
    // One for each pane's process.
    process::limits::raise_open_files(1 << 16)?;
    if args.print {
        let own = args.common.tmux_socket();
        let socket = args.tmux_socket.map_or_else(|| args.common.tmux_socket(), Ok)?;
        let own = own.is_ok_and(|own| own == socket);
        let device = tmux::Device { own, ..tmux::Device::new("tmux", socket) };
        let print = async |told| watch::print(device, args.means, std::io::stdout(), told).await;
        return watching::until_signal(print);
    }
    let (socket, pool) = args.common.poold()?;
    let build = concat!("tmux-watch ", env!("CARGO_PKG_VERSION")).to_owned();
    let options = watch::Options { socket, pool, build, take_over: args.take_over, means: args.means };
    watching::until_signal(async |told| watch::run(options, told).await)
}
