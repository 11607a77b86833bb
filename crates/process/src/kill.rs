//! Ends the process tree of one incarnation and proves that it is gone. Descendants first: the init adopts
//! their orphans, so it must live until the last of them has ended; it then exits by itself. Safe to repeat
//! after a crash at any point. With a control group, KILL goes to the whole group, which no fork can outrun,
//! and an empty group is required as proof.
//!
//! `ladder` decides the order of signals, `spared` the daemons that are not signalled; this file applies both
//! to the members that [`crate::tree`] finds, each a `target`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::ProcId;

use crate::handle::{self, Handle};
use crate::identity::{self, State};
use crate::tree::{Evidence, Extent, Member, Membership, Via, membership, own_ancestry};
use crate::{Error, cgroup};

mod grace_limit;
mod ladder;
mod shells;
mod spared;
mod target;

pub use grace_limit::GraceLimit;
use ladder::{Ladder, Step};
use spared::Daemon;
pub use spared::{SparedDaemons, SparedProcess};
use target::{Target, is_job_control_shell};

/// Time for an init without descendants to exit by itself. Afterwards it gets TERM, which it ignores, and
/// has [`KillOptions::verify`] to sync its exit record on a slow disk.
const INIT_EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// The shortest and the longest pause between two scans, which take a few milliseconds each.
const SCAN_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

#[derive(Debug, Clone)]
pub struct KillOptions {
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// A limit of the grace, which others may lower meanwhile.
    pub limit: GraceLimit,
    /// Time between the first KILL and giving up.
    pub verify: Duration,
    /// Pids that are never signalled, members or not: the tmux server, `poold`.
    pub protected: Vec<u32>,
    /// True if the init is a session's init, which exits by itself after its last descendant. Otherwise it is
    /// an ordinary program, and is ended together with its descendants.
    pub init_exits_last: bool,
    /// Daemons that are not signalled.
    pub spares: SparedDaemons,
}

impl Default for KillOptions {
    /// A grace and a verification period of 5 s each, no protected process, no spared daemon, an init that exits
    /// last.
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(5),
            limit: GraceLimit::default(),
            verify: Duration::from_secs(5),
            protected: Vec::new(),
            init_exits_last: true,
            spares: SparedDaemons::None,
        }
    }
}

/// Result of a kill.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KillReport {
    /// Members that were found alive and have ended, as shown by their handle or by their absence.
    pub killed: Vec<Member>,
    /// Members that are still alive after the verification period, with their state. [`State::Gone`] is a
    /// process that ended only after it had forked faster than it could be killed.
    pub survivors: Vec<Member>,
    /// Spared processes: neither signalled nor waited for.
    pub spared: Vec<SparedProcess>,
    /// Living processes that changed to another user: neither signalled nor waited for.
    pub foreign: Vec<Member>,
}

/// Ends every member except the caller and its ancestors. Takes at most about grace + verify for the
/// descendants, and as long again plus a second for an init that does not exit by itself.
///
/// # Errors
/// The processes cannot be listed, or the control group does not become empty. A process that cannot be
/// signalled is reported as a survivor.
pub fn kill(evidence: &Evidence, options: &KillOptions) -> Result<KillReport, Error> {
    kill_with_hook(evidence, options, &|_| ())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillStep {
    /// Scan for members.
    Scan,
    /// Send TERM, or HUP, to members.
    Term,
    /// Send KILL to members or to the control group.
    Kill,
    /// All descendants have ended: wait for the init to exit.
    AwaitInit,
}

/// Like [`kill`], and calls `before` ahead of each step.
pub fn kill_with_hook(
    evidence: &Evidence,
    options: &KillOptions,
    before: &dyn Fn(KillStep),
) -> Result<KillReport, Error> {
    let start = Instant::now();
    let mut run = KillRun {
        evidence,
        options,
        before,
        targets: BTreeMap::new(),
        outpaced: HashSet::new(),
        hung_up: HashSet::new(),
        daemons: None,
        spared: Vec::new(),
        foreign: BTreeMap::new(),
        is_partial: false,
    };
    if !options.init_exits_last {
        run.run_ladder(Scope::All, (options.grace, &options.limit))?;
        return run.report();
    }
    let gone = run.run_ladder(Scope::Descendants, (options.grace, &options.limit))?;
    if gone && let Some(init) = run.init()? {
        before(KillStep::AwaitInit);
        init.signal(Signal::SIGCONT)?;
        if !init.wait(INIT_EXIT_TIMEOUT)? {
            let grace = options.limit.grace_of_init(options.grace, start.elapsed(), options.verify);
            run.run_ladder(Scope::All, (grace, &GraceLimit::default()))?;
        }
    }
    run.report()
}

/// The members to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Descendants,
    All,
}

