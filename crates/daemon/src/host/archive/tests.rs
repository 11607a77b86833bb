//! Archives: their contents, and that a failed one leaves nothing.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use protocol::{SessionId, Timestamp};
use tempfile::TempDir;

use crate::host::archive::contents::ZEROS_MAX;
use crate::host::archive::scratch_file::ScratchFile;
use crate::host::archive::tar_writer::{SizeChange, TarWriter};
use crate::host::archive::verify::verify;
use crate::host::archive::{ArchiveError, Contents, sweep, write, write_then};

/// A name that is not UTF-8, where the system allows it.
const ODD: &[u8] = if cfg!(target_os = "linux") { b"\xff odd\n" } else { b"odd\n" };
const NAME: &str = "sess_5-web-20261122T101500Z";

/// A mounted file system, until it is dropped.
pub(crate) struct Mount {
    pub(crate) path: PathBuf,
}

impl Mount {
    /// Mounts a file system of this size; `None`, with a message, if that is not permitted.
    pub(crate) fn new(path: &Path, size: &str) -> Option<Self> {
        Self::made(path, &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
    }

    pub(crate) fn bind(from: &Path, path: &Path) -> Option<Self> {
        Self::made(path, &["--bind", from.to_str().unwrap()])
    }

    fn made(path: &Path, options: &[&str]) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mounted = Command::new("mount").args(options).arg(path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { path: path.to_owned() }),
            other => {
                report_skipped(&format!("nothing may be mounted: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        assert!(Command::new("umount").arg("-l").arg(&self.path).status().unwrap().success());
    }
}

/// Reports, past the test runner's capture, that a part of a test was skipped.
fn report_skipped(reason: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    drop(writeln!(io::stderr(), "skipped: {name}: {reason}"));
}

/// Gives the directory with everything in it to the user `nobody`, and runs `does` with that user's rights
/// over files, in this thread alone.
#[cfg(target_os = "linux")]
pub(crate) fn as_nobody(dir: &Path, does: impl FnOnce()) {
    use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
    if !nix::unistd::geteuid().is_root() {
        return does();
    }
    assert!(Command::new("chown").args(["-R", "65534:65534"]).arg(dir).status().unwrap().success());
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let (gid, uid) = (setfsgid(Gid::from_raw(65534)), setfsuid(Uid::from_raw(65534)));
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(does));
    setfsuid(uid);
    setfsgid(gid);
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn as_nobody(_: &Path, does: impl FnOnce()) {
    does();
}

/// Creates nested directories of this name, and a file in the last.
pub(crate) fn deep(top: &Path, name: &str, levels: usize) {
    use nix::fcntl::{OFlag, open, openat};
    use nix::sys::stat::{Mode, mkdirat};
    let mut dir = open(top, OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&dir, name, Mode::S_IRWXU).unwrap();
        dir = openat(&dir, name, OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    }
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
    drop(openat(&dir, c"file", flags, Mode::S_IRUSR | Mode::S_IWUSR).unwrap());
}

struct Fixture {
    dir: TempDir,
    sessions: PathBuf,
    session: PathBuf,
    /// The directories of the pool's own files, of all sessions and of this one.
    metas: PathBuf,
    meta: PathBuf,
    archives: PathBuf,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let [sessions, metas, archives] = ["sessions", "meta", "archives"].map(|name| dir.path().join(name));
    let (session, meta) = (sessions.join("sess_5"), metas.join("sess_5"));
    fs::create_dir_all(&meta).unwrap();
    for part in ["work", "logs", "tmp"] {
        fs::create_dir_all(session.join(part)).unwrap();
    }
    fs::write(session.join("logs/output.log"), "hello").unwrap();
    Fixture { dir, sessions, session, metas, meta, archives }
}

impl Fixture {
    fn write(&self, work: bool) -> Result<PathBuf, ArchiveError> {
        self.write_then(work, &mut |_| ())
    }

    fn write_then(&self, work: bool, written: &mut dyn FnMut(&Path)) -> Result<PathBuf, ArchiveError> {
        let mut pages = [&b"{\"id\":1}\n"[..], b"{\"id\":2}\n{\"id\":3}\n"].map(<[u8]>::to_vec).into_iter();
        let mut messages = || Ok(pages.next());
        write_then(&self.archives, NAME, self.contents(&mut messages, work), written)
    }

    /// Returns what is archived of the session, with these messages.
    fn contents<'a>(
        &'a self,
        messages: &'a mut dyn FnMut() -> io::Result<Option<Vec<u8>>>,
        work: bool,
    ) -> Contents<'a> {
        let (sessions, meta) = (&self.sessions, &self.metas);
        let now = Timestamp(1_700_000_000_000);
        Contents { sessions, meta, session: SessionId(5), record: b"{}", messages, now, work }
    }

    /// Returns the files in the directory of archives.
    fn left(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.archives) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

/// Returns the contents of an archive by path: `/` for a directory, `-> …` for a link.
fn read(archive: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut tar = tar::Archive::new(GzDecoder::new(File::open(archive).unwrap()));
    let entries = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut holds = match entry.header().entry_type() {
            tar::EntryType::Directory => b"/".to_vec(),
            _ => Vec::new(),
        };
        if let Some(target) = entry.link_name_bytes() {
            holds = [b"-> ", &*target].concat();
        }
        entry.read_to_end(&mut holds).unwrap();
        let path = entry.path_bytes();
        (path.strip_prefix(NAME.as_bytes()).unwrap()[1..].to_vec(), holds)
    });
    entries.collect()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut x = 1_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()[0]
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn g11_everything_is_in_it_as_it_was() {
    let fixture = fixture();
    let (work, odd) = (fixture.session.join("work"), OsStr::from_bytes(ODD));
    fs::create_dir(work.join(odd)).unwrap();
    let long = "long/".repeat(60);
    fs::create_dir_all(work.join(&long)).unwrap();
    let noise = noise(300_000);
    fs::write(work.join(&long).join(odd), &noise).unwrap();
    let exact_name = "n".repeat(100 - NAME.len() - 6);
    fs::write(work.join(&exact_name), "100 bytes").unwrap();
    let (odd_target, long_target) = ("/../a//./b/", "t/".repeat(200));
    symlink(odd_target, work.join("a")).unwrap();
    symlink(&long_target, work.join("b")).unwrap();
    fs::write(fixture.meta.join("screen"), "$ ").unwrap();
    fs::write(fixture.session.join("tmp/none"), "").unwrap();

    let path = fixture.write(true).unwrap();
    assert_eq!(path, fixture.archives.join(format!("{NAME}.tar.gz")));
    assert_eq!(fixture.left(), std::slice::from_ref(&path));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fixture.archives.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let entries = read(&path);
    let get = |name: &[u8]| entries.get(name).map(Vec::as_slice);
    assert_eq!(get(b"session.json"), Some(&b"{}"[..]));
    assert_eq!(get(b"messages.jsonl"), Some(&b"{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n"[..]));
    assert_eq!(get(b"screen"), Some(&b"$ "[..]));
    assert_eq!(get(b"logs/output.log"), Some(&b"hello"[..]));
    assert_eq!(get(&[b"work/", ODD].concat()), Some(&b"/"[..]));
    assert_eq!(get(&[b"work/", long.as_bytes(), odd.as_bytes()].concat()), Some(&noise[..]));
    assert_eq!(get(format!("work/{exact_name}").as_bytes()), Some(&b"100 bytes"[..]));
    assert_eq!(get(b"work/a"), Some(format!("-> {odd_target}").as_bytes()));
    assert_eq!(get(b"work/b"), Some(format!("-> {long_target}").as_bytes()));
    assert_eq!((get(b"skipped.txt"), get(b"tmp")), (None, None));
    assert_eq!(entries.len(), 11 + 60);

    // `tar` reads the same from the archive.
    let out = fixture.dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let Ok(status) = Command::new("tar").arg("-xzf").arg(&path).arg("-C").arg(&out).status() else {
        return report_skipped("there is no tar");
    };
    let work = out.join(NAME).join("work");
    assert!(status.success() && work.join(odd).is_dir());
    assert_eq!(fs::read(work.join(&long).join(odd)).unwrap(), noise);
    assert_eq!(fs::read_link(work.join("b")).unwrap(), Path::new(&long_target));
}

#[test]
fn work_is_in_it_only_where_asked_for_and_missing_parts_are_no_error() {
    let fixture = fixture();
    fs::write(fixture.session.join("work/mine"), "x").unwrap();
    fs::write(fixture.session.join("session.json"), "theirs").unwrap();
    let without = read(&fixture.write(false).unwrap());
    assert_eq!(
        without.keys().map(|path| path.as_slice()).collect::<Vec<_>>(),
        [&b"logs"[..], b"logs/output.log", b"messages.jsonl", b"session.json"]
    );
    fs::remove_file(fixture.left().remove(0)).unwrap();
    // Everything else that a purge removes is stored too, apart from the pool's own files.
    let with = read(&fixture.write(true).unwrap());
    assert_eq!(
        (&*with[&b"session.json"[..]], &*with[&b"other/session.json"[..]]),
        (&b"{}"[..], &b"theirs"[..])
    );
    assert_eq!(with.len(), without.len() + 3);
    fs::remove_file(fixture.left().remove(0)).unwrap();
    fs::remove_dir_all(&fixture.sessions).unwrap();
    assert_eq!(read(&fixture.write(true).unwrap()).len(), 2);
}

#[test]
fn g11_nothing_outside_gets_in_and_what_is_no_file_is_named() {
    let fixture = fixture();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "x").unwrap();
    symlink(&outside, fixture.meta.join("screen")).unwrap();
    symlink(&outside, fixture.session.join("logs/link")).unwrap();
    let _socket = UnixListener::bind(fixture.session.join("work/socket")).unwrap();
    nix::unistd::mkfifo(&fixture.session.join("work/pipe\n"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mount = Mount::bind(&outside, &fixture.session.join("work/mounted"));
    let entries = read(&fixture.write(true).unwrap());
    let target = format!("-> {}", outside.display()).into_bytes();
    assert_eq!(entries[&b"screen"[..]], target);
    assert_eq!(entries[&b"logs/link"[..]], target);
    let skipped = String::from_utf8(entries[&b"skipped.txt"[..]].clone()).unwrap();
    let mut expected = vec![format!("{NAME}/work/pipe\\n: a pipe"), format!("{NAME}/work/socket: a socket")];
    if mount.is_some() {
        expected.insert(0, format!("{NAME}/work/mounted: on another file system"));
    }
    assert_eq!(skipped.lines().collect::<Vec<_>>(), expected);
    assert!(!entries.keys().any(|path| path.ends_with(b"secret")));
}

#[test]
fn a_link_in_place_of_the_session_or_its_work_leads_nowhere() {
    let fixture = fixture();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir_all(outside.join("logs/secret")).unwrap();
    fs::remove_dir(fixture.session.join("work")).unwrap();
    symlink(&outside, fixture.session.join("work")).unwrap();
    let path = fixture.write(true).unwrap();
    assert!(read(&path)[&b"work"[..]].starts_with(b"-> "));
    fs::remove_file(path).unwrap();
    fs::remove_dir_all(&fixture.session).unwrap();
    symlink(&outside, &fixture.session).unwrap();
    let error = fixture.write(true).unwrap_err();
    assert!(matches!(&error, ArchiveError::Read { path, .. } if path.ends_with("sess_5")), "{error}");
    assert!(fixture.left().is_empty());
}

#[test]
fn only_a_plain_name_is_taken() {
    let fixture = fixture();
    let long = "x".repeat(201);
    for name in ["", ".", "..", "../x", "a/b", "/x", ".x", "a\0", "a b", &long] {
        let mut messages = || panic!("it is refused first");
        let contents = fixture.contents(&mut messages, false);
        let error = write(&fixture.archives, name, contents).unwrap_err();
        assert!(matches!(error, ArchiveError::Name(_)), "{name:?}: {error}");
    }
    assert!(!fixture.archives.exists());
}

#[test]
fn nothing_is_overwritten() {
    let fixture = fixture();
    let path = fixture.archives.join(format!("{NAME}.tar.gz"));
    // Even if the file appears at the last moment.
    let error = fixture.write_then(false, &mut |_| fs::write(&path, "theirs").unwrap()).unwrap_err();
    assert!(matches!(error, ArchiveError::Exists(_)), "{error}");
    let error = fixture.write(false).unwrap_err();
    assert!(matches!(error, ArchiveError::Exists(_)), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(fixture.left(), std::slice::from_ref(&path));
    assert_eq!(super::unused_name(&fixture.archives, NAME), format!("{NAME}-2"));
    assert_eq!(super::unused_name(&fixture.archives, "other"), "other");
    fs::remove_file(&path).unwrap();
    symlink("nowhere", &path).unwrap();
    assert!(matches!(fixture.write(false).unwrap_err(), ArchiveError::Exists(_)));
}

/// Asserts that the damage is noticed, and nothing is left.
#[track_caller]
fn noticed(fixture: &Fixture, damage: &mut dyn FnMut(&Path)) {
    let error = fixture.write_then(true, damage).unwrap_err();
    assert!(matches!(error, ArchiveError::Damaged { .. }), "{error}");
    assert!(fixture.left().is_empty());
}

#[test]
fn g11_damage_on_disk_is_noticed() {
    let fixture = fixture();
    fs::write(fixture.session.join("work/file"), noise(5000)).unwrap();
    let length = fixture.write(true).unwrap().metadata().unwrap().len();
    fs::remove_dir_all(&fixture.archives).unwrap();
    for at in (0..length).step_by(97).chain([length - 1, length - 5]) {
        // Bytes 3 to 9 of gzip's header say nothing about the contents.
        if (3..10).contains(&at) {
            continue;
        }
        noticed(&fixture, &mut |part| {
            let mut bytes = fs::read(part).unwrap();
            bytes[usize::try_from(at).unwrap()] ^= 1;
            fs::write(part, bytes).unwrap();
        });
    }
    noticed(&fixture, &mut |part| {
        OpenOptions::new().write(true).open(part).unwrap().set_len(length - 1).unwrap();
    });
    noticed(&fixture, &mut |part| OpenOptions::new().write(true).open(part).unwrap().set_len(0).unwrap());
    noticed(&fixture, &mut |part| {
        OpenOptions::new().append(true).open(part).unwrap().write_all(b"x").unwrap();
    });
}

#[test]
fn g11_a_sound_archive_of_something_else_is_noticed() {
    let fixture = fixture();
    fs::write(fixture.session.join("work/file"), "same length").unwrap();
    symlink("here", fixture.session.join("work/link")).unwrap();
    let mut others = Vec::new();
    let mut other = |change: &dyn Fn(&Path)| {
        let copy = fixture.dir.path().join("copy");
        drop(fs::remove_dir_all(&copy));
        assert!(Command::new("cp").arg("-a").args([&fixture.sessions, &copy]).status().unwrap().success());
        change(&copy.join("sess_5"));
        let changed = Fixture {
            dir: tempfile::tempdir().unwrap(),
            session: copy.join("sess_5"),
            sessions: copy,
            metas: fixture.metas.clone(),
            meta: fixture.meta.clone(),
            archives: fixture.dir.path().join("others"),
        };
        let path = changed.write(true).unwrap();
        others.push(fs::read(&path).unwrap());
        fs::remove_file(path).unwrap();
    };
    other(&|_| ());
    other(&|dir| fs::write(dir.join("work/file"), "samE length").unwrap());
    other(&|dir| fs::remove_file(dir.join("work/link")).unwrap());
    other(&|dir| fs::write(dir.join("work/more"), "").unwrap());
    other(&|dir| fs::rename(dir.join("work/file"), dir.join("work/life")).unwrap());
    other(&|dir| {
        fs::remove_file(dir.join("work/link")).unwrap();
        symlink("hire", dir.join("work/link")).unwrap();
    });
    let others = others.into_iter();
    for (n, bytes) in others.enumerate() {
        let swap = &mut |part: &Path| fs::write(part, &bytes).unwrap();
        if n == 0 {
            fs::remove_file(fixture.write_then(true, swap).unwrap()).unwrap();
        } else {
            noticed(&fixture, swap);
        }
    }
}

#[test]
fn a_file_that_changes_meanwhile_is_stored_as_long_as_it_was() {
    let fixture = fixture();
    let path = fixture.dir.path().join("file");
    let archive = fixture.dir.path().join("x.tar.gz");
    let records = ScratchFile::new(fixture.dir.path(), "x", "records").unwrap();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&archive).unwrap();
    let mut entries = TarWriter::new(file, records, &archive, Timestamp(0));
    let mut opened = |name: &str, change: &dyn Fn()| {
        fs::write(&path, "0123456789").unwrap();
        let file = File::open(&path).unwrap();
        let meta = file.metadata().unwrap();
        change();
        entries.add_file(&Path::new(NAME).join(name), &meta, file).unwrap()
    };
    let longer = || OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    let shorter = || OpenOptions::new().write(true).open(&path).unwrap().set_len(7).unwrap();
    assert_eq!(opened("same", &|| ()), SizeChange::None);
    assert_eq!(opened("grew", &longer), SizeChange::Grew);
    assert_eq!(opened("shrank", &shorter), SizeChange::Shrank(3));
    let (file, records) = entries.finish().unwrap();
    verify(file, records).unwrap();
    let entries = read(&archive);
    assert_eq!(entries[&b"grew"[..]], b"0123456789");
    assert_eq!(entries[&b"shrank"[..]], b"0123456\0\0\0");
}

#[test]
fn a_log_that_is_written_to_meanwhile_is_no_obstacle() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let fixture = fixture();
    let log = fixture.session.join("logs/output.log");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = OpenOptions::new().append(true).open(&log).unwrap();
            while !over.load(Ordering::Relaxed) && file.metadata().unwrap().len() < 64 << 20 {
                file.write_all(b"hello").unwrap();
            }
        });
        let path = fixture.write(false);
        over.store(true, Ordering::Relaxed);
        let stored = read(&path.unwrap()).remove(&b"logs/output.log"[..]).unwrap();
        assert!(stored.len() >= 5 && fs::read(&log).unwrap().starts_with(&stored));
    });
}

