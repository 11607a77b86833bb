//! The command line of `poold`.

use std::path::PathBuf;

use daemon::Care;

use crate::shared;

/// Own the pool: its database, its locks, its decisions
#[derive(clap::Parser)]
#[command(name = "poold", version)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: shared::Common,
    /// The configuration file
    #[arg(long, env = "POOL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check the configuration file, this one or the usual one, and end
    #[arg(long, value_name = "FILE")]
    pub(crate) check_config: Option<Option<PathBuf>>,
    /// Print the configuration that would be in force, and end
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Make the database from an export (- is standard input), and end
    #[arg(long, value_name = "FILE", group = "care")]
    import: Option<PathBuf>,
    /// Read the whole database, change nothing, and end: 9 where something is wrong with it
    #[arg(long, group = "care")]
    check: bool,
    /// Give unused space of the database back, and end
    #[arg(long, group = "care")]
    compact: bool,
    /// Never start a tmux server: a service manager keeps it
    #[arg(long)]
    pub(crate) no_start_server: bool,
}

impl Args {
    /// What is to be done with the database instead of serving it.
    pub(crate) fn care(&self) -> Option<Care> {
        let import = self.import.clone().map(Care::Import);
        import.or(self.check.then_some(Care::Check)).or(self.compact.then_some(Care::Compact))
    }
}
