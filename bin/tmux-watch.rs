//! `tmux-watch`: observes tmux and the processes in it, and streams the changes to `poold`.

#[path = "shared/watch_args.rs"]
mod args;
#[path = "shared/async_main.rs"]
mod async_main;
mod shared;

fn main() -> std::process::ExitCode {
    shared::main(|args: &args::Args| &args.common, run)
}

fn run(args: args::Args) -> anyhow::Result<()> {
    // One descriptor for each pane's process.
    process::runtime::rlimit::raise_open_files(1 << 16)?;
    if args.print {
        let own = args.common.tmux_socket();
        let socket = args.tmux_socket.map_or_else(|| args.common.tmux_socket(), Ok)?;
        let own = own.is_ok_and(|own| own == socket);
        let device = tmux::Device { own, ..tmux::Device::new("tmux", socket) };
        let print = async |shutdown| watch::print(device, args.transport, std::io::stdout(), shutdown).await;
        return async_main::until_signal(print);
    }
    let (socket, pool) = args.common.poold()?;
    let build = concat!("tmux-watch ", env!("CARGO_PKG_VERSION")).to_owned();
    let options =
        watch::Options { socket, pool, build, take_over: args.take_over, transport: args.transport };
    async_main::until_signal(async |shutdown| watch::run(options, shutdown).await)
}
