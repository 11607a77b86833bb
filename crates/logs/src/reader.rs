//! The bytes of a log by their offset, whichever file has them, while it is written, rotated, compressed
//! and trimmed.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use process::file::id;
use process::log_writer::{Part, Parts, open_file};
use protocol::logs;

/// A place in a log, from which it is read on.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    offset: u64,
    open: Option<Open>,
    missed: u64,
}

/// The file that is read.
#[derive(Debug)]
enum Open {
    /// The one that is written to, or was when it was opened.
    Current(File),
    /// A part, up to this offset.
    Part(Bytes, u64),
}

#[derive(Debug)]
enum Bytes {
    Plain(File),
    Compressed(Box<GzDecoder<File>>),
}

impl Read for Bytes {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(block),
            Self::Compressed(decoder) => decoder.read(block),
        }
    }
}

impl Reader {
    /// At this offset; at the end where that is beyond it. There may be nothing yet.
    #[must_use]
    pub fn new(dir: &Path, offset: u64) -> Self {
        Self { dir: dir.to_owned(), offset, open: None, missed: 0 }
    }

    /// The directory of the log.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The offset of what comes next.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes were gone before they were read, since this was asked last.
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// What comes next; nothing at the end of what is written.
    ///
    /// # Errors
    /// The files cannot be read. A part that is damaged is missed.
    pub fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        loop {
            match &mut self.open {
                None => {
                    if !self.locate()? {
                        return Ok(0);
                    }
                }
                Some(Open::Current(file)) => {
                    let read = file.read(block)?;
                    if read > 0 || is_current(file, &self.dir) {
                        self.offset += read as u64;
                        return Ok(read);
                    }
                    // It is a part by now; what was written to it between the two looks is read there.
                    self.open = None;
                }
                Some(Open::Part(bytes, end)) => {
                    let end = *end;
                    let most =
                        usize::try_from(end - self.offset).map_or(block.len(), |left| left.min(block.len()));
                    if let Ok(read @ 1..) = bytes.read(&mut block[..most]) {
                        self.offset += read as u64;
                        return Ok(read);
                    }
                    self.open = None;
                    self.skip_to(end);
                }
            }
        }
    }

    fn skip_to(&mut self, offset: u64) {
        self.missed += offset.saturating_sub(self.offset);
        self.offset = self.offset.max(offset);
    }

    /// Opens the file that has what comes next, if there is one.
    fn locate(&mut self) -> io::Result<bool> {
        loop {
            let (parts, current) = look(&self.dir)?;
            if let Some(part) = parts.0.iter().find(|part| part.end() > self.offset) {
                self.skip_to(part.offset);
                match open(&self.dir, part, self.offset) {
                    Ok(bytes) => self.open = Some(Open::Part(bytes, part.end())),
                    // Compressed or dropped meanwhile.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(_) => {
                        self.skip_to(part.end());
                        continue;
                    }
                }
                return Ok(true);
            }
            let base = parts.end();
            self.skip_to(base);
            let Some(mut file) = current else { return Ok(false) };
            // The end of it may be lost, where the machine went down.
            let within = (self.offset - base).min(file.metadata()?.len());
            file.seek(SeekFrom::Start(within))?;
            self.offset = base + within;
            self.open = Some(Open::Current(file));
            return Ok(true);
        }
    }
}

/// The parts, and the file that is written to, which begins at their end.
fn look(dir: &Path) -> io::Result<(Parts, Option<File>)> {
    loop {
        let current = match open_file(&dir.join(logs::CURRENT)) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        let parts = Parts::look(dir)?;
        let same = match &current {
            Some(file) => is_current(file, dir),
            None => !dir.join(logs::CURRENT).exists(),
        };
        if same {
            return Ok((parts, current));
        }
    }
}

/// First and last offset of each file, oldest first.
///
/// # Errors
/// The files cannot be read.
pub(crate) fn extents(dir: &Path) -> io::Result<Vec<(u64, u64)>> {
    let (parts, current) = look(dir)?;
    let length = current.map_or(Ok(0), |file| file.metadata().map(|found| found.len()))?;
    let mut extents: Vec<_> = parts.0.iter().map(|part| (part.offset, part.end())).collect();
    extents.push((parts.end(), parts.end() + length));
    Ok(extents)
}

fn is_current(file: &File, dir: &Path) -> bool {
    let named = fs::metadata(dir.join(logs::CURRENT));
    named.is_ok_and(|named| file.metadata().is_ok_and(|open| id(&open) == id(&named)))
}

fn open(dir: &Path, part: &Part, offset: u64) -> io::Result<Bytes> {
    let mut file = open_file(&dir.join(part.name()))?;
    let before = offset - part.offset;
    if !part.compressed {
        file.seek(SeekFrom::Start(before))?;
        return Ok(Bytes::Plain(file));
    }
    let mut decoder = Box::new(GzDecoder::new(file));
    let skipped = io::copy(&mut decoder.by_ref().take(before), &mut io::sink())?;
    if skipped < before { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(Bytes::Compressed(decoder)) }
}
