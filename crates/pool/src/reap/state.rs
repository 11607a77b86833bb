//! The volatile state of reaping: reapers, leases, verdicts, and violations found so far. Lost when `poold`
//! ends; the facts that matter are on record as events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::reap::{Candidate, CandidateKind, Outcome, Rule};
use protocol::{ProcId, SessionId, Tag, Timestamp};

use crate::deadlines::Mono;
use crate::observe::state::Peer;
use crate::pool::Pool;
use crate::reap::leases::Leases;
use crate::reap::machine::Machine;
use crate::reap::orphans::{Orphans, SilentWorker, ended_owner};
use crate::reap::retired_tags::UnseenTags;
use crate::reap::rules::ResourceUse;
use crate::settings::Settings;

/// The window of the limit on kills, and the time for which a refusal by the command before a kill holds.
const MINUTE: Duration = Duration::from_secs(60);

/// Age of a sample of memory or disk use below which it ends a session.
const SAMPLE_VALID: Duration = Duration::from_secs(5);

/// Share of one processor below which a session did nothing since the last sample.
const CALM_PERCENT: u64 = 1;

/// A sample of a session's processor time, which tells whether it hangs.
#[derive(Debug, Clone, Copy)]
struct CpuSample {
    tag: Tag,
    cpu_us: u64,
    at: Timestamp,
    low_cpu_since: Timestamp,
}

/// Reapers, leases, verdicts and violations.
#[derive(Debug, Default)]
pub struct Reaping {
    /// The machine, as last sampled.
    pub machine: Machine,
    reapers: BTreeMap<u64, Peer>,
    reaper_since: Timestamp,
    leases: Leases,
    verdicts: BTreeMap<Tag, Outcome>,
    survivors: BTreeSet<Tag>,
    guarded: BTreeSet<Tag>,
    exited: BTreeSet<ProcId>,
    used: BTreeMap<Tag, ResourceUse>,
    used_at: BTreeMap<(Tag, Rule), Mono>,
    evidence: BTreeMap<Tag, String>,
    refused: BTreeMap<(Tag, Rule), Mono>,
    spared: BTreeSet<(Tag, ProcId)>,
    cpu: BTreeMap<SessionId, CpuSample>,
    unseen_tags: UnseenTags,
    orphans: Orphans,
    applied: BTreeSet<(Tag, Rule)>,
    reported: BTreeSet<(Tag, Rule)>,
    kills: BTreeMap<(Tag, Rule), Mono>,
    held_back: usize,
    forced: BTreeSet<Tag>,
}

impl Reaping {
    /// No reaper is connected yet.
    pub fn new(now: Timestamp) -> Self {
        Self { reaper_since: now, ..Self::default() }
    }

    pub fn reaper_connected(&mut self, reaper: Peer, now: Timestamp) {
        if self.reapers.is_empty() {
            self.reaper_since = now;
        }
        self.reapers.insert(reaper.connection, reaper);
    }

    /// Ends a connection, and its leases with it. Returns true if it was a reaper's.
    pub fn connection_ended(&mut self, connection: u64, now: Timestamp) -> bool {
        if self.reapers.remove(&connection).is_none() {
            return false;
        }
        if self.reapers.is_empty() {
            self.reaper_since = now;
        }
        self.leases.end_of_connection(connection);
        true
    }

    /// The connected reapers.
    pub fn reapers(&self) -> impl Iterator<Item = &Peer> {
        self.reapers.values()
    }

    /// True while a reaper is connected.
    pub fn has_reaper(&self) -> bool {
        !self.reapers.is_empty()
    }

    /// Time since which a reaper, or none, is connected.
    pub fn reaper_since(&self) -> Timestamp {
        self.reaper_since
    }

    /// Leases a candidate, with its grace in milliseconds, to the reaper of this connection.
    pub fn lease(&mut self, tag: Tag, connection: u64, (grace_ms, now): (u64, Mono)) {
        self.leases.begin(tag, connection, (grace_ms, now));
    }

    pub fn end_lease(&mut self, tag: Tag) {
        self.leases.end(tag);
    }

    /// True while a reaper holds any lease.
    pub fn has_leases(&self) -> bool {
        !self.leases.is_empty()
    }

