//! The agent kinds: those that are built in, and what the configuration says of them or adds.

use std::collections::BTreeMap;

use pool::Agent;
use protocol::life::Leftovers;

use super::life::allowed;
use super::sections::AgentSection;
use super::{ConfigError, wrong};

/// Tokens that agents keep in mind, as their makers tell.
const CLAUDE_CONTEXT: u64 = 200_000;
const CODEX_CONTEXT: u64 = 192_000;
const OTHER_CONTEXT: u64 = 128_000;

/// Every kind, by name.
///
/// # Errors
/// What is wrong with one.
pub(super) fn agents(
    sections: &BTreeMap<String, AgentSection>,
) -> Result<BTreeMap<String, Agent>, ConfigError> {
    let mut agents = built_in();
    for (name, section) in sections {
        if name.parse::<protocol::Name>().is_err() || name.len() > 32 {
            return wrong(format!("[agents.{name}]: a kind is named like a session, 32 characters at most"));
        }
        let agent = agents.remove(name).unwrap_or_default();
        agents.insert(name.clone(), section.over(name, agent)?);
    }
    Ok(agents)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The pool chooses the conversation where the agent lets it; one that has a history in its directory
/// takes that up.
fn built_in() -> BTreeMap<String, Agent> {
    let agent = |command: &str, context: u64| Agent {
        command: words(&[command]),
        context_limit: Some(context),
        ..Agent::default()
    };
    let claude = Agent {
        start_args: words(&["--session-id", "{conversation}"]),
        resume_args: words(&["--resume", "{conversation}"]),
        ..agent("claude", CLAUDE_CONTEXT)
    };
    let aider = Agent { resume_args: words(&["--restore-chat-history"]), ..agent("aider", OTHER_CONTEXT) };
    let shell = Agent { see_tmux: true, ..Agent::default() };
    let kinds = [
        ("claude", claude),
        ("codex", agent("codex", CODEX_CONTEXT)),
        ("gemini", agent("gemini", OTHER_CONTEXT)),
        ("aider", aider),
        ("shell", shell),
    ];
    kinds.map(|(name, agent)| (name.to_owned(), agent)).into()
}

impl AgentSection {
    /// With every key there is.
    pub(super) fn full() -> Self {
        Self {
            args: Some(Vec::new()),
            see_tmux: Some(false),
            start_args: Some(Vec::new()),
            resume_args: Some(Vec::new()),
            parkable: Some(false),
            context_limit: Some(0),
            leftovers: Some(Leftovers::Kill),
            ..Self::default()
        }
    }

    /// What it says, over what the kind is otherwise.
    fn over(&self, name: &str, agent: Agent) -> Result<Agent, ConfigError> {
        let program = if self.command.is_empty() { agent.command.first() } else { Some(&self.command) };
        let args = self.args.clone().unwrap_or_default();
        if program.is_none() && !args.is_empty() {
            return wrong(format!("[agents.{name}] has args and no command"));
        }
        allowed(&format!("[agents.{name}] reap"), &self.reap)?;
        let limits = self.limits.parse().map_err(|e| ConfigError(format!("[agents.{name}] limits: {e}")))?;
        Ok(Agent {
            command: program.into_iter().cloned().chain(args).collect(),
            env: self.env.clone(),
            see_tmux: self.see_tmux.unwrap_or(agent.see_tmux),
            start_args: self.start_args.clone().unwrap_or(agent.start_args),
            resume_args: self.resume_args.clone().unwrap_or(agent.resume_args),
            parkable: self.parkable.unwrap_or(agent.parkable),
            context_limit: self.context_limit.or(agent.context_limit),
            limits,
            reap: self.reap.clone(),
            leftovers: self.leftovers.unwrap_or(agent.leftovers),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Config;

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
    fn a_table_changes_only_what_it_says_of_a_built_in_kind() {
        let agents = agents("[agents.claude]\nargs = ['--model', 'x']\nenv = { A = '1' }");
        assert_eq!(agents["claude"].command, ["claude", "--model", "x"]);
        assert_eq!(agents["claude"].resume_args, ["--resume", "{conversation}"]);
        assert!(agents["shell"].command.is_empty());
        assert!(Config::parse("[agents.x]\nlimits = 'mem'").unwrap_err().0.contains("is not like mem=2G"));
    }
}
