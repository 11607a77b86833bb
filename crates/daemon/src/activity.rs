//! What agents do, seen from outside: their logs, their own records, their screens, looked at now and then. What their
//! hooks say is heard at once, elsewhere, and goes before all of this.

pub(crate) mod dialog;
pub(crate) mod limited;
mod look;
mod record;
mod round;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agents::{Adapter, Confirm, wiring};
use pool::activity::{self, Marks, Seen};
use pool::{Agent, heard, queue};
use protocol::activity::Source;
use protocol::event::AgentEvent;
use protocol::socket::Paths;
use protocol::{
    Activity, ActivityState, Event, MessageId, MessageState, Notes, OsBytes, Refusal, Session, SessionId,
    Tag, Timestamp,
};
use tmux::PaneRef;
use tokio::time::{sleep, timeout};

use dialog::Answer;
use look::{Found, Watched};
use round::Rounds;

use crate::context::{Daemon, pane_of};
use crate::delivery::glance;
use crate::engine::Turn;
use crate::{clock, hooks, stale, view};

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// And while an agent is starting.
const SOON: Duration = Duration::from_millis(200);

/// A running session, as it is looked at.
pub(crate) struct Subject {
    id: SessionId,
    tag: Tag,
    pane: Option<PaneRef>,
    agent: Arc<Agent>,
    /// Start of its incarnation.
    started_at: Timestamp,
    /// Until when its start may take.
    start_limit: Timestamp,
    /// What is known of its agent.
    known: Activity,
    notes: Notes,
    hooked: bool,
    attached: bool,
    /// A prompt that was typed, and that it has not confirmed.
    unconfirmed: Option<MessageId>,
    /// Set where the session is a shell.
    shell: Option<Shell>,
    log: PathBuf,
    /// The file in which its agent records its prompts.
    record: Option<PathBuf>,
}

impl Subject {
    fn new(turn: &Turn<'_>, (paths, kind): (&Paths, &Kind), session: &Session) -> Option<Self> {
        let run = session.incarnation.as_ref()?;
        let known = turn.pool().activity_in(session.id, run.tag).cloned();
        let notes = turn.pool().notes(session.id).cloned().unwrap_or_default();
        let unconfirmed =
            queue::held_prompt(turn.pool(), session.id).filter(|open| open.state.is_unconfirmed());
        Some(Self {
            unconfirmed: unconfirmed.map(|open| open.id),
            id: session.id,
            tag: run.tag,
            pane: pane_of(run),
            hooked: notes.hooked == Some(run.tag),
            known: known.unwrap_or_default(),
            record: record_of(paths, session, &kind.agent, &notes),
            notes,
            agent: Arc::clone(&kind.agent),
            started_at: run.started_at,
            start_limit: run.started_at.after(kind.ready_limit),
            attached: session.attached_clients > 0,
            shell: Shell::of(session, &kind.agent),
            log: paths.session(session.id).join("logs").join(protocol::logs::CURRENT),
        })
    }

    /// Whether this is its session, in the same incarnation.
    fn is_of(&self, session: &Session) -> bool {
        session.incarnation.as_ref().is_some_and(|run| run.tag == self.tag)
    }

    /// Whether it is an agent that has not said or shown yet that it is ready.
    fn is_starting(&self, now: Timestamp) -> bool {
        let unready = matches!(self.known.state, ActivityState::Unknown | ActivityState::Attention);
        self.agent.shows_composer() && !self.hooked && unready && now < self.start_limit
    }

    /// Whether its agent's own record is worth reading: it has stopped, or fallen silent, or may have got a prompt of
    /// which it said nothing.
    fn wants_record(&self, watched: &Watched, now: Timestamp) -> bool {
        let silent = watched.quiet_since.is_some_and(|since| now.since(since) >= PAUSE);
        let works = self.known.state.is_at_work();
        self.agent.adapter != Adapter::None && (!works || silent || self.unconfirmed.is_some())
    }

    /// Whether only its screen tells what it does now.
    fn wants_glance(&self, watched: &Watched, now: Timestamp) -> bool {
        if !self.agent.shows_composer() {
            return false;
        }
        if !self.hooked {
            return self.is_starting(now) || watched.wrote_since_look();
        }
        let works = self.known.state.is_at_work();
        let asks = self.known.state == ActivityState::Attention && self.known.source == Source::Screen;
        if (asks || self.known.state == ActivityState::Busy) && watched.wants_look_for_title(now) {
            return true;
        }
        let last = self.notes.heard_at.into_iter().chain(watched.quiet_since).chain([self.known.since]).max();
        let silent = last.is_some_and(|last| now.since(last) >= activity::SILENCE);
        works && silent && watched.looked_at() <= last
    }
}

