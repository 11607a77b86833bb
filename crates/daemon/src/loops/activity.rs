//! The activity of agents as observed from outside: their logs, transcripts and screens, sampled at
//! intervals. Reports of their hooks are taken in elsewhere, at once, and take precedence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pool::agent::{self, AgentObservation};
use pool::{Agent, QueueRules, prompt, queue};
use protocol::{
    ActivityState, AgentEvent, Event, MessageReason, MessageState, Notes, Refusal, SessionId, Source, Tag,
    Timestamp,
};
use tokio::time::{Instant, timeout, timeout_at};

use crate::decide::usage_limit;
use crate::effect::dialog::{self, DialogAnswer};
use crate::effect::reap_round;
use crate::engine::{Daemon, Turn};
use crate::sense::pane_state::read_screen;
use crate::sense::sample_target::{AgentKind, SampleTarget};
use crate::sense::sampler::Sampler;
use crate::sense::session_sample::{Sample, SampleState};
use crate::sense::{hook_spool, transcript};

/// Time between two samples.
const PAUSE: Duration = Duration::from_secs(1);

/// Time between two samples while an agent is starting.
const START_PAUSE: Duration = Duration::from_millis(200);

/// Samples all sessions in rounds, and single ones between them as asked, until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let context = Arc::clone(&daemon);
    let read_screen = move |agent: Arc<Agent>, pane| {
        let daemon = Arc::clone(&context);
        async move { read_screen(&daemon, &agent, pane).await.ok()?.1 }
    };
    let world = daemon.world.clone();
    let read_files = move |target: &SampleTarget, state: &mut SampleState| {
        state.read(&*world.processes, target, world.clock.now());
    };
    let mut sampler = Sampler::new(daemon.world.clone(), read_files, read_screen);
    let mut next_round = Instant::now();
    loop {
        let asked = wait_for_round(&daemon, next_round).await;
        let context = Arc::clone(&daemon);
        let Ok(mut targets) = daemon.engine.turn(move |turn| targets(turn, &context)).await else { return };
        let now = daemon.world.clock.now();
        let pause = if targets.iter().any(|target| target.is_starting()) { START_PAUSE } else { PAUSE };
        sampler.forget_others(targets.iter().map(|target| target.tag).collect());
        if let Some(asked) = &asked {
            targets.retain(|target| asked.contains(&target.id));
        }
        let samples = sampler.sample(targets).await;
        if read_spooled(&daemon, &samples).await.is_err() {
            return;
        }
        let context = Arc::clone(&daemon);
        let decide = move |turn: &mut Turn<'_>| decide(turn, &context, (samples, now));
        let Ok(Effects { parks, answers }) = daemon.engine.turn(decide).await else { return };
        reap_round::park_all(&daemon, parks);
        for answer in answers {
            daemon.world.spawn("dialog", dialog::answer(Arc::clone(&daemon), answer));
        }
        if asked.is_none() {
            next_round = Instant::now() + pause;
        }
    }
}

/// Waits until the next round is due, or single sessions are to be sampled before it; returns these.
async fn wait_for_round(daemon: &Daemon, at: Instant) -> Option<BTreeSet<SessionId>> {
    if Instant::now() >= at {
        return None;
    }
    timeout_at(at, daemon.sample_requests.next()).await.ok()
}

/// Takes in the spooled hook reports of sessions that work on a prompt: they say more about it than any
/// sample. A file system that does not answer delays this for [`PAUSE`] at most.
async fn read_spooled(daemon: &Arc<Daemon>, samples: &[(SampleTarget, Sample)]) -> Result<(), Refusal> {
    let ids: Vec<SessionId> = samples.iter().map(|(target, _)| target.id).collect();
    let is_typed =
        |open: queue::PendingMessage<'_>| open.state == MessageState::Accepted || open.state.is_unconfirmed();
    let find = move |turn: &mut Turn<'_>| {
        let has = |id: &SessionId| queue::held_prompt(turn.pool(), *id).is_some_and(is_typed);
        ids.into_iter().filter(has).collect::<Vec<_>>()
    };
    let at_work = daemon.engine.turn(find).await?;
    timeout(PAUSE, hook_spool::read_of(daemon, &at_work)).await.ok();
    Ok(())
}

