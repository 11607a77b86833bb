//! Reads the bytes of a log by their offset, from whichever file contains them, while the log is written,
//! rotated, compressed and trimmed.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use process::log_writer::{Part, Parts, is_shortage, open_file, refuse_links};
use process::runtime::untrusted_file::id;
use protocol::logs;

/// A reader at an offset of a log.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    offset: u64,
    open: Option<OpenFile>,
    /// Bytes that were dropped before they were read, since [`Reader::take_missed`].
    missed: u64,
}

/// The file that is being read.
#[derive(Debug)]
enum OpenFile {
    /// The current file, or one that was current when it was opened.
    Current(File),
    /// A part, and the offset of its end.
    Part(PartReader, u64),
}

#[derive(Debug)]
enum PartReader {
    Plain(File),
    Compressed(Box<GzDecoder<File>>),
}

impl Read for PartReader {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(block),
            Self::Compressed(decoder) => decoder.read(block),
        }
    }
}

impl Reader {
    /// Creates a reader at this offset, or at the end of the log if that is lower. The log may not exist yet.
    pub fn new(dir: &Path, offset: u64) -> Self {
        Self { dir: dir.to_owned(), offset, open: None, missed: 0 }
    }

    /// The directory of the log.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of bytes that were dropped before they were read, since the last call.
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// Reads the next bytes; 0 at the end of what is written so far.
    ///
    /// # Errors
    /// The files cannot be read. A damaged part is skipped and counted as missed.
    pub fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        loop {
            match &mut self.open {
                None => {
                    if !self.locate()? {
                        return Ok(0);
                    }
                }
                Some(OpenFile::Current(file)) => {
                    let read = file.read(block)?;
                    let cut = if read == 0 { cut_off(file)? } else { None };
                    let is_current = read > 0 || is_current(file, &self.dir);
                    // Parts that are being dropped are cut off too, but do not have the name of the current file.
                    if let Some((position, length)) = cut.filter(|_| is_current) {
                        self.missed += position - length;
                        self.offset -= position - length;
                        file.seek(SeekFrom::Start(length))?;
                    }
                    if is_current {
                        self.offset += read as u64;
                        return Ok(read);
                    }
                    // The file was rotated meanwhile. Bytes written between the read and the check are read
                    // from the part.
                    self.open = None;
                }
                Some(OpenFile::Part(part, end)) => {
                    let end = *end;
                    let max =
                        usize::try_from(end - self.offset).map_or(block.len(), |left| left.min(block.len()));
                    match part.read(&mut block[..max]) {
                        Ok(read @ 1..) => {
                            self.offset += read as u64;
                            return Ok(read);
                        }
                        Err(error) if is_shortage(&error) => return Err(error),
                        _ => self.open = None,
                    }
                    self.skip_to(end);
                }
            }
        }
    }

    /// Moves forward to this offset, and counts the skipped bytes as missed.
    fn skip_to(&mut self, offset: u64) {
        self.missed += offset.saturating_sub(self.offset);
        self.offset = self.offset.max(offset);
    }

    /// Opens the file that contains the next byte; false if there is none.
    fn locate(&mut self) -> io::Result<bool> {
        loop {
            let (parts, current) = list_files(&self.dir)?;
            if let Some(part) = parts.0.iter().find(|part| part.end() > self.offset) {
                self.skip_to(part.offset);
                match open(&self.dir, part, self.offset) {
                    Ok(reader) => self.open = Some(OpenFile::Part(reader, part.end())),
                    Err(error) => {
                        if is_damaged(error)? {
                            self.skip_to(part.end());
                        }
                        continue;
                    }
                }
                return Ok(true);
            }
            let base = parts.end();
            self.skip_to(base);
            let Some(mut file) = current else { return Ok(false) };
            // Less than the offset if the end of the file was lost in a crash of the machine.
            let within = (self.offset - base).min(file.metadata()?.len());
            file.seek(SeekFrom::Start(within))?;
            self.offset = base + within;
            self.open = Some(OpenFile::Current(file));
            return Ok(true);
        }
    }
}

/// Returns the parts, and the current file, which begins at their end.
fn list_files(dir: &Path) -> io::Result<(Parts, Option<File>)> {
    refuse_links(dir)?;
    loop {
        let current = match open_file(&dir.join(logs::CURRENT)) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        let parts = Parts::list_stable(dir)?;
        let same = match &current {
            Some(file) => is_current(file, dir),
            None => !dir.join(logs::CURRENT).exists(),
        };
        if same {
            return Ok((parts, current));
        }
    }
}

/// True if a part that could not be opened is damaged; false if it was compressed or dropped meanwhile.
///
/// # Errors
/// This process or the system lacks something, which says nothing about the part.
fn is_damaged(error: io::Error) -> io::Result<bool> {
    if is_shortage(&error) { Err(error) } else { Ok(error.kind() != ErrorKind::NotFound) }
}

/// Returns the start and end offset of each file, oldest first.
pub(crate) fn extents(dir: &Path) -> io::Result<Vec<(u64, u64)>> {
    let (parts, current) = list_files(dir)?;
    let length = current.map_or(Ok(0), |file| file.metadata().map(|found| found.len()))?;
    let mut extents: Vec<_> = parts.0.iter().map(|part| (part.offset, part.end())).collect();
    extents.push((parts.end(), parts.end() + length));
    Ok(extents)
}

/// Returns the offset of the first byte that is kept and the offset of the next byte to be written; both are
/// 0 for a log that does not exist.
pub fn bounds(dir: &Path) -> io::Result<(u64, u64)> {
    let extents = extents(dir)?;
    Ok((extents.first().map_or(0, |extent| extent.0), extents.last().map_or(0, |extent| extent.1)))
}

/// Reads a range of a log; less if it is trimmed meanwhile.
pub(crate) fn read_range(dir: &Path, from: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut reader = Reader::new(dir, from);
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(from)).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        match reader.read(&mut bytes[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Returns the position in a file and the file's length, if the file is shorter than that position.
fn cut_off(file: &mut File) -> io::Result<Option<(u64, u64)>> {
    let (position, length) = (file.stream_position()?, file.metadata()?.len());
    Ok((length < position).then_some((position, length)))
}

fn is_current(file: &File, dir: &Path) -> bool {
    let named = fs::metadata(dir.join(logs::CURRENT));
    named.is_ok_and(|named| file.metadata().is_ok_and(|open| id(&open) == id(&named)))
}

/// Opens a part at this offset of the log.
fn open(dir: &Path, part: &Part, offset: u64) -> io::Result<PartReader> {
    let mut file = open_file(&dir.join(part.name()))?;
    let before = offset - part.offset;
    if !part.compressed {
        file.seek(SeekFrom::Start(before))?;
        return Ok(PartReader::Plain(file));
    }
    let mut decoder = Box::new(GzDecoder::new(file));
    let skipped = io::copy(&mut decoder.by_ref().take(before), &mut io::sink())?;
    if skipped < before {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(PartReader::Compressed(decoder))
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_shortage_of_descriptors_makes_no_part_damaged() {
        let is_damaged = |errno: Errno| super::is_damaged(errno.into()).map_err(|error| error.raw_os_error());
        assert_eq!(is_damaged(Errno::EMFILE), Err(Some(Errno::EMFILE as i32)));
        assert_eq!([is_damaged(Errno::ENOENT), is_damaged(Errno::EACCES)], [Ok(false), Ok(true)]);
        assert!(super::is_damaged(ErrorKind::UnexpectedEof.into()).unwrap());
    }
}
