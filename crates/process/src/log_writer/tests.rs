//! Tests that, whatever happens between two writes, every accepted byte is at its offset.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use protocol::Tag;
use protocol::logs::{self, part_name};

use super::compress::{claim, compress};
use super::copy::write_fully;
use super::directory::LogDir;
use super::rotating_log::RotatingLog;
use super::{Parts, WriterOptions, clear, has_writer, is_writer_lost, times, write_from};
use crate::testing::wait_until;

fn open(options: &WriterOptions) -> RotatingLog {
    RotatingLog::open(LogDir::create(&options.dir).unwrap(), options).unwrap()
}

/// Returns the offset of the first byte that is kept, and all kept bytes.
fn kept(dir: &Path) -> (u64, Vec<u8>) {
    let files = LogDir::open(dir).unwrap();
    let _lock = files.lock().unwrap();
    let parts = Parts::list(dir).unwrap();
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

/// Returns the total size of the files, in bytes.
fn size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}

#[derive(Debug, Clone)]
enum Step {
    /// Write this many bytes, of incompressible noise if true.
    Write(usize, bool),
    /// Make it impossible to create a file of this name, or possible again.
    Obstacle(&'static str),
    /// Kill the writer and start another one.
    Killed,
    /// Start a second writer, and finish it after this many bytes.
    Beside(usize),
    Clear,
    /// Compress the oldest uncompressed part.
    Compress,
}

fn step() -> impl Strategy<Value = Step> {
    let name = prop::sample::select(&[logs::NEXT, logs::COMPRESSING, logs::TIMES, logs::NEW_TIMES][..]);
    prop_oneof![
        8 => (1_usize..3000, any::<bool>()).prop_map(|(length, noise)| Step::Write(length, noise)),
        1 => name.prop_map(Step::Obstacle),
        1 => Just(Step::Killed),
        1 => (1_usize..2000).prop_map(Step::Beside),
        1 => Just(Step::Clear),
        2 => Just(Step::Compress),
    ]
}

/// Returns the bytes at an offset; any two sections differ.
fn bytes(at: usize, length: usize, noise: bool) -> Vec<u8> {
    let random = |n: usize| {
        let mixed = (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 40
    };
    (at..at + length).map(|n| if noise { random(n) as u8 } else { (n / 100) as u8 }).collect()
}

fn obstruct(path: &Path) {
    if fs::remove_dir(path).is_err() {
        // Fails if the file exists already; it then stays.
        let _is_file = fs::create_dir(path);
    }
}

fn remove_obstacles(dir: &Path) {
    for name in [logs::NEXT, logs::COMPRESSING, logs::NEW_TIMES] {
        let _none = fs::remove_dir(dir.join(name));
    }
}

fn story(options: &WriterOptions, steps: Vec<Step>) {
    let dir = &options.dir;
    let (mut log, mut all) = (open(options), Vec::<u8>::new());
    for step in steps {
        match step {
            Step::Write(length, noise) => {
                let text = bytes(all.len(), length, noise);
                let lost = write_fully(&mut log, &text);
                all.extend(&text[..length - lost]);
            }
            Step::Obstacle(name) => obstruct(&dir.join(name)),
            Step::Killed => {
                remove_obstacles(dir);
                log = open(options);
            }
            Step::Beside(length) => {
                remove_obstacles(dir);
                let text = bytes(all.len(), length, false);
                let mut other = open(options);
                assert_eq!(write_fully(&mut other, &text), 0);
                all.extend(&text);
                other.finish();
            }
            Step::Clear => {
                if clear(dir).is_ok() {
                    assert_eq!(kept(dir), (all.len() as u64, Vec::new()));
                }
            }
            Step::Compress => {
                let files = LogDir::open(dir).unwrap();
                let parts = Parts::list(dir).unwrap().0;
                let plain =
                    parts.iter().find(|p| !p.compressed && (1..=options.max_file_size()).contains(&p.length));
                drop(plain.map(|part| compress(&files, part.offset)));
            }
        }
        assert!(size(dir) <= options.max_size, "{} of {options:?}", size(dir));
        let (start, kept) = kept(dir);
        assert_eq!(start as usize + kept.len(), all.len(), "the end offset");
        assert!(kept == all[start as usize..], "from {start} on");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn the_cap_holds_and_every_byte_is_in_its_place(
        max_size in 4096_u64..20_000,
        keep in 0_u32..5,
        compress in any::<bool>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions { max_size, keep, compress, ..WriterOptions::new(dir.path()) };
        story(&options, steps);
    }
}

#[test]
fn without_another_file_it_goes_on_in_the_same_one_within_its_cap() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions { max_size: 10_000, keep: 3, ..WriterOptions::new(dir.path()) };
    let mut log = open(&options);
    assert_eq!(write_fully(&mut log, &bytes(0, 9000, true)), 0);
    let parts = Parts::list(dir.path()).unwrap().0.len();
    assert_eq!(parts, 3);
    fs::create_dir(dir.path().join(logs::NEXT)).unwrap();
    let lost = write_fully(&mut log, &bytes(9000, 9000, true));
    assert!((3000..6000).contains(&lost), "the bytes that do not fit beside the newest part: {lost}");
    let (start, kept) = kept(dir.path());
    assert!(start > 0 && kept == bytes(start as usize, 18_000 - lost - start as usize, true));
    assert!(size(dir.path()) <= 10_000);
    fs::remove_dir(dir.path().join(logs::NEXT)).unwrap();
    assert_eq!(write_fully(&mut log, b"again"), 0);
}

#[test]
fn what_a_writer_left_half_done_is_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let options = WriterOptions { compress: true, ..WriterOptions::new(dir.path()) };
    drop(open(&options));
    let text = bytes(0, 50_000, false);
    fs::write(path(&part_name(0, false)), &text[..30_000]).unwrap();
    fs::write(path(&part_name(30_000, false)), &text[30_000..40_000]).unwrap();
    fs::write(path(logs::CURRENT), &text[40_000..]).unwrap();
    let mut torn = GzEncoder::new(Vec::new(), Compression::fast());
    torn.write_all(&text[..30_000]).unwrap();
    let torn = torn.finish().unwrap();
    fs::write(path(&part_name(0, true)), &torn[..torn.len() / 2]).unwrap();
    fs::write(path(logs::COMPRESSING), &torn[..torn.len() / 3]).unwrap();
    fs::write(path(logs::NEXT), "").unwrap();
    assert_eq!(kept(dir.path()), (0, text.clone()), "the uncompressed copy counts");
    drop(open(&WriterOptions { compress: false, ..options.clone() }));
    assert!(!path(&part_name(0, true)).exists() && !path(logs::COMPRESSING).exists());
    let log = open(&options);
    let compressed = || Parts::list_stable(dir.path()).unwrap().0.iter().all(|part| part.compressed);
    wait_until("the compression", compressed);
    assert_eq!(kept(dir.path()), (0, text));
    log.finish();
    let names = |name: &std::ffi::OsStr| logs::parse_part(name.to_str().unwrap()).is_none();
    let others =
        fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).filter(|n| names(n)).count();
    assert_eq!(others, 2, "the log and its times");
}

