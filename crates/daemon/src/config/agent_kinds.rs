//! The agent kinds: the built-in ones, changed and extended by the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use agents::screen::{Pattern, Patterns, USAGE_LIMIT};
use agents::{Adapter, Confirm};
use pool::Agent;
use protocol::OsBytes;

use crate::config::sections::{AgentSection, ScreenSection};
use crate::config::values::{ConfigError, check_actions, duration, invalid, nearest};

/// Context sizes in tokens, as the agents' makers state them.
const CLAUDE_CONTEXT: u64 = 200_000;
const CODEX_CONTEXT: u64 = 192_000;
const OTHER_CONTEXT: u64 = 128_000;

/// Time for which a permission hook waits for an answer: as long as agents wait for their hooks.
const APPROVE_WAIT: Duration = Duration::from_secs(600);

/// Prompt that is sent after a usage limit.
const CONTINUE_PROMPT: &str = "continue";

/// The word that stands for the conversation's id in arguments.
const ID: &str = "{conversation}";

/// The kind of sessions that run a command.
const COMMAND: &str = "command";

/// Returns every agent kind, by name.
///
/// # Errors
/// The first invalid value.
pub(super) fn agent_kinds(
    sections: &BTreeMap<String, AgentSection>,
) -> Result<BTreeMap<String, Agent>, ConfigError> {
    let mut agents = built_in();
    for (name, section) in sections {
        if name.parse::<protocol::Name>().is_err() || name.len() > 32 {
            return invalid(format!(
                "[agents.{name}]: a kind is named like a session, 32 characters at most"
            ));
        }
        // A bare command has no table of its own.
        let other = || Agent { waits_for_screen: name == COMMAND, ..Agent::default() };
        let agent = agents.remove(name).unwrap_or_else(other);
        agents.insert(name.clone(), section.apply_to(name, agent)?);
    }
    Ok(agents)
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns the built-in kinds. The pool chooses the conversation's id if the agent allows it; an agent with a
/// history in its directory resumes that.
fn built_in() -> BTreeMap<String, Agent> {
    let kind = |adapter: Adapter, context: u64, start: &[&str], resume: &[&str], clear: &str| {
        let name = adapter.as_str();
        let agent = Agent {
            command: strings(&[name]),
            context_limit: Some(context),
            start_args: strings(start),
            resume_args: strings(resume),
            clear: Some(clear.to_owned()),
            ..Agent::default()
        };
        (name.to_owned(), with_adapter(adapter, agent))
    };
    let confirm = Confirm::Prompt;
    let shell = Agent { see_tmux: true, waits_for_screen: true, confirm, ..Agent::default() };
    [
        kind(Adapter::Claude, CLAUDE_CONTEXT, &["--session-id", ID], &["--resume", ID], "/clear"),
        kind(Adapter::Codex, CODEX_CONTEXT, &[], &["resume", ID], "/new"),
        kind(Adapter::Gemini, OTHER_CONTEXT, &["--session-id", ID], &["--resume", ID], "/clear"),
        kind(Adapter::Opencode, OTHER_CONTEXT, &[], &["--session", ID], "/new"),
        kind(Adapter::Aider, OTHER_CONTEXT, &[], &["--restore-chat-history"], "/clear"),
        ("shell".to_owned(), shell),
    ]
    .into()
}

/// Completes a kind whose adapter reads hooks. Gemini CLI reads its hooks only from a path that belongs to
/// root, so for other users it confirms nothing.
fn with_adapter(adapter: Adapter, agent: Agent) -> Agent {
    let hooks = adapter != Adapter::Gemini || nix::unistd::geteuid().is_root();
    let (confirm, go_on) =
        (if hooks { Confirm::Hook } else { Confirm::None }, Some(CONTINUE_PROMPT.to_owned()));
    // A dialog about a limit (wait, pay, switch models) appears unseen and blocks all prompts. That of Gemini
    // CLI cannot be dismissed without an answer.
    let asks = matches!(adapter, Adapter::Claude | Adapter::Codex);
    let dialogs = asks.then(|| (USAGE_LIMIT.to_owned(), strings(&["Escape"]))).into_iter().collect();
    let (screen, approve_wait) = (Patterns::of(adapter), APPROVE_WAIT);
    Agent { adapter, confirm, hooks, approve_wait, go_on, dialogs, screen, ..agent }
}

impl AgentSection {
    /// Checks the variables and the actions of the reaper's rules.
    fn check_tables(&self, name: &str) -> Result<(), ConfigError> {
        check_actions(&format!("[agents.{name}] reap"), &self.reap)?;
        let env: Vec<(OsBytes, OsBytes)> =
            self.env.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into())).collect();
        pool::session::check_environment(&env)
            .map_err(|refusal| ConfigError(format!("[agents.{name}] env: {}", refusal.message)))
    }

    /// Returns the kind with the changes of this section.
    fn apply_to(&self, name: &str, agent: Agent) -> Result<Agent, ConfigError> {
        let program = if self.command.is_empty() { agent.command.first() } else { Some(&self.command) };
        let program = program.cloned();
        let args = self.args.clone().unwrap_or_default();
        if program.is_none() && !args.is_empty() {
            return invalid(format!("[agents.{name}] has args and no command"));
        }
        let agent = match self.adapter {
            Some(Adapter::None) => {
                Agent { adapter: Adapter::None, confirm: Confirm::None, hooks: false, ..agent }
            }
            Some(adapter) if adapter != agent.adapter => with_adapter(adapter, agent),
            _ => agent,
        };
        let hooks = self.hooks.unwrap_or(agent.hooks);
        // Without the pool's hooks nothing confirms a prompt, unless `confirm` says otherwise.
        let confirm = if hooks || agent.confirm != Confirm::Hook { agent.confirm } else { Confirm::None };
        self.check_tables(name)?;
        let approve_wait = match &self.approve_wait {
            Some(text) => duration(&format!("[agents.{name}] approve_wait"), text)?,
            None => agent.approve_wait,
        };
        self.check_dialogs(name, agent.adapter)?;
        let mut dialogs = agent.dialogs;
        dialogs.extend(self.dialogs.clone());
        dialogs.retain(|_, keys| !keys.is_empty());
        let go_on = self.go_on.clone().or(agent.go_on).filter(|text| !agents::prompt::is_blank(text));
        check_prompt(&format!("[agents.{name}] go_on"), agent.adapter, go_on.as_deref().unwrap_or_default())?;
        let clear = self.clear.clone().or(agent.clear).filter(|text| !agents::prompt::is_blank(text));
        check_clear(name, clear.as_deref().unwrap_or_default())?;
        check_error_patterns(name, &self.error_patterns)?;
        let limits = self.limits.parse().map_err(|e| ConfigError(format!("[agents.{name}] limits: {e}")))?;
        Ok(Agent {
            command: program.into_iter().chain(args).collect(),
            env: self.env.clone(),
            see_tmux: self.see_tmux.unwrap_or(agent.see_tmux),
            start_args: self.start_args.clone().unwrap_or(agent.start_args),
            resume_args: self.resume_args.clone().unwrap_or(agent.resume_args),
            parkable: self.parkable.unwrap_or(agent.parkable),
            context_limit: self.context_limit.or(agent.context_limit),
            limits,
            reap: self.reap.clone(),
            leftovers: self.leftovers.unwrap_or(agent.leftovers),
            adapter: agent.adapter,
            screen: self.screen.apply_to(&format!("[agents.{name}] screen"), agent.screen)?,
            confirm: self.confirm.unwrap_or(confirm),
            hooks,
            approve_wait,
            on_interrupted: self.on_interrupted.unwrap_or(agent.on_interrupted),
            on_failed_turn: self.on_failed_turn.unwrap_or(agent.on_failed_turn),
            dialogs,
            waits_for_screen: self.wait_for_screen.unwrap_or(agent.waits_for_screen),
            observations: self.observations,
            summaries: self.summaries,
            go_on,
            clear,
            error_patterns: self.error_patterns.clone(),
        })
    }

    fn check_dialogs(&self, name: &str, adapter: Adapter) -> Result<(), ConfigError> {
        self.dialogs.iter().try_for_each(|(dialog, keys)| {
            let place = format!("[agents.{name}] dialogs {dialog}");
            check_dialog(&place, dialog, adapter)?;
            tmux::keys::parse(keys).map(drop).map_err(|e| ConfigError(format!("{place}: {e}")))
        })
    }
}

