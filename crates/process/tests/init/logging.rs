//! Tests of the log writer as a process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};

use flate2::read::GzDecoder;
use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity;
use process::log_writer::{Parts, clear, has_writer, is_writer_lost, times};
use protocol::logs;

use crate::pane::{myself, tag, wait_until};

crate::tests![
    the_output_is_appended_in_private_files,
    a_writer_is_seen_until_the_log_is_whole,
    a_writer_that_was_killed_is_lost_until_the_next_one_has_marked_it,
    only_the_end_of_its_input_ends_it,
    a_full_disk_never_stops_the_reading,
    a_lock_that_is_held_or_a_pipe_in_place_of_a_file_never_stops_the_reading,
    two_writers_that_rotate_lose_nothing,
    a_writer_that_is_killed_leaves_the_log_in_order,
    a_flood_stays_under_its_cap_and_small_in_memory,
    a_cleared_log_goes_on,
];

fn writer_with(dir: &Path, flags: &str) -> Child {
    myself("log", dir).args(flags.split_whitespace()).stdin(Stdio::piped()).spawn().unwrap()
}

fn writer(dir: &Path) -> Child {
    writer_with(dir, "")
}

fn give(writer: &mut Child, bytes: &[u8]) {
    writer.stdin.as_mut().unwrap().write_all(bytes).unwrap();
}

fn finish(mut writer: Child) {
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
}

/// Returns the offset of the first byte that is kept, and all kept bytes, read under the log's lock.
fn kept(dir: &Path) -> (u64, Vec<u8>) {
    let lock = File::open(dir).unwrap();
    lock.lock().unwrap();
    let parts = Parts::list_stable(dir).unwrap();
    let mut all = Vec::new();
    for part in &parts.0 {
        assert_eq!(part.offset - parts.start(), all.len() as u64, "{parts:?}");
        let file = File::open(dir.join(part.name())).unwrap();
        let mut source: Box<dyn Read> =
            if part.compressed { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
        source.read_to_end(&mut all).unwrap();
    }
    assert_eq!(parts.end() - parts.start(), all.len() as u64, "{parts:?}");
    all.extend(fs::read(dir.join(logs::CURRENT)).unwrap_or_default());
    (parts.start(), all)
}

fn text(dir: &Path) -> String {
    String::from_utf8(kept(dir).1).unwrap()
}

fn the_output_is_appended_in_private_files() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("sess_1");
    for text in ["first\n", "second\n"] {
        let mut writer = writer_with(&dir, &format!("--tag {}", tag()));
        give(&mut writer, text.as_bytes());
        finish(writer);
    }
    let log = dir.join(logs::CURRENT);
    assert_eq!(fs::read_to_string(&log).unwrap(), "first\nsecond\n");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&log), mode(&dir.join(logs::TIMES))), (0o700, 0o600, 0o600));
    let times = times::read(&dir).unwrap();
    let begun = times.iter().filter(|entry| entry.tag == Some(tag())).map(|entry| entry.offset);
    assert_eq!(begun.collect::<Vec<_>>(), [0, 6]);
    let mut resumed = writer_with(&dir, "--resumed");
    give(&mut resumed, b"third\n");
    finish(resumed);
    let marked = "\r\n[tmux-pool: the log writer was lost; output may be missing here]\r\n";
    assert_eq!(fs::read_to_string(&log).unwrap(), format!("first\nsecond\n{marked}third\n"));
}

fn a_writer_is_seen_until_the_log_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut first = writer(dir);
    give(&mut first, b"one ");
    wait_until("the first output", || text(dir) == "one ");
    assert!(has_writer(dir), "more may come");
    let mut second = writer(dir);
    give(&mut second, b"two ");
    wait_until("the second writer, beside the first", || text(dir) == "one two ");
    finish(first);
    give(&mut second, b"three ");
    wait_until("the second writer, alone", || text(dir) == "one two three ");
    assert!(has_writer(dir), "the second is there still");
    finish(second);
    assert!(!has_writer(dir));
}

fn a_writer_that_was_killed_is_lost_until_the_next_one_has_marked_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut first = writer(dir);
    give(&mut first, b"one ");
    wait_until("the first output", || text(dir) == "one ");
    assert!(!is_writer_lost(dir), "it runs");
    drop((first.kill(), first.wait()));
    assert!(is_writer_lost(dir));
    let mut second = writer(dir);
    give(&mut second, b"two");
    wait_until("the second output", || text(dir).ends_with("two"));
    finish(second);
    assert!(text(dir).starts_with("one \r\n[tmux-pool: the log writer was lost"), "{}", text(dir));
    assert!(!is_writer_lost(dir));
    let before = text(dir);
    finish(writer(dir));
    assert_eq!(text(dir), before, "it is marked once");
}

fn only_the_end_of_its_input_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join(logs::CURRENT);
    let mut writer = writer(dir.path());
    give(&mut writer, b"a");
    wait_until("the first output", || fs::read(&log).is_ok_and(|found| found == b"a"));
    let id = identity::identify(writer.id()).unwrap().unwrap();
    let handle = Handle::open(id).unwrap().unwrap();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        assert!(handle.signal(signal).unwrap());
    }
    give(&mut writer, b"b");
    finish(writer);
    assert_eq!(fs::read(&log).unwrap(), b"ab");
}

fn a_full_disk_never_stops_the_reading() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    let log = dir.path().join(logs::CURRENT);
    wait_until("its log", || log.exists());
    fs::remove_file(&log).unwrap();
    symlink("/dev/full", &log).unwrap();
    give(&mut writer, &vec![b'x'; 3 << 20]);
    fs::remove_file(&log).unwrap();
    give(&mut writer, b"end");
    finish(writer);
    assert!(fs::read_to_string(&log).unwrap().contains("bytes of output lost]"));
}

