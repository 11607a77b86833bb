//! Looks at this machine.

use std::sync::atomic::AtomicI32;

use super::*;
use crate::testing::wait_until;

const MANY: usize = 50;

/// Runs as many questions, all of which are put while a look is taken that began before; `last` is its end.
fn ask_during_a_look(shared: &Shared, last: Option<(u64, Arc<Look>)>) -> Vec<Arc<Look>> {
    let threads = [const { AtomicI32::new(0) }; MANY];
    let mut taken = shared.last.lock().unwrap();
    std::thread::scope(|scope| {
        let ask = |thread: &AtomicI32| {
            thread.store(nix::unistd::gettid().as_raw(), Ordering::SeqCst);
            shared.look(&|_| false).unwrap()
        };
        let asked: Vec<_> = threads.iter().map(|thread| scope.spawn(move || ask(thread))).collect();
        for thread in &threads {
            wait_until("the question", || waits(thread.load(Ordering::SeqCst)));
        }
        *taken = last;
        drop(taken);
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    })
}

fn waits(thread: i32) -> bool {
    let stat = std::fs::read(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    crate::proc::parse_stat(&stat).is_some_and(|stat| stat.state == b'S')
}

#[test]
fn a_look_is_shared() {
    let shared = Shared { begun: AtomicU64::new(0), last: Mutex::new(None) };
    let looks = ask_during_a_look(&shared, None);
    assert_eq!((looks.len(), shared.begun.load(Ordering::SeqCst)), (MANY, 1));
    assert!(looks.iter().all(|look| Arc::ptr_eq(look, &looks[0])));
}

#[test]
fn a_look_that_began_before_the_question_is_no_answer() {
    let shared = Shared { begun: AtomicU64::new(1), last: Mutex::new(None) };
    let before = Arc::new(Look::default());
    let looks = ask_during_a_look(&shared, Some((1, Arc::clone(&before))));
    assert_eq!(shared.begun.load(Ordering::SeqCst), 2);
    assert!(looks.iter().all(|look| !Arc::ptr_eq(look, &before)));
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
