//! Tests on a log in parts, some of them compressed, that is read while it changes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use process::log_writer;
use protocol::logs::{self, part_name};
use protocol::{Tag, Timestamp};

use super::writer_state::is_complete;
use super::*;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Creates a log of consecutive parts, every other one compressed, and a current file.
fn log(first: u64, parts: &[&str], current: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut offset = first;
    for (n, part) in parts.iter().enumerate() {
        let compressed = n % 2 == 0;
        let bytes = if compressed { gzip(part.as_bytes()) } else { part.as_bytes().to_vec() };
        fs::write(dir.path().join(part_name(offset, compressed)), bytes).unwrap();
        offset += part.len() as u64;
    }
    fs::write(dir.path().join(logs::CURRENT), current).unwrap();
    dir
}

/// Rotates as the log writer does: renames the current file to a part, and creates a new one.
fn rotate(dir: &Path, offset: u64) -> File {
    let next = File::create(dir.join(logs::NEXT)).unwrap();
    fs::rename(dir.join(logs::CURRENT), dir.join(part_name(offset, false))).unwrap();
    fs::rename(dir.join(logs::NEXT), dir.join(logs::CURRENT)).unwrap();
    next
}

fn compress(dir: &Path, offset: u64) {
    let plain = dir.join(part_name(offset, false));
    fs::write(dir.join(part_name(offset, true)), gzip(&fs::read(&plain).unwrap())).unwrap();
    fs::remove_file(plain).unwrap();
}

/// Returns a reader at the first byte that is kept.
fn first(dir: &Path) -> Reader {
    Reader::new(dir, bounds(dir).unwrap().0)
}

/// Reads to the end; returns the start offset and the text.
fn collect(reader: &mut Reader) -> (u64, String) {
    let (mut block, mut all, mut first) = ([0; 4096], Vec::new(), None);
    while let read @ 1.. = reader.read(&mut block).unwrap() {
        first.get_or_insert(reader.offset() - read as u64);
        all.extend_from_slice(&block[..read]);
    }
    (first.unwrap_or(reader.offset()), String::from_utf8(all).unwrap())
}

fn last(dir: &Path, lines: u64) -> (u64, String) {
    collect(&mut Reader::new(dir, last_lines(dir, lines).unwrap().0))
}

#[test]
fn the_last_lines_over_several_parts() {
    let dir = log(100, &["one\ntwo\nthr", "ee\nfo"], "ur\nfive\n");
    let expected = [
        (0, 124, ""),
        (1, 119, "five\n"),
        (2, 114, "four\nfive\n"),
        (3, 108, "three\nfour\nfive\n"),
        (4, 104, "two\nthree\nfour\nfive\n"),
        (5, 100, "one\ntwo\nthree\nfour\nfive\n"),
        (9, 100, "one\ntwo\nthree\nfour\nfive\n"),
    ];
    for (lines, offset, text) in expected {
        assert_eq!(last(dir.path(), lines), (offset, text.to_owned()), "{lines}");
    }
    fs::write(dir.path().join(logs::CURRENT), "ur\nno newline").unwrap();
    assert_eq!(last(dir.path(), 1), (119, "no newline".to_owned()));
    fs::write(dir.path().join(logs::CURRENT), "0123456789\n".repeat(20_000)).unwrap();
    assert_eq!(last(dir.path(), 9000).1.lines().count(), 9000);
    let none = tempfile::tempdir().unwrap();
    assert_eq!(last(&none.path().join("missing"), 5), (0, String::new()));
}

#[test]
fn what_is_gone_or_damaged_is_missed_and_counted() {
    let dir = log(100, &["one\n", "two\n", "three\n"], "four\n");
    let mut reader = Reader::new(dir.path(), 0);
    let mut block = [0; 3];
    assert_eq!((reader.read(&mut block).unwrap(), reader.take_missed()), (3, 100));
    fs::remove_file(dir.path().join(part_name(104, false))).unwrap();
    let mut damaged = gzip(b"three\n");
    damaged[0] ^= 0xff;
    fs::write(dir.path().join(part_name(108, true)), damaged).unwrap();
    assert_eq!(collect(&mut reader).1, "\nfour\n", "the open file is read to its end");
    let mut reader = Reader::new(dir.path(), 0);
    let mut all = Vec::new();
    while let read @ 1.. = reader.read(&mut block).unwrap() {
        all.extend_from_slice(&block[..read]);
    }
    assert_eq!(all, b"one\nfour\n");
    assert_eq!(reader.take_missed(), 100 + 4 + 6);
    let mut torn = gzip(&b"zero\n".repeat(50));
    torn.truncate(torn.len() - 3);
    fs::write(dir.path().join(part_name(90, true)), torn).unwrap();
    assert_eq!(
        collect(&mut Reader::new(dir.path(), 0)).1,
        "zero\nzero\none\nfour\n",
        "up to the damage, then the next part"
    );
}

