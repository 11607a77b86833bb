//! Bringing a file of an older schema up to date: one file for each step, and before the first one a
//! copy of the file as it was.

mod v1;

use std::fs;
use std::path::Path;

use crate::error::StoreError;
use crate::names::{Names, place, with_ending};
use crate::schema;

pub(crate) use v1::migrate as from_1;

/// Keeps a copy of a file of this version, `pool.redb.v1`; one that is there already is left alone.
pub(crate) fn keep(names: &dyn Names, path: &Path, version: u32) -> Result<(), StoreError> {
    let kept = with_ending(path, &format!(".v{version}"));
    // It has its name only if it is whole; what else has that name is not a copy.
    if schema::look(&kept).is_ok_and(|found| found == Some(version)) {
        return Ok(());
    }
    place(names, &kept, |unfinished| Ok(fs::copy(path, unfinished).map(drop)?))
}
