//! The reports of an agent: to the daemon, or else into the spool.

use std::fs;
use std::path::Path;
use std::time::Duration;

use protocol::hook::{AwakeTime, Hook, HookEvent, SPOOL_DIR, SPOOL_VERSION, SpooledHook};
use protocol::job::Job;
use protocol::{ProcId, Request, Response, Role, Timestamp, millis};
use tokio::time::{sleep, timeout};
use world::clock::Clock;
use world::tasks::Tasks;

use super::{Incarnation, write};
use crate::client::Client;
use crate::land::Land;

/// Time limit of a hook.
const HOOK_LIMIT: Duration = Duration::from_secs(5);

impl Incarnation {
    /// Returns the report of an event.
    pub(super) fn report(&mut self, job: &Job, signal: HookEvent) -> Hook {
        Hook {
            session: job.session,
            tag: job.tag,
            id: self.rng.next(),
            at: self.land.clock.now(),
            awake: Some(AwakeTime { boot: self.land.machine.boot_id(), ms: millis(self.land.clock.awake()) }),
            agent: if self.land.climate.has_adapter { "claude" } else { "sim" }.to_owned(),
            conversation: self.conversation.clone(),
            transcript: None,
            signal,
        }
    }

    /// Reports an event, as `poolctl hook` does: to the daemon, or else into the spool. True if the daemon has it.
    pub(super) async fn hook(&mut self, job: &Job, signal: HookEvent) -> bool {
        let hook = self.report(job, signal);
        let sent = timeout(HOOK_LIMIT, send(&self.land, hook.clone(), self.init)).await;
        let is_sent = matches!(sent, Ok(Some(())));
        self.land.trace.tell(|| {
            let how = if is_sent { "reports" } else { "spools" };
            format!("{} {how} {:?}", self.pane.tag, hook.signal)
        });
        if !is_sent {
            self.land.judge.count("hook:spooled");
            self.spool(job, &hook);
        }
        if self.rng.per_mille(self.land.climate.repeated_hooks) {
            self.repeat(hook);
        }
        is_sent
    }

    /// Sends a report once more, at once or later.
    fn repeat(&mut self, hook: Hook) {
        self.land.judge.count("hook:repeated");
        let later = if self.rng.per_mille(500) { self.rng.below(20_000) } else { 0 };
        let (land, tag, init) = (self.land.clone(), self.pane.tag, self.init);
        let again = async move {
            sleep(Duration::from_millis(later)).await;
            land.trace.tell(|| format!("{tag} repeats {:?}", hook.signal));
            drop(timeout(HOOK_LIMIT, send(&land, hook, init)).await);
        };
        self.land.life.spawn("repeated hook", Box::pin(again));
    }

    fn spool(&mut self, job: &Job, hook: &Hook) {
        let dir = self.land.paths.session(job.session).join(SPOOL_DIR);
        drop(fs::create_dir_all(&dir));
        let mut hook = hook.clone();
        if let Some(newest) = newest_in(&dir) {
            hook.at = hook.at.max(newest.after(Duration::from_millis(1)));
        }
        let name = format!("{:020}-{:016x}.json", hook.at.0, hook.id);
        let spooled = SpooledHook { version: SPOOL_VERSION, hook };
        let hidden = dir.join(format!(".{name}"));
        write(&hidden, &spooled);
        drop(fs::rename(hidden, dir.join(name)));
    }
}

/// Returns the time of the newest report in a spool.
fn newest_in(dir: &Path) -> Option<Timestamp> {
    let names = fs::read_dir(dir).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let times = names.filter_map(|name| name.trim_start_matches('.').split('-').next()?.parse().ok());
    times.max().map(Timestamp)
}

async fn send(land: &Land, hook: Hook, process: ProcId) -> Option<()> {
    let mut client = Client::connect(&land.net, Role::Client, Some(process)).await?;
    client.call(None, Request::Hook(Box::new(hook))).await?.ok().map(drop)
}

/// Reports a permission request. True if it was decided, and the decision taken.
pub(super) async fn ask(land: &Land, hook: Hook, process: ProcId) -> Option<bool> {
    let (session, ask) = (hook.session, hook.id);
    let mut client = Client::connect(&land.net, Role::Client, Some(process)).await?;
    let Ok(Response::Decided(decision)) = client.call(None, Request::Hook(Box::new(hook))).await? else {
        return Some(false);
    };
    land.judge.decided(ask, &decision);
    client.call(None, Request::DecisionTaken { session, ask }).await?.ok()?;
    Some(true)
}
