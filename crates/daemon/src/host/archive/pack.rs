//! Collects the contents of an archive, and notes in `skipped.txt` what was not stored as it was.

use std::ffi::{CStr, CString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::readlinkat;
use nix::unistd::{Whence, lseek};

use crate::host::archive::contents::{ArchiveError, Contents, ZEROS_MAX};
use crate::host::archive::scratch_file::ScratchFile;
use crate::host::archive::tar_writer::{SizeChange, TarWriter};
use crate::host::dir_tree::{Dir, FileKind, Walk, kind, present, shown};
use crate::host::files;

/// Maximum names in memory at once.
const NAMES_MAX: usize = 1 << 20;

/// Writes the archive into `file`. Returns the file and the records of its entries.
pub(crate) fn pack(
    file: File,
    archive: &Path,
    name: &str,
    contents: Contents<'_>,
) -> Result<(File, ScratchFile), ArchiveError> {
    let archives = archive.parent().unwrap_or(Path::new("."));
    let scratch = |what| {
        ScratchFile::new(archives, name, what)
            .map_err(|source| ArchiveError::Write { path: archive.to_owned(), source })
    };
    let mut entries = TarWriter::new(file, scratch("records")?, archive, contents.now);
    let name = Path::new(name);
    entries.add_generated(&name.join("session.json"), contents.record.len() as u64, contents.record)?;
    let mut messages = scratch("messages")?;
    while let Some(lines) = (contents.messages)().map_err(cannot_read(Path::new("the messages")))? {
        messages.add(&lines).map_err(|error| entries.failed(error))?;
    }
    entries.add_scratch(&name.join("messages.jsonl"), messages)?;
    let mut pack = Pack { entries, name: name.to_owned(), notes: scratch("notes")?, holes: 0 };
    pack.session(&contents)?;
    let Pack { mut entries, notes, .. } = pack;
    if notes.length > 0 {
        entries.add_scratch(&name.join("skipped.txt"), notes)?;
    }
    entries.finish()
}

fn cannot_read(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError + use<> {
    let path = shown(path);
    move |source| ArchiveError::Read { path, source }
}

struct Pack {
    entries: TarWriter,
    /// The first component of every path in the archive.
    name: PathBuf,
    /// The lines of `skipped.txt`.
    notes: ScratchFile,
    /// Bytes in holes of the files so far.
    holes: u64,
}

impl Pack {
    fn session(&mut self, contents: &Contents<'_>) -> Result<(), ArchiveError> {
        if let Some((dir, _)) = self.session_dir(contents.meta, contents)? {
            let screen =
                CString::new(files::SCREEN).map_err(|error| cannot_read(contents.meta)(error.into()))?;
            if dir.stat(&screen).is_ok() {
                self.tree(&dir, &screen, self.name.clone())?;
            }
        }
        let Some((dir, path)) = self.session_dir(contents.sessions, contents)? else { return Ok(()) };
        let names = names_in(&dir, NAMES_MAX).map_err(cannot_read(&path))?;
        for name in names.iter().rev() {
            match name.to_bytes() {
                b"logs" => self.tree(&dir, name, self.name.clone())?,
                b"work" if contents.work => self.tree(&dir, name, self.name.clone())?,
                b"tmp" => {}
                // Anything else that a purge removes. It is stored below `other/`, as its name may be that of a file
                // of ours.
                _ if contents.work => self.tree(&dir, name, self.name.join("other"))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Opens the session's directory among these, if it exists.
    fn session_dir(
        &self,
        among: &Path,
        contents: &Contents<'_>,
    ) -> Result<Option<(Dir, PathBuf)>, ArchiveError> {
        let id = contents.session.to_string();
        let path = among.join(&id);
        let opened = CString::new(id).map_err(io::Error::from).and_then(|id| Dir::open(among)?.open_dir(&id));
        let dir = present(opened).map_err(cannot_read(&path))?;
        Ok(dir.map(|dir| (dir, path)))
    }

    /// Stores an entry of a directory, with everything below it, below `top` in the archive.
    fn tree(&mut self, dir: &Dir, name: &CStr, top: PathBuf) -> Result<(), ArchiveError> {
        let dir = dir.try_clone().map_err(cannot_read(&top))?;
        let mut walk = Walk::new(dir, top);
        let mut pending = vec![vec![name.to_owned()]];
        while let Some(names) = pending.last_mut() {
            if let Some(name) = names.pop() {
                if let Some(dir) = self.entry(&walk, &name)? {
                    walk.descend(name, dir);
                    let max = NAMES_MAX - pending.iter().map(Vec::len).sum::<usize>();
                    pending.push(names_in(&walk.here, max).map_err(cannot_read(&walk.path()))?);
                }
            } else {
                pending.pop();
                walk.ascend().map_err(|error| cannot_read(&walk.path())(error))?;
            }
        }
        Ok(())
    }

    /// Stores an entry. Returns it if it is a directory, to be entered next.
    fn entry(&mut self, walk: &Walk, name: &CStr) -> Result<Option<Dir>, ArchiveError> {
        let path = walk.path_of(name);
        let Some(stat) = self.found_or_noted(&path, walk.here.stat(name))? else { return Ok(None) };
        match kind(&stat) {
            FileKind::Dir => {
                let Some(dir) = self.found_or_noted(&path, walk.here.open_dir(name))? else {
                    return Ok(None);
                };
                self.entries.add_dir(&path, &dir.meta)?;
                return Ok(Some(dir));
            }
            FileKind::File => self.file(&path, walk.here.open_file(name))?,
            FileKind::Link => {
                let target = readlinkat(&walk.here, name).map_err(io::Error::from);
                if let Some(target) = self.found_or_noted(&path, target)? {
                    self.entries.add_symlink(&path, &stat, target.as_bytes())?;
                }
            }
            FileKind::Other(what) => self.note(&path, what)?,
        }
        Ok(None)
    }

    fn file(&mut self, path: &Path, opened: io::Result<File>) -> Result<(), ArchiveError> {
        let Some(file) = self.found_or_noted(path, opened)? else { return Ok(()) };
        let meta = file.metadata().map_err(cannot_read(path))?;
        if !meta.is_file() {
            return self.note(path, "no file any more");
        }
        self.holes += holes(&file, &meta).map_err(cannot_read(path))?;
        if self.holes > ZEROS_MAX {
            return Err(ArchiveError::Sparse { path: shown(path) });
        }
        match self.entries.add_file(path, &meta, file)? {
            SizeChange::None => Ok(()),
            SizeChange::Grew => self.note(path, "it grew while it was read: stored without that"),
            SizeChange::Shrank(by) => {
                self.note(path, &format!("it shrank while it was read: {by} zero bytes stored at its end"))
            }
        }
    }

    /// Returns what was found; `None`, with a note, if it is on another file system or no longer there.
    fn found_or_noted<T>(&mut self, path: &Path, found: io::Result<T>) -> Result<Option<T>, ArchiveError> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) => {
                match error.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory => self.note(path, "gone meanwhile")?,
                    ErrorKind::CrossesDevices => self.note(path, "on another file system")?,
                    _ => return Err(cannot_read(path)(error)),
                }
                Ok(None)
            }
        }
    }

    fn note(&mut self, path: &Path, what: &str) -> Result<(), ArchiveError> {
        let line = format!("{}: {what}\n", path.as_os_str().as_bytes().escape_ascii());
        self.notes.add(line.as_bytes()).map_err(|error| self.entries.failed(error))
    }
}

/// Returns the number of bytes in a file's holes, not counting on beyond [`ZEROS_MAX`]. A file that is compressed on
/// disk has fewer blocks than bytes, and no holes. The file is left at its beginning.
fn holes(file: &File, meta: &Metadata) -> io::Result<u64> {
    if meta.blocks().saturating_mul(512) >= meta.len() {
        return Ok(0);
    }
    let length = i64::try_from(meta.len()).unwrap_or(i64::MAX);
    let (mut at, mut holes) = (0, 0);
    while at < length && holes <= ZEROS_MAX {
        // A file system that does not tell of holes stores none.
        let Ok(begin) = lseek(file, at, Whence::SeekHole) else { break };
        // An error says that no data follows.
        at = lseek(file, begin, Whence::SeekData).map_or(length, |data| data.min(length));
        holes += u64::try_from(at - begin).unwrap_or(0);
    }
    lseek(file, 0, Whence::SeekSet)?;
    Ok(holes)
}

/// Returns the names in a directory in descending order; fails if there are more than `max`.
fn names_in(dir: &Dir, max: usize) -> io::Result<Vec<CString>> {
    let mut names = dir.names()?.take(max + 1).collect::<io::Result<Vec<CString>>>()?;
    if names.len() > max {
        return Err(io::Error::other("there are too many files"));
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}
