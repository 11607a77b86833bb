//! Looking after the database while no daemon runs: `poold --import`, `--check`, `--compact`. Under the same lock as
//! a daemon, so never beside one.

use std::fs::File;
use std::io;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use protocol::paths::prepare_dir;
use protocol::reply::Checked;
use store::{Store, StoreError, maintenance as tools};

use crate::host::fatal::Fatal;
use crate::net::listen;
use crate::run;
use crate::run::Options;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Care {
    /// Make the database from an export; `-` is standard input.
    Import(PathBuf),
    /// Read all of it, and change nothing.
    Check,
    /// Give unused space back.
    Compact,
}

/// Does it. The answer is for people.
///
/// # Errors
/// A daemon that runs, or what is wrong with the database or the export.
pub fn care(options: &Options, what: &Care) -> Result<String, Fatal> {
    let paths = run::paths(options)?;
    for dir in [&paths.state, &paths.run] {
        prepare_dir(dir)?;
    }
    let _lock = listen::lock(&paths.lock)?;
    match what {
        Care::Import(file) => import(&paths.database, file),
        Care::Check => check(&paths.database),
        Care::Compact => compact(&paths.database),
    }
}

fn failed(error: StoreError) -> Fatal {
    match error {
        StoreError::Exists(path) => Fatal::Exists(format!(
            "{} is there already: move it away first, an import never replaces a database",
            path.display()
        )),
        StoreError::Export { .. } => Fatal::Other(error.to_string()),
        other => Fatal::Storage(other.to_string()),
    }
}

fn import(database: &Path, file: &Path) -> Result<String, Fatal> {
    if file == Path::new("-") {
        tools::import(database, &mut io::stdin().lock()).map_err(failed)?;
    } else {
        let open = File::open(file).map_err(|error| Fatal::io(file, error))?;
        tools::import(database, &mut BufReader::new(open)).map_err(failed)?;
    }
    Ok(format!("{} is made; start poold", database.display()))
}

fn check(database: &Path) -> Result<String, Fatal> {
    let (schema, checked) = tools::check_file(database).map_err(failed)?;
    let Checked { records, bytes, problems, quarantined } = checked;
    let all: Vec<String> = problems.into_iter().chain(quarantined).collect();
    if all.is_empty() {
        return Ok(format!(
            "{} is in order: schema {schema}, {records} records, {bytes} bytes",
            database.display()
        ));
    }
    Err(Fatal::Storage(format!("{}:\n  {}", database.display(), all.join("\n  "))))
}

fn compact(database: &Path) -> Result<String, Fatal> {
    if !database.exists() {
        return Err(Fatal::Other(format!("{} is not there", database.display())));
    }
    let (mut store, _) = Store::open(database, |_| {}).map_err(failed)?;
    let (before, after) = store.compact().map_err(failed)?;
    store.close().map_err(failed)?;
    Ok(format!("{before} bytes before, {after} after"))
}
