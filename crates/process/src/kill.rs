//! Ends the tree of one incarnation and shows that it is gone. Descendants first: the init
//! inherits what they leave behind, so it lives until the last of them has gone, and then ends by
//! itself. Safe to repeat after a crash at any point. What has a control group is killed by that first,
//! which nothing outruns, and is gone when that is empty.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::ids::ProcId;

use crate::handle::{self, Handle};
use crate::identity::{self, State};
use crate::ladder::{Ladder, Step};
use crate::spare::{self, Daemon};
use crate::tree::{Evidence, Family, Member, Via, family, own_line, still_belongs};
use crate::{Error, cgroup, platform};

pub use crate::spare::{Spare, Spared};

/// How long an init whose tree has gone is left alone: it ends by itself. Then it gets a TERM, which
/// is nothing to it, and may still take [`Options::verify`] to sync its exit record on a slow disk.
const MOMENT: Duration = Duration::from_secs(1);
/// The shortest and the longest pause between two looks, which cost a few milliseconds each.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// How to end it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Between TERM and KILL.
    pub grace: Duration,
    /// Between the first KILL and giving up.
    pub verify: Duration,
    /// Never touched, whatever they belong to: the tmux server, `poold`.
    pub protected: Vec<u32>,
    /// Whether the init is one of a session, which ends by itself after its last descendant; else it is a
    /// program like any other, and ended along with them.
    pub init_stands_by: bool,
    /// Which daemons are left alone.
    pub spare: Spare,
}

impl Default for Options {
    /// 5 s and 5 s, nothing protected or spared, and an init that stands by.
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(5),
            verify: Duration::from_secs(5),
            protected: Vec::new(),
            init_stands_by: true,
            spare: Spare::Nothing,
        }
    }
}

/// What became of the members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Found alive and now ended, each shown by its handle or by its absence.
    pub killed: Vec<Member>,
    /// Still there after the time for verification, with the state they are in: [`State::Gone`] is
    /// one that ended at last but was seen to live on in others.
    pub survivors: Vec<Member>,
    /// Left alone because that was asked for: neither signalled nor waited for.
    pub spared: Vec<Spared>,
    /// They became another user's, and live: neither signalled nor waited for.
    pub foreign: Vec<Member>,
}

/// Ends every member but the caller's own line. Takes at most about grace + verify for the
/// descendants, and about as long again plus a second for an init that does not end by itself.
///
/// # Errors
/// Where the list of processes cannot be had, or the control group does not become empty. A process that
/// cannot be signalled is a survivor.
pub fn kill(evidence: &Evidence, options: &Options) -> Result<Report, Error> {
    kill_while(evidence, options, &|_| ())
}

/// What comes next in a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A look for what is there.
    Look,
    /// TERM to some.
    Term,
    /// KILL to some, or to the control group.
    Kill,
    /// The descendants are gone, and the init is given time to end.
    Stand,
}

/// The same, for one who has something to do before each of its steps.
///
/// # Errors
/// As [`kill`].
pub fn kill_while(evidence: &Evidence, options: &Options, before: &dyn Fn(Moment)) -> Result<Report, Error> {
    let start = Instant::now();
    let mut tree = Tree {
        evidence,
        options,
        before,
        known: BTreeMap::new(),
        unbeaten: HashSet::new(),
        hung_up: HashSet::new(),
        daemons: None,
        spared: Vec::new(),
        foreign: BTreeMap::new(),
    };
    if !options.init_stands_by {
        tree.climb_down(Whom::All, options.grace)?;
        return tree.report();
    }
    let gone = tree.climb_down(Whom::Descendants, options.grace)?;
    if gone && let Some(init) = tree.init()? {
        before(Moment::Stand);
        init.signal(Signal::SIGCONT)?;
        if !init.wait(MOMENT)? {
            let left = options.grace.saturating_sub(start.elapsed());
            tree.climb_down(Whom::All, left.max(options.verify))?;
        }
    }
    tree.report()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whom {
    Descendants,
    All,
}

/// Everything that was ever found: once a member, always a member.
struct Tree<'a> {
    evidence: &'a Evidence,
    options: &'a Options,
    before: &'a dyn Fn(Moment),
    known: BTreeMap<ProcId, Known>,
    /// What the last look before giving up found. One that has ended since has left others behind:
    /// it forks faster than it is caught.
    unbeaten: HashSet<ProcId>,
    /// Those that ignore TERM, and got HUP.
    hung_up: HashSet<ProcId>,
    /// Those to be spared, once that is settled.
    daemons: Option<Vec<Daemon>>,
    /// What of them was found, and lives.
    spared: Vec<Spared>,
    /// What was found of other users.
    foreign: BTreeMap<ProcId, Member>,
}

