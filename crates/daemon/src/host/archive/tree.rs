//! A directory tree by descriptors alone: no symbolic link is followed, no mount is crossed, nothing is
//! looked up by a path that somebody could change, and no depth is too much.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{self, AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};

const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// `O_NONBLOCK`: nobody may be waited for who opens the other end of what was a file a moment ago.
const FILE: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY);

/// An open directory.
#[derive(Debug)]
pub(crate) struct Folder {
    file: File,
    /// What it was when it was opened.
    pub(crate) meta: Metadata,
}

/// What stands for a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    File,
    Link,
    /// Something else, in words.
    Other(&'static str),
}

impl Folder {
    /// By its path, of which only the last part may not be a symbolic link.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::of(fcntl::open(path, FOLDER, Mode::empty())?)
    }

    fn of(fd: OwnedFd) -> io::Result<Self> {
        let file = File::from(fd);
        let meta = file.metadata()?;
        Ok(Self { file, meta })
    }

    /// The same directory once more.
    pub(crate) fn again(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, meta: self.meta.clone() })
    }

    /// The directory of this name in it. Anything else is `NotADirectory`, another file system `CrossesDevices`.
    pub(crate) fn enter(&self, name: &CStr) -> io::Result<Self> {
        let mounted = || io::Error::new(ErrorKind::CrossesDevices, "another file system is mounted there");
        let folder = match self.open_at(name, FOLDER) {
            Err(Errno::ELOOP | Errno::ENOTDIR) => {
                return Err(io::Error::new(ErrorKind::NotADirectory, "it is not a directory"));
            }
            Err(Errno::EXDEV) => return Err(mounted()),
            other => Self::of(other?)?,
        };
        if folder.meta.dev() == self.meta.dev() { Ok(folder) } else { Err(mounted()) }
    }

    /// The file of this name in it, for reading. A link is none.
    pub(crate) fn read(&self, name: &CStr) -> io::Result<File> {
        match self.open_at(name, FILE) {
            Err(Errno::ELOOP) => Err(ErrorKind::NotFound.into()),
            other => Ok(File::from(other?)),
        }
    }

    /// Linux refuses every mount here, also one of the same file system.
    #[cfg(target_os = "linux")]
    fn open_at(&self, name: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
        let how = fcntl::OpenHow::new().flags(flags).resolve(fcntl::ResolveFlag::RESOLVE_NO_XDEV);
        match fcntl::openat2(self, name, how) {
            // A kernel before 5.6, or a filter of system calls that does not know it.
            Err(Errno::ENOSYS | Errno::EPERM) => fcntl::openat(self, name, flags, Mode::empty()),
            other => other,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn open_at(&self, name: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
        fcntl::openat(self, name, flags, Mode::empty())
    }

    /// The names in it as it is read, in no order.
    pub(crate) fn names(&self) -> io::Result<impl Iterator<Item = io::Result<CString>> + use<>> {
        let dir = Dir::openat(self, c".", FOLDER, Mode::empty())?;
        let names = dir.into_iter().map(|entry| Ok(entry?.file_name().to_owned()));
        Ok(names.filter(|name| !matches!(name, Ok(name) if is_dots(name))))
    }

    /// What has this name, itself: a link is not followed.
    pub(crate) fn stat(&self, name: &CStr) -> io::Result<FileStat> {
        Ok(fstatat(self, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    fn is(&self, meta: &Metadata) -> bool {
        (self.meta.dev(), self.meta.ino()) == (meta.dev(), meta.ino())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// What kind of thing this is.
pub(crate) fn kind(stat: &FileStat) -> Kind {
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => Kind::Folder,
        SFlag::S_IFREG => Kind::File,
        SFlag::S_IFLNK => Kind::Link,
        SFlag::S_IFSOCK => Kind::Other("a socket"),
        SFlag::S_IFIFO => Kind::Other("a pipe"),
        SFlag::S_IFCHR | SFlag::S_IFBLK => Kind::Other("a device"),
        _ => Kind::Other("of an unknown kind"),
    }
}

/// Bytes of a block as `st_blocks` counts them, everywhere.
const BLOCK: u64 = 512;

/// Bytes that it takes on disk.
pub(crate) fn allocated(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK
}

/// A name as a part of a path.
pub(crate) fn part(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

/// `None` where there is none.
pub(crate) fn present<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// A way through a tree: where it has come to, and how it comes back.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) here: Folder,
    top: PathBuf,
    above: Vec<Above>,
}

#[derive(Debug)]
struct Above {
    /// The name of what is below.
    name: CString,
    meta: Metadata,
    /// Kept open near the top, so that what is removed meanwhile does not end the walk.
    folder: Option<Folder>,
}

/// Directories that a walk keeps open. Further down it finds back by `..`, and by proving that it did.
const OPEN: usize = 32;

impl Walk {
    /// From this directory, which is called so in paths.
    pub(crate) fn new(here: Folder, top: PathBuf) -> Self {
        Self { here, top, above: Vec::new() }
    }

    /// Goes into a directory of this name.
    pub(crate) fn down(&mut self, name: CString, folder: Folder) {
        let left = std::mem::replace(&mut self.here, folder);
        let meta = left.meta.clone();
        self.above.push(Above { name, meta, folder: (self.above.len() < OPEN).then_some(left) });
    }

    /// Goes back up, and says what it came out of; `None` at the top, where it stays. After an error the way
    /// is lost, and the walk over.
    pub(crate) fn up(&mut self) -> io::Result<Option<CString>> {
        let Some(above) = self.above.last_mut() else { return Ok(None) };
        let folder = match above.folder.take() {
            Some(folder) => folder,
            None => self.here.enter(c"..")?,
        };
        if !folder.is(&above.meta) {
            return Err(io::Error::other("it was moved away meanwhile"));
        }
        self.here = folder;
        Ok(self.above.pop().map(|above| above.name))
    }

    /// The path of where it is.
    pub(crate) fn path(&self) -> PathBuf {
        let mut path = self.top.clone();
        path.extend(self.above.iter().map(|above| part(&above.name)));
        path
    }

    /// The path of a name in it.
    pub(crate) fn path_of(&self, name: &CStr) -> PathBuf {
        self.path().join(part(name))
    }
}

/// The most characters of a path in a sentence.
const SHOWN: usize = 300;

/// A path for people: a long one without its middle.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let length = text.chars().count();
    if length <= SHOWN {
        return text;
    }
    let head: String = text.chars().take(SHOWN / 2).collect();
    let tail: String = text.chars().skip(length - SHOWN / 2).collect();
    format!("{head}…{tail}")
}