impl ScreenSection {
    /// Returns the patterns with those of this section in their place; an empty one removes a pattern.
    fn apply_to(&self, place: &str, patterns: Patterns) -> Result<Patterns, ConfigError> {
        let one = |key: &str, written: &Option<String>, known: Option<Pattern>| match written.as_deref() {
            None => Ok(known),
            Some("") => Ok(None),
            Some(text) => match text.parse() {
                Ok(pattern) => Ok(Some(pattern)),
                Err(why) => invalid(format!("{place} {key}: {why}")),
            },
        };
        let composer = one("composer", &self.composer, patterns.composer)?;
        if composer.as_ref().is_some_and(|pattern| !pattern.has_group()) {
            return invalid(format!(
                "{place} composer: a group has to match what stands in it, like '^> (.*)'"
            ));
        }
        Ok(Patterns {
            composer,
            works: one("works", &self.works, patterns.works)?,
            dialog: one("dialog", &self.dialog, patterns.dialog)?,
            background: one("background", &self.background, patterns.background)?,
        })
    }
}

/// Refuses a text that an agent would not take as a prompt.
fn check_prompt(place: &str, adapter: Adapter, text: &str) -> Result<(), ConfigError> {
    if agents::prompt::is_command(adapter, text) || text != pool::queue::strip_controls(text) {
        return invalid(format!("{place} is typed as a prompt: no command, and no control characters"));
    }
    Ok(())
}

