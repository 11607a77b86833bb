//! Random bytes, and the identifiers made of them.

use std::io;

use protocol::Tag;

/// A source of random bytes.
pub trait Random: Send + Sync {
    /// Fills the buffer.
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()>;
}

impl dyn Random + '_ {
    /// Returns a random tag.
    pub fn tag(&self) -> io::Result<Tag> {
        let mut bytes = [0; 16];
        self.fill(&mut bytes)?;
        Ok(Tag(bytes))
    }

    /// Returns a random UUID, version 4.
    pub fn uuid(&self) -> io::Result<String> {
        let Tag(mut bytes) = self.tag()?;
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex = Tag(bytes).to_string();
        Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
    }
}

/// The random source of the operating system.
#[derive(Debug)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_random_and_well_formed() {
        let random: &dyn Random = &SystemRandom;
        assert_ne!(random.tag().unwrap(), random.tag().unwrap());
        let uuid = random.uuid().unwrap();
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"));
    }
}
