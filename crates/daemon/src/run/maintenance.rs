//! Maintenance of the database while no daemon runs: `poold --import`, `--check`,
//! `--discard-quarantined`, `--compact`. Holds the
//! daemon's lock of the state directory, so it never runs beside one.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use protocol::counted;
use protocol::paths::prepare_dir;
use protocol::reply::Checked;
use store::{Store, StoreError, maintenance as tools};

use crate::host::disk_reserve;
use crate::host::error::DaemonError;
use crate::run::options::{self, Options};
use crate::run::state_lock;

/// A maintenance command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Maintenance {
    /// Create the database from an export; `-` is standard input.
    Import(PathBuf),
    /// Read every record, and change nothing.
    Check,
    /// Discard the records that could not be read.
    DiscardQuarantined,
    /// Return unused space to the file system.
    Compact,
}

/// Executes a maintenance command. Returns the result for people.
///
/// # Errors
/// A daemon runs, or the database or the export is damaged.
pub fn maintain(options: &Options, command: &Maintenance) -> Result<String, DaemonError> {
    let paths = options::paths(options)?;
    // This is checked before a state directory is made, whose name may be mistyped.
    match command {
        Maintenance::Import(file) if file == Path::new("-") => {}
        Maintenance::Import(file) => drop(open_export(file)?),
        Maintenance::Check | Maintenance::DiscardQuarantined | Maintenance::Compact => {
            check_exists(&paths.database)?;
        }
    }
    for dir in [&paths.state, &paths.run] {
        prepare_dir(dir)?;
    }
    let _lock = state_lock::lock(&paths.lock)?;
    match command {
        Maintenance::Import(file) => import(&paths.database, file),
        Maintenance::Check => check(&paths.database),
        Maintenance::DiscardQuarantined => discard_quarantined(&paths.database),
        Maintenance::Compact => compact(&paths.database),
    }
}

/// Returns the error of work on a database, or on the other file that it reads.
fn failed(database: &Path, error: StoreError) -> DaemonError {
    match error {
        StoreError::Exists(path) => DaemonError::Exists(format!(
            "{} is there already: move it away first, an import never replaces a database",
            path.display()
        )),
        StoreError::Export { .. } | StoreError::Stream(_) => DaemonError::Other(error.to_string()),
        other => DaemonError::Storage(format!("{}: {other}", database.display())),
    }
}

fn import(database: &Path, file: &Path) -> Result<String, DaemonError> {
    if file == Path::new("-") {
        tools::import(database, &mut io::stdin().lock()).map_err(|error| failed(database, error))?;
    } else {
        let mut export = BufReader::new(open_export(file)?);
        tools::import(database, &mut export).map_err(|error| failed(database, error))?;
    }
    Ok(format!("created {}; `poolctl up` starts the pool", database.display()))
}

fn open_export(file: &Path) -> Result<File, DaemonError> {
    let export = File::open(file).map_err(|error| DaemonError::io(file, error))?;
    match export.metadata() {
        Ok(found) if found.is_dir() => Err(DaemonError::Usage(format!("{} is a directory", file.display()))),
        _ => Ok(export),
    }
}

fn check(database: &Path) -> Result<String, DaemonError> {
    let (schema, checked) = tools::check_file(database).map_err(|error| failed(database, error))?;
    let Checked { records, bytes, problems, quarantined } = checked;
    let all: Vec<String> = problems.into_iter().chain(quarantined).collect();
    if all.is_empty() {
        return Ok(format!(
            "{} is in order: schema {schema}, {records} records, {bytes} bytes",
            database.display()
        ));
    }
    Err(DaemonError::Storage(format!("{}:\n  {}", database.display(), all.join("\n  "))))
}

fn discard_quarantined(database: &Path) -> Result<String, DaemonError> {
    let mut store = open(database)?;
    let discarded = store.delete_quarantined().map_err(|error| failed(database, error))?;
    disk_reserve::close(store).map_err(|error| failed(database, error))?;
    Ok(format!("discarded {}", counted(discarded, "record")))
}

fn check_exists(database: &Path) -> Result<(), DaemonError> {
    let hint = "is this the pool's directory (POOL_STATE_DIR)?";
    let why = || DaemonError::Other(format!("{} is not there: {hint}", database.display()));
    if database.exists() { Ok(()) } else { Err(why()) }
}

fn open(database: &Path) -> Result<Store, DaemonError> {
    Store::open(database, |_| {}).map(|(store, _)| store).map_err(|error| failed(database, error))
}

fn compact(database: &Path) -> Result<String, DaemonError> {
    let mut store = open(database)?;
    let (before, after) = store.compact().map_err(|error| failed(database, error))?;
    disk_reserve::close(store).map_err(|error| failed(database, error))?;
    Ok(format!("{before} bytes before, {after} after"))
}