#[test]
fn a_part_that_does_not_get_smaller_or_is_gone_meanwhile_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let files = LogDir::create(dir.path()).unwrap();
    let part = dir.path().join(part_name(0, false));
    fs::write(&part, bytes(0, 100_000, true)).unwrap();
    assert!(compress(&files, 0).is_err());
    assert_eq!(fs::read(&part).unwrap(), bytes(0, 100_000, true));
    assert!(!dir.path().join(logs::COMPRESSING).exists());
    fs::write(&part, bytes(0, 100_000, false)).unwrap();
    let other = File::create(dir.path().join(logs::COMPRESSING)).unwrap();
    other.lock().unwrap();
    assert!(compress(&files, 0).is_err(), "another writer is compressing");
    drop(other);
    let (unnamed, done) = (dir.path().join(logs::COMPRESSING), dir.path().join("done"));
    fs::write(&unnamed, "whole").unwrap();
    let opened = File::options().write(true).open(&unnamed).unwrap();
    fs::rename(&unnamed, &done).unwrap();
    assert!(claim(&unnamed, &opened).is_err(), "renamed before it could be claimed");
    assert_eq!(fs::read(&done).unwrap(), b"whole");
    fs::remove_file(done).unwrap();
    drop(opened);
    compress(&files, 0).unwrap();
    assert_eq!(kept(dir.path()), (0, bytes(0, 100_000, false)));
}

#[test]
fn a_log_that_was_cut_off_has_times_of_what_follows() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions { tag: Some(Tag([7; 16])), ..WriterOptions::new(dir.path()) };
    let cut = |to: u64| {
        let file = fs::OpenOptions::new().write(true).open(dir.path().join(logs::CURRENT)).unwrap();
        file.set_len(to).unwrap();
    };
    let last = || times::read(dir.path()).unwrap().last().map(|entry| (entry.offset, entry.tag)).unwrap();
    let mut log = open(&options);
    assert_eq!(write_fully(&mut log, b"before"), 0);
    drop(log);
    let mut log = open(&options);
    assert_eq!(last(), (6, options.tag));
    // A crash of the machine cuts the file, so that the next writer begins before the recorded end.
    cut(4);
    drop(log);
    log = open(&options);
    assert_eq!(last(), (4, options.tag));
    // A person cuts the file while it is written.
    assert_eq!(write_fully(&mut log, b"more"), 0);
    cut(1);
    assert_eq!(write_fully(&mut log, b"after"), 0);
    assert_eq!(last(), (1, options.tag));
}