/// Returns the sessions to sample. The settings of each agent kind are read once.
fn targets(turn: &mut Turn<'_>, daemon: &Daemon) -> Vec<SampleTarget> {
    let settings = &daemon.loaded().settings;
    let mut kinds: BTreeMap<&str, AgentKind> = BTreeMap::new();
    let live = turn.pool().sessions().filter(|session| session.takes_prompts());
    let targets: Vec<SampleTarget> = live
        .filter_map(|session| {
            let kind = kinds.entry(&session.spec.agent).or_insert_with(|| AgentKind {
                agent: Arc::new(settings.agent_of(session).clone()),
                ready_limit: settings.ready_limit,
            });
            SampleTarget::new(turn, (&daemon.paths, kind), session)
        })
        .collect();
    let running: BTreeSet<Tag> = targets.iter().map(|target| target.tag).collect();
    let known: BTreeSet<SessionId> = turn.pool().sessions().map(|session| session.id).collect();
    turn.volatile.agents.retain(&known, &running);
    targets
}

/// Effects to perform outside of the turn.
struct Effects {
    /// Sessions to park.
    parks: Vec<(SessionId, Tag)>,
    /// Answers to dialogs, as configured.
    answers: Vec<DialogAnswer>,
}

/// Decides what follows from samples taken from `began` on.
fn decide(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    (samples, began): (Vec<(SampleTarget, Sample)>, Timestamp),
) -> Effects {
    let mut answers = Vec::new();
    let rules = &daemon.loaded().settings.queue;
    let idle_quiet = daemon.loaded().settings.idle_quiet;
    for (target, sample) in samples {
        if turn.pool().session(target.id).is_none_or(|session| !target.is_of(session)) {
            continue;
        }
        turn.volatile.agents.note_hidden_log(target.tag, sample.is_log_hidden);
        note_marks(turn, &target, &sample);
        if is_overtaken(turn, &target, began) {
            continue;
        }
        if sample.has_ended {
            // Only the agent's own record is still of use: it may tell how the last turn ended. All else follows from
            // the end of the incarnation.
            transcript::take_in(turn, daemon, &target, &sample);
            continue;
        }
        note_foreground(turn, &target, &sample);
        note_sampled(turn, target.tag, began);
        if sample.edits_lines == Some(true) {
            turn.volatile.prompts.note_line_editor(target.tag);
        }
        if let Some(at) = sample.quiet_since.filter(|_| sample.has_output) {
            turn.volatile.agents.note_output(target.id, at);
        }
        note_tokens(turn, &target, &sample);
        if transcript::take_in(turn, daemon, &target, &sample) {
            continue;
        }
        let interrupted_at = transcript::interrupted_at(&sample);
        let observation = AgentObservation {
            // Output of an earlier incarnation does not count.
            quiet_since: sample.quiet_since.map(|at| {
                let ran_from = target.active_before_adoption.unwrap_or(target.started_at);
                turn.pool().latest(turn.now(), [at, ran_from])
            }),
            idle_quiet,
            marks: sample.marks,
            delivered_at: turn.volatile.prompts.delivered_at().get(&target.tag).copied(),
            attended_at: turn.volatile.agents.bell_answered_at(target.tag),
            own_foreground: target
                .shell
                .as_ref()
                .and_then(|shell| shell.is_at_prompt(sample.foreground.as_ref(), sample.shell.as_ref())),
            interrupted_at,
            screen: sample.screen,
            title: sample.title,
            has_queued_asks: !turn.volatile.agents.queued_asks(target.id).is_empty(),
            ..AgentObservation::of(&target.agent)
        };
        let under = agent::activity_under_bell(turn.pool(), &observation, turn.now());
        if turn.volatile.agents.note_under_bell(target.tag, under) {
            turn.wake();
        }
        let session = turn.pool().session(target.id);
        if let Some(event) =
            session.and_then(|s| agent::derive_activity(turn.pool(), s, &observation, turn.now()))
        {
            answers.extend(dialog::configured_answer(&target, observation.screen.as_ref(), &event));
            let stopped = target.hooked && is_idle(&event);
            turn.emit(event);
            if stopped {
                note_interrupted(turn, rules, &target);
            }
        }
    }
    Effects { parks: usage_limit::tick(turn, daemon), answers }
}

