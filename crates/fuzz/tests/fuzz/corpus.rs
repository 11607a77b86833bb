//! Inputs of real shapes: files of this crate, and recordings that other crates' tests use.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files of a directory below `crates`, in the order of their names.
fn files(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files
}

/// Returns the contents of the files of a directory below `crates`.
pub(crate) fn of(dir: &str) -> Vec<Vec<u8>> {
    files(dir).into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Returns the records of the golden files of the protocol: lines with a name and a value in hexadecimal.
pub(crate) fn golden() -> Vec<Vec<u8>> {
    let hex = files("protocol/tests/golden")
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ext| ext == "hex"));
    let mut records = Vec::new();
    for text in hex.map(|path| fs::read_to_string(path).unwrap()) {
        let values = text.lines().filter_map(|line| line.rsplit_once(' '));
        records.extend(values.map(|(_, value)| bytes(value)));
    }
    records
}

/// Returns the files of hooks among the golden files of the protocol: lines with a name and JSON.
pub(crate) fn spooled() -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/tests/golden/hooks.json.txt");
    let text = fs::read_to_string(path).unwrap();
    text.lines().filter_map(|line| Some(line.split_once(' ')?.1.as_bytes().to_vec())).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| u8::try_from(c.to_digit(16)?).ok()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
