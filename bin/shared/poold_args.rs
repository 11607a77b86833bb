//! The command line of `poold`.

use std::path::PathBuf;

use daemon::Maintenance;

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
    /// Check the configuration file, this one or the default, and exit
    #[arg(long, value_name = "FILE")]
    pub(crate) check_config: Option<Option<PathBuf>>,
    /// Print the configuration in force, and exit
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Create the database from an export (- is standard input), and exit
    #[arg(long, value_name = "FILE", group = "care")]
    import: Option<PathBuf>,
    /// Check the whole database without changing it, and exit: 9 if it is damaged
    #[arg(long, group = "care")]
    check: bool,
    /// Discard the quarantined records, which could not be read, for good, and exit
    #[arg(long, group = "care")]
    discard_quarantined: bool,
    /// Return unused space of the database to the file system, and exit
    #[arg(long, group = "care")]
    compact: bool,
    /// Never start a tmux server: a service manager runs it
    #[arg(long)]
    pub(crate) no_start_server: bool,
}

impl Args {
    /// The maintenance task to run instead of serving.
    pub(crate) fn maintenance(&self) -> Option<Maintenance> {
        let import = self.import.clone().map(Maintenance::Import);
        import
            .or(self.check.then_some(Maintenance::Check))
            .or(self.discard_quarantined.then_some(Maintenance::DiscardQuarantined))
            .or(self.compact.then_some(Maintenance::Compact))
    }
}
