//! `poolctl`: the client for people and scripts.

use std::process::ExitCode;

fn main() -> ExitCode {
    ctl::run(std::env::args_os())
}
