//! Events about agents.

use protocol::thought::{RestState, StreamPosition, Thought, ThoughtSource, ThoughtState};
use protocol::{
    Activity, ActivityState, AgentEvent, Ask, AskKind, Event, Notes, OsBytes, SessionId, Source, Tag,
    Timestamp,
};

use super::History;

impl History {
    /// Returns an event about the agent of any session, sometimes of a deleted one.
    pub(super) fn agent(&mut self, kind: u64) -> Option<Event> {
        let ids: Vec<_> = self.now.pool.sessions().map(|s| s.id).collect();
        let session = self.rng.pick(&ids)?;
        let n = self.rng.below(1 << 30);
        let session = if n.is_multiple_of(8) { SessionId(session.0 + 1000) } else { session };
        Some(Event::Agent(match kind {
            44 => {
                let turned = self.rng.below(2) == 0;
                AgentEvent::ActivityChanged { session, activity: self.activity(n), turned }
            }
            45 => AgentEvent::AgentNoted { session, notes: self.notes(n) },
            46 => AgentEvent::ThoughtPublished { session, thought: self.thought(n) },
            47 if n.is_multiple_of(3) => {
                AgentEvent::ConversationLost { session, conversation: format!("conversation-{n}") }
            }
            _ => {
                let by = "approve".to_owned();
                AgentEvent::AskAnswered { session, ask: n, allowed: n.is_multiple_of(2), by }
            }
        }))
    }

    pub(crate) fn activity(&mut self, n: u64) -> Activity {
        let yes = n.is_multiple_of(2);
        let kinds = [AskKind::Permission, AskKind::Question, AskKind::Dialog, AskKind::Bell];
        let ask = Ask {
            id: n,
            kind: kinds[self.rng.index(4)],
            text: format!("rm -rf {n}"),
            tool: yes.then(|| "Bash".to_owned()),
            answerable: yes,
        };
        Activity {
            state: ActivityState::ALL[self.rng.index(5)],
            source: [Source::Hook, Source::Screen, Source::Queue][self.rng.index(3)],
            since: Timestamp(self.clock),
            ask: n.is_multiple_of(3).then_some(ask),
            detail: yes.then(|| format!("compiles {n}")),
            limited_until: n.is_multiple_of(5).then(|| Timestamp(self.clock + n)),
            tag: Some(Tag([n as u8; 16])),
        }
    }

    pub(crate) fn notes(&mut self, n: u64) -> Notes {
        let yes = n.is_multiple_of(2);
        Notes {
            hooked: yes.then_some(Tag([n as u8; 16])),
            heard_at: Some(Timestamp(self.clock)),
            // A path need not be UTF-8.
            transcript: yes.then(|| OsBytes(vec![b'/', n as u8, 0xff])),
            tokens: n.is_multiple_of(3).then_some(n),
            skill: n.is_multiple_of(5).then(|| "review".to_owned()),
            resumes: n as u32 % 3,
        }
    }

    pub(crate) fn thought(&mut self, n: u64) -> Thought {
        let yes = n.is_multiple_of(2);
        Thought {
            text: yes.then(|| format!("next: step {n}")),
            state: ThoughtState::ALL[self.rng.index(3)],
            source: ThoughtSource::ALL[self.rng.index(3)],
            rest_state: yes.then(|| RestState::ALL[self.rng.index(4)]),
            commit_candidate: yes,
            objective_changed_at: yes.then_some(Timestamp(self.clock)),
            objective: yes.then(|| format!("{n:x}")),
            token_count: n,
            context_limit: n * 2,
            updated_at: Timestamp(self.clock),
            place: (!yes).then(|| StreamPosition { stream: format!("run-{n}"), seq: n }),
            other_streams: Vec::new(),
        }
    }
}