#[test]
fn a_full_disk_leaves_nothing() {
    let fixture = fixture();
    let Some(_mount) = Mount::new(&fixture.archives, "256k") else { return };
    fs::write(fixture.session.join("logs/output.log"), noise(1 << 20)).unwrap();
    let full = |error: ArchiveError| match error {
        ArchiveError::Write { path, source } => {
            assert!(
                path.starts_with(&fixture.archives) && source.kind() == ErrorKind::StorageFull,
                "{source}"
            );
        }
        other => panic!("{other}"),
    };
    full(fixture.write(false).unwrap_err());
    assert!(fixture.left().is_empty());
    // The disk is also full if the scratch files do not fit.
    fs::write(fixture.session.join("logs/output.log"), "").unwrap();
    let mut pages = 0;
    let mut messages = || {
        pages += 1;
        Ok((pages < 1000).then(|| vec![b' '; 1000]))
    };
    let contents = fixture.contents(&mut messages, false);
    full(write(&fixture.archives, NAME, contents).unwrap_err());
    assert!(fixture.left().is_empty());
    // A process that another test is just starting has the removed files open until it runs its program.
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = fixture.write(false) {
        assert!(Instant::now() < deadline, "{error}");
        full(error);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_it() {
    let fixture = fixture();
    let closed = fixture.session.join("work/closed");
    fs::create_dir(&closed).unwrap();
    fs::write(fixture.session.join("work/file"), "").unwrap();
    as_nobody(fixture.dir.path(), || {
        for name in ["closed", "file"] {
            let path = fixture.session.join("work").join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
            let error = fixture.write(true).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("cannot read {NAME}/work/{name}: Permission denied")),
                "{error}"
            );
            assert!(fixture.left().is_empty());
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        fixture.write(true).unwrap();
    });
    let mut messages = || Err(io::Error::other("the database is gone"));
    let contents = fixture.contents(&mut messages, false);
    let error = write(&fixture.archives, "other", contents).unwrap_err().to_string();
    assert_eq!(error, "cannot read the messages: the database is gone");
    assert_eq!(fixture.left().len(), 1);
}

#[test]
fn a_file_that_is_nearly_all_holes_is_refused_by_name_and_not_read() {
    let fixture = fixture();
    let write_sparse = |name: &str, length: u64| {
        let file = File::create(fixture.session.join("work").join(name)).unwrap();
        file.set_len(length).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"end", length - 3).unwrap();
    };
    write_sparse("a", 1 << 20);
    let path = fixture.write(true).unwrap();
    let stored = read(&path).remove(&b"work/a"[..]).unwrap();
    assert!(stored.len() == 1 << 20 && stored.starts_with(b"begin\0") && stored.ends_with(b"\0end"));
    fs::remove_file(path).unwrap();
    write_sparse("b", ZEROS_MAX + (1 << 20));
    let error = fixture.write(true).unwrap_err();
    assert!(matches!(&error, ArchiveError::Sparse { path } if path.ends_with("work/b")), "{error}");
    assert!(error.to_string().contains("over 4 GiB of zeros: move or remove the file"), "{error}");
    assert!(fixture.left().is_empty());
}

#[test]
fn no_depth_is_too_much() {
    let fixture = fixture();
    deep(&fixture.session.join("work"), &"d".repeat(200), 50);
    let entries = read(&fixture.write(true).unwrap());
    assert_eq!(entries.len(), 2 + 2 + 1 + 50 + 1);
}

#[test]
fn what_a_crash_left_is_swept_and_nothing_else() {
    let fixture = fixture();
    sweep(&fixture.archives).unwrap();
    let path = fixture.write(false).unwrap();
    for name in [".sess_1-x.part", ".sess_1-x.records.part"] {
        fs::write(fixture.archives.join(name), "").unwrap();
    }
    let theirs = fixture.archives.join("theirs.part");
    fs::write(&theirs, "").unwrap();
    sweep(&fixture.archives).unwrap();
    let mut left = fixture.left();
    left.sort();
    assert_eq!(left, [path, theirs]);
}