#[test]
fn clearing_leaves_nothing_and_offsets_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    clear(&missing).unwrap();
    assert!(!missing.exists());
    let options = WriterOptions { tag: Some(Tag([7; 16])), ..WriterOptions::new(dir.path()) };
    let mut log = open(&options);
    assert_eq!(write_fully(&mut log, b"before"), 0);
    for _ in 0..2 {
        clear(dir.path()).unwrap();
        assert_eq!(kept(dir.path()), (6, Vec::new()));
    }
    assert_eq!(write_fully(&mut log, b"after"), 0);
    assert_eq!(kept(dir.path()), (6, b"after".to_vec()));
    log.finish();
    drop(open(&options));
    let times = times::read(dir.path()).unwrap();
    assert_eq!(times.last().map(|entry| (entry.offset, entry.tag)), Some((11, options.tag)));
    clear(dir.path()).unwrap();
    assert_eq!(
        times::read(dir.path()).unwrap().last().unwrap().tag,
        options.tag,
        "its beginning is still known"
    );
}

#[test]
fn a_writer_is_seen_as_long_as_one_is_there() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!has_writer(dir.path()));
    let files = LogDir::create(dir.path()).unwrap();
    let (first, second) = (files.announce_writer().unwrap(), files.announce_writer().unwrap());
    assert!(has_writer(dir.path()) && has_writer(dir.path()), "no side effects");
    drop(first);
    assert!(has_writer(dir.path()));
    drop(second);
    // A child that another test has just forked holds the lock until it executes its program.
    wait_until("the end of the last writer", || !has_writer(dir.path()));
    let earlier = File::create(dir.path().join(logs::CURRENT)).unwrap();
    earlier.lock().unwrap();
    assert!(has_writer(dir.path()), "a writer of an earlier release");
}

#[test]
fn a_writer_whose_last_output_could_not_be_written_counts_as_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (log, aside) = (dir.path().join("logs"), dir.path().join("aside"));
    for (fails, kept) in [(false, &log), (true, &aside)] {
        let (input, mut output) = io::pipe().unwrap();
        let options = WriterOptions::new(&log);
        let writer = thread::spawn(move || write_from(input, &options));
        output.write_all(b"one").unwrap();
        let is_written = || fs::read(log.join(logs::CURRENT)).is_ok_and(|text| text.ends_with(b"one"));
        wait_until("the first output", is_written);
        if fails {
            // Nothing is written through a link.
            fs::rename(&log, &aside).unwrap();
            symlink(&aside, &log).unwrap();
        }
        output.write_all(b"two").unwrap();
        drop(output);
        writer.join().unwrap().unwrap();
        // A child that another test has just forked holds the lock until it executes its program.
        wait_until("the end of the writer", || !has_writer(kept));
        assert_eq!(is_writer_lost(kept), fails);
    }
}

#[test]
fn a_link_in_place_of_a_directory_leads_to_no_other_log() {
    let state = tempfile::tempdir().unwrap();
    let [own, other] = ["sess_1", "sess_2"].map(|id| state.path().join(id).join("logs"));
    let mut theirs = open(&WriterOptions::new(&other));
    assert_eq!(write_fully(&mut theirs, b"theirs"), 0);
    theirs.finish();
    let mut log = open(&WriterOptions::new(&own));
    for (place, target) in
        [(own.as_path(), other.as_path()), (own.parent().unwrap(), other.parent().unwrap())]
    {
        let old = state.path().join("old");
        fs::rename(place, &old).unwrap();
        symlink(target, place).unwrap();
        assert_eq!(write_fully(&mut log, b"more"), 4, "nothing is written through {place:?}");
        for dir in [own.clone(), own.join(logs::STDERR)] {
            assert!(LogDir::create(&dir).unwrap_err().to_string().contains("is a link"));
            assert!(clear(&dir).unwrap_err().to_string().contains("is a link"));
        }
        fs::remove_file(place).unwrap();
        fs::rename(&old, place).unwrap();
        assert_eq!(write_fully(&mut log, b"own "), 0);
    }
    assert_eq!(kept(&own), (0, b"own own ".to_vec()));
    assert_eq!(kept(&other), (0, b"theirs".to_vec()));
    assert!(!other.join(logs::STDERR).exists());
}