/// Refuses a command that would be changed before it is typed.
fn check_clear(name: &str, text: &str) -> Result<(), ConfigError> {
    if text.trim() != text || text.contains(char::is_control) {
        return invalid(format!("[agents.{name}] clear is one line, without blanks around it"));
    }
    Ok(())
}

fn check_error_patterns(name: &str, patterns: &[String]) -> Result<(), ConfigError> {
    patterns.iter().try_for_each(|pattern| match pattern.parse::<Pattern>() {
        Ok(_) => Ok(()),
        Err(why) => invalid(format!("[agents.{name}] error_patterns {pattern:?}: {why}")),
    })
}

/// Refuses answers to dialogs other than those that an agent opens by itself, at its start or about its usage
/// limit.
fn check_dialog(place: &str, dialog: &str, adapter: Adapter) -> Result<(), ConfigError> {
    let known = || agents::screen::answerable_dialogs(adapter);
    if known().any(|name| name == dialog) {
        return Ok(());
    }
    match nearest(dialog, known()) {
        Some(near) => {
            invalid(format!("{place}: {adapter} does not ask this by itself; did you mean {near}?"))
        }
        None => invalid(format!("{place}: the adapter {adapter} has no dialogs to answer")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use agents::Confirm;

    use crate::config::Config;

    fn agents(text: &str) -> std::collections::BTreeMap<String, pool::Agent> {
        Config::parse(text).unwrap().settings(Path::new("/s"), 0).unwrap().agents
    }

    #[test]
    fn an_agent_is_a_table() {
        let agents = agents("[agents.goose]\ncommand = 'goose'\nargs = ['--yes']\nlimits = 'mem=1G'");
        assert_eq!(agents["goose"].command, ["goose", "--yes"]);
        assert_eq!(agents["goose"].limits.memory, Some(1 << 30));
        assert!(agents["shell"].see_tmux && !agents["claude"].see_tmux);
    }

    #[test]
    fn every_agent_has_a_context_and_a_shell_has_none() {
        let kinds = agents("[agents.mine]\ncommand = 'mine'\ncontext_limit = 9");
        let contexts = [
            ("claude", Some(200_000)),
            ("codex", Some(192_000)),
            ("gemini", Some(128_000)),
            ("opencode", Some(128_000)),
            ("aider", Some(128_000)),
            ("shell", None),
            ("mine", Some(9)),
        ];
        for (kind, context) in contexts {
            assert_eq!(kinds[kind].context_limit, context, "{kind}");
        }
        assert_eq!(kinds.len(), contexts.len());
    }

    #[test]
    fn whatever_nothing_answers_is_a_question() {
        let kinds = agents("[agents.mine]\ncommand = 'mine'\nscreen = { composer = '^> (.*)' }");
        for (kind, is_described, leaves_limit_dialog) in [
            ("mine", true, true),
            ("aider", true, true),
            ("claude", false, false),
            ("codex", false, false),
            ("gemini", false, true),
        ] {
            let seen = pool::agent::AgentObservation::of(&kinds[kind]);
            assert_eq!(
                (seen.is_described, seen.leaves_limit_dialog),
                (is_described, leaves_limit_dialog),
                "{kind}"
            );
            assert_eq!(seen.asks_on_screen, kind == "aider");
        }
    }

    #[test]
    fn error_patterns_are_checked_and_change_nothing_else_of_a_bare_command() {
        let kinds = agents("[agents.command]\nerror_patterns = ['^E:', 'FAILED']");
        assert_eq!(kinds["command"].error_patterns, ["^E:", "FAILED"]);
        assert!(kinds["command"].waits_for_screen && kinds["command"].command.is_empty());
        let error = Config::parse("[agents.claude]\nerror_patterns = ['(']").unwrap_err().0;
        assert!(error.starts_with("[agents.claude] error_patterns \"(\": "), "{error}");
        let error = Config::parse("[agents.claude]\nclear = \"/clear\\u0007\"").unwrap_err().0;
        assert!(error.contains("clear is one line"), "{error}");
    }

    #[test]
    fn a_kind_with_an_adapter_has_all_that_the_adapter_decides() {
        for name in ["claude", "codex", "gemini", "opencode", "aider"] {
            let kinds = agents(&format!("[agents.mine]\ncommand = 'mine'\nadapter = '{name}'"));
            let (mine, own) = (&kinds["mine"], &kinds[name]);
            assert_eq!(
                (mine.confirm, mine.hooks, &mine.go_on),
                (own.confirm, own.hooks, &own.go_on),
                "{name}"
            );
            assert_eq!((&mine.screen, &mine.dialogs), (&own.screen, &own.dialogs), "{name}");
            assert_eq!(mine.shows_composer(), own.shows_composer(), "{name}");
        }
    }

    #[test]
    fn without_hooks_nothing_confirms() {
        let agents = agents(
            "[agents.claude]\nhooks = false\n[agents.codex]\nhooks = false\nconfirm = 'hook'\n\
             [agents.mine]\ncommand = 'mine'\nadapter = 'claude'",
        );
        assert_eq!(agents["claude"].confirm, Confirm::None);
        assert_eq!(agents["codex"].confirm, Confirm::Hook);
        assert_eq!((agents["mine"].confirm, agents["mine"].hooks), (Confirm::Hook, true));
    }

    #[test]
    fn only_dialogs_that_an_agent_opens_by_itself_are_answered() {
        let refusal = |text: &str| match Config::parse(text) {
            Ok(config) => config.settings(Path::new("/s"), 0).map(|_| ()).unwrap_err().0,
            Err(error) => error.0,
        };
        agents("[agents.claude]\ndialogs = { trust = ['Enter'], resume = ['Escape'] }");
        agents("[agents.x]\nadapter = 'codex'\ncommand = 'x'\ndialogs = { hooks = ['2', 'Enter'] }");
        let error = refusal("[agents.claude]\ndialogs = { trsut = ['Enter'] }");
        assert_eq!(
            error,
            "[agents.claude] dialogs trsut: claude does not ask this by itself; did you mean trust?"
        );
        assert!(refusal("[agents.claude]\ndialogs = { permission = ['Enter'] }").contains("did you mean"));
        assert!(
            refusal("[agents.codex]\ndialogs = { bypass = ['Enter'] }")
                .contains("codex does not ask this by itself")
        );
        assert!(
            refusal("[agents.shell]\ndialogs = { trust = ['Enter'] }").contains("has no dialogs to answer")
        );
        assert!(refusal("[agents.claude]\ndialogs = { trust = ['Etner'] }").contains("dialogs trust: "));
        for go_on in ["/continue", "!date", "go\\u001bon"] {
            assert!(
                refusal(&format!("[agents.claude]\ngo_on = \"{go_on}\""))
                    .contains("go_on is typed as a prompt")
            );
        }
    }

    #[test]
    fn the_prompts_of_gemini_are_confirmed_where_it_reads_the_hooks() {
        let agents =
            agents("[agents.told]\nadapter = 'gemini'\ncommand = 'x'\nhooks = true\nconfirm = 'hook'");
        let root = nix::unistd::geteuid().is_root();
        assert_eq!((agents["gemini"].confirm == Confirm::Hook, agents["gemini"].hooks), (root, root));
        assert_eq!((agents["told"].confirm, agents["told"].hooks), (Confirm::Hook, true));
    }

    #[test]
    fn a_table_changes_only_what_it_says_of_a_built_in_kind() {
        let agents = agents("[agents.claude]\nargs = ['--model', 'x']\nenv = { A = '1' }");
        assert_eq!(agents["claude"].command, ["claude", "--model", "x"]);
        assert_eq!(agents["claude"].resume_args, ["--resume", "{conversation}"]);
        assert!(agents["shell"].command.is_empty());
        assert_eq!((agents["claude"].confirm, agents["claude"].hooks), (Confirm::Hook, true));
        assert!(Config::parse("[agents.x]\nlimits = 'mem'").unwrap_err().0.contains("is not like mem=2G"));
    }
}
