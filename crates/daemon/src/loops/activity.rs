//! What agents do, seen from outside: their logs, their own records, their screens, looked at now and then. What their
//! hooks say is heard at once, elsewhere, and goes before all of this.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agents::Adapter;
use pool::activity::Seen;
use pool::{Agent, activity, heard, queue};
use protocol::event::AgentEvent;
use protocol::{ActivityState, Event, MessageState, Notes, Refusal, SessionId, Tag, Timestamp};
use tokio::time::{sleep, timeout};

use crate::decide::usage_limit;
use crate::effect::dialog::Answer;
use crate::effect::{dialog, rules};
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::clock;
use crate::sense::glance::glance;
use crate::sense::rounds::Rounds;
use crate::sense::screen::Found;
use crate::sense::subject::{Kind, Subject};
use crate::sense::{hook_spool, transcript};

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// And while an agent is starting.
const SOON: Duration = Duration::from_millis(200);

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
        rules::park_all(&daemon, parks);
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
    timeout(PAUSE, hook_spool::read_of(daemon, &at_work)).await.ok();
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
    let known: BTreeSet<SessionId> = turn.pool().sessions().map(|session| session.id).collect();
    turn.volatile.agents.retain(&known, &there);
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
        let shown = front.and_then(|command| {
            pool::observe::in_front(turn.pool(), (subject.id, subject.tag), command, turn.now())
        });
        turn.emit_all(shown);
        looked(turn, subject.tag, began);
        note(turn, &subject, &found);
        if transcript::read(turn, daemon, &subject, &found) {
            continue;
        }
        let interrupted_at = transcript::interrupted_at(&found);
        let seen = Seen {
            // What an earlier incarnation wrote says nothing of this one.
            quiet_since: found.quiet_since.map(|at| at.max(subject.started_at)),
            idle_quiet,
            marks: found.marks,
            worked_at: turn.volatile.prompts.delivered_at().get(&subject.tag).copied(),
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
    Todo { parks: usage_limit::see_to(turn, daemon), answers }
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
    if turn.volatile.agents.note_marks(subject.tag, &found.marks) {
        turn.wake();
    }
}

/// It was looked at, by a look that began then: whoever waits for it to be idle may have waited for that.
fn looked(turn: &mut Turn<'_>, tag: Tag, began: Timestamp) {
    let before = turn.volatile.agents.note_look(tag, began);
    let worked = turn.volatile.prompts.delivered_at().get(&tag).copied();
    if worked.is_some_and(|worked| worked < began && before.is_none_or(|before| before <= worked)) {
        turn.wake();
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
