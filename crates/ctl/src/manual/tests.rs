//! The pages as a whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;
use crate::cli;

/// Most columns of a line, and most lines of a page.
const COLUMNS: usize = 100;
const LINES: usize = 210;
/// Pages that may be longer.
const REFERENCES: [&str; 2] = ["cli", "configuration"];

#[test]
fn every_page_is_a_topic() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("manual");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let topics = TOPICS.iter().map(|topic| format!("{}.md", topic.name));
    assert_eq!(files.collect::<BTreeSet<_>>(), topics.collect::<BTreeSet<_>>());
    let help = cli::whole().render_help().to_string();
    for topic in TOPICS {
        assert!(help.contains(&format!("\n  {} ", topic.name)), "help lists {}", topic.name);
        assert!(!cli::whole().get_subcommands().any(|verb| verb.get_name() == topic.name), "{}", topic.name);
    }
}

#[test]
fn links_lead_to_pages_and_each_page_names_others() {
    for topic in TOPICS {
        let mut links = BTreeSet::new();
        for part in topic.markdown.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            let name = target.strip_suffix(".md").unwrap_or_else(|| panic!("{}: {target}", topic.name));
            assert!(TOPICS.iter().any(|topic| topic.name == name), "{}: {target}", topic.name);
            links.insert(name);
        }
        assert!(links.len() >= 2 && !links.contains(topic.name), "{}: {links:?}", topic.name);
    }
    let linked = |name: &str| TOPICS.iter().any(|topic| topic.markdown.contains(&format!("]({name}.md)")));
    assert!(TOPICS.iter().all(|topic| linked(topic.name)), "every page is linked from another");
}

#[test]
fn pages_are_short_and_plain() {
    for topic in TOPICS {
        let (title, summary) = topic.heading();
        assert!(topic.markdown.starts_with("# ") && title != summary, "{}: the first line", topic.name);
        assert!(summary.len() <= 72, "{}: {summary}", topic.name);
        for (n, line) in topic.markdown.lines().enumerate() {
            let n = n + 1;
            assert!(line.len() <= COLUMNS && line.is_ascii(), "{}:{n}: {line}", topic.name);
            assert!(line == line.trim_end(), "{}:{n}: blanks at the end", topic.name);
        }
        let lines = topic.markdown.lines().count();
        assert!(lines <= LINES || REFERENCES.contains(&topic.name), "{}: {lines} lines", topic.name);
    }
}

#[test]
fn a_topic_is_found_by_its_name_or_a_word_of_it() {
    assert_eq!(find("sessions").map(|topic| topic.name), Some("sessions"));
    assert_eq!(find("workers").map(|topic| topic.name), Some("queues-and-workers"));
    // More than one has it.
    assert!(find("and").is_none() && find("").is_none() && find("session").is_none());
    let verbs = || ["send", "queue"].into_iter();
    assert!(
        unknown("sesions", verbs()).starts_with("no topic and no verb \"sesions\"; did you mean sessions?")
    );
    assert!(unknown("snd", verbs()).contains("did you mean send?"));
    let text = unknown("xyzzy", verbs());
    assert!(!text.contains("did you mean") && text.contains("\n  locks "), "{text}");
}

#[test]
fn help_shows_a_topic_where_no_verb_has_that_name() {
    let parse = |line: &str| cli::parse(&line.split(' ').map(Into::into).collect::<Vec<_>>());
    let shown = |line: &str| format!("{:?}", parse(line).unwrap().command);
    assert_eq!(shown("poolctl help sessions"), shown("poolctl man sessions"));
    assert_eq!(shown("poolctl --color never help nonsense"), shown("poolctl man nonsense"));
    for line in ["poolctl help", "poolctl help send", "poolctl help queue ls"] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 0, "{line}");
    }
    for line in ["poolctl sessions", "poolctl help sessions twice", "poolctl queue help sessions"] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn a_verb_is_shown_by_a_topic_that_names_it_as_a_word() {
    let topic = Topic { name: "x", markdown: "`poolctl logs web`, poolctl queue-x" };
    assert!(topic.shows_verb("logs") && !topic.shows_verb("log") && !topic.shows_verb("queue"));
}
