//! Opens a database: the file and its mode, then its schema, then its rows.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;

use redb::StorageBackend;

use crate::atomic_file::{Directory, MODE, OsDirectory, create_or_replace, remove_leftovers};
use crate::database::{self, INTEGRITY_MAX, builder, open_error};
use crate::error::StoreError;
use crate::load::{Loaded, load};
use crate::migrate;
use crate::reader::{OpenFile, Reader};
use crate::schema::SCHEMA;
use crate::writer::Store;

impl Store {
    /// Opens the database, or creates it. The caller owns the directory: no other process creates a database
    /// in it at the same time. `progress` is called with 0.0 to 1.0: the first half is the repair of a file
    /// that was not closed, the second the reading of its rows. A file of an older schema is upgraded; a copy
    /// of the original stays beside it, with `.v` and its version appended.
    ///
    /// # Errors
    /// [`StoreError::Newer`], [`StoreError::Obsolete`], [`StoreError::Damaged`], [`StoreError::Locked`], or a
    /// failure of the file system.
    pub fn open(path: &Path, progress: impl Fn(f64) + 'static) -> Result<(Self, Loaded), StoreError> {
        Self::open_with(&OsDirectory, path, Rc::new(progress))
    }

    pub(crate) fn open_with(
        directory: &dyn Directory,
        path: &Path,
        progress: Rc<dyn Fn(f64)>,
    ) -> Result<(Self, Loaded), StoreError> {
        match fs::metadata(path) {
            Ok(file) if file.len() > 0 => make_private(path, &file.permissions())?,
            Ok(_) => create(directory, path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(directory, path)?,
            Err(error) => return Err(error.into()),
        }
        // Left by an import that was interrupted. It does no harm if it cannot be removed.
        drop(remove_leftovers(path));
        let keep = |version| migrate::keep_copy(directory, path, version);
        if let Some(version) = migrate::peek(path)?
            && version < SCHEMA
        {
            // Opening the file writes to it: the copy is made before.
            keep(version)?;
        }
        let integrity = fs::metadata(path)?.len() < INTEGRITY_MAX;
        let repair = Rc::clone(&progress);
        let db = builder(integrity, move |done| repair(done / 2.0)).open(path).map_err(open_error)?;
        migrate::prepare(&db, keep)?;
        let (loaded, floor) = load(&db, &|done| progress(0.5 + done / 2.0))?;
        Ok((Self::new(Reader::new(db, Some(OpenFile::new(path)?)), floor), loaded))
    }

    /// Opens or creates a database over any storage.
    pub fn with_backend(backend: impl StorageBackend) -> Result<(Self, Loaded), StoreError> {
        let db = builder(true, |_| {}).create_with_backend(backend).map_err(open_error)?;
        migrate::prepare(&db, |_| Ok(()))?;
        let (loaded, floor) = load(&db, &|_| {})?;
        Ok((Self::new(Reader::new(db, None), floor), loaded))
    }
}

fn create(directory: &dyn Directory, path: &Path) -> Result<(), StoreError> {
    create_or_replace(directory, path, |temporary| {
        let db = database::create(temporary)?;
        migrate::prepare(&db, |_| Ok(()))?;
        Ok(db.close()?)
    })
}

fn make_private(path: &Path, permissions: &Permissions) -> io::Result<()> {
    if permissions.mode() & 0o777 == MODE {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(MODE))
}
