//! Compares the program with its contract, `crates/ctl/manual/cli.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::markdown::{self, Block, Span};

/// The blocks of a section, without its heading.
fn section(title: &str) -> Vec<Block<'static>> {
    let page = super::find("cli").unwrap().markdown;
    let blocks = markdown::blocks(page).into_iter();
    let mut blocks = blocks.skip_while(|block| *block != Block::Heading(2, title)).skip(1).peekable();
    assert!(blocks.peek().is_some(), "no section {title:?}");
    blocks.take_while(|block| !matches!(block, Block::Heading(..))).collect()
}

/// The rows of the table in a section, without its header.
fn rows(title: &str) -> Vec<Vec<String>> {
    let tables = section(title).into_iter().filter_map(|block| match block {
        Block::Table(rows) => Some(rows),
        _ => None,
    });
    tables.flat_map(|rows| rows.into_iter().skip(1)).collect()
}

/// The keys of a document, each with the keys of the object that it is, where the contract names them.
pub(crate) fn keys(title: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut keys = BTreeMap::<String, BTreeSet<String>>::new();
    for row in rows(title) {
        for span in markdown::spans(&row[0]) {
            let Span::Code(key) = span else { continue };
            match key.split_once('.') {
                Some((outer, inner)) => drop(keys.entry(outer.into()).or_default().insert(inner.into())),
                None => drop(keys.entry(key.into()).or_default()),
            }
        }
    }
    keys
}

/// Asserts that a JSON document has exactly the keys of the contract.
#[track_caller]
pub(crate) fn check(document: &serde_json::Value, title: &str) {
    let of = |value: &serde_json::Value| -> BTreeSet<String> {
        value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().cloned().collect()
    };
    let contract = keys(title);
    assert_eq!(of(document), contract.keys().cloned().collect::<BTreeSet<_>>());
    for (key, inner) in contract.iter().filter(|(key, inner)| !inner.is_empty() && !document[*key].is_null())
    {
        assert_eq!(&of(&document[key]), inner, "{key}");
    }
}

/// The command lines of the contract: each verb with its flags, as `--name` and `-n`.
fn synopses() -> BTreeMap<String, BTreeSet<String>> {
    let mut synopses = BTreeMap::<String, BTreeSet<String>>::new();
    let mut verbs = Vec::new();
    for block in section("Commands") {
        let Block::Code(lines) = block else { continue };
        for line in lines {
            if !line.starts_with(' ') {
                verbs = names(line);
            }
            let parts = line.split(|c: char| c.is_whitespace() || "[]=|".contains(c));
            let flags: Vec<&str> = parts.filter(|part| part.starts_with('-') && *part != "--").collect();
            for verb in &verbs {
                synopses.entry(verb.clone()).or_default().extend(flags.iter().map(|&flag| flag.to_owned()));
            }
        }
    }
    synopses
}

/// The verbs that a line begins with: `queue ls`; `hook claude|codex` are two.
fn names(line: &str) -> Vec<String> {
    let is_name = |word: &&str| {
        word.chars().all(|c| c.is_ascii_lowercase() || c == '|' || c == '-') && !word.starts_with('-')
    };
    let words: Vec<&str> = line.split(' ').take_while(is_name).collect();
    let (last, before) = words.split_last().unwrap();
    last.split('|').map(|last| [before, &[last]].concat().join(" ")).collect()
}

/// Adds the verbs of the program, each with its flags.
fn defined(command: &clap::Command, before: &str, all: &mut BTreeMap<String, BTreeSet<String>>) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        let name = format!("{before}{}", verb.get_name());
        if verb.has_subcommands() {
            defined(verb, &format!("{name} "), all);
            continue;
        }
        let own = verb.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_global_set());
        let own = own.filter(|arg| arg.get_id() != "help");
        let flags = own.flat_map(|arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            long.into_iter().chain(arg.get_short().map(|short| format!("-{short}")))
        });
        all.insert(name, flags.collect());
    }
}

#[test]
fn every_verb_and_flag_is_in_the_contract_and_no_other() {
    let mut program = BTreeMap::new();
    defined(&crate::cli::whole(), "", &mut program);
    let contract = synopses();
    for (verb, flags) in &program {
        assert_eq!(contract.get(verb), Some(flags), "{verb}: the contract, and the program");
    }
    assert_eq!(contract.keys().collect::<Vec<_>>(), program.keys().collect::<Vec<_>>());
}

#[test]
fn the_kinds_of_events_are_those_of_the_contract() {
    let lines = section("JSON of an event").into_iter().filter_map(|block| match block {
        Block::Code(lines) => Some(lines),
        _ => None,
    });
    let told: BTreeSet<&str> = lines.flatten().flat_map(str::split_whitespace).collect();
    let published = protocol::event::EventKind::PUBLISHED.iter();
    assert_eq!(told, published.map(|kind| kind.as_str()).collect());
}

#[test]
fn the_exit_codes_are_those_of_the_contract() {
    let told = rows("Exit codes").into_iter().map(|row| (row[0].parse::<i32>().unwrap(), row[1].clone()));
    let program = (0..=255).filter_map(|code| match code {
        0 => Some((0, "ok".to_owned())),
        code => crate::exit::error_code(code).map(|meant| (code, meant.as_str().to_owned())),
    });
    assert_eq!(told.collect::<Vec<_>>(), program.collect::<Vec<_>>());
}
