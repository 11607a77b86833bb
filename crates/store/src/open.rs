//! Opening: the file, its mode, its directory, then the rows.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use redb::{Builder, Database, DatabaseError, StorageBackend, StorageError};

use crate::error::StoreError;
use crate::load::{Loaded, load};
use crate::{Store, schema};

/// Memory for pages, in bytes.
const CACHE: usize = 16 << 20;
/// Up to this size, in bytes, every page's checksum is verified at each open (2 to 4 ms a MiB); a
/// plain open of a file with one flipped bit serves wrong data every other time.
pub(crate) const INTEGRITY_MAX: u64 = 64 << 20;
/// Nobody but the owner.
const MODE: u32 = 0o600;

impl Store {
    /// Opens the database, or makes it. The caller owns the directory: nobody else makes a database
    /// in it at the same time. `progress` hears, from 0.0 to 1.0, how far a repair is: a file that
    /// was not closed is repaired first.
    ///
    /// # Errors
    /// [`StoreError::Newer`], [`StoreError::Damaged`], [`StoreError::Locked`], or the file system's.
    pub fn open(path: &Path, progress: impl Fn(f64) + 'static) -> Result<(Self, Loaded), StoreError> {
        match fs::metadata(path) {
            Ok(file) if file.len() > 0 => private(path, &file.permissions())?,
            Ok(_) => create(path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(path)?,
            Err(error) => return Err(error.into()),
        }
        schema::refuse_newer(path)?;
        let integrity = fs::metadata(path)?.len() < INTEGRITY_MAX;
        let db = builder(integrity, progress).open(path).map_err(opening)?;
        let (mut store, loaded) = Self::from_database(db)?;
        store.path = Some(path.to_owned());
        Ok((store, loaded))
    }

    /// The same over any storage, empty or not.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn with_backend(backend: impl StorageBackend) -> Result<(Self, Loaded), StoreError> {
        Self::from_database(builder(true, |_| {}).create_with_backend(backend).map_err(opening)?)
    }

    fn from_database(db: Database) -> Result<(Self, Loaded), StoreError> {
        schema::prepare(&db)?;
        let (loaded, owners) = load(&db)?;
        Ok((Self { db, path: None, owners, latched: Cell::new(false) }, loaded))
    }
}

pub(crate) fn builder(integrity: bool, progress: impl Fn(f64) + 'static) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder.set_check_integrity_on_open(integrity);
    builder.set_repair_callback(move |repair| progress(repair.progress()));
    builder
}

/// Makes the file under another name and moves it when it is whole, so that a crash meanwhile
/// leaves nothing that looks like a damaged database.
fn create(path: &Path) -> Result<(), StoreError> {
    let unfinished = path.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    drop(OpenOptions::new().write(true).create_new(true).mode(MODE).open(&unfinished)?);
    let db = builder(false, |_| {}).create(&unfinished)?;
    schema::prepare(&db)?;
    db.close()?;
    fs::rename(&unfinished, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok(File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?)
}

fn private(path: &Path, permissions: &Permissions) -> io::Result<()> {
    if permissions.mode() & 0o777 == MODE {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(MODE))
}

/// At an open, bytes that make no sense mean damage, whatever redb calls it.
fn opening(error: DatabaseError) -> StoreError {
    match error {
        DatabaseError::Storage(StorageError::Io(error))
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            StoreError::Damaged(error.to_string())
        }
        other => other.into(),
    }
}