/// The file in which an agent records its prompts: as its hooks said, or as its wiring chose.
fn record_of(paths: &Paths, session: &Session, agent: &Agent, notes: &Notes) -> Option<PathBuf> {
    let chosen = || wiring::record(agent.adapter, &paths.session(session.id)).filter(|_| agent.hooks);
    notes.transcript.as_ref().map(|path| path.as_path().to_owned()).or_else(chosen)
}

/// An agent kind, as it is configured.
struct Kind {
    agent: Arc<Agent>,
    /// How long its start may take.
    ready_limit: Duration,
}

/// A session's own program, which is in the foreground of its terminal while it waits for a command.
struct Shell {
    /// Its init, in the same terminal.
    init: Option<u32>,
    /// The name of its program.
    own: OsString,
    /// The program that the watcher saw in the foreground last, under load half a minute ago or more.
    seen: Option<OsBytes>,
}

impl Shell {
    fn of(session: &Session, agent: &Agent) -> Option<Self> {
        if session.spec.agent != "shell" && agent.confirm != Confirm::Prompt {
            return None;
        }
        let own = session.spec.command.first()?.as_path().file_name()?.to_owned();
        let init = session.incarnation.as_ref().and_then(|run| run.init).map(|init| init.pid);
        Some(Self { init, own, seen: session.current_command.clone() })
    }

    /// Compares its program with the one found in the foreground just now, else with the one seen there last.
    fn is_in_front(&self, found: Option<&OsBytes>) -> Option<bool> {
        let command = found.or(self.seen.as_ref())?;
        Some(look::is_same_program(&self.own, command.as_os_str()))
    }
}

/// Looks for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let context = Arc::clone(&daemon);
    let how_it_looks = move |agent: Arc<Agent>, pane| {
        let daemon = Arc::clone(&context);
        async move { glance(&daemon, &agent, pane).await.ok()?.1 }
    };
    let mut rounds = Rounds::new(|subject, watched| watched.read(subject, clock::now()), how_it_looks);
    loop {
        let context = Arc::clone(&daemon);
        let Ok(subjects) = daemon.engine.turn(move |turn| subjects(turn, &context)).await else { return };
        let now = clock::now();
        let pause = if subjects.iter().any(|subject| subject.is_starting(now)) { SOON } else { PAUSE };
        let found = rounds.look(subjects).await;
        if hear(&daemon, &found).await.is_err() {
            return;
        }
        let context = Arc::clone(&daemon);
        let decide = move |turn: &mut Turn<'_>| decide(turn, &context, (found, now));
        let Ok(Todo { parks, answers }) = daemon.engine.turn(decide).await else { return };
        stale::park_all(&daemon, parks);
        for answer in answers {
            tokio::spawn(dialog::answer(Arc::clone(&daemon), answer));
        }
        sleep(pause).await;
    }
}

/// What hooks left in files says more of a prompt than anything that is seen. Files that do not answer keep nobody else
/// waiting.
async fn hear(daemon: &Arc<Daemon>, found: &[(Subject, Found)]) -> Result<(), Refusal> {
    let ids: Vec<SessionId> = found.iter().map(|(subject, _)| subject.id).collect();
    let given = |open: queue::Open<'_>| open.state == MessageState::Accepted || open.state.is_unconfirmed();
    let at_work = move |turn: &mut Turn<'_>| {
        let has = |id: &SessionId| queue::held_prompt(turn.pool(), *id).is_some_and(given);
        ids.into_iter().filter(has).collect::<Vec<_>>()
    };
    let at_work = daemon.engine.turn(at_work).await?;
    timeout(PAUSE, hooks::read_of(daemon, &at_work)).await.ok();
    Ok(())
}

/// All that run. What belongs to an agent kind is read once for all of them.
fn subjects(turn: &mut Turn<'_>, daemon: &Daemon) -> Vec<Subject> {
    let settings = &daemon.loaded().settings;
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    let live = turn.pool().sessions().filter(|session| session.takes_prompts());
    let subjects: Vec<Subject> = live
        .filter_map(|session| {
            let kind = kinds.entry(&session.spec.agent).or_insert_with(|| Kind {
                agent: Arc::new(settings.agent_of(session).clone()),
                ready_limit: settings.ready_limit,
            });
            Subject::new(turn, (&daemon.paths, kind), session)
        })
        .collect();
    let there: BTreeSet<Tag> = subjects.iter().map(|subject| subject.tag).collect();
    turn.rest.agents.marks.retain(|tag, _| there.contains(tag));
    turn.rest.agents.looked.retain(|tag, _| there.contains(tag));
    let known: BTreeSet<SessionId> = turn.pool().sessions().map(|session| session.id).collect();
    turn.rest.agents.forget(&known);
    subjects
}

