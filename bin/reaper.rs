//! `reaper`: ends what `poold` names; also each session's init (`reaper exec`) and log writer (`reaper log`).

#[path = "shared/async_main.rs"]
mod async_main;
#[path = "shared/in_session.rs"]
mod in_session;
mod shared;

/// End what poold names, and prove that it is gone
#[derive(clap::Parser)]
#[command(name = "reaper", version)]
struct Args {
    #[command(flatten)]
    common: shared::Common,
    /// Reap the present candidates once, then exit; 1 if something is left
    #[arg(long)]
    once: bool,
    /// List the present candidates, and touch nothing
    #[arg(long, conflicts_with = "once")]
    dry_run: bool,
    /// With --dry-run: as JSON lines
    #[arg(long, requires = "dry_run")]
    json: bool,
}

fn main() -> std::process::ExitCode {
    in_session::run().unwrap_or_else(|| shared::main(|args: &Args| &args.common, run))
}

fn run(args: Args) -> anyhow::Result<()> {
    process::runtime::rlimit::raise_open_files(1 << 16)?;
    let (socket, pool) = args.common.poold()?;
    let build = concat!("reaper ", env!("CARGO_PKG_VERSION")).into();
    let options = reap::Options { socket, pool, build, tmux: None };
    async_main::until_signal(async |shutdown| match args {
        Args { once: true, .. } => reap::once(options).await,
        Args { dry_run: true, json, .. } => reap::list(options, json, std::io::stdout()).await,
        _ => reap::run(options, shutdown).await,
    })
}
