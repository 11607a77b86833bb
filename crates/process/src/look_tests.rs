//! Looks at this machine.

use std::sync::Barrier;
use std::time::Duration;

use super::*;
use crate::kill::{Options, Report, kill};
use crate::tree::Evidence;

const KILLS: u64 = 50;

/// Two each would be a hundred; other tests of this program may look meanwhile.
#[test]
fn a_look_is_shared() {
    let tag = protocol::ids::Tag([0x5a; 16]);
    let evidence = Evidence { init: None, sid: None, tag, cgroup: None, socket: None };
    let options = Options { grace: Duration::ZERO, ..Options::default() };
    let barrier = Barrier::new(usize::try_from(KILLS).unwrap());
    let begun = SHARED.begun.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..KILLS {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(kill(&evidence, &options).unwrap(), Report::default());
            });
        }
    });
    let looks = SHARED.begun.load(Ordering::SeqCst) - begun;
    assert!((2..KILLS).contains(&looks), "{looks} looks for {KILLS} kills");
}

/// Each of many threads sees what it started itself, whoever looked.
#[test]
fn a_shared_look_began_after_the_question() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let child = crate::testing::Running::start(std::process::Command::new("sleep").arg("60"));
                    assert!(shared(&|_| false).unwrap().all.contains_key(&child.id()));
                }
            });
        }
    });
}

#[test]
fn a_look_that_was_enough_for_one_is_not_for_another() {
    let busy = |look: &Look| look.all.len() > 1;
    let mut look = Look { partial: true, ..Look::default() };
    look.all.extend(Look::take(None, &busy).unwrap().all);
    let shared = Shared { begun: AtomicU64::new(1), last: Mutex::new(Some((2, Arc::new(look)))) };
    let again = |enough: &dyn Fn(&Look) -> bool| shared.look(enough).unwrap();
    assert!(again(&busy).partial);
    assert!(!again(&|_| false).partial);
}

#[test]
fn only_the_same_program_of_the_same_process_is_remembered() {
    let me = platform::glance(std::process::id()).unwrap().unwrap();
    let marks = Marks { tag: Some(protocol::ids::Tag([7; 16])), client: None, socket: None };
    let seen = Seen { now: me.clone(), marks: Some(Arc::new(marks)) };
    let look = Look { all: HashMap::from([(me.id.pid, seen)]), partial: false };
    assert!(matches!(me.image, Image::At(..)), "{me:?}");
    assert!(look.recall(&me).unwrap().marks.is_some());
    let Image::At(stack, start, end) = me.image else { return };
    for image in [Image::At(stack + 16, start, end), Image::At(stack, start, end + 1), Image::Unknown] {
        assert!(look.recall(&Glance { image, ..me.clone() }).is_none(), "{image:?}");
    }
    let id = protocol::ids::ProcId { start: me.id.start + 1, ..me.id };
    assert!(look.recall(&Glance { id, ..me.clone() }).is_none());
}

#[test]
fn what_is_short_is_no_absence() {
    let error = |number: i32| io::Error::from_raw_os_error(number);
    let kept = |number| shown::<()>(Err(error(number))).map_err(|error| error.raw_os_error().unwrap());
    assert_eq!([kept(libc::EACCES), kept(libc::EPERM)], [Ok(None); 2]);
    assert_eq!([kept(libc::EMFILE), kept(libc::ENOMEM)], [Err(libc::EMFILE), Err(libc::ENOMEM)]);
}
