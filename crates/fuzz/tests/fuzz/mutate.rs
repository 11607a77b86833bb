//! Random changes of inputs.

/// A reproducible sequence of random numbers (SplitMix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one, or 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end as u64).max(1)).unwrap_or_default()
    }

    /// A short range within this length, mostly of few bytes.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let longest = [4, 16, 64, 4096][self.below(4)];
        start..(start + self.below(longest) + 1).min(length)
    }
}

/// Values at which parsers go wrong.
const ODD: [&[u8]; 14] = [
    b"\0",
    b"\xff",
    b"\n",
    b"\r\n",
    b"\x1b[",
    b"\x1b]0;",
    b"\x07",
    b"-1",
    b"0",
    b"18446744073709551616",
    b"\"",
    b"\\",
    "\u{301}\u{1f468}\u{200d}\u{1f469}".as_bytes(),
    b"\xc3\x28",
];

/// Words of the corpus: what the format of a target consists of.
pub(crate) fn words(corpus: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || b"_-%\x1b[".contains(b);
    let split = corpus.iter().flat_map(|input| input.split(move |b| !is_word(b)));
    let mut words: Vec<Vec<u8>> =
        split.filter(|word| (2..32).contains(&word.len())).map(<[u8]>::to_vec).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// Returns an input of the corpus with a few changes, and at most this length.
pub(crate) fn mutated(random: &mut Random, corpus: &[Vec<u8>], words: &[Vec<u8>], longest: usize) -> Vec<u8> {
    let mut input = corpus.get(random.below(corpus.len())).cloned().unwrap_or_default();
    for _ in 0..=random.below(6) {
        change(random, &mut input, corpus, words);
        input.truncate(longest);
    }
    input
}

fn change(random: &mut Random, input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[Vec<u8>]) {
    let range = random.range(input.len());
    match random.below(9) {
        0 if !range.is_empty() => input[range.start] ^= 1 << random.below(8),
        1 if !range.is_empty() => input[range.start] = random.next().to_le_bytes()[0],
        2 => drop(input.drain(range)),
        3 => input.truncate(range.start),
        // Repeated: a list gets longer, and nesting deeper.
        4 => {
            let part = input[range.clone()].repeat(1 + random.below(8));
            input.splice(range.end..range.end, part);
        }
        5 => {
            let other = &corpus[random.below(corpus.len())];
            let part = other[random.range(other.len())].to_vec();
            drop(input.splice(range, part));
        }
        6 => drop(input.splice(range, ODD[random.below(ODD.len())].iter().copied())),
        7 if !words.is_empty() => {
            let word = words[random.below(words.len())].clone();
            drop(input.splice(range, word));
        }
        _ => {
            let bytes: Vec<u8> = (0..1 + random.below(8)).map(|_| random.next().to_le_bytes()[0]).collect();
            input.splice(range.start..range.start, bytes);
        }
    }
}
