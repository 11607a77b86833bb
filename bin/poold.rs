//! `poold`: owns the metadata database and the session locks; the only process that decides.

mod shared;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Own the pool: its database, its locks, its decisions
#[derive(Parser)]
#[command(name = "poold", version)]
struct Args {
    #[command(flatten)]
    common: shared::Common,
    /// The configuration file
    #[arg(long, env = "POOL_CONFIG")]
    config: Option<PathBuf>,
    /// Check the configuration file, and end
    #[arg(long)]
    check_config: bool,
    /// Print the configuration that would be in force, and end
    #[arg(long)]
    print_config: bool,
    /// Never start a tmux server: a service manager keeps it
    #[arg(long)]
    no_start_server: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    args.common.start();
    let options =
        daemon::Options { env: args.common.env(), config: args.config, start_server: !args.no_start_server };
    if args.check_config || args.print_config {
        let said =
            if args.check_config { daemon::check_config(&options) } else { daemon::print_config(&options) };
        return shared::exit(said.map(|text| println!("{text}")), |_| 2);
    }
    shared::exit(daemon::run(options), daemon::Fatal::exit_code)
}