/// True if the task that follows a prompt has recorded the foreground program since the sampling began. The sample is
/// then older, and may show a command that has ended.
fn is_overtaken(turn: &Turn<'_>, target: &SampleTarget, began: Timestamp) -> bool {
    let known = turn.pool().activity_in(target.id, target.tag);
    known.is_some_and(|known| {
        known.source == Source::Process && turn.pool().is_earlier(turn.now(), began, known.since)
    })
}

/// True if the agent became idle.
fn is_idle(event: &Event) -> bool {
    let Event::Agent(AgentEvent::ActivityChanged { activity, .. }) = event else { return false };
    activity.state == ActivityState::Idle
}

/// Settles the prompt of an agent that stopped without a hook's report: it was interrupted or refused at the
/// terminal.
fn note_interrupted(turn: &mut Turn<'_>, rules: &QueueRules, target: &SampleTarget) {
    let open = queue::held_prompt(turn.pool(), target.id).filter(|open| open.state == MessageState::Accepted);
    if let Some(open) = open {
        let (pool, now) = (turn.pool(), turn.now());
        let events = prompt::stopped(pool, &open, (&target.agent, rules), MessageReason::Interrupted, now);
        turn.emit_all(events);
    }
}

/// Records the shell's prompt marks. They often come without an event, so tasks that wait for the shell are
/// woken.
fn note_marks(turn: &mut Turn<'_>, target: &SampleTarget, sample: &Sample) {
    if turn.volatile.agents.note_marks(target.tag, &sample.marks) {
        turn.wake();
    }
}

/// Records the program in the foreground, if the watcher has seen another one.
fn note_foreground(turn: &mut Turn<'_>, target: &SampleTarget, sample: &Sample) {
    let shown = sample.foreground.as_ref().and_then(|found| {
        let run = (target.id, target.tag);
        pool::observe::correct_foreground(turn.pool(), run, &found.command, turn.now())
    });
    turn.emit_all(shown);
}

/// Records a sample that began at `began`. Wakes those who wait for an idle agent if it is the first one
/// since the last input.
fn note_sampled(turn: &mut Turn<'_>, tag: Tag, began: Timestamp) {
    let before = turn.volatile.agents.note_observation(tag, began);
    let typed_at = turn.volatile.prompts.delivered_at().get(&tag).copied();
    let is_later = |typed, at| turn.pool().is_earlier(turn.now(), typed, at);
    if typed_at
        .is_some_and(|typed| is_later(typed, began) && before.is_none_or(|before| !is_later(typed, before)))
    {
        turn.wake();
    }
}

/// Records the number of tokens of the agent's conversation.
fn note_tokens(turn: &mut Turn<'_>, target: &SampleTarget, sample: &Sample) {
    let before = turn.pool().notes(target.id);
    if sample.tokens.is_none() || before.is_some_and(|before| before.tokens == sample.tokens) {
        return;
    }
    let notes = Notes { tokens: sample.tokens, ..before.cloned().unwrap_or_default() };
    turn.emit(Event::Agent(AgentEvent::AgentNoted { session: target.id, notes }));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use protocol::Activity;

    use super::*;
    use crate::run::tests::{TestDaemon, TestProcesses};

    #[tokio::test(start_paused = true)]
    async fn a_sample_from_before_what_the_follow_up_of_a_prompt_recorded_is_not_taken() {
        for age_ms in [0, 1] {
            let test = TestDaemon::start(TestProcesses::default());
            let running = test.run("a").await;
            let (session, tag, daemon) = (running.id, running.run.tag, Arc::clone(&test.daemon));
            let take = move |turn: &mut Turn<'_>| {
                let now = turn.now();
                let (state, source) = (ActivityState::Busy, Source::Process);
                let activity = Activity { state, source, since: now, tag: Some(tag), ..Activity::default() };
                turn.emit(Event::Agent(AgentEvent::ActivityChanged { session, activity, turned: true }));
                let target = SampleTarget::plain((session, tag), Path::new("/log"));
                let sample = Sample { edits_lines: Some(true), ..Sample::default() };
                decide(turn, &daemon, (vec![(target, sample)], Timestamp(now.0 - age_ms)));
                turn.volatile.prompts.has_line_editor(tag)
            };
            assert_eq!(test.turn(take).await, age_ms == 0, "{age_ms}");
        }
    }
}