    /// True while a reaper holds a lease on the incarnation or claim with this tag.
    pub fn is_leased(&self, tag: Tag) -> bool {
        self.leases.is_held(tag)
    }

    /// The last verdict on an incarnation that is being ended.
    #[must_use]
    pub fn verdict(&self, tag: Tag) -> Option<&Outcome> {
        self.verdicts.get(&tag)
    }

    /// True if the last attempt to end everything with this tag left something alive.
    pub fn has_survivors(&self, tag: Tag) -> bool {
        self.survivors.contains(&tag)
    }

    /// Stores a verdict for those who wait for it.
    pub fn note_verdict(&mut self, tag: Tag, outcome: Outcome) {
        self.verdicts.insert(tag, outcome);
    }

    /// Drops the verdict on an earlier attempt, for those who wait for the next one.
    pub fn forget_verdict(&mut self, tag: Tag) {
        self.verdicts.remove(&tag);
    }

    /// Shortens an end that is under way to this time until KILL, in milliseconds. Returns false if none is, or it
    /// is over before.
    pub(super) fn shorten_end(&mut self, tag: Tag, grace: (u64, Mono)) -> bool {
        self.leases.shorten(tag, grace)
    }

    /// The time from the begin of a lease to KILL, in milliseconds.
    pub fn leased_grace(&self, tag: Tag) -> Option<u64> {
        self.leases.held_grace(tag)
    }

    /// Keeps the reaper away from an incarnation that is being parked, until tmux has shown that no client is
    /// attached.
    pub fn guard(&mut self, tag: Tag) {
        self.guarded.insert(tag);
    }

    pub fn end_guard(&mut self, tag: Tag) {
        self.guarded.remove(&tag);
    }

    /// True while the parking of this incarnation is not decided.
    pub fn is_guarded(&self, tag: Tag) -> bool {
        self.guarded.contains(&tag)
    }

    /// Processes of records that are proved to have ended.
    pub fn exited(&self) -> &BTreeSet<ProcId> {
        &self.exited
    }

    /// Stores processes that are proved to have ended.
    pub fn note_exited(&mut self, processes: impl IntoIterator<Item = ProcId>) {
        self.exited.extend(processes);
    }

    /// Memory and disk use of an incarnation, as last sampled.
    pub fn used(&self, tag: Tag) -> Option<ResourceUse> {
        self.used.get(&tag).copied()
    }

    /// Stores a sample of memory or disk use; a missing value leaves the last one.
    pub fn note_used(&mut self, tag: Tag, sample: ResourceUse, now: Mono) {
        let known = self.used.entry(tag).or_default();
        let (memory, disk) = (sample.memory.or(known.memory), sample.disk.or(known.disk));
        let unread = if sample.disk.is_some() { sample.unread } else { known.unread };
        *known = ResourceUse { memory, disk, unread };
        let sampled = [(Rule::Memory, sample.memory), (Rule::Disk, sample.disk)];
        let sampled = sampled.into_iter().filter(|(_, used)| used.is_some());
        self.used_at.extend(sampled.map(|(rule, _)| ((tag, rule), now)));
    }

    /// True if the sample that violates a limit is younger than [`SAMPLE_VALID`]. After that, files may have been
    /// removed.
    pub(super) fn is_current(&self, found: (Tag, Rule), now: Mono) -> bool {
        self.used_at.get(&found).is_none_or(|at| at.until(now) < SAMPLE_VALID)
    }

    /// Stores a sample of the processor time, in microseconds, of all sessions that may hang.
    pub fn note_cpu(&mut self, pool: &Pool, samples: Vec<(SessionId, Tag, u64)>, now: Timestamp) {
        let known = std::mem::take(&mut self.cpu);
        let noted = samples.into_iter().map(|(session, tag, cpu_us)| {
            let before = known.get(&session).filter(|before| before.tag == tag && before.cpu_us <= cpu_us);
            let calm = before.filter(|before| {
                let passed = u64::try_from(pool.age(now, before.at).as_micros()).unwrap_or(u64::MAX);
                (cpu_us - before.cpu_us) * 100 <= passed * CALM_PERCENT
            });
            let low_cpu_since = calm.map_or(now, |before| before.low_cpu_since);
            (session, CpuSample { tag, cpu_us, at: now, low_cpu_since })
        });
        self.cpu = noted.collect();
    }

