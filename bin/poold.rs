//! `poold`: owns the metadata database and the session locks; the only process that decides.

mod shared;

use std::path::PathBuf;
use std::process::ExitCode;

/// Own the pool: its database, its locks, its decisions
#[derive(clap::Parser)]
#[command(name = "poold", version)]
struct Args {
    #[command(flatten)]
    common: shared::Common,
    /// The configuration file
    #[arg(long, env = "POOL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration file, this one or the usual one, and end
    #[arg(long, value_name = "FILE")]
    check_config: Option<Option<PathBuf>>,
    /// Print the configuration that would be in force, and end
    #[arg(long)]
    print_config: bool,
    /// Make the database from an export (- is standard input), and end
    #[arg(long, value_name = "FILE")]
    import: Option<PathBuf>,
    /// Read the whole database, change nothing, and end: 9 where something is wrong with it
    #[arg(long)]
    check: bool,
    /// Give unused space of the database back, and end
    #[arg(long)]
    compact: bool,
    /// Never start a tmux server: a service manager keeps it
    #[arg(long)]
    no_start_server: bool,
}

fn main() -> ExitCode {
    let args: Args = shared::start(|args: &Args| &args.common);
    let file = args.check_config.clone().flatten().or(args.config);
    let env = args.common.env();
    let options = daemon::Options { env, config: file, start_server: !args.no_start_server };
    let care = args.import.map(daemon::Care::Import).or(args.check.then_some(daemon::Care::Check));
    if let Some(care) = care.or(args.compact.then_some(daemon::Care::Compact)) {
        return shared::say_or(daemon::care(&options, &care), daemon::Fatal::exit_code);
    }
    match (&args.check_config, args.print_config) {
        (Some(_), _) => shared::say(daemon::check_config(&options)),
        (_, true) => shared::say(daemon::print_config(&options)),
        _ => shared::exit(daemon::run(options), daemon::Fatal::exit_code),
    }
}
