//! Power cuts: whatever part of the unsynced writes survives, an open finds the state after a prefix of the
//! commits that contains every acknowledged one.

use std::env;
use std::thread;

use protocol::Timestamp;
use store::Store;

use crate::backend::Disk;
use crate::history::{Expected, History};
use crate::rng::Rng;

/// Number of images in a normal run; `POOL_CRASH_IMAGES` overrides it.
const IMAGES: u64 = 800;
/// Number of images per history.
const PER_HISTORY: u64 = 25;

#[test]
fn d1_d3_a_power_cut_loses_no_acknowledged_commit() {
    let images = env::var("POOL_CRASH_IMAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(IMAGES);
    let seeds = images.div_ceil(PER_HISTORY);
    let half = |first: u64| move || (first..seeds).step_by(2).for_each(check_history);
    let other = thread::spawn(half(1));
    half(0)();
    other.join().unwrap();
}

/// Cuts the power at random points of a history.
fn check_history(seed: u64) {
    let (disk, states) = recorded(seed, 12);
    let mut rng = Rng(!seed);
    for image in 0..PER_HISTORY {
        let point = rng.index(disk.writes() + 1);
        let mut survivor = Disk::holding(disk.image(point, &mut rng));
        while rng.below(4) == 0 {
            survivor = cut_off_at_recovery(&survivor, &mut rng);
        }
        let found = open(&survivor);
        assert!(is_prefix(&states, point, &found), "seed {seed}, image {image}, cut at {point}: {found:?}");
    }
}

/// Cuts the power at every point of a short history, with each unsynced change lost alone, and surviving
/// alone.
#[test]
fn d1_d3_no_single_write_matters_before_it_is_acknowledged() {
    for seed in 0..2 {
        let (disk, states) = recorded(seed, 4);
        assert!(disk.writes() >= 40);
        for point in 0..=disk.writes() {
            for image in disk.single_images(point) {
                let found = open(&Disk::holding(image));
                assert!(is_prefix(&states, point, &found), "seed {seed}, cut at {point}: {found:?}");
            }
        }
    }
}

/// The state after each commit, and the number of writes when it was acknowledged.
type States = Vec<(Expected, usize)>;

fn recorded(seed: u64, commits: usize) -> (Disk, States) {
    let mut history = History::new(seed);
    let disk = created();
    let mut store = Store::with_backend(disk.clone()).unwrap().0;
    let mut states = vec![(history.now.clone(), 0)];
    for n in 0..commits {
        history.steps(8);
        history.commit(&mut store).unwrap();
        states.push((history.now.clone(), disk.writes()));
        if n % 5 == 3 {
            store.trim_journal(4, Timestamp(0)).unwrap();
            let oldest = store.oldest_seq().unwrap().unwrap_or_default();
            history.now.journal.retain(|event| event.seq >= oldest);
            states.push((history.now.clone(), disk.writes()));
        }
        if n == 6 && seed.is_multiple_of(2) {
            store.close().unwrap();
            store = Store::with_backend(disk.clone()).unwrap().0;
        }
        if n == 8 && seed.is_multiple_of(3) {
            store.compact().unwrap();
        }
    }
    (disk, states)
}

/// True if `found` is the state after a prefix of the commits that contains every acknowledged one.
fn is_prefix(states: &States, point: usize, found: &Expected) -> bool {
    let acknowledged = states.iter().rposition(|(_, at)| *at <= point).unwrap();
    states[acknowledged..].iter().any(|(state, _)| state == found)
}

/// Cuts the power during the recovery from an earlier cut (D6).
fn cut_off_at_recovery(disk: &Disk, rng: &mut Rng) -> Disk {
    open(disk);
    let point = rng.index(disk.writes() + 1);
    Disk::holding(disk.image(point, rng))
}

pub(crate) fn open(disk: &Disk) -> Expected {
    let (store, loaded) = Store::with_backend(disk.clone()).expect("it opens");
    Expected::found(&store, loaded)
}

/// Returns a new database as [`Store::open`] creates it: complete before it has its name.
pub(crate) fn created() -> Disk {
    let disk = Disk::default();
    Store::with_backend(disk.clone()).unwrap().0.close().unwrap();
    Disk::holding(disk.bytes())
}
