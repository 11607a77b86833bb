//! Serde attributes that bincode cannot carry. It writes no field names, so an attribute that omits fields or
//! needs look-ahead loses data. A plain `default` is for types that are also read as JSON, from files and
//! exports of earlier versions; bincode reads every field.

use std::fs;
use std::path::Path;

#[test]
fn no_wire_type_uses_what_bincode_cannot_carry() {
    let forbidden = ["skip", "flatten", "untagged", "tag", "with", "other", "remote"];
    let mut files = 0;
    let mut paths = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        files += 1;
        for attribute in text.split("#[serde(").skip(1) {
            let words = attribute.split(")]").next().unwrap();
            // Differs in JSON only; bincode sees the plain number.
            if words.contains("crate::u64_string") || path.ends_with("u64_string.rs") {
                continue;
            }
            let mut names = words.split([',', '=', '(', ' ']).map(str::trim);
            let bad = names.find(|name| forbidden.iter().any(|bad| name.split('_').next() == Some(bad)));
            assert_eq!(bad, None, "{}: #[serde({words})]", path.display());
        }
    }
    assert!(files > 10, "the sources were found");
}
