//! Power cuts: whatever part of the unsynced writes survives, an open finds a prefix of the commits
//! with every one in it that was acknowledged.

use std::env;
use std::thread;

use store::Store;

use crate::backend::Disk;
use crate::world::{Expected, Rng, World};

/// Images in a normal run; `POOL_CRASH_IMAGES` asks for more.
const IMAGES: u64 = 1500;
/// Images of one history.
const PER_HISTORY: u64 = 25;

#[test]
fn d1_d3_a_power_cut_loses_no_acknowledged_commit() {
    let images = env::var("POOL_CRASH_IMAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(IMAGES);
    let seeds = images.div_ceil(PER_HISTORY);
    let half = |first: u64| move || (first..seeds).step_by(2).for_each(history);
    let other = thread::spawn(half(1));
    half(0)();
    other.join().unwrap();
}

/// A history, and power cuts at random points of it.
fn history(seed: u64) {
    let mut world = World::new(seed);
    let disk = created();
    let mut store = Store::with_backend(disk.clone()).unwrap().0;
    // The state after each commit, and where the disk was when it was acknowledged.
    let mut states = vec![(world.now.clone(), 0)];
    for n in 0..12 {
        let batch = world.batch(8);
        store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
        states.push((world.now.clone(), disk.writes()));
        if n == 6 && seed.is_multiple_of(2) {
            store.close().unwrap();
            store = Store::with_backend(disk.clone()).unwrap().0;
        }
    }
    let mut rng = Rng(!seed);
    for image in 0..PER_HISTORY {
        let point = rng.index(disk.writes() + 1);
        let acknowledged = states.iter().rposition(|(_, at)| *at <= point).unwrap();
        let mut survivor = Disk::holding(disk.image(point, &mut rng));
        while rng.below(4) == 0 {
            survivor = cut_off_at_recovery(&survivor, &mut rng);
        }
        let found = open(&survivor);
        let prefix = states[acknowledged..].iter().position(|(state, _)| *state == found);
        assert!(prefix.is_some(), "seed {seed}, image {image}, cut at {point}: found {:?}", found.pool);
    }
}

/// D6: the next cut may come during the recovery from the one before.
fn cut_off_at_recovery(disk: &Disk, rng: &mut Rng) -> Disk {
    open(disk);
    let point = rng.index(disk.writes() + 1);
    Disk::holding(disk.image(point, rng))
}

fn open(disk: &Disk) -> Expected {
    let (store, loaded) = Store::with_backend(disk.clone()).expect("it opens");
    Expected::found(&store, loaded)
}

/// A database as [`Store::open`] makes it: whole before it has its name.
pub(crate) fn created() -> Disk {
    let disk = Disk::default();
    Store::with_backend(disk.clone()).unwrap().0.close().unwrap();
    Disk::holding(disk.bytes())
}
