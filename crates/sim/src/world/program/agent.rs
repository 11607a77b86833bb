//! An agent at work: it begins or resumes a conversation, works on what is typed, and reports what it does.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::ProcId;
use protocol::hook::{HookEvent, Notice, Start, ToolUse};
use protocol::job::Job;
use tokio::time::timeout;
use world::clock::Clock;
use world::tasks::Tasks;

use super::Incarnation;
use super::hooks::ask;
use crate::actors::approver;
use crate::actors::errands::{CLEAR, GO_ON};
use crate::world::tmux::Shows;

/// The words of an agent that does not find the conversation to resume.
const NO_CONVERSATION: &str = "No conversation found with this session ID\n";

/// Output by which an agent asks for bracketed pastes.
const PASTES: &str = "\u{1b}[?2004h";

/// The words of an agent whose service is out of order.
const OUTAGE: &str = "API Error: 529 overloaded";

/// Exit code of an agent that does not find its conversation.
const NOT_FOUND: i32 = 1;

impl Incarnation {
    /// Works on prompts. Returns its exit code if it ends by itself.
    pub(super) async fn work_on_prompts(&mut self, job: &Job, agent: ProcId) -> Option<i32> {
        let is = |name| job.argv.first().is_some_and(|program| program.as_path().ends_with(name));
        let (hooks, is_quiet) = (is("sim-agent"), is("sim-quiet"));
        let start = Duration::from_millis(self.rng.between(10, 1500));
        self.pause(start, agent).await?;
        if hooks {
            self.land.judge.reports(job.session);
            let Some(source) = self.begin_conversation(job) else {
                self.output(NO_CONVERSATION);
                self.hook(job, HookEvent::Ended { reason: "other".to_owned() }).await;
                return Some(NOT_FOUND);
            };
            self.output(PASTES);
            self.show(Shows::Rest);
            self.hook(job, HookEvent::Started { source }).await;
        }
        if is_quiet {
            let Some(_) = self.begin_conversation(job) else {
                self.output(NO_CONVERSATION);
                return Some(NOT_FOUND);
            };
            self.land.judge.converses(self.pane.tag, self.conversation.as_deref().unwrap_or_default());
        }
        let mut read = 0;
        loop {
            let typed = self.land.tmux.typed(self.pane.pane);
            read = read.max(self.land.tmux.emptied(self.pane.pane));
            let new = typed.get(read..).unwrap_or_default();
            if let Some(length) = new.iter().position(|byte| *byte == b'\r') {
                let text = String::from_utf8_lossy(&new[..length]).replace("<Escape>", "");
                read += length + 1;
                self.output(&text);
                if hooks {
                    self.prompt(job, agent, text.clone()).await?;
                    self.report_idle(job, agent, read).await?;
                }
                if let Some(conversation) = self.conversation.as_deref().filter(|_| is_quiet) {
                    drop(self.land.conversations.begin_turn(conversation));
                    self.land.judge.was_told(conversation, text.trim_start());
                }
                if self.rng.per_mille(self.land.climate.crashes) && !self.land.heals() {
                    return Some(i32::try_from(self.rng.below(3)).unwrap_or(0));
                }
                continue;
            }
            let machine = self.land.machine.clone();
            if !machine.lives(agent) || !machine.lives(self.init) || machine.is_hung_up(self.init) {
                return None;
            }
            tokio::select! {
                biased;
                () = machine.changed() => {}
                () = self.land.tmux.input() => {}
            }
        }
    }

    /// Begins a conversation, or resumes that of its arguments. `None` if there is none.
    fn begin_conversation(&mut self, job: &Job) -> Option<Start> {
        let argument = |option: &[u8]| {
            let mut from_option = job.argv.iter().skip_while(|word| word.0 != option);
            from_option.nth(1).map(|word| String::from_utf8_lossy(&word.0).into_owned())
        };
        let Some(resumed) = argument(b"--resume") else {
            self.conversation = argument(b"--session-id");
            return Some(Start::New);
        };
        let is_lost = self.land.suffers(&mut self.rng, self.land.climate.conversation_losses);
        if is_lost && self.land.conversations.lose(&resumed) {
            self.land.judge.count("fault:conversation");
        }
        self.land.conversations.has(&resumed).then_some(())?;
        self.conversation = Some(resumed);
        Some(Start::Resumed)
    }

    /// Works on a prompt, and shows that.
    async fn prompt(&mut self, job: &Job, agent: ProcId, typed: String) -> Option<()> {
        self.show(Shows::Work);
        self.turn(job, agent, typed).await?;
        self.show(Shows::Rest);
        Some(())
    }

