//! Opening: the file, its mode, its directory, then the rows.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;

use redb::{Builder, Database, DatabaseError, StorageBackend, StorageError};

use crate::error::StoreError;
use crate::load::{Loaded, load};
use crate::names::{MODE, Names, Os, place};
use crate::reader::Reader;
use crate::{Store, migrate, schema};

/// Memory for pages, in bytes.
const CACHE: usize = 16 << 20;
/// Up to this size, in bytes, every page's checksum is verified at each open (2 to 4 ms a MiB); a
/// plain open of a file with one flipped bit serves wrong data every other time.
pub(crate) const INTEGRITY_MAX: u64 = 64 << 20;

impl Store {
    /// Opens the database, or makes it. The caller owns the directory: nobody else makes a database
    /// in it at the same time. `progress` hears, from 0.0 to 1.0, how far it is: a file that was not
    /// closed is repaired in the first half, in the second its rows are read. A file of an older schema
    /// is brought up to date; as it was it is kept beside it, with its version as a further ending.
    ///
    /// # Errors
    /// [`StoreError::Newer`], [`StoreError::Damaged`], [`StoreError::Locked`], or the file system's.
    pub fn open(path: &Path, progress: impl Fn(f64) + 'static) -> Result<(Self, Loaded), StoreError> {
        Self::open_with(&Os, path, Rc::new(progress))
    }

    pub(crate) fn open_with(
        names: &dyn Names,
        path: &Path,
        progress: Rc<dyn Fn(f64)>,
    ) -> Result<(Self, Loaded), StoreError> {
        match fs::metadata(path) {
            Ok(file) if file.len() > 0 => private(path, &file.permissions())?,
            Ok(_) => create(names, path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(names, path)?,
            Err(error) => return Err(error.into()),
        }
        let keep = |version| migrate::keep(names, path, version);
        if let Some(version) = schema::look(path)?
            && version < schema::SCHEMA
        {
            keep(version)?;
        }
        let integrity = fs::metadata(path)?.len() < INTEGRITY_MAX;
        let heard = Rc::clone(&progress);
        let db = builder(integrity, move |done| heard(done / 2.0)).open(path).map_err(opening)?;
        schema::prepare(&db, keep)?;
        let (loaded, floor) = load(&db, &|done| progress(0.5 + done / 2.0))?;
        Ok((Self { reader: Reader::new(db, Some(path.to_owned())), floor }, loaded))
    }

    /// The same over any storage, empty or not.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn with_backend(backend: impl StorageBackend) -> Result<(Self, Loaded), StoreError> {
        let db = builder(true, |_| {}).create_with_backend(backend).map_err(opening)?;
        schema::prepare(&db, |_| Ok(()))?;
        let (loaded, floor) = load(&db, &|_| {})?;
        Ok((Self { reader: Reader::new(db, None), floor }, loaded))
    }
}

pub(crate) fn builder(integrity: bool, progress: impl Fn(f64) + 'static) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder.set_check_integrity_on_open(integrity);
    builder.set_repair_callback(move |repair| progress(repair.progress()));
    builder
}

fn create(names: &dyn Names, path: &Path) -> Result<(), StoreError> {
    place(names, path, |unfinished| {
        let db = empty(unfinished)?;
        schema::prepare(&db, |_| Ok(()))?;
        Ok(db.close()?)
    })
}

/// A database with nothing in it, not even tables, in an empty file.
pub(crate) fn empty(path: &Path) -> Result<Database, StoreError> {
    Ok(builder(false, |_| {}).create(path)?)
}

fn private(path: &Path, permissions: &Permissions) -> io::Result<()> {
    if permissions.mode() & 0o777 == MODE {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(MODE))
}

/// At an open, bytes that make no sense mean damage, whatever redb calls it.
pub(crate) fn opening(error: DatabaseError) -> StoreError {
    match error {
        DatabaseError::Storage(StorageError::Io(error))
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            StoreError::Damaged(error.to_string())
        }
        other => other.into(),
    }
}
