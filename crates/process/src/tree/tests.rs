//! Tests of membership on constructed and random process tables.

use proptest::prelude::*;

use std::path::Path;

use protocol::Tag;

use super::*;
use crate::platform::proc::Image;

const UID: u32 = 1000;
const ME: u32 = 50;
const INIT: ProcId = ProcId { pid: 100, start: 7 };
const TAG: Tag = Tag([5; 16]);

fn process(pid: u32, ppid: u32, sid: u32) -> Process {
    Process {
        id: ProcId { pid, start: 7 },
        ppid,
        pgid: pid,
        sid,
        uid: UID,
        tpgid: None,
        state: State::Running,
        comm: OsBytes::default(),
    }
}

/// A constructed machine.
struct Machine {
    snapshot: Snapshot,
    /// Owner of each process.
    uids: HashMap<u32, u32>,
    /// Pids in the control group.
    in_group: HashSet<u32>,
    /// Pid of the caller.
    me: u32,
}

impl Machine {
    fn new(all: impl IntoIterator<Item = Process>, tagged: &[u32]) -> Self {
        let mut machine =
            Self { snapshot: Snapshot::default(), uids: HashMap::new(), in_group: HashSet::new(), me: ME };
        all.into_iter().for_each(|process| machine.add(process, tagged));
        machine
    }

    fn add(&mut self, process: Process, tagged: &[u32]) {
        let Process { id, ppid, pgid, sid, uid, tpgid, state, comm } = process;
        let markers = Markers { tag: Some(TAG), client: None, socket: Some("/pool".into()) };
        let markers = (tagged.contains(&id.pid) && uid == UID).then(|| Arc::new(markers));
        let info = BasicInfo { id, ppid, pgid, sid, tpgid, state, comm, image: Image::Unknown };
        self.snapshot.entries.insert(id.pid, SnapshotEntry { info, markers });
        self.uids.insert(id.pid, uid);
    }

    fn members(&self, evidence: &Evidence, protected: &[u32]) -> Vec<Member> {
        self.search(evidence, protected, |search| search.run(&self.snapshot).1)
    }

