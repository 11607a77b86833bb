//! Parses every command line of the manual and of the README.

use std::ffi::OsString;

use super::markdown::{self, Block, Span};
use super::{TOPICS, find};
use crate::cli;

/// Placeholders in the text, with values that the parser accepts.
const STAND_IN: [(&str, &str); 2] = [("ID", "1"), ("N", "1")];
const README: &str = include_str!("../../../../README.md");

/// Splits a line of shell at its operators, and each part into words, without comments and redirections.
fn parts(line: &str) -> Vec<Vec<String>> {
    let (mut parts, mut word, mut quote) = (vec![Vec::new()], None::<String>, None);
    let mut redirected = false;
    for c in line.chars().chain(['\n']) {
        let ends_word = c.is_whitespace() || "|;&()<>".contains(c);
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            ('#', None) if word.is_none() => break,
            (c, None) if !ends_word => word.get_or_insert_default().push(c),
            (c, None) => {
                let done = word.take();
                if let (Some(done), Some(part)) = (done.filter(|_| !redirected), parts.last_mut()) {
                    part.push(done);
                }
                redirected = "<>".contains(c) || redirected && c == ' ';
                if "|;&()".contains(c) {
                    parts.push(Vec::new());
                }
            }
        }
    }
    parts
}

/// Returns the calls of `poolctl` in a line of shell, including those in `sh -c`.
fn calls(line: &str) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    for part in parts(line) {
        let leads = |word: &&String| word.contains('=') || ["if", "then", "do"].contains(&word.as_str());
        let call: Vec<String> = part.iter().skip_while(leads).cloned().collect();
        if call.first().is_some_and(|word| word == "poolctl") {
            for script in call.iter().filter(|word| word.contains("poolctl ")) {
                calls.extend(self::calls(script));
            }
            calls.push(call);
        }
    }
    calls
}

/// True if these words are the name of a verb (`queue ls`).
fn names_verb(words: &[String]) -> bool {
    let whole = cli::whole();
    let mut verb = Some(&whole);
    words.iter().for_each(|word| verb = verb.and_then(|verb| verb.find_subcommand(word)));
    verb.is_some()
}

/// Returns the error of a command line. The name of a verb alone, as in a sentence, is none.
fn wrong(call: &[String]) -> Option<String> {
    if names_verb(&call[1..]) {
        return None;
    }
    if let [_, help, words @ ..] = call
        && help == "help"
    {
        let is_topic = |word: &String| find(word).is_some() || word == "TOPIC" || word == "VERB";
        let known = names_verb(words) || matches!(words, [word] if is_topic(word));
        return (!known).then(|| call.join(" "));
    }
    let real = |word: &String| {
        let stands = STAND_IN.iter().find(|(name, _)| name == word);
        OsString::from(stands.map_or_else(|| word.clone(), |(_, value)| (*value).to_owned()))
    };
    let args: Vec<OsString> = call.iter().map(real).collect();
    let error = cli::parse(&args).err().filter(|error| error.exit_code() != 0)?;
    Some(format!("{}: {}", call.join(" "), error.to_string().lines().next().unwrap_or_default()))
}

/// Returns the lines of shell in a page: those of its `sh` blocks, and code in its text.
fn lines(page: &'static str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut shell = false;
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(language) => shell = language == "sh",
            None if shell => lines.push(line.to_owned()),
            None => {}
        }
    }
    let mut inline = |text: &str| {
        for span in markdown::spans(text) {
            if let Span::Code(code) = span
                && code.starts_with("poolctl ")
                && !code.contains(['[', '{'])
                && !code.contains("...")
            {
                lines.push(code.to_owned());
            }
        }
    };
    for block in markdown::blocks(page) {
        match block {
            Block::Paragraph(text) => inline(&text),
            Block::List(items) => items.iter().for_each(|(_, text)| inline(text)),
            Block::Table(rows) => rows.iter().flatten().for_each(|cell| inline(cell)),
            Block::Heading(..) | Block::Code(_) => {}
        }
    }
    lines
}

#[test]
fn every_command_of_the_manual_and_the_readme_is_understood() {
    let mut bad = Vec::new();
    let topics = TOPICS.iter().map(|topic| (topic.name, topic.markdown));
    for (name, page) in topics.chain([("README.md", README)]) {
        let calls: Vec<_> = lines(page).iter().flat_map(|line| calls(line)).collect();
        assert!(!calls.is_empty() || name == "glossary", "{name} shows no command");
        bad.extend(calls.iter().filter_map(|call| wrong(call)).map(|why| format!("{name}: {why}")));
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn lines_of_shell_are_split_as_a_shell_does() {
    let call = |line: &str| calls(line).into_iter().map(|call| call.join(" ")).collect::<Vec<_>>();
    assert_eq!(call("git diff | poolctl send web -   # a comment"), ["poolctl send web -"]);
    assert_eq!(call("if poolctl status; then echo 'poolctl no'; fi"), ["poolctl status"]);
    assert_eq!(call("A=1 poolctl import < in > 'out file'"), ["poolctl import"]);
    assert_eq!(call("x=$(poolctl send a 'b c')"), ["poolctl send a b c"]);
    assert_eq!(call("poolctl lock a -- sh -c 'poolctl keys a C-c && poolctl ls'").len(), 3);
    assert!(wrong(&["poolctl".into(), "lss".into()]).is_some());
    assert!(wrong(&["poolctl".into(), "help".into(), "no-such-thing".into()]).is_some());
}