#[test]
fn reading_on_loses_nothing_however_the_files_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let (sender, end) = mpsc::channel::<()>();
    let written = thread::spawn(move || {
        let mut file = File::create(path.join(logs::CURRENT)).unwrap();
        let (mut base, mut end, mut all) = (0, 0, Vec::new());
        for n in 0..20_000 {
            let line = format!("line {n}\n");
            file.write_all(line.as_bytes()).unwrap();
            all.extend_from_slice(line.as_bytes());
            end += line.len() as u64;
            if n % 97 == 96 {
                file = rotate(&path, base);
                if n % 5 == 0 {
                    compress(&path, base);
                }
                base = end;
            }
        }
        drop(sender);
        all
    });
    let (mut reader, mut read) = (Reader::new(dir.path(), 0), String::new());
    loop {
        let ended = end.try_recv() == Err(TryRecvError::Disconnected);
        read += &collect(&mut reader).1;
        if ended {
            break;
        }
    }
    let written = written.join().unwrap();
    assert!(read.as_bytes() == written, "{} of {} bytes", read.len(), written.len());
    assert_eq!(reader.take_missed(), 0);
}

#[test]
fn a_log_that_is_cleared_is_followed_on() {
    let dir = log(0, &["one\n"], "two\n");
    let mut reader = Reader::new(dir.path(), 0);
    assert_eq!(collect(&mut reader), (0, "one\ntwo\n".to_owned()));
    log_writer::clear(dir.path()).unwrap();
    assert_eq!((collect(&mut reader), reader.take_missed()), ((8, String::new()), 0), "all was read");
    let mut file = File::options().append(true).open(dir.path().join(logs::CURRENT)).unwrap();
    file.write_all(b"three\n").unwrap();
    log_writer::clear(dir.path()).unwrap();
    let mut file = File::options().append(true).open(dir.path().join(logs::CURRENT)).unwrap();
    file.write_all(b"four\n").unwrap();
    assert_eq!(collect(&mut reader), (14, "four\n".to_owned()));
    assert_eq!(collect(&mut Reader::new(dir.path(), 0)), (14, "four\n".to_owned()));
}

#[test]
fn a_log_that_is_cut_off_is_followed_on_and_the_cut_is_counted() {
    let dir = log(0, &["one\n"], "two\n");
    let mut reader = Reader::new(dir.path(), 0);
    assert_eq!(collect(&mut reader), (0, "one\ntwo\n".to_owned()));
    let mut file = File::options().append(true).open(dir.path().join(logs::CURRENT)).unwrap();
    file.set_len(1).unwrap();
    assert_eq!((reader.read(&mut [0; 9]).unwrap(), reader.take_missed(), reader.offset()), (0, 3, 5));
    file.write_all(b"three\n").unwrap();
    assert_eq!(collect(&mut reader), (5, "three\n".to_owned()));
}

#[test]
fn a_writer_is_done_once_it_began_and_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let tag = Tag([9; 16]);
    assert!(!is_complete(dir.path(), Some(tag)), "not started");
    let lock = File::create(dir.path().join(logs::LOCK)).unwrap();
    lock.lock_shared().unwrap();
    fs::write(dir.path().join(logs::TIMES), format!("5 0 {tag}\n")).unwrap();
    assert!(!is_complete(dir.path(), Some(tag)) && !is_complete(dir.path(), None));
    let late = thread::spawn(move || drop(lock));
    wait_for_writer(dir.path(), Some(tag));
    late.join().unwrap();
    assert!(is_complete(dir.path(), Some(tag)) && is_complete(dir.path(), None));
    assert!(!is_complete(dir.path(), Some(Tag([1; 16]))), "its writer has not started");
}

