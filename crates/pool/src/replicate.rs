//! The state as events: for a late subscriber, a restart, a test. Messages are not included: they are read
//! from disk.

use protocol::{Event, Stamped, Timestamp};

use crate::pool::Pool;

impl Pool {
    /// Returns events that, applied to an empty pool, give this state except for its messages.
    pub fn replicate(&self) -> Vec<Stamped> {
        let retired = self.retired.iter();
        let retired = retired.map(|(tag, session)| Event::TagRetired { tag: *tag, session: *session });
        let operations = self.operations().map(|(op, operation)| operation.event(op));
        let rest = retired.chain(operations).map(|event| self.stamp(event));
        self.replicate_sessions().into_iter().chain(rest).collect()
    }

    fn stamp(&self, event: Event) -> Stamped {
        Stamped { seq: self.seq, at: Timestamp(0), event }
    }

    /// As [`Pool::replicate`], without ended incarnations and operations.
    pub fn replicate_sessions(&self) -> Vec<Stamped> {
        let mut events = vec![
            Event::PoolStarted { epoch: self.epoch, build: self.build.clone(), boot: self.boot.clone() },
            Event::NextSession { next: self.next_session },
            Event::ClockRead(self.clock.clone()),
            Event::TmuxServerChanged { server: self.server },
        ];
        events.extend(self.sessions().map(|s| Event::SessionCreated(Box::new(s.clone()))));
        events.extend(self.breakers().map(|(session, kind, breaker)| Event::BreakerChanged {
            session,
            kind: kind.to_owned(),
            breaker: breaker.clone(),
            turned: breaker.is_open(),
        }));
        events.extend(self.agents.replicate());
        events.into_iter().map(|event| self.stamp(event)).collect()
    }
}
