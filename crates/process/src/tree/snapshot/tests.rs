//! Tests on snapshots of this machine.

use std::sync::atomic::AtomicI32;

use super::*;
use crate::testing::wait_until;

const MANY: usize = 50;

/// Requests a snapshot from [`MANY`] threads while one is in progress that was started earlier; `last` is its
/// result.
fn request_during_a_snapshot(
    shared: &SharedSnapshot,
    last: Option<(u64, Arc<Snapshot>)>,
) -> Vec<Arc<Snapshot>> {
    let threads = [const { AtomicI32::new(0) }; MANY];
    let mut taken = shared.last.lock().unwrap();
    std::thread::scope(|scope| {
        let request = |thread: &AtomicI32| {
            thread.store(nix::unistd::gettid().as_raw(), Ordering::SeqCst);
            shared.get(&|_| false).unwrap()
        };
        let running: Vec<_> = threads.iter().map(|thread| scope.spawn(move || request(thread))).collect();
        for thread in &threads {
            wait_until("the request", || sleeps(thread.load(Ordering::SeqCst)));
        }
        *taken = last;
        drop(taken);
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    crate::platform::proc::parse_stat(&stat).is_some_and(|stat| stat.state == b'S')
}

#[test]
fn a_snapshot_is_shared() {
    let shared = SharedSnapshot { started: AtomicU64::new(0), last: Mutex::new(None) };
    let snapshots = request_during_a_snapshot(&shared, None);
    assert_eq!((snapshots.len(), shared.started.load(Ordering::SeqCst)), (MANY, 1));
    assert!(snapshots.iter().all(|snapshot| Arc::ptr_eq(snapshot, &snapshots[0])));
}

#[test]
fn a_snapshot_started_before_the_request_is_not_returned() {
    let shared = SharedSnapshot { started: AtomicU64::new(1), last: Mutex::new(None) };
    let before = Arc::new(Snapshot::default());
    let snapshots = request_during_a_snapshot(&shared, Some((1, Arc::clone(&before))));
    assert_eq!(shared.started.load(Ordering::SeqCst), 2);
    assert!(snapshots.iter().all(|snapshot| !Arc::ptr_eq(snapshot, &before)));
}

#[test]
fn a_partial_snapshot_is_returned_only_if_it_is_sufficient() {
    let busy = |snapshot: &Snapshot| snapshot.entries.len() > 1;
    let mut snapshot = Snapshot { extent: Extent::Sufficient, ..Snapshot::default() };
    snapshot.entries.extend(Snapshot::take(None, &busy).unwrap().entries);
    let last = Mutex::new(Some((2, Arc::new(snapshot))));
    let shared = SharedSnapshot { started: AtomicU64::new(1), last };
    let again = |sufficient: &dyn Fn(&Snapshot) -> bool| shared.get(sufficient).unwrap();
    assert_eq!(again(&busy).extent, Extent::Sufficient);
    assert_eq!(again(&|_| false).extent, Extent::Complete);
}

#[test]
fn markers_are_reused_only_for_the_same_program_of_the_same_process() {
    let me = platform::basic_info(std::process::id()).unwrap().unwrap();
    let markers = Markers { tag: Some(protocol::ids::Tag([7; 16])), client: None, socket: None };
    let entry = SnapshotEntry { info: me.clone(), markers: Some(Arc::new(markers)) };
    let snapshot = Snapshot { entries: HashMap::from([(me.id.pid, entry)]), extent: Extent::Complete };
    assert!(matches!(me.image, Image::At(..)), "{me:?}");
    assert!(snapshot.reuse(&me).unwrap().markers.is_some());
    let Image::At(stack, start, end) = me.image else { return };
    for image in [Image::At(stack + 16, start, end), Image::At(stack, start, end + 1), Image::Unknown] {
        assert!(snapshot.reuse(&BasicInfo { image, ..me.clone() }).is_none(), "{image:?}");
    }
    let id = protocol::ids::ProcId { start: me.id.start + 1, ..me.id };
    assert!(snapshot.reuse(&BasicInfo { id, ..me.clone() }).is_none());
}

#[test]
fn exhausted_resources_are_errors_and_denied_access_is_not() {
    let error = |number: i32| io::Error::from_raw_os_error(number);
    let kept =
        |number| unless_denied::<()>(Err(error(number))).map_err(|error| error.raw_os_error().unwrap());
    assert_eq!([kept(libc::EACCES), kept(libc::EPERM)], [Ok(None); 2]);
    assert_eq!([kept(libc::EMFILE), kept(libc::ENOMEM)], [Err(libc::EMFILE), Err(libc::ENOMEM)]);
}

#[test]
fn a_process_that_has_ended_or_is_in_its_exec_is_not_settled() {
    let me = platform::basic_info(std::process::id()).unwrap().unwrap();
    assert!(is_settled(&me) && is_settled(&BasicInfo { image: Image::Unknown, ..me.clone() }));
    assert!(!is_settled(&BasicInfo { state: State::Zombie, ..me.clone() }));
    assert!(!is_settled(&BasicInfo { image: Image::Unfinished, ..me }));
}