/// The log writer reads the pane and reports lost bytes, whatever a program in the session does to the files of the
/// log.
fn a_lock_that_is_held_or_a_pipe_in_place_of_a_file_never_stops_the_reading() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    give(&mut writer, b"before\n");
    let log = dir.path().join(logs::CURRENT);
    wait_until("the first output", || fs::read(&log).is_ok_and(|found| found == b"before\n"));
    let lock = File::open(dir.path()).unwrap();
    lock.lock().unwrap();
    give(&mut writer, &vec![b'x'; 8 << 20]);
    assert_eq!(clear(dir.path()).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    fs::remove_file(&log).unwrap();
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap();
    drop(lock);
    give(&mut writer, &vec![b'y'; 8 << 20]);
    fs::remove_file(&log).unwrap();
    give(&mut writer, b"after\n");
    finish(writer);
    let text = String::from_utf8(fs::read(&log).unwrap()).unwrap();
    assert!(text.contains("bytes of output lost]"), "{} bytes", text.len());
}

/// Returns the numbers in the complete lines of each writer, in the order of the log.
fn numbers(text: &[u8]) -> BTreeMap<String, Vec<u32>> {
    let mut numbers = BTreeMap::<_, Vec<u32>>::new();
    let text = String::from_utf8_lossy(text);
    for line in text.split_inclusive('\n').skip(1).filter_map(|line| line.strip_suffix('\n')) {
        let Some((writer, number)) = line.rsplit_once(' ') else { continue };
        let (Some(writer), Ok(number)) = (writer.rsplit('#').next(), number.parse()) else { continue };
        numbers.entry(writer.to_owned()).or_default().push(number);
    }
    numbers
}

/// Options for parts of 4 KiB, none of which is dropped in these tests.
const MANY_PARTS: &str = "--max-size 2200000 --keep 500 --compress";

fn two_writers_that_rotate_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writers = ["one", "two"].map(|name| (name, writer_with(dir.path(), MANY_PARTS)));
    for number in 0..3000 {
        for (name, writer) in &mut writers {
            give(writer, format!("#{name} {number}\n").as_bytes());
        }
    }
    for (_, writer) in writers {
        finish(writer);
    }
    let (start, all) = kept(dir.path());
    assert_eq!(start, 0);
    let length: usize = (0..3000).map(|n: u32| 2 * format!("#one {n}\n").len()).sum();
    assert_eq!(all.len(), length, "nothing more, nothing less");
    assert!(Parts::list_stable(dir.path()).unwrap().0.len() > 10);
}

fn a_writer_that_is_killed_leaves_the_log_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut seen = Vec::new();
    for round in 0..25_u32 {
        let mut writer = writer_with(dir, MANY_PARTS);
        let mut input = writer.stdin.take().unwrap();
        let feeder = std::thread::spawn(move || {
            let lines = (0_u32..).map(|number| format!("#r{round} {number}\n"));
            for line in lines.take(6_000) {
                if input.write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
        });
        // Killed at a different place each time.
        let enough = seen.len() + 997 * (round as usize % 7 + 1);
        wait_until("some output", || kept(dir).1.len() > enough);
        writer.kill().unwrap();
        writer.wait().unwrap();
        feeder.join().unwrap();
        let (start, all) = kept(dir);
        assert_eq!(start, 0);
        assert!(all.starts_with(&seen), "earlier output is unchanged");
        seen = all;
    }
    let rounds = numbers(&seen);
    assert_eq!(rounds.len(), 25);
    for (round, numbers) in rounds {
        let first = numbers[0];
        assert!(first <= 1, "{round} begins with its first line, or its second behind a cut one: {first}");
        assert!(numbers.windows(2).all(|two| two[0] + 1 == two[1]), "{round}: each once and in order");
    }
}

fn a_flood_stays_under_its_cap_and_small_in_memory() {
    const CAP: u64 = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut writer = writer_with(dir, &format!("--max-size {CAP} --keep 3 --compress"));
    let line = "all work and no play makes an agent a dull program\r\n";
    let block = line.repeat(1200);
    for round in 0..1500 {
        give(&mut writer, block.as_bytes());
        if round % 20 == 0 && dir.join(logs::CURRENT).exists() {
            let lock = File::open(dir).unwrap();
            lock.lock().unwrap();
            let files = fs::read_dir(dir).unwrap().flatten().filter_map(|entry| entry.metadata().ok());
            let size: u64 = files.map(|found| found.len()).sum();
            assert!(size <= CAP, "{size}");
            drop(lock);
            let memory = fs::read_to_string(format!("/proc/{}/smaps_rollup", writer.id())).unwrap();
            let anonymous = memory.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
            let kib: u64 = anonymous.trim().strip_suffix(" kB").unwrap().parse().unwrap();
            assert!(kib <= 2048, "{kib} KiB");
        }
    }
    finish(writer);
    let (start, all) = kept(dir);
    assert_eq!(start + all.len() as u64, 1500 * block.len() as u64, "every byte is counted");
    let phase = usize::try_from(start).unwrap() % line.len();
    assert!(all == block.repeat(all.len() / block.len() + 2).as_bytes()[phase..][..all.len()], "in order");
    assert!(!dir.join(logs::COMPRESSING).exists() && !dir.join(logs::NEXT).exists());
}

fn a_cleared_log_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut writer = writer_with(dir, MANY_PARTS);
    give(&mut writer, &[b'x'; 20_000]);
    wait_until("all of it", || kept(dir).1.len() == 20_000);
    clear(dir).unwrap();
    assert_eq!(kept(dir), (20_000, Vec::new()));
    give(&mut writer, b"after");
    wait_until("what comes after", || kept(dir) == (20_000, b"after".to_vec()));
    finish(writer);
}