/// What is left to do outside of the turn.
struct Todo {
    /// Sessions that are put aside.
    parks: Vec<(SessionId, Tag)>,
    /// Dialogs that the configuration answers.
    answers: Vec<Answer>,
}

/// What follows from what was seen.
fn decide(turn: &mut Turn<'_>, daemon: &Daemon, (found, began): (Vec<(Subject, Found)>, Timestamp)) -> Todo {
    let mut answers = Vec::new();
    let rules = &daemon.loaded().settings.queue;
    let idle_quiet = daemon.loaded().settings.idle_quiet;
    for (subject, found) in found {
        if turn.pool().session(subject.id).is_none_or(|session| !subject.is_of(session)) {
            continue;
        }
        marked(turn, &subject, &found);
        let front = found.front.as_ref();
        turn.emit_all(front.and_then(|command| view::in_front(turn, (subject.id, subject.tag), command)));
        looked(turn, subject.tag, began);
        note(turn, &subject, &found);
        if record::read(turn, daemon, &subject, &found) {
            continue;
        }
        let interrupted_at = record::interrupted_at(&found);
        let seen = Seen {
            // What an earlier incarnation wrote says nothing of this one.
            quiet_since: found.quiet_since.map(|at| at.max(subject.started_at)),
            idle_quiet,
            marks: found.marks,
            worked_at: turn.rest.view.worked.get(&subject.tag).copied(),
            own_foreground: subject.shell.as_ref().and_then(|shell| shell.is_in_front(found.front.as_ref())),
            interrupted_at,
            screen: found.look,
            title: found.title,
            is_known: subject.agent.shows_composer(),
            keeps_composer: subject.agent.adapter == Adapter::None && subject.agent.screen.works.is_none(),
        };
        let session = turn.pool().session(subject.id);
        if let Some(event) = session.and_then(|s| activity::judged(turn.pool(), s, &seen, turn.now())) {
            answers.extend(dialog::wanted(&subject, seen.screen.as_ref(), &event));
            let stopped = subject.hooked && rests(&event);
            turn.emit(event);
            if stopped {
                interrupted(turn, rules, &subject);
            }
        }
    }
    Todo { parks: limited::see_to(turn, daemon), answers }
}

fn rests(event: &Event) -> bool {
    matches!(event, Event::Agent(AgentEvent::ActivityChanged { activity, .. }) if activity.state == ActivityState::Idle)
}

/// Its agent stopped without a word: somebody interrupted it, or said no at the terminal.
fn interrupted(turn: &mut Turn<'_>, rules: &queue::Rules, subject: &Subject) {
    let open =
        queue::held_prompt(turn.pool(), subject.id).filter(|open| open.state == MessageState::Accepted);
    if let Some(open) = open {
        let event = heard::interrupted(&open, (subject.agent.on_interrupted, rules), turn.now());
        turn.emit(event);
    }
}

/// What its program told the terminal. Often no event says so: whoever waits for a prompt to come back looks at it.
fn marked(turn: &mut Turn<'_>, subject: &Subject, found: &Found) {
    let before = turn.rest.agents.marks.get(&subject.tag);
    if before.map_or(found.marks == Marks::default(), |before| *before == found.marks) {
        return;
    }
    turn.rest.agents.marks.insert(subject.tag, found.marks.clone());
    turn.stir();
}

/// It was looked at, by a look that began then: whoever waits for it to be idle may have waited for that.
fn looked(turn: &mut Turn<'_>, tag: Tag, began: Timestamp) {
    let before = turn.rest.agents.looked.insert(tag, began);
    let worked = turn.rest.view.worked.get(&tag).copied();
    if worked.is_some_and(|worked| worked < began && before.is_none_or(|before| before <= worked)) {
        turn.stir();
    }
}

/// The tokens of its conversation.
fn note(turn: &mut Turn<'_>, subject: &Subject, found: &Found) {
    let before = turn.pool().notes(subject.id);
    if found.tokens.is_none() || before.is_some_and(|before| before.tokens == found.tokens) {
        return;
    }
    let notes = Notes { tokens: found.tokens, ..before.cloned().unwrap_or_default() };
    turn.emit(Event::Agent(AgentEvent::AgentNoted { session: subject.id, notes }));
}
