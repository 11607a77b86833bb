//! Directory trees, walked by descriptors alone: no symbolic link is followed, no mount point crossed, no
//! path looked up that another process could change, and the depth is unlimited.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::dir;
use nix::errno::Errno;
use nix::fcntl::{self, AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};

const DIR_FLAGS: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// `O_NONBLOCK`: a file replaced by a pipe a moment ago must not block the open.
const FILE_FLAGS: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY);

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir {
    file: File,
    /// Its metadata when it was opened.
    pub(crate) meta: Metadata,
}

/// The kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Dir,
    File,
    Link,
    /// Something else, with its description.
    Other(&'static str),
}

impl Dir {
    /// Opens a directory by path; the last component may not be a symbolic link.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::from_fd(fcntl::open(path, DIR_FLAGS, Mode::empty())?)
    }

    fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let file = File::from(fd);
        let meta = file.metadata()?;
        Ok(Self { file, meta })
    }

    /// Duplicates the descriptor.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, meta: self.meta.clone() })
    }

    /// Opens a subdirectory. Fails with `NotADirectory` if the entry is anything else, and with
    /// `CrossesDevices` if another file system is mounted there.
    pub(crate) fn open_dir(&self, name: &CStr) -> io::Result<Self> {
        let mounted = || io::Error::new(ErrorKind::CrossesDevices, "another file system is mounted there");
        let dir = match self.open_at(name, DIR_FLAGS) {
            Err(Errno::ELOOP | Errno::ENOTDIR) => {
                return Err(io::Error::new(ErrorKind::NotADirectory, "it is not a directory"));
            }
            Err(Errno::EXDEV) => return Err(mounted()),
            other => Self::from_fd(other?)?,
        };
        if dir.meta.dev() == self.meta.dev() { Ok(dir) } else { Err(mounted()) }
    }

    /// Opens a file in it for reading; `NotFound` for a symbolic link.
    pub(crate) fn open_file(&self, name: &CStr) -> io::Result<File> {
        match self.open_at(name, FILE_FLAGS) {
            Err(Errno::ELOOP) => Err(ErrorKind::NotFound.into()),
            other => Ok(File::from(other?)),
        }
    }

    /// On Linux the kernel refuses every mount point, even one of the same file system.
    #[cfg(target_os = "linux")]
    fn open_at(&self, name: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
        let how = fcntl::OpenHow::new().flags(flags).resolve(fcntl::ResolveFlag::RESOLVE_NO_XDEV);
        match fcntl::openat2(self, name, how) {
            // A kernel before 5.6, or a system call filter that does not know it.
            Err(Errno::ENOSYS | Errno::EPERM) => fcntl::openat(self, name, flags, Mode::empty()),
            other => other,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn open_at(&self, name: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
        fcntl::openat(self, name, flags, Mode::empty())
    }

    /// Returns the names of its entries, unordered, as the directory is read.
    pub(crate) fn names(&self) -> io::Result<impl Iterator<Item = io::Result<CString>> + use<>> {
        Ok(self.entries()?.map(|entry| entry.map(|(name, _)| name)))
    }

    /// Returns the names of its entries, each with true if the listing says that it is a directory. The entry itself
    /// is not examined, as a mount point may not answer.
    pub(crate) fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<(CString, bool)>> + use<>> {
        let dir = dir::Dir::openat(self, c".", DIR_FLAGS, Mode::empty())?;
        let entries = dir.into_iter().map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_owned(), entry.file_type() == Some(dir::Type::Directory)))
        });
        Ok(entries.filter(|entry| !matches!(entry, Ok((name, _)) if is_dots(name))))
    }

    /// Returns the status of an entry; a symbolic link is not followed.
    pub(crate) fn stat(&self, name: &CStr) -> io::Result<FileStat> {
        Ok(fstatat(self, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    fn is_same(&self, meta: &Metadata) -> bool {
        (self.meta.dev(), self.meta.ino()) == (meta.dev(), meta.ino())
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Returns the kind of an entry.
pub(crate) fn kind(stat: &FileStat) -> FileKind {
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => FileKind::Dir,
        SFlag::S_IFREG => FileKind::File,
        SFlag::S_IFLNK => FileKind::Link,
        SFlag::S_IFSOCK => FileKind::Other("a socket"),
        SFlag::S_IFIFO => FileKind::Other("a pipe"),
        SFlag::S_IFCHR | SFlag::S_IFBLK => FileKind::Other("a device"),
        _ => FileKind::Other("of an unknown kind"),
    }
}

/// Bytes of a block in `st_blocks`, on every system.
const BLOCK: u64 = 512;

/// Returns the bytes allocated on disk.
pub(crate) fn allocated(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK
}

/// Converts a name to a path of one component.
pub(crate) fn name_path(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

/// Converts `NotFound` to `None`.
pub(crate) fn present<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// A walk through a tree: the current directory and the way back.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) here: Dir,
    top: PathBuf,
    ancestors: Vec<Ancestor>,
}

#[derive(Debug)]
struct Ancestor {
    /// Name of the child on the way.
    name: CString,
    meta: Metadata,
    /// Open only near the top, so that removals meanwhile do not end the walk.
    dir: Option<Dir>,
}

/// Maximum number of ancestors kept open. Below them the walk goes back by `..`, and verifies where it
/// arrived.
const OPEN_MAX: usize = 32;

impl Walk {
    /// Starts at a directory, which is called `top` in paths.
    pub(crate) fn new(here: Dir, top: PathBuf) -> Self {
        Self { here, top, ancestors: Vec::new() }
    }

    /// Descends into a subdirectory.
    pub(crate) fn descend(&mut self, name: CString, dir: Dir) {
        let left = std::mem::replace(&mut self.here, dir);
        let meta = left.meta.clone();
        self.ancestors.push(Ancestor { name, meta, dir: (self.ancestors.len() < OPEN_MAX).then_some(left) });
    }

    /// Goes back to the parent. Returns the name of the child it came from; `None` at the top, where it
    /// stays. After an error the walk cannot continue.
    pub(crate) fn ascend(&mut self) -> io::Result<Option<CString>> {
        let Some(above) = self.ancestors.last_mut() else { return Ok(None) };
        let dir = match above.dir.take() {
            Some(dir) => dir,
            None => self.here.open_dir(c"..")?,
        };
        if !dir.is_same(&above.meta) {
            return Err(io::Error::other("it was moved away meanwhile"));
        }
        self.here = dir;
        Ok(self.ancestors.pop().map(|above| above.name))
    }

    /// Returns the path of the current directory.
    pub(crate) fn path(&self) -> PathBuf {
        let mut path = self.top.clone();
        path.extend(self.ancestors.iter().map(|above| name_path(&above.name)));
        path
    }

    /// Returns the path of an entry of the current directory.
    pub(crate) fn path_of(&self, name: &CStr) -> PathBuf {
        self.path().join(name_path(name))
    }
}

/// Maximum characters of a path in a message.
const SHOWN_MAX: usize = 300;

/// Formats a path for a message; a long one without its middle.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let length = text.chars().count();
    if length <= SHOWN_MAX {
        return text;
    }
    let head: String = text.chars().take(SHOWN_MAX / 2).collect();
    let tail: String = text.chars().skip(length - SHOWN_MAX / 2).collect();
    format!("{head}…{tail}")
}
