//! Redaction of secrets in what is published: command lines, labels, sentences.

use protocol::event::LaneEvent;
use protocol::reap::Outcome;
use protocol::{
    Activity, AgentEvent, Ask, AskKind, Event, MessageReason, Session, Standstill, StuckReason, redact,
    variants,
};

/// Redacts an event. One arm for each event, so that a new one cannot be forgotten.
pub fn event(event: &mut Event) {
    match event {
        Event::SessionCreated(session) => **session = self::session(session),
        Event::SessionLabelled { labels, .. } => *labels = redact::labels(labels),
        Event::LockGranted { lock, .. } => text(&mut lock.purpose),
        Event::MessageQueued(message) => message.status.reason.iter_mut().for_each(reason),
        Event::MessageChanged { status, .. } => status.reason.iter_mut().for_each(reason),
        Event::Lane(LaneEvent::Stuck { standstill, .. }) => self::standstill(standstill),
        Event::ReapFinished { outcome, .. } => self::outcome(outcome),
        Event::Agent(of_agent) => agent(of_agent),
        Event::SessionFailed { detail: said, .. }
        | Event::StaleFound { evidence: said, .. }
        | Event::GeneratorEnded { reason: said, .. }
        | Event::WatcherLost { reason: said }
        | Event::LockReleased { reason: said, .. }
        | Event::LockRevoked { reason: said, .. } => text(said),
        // The reply is for the one client that requested it.
        Event::OperationDone { reply, .. } => reply.clear(),
        // Numbers, names and fixed words.
        variants!(Event:
            PoolStarted NextSession ClockRead TagForgotten SessionStarting SessionLive SessionRenamed
            SessionDraining SessionStopped SessionLost SessionDeleted SessionObserved TagRetired
            MessageForgotten ReapStarted WatcherConnected TmuxServerChanged OperationBegun OperationForgotten
            SessionPlaced ForeignSeen ForeignGone GeneratorRegistered BreakerChanged SessionParked
            SessionPolicyChanged BudgetChanged ConversationChanged SessionAccounted WorkerChanged
            LimitExceeded LogResumed DrainDeadlineSet GraceAsked KeysPressed LockUsedForSend
        )
        | Event::Lane(LaneEvent::Unstuck { .. }) => {}
    }
}

fn agent(event: &mut AgentEvent) {
    match event {
        AgentEvent::ActivityChanged { activity, .. } => {
            self::activity(activity);
            let permission = |ask: &&mut Ask| ask.kind == AskKind::Permission;
            activity.ask.iter_mut().filter(permission).for_each(|ask| text(&mut ask.text));
        }
        AgentEvent::ThoughtPublished { thought, .. } => {
            thought.text.iter_mut().chain(&mut thought.objective).for_each(text);
        }
        AgentEvent::AskAnswered { by, .. } => text(by),
        AgentEvent::AgentNoted { .. } | AgentEvent::ConversationLost { .. } => {}
    }
}

/// Redacts an activity as it is shown to a person who answers. The open question stays whole: a redacted part of
/// a command would be allowed unseen.
pub fn activity(activity: &mut Activity) {
    activity.detail.iter_mut().for_each(text);
}

fn outcome(outcome: &mut Outcome) {
    match outcome {
        Outcome::Gone { .. } => {}
        Outcome::Survivors { left } | Outcome::Spared { left, .. } => left.iter_mut().for_each(text),
        Outcome::Untouched { why } | Outcome::Refused { why } => text(why),
    }
}

fn reason(reason: &mut MessageReason) {
    if let MessageReason::Text(said) | MessageReason::Altered(said) = reason {
        text(said);
    }
}

/// Redacts how a lane stands still: a prompt may wait because of what its composer shows.
pub fn standstill(standstill: &mut Standstill) {
    if let StuckReason::PromptWaits(why) = &mut standstill.reason {
        text(why);
    }
}

fn text(said: &mut String) {
    *said = redact::text(said);
}

/// The record of a session without its environment, and without keys and passwords in its command line and
/// labels.
pub fn session(session: &Session) -> Session {
    let mut record = session.clone();
    let spec = &mut record.spec;
    spec.env.clear();
    for words in [&mut spec.command, &mut spec.start_args, &mut spec.resume_args] {
        *words = redact::command(words);
    }
    if let Some(worker) = &mut record.worker {
        worker.command = redact::command(&worker.command);
    }
    record.labels = redact::labels(&record.labels);
    record.lock.iter_mut().for_each(|lock| text(&mut lock.purpose));
    record
}

#[cfg(test)]
mod tests {
    use protocol::reap::{Action, Rule};
    use protocol::{SessionId, Timestamp};

    use super::*;

    const SECRET: &str = "sk-ant-REDACTME0123456789abcdef";

    fn shown(mut told: Event) -> String {
        event(&mut told);
        format!("{told:?}")
    }

    #[test]
    fn who_answers_a_request_is_shown_all_of_it() {
        let (command, kind) = ("API_TOKEN=$(sh<evil.sh) npm test", AskKind::Permission);
        let ask = Ask { id: 1, kind, text: command.into(), tool: None, answerable: true };
        let mut shown = Activity { ask: Some(ask), detail: Some(command.into()), ..Activity::default() };
        activity(&mut shown);
        assert_eq!(shown.ask.unwrap().text, command);
        assert!(!shown.detail.unwrap().contains("evil"), "nobody answers what it does");
    }

    #[test]
    fn no_text_of_an_event_shows_a_key() {
        let session = SessionId(1);
        let said = || format!("curl -H 'Authorization: Bearer {SECRET}' x");
        let ask = Ask { id: 1, kind: AskKind::Permission, text: said(), tool: None, answerable: true };
        let activity = Activity { ask: Some(ask), detail: Some(said()), ..Activity::default() };
        let events = [
            Event::SessionLabelled { session, labels: [("k".to_owned(), SECRET.to_owned())].into() },
            Event::GeneratorEnded { id: protocol::GeneratorId(1), session: Some(session), reason: said() },
            Event::WatcherLost { reason: said() },
            Event::Agent(AgentEvent::ActivityChanged { session, activity, turned: true }),
            Event::Agent(AgentEvent::AskAnswered { session, ask: 1, allowed: true, by: said() }),
            Event::OperationDone {
                op: protocol::OpId::Named("x".to_owned()),
                digest: 1,
                reply: said().into_bytes(),
                at: Timestamp(1),
            },
            Event::StaleFound { session, rule: Rule::Hung, action: Action::Kill, evidence: said() },
        ];
        for event in events {
            let shown = shown(event);
            assert!(!shown.contains("REDACTME"), "{shown}");
        }
    }
}