/// State of one kill. A process that was a member once stays one.
struct KillRun<'a> {
    evidence: &'a Evidence,
    options: &'a KillOptions,
    before: &'a dyn Fn(KillStep),
    targets: BTreeMap<ProcId, Target>,
    /// The processes that the last scan before giving up found. A process among them that has ended since counts as a
    /// survivor: it has forked faster than it could be killed.
    outpaced: HashSet<ProcId>,
    /// Shells that got HUP, as they ignore TERM.
    hung_up: HashSet<ProcId>,
    /// The spared daemons; `None` before the first scan.
    daemons: Option<Vec<Daemon>>,
    /// Living spared processes that were found.
    spared: Vec<SparedProcess>,
    /// Processes of other users that were found.
    foreign: BTreeMap<ProcId, Member>,
    /// True if the last scan may have missed a process, so that finding none proves nothing.
    is_partial: bool,
}

impl KillRun<'_> {
    /// Runs the ladder; true if no process of the scope is left.
    fn run_ladder(&mut self, scope: Scope, (grace, limit): (Duration, &GraceLimit)) -> Result<bool, Error> {
        let start = Instant::now();
        let mut ladder = Ladder::new(grace, self.options.verify);
        let (shortest, longest) = SCAN_INTERVALS;
        let (mut pause, mut last) = (shortest, Vec::new());
        let mut unproved_since = None;
        loop {
            let found = self.scan(scope)?;
            // The pause doubles while nothing changes.
            pause = if found == last { (pause * 2).min(longest) } else { shortest };
            if found.is_empty() && self.is_partial {
                let since = *unproved_since.get_or_insert(start.elapsed());
                if start.elapsed().saturating_sub(since) >= self.options.verify {
                    let why = io::Error::other("other processes ended during each listing");
                    return Err(Error::system("prove that none is left")(why));
                }
                std::thread::sleep(pause);
                last = found;
                continue;
            }
            unproved_since = None;
            let grace = grace.min(limit.get());
            ladder.set_grace(grace);
            let parents = self.parents(&found);
            match ladder.step(start.elapsed(), &found, &parents) {
                Step::Done if self.group_is_empty()? => return Ok(true),
                // Processes that the system does not show cannot be signalled one by one.
                Step::Done => self.kill_invisible(start.elapsed().checked_sub(grace))?,
                Step::GiveUp(ids) => {
                    self.outpaced.extend(ids);
                    return Ok(false);
                }
                Step::Rescan => continue,
                Step::Term(ids) if ids.is_empty() => {
                    let termed: Vec<ProcId> =
                        found.iter().copied().filter(|id| ladder.has_termed(*id)).collect();
                    self.hang_up(&termed);
                }
                Step::Term(ids) => {
                    (self.before)(KillStep::Term);
                    let is_waiting =
                        |id: &ProcId| is_job_control_shell(*id) && self.is_waiting(*id, &parents);
                    let (waiting, others): (Vec<_>, Vec<_>) = ids.into_iter().partition(is_waiting);
                    // Stopped first: otherwise they would continue with the rest of their lines as soon as their
                    // commands have ended.
                    self.signal(&waiting, &[Signal::SIGSTOP]);
                    self.hang_up_unstoppable(&waiting, &others);
                    self.signal(&others, &[Signal::SIGTERM, Signal::SIGCONT]);
                }
                Step::Kill(ids) => {
                    if !grace.is_zero() {
                        self.hang_up_late(&ids, &ladder);
                    }
                    (self.before)(KillStep::Kill);
                    self.kill_group();
                    self.signal(&ids, &[Signal::SIGKILL]);
                }
            }
            self.wait_for_exits(&found, pause.min(grace.saturating_sub(start.elapsed()).max(shortest)));
            last = found;
        }
    }

    /// Returns the parents among the members that were found.
    fn parents(&self, found: &[ProcId]) -> HashMap<ProcId, ProcId> {
        let by_pid: HashMap<u32, ProcId> = found.iter().map(|id| (id.pid, *id)).collect();
        let parent =
            |id: &ProcId| by_pid.get(&self.targets.get(id)?.member.ppid).map(|parent| (*id, *parent));
        found.iter().filter_map(parent).collect()
    }

    /// Returns the current members, including those that have ended since the snapshot (a scan that found one
    /// was not empty), and earlier members with an open handle that meet no criterion any more. A former
    /// member without a handle that is alive and meets no criterion was a mismatch, and is dropped.
    fn scan(&mut self, scope: Scope) -> Result<Vec<ProcId>, Error> {
        (self.before)(KillStep::Scan);
        let mut now =
            membership(self.evidence, &self.options.protected).map_err(Error::system("list processes"))?;
        // A process that evades a listing is still in the control group, which has to be empty at the end.
        self.is_partial = now.snapshot.extent != Extent::Complete && self.evidence.group().is_none();
        self.remove_spared(&mut now).map_err(Error::system("read the sockets of a daemon"))?;
        self.foreign.extend(now.foreign.into_iter().map(|member| (member.id, member)));
        let mut members = now.members;
        members.retain(|member| scope == Scope::All || member.via != Via::Init);
        let found: HashSet<ProcId> = members.iter().map(|member| member.id).collect();
        for target in self.targets.values_mut().filter(|target| !found.contains(&target.member.id)) {
            target.update()?;
        }
        self.targets.retain(|id, target| target.ended || target.handle.is_some() || found.contains(id));
        for member in members {
            let handle = self.targets.remove(&member.id).and_then(|target| target.handle);
            self.targets.insert(member.id, Target { member, handle, ended: false });
        }
        Ok(self.targets.iter().filter(|(_, target)| !target.ended).map(|(id, _)| *id).collect())
    }

    /// Removes the spared processes from the members.
    fn remove_spared(&mut self, now: &mut Membership) -> io::Result<()> {
        let KillOptions { spares, init_exits_last, .. } = self.options;
        let daemons = match self.daemons.take() {
            Some(daemons) => daemons,
            None => spared::find_daemons(spares, now, self.evidence, *init_exits_last)?,
        };
        let spared = spared::remove_spared(&daemons, now);
        // A process known by descent from the init is no member after the init has ended, but stays in the
        // report.
        let is_alive = |old: &SparedProcess| !identity::exited(old.member.id).unwrap_or(false);
        let found_again = |old: &SparedProcess| spared.iter().any(|new| new.member.id == old.member.id);
        self.spared.retain(|old| is_alive(old) && !found_again(old));
        self.spared.extend(spared);
        self.daemons = Some(daemons);
        Ok(())
    }

    /// True if the control group has no process except untouchable ones, or there is no group.
    fn group_is_empty(&self) -> Result<bool, Error> {
        let Some(group) = self.evidence.group() else { return Ok(true) };
        let empty = cgroup::is_populated(group).and_then(|populated| {
            let untouchable = if populated { self.untouchable_in(group)? } else { vec![true] };
            Ok(!untouchable.is_empty() && untouchable.iter().all(|untouchable| *untouchable))
        });
        empty.map_err(Error::system("look into a control group"))
    }

    /// Kills processes that are only visible as a populated group, once the grace period has passed; `late`
    /// is the time since its end.
    fn kill_invisible(&self, late: Option<Duration>) -> Result<(), Error> {
        if late.is_some_and(|late| late > self.options.verify) {
            return Err(Error::Populated(self.evidence.group().map(Path::to_owned).unwrap_or_default()));
        }
        if late.is_some() {
            (self.before)(KillStep::Kill);
            self.kill_group();
        }
        Ok(())
    }

    /// Kills all processes in the control group at once, also those that fork faster than they are found.
    /// Skipped if one of them must not be signalled.
    fn kill_group(&self) {
        let Some(group) = self.evidence.group() else { return };
        let killed = self
            .untouchable_in(group)
            .and_then(|untouchable| if untouchable.contains(&true) { Ok(()) } else { cgroup::kill(group) });
        if let Err(error) = killed {
            tracing::debug!(group = %group.display(), %error, "not killed as a whole");
        }
    }

    /// For each process in the group, true if it must not be signalled.
    fn untouchable_in(&self, group: &Path) -> io::Result<Vec<bool>> {
        let mut untouchable = own_ancestry();
        untouchable.extend(&self.options.protected);
        untouchable.extend(spared::pids(&self.spared));
        untouchable.extend(self.foreign.keys().map(|id| id.pid));
        Ok(cgroup::processes(group)?.iter().map(|pid| untouchable.contains(pid)).collect())
    }

    /// Sends the signals. Failures are ignored: the next scan finds the process again.
    fn signal(&mut self, ids: &[ProcId], signals: &[Signal]) {
        let opens = |target: &mut Target| target.open_handle(self.evidence).map(|handle| handle.is_some());
        let mut open = |id: &&ProcId| match self.targets.get_mut(*id).map(opens) {
            Some(Err(error)) => {
                tracing::debug!(%id, %error, "not signalled");
                false
            }
            found => matches!(found, Some(Ok(true))),
        };
        // All handles are opened first, and the oldest process is signalled first: a parent that loses its child before
        // it gets the signal itself would continue with its next command.
        let mut opened: Vec<ProcId> = ids.iter().filter(&mut open).copied().collect();
        opened.sort_by_key(|id| (id.start, id.pid));
        for id in opened {
            let Some(handle) = self.targets.get(&id).and_then(|target| target.handle.as_ref()) else {
                continue;
            };
            if let Err(error) = signals.iter().try_for_each(|signal| handle.signal(*signal).map(drop)) {
                tracing::debug!(%id, %error, "not signalled");
            }
        }
    }

    /// Waits at most `pause` for all of them to end.
    fn wait_for_exits(&self, found: &[ProcId], pause: Duration) {
        let handles: Vec<&Handle> =
            found.iter().filter_map(|id| self.targets.get(id)?.handle.as_ref()).collect();
        if handles.is_empty() || handle::wait_for_all(handles, pause).is_err() {
            std::thread::sleep(pause);
        }
    }

    /// Opens the init, if it is alive and may be signalled.
    fn init(&self) -> Result<Option<Handle>, Error> {
        let untouchable =
            |id: &ProcId| id.pid == std::process::id() || self.options.protected.contains(&id.pid);
        let Some(id) = self.evidence.init.filter(|id| !untouchable(id)) else { return Ok(None) };
        match Handle::open(id) {
            Err(Error::OtherUser(_) | Error::Forbidden(_)) => Ok(None),
            other => other,
        }
    }

    fn report(self) -> Result<KillReport, Error> {
        let mut report = KillReport { spared: self.spared, ..KillReport::default() };
        for (id, member) in self.foreign {
            let state = identity::state(id).map_err(Error::system("read a process"))?;
            if !matches!(state, State::Gone | State::Zombie) {
                report.foreign.push(Member { state, ..member });
            }
        }
        for (id, target) in self.targets {
            let state = identity::state(id).map_err(Error::system("read a process"))?;
            let ended = matches!(state, State::Gone | State::Zombie);
            let killed = ended && !self.outpaced.contains(&id);
            let list = if killed { &mut report.killed } else { &mut report.survivors };
            list.push(Member { state: if ended { State::Gone } else { state }, ..target.member });
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use protocol::Tag;

    use super::*;
    use crate::testing::{Running, wait_until};

    const NOBODY: Tag = Tag([0x4b; 16]);

    fn evidence(init: Option<ProcId>) -> Evidence {
        Evidence { init, sid: None, tag: NOBODY, cgroup: None, socket: None }
    }

    #[test]
    fn what_could_not_be_killed_as_fast_as_it_forked_survives_also_if_it_has_ended_since() {
        // No process has these start times.
        let ids = [1, 2].map(|start| ProcId { pid: std::process::id(), start });
        let target = |id: ProcId| {
            let (comm, state, via) = ("bomb".into(), State::Running, Via::Tag);
            (id, Target { member: Member { id, ppid: 1, comm, state, via }, handle: None, ended: true })
        };
        let run = KillRun {
            evidence: &evidence(None),
            options: &KillOptions::default(),
            before: &|_| (),
            targets: ids.map(target).into(),
            outpaced: HashSet::from([ids[1]]),
            hung_up: HashSet::new(),
            daemons: None,
            spared: Vec::new(),
            foreign: BTreeMap::new(),
            is_partial: false,
        };
        let report = run.report().unwrap();
        let listed =
            |list: &[Member]| list.iter().map(|member| (member.id, member.state)).collect::<Vec<_>>();
        assert_eq!(listed(&report.killed), [(ids[0], State::Gone)]);
        assert_eq!(listed(&report.survivors), [(ids[1], State::Gone)]);
    }

    /// On plain files in place of a group's.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_group_whose_processes_are_not_shown_here_is_not_proved_to_be_empty() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join(NOBODY.to_string());
        std::fs::create_dir(&group).unwrap();
        let evidence = Evidence { cgroup: Some(group.clone()), ..evidence(None) };
        let at_once = KillOptions { grace: Duration::ZERO, verify: Duration::ZERO, ..KillOptions::default() };
        let kill_of = |populated: u8| {
            std::fs::write(group.join("cgroup.events"), format!("populated {populated}\n")).unwrap();
            kill(&evidence, &at_once)
        };
        assert_eq!(kill_of(0).unwrap(), KillReport::default());
        assert!(matches!(kill_of(1), Err(Error::Populated(_))));
    }

    #[test]
    fn a_stopped_program_goes_on_at_term_and_saves_its_work() {
        let script = "trap 'exit 3' TERM; kill -STOP $$; while :; do sleep 0.01; done";
        let mut program = Running::start(Command::new("sh").args(["-c", script]));
        let id = identity::identify(program.id()).unwrap().unwrap();
        wait_until("the stop", || identity::state(id).unwrap() == State::Stopped);
        let grace = Duration::from_secs(20);
        let options = KillOptions { grace, init_exits_last: false, ..KillOptions::default() };
        assert_eq!(kill(&evidence(Some(id)), &options).unwrap().survivors, []);
        assert_eq!(program.wait().unwrap().code(), Some(3));
    }
}