    /// Times since which the processes of sessions have used next to no processor time.
    pub fn low_cpu_since(&self) -> BTreeMap<SessionId, Timestamp> {
        self.cpu.iter().map(|(session, sample)| (*session, sample.low_cpu_since)).collect()
    }

    /// Processes and workers that belong to nothing running.
    pub fn orphans(&self) -> &Orphans {
        &self.orphans
    }

    /// Stores the orphans found in a scan of the machine. Returns true if they differ from those of the scan
    /// before.
    pub fn note_orphans(&mut self, found: Orphans) -> bool {
        let differs = (&self.orphans.marked, &self.orphans.clients) != (&found.marked, &found.clients);
        (self.orphans.marked, self.orphans.clients) = (found.marked, found.clients);
        differs
    }

    /// Stores the workers that have been silent.
    pub fn note_silent_workers(&mut self, workers: Vec<SilentWorker>) {
        self.orphans.workers = workers;
    }

    /// True if the reaper spared this process.
    pub fn is_spared(&self, tag: Tag, process: ProcId) -> bool {
        self.spared.contains(&(tag, process))
    }

    /// The processes that the reaper spared.
    pub fn spared(&self) -> impl Iterator<Item = ProcId> {
        self.spared.iter().map(|(_, process)| *process)
    }

    /// Takes the tags found in a scan. Returns the retired tags that nothing has carried for long.
    pub fn note_carried_tags(&mut self, pool: &Pool, carried: &BTreeSet<Tag>, now: Mono) -> Vec<Tag> {
        self.unseen_tags.note(pool.retired_tags(), carried, now)
    }

    /// True if the processes with this tag were left by an ended incarnation. If no process had the tag for a while,
    /// those that have it now were started later, for instance by a job of `at`, which keeps the environment of its
    /// caller.
    pub fn is_left_over(&self, pool: &Pool, tag: Tag) -> bool {
        ended_owner(pool, tag).is_some() && !self.unseen_tags.is_revived(tag)
    }

    /// Number of kills by rules that are still allowed within the present minute.
    pub(crate) fn kills_left(&self, settings: &Settings, now: Mono) -> usize {
        let recent = self.kills.values().filter(|at| at.until(now) < MINUTE).count();
        (settings.reap.max_kills_per_minute as usize).saturating_sub(recent)
    }

    pub(crate) fn count_kill(&mut self, found: (Tag, Rule), now: Mono) {
        self.kills.retain(|_, at| at.until(now) < MINUTE);
        self.kills.insert(found, now);
    }

    /// True if a candidate has to wait because of the limit on kills.
    pub fn is_held_back(&self, settings: &Settings, candidate: &Candidate, now: Mono) -> bool {
        // The remains of a dead worker are not held back, because its message waits for the proof that nothing is
        // left.
        let is_over = candidate.kind == CandidateKind::StaleWorker
            && candidate.init.is_some_and(|worker| self.exited.contains(&worker));
        counts_as_kill(candidate)
            && !is_over
            && self.kills_left(settings, now) == 0
            && !self.forced.contains(&candidate.tag)
    }

    /// Exempts candidates from the limit on kills.
    pub fn force(&mut self, candidates: &[Candidate]) {
        self.forced = candidates.iter().map(|candidate| candidate.tag).collect();
    }

    /// Number of running sessions that rules would end if there were no limit on kills.
    pub fn held_back(&self) -> usize {
        self.held_back
    }

    /// Stores the result of an evaluation: the violations, and the number of sessions held back by the limit
    /// on kills.
    pub(super) fn evaluated(&mut self, applied: BTreeSet<(Tag, Rule)>, held_back: usize) {
        (self.applied, self.held_back) = (applied, held_back);
    }

    /// True if the last evaluation found this violation.
    pub(super) fn has_applied(&self, found: (Tag, Rule)) -> bool {
        self.applied.contains(&found)
    }

