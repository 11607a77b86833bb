//! The benchmarks. Each measures its floor and its peers in the same run, in turn with the subject, so that a
//! busy machine slows all of them alike and the ratios stay meaningful.

mod cli;
mod options;
mod pool;
mod stats;

use std::io::{self, Write};
use std::process::ExitCode;

use options::Options;

const USAGE: &str = "\
usage: bench cli [--bin-dir DIR] [--runs N] [--sessions N]

  cli   time to start and end: `poolctl status` and `poolctl ls` against `true` and `tmux list-sessions`

  --bin-dir DIR   where the binaries are; default: beside this one
  --runs N        how often each command is measured (200)
  --sessions N    how many sessions there are meanwhile (200)
";

fn main() -> ExitCode {
    let outcome = match Options::parse(std::env::args_os().skip(1)) {
        Ok(Some(options)) => cli::run(&options),
        Ok(None) => print(USAGE),
        Err(error) => {
            report(&format!("{error}\n\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Says something on standard error, where the tables are not.
fn report(text: &str) {
    // Nothing can be done about a standard error that cannot be written.
    drop(writeln!(io::stderr(), "bench: {text}"));
}
