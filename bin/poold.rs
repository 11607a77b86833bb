//! `poold`: owns the metadata database and the session locks; the only process that decides.

#[path = "shared/poold_args.rs"]
mod args;
mod shared;

use std::process::ExitCode;

use args::Args;

fn main() -> ExitCode {
    let args: Args = shared::start(|args: &Args| &args.common);
    let file = args.check_config.clone().flatten().or_else(|| args.config.clone());
    let env = args.common.env();
    let options = daemon::Options { env, config: file, start_server: !args.no_start_server };
    match (&args.check_config, args.print_config, args.maintenance()) {
        (Some(_), ..) => shared::print(daemon::check_config(&options)),
        (_, true, _) => shared::print(daemon::print_config(&options)),
        (.., Some(command)) => {
            shared::print_or(daemon::maintain(&options, &command), daemon::DaemonError::exit_code)
        }
        _ => shared::exit(daemon::run(options), daemon::DaemonError::exit_code),
    }
}