    /// True if the command before a kill refused it within the last minute.
    pub(super) fn was_refused(&self, found: (Tag, Rule), now: Mono) -> bool {
        self.refused.get(&found).is_some_and(|at| at.until(now) < MINUTE)
    }

    /// Stores the evidence for which a rule ends an incarnation.
    pub(super) fn note_evidence(&mut self, tag: Tag, evidence: String) {
        self.evidence.insert(tag, evidence);
    }

    /// The evidence for which a rule ends an incarnation.
    pub(super) fn evidence(&self, tag: Tag) -> Option<&String> {
        self.evidence.get(&tag)
    }

    /// Returns true the first time that this is reported.
    pub(super) fn report_once(&mut self, found: (Tag, Rule)) -> bool {
        self.reported.insert(found)
    }

    /// Handles the outcome of a lease: the processes are scanned for again, except for spared ones.
    pub(super) fn settled(&mut self, candidate: &Candidate, outcome: &Outcome, now: Mono) {
        let tag = candidate.tag;
        let untouched = match outcome {
            Outcome::Gone { killed } | Outcome::Spared { killed, .. } => killed.is_empty(),
            Outcome::Untouched { .. } | Outcome::Refused { .. } => true,
            Outcome::Survivors { .. } => false,
        };
        self.forced.remove(&tag);
        self.evidence.remove(&tag);
        match outcome {
            Outcome::Survivors { .. } => self.survivors.insert(tag),
            _ => self.survivors.remove(&tag),
        };
        if let Some(rule) = candidate.rule.filter(|_| counts_as_kill(candidate) && untouched) {
            // Nothing was killed.
            self.kills.remove(&(tag, rule));
        }
        let marked = self.orphans.marked.remove(&tag).unwrap_or_default();
        if matches!(outcome, Outcome::Spared { .. }) {
            self.spared.extend(marked.iter().map(|orphan| (tag, orphan.process)));
        }
        self.orphans.clients.retain(|client| Some(client.process) != candidate.init);
        if let (Outcome::Refused { .. }, Some(rule)) = (outcome, candidate.rule) {
            self.refused.insert((tag, rule), now);
        }
    }

    /// Forgets ended incarnations and processes. `named`: tags of the present candidates; `ended`: processes
    /// that are proved to have ended.
    pub fn retain(&mut self, pool: &Pool, named: &BTreeSet<Tag>, ended: &BTreeSet<ProcId>, now: Mono) {
        let holders = || pool.sessions().filter(|session| session.lifecycle.holds_slot());
        let runs = || holders().filter_map(|session| session.incarnation.as_ref());
        let live: BTreeSet<Tag> = runs().map(|run| run.tag).collect();
        let servers = pool.server().map(|server| server.process);
        let of_records: BTreeSet<ProcId> = runs()
            .flat_map(|run| [run.init, run.agent, run.server.map(|server| server.process)])
            .flatten()
            .chain(servers)
            .collect();
        let Self { orphans, reported, used, used_at, evidence, refused, spared, exited, leases, .. } = self;
        // A leased candidate counts as known, because it is named again if its reaper disconnects.
        let is_known = |tag: &Tag| live.contains(tag) || named.contains(tag) || leases.is_held(*tag);
        self.verdicts.retain(|tag, _| is_known(tag));
        self.survivors.retain(is_known);
        self.guarded.retain(|tag| live.contains(tag));
        self.forced.retain(is_known);
        reported.retain(|(tag, _)| named.contains(tag) || orphans.marked.contains_key(tag));
        used.retain(|tag, _| live.contains(tag));
        used_at.retain(|(tag, _), _| live.contains(tag));
        evidence.retain(|tag, _| live.contains(tag));
        refused.retain(|_, at| at.until(now) < MINUTE);
        spared.retain(|(_, process)| !ended.contains(process));
        exited.retain(|process| of_records.contains(process));
    }
}

/// True if ending a candidate counts against the limit on kills: processes are killed by a rule. Removing the
/// pane of an ended incarnation does not count; a rule's decision on a running session was counted when it
/// was made.
pub(crate) fn counts_as_kill(candidate: &Candidate) -> bool {
    use CandidateKind::{Requested, ZombiePane};
    candidate.rule.is_some() && !matches!(candidate.kind, Requested | ZombiePane)
}