#[test]
fn a_writer_that_is_there_is_awaited_for_longer() {
    let dir = tempfile::tempdir().unwrap();
    let awaited = |seconds| should_wait(dir.path(), Some(Tag([9; 16])), Duration::from_secs(seconds));
    assert_eq!([1, 3, 11].map(awaited), [true, false, false], "it may never start");
    let lock = File::create(dir.path().join(logs::LOCK)).unwrap();
    lock.lock_shared().unwrap();
    assert_eq!([1, 3, 11].map(awaited), [true, true, false]);
    let (tag, next) = (Tag([9; 16]), Tag([1; 16]));
    fs::write(dir.path().join(logs::TIMES), format!("5 0 {next}\n6 4 {tag}\n")).unwrap();
    assert!(awaited(3), "the other one was before");
    fs::write(dir.path().join(logs::TIMES), format!("5 0 {tag}\n6 4 {next}\n")).unwrap();
    assert!(!awaited(1), "the writer is that of the next incarnation");
}

#[test]
fn an_end_that_was_lost_is_not_waited_for() {
    let dir = log(100, &["one\n"], "two\n");
    assert_eq!(bounds(dir.path()).unwrap(), (100, 108));
    assert_eq!(collect(&mut Reader::new(dir.path(), 500)), (108, String::new()));
    let none = tempfile::tempdir().unwrap();
    assert_eq!(bounds(&none.path().join("missing")).unwrap(), (0, 0));
}

#[test]
fn what_is_gone_before_it_is_read_is_not_missed() {
    let dir = log(100, &["one\n"], "two\n");
    let mut reader = first(dir.path());
    let mut block = [0; 4];
    assert_eq!((reader.read(&mut block).unwrap(), reader.take_missed()), (4, 0));
    log_writer::clear(dir.path()).unwrap();
    assert_eq!((reader.read(&mut block).unwrap(), reader.take_missed()), (0, 4), "dropped after the start");
}

#[test]
fn a_pipe_in_place_of_a_log_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    for name in [logs::CURRENT.to_owned(), part_name(0, false), logs::TIMES.to_owned(), logs::LOCK.to_owned()]
    {
        let path = dir.path().join(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(log_writer::open_file(&path).unwrap_err().to_string().ends_with("is not a file"));
    }
    let read = Reader::new(dir.path(), 0).read(&mut [0]);
    assert!(read.unwrap_err().to_string().contains("is not a file"));
    assert!(!log_writer::has_writer(dir.path()) && log_writer::times::read(dir.path()).is_err());
}

#[test]
fn a_link_in_place_of_the_directory_is_not_followed() {
    let other = log(0, &[], "theirs");
    let session = tempfile::tempdir().unwrap();
    let dir = session.path().join("logs");
    symlink(other.path(), &dir).unwrap();
    assert!(bounds(&dir).unwrap_err().to_string().contains("is a link"));
    Reader::new(&dir, 0).read(&mut [0]).unwrap_err();
}

#[test]
fn what_is_older_is_skipped() {
    let dir = log(100, &["one\n", "two\n"], "three\nfour\n");
    let path = dir.path();
    fs::write(path.join(logs::TIMES), "1000 100\n5000 104\n9000 104\n20000 108\n30000 114\n").unwrap();
    let current = File::options().append(true).open(path.join(logs::CURRENT)).unwrap();
    let written_at =
        |ms: u64| current.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(ms)).unwrap();
    let since = |at| {
        let (start, end) = bounds(path).unwrap();
        offset_at(path, Timestamp(at), end).unwrap().max(start)
    };
    written_at(30_100);
    let found = [0, 999, 1000, 4999, 5000, 8999, 9000, 20_000, 29_999, 30_000, 30_100, 30_101].map(since);
    assert_eq!(found, [100, 100, 100, 100, 104, 104, 104, 108, 108, 114, 114, 119]);
    written_at(40_000);
    assert_eq!(since(35_000), 114, "a part was written later");
    let mut times = Times::new(path);
    let at = [99, 100, 103, 104, 107, 113, 114, 500].map(|offset| times.at(offset).map(|at| at.0));
    let expected =
        [None, Some(1000), Some(1000), Some(9000), Some(9000), Some(20_000), Some(30_000), Some(30_000)];
    assert_eq!(at, expected);
    let mut file = File::options().append(true).open(path.join(logs::TIMES)).unwrap();
    file.write_all(b"50000 200\n").unwrap();
    assert_eq!(times.at(500), Some(Timestamp(50_000)), "reread");
}
