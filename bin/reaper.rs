//! `reaper`: ends what `poold` names; also each session's init (`reaper exec`) and log writer (`reaper log`).

#[path = "shared/inner.rs"]
mod inner;
mod shared;
#[path = "shared/watching.rs"]
mod watching;

/// End what poold names, and prove that it is gone
#[derive(clap::Parser)]
#[command(name = "reaper", version)]
struct Args {
    #[command(flatten)]
    common: shared::Common,
    /// Work what there is now, then end; 1 where something is left
    #[arg(long)]
    once: bool,
    /// Print what there is now, and touch nothing
    #[arg(long, conflicts_with = "once")]
    dry_run: bool,
    /// With --dry-run: as JSON lines
    #[arg(long, requires = "dry_run")]
    json: bool,
}

fn main() -> std::process::ExitCode {
    inner::run().unwrap_or_else(|| shared::main(|args: &Args| &args.common, run))
}

fn run(args: Args) -> anyhow::Result<()> {
    process::limits::raise_open_files(1 << 16)?;
    let (socket, pool) = args.common.poold()?;
    let build = concat!("reaper ", env!("CARGO_PKG_VERSION")).into();
    let options = reap::Options { socket, pool, build, tmux: None };
    watching::until_signal(async |told| match args {
        Args { once: true, .. } => reap::once(options).await,
        Args { dry_run: true, json, .. } => reap::list(options, json, std::io::stdout()).await,
        _ => reap::run(options, told).await,
    })
}