    fn search<R>(&self, evidence: &Evidence, protected: &[u32], ask: impl Fn(MemberSearch<'_>) -> R) -> R {
        let is_ours = |pid: u32| self.uids[&pid] == UID;
        let in_group = self.in_group.clone();
        ask(MemberSearch { evidence, protected, in_group, me: self.me, is_ours: &is_ours })
    }
}

/// A machine with the caller (50, child of a shell 49), a tmux server (60), and the processes that the test
/// adds.
fn machine(more: impl IntoIterator<Item = Process>, tagged: &[u32]) -> Machine {
    let all = [process(1, 0, 1), process(49, 1, 49), process(ME, 49, 49), process(60, 1, 60)];
    Machine::new(all.into_iter().chain(more), tagged)
}

fn found(machine: &Machine, evidence: Evidence, protected: &[u32]) -> Vec<(u32, Via)> {
    machine.members(&evidence, protected).iter().map(|member| (member.id.pid, member.via)).collect()
}

fn evidence() -> Evidence {
    Evidence { init: Some(INIT), sid: Some(100), tag: TAG, cgroup: None, socket: None }
}

#[test]
fn each_criterion_finds_its_members() {
    let more = [
        process(100, 60, 100),
        process(101, 100, 100),
        process(102, 101, 102),
        process(103, 1, 100),
        process(104, 1, 104),
        process(105, 104, 105),
        process(106, 1, 106),
    ];
    let members = found(&machine(more, &[104]), evidence(), &[60]);
    let expected = [
        (100, Via::Init),
        (101, Via::Session),
        (102, Via::Descent),
        (103, Via::Session),
        (104, Via::Tag),
        (105, Via::Descent),
    ];
    assert_eq!(members, expected);
}

#[test]
fn processes_in_the_group_and_their_descendants_are_members() {
    let more = [
        process(100, 60, 100),
        process(101, 1, 101),
        process(102, 101, 102),
        process(103, 1, 103),
        Process { uid: 0, ..process(104, 1, 104) },
        process(105, 1, 105),
    ];
    let mut machine = machine(more, &[]);
    // 106 has ended since the snapshot, and 49 is an ancestor of the caller.
    machine.in_group = [101, 103, 104, 106, 49].into();
    let expected = [(100, Via::Init), (101, Via::Group), (102, Via::Descent)];
    assert_eq!(found(&machine, evidence(), &[103]), expected);
}

#[test]
fn a_partial_snapshot_suffices_for_a_group_whose_members_are_younger() {
    let mut machine = machine([process(100, 60, 100), process(103, 1, 103)], &[]);
    let finds_some = |machine: &Machine, protected: &[u32]| {
        machine.search(&evidence(), protected, |search| search.finds_some(&machine.snapshot))
    };
    assert!(!finds_some(&machine, &[]), "the init alone");
    machine.in_group = [103, 49].into();
    assert!(finds_some(&machine, &[]) && !finds_some(&machine, &[103]));
    machine.in_group = [107].into();
    assert!(finds_some(&machine, &[]), "in place of one that has ended");
    assert!(!finds_some(&machine, &[107]));
}

#[test]
fn only_a_complete_snapshot_proves_that_nobody_is_left() {
    let mut machine = machine([process(100, 60, 100), process(101, 1, 101)], &[]);
    let mut is_conclusive = |in_group: &[u32], extent| {
        machine.in_group = in_group.iter().copied().collect();
        super::is_conclusive(&Snapshot { extent, ..Snapshot::default() }, &machine.members(&evidence(), &[]))
    };
    assert!(is_conclusive(&[101], Extent::Sufficient) && is_conclusive(&[], Extent::Complete));
    assert!(!is_conclusive(&[], Extent::Sufficient), "the init alone");
    assert!(is_conclusive(&[], Extent::Overtaken), "another one is no better");
}

#[test]
fn a_search_that_proves_nothing_is_repeated_on_a_complete_snapshot() {
    let looks = |partial: bool| {
        let takes = Cell::new(0);
        let take = |complete: bool| {
            takes.set(takes.get() + 1);
            let mut machine = machine([process(100, 60, 100)], &[]);
            machine.snapshot.extent =
                if partial && !complete { Extent::Sufficient } else { Extent::Complete };
            Ok(Arc::new(machine.snapshot))
        };
        let machine = machine([process(100, 60, 100)], &[]);
        let run = |snapshot: &Snapshot| Ok(machine.search(&evidence(), &[], |search| search.run(snapshot)));
        let (snapshot, _) = search_conclusively(take, run).unwrap();
        (takes.get(), snapshot.extent)
    };
    assert_eq!((looks(true), looks(false)), ((2, Extent::Complete), (1, Extent::Complete)));
}

#[test]
fn a_group_of_another_name_does_not_count() {
    let path = |name: &str| Evidence { cgroup: Some(Path::new("/groups").join(name)), ..evidence() };
    let own = path(&TAG.to_string());
    assert_eq!(own.group(), own.cgroup.as_deref());
    assert_eq!(
        [path("sessions").group(), path("").group(), path("..").group(), evidence().group()],
        [None; 4]
    );
}

#[test]
fn a_tag_of_another_pool_does_not_count() {
    let machine = machine([process(104, 1, 104)], &[104]);
    let of = |socket: &str| Evidence { socket: Some(socket.into()), ..evidence() };
    assert_eq!(found(&machine, of("/pool"), &[]), [(104, Via::Tag)]);
    assert_eq!(found(&machine, of("/other"), &[]), []);
}

#[test]
fn a_reused_init_pid_does_not_count() {
    let stranger = Process { id: ProcId { start: 8, ..INIT }, ..process(100, 1, 100) };
    let all = [stranger, process(101, 100, 100), process(102, 100, 102)];
    assert_eq!(found(&machine(all, &[]), evidence(), &[]), []);
}

#[test]
fn a_session_without_its_leader_counts_only_with_a_tag() {
    let all = || [process(101, 1, 100), process(102, 1, 100)];
    assert_eq!(found(&machine(all(), &[]), evidence(), &[]), []);
    assert_eq!(found(&machine(all(), &[102]), evidence(), &[]), [(101, Via::Session), (102, Via::Tag)]);
}

#[test]
fn p02_spared_are_zombies_other_users_the_protected_and_what_only_they_lead_to() {
    let all = || {
        [
            process(100, 60, 100),
            Process { state: State::Zombie, ..process(101, 100, 100) },
            Process { uid: 0, ..process(102, 100, 100) },
            process(103, 102, 103),
            process(104, 100, 104),
            process(105, 104, 105),
        ]
    };
    let through_sudo = (103, Via::Descent);
    let members = found(&machine(all(), &[]), evidence(), &[104]);
    assert_eq!(members, [(100, Via::Init), through_sudo]);
    assert_eq!(found(&machine(all(), &[]), evidence(), &[100, 104]), [through_sudo]);
}

#[test]
fn p02_a_caller_within_the_tree_spares_its_own_line() {
    let mut machine = machine([process(100, 60, 100), process(101, 100, 100)], &[49, ME]);
    machine.add(process(49, 100, 49), &[49]);
    machine.add(process(51, ME, 51), &[]);
    assert_eq!(found(&machine, evidence(), &[]), [(101, Via::Session)]);
}

#[test]
fn an_init_that_is_the_caller_finds_its_descendants() {
    let mut machine = machine([process(100, 60, 100), process(101, 100, 100), process(102, 101, 102)], &[]);
    machine.me = 100;
    assert_eq!(found(&machine, evidence(), &[]), [(101, Via::Session), (102, Via::Descent)]);
}

proptest! {
    /// For any machine, cycles of parents included: the search ends, and never returns an excluded process.
    #[test]
    fn p02_no_machine_yields_the_spared(
        links in proptest::collection::vec((0u32..30, 0u32..30, 0u32..3, any::<bool>()), 0..30),
        protected in proptest::collection::vec(0u32..30, 0..3),
        init in 0u32..30,
    ) {
        let number = |n: usize| u32::try_from(n).unwrap();
        let all = links.iter().enumerate().map(|(n, (ppid, sid, uid, _))| {
            Process { uid: UID + uid, ..process(number(n), *ppid, *sid) }
        });
        let tagged: Vec<u32> = links.iter().enumerate().filter(|(_, l)| l.3).map(|(n, _)| number(n)).collect();
        let machine = Machine { me: 3, ..Machine::new(all, &tagged) };
        let init = Some(ProcId { pid: init, start: 7 });
        let evidence = Evidence { init, sid: init.map(|init| init.pid), ..evidence() };
        for member in machine.members(&evidence, &protected) {
            prop_assert!(member.id.pid > 1 && member.id.pid != 3 && !protected.contains(&member.id.pid));
            prop_assert_eq!(machine.uids[&member.id.pid], UID);
        }
    }
}
