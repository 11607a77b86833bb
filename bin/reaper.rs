//! `reaper`: ends what `poold` names and proves that it is gone; also the init of each session
//! (`reaper exec JOB`) and its log writer (`reaper log DIR`), which start without anything else.

mod shared;
#[path = "shared/watching.rs"]
mod watching;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use process::init::End;
use protocol::socket::Paths;

/// End what poold names, and prove that it is gone
#[derive(Parser)]
#[command(name = "reaper", version)]
struct Args {
    #[command(flatten)]
    common: shared::Common,
    /// Work what there is now, then end; 1 where something is left
    #[arg(long)]
    once: bool,
    /// Print what there is now, as JSON lines, and touch nothing
    #[arg(long, conflicts_with = "once")]
    dry_run: bool,
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match (words.next(), words.next()) {
        (Some(verb), Some(job)) if verb == "exec" => return end(process::init::exec(Path::new(&job))),
        (Some(verb), Some(dir)) if verb == "log" => {
            return process::log_writer::write_log(Path::new(&dir))
                .map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
        _ => {}
    }
    let args = Args::parse();
    args.common.start();
    shared::exit(
        run(&args).and_then(|gone| if gone { Ok(()) } else { anyhow::bail!("not all of it is gone") }),
        |_| 1,
    )
}

/// Ends as the program ended.
fn end(end: End) -> ExitCode {
    match end {
        End::Code(code) => ExitCode::from(code),
        End::Signal(signal) => {
            process::init::resignal(signal);
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
    }
}

fn run(args: &Args) -> anyhow::Result<bool> {
    let paths = Paths::new(&args.common.env())?;
    let build = concat!("reaper ", env!("CARGO_PKG_VERSION")).to_owned();
    let options = reap::Options { socket: paths.socket, pool: paths.pool.to_string(), build, tmux: None };
    watching::until_signal(async |told| match (args.once, args.dry_run) {
        (true, _) => reap::once(options).await,
        (_, true) => reap::list(options, reap::Form::Json, std::io::stdout()).await.map(|()| true),
        _ => reap::run(options, told).await.map(|()| true),
    })
}
