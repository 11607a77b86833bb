//! Gathers what a session left, and notes what was not stored as it was.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::fcntl::readlinkat;

use crate::host::archive::contents::{ArchiveError, Contents};
use crate::host::archive::entries::{Change, Entries};
use crate::host::archive::spool::Spool;
use crate::host::archive::tree::{Folder, Kind, Walk, kind, present, shown};
use crate::host::files;

/// Names that may wait for their turn at once; more would take too much memory.
const NAMES_MAX: usize = 1 << 20;

/// Writes it all into a file; gives the file back and what should be in it.
pub(crate) fn pack(
    file: File,
    archive: &Path,
    name: &str,
    contents: Contents<'_>,
) -> Result<(File, Spool), ArchiveError> {
    let archives = archive.parent().unwrap_or(Path::new("."));
    let spool = |what| {
        Spool::new(archives, name, what)
            .map_err(|source| ArchiveError::Write { path: archive.to_owned(), source })
    };
    let mut entries = Entries::new(file, spool("records")?, archive);
    let name = Path::new(name);
    entries.made(&name.join("session.json"), contents.record.len() as u64, contents.record)?;
    let mut messages = spool("messages")?;
    while let Some(lines) = (contents.messages)().map_err(cannot_read(Path::new("the messages")))? {
        messages.add(&lines).map_err(|error| entries.failed(error))?;
    }
    entries.spooled(&name.join("messages.jsonl"), messages)?;
    let mut pack = Pack { entries, name: name.to_owned(), notes: spool("notes")? };
    pack.session(&contents)?;
    let Pack { mut entries, notes, .. } = pack;
    if notes.length > 0 {
        entries.spooled(&name.join("skipped.txt"), notes)?;
    }
    entries.finish()
}

fn cannot_read(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError + use<> {
    let path = shown(path);
    move |source| ArchiveError::Read { path, source }
}

struct Pack {
    entries: Entries,
    /// What every path in it begins with.
    name: PathBuf,
    /// The lines of `skipped.txt`.
    notes: Spool,
}

impl Pack {
    fn session(&mut self, contents: &Contents<'_>) -> Result<(), ArchiveError> {
        if let Some((dir, _)) = self.folder(contents.meta, contents)? {
            let screen =
                CString::new(files::SCREEN).map_err(|error| cannot_read(contents.meta)(error.into()))?;
            if dir.stat(&screen).is_ok() {
                self.tree(&dir, &screen, self.name.clone())?;
            }
        }
        let Some((dir, path)) = self.folder(contents.sessions, contents)? else { return Ok(()) };
        let names = names_in(&dir, NAMES_MAX).map_err(cannot_read(&path))?;
        for name in names.iter().rev() {
            match name.to_bytes() {
                b"logs" => self.tree(&dir, name, self.name.clone())?,
                b"work" if contents.work => self.tree(&dir, name, self.name.clone())?,
                b"tmp" => {}
                // A purge removes it. It may be called like something of ours.
                _ if contents.work => self.tree(&dir, name, self.name.join("other"))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The session's directory among these, where there is one.
    fn folder(
        &self,
        among: &Path,
        contents: &Contents<'_>,
    ) -> Result<Option<(Folder, PathBuf)>, ArchiveError> {
        let id = contents.session.to_string();
        let path = among.join(&id);
        let opened = CString::new(id).map_err(io::Error::from).and_then(|id| Folder::open(among)?.enter(&id));
        let dir = present(opened).map_err(cannot_read(&path))?;
        Ok(dir.map(|dir| (dir, path)))
    }

    /// Stores what has this name in a directory, with all below it, as a part of `top`.
    fn tree(&mut self, dir: &Folder, name: &CStr, top: PathBuf) -> Result<(), ArchiveError> {
        let dir = dir.again().map_err(cannot_read(&top))?;
        let mut walk = Walk::new(dir, top);
        let mut pending = vec![vec![name.to_owned()]];
        while let Some(names) = pending.last_mut() {
            if let Some(name) = names.pop() {
                if let Some(folder) = self.one(&walk, &name)? {
                    walk.down(name, folder);
                    let room = NAMES_MAX - pending.iter().map(Vec::len).sum::<usize>();
                    pending.push(names_in(&walk.here, room).map_err(cannot_read(&walk.path()))?);
                }
            } else {
                pending.pop();
                walk.up().map_err(|error| cannot_read(&walk.path())(error))?;
            }
        }
        Ok(())
    }

    /// Stores one thing; gives it back where it is a directory, which is entered next.
    fn one(&mut self, walk: &Walk, name: &CStr) -> Result<Option<Folder>, ArchiveError> {
        let path = walk.path_of(name);
        let Some(stat) = self.there(&path, walk.here.stat(name))? else { return Ok(None) };
        match kind(&stat) {
            Kind::Folder => {
                let Some(folder) = self.there(&path, walk.here.enter(name))? else { return Ok(None) };
                self.entries.folder(&path, &folder.meta)?;
                return Ok(Some(folder));
            }
            Kind::File => self.file(&path, walk.here.read(name))?,
            Kind::Link => {
                let target = readlinkat(&walk.here, name).map_err(io::Error::from);
                if let Some(target) = self.there(&path, target)? {
                    self.entries.link(&path, &stat, target.as_bytes())?;
                }
            }
            Kind::Other(what) => self.note(&path, what)?,
        }
        Ok(None)
    }

    fn file(&mut self, path: &Path, opened: io::Result<File>) -> Result<(), ArchiveError> {
        let Some(file) = self.there(path, opened)? else { return Ok(()) };
        let meta = file.metadata().map_err(cannot_read(path))?;
        if !meta.is_file() {
            return self.note(path, "no file any more");
        }
        match self.entries.file(path, &meta, file)? {
            Change::None => Ok(()),
            Change::Grew => self.note(path, "it grew while it was read: stored without that"),
            Change::Shrank(by) => {
                self.note(path, &format!("it shrank while it was read: {by} zero bytes stored at its end"))
            }
        }
    }

    /// What was found, or `None` with a note where it is not ours, or not there any more.
    fn there<T>(&mut self, path: &Path, found: io::Result<T>) -> Result<Option<T>, ArchiveError> {
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

/// All names in a directory, the last first.
fn names_in(folder: &Folder, room: usize) -> io::Result<Vec<CString>> {
    let mut names = folder.names()?.take(room + 1).collect::<io::Result<Vec<CString>>>()?;
    if names.len() > room {
        return Err(io::Error::other("there are too many files"));
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}
