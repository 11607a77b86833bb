//! The manual: the pages in `crates/ctl/manual`, embedded. `poolctl help TOPIC` shows one, and
//! `poolctl man --dir DIR` writes all of them as man pages.

pub(crate) mod markdown;
pub(crate) mod pager;
pub(crate) mod roff;
pub(crate) mod text;

#[cfg(test)]
mod command_tests;
#[cfg(test)]
pub(crate) mod contract_tests;
#[cfg(test)]
mod tests;

/// Lowest similarity at which a name is suggested for a mistyped one (Jaro-Winkler, 0 to 1).
const SIMILAR: f64 = 0.75;

/// A page of the manual. Its first line is `# Title: summary`.
#[derive(Debug)]
pub(crate) struct Topic {
    /// The word after `help`, and the name of the file.
    pub name: &'static str,
    /// The whole page.
    pub markdown: &'static str,
}

macro_rules! topics {
    ($($name:literal,)*) => {
        &[$(Topic { name: $name, markdown: include_str!(concat!("../manual/", $name, ".md")) },)*]
    };
}

/// All pages, in the order in which a newcomer reads them.
pub(crate) const TOPICS: &[Topic] = topics![
    "getting-started",
    "sessions",
    "prompts",
    "agents",
    "queues-and-workers",
    "slots",
    "locks",
    "reaper",
    "logs-and-archives",
    "configuration",
    "tmux",
    "service",
    "security",
    "troubleshooting",
    "scripting",
    "cli",
    "glossary",
];

impl Topic {
    /// The title and the summary, from the first line.
    fn heading(&self) -> (&'static str, &'static str) {
        let line = self.markdown.lines().next().unwrap_or_default();
        let line = line.trim_start_matches('#').trim();
        line.split_once(": ").unwrap_or((line, line))
    }

    /// The summary in the first line.
    pub(crate) fn summary(&self) -> &'static str {
        self.heading().1
    }

    /// The name of its man page.
    pub(crate) fn man_name(&self) -> String {
        format!("tmux-pool-{}", self.name)
    }

    /// True if a command line of this verb is in the page.
    pub(crate) fn shows_verb(&self, verb: &str) -> bool {
        let call = format!("poolctl {verb}");
        self.markdown.match_indices(&call).any(|(at, _)| {
            let after = self.markdown[at + call.len()..].chars().next();
            after.is_none_or(|c| !c.is_alphanumeric() && c != '-')
        })
    }
}

/// Returns the topic of this name, or the only one whose name contains the word (`workers`).
pub(crate) fn find(word: &str) -> Option<&'static Topic> {
    if let Some(topic) = TOPICS.iter().find(|topic| topic.name == word) {
        return Some(topic);
    }
    let mut parts = TOPICS.iter().filter(|topic| topic.name.split('-').any(|part| part == word));
    parts.next().filter(|_| parts.next().is_none())
}

/// Returns the message for an unknown word: the most similar topic or verb, and the list of topics.
pub(crate) fn unknown<'a>(word: &str, verbs: impl Iterator<Item = &'a str>) -> String {
    let names = TOPICS.iter().map(|topic| topic.name).chain(verbs);
    let like = names.map(|name| (strsim::jaro_winkler(word, name), name));
    let nearest = like.filter(|(like, _)| *like >= SIMILAR).max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = nearest.map(|(_, name)| format!("; did you mean {name}?")).unwrap_or_default();
    format!("no topic and no verb {word:?}{hint}\n\n{}", listing())
}

/// The list of topics, as `poolctl help` shows it.
pub(crate) fn listing() -> String {
    let width = TOPICS.iter().map(|topic| topic.name.len()).max().unwrap_or(0);
    let line = |topic: &Topic| format!("\n  {:width$}  {}", topic.name, topic.summary());
    let lines: String = TOPICS.iter().map(line).collect();
    format!("Topics, shown by `poolctl help TOPIC`:{lines}")
}
