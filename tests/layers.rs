//! Checks how the files of each crate import each other: in no circle, and in the daemon only downwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::tidy;

/// The layers of the daemon, from the bottom: each imports only from itself and from those before it.
const LAYERS: [&str; 10] =
    ["host", "config", "engine", "decide", "sense", "effect", "verb", "loops", "net", "run"];

/// The files of a crate that are no tests, by module path (`verb::kill`; empty for `lib.rs`).
type Modules = BTreeMap<String, PathBuf>;
/// The modules that each module imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn modules(krate: &str) -> Modules {
    let root = Path::new("crates").join(krate).join("src");
    let of = |path: PathBuf| {
        let inside = path.strip_prefix(&root).ok()?.with_extension("");
        let parts = inside.iter().map(|part| part.to_string_lossy().into_owned());
        let parts: Vec<String> = parts.filter(|part| part != "mod" && part != "lib").collect();
        Some((parts.join("::"), path))
    };
    tidy::sources(false).into_iter().filter_map(of).collect()
}

/// All paths that a `use` tree names: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn leaves(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim().trim_end_matches("::self");
        found.push(format!("{prefix}{path}"));
        return;
    };
    let (head, body) = (&tree[..open], tree[open + 1..].trim_end().trim_end_matches('}'));
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in body.char_indices().chain([(body.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !body[start..at].trim().is_empty() {
                    leaves(&prefix, &body[start..at], found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The paths in a file that may lead to other files of its crate: those of its `use`s, and those written out.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = String::new();
    let mut statements = code.split('\n').peekable();
    while let Some(line) = statements.next() {
        let trimmed = line.trim_start();
        let after = trimmed.strip_prefix("pub(crate) ").or_else(|| trimmed.strip_prefix("pub(super) "));
        let after = after.or_else(|| trimmed.strip_prefix("pub ")).unwrap_or(trimmed);
        let Some(first) = after.strip_prefix("use ") else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut tree = first.to_owned();
        while !tree.contains(';') {
            let Some(next) = statements.next() else { break };
            tree.push_str(next.trim());
        }
        leaves("", tree.split(';').next().unwrap_or_default(), &mut found);
    }
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let words = rest.split(|letter: char| !is_part(letter)).filter(|word| word.contains("::"));
    found.extend(words.map(str::to_owned));
    found
}

/// The names that the root of a crate passes on, with the modules that they are from.
fn root_exports(modules: &Modules) -> BTreeMap<String, String> {
    let root = modules.get("").map(|path| tidy::code(path)).unwrap_or_default();
    let named = paths(&root).into_iter().filter_map(|path| {
        let (module, name) = path.rsplit_once("::")?;
        modules.contains_key(module).then(|| (name.to_owned(), module.to_owned()))
    });
    named.collect()
}

/// The module that a path leads to, as seen from `module`; none for another crate's.
fn target(modules: &Modules, exports: &BTreeMap<String, String>, module: &str, path: &str) -> Option<String> {
    let named = path.strip_prefix("crate::").and_then(|name| exports.get(name));
    if let Some(from) = named.filter(|_| !module.is_empty()) {
        return Some(from.clone()).filter(|from| from != module);
    }
    let mut base: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
    match *parts.first()? {
        "crate" => {
            base.clear();
            parts.remove(0);
        }
        "self" => {
            parts.remove(0);
        }
        "super" => {
            while parts.first() == Some(&"super") {
                base.pop();
                parts.remove(0);
            }
        }
        child => {
            let path = base.iter().chain([&child]).copied().collect::<Vec<_>>().join("::");
            modules.get(&path)?;
        }
    }
    base.extend(parts);
    while !base.is_empty() {
        let path = base.join("::");
        if modules.contains_key(&path) {
            return Some(path).filter(|path| path != module);
        }
        base.pop();
    }
    None
}

fn imports(krate: &str) -> Imports {
    let modules = modules(krate);
    let exports = root_exports(&modules);
    let of = |(module, path): (&String, &PathBuf)| {
        let targets = paths(&tidy::code(path))
            .iter()
            .filter_map(|path| target(&modules, &exports, module, path))
            .collect();
        (module.clone(), targets)
    };
    modules.iter().map(of).collect()
}

/// The modules that cannot be put in an order in which each imports only earlier ones.
fn circles(imports: &Imports) -> BTreeSet<String> {
    let mut left: BTreeSet<String> = imports.keys().cloned().collect();
    loop {
        let imports_left = |module: &String| imports[module].iter().any(|target| left.contains(target));
        let is_imported = |module: &String| left.iter().any(|other| imports[other].contains(module));
        let ends: Vec<String> =
            left.iter().filter(|module| !imports_left(module) || !is_imported(module)).cloned().collect();
        if ends.is_empty() {
            return left;
        }
        left.retain(|module| !ends.contains(module));
    }
}

#[test]
fn the_files_of_no_crate_import_each_other_in_a_circle() {
    let crates = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates")).unwrap().flatten();
    let crates = crates.filter(|entry| entry.path().is_dir());
    // In `agents` a folder's head has the types of its agents, and selects one of them.
    let exempt = |name: &String| ["agents", "bench"].contains(&name.as_str());
    let mut wrong = Vec::new();
    for krate in crates.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| !exempt(name)) {
        let circle = circles(&imports(&krate));
        if !circle.is_empty() {
            wrong.push(format!("{krate}: {circle:?}"));
        }
    }
    assert!(wrong.is_empty(), "files that import each other in a circle:\n{}", wrong.join("\n"));
}

#[test]
fn the_daemon_imports_only_downwards() {
    let layer = |module: &str| LAYERS.iter().position(|layer| module.split("::").next() == Some(*layer));
    let mut wrong = Vec::new();
    for (module, targets) in imports("daemon") {
        assert!(module.is_empty() || layer(&module).is_some(), "{module} is in no layer");
        for target in targets.iter().filter(|target| layer(target) > layer(&module) && !module.is_empty()) {
            wrong.push(format!("{module} → {target}"));
        }
    }
    assert!(wrong.is_empty(), "imports that run up:\n{}", wrong.join("\n"));
}

#[test]
fn no_verb_of_poolctl_imports_another() {
    let verb = |module: &str| {
        module.strip_prefix("verb::").map(|rest| rest.split("::").next().unwrap_or_default().to_owned())
    };
    let mut wrong = Vec::new();
    for (module, targets) in imports("ctl") {
        let Some(own) = verb(&module) else { continue };
        let others = targets.iter().filter(|target| verb(target).is_some_and(|other| other != own));
        wrong.extend(others.map(|target| format!("{module} → {target}")));
    }
    assert!(wrong.is_empty(), "verbs that import verbs:\n{}", wrong.join("\n"));
}

#[test]
fn a_circle_and_an_import_upwards_are_seen() {
    let of = |pairs: &[(&str, &[&str])]| -> Imports {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        pairs.iter().map(|(module, targets)| ((*module).to_owned(), own(targets))).collect()
    };
    let straight = of(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]);
    assert!(circles(&straight).is_empty());
    let round = of(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &["a"])]);
    assert_eq!(circles(&round), ["b", "c"].map(str::to_owned).into());
    let mut found = Vec::new();
    leaves("", "crate::{a::{self, b}, c as d}", &mut found);
    assert_eq!(found, ["crate::a::self", "crate::a::b", "crate::c"]);
}