struct Known {
    member: Member,
    handle: Option<Handle>,
    ended: bool,
}

impl Tree<'_> {
    /// Whether none is left.
    fn climb_down(&mut self, whom: Whom, grace: Duration) -> Result<bool, Error> {
        let start = Instant::now();
        let mut ladder = Ladder::new(grace, self.options.verify);
        let (mut pause, mut last) = (PAUSES.0, Vec::new());
        loop {
            let found = self.look(whom)?;
            // It takes longer each time as long as nothing changes.
            pause = if found == last { (pause * 2).min(PAUSES.1) } else { PAUSES.0 };
            match ladder.step(start.elapsed(), &found) {
                Step::Done if self.group_is_empty()? => return Ok(true),
                // What is another user's is not seen, and cannot be asked.
                Step::Done => self.end_the_unseen(start.elapsed().checked_sub(grace))?,
                Step::GiveUp(ids) => {
                    self.unbeaten.extend(ids);
                    return Ok(false);
                }
                Step::Look => continue,
                Step::Term(ids) if ids.is_empty() => self.hang_up(&found),
                Step::Term(ids) => {
                    (self.before)(Moment::Term);
                    self.signal(&ids, &[Signal::SIGTERM, Signal::SIGCONT]);
                }
                Step::Kill(ids) => {
                    (self.before)(Moment::Kill);
                    self.kill_group();
                    self.signal(&ids, &[Signal::SIGKILL]);
                }
            }
            self.rest(&found, pause.min(grace.saturating_sub(start.elapsed()).max(PAUSES.0)));
            last = found;
        }
    }

    /// HUP to what ignores TERM, once nothing else is left: an interactive shell does, ends by HUP, and passes that on to
    /// its jobs. Not to everybody at once: a program that saves its work at TERM may have no handler for HUP.
    fn hang_up(&mut self, found: &[ProcId]) {
        let deaf = |id: &ProcId| platform::ignores(id.pid, Signal::SIGTERM).unwrap_or(false);
        if found.iter().all(|id| self.hung_up.contains(id)) || !found.iter().all(deaf) {
            return;
        }
        (self.before)(Moment::Term);
        self.signal(found, &[Signal::SIGHUP, Signal::SIGCONT]);
        self.hung_up.extend(found);
    }

    /// The members now (a look that found one was not empty, even if that one has ended since), and
    /// those that were held and have escaped all nets. One that was only seen, lives, and is no
    /// member now, was none of ours.
    fn look(&mut self, whom: Whom) -> Result<Vec<ProcId>, Error> {
        (self.before)(Moment::Look);
        let mut now =
            family(self.evidence, &self.options.protected).map_err(Error::system("list processes"))?;
        self.set_apart(&mut now).map_err(Error::system("see whom a daemon serves"))?;
        self.foreign.extend(now.foreign.into_iter().map(|member| (member.id, member)));
        let mut now = now.members;
        now.retain(|member| whom == Whom::All || member.via != Via::Init);
        let found: HashSet<ProcId> = now.iter().map(|member| member.id).collect();
        for known in self.known.values_mut().filter(|known| !found.contains(&known.member.id)) {
            known.check()?;
        }
        self.known.retain(|id, known| known.ended || known.handle.is_some() || found.contains(id));
        for member in now {
            let handle = self.known.remove(&member.id).and_then(|known| known.handle);
            self.known.insert(member.id, Known { member, handle, ended: false });
        }
        Ok(self.known.iter().filter(|(_, known)| !known.ended).map(|(id, _)| *id).collect())
    }

    /// Takes out what is spared.
    fn set_apart(&mut self, now: &mut Family) -> io::Result<()> {
        let Options { spare, init_stands_by, .. } = self.options;
        let daemons = match self.daemons.take() {
            Some(daemons) => daemons,
            None => spare::daemons(spare, now, self.evidence, *init_stands_by)?,
        };
        let spared = spare::set_apart(&daemons, now);
        // With the init goes the line by which one was known: it is still left.
        let lives = |it: &Spared| !identity::exited(it.member.id).unwrap_or(false);
        self.spared.retain(|it| lives(it) && !spared.iter().any(|now| now.member.id == it.member.id));
        self.spared.extend(spared);
        self.daemons = Some(daemons);
        Ok(())
    }

    /// Whether nothing but the spared lives in the control group, if there is one.
    fn group_is_empty(&self) -> Result<bool, Error> {
        let Some(group) = self.evidence.group() else { return Ok(true) };
        let empty = cgroup::is_populated(group).and_then(|populated| {
            let spared = if populated { self.spared_in(group)? } else { vec![true] };
            Ok(!spared.is_empty() && spared.iter().all(|spared| *spared))
        });
        empty.map_err(Error::system("look into a control group"))
    }

    /// Kills what is in the group alone, `late` after the grace.
    fn end_the_unseen(&self, late: Option<Duration>) -> Result<(), Error> {
        if late.is_some_and(|late| late > self.options.verify) {
            return Err(Error::Populated(self.evidence.group().map(Path::to_owned).unwrap_or_default()));
        }
        if late.is_some() {
            (self.before)(Moment::Kill);
            self.kill_group();
        }
        Ok(())
    }

    /// All in the control group at once, also what forks faster than it is found. Where one of them is to be
    /// spared this is left to the signals.
    fn kill_group(&self) {
        let Some(group) = self.evidence.group() else { return };
        let killed = self
            .spared_in(group)
            .and_then(|spared| if spared.contains(&true) { Ok(()) } else { cgroup::kill(group) });
        if let Err(error) = killed {
            tracing::debug!(group = %group.display(), %error, "not killed as a whole");
        }
    }

    /// Of each process in the group, whether it must not be touched.
    fn spared_in(&self, group: &Path) -> io::Result<Vec<bool>> {
        let mut spared = own_line();
        spared.extend(&self.options.protected);
        spared.extend(spare::pids(&self.spared));
        Ok(cgroup::processes(group)?.iter().map(|pid| spared.contains(pid)).collect())
    }

    /// A process that cannot be held or signalled now is found again by the next look.
    fn signal(&mut self, ids: &[ProcId], signals: &[Signal]) {
        // The youngest first: they are gone soonest.
        for id in ids.iter().rev() {
            let Some(known) = self.known.get_mut(id) else { continue };
            let sent = known.hold(self.evidence).and_then(|handle| match handle {
                Some(handle) => signals.iter().try_for_each(|signal| handle.signal(*signal).map(drop)),
                None => Ok(()),
            });
            if let Err(error) = sent {
                tracing::debug!(%id, %error, "not signalled");
            }
        }
    }

    /// Waits for all of them to end, but no longer than this.
    fn rest(&self, found: &[ProcId], pause: Duration) {
        let handles: Vec<&Handle> =
            found.iter().filter_map(|id| self.known.get(id)?.handle.as_ref()).collect();
        if handles.is_empty() || handle::wait_for_all(handles, pause).is_err() {
            std::thread::sleep(pause);
        }
    }

    /// The init, where it is alive and may be ended.
    fn init(&self) -> Result<Option<Handle>, Error> {
        let spared = |id: &ProcId| id.pid == std::process::id() || self.options.protected.contains(&id.pid);
        let Some(id) = self.evidence.init.filter(|id| !spared(id)) else { return Ok(None) };
        match Handle::open(id) {
            Err(Error::OtherUser(_) | Error::Forbidden(_)) => Ok(None),
            other => other,
        }
    }

    fn report(self) -> Result<Report, Error> {
        let mut report = Report { spared: self.spared, ..Report::default() };
        for (id, member) in self.foreign {
            let state = identity::state(id).map_err(Error::system("read a process"))?;
            if !matches!(state, State::Gone | State::Zombie) {
                report.foreign.push(Member { state, ..member });
            }
        }
        for (id, known) in self.known {
            let state = identity::state(id).map_err(Error::system("read a process"))?;
            let ended = matches!(state, State::Gone | State::Zombie);
            let beaten = ended && !self.unbeaten.contains(&id);
            let list = if beaten { &mut report.killed } else { &mut report.survivors };
            list.push(Member { state: if ended { State::Gone } else { state }, ..known.member });
        }
        Ok(report)
    }
}

impl Known {
    /// Takes note of its end.
    fn check(&mut self) -> Result<(), Error> {
        self.ended = self.ended
            || match &self.handle {
                Some(handle) => handle.exited()?,
                None => identity::exited(self.member.id).map_err(Error::system("read a process"))?,
            };
        if self.ended {
            self.handle = None;
        }
        Ok(())
    }

    /// Holds the process first, then asks again whether it belongs.
    fn hold(&mut self, evidence: &Evidence) -> Result<Option<&Handle>, Error> {
        if self.handle.is_none() {
            let member = &self.member;
            self.handle = Handle::open_if(member.id, |now| still_belongs(evidence, member, now))?;
        }
        Ok(self.handle.as_ref())
    }
}