    /// Reports a prompt, works on it, and reports the end of the turn.
    async fn turn(&mut self, job: &Job, agent: ProcId, typed: String) -> Option<()> {
        let begin = Duration::from_millis(self.rng.between(1, 200));
        self.pause(begin, agent).await?;
        if typed == CLEAR {
            self.conversation = self.conversation.take().map(|_| format!("cleared-{}", self.rng.next()));
            self.hook(job, HookEvent::Started { source: Start::Cleared }).await;
            return Some(());
        }
        let conversation = self.conversation.clone().unwrap_or_default();
        self.land.judge.taken(&typed, &conversation);
        let begun = HookEvent::Prompt { text: typed.clone(), cut: false, turn: None };
        let is_told = self.hook(job, begun).await;
        let cut_short = self.land.conversations.begin_turn(&conversation);
        let texts = if typed == GO_ON { cut_short } else { BTreeSet::from([typed]) };
        self.land.judge.works_on(self.pane.tag, &texts, is_told);
        if self.land.suffers(&mut self.rng, self.land.climate.permissions) {
            self.permission(job, agent).await?;
        }
        self.report_work(job, agent).await?;
        let work = Duration::from_millis(self.rng.between(5, 20_000));
        self.pause(work, agent).await?;
        self.output("it works\n");
        if self.land.suffers(&mut self.rng, self.land.climate.usage_limits) {
            let until = self.land.clock.now().after(Duration::from_secs(self.rng.between(5, 120)));
            self.land.judge.rests(self.pane.tag);
            self.land.judge.limited(job.session);
            let error = "limit".to_owned();
            self.hook(job, HookEvent::TurnFailed { error, limited: true, until: Some(until) }).await;
            return Some(());
        }
        if self.land.suffers(&mut self.rng, self.land.climate.outages) {
            for text in texts {
                self.land.judge.cut_short(self.pane.tag, &text, &conversation);
                self.land.conversations.cut_short(&conversation, text);
            }
            self.land.judge.rests(self.pane.tag);
            let error = OUTAGE.to_owned();
            self.hook(job, HookEvent::TurnFailed { error, limited: false, until: None }).await;
            return Some(());
        }
        let end = match self.rng.below(20) {
            0 => HookEvent::Interrupted,
            1 => HookEvent::TurnFailed { error: "an error".to_owned(), limited: false, until: None },
            _ => HookEvent::TurnOver { turn: None, said: Some("done".to_owned()) },
        };
        texts.iter().for_each(|text| self.land.judge.finished(self.pane.tag, text, &conversation));
        self.land.conversations.end_turn(&conversation, &texts);
        self.land.judge.rests(self.pane.tag);
        let is_success = matches!(end, HookEvent::TurnOver { .. });
        self.hook(job, end).await;
        // The report of an agent that has died meanwhile may come too late.
        if is_success && self.land.machine.lives(agent) {
            self.land.judge.succeeded(self.pane.tag, &texts, self.land.clock.now());
        }
        Some(())
    }

    /// Draws its screen, which is output.
    fn show(&self, shows: Shows) {
        self.land.tmux.show(self.pane, shows);
        self.land.judge.shows(self.pane.tag, matches!(shows, Shows::Dialog));
        self.output("\r");
    }

    /// Reports some of what agents report while they work.
    async fn report_work(&mut self, job: &Job, agent: ProcId) -> Option<()> {
        let tool = "AskUserQuestion".to_owned();
        let used = ToolUse {
            id: None,
            tool: tool.clone(),
            input: "{}".to_owned(),
            response: "{}".to_owned(),
            failed: false,
            cwd: None,
        };
        let used = HookEvent::ToolUsed(Box::new(used));
        let working = HookEvent::Working { what: Some("it reads".to_owned()), skill: None };
        let (signal, asks) = match self.rng.below(12) {
            0 => (working, false),
            1 => (used.clone(), false),
            2 => (HookEvent::Started { source: Start::Compacted }, false),
            3 => (HookEvent::Asking { tool, plan: None }, true),
            4 => (HookEvent::Notified { kind: Notice::Question, text: "it asks".to_owned() }, true),
            _ => return Some(()),
        };
        if !asks {
            self.hook(job, signal).await;
            return Some(());
        }
        if self.land.heals() {
            return Some(());
        }
        self.show(Shows::Dialog);
        self.hook(job, signal).await;
        let until_answer = Duration::from_millis(self.rng.between(100, 20_000));
        self.pause(until_answer, agent).await?;
        self.show(Shows::Work);
        self.hook(job, used).await;
        Some(())
    }

    /// Reports, perhaps, that nothing was typed for a while after what it has `read`.
    async fn report_idle(&mut self, job: &Job, agent: ProcId, read: usize) -> Option<()> {
        if !self.rng.per_mille(100) {
            return Some(());
        }
        let wait = Duration::from_millis(self.rng.between(100, 5000));
        self.pause(wait, agent).await?;
        if self.land.tmux.typed(self.pane.pane).len() == read {
            self.hook(job, HookEvent::Notified { kind: Notice::Idle, text: "it waits".to_owned() }).await;
        }
        Some(())
    }

    /// Asks for a permission, and waits for the answer; without one, somebody answers at the terminal.
    async fn permission(&mut self, job: &Job, agent: ProcId) -> Option<()> {
        let wait_ms = self.rng.between(0, 20_000);
        let signal = HookEvent::Permission { tool: "Bash".to_owned(), text: "ls".to_owned(), wait_ms };
        self.show(Shows::Dialog);
        let hook = self.report(job, signal);
        let mut rng = self.land.rng(&format!("approval {}", hook.id));
        if self.land.suffers(&mut rng, self.land.climate.approvals) {
            let decision = approver::run(self.land.clone(), (hook.session, hook.id), rng);
            self.land.life.spawn("approver", Box::pin(decision));
        }
        let limit = Duration::from_millis(wait_ms + 5000);
        let decided = timeout(limit, ask(&self.land, hook, self.init)).await;
        self.land.judge.count(format!("permission:{}", matches!(decided, Ok(Some(true)))));
        let pause = Duration::from_millis(self.rng.between(100, 30_000));
        self.pause(pause, agent).await?;
        self.show(Shows::Work);
        self.hook(job, HookEvent::Working { what: None, skill: None }).await;
        Some(())
    }
}
