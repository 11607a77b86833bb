"""Prompts to send, and the text expected to arrive of each."""
import random
import unicodedata

# Characters that agents trim at both ends: Unicode white space, and the byte order mark as in JavaScript.
BLANK = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
UNSEEN = "\u200b\u200e\u200f\ufeff" + "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
LETTERS = list("ab/@$!#\\ \n\t\"'`{}()é日😀;:%&-?~")

FIXED = [
    "a", "1", "y", "?", "!", "/", "@", "$", "#", "-", ";", "\\", "~", "é", "日", "😀", "help", "exit", "quit", ":q", ":wq",
    "!echo hi", "!a\nb\nc\nd\ne @x", "/help", "/help me", "/foo/bar.txt is a path", "# a title", "#remember this", "-x", "--help",
    "& then", "? why", "@README.md is the file", " \n/clear", "\n\n!ls", "\t/x",
    "see @x", "see @", "look at @src/main.rs", "use $x", "see $HOME", "it ends; ", "ends with;", "end\\", "end\\\\", "mail me@x.y",
    "with a newline\n", "and three\n\n\n", "  blanks around  \n", "\n\n  leading lines",
    "say \"hello\" and 'goodbye' and `id` and $(id) and ${HOME} and $HOME", "#{pid} #(touch /tmp/never) %1 C-c Escape",
    "a\r\nb\r\nc", "a\rb", "a\tb\n\tc\t", "to\x1b[201~leave\x1b[200~paste\x07\x00\x7f\x9b mode", "\x1b]0;title\x07text",
    "naïve façade – “quotes” … ‰", "日本語のテキスト、混ぜた English", "שלום עולם مرحبا", "👩‍👩‍👧‍👦 🇩🇪 👍🏽 e\u0301 n\u0303",
    "\ufeffwith a byte order mark", "zero\u200bwidth\u200djoiner", "a\u2028b\u2029c", "x" * 1000, "word " * 3000,
    "```\nfn main() {\n\tprintln!(\"{}\", 1);\n}\n```", "1. one\n2. two\n\n- three\n", "a line\n" * 10, "line of text\n" * 600,
    "é" * 5000, "0123456789abcdef" * 12_500, "0123456789 lines of text, of which there are many\n" * 4000,
]


def some(count, seed, marked=False):
    """`count` texts: the fixed ones (an even selection if fewer are wanted), then random ones. `marked` appends a number to
    each, so that all differ."""
    chance = random.Random(seed)
    chosen = [FIXED[n * len(FIXED) // count] for n in range(count)] if count < len(FIXED) else list(FIXED)
    while len(chosen) < count:
        text = "".join(chance.choice(LETTERS) for _ in range(chance.choice([1, 2, 5, 20, 80, 400])))
        if filtered(text).strip(BLANK):
            chosen.append(text)
    chance.shuffle(chosen)
    return [f"{text.rstrip(BLANK)} (number {n})" if marked else text for n, text in enumerate(chosen)]


def filtered(text):
    """The pool's filter: line ends become line feeds; of the other control characters only tabs stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def arrives(kind, text):
    """Normal form of a text for an agent kind, to compare sent and arrived texts."""
    text = filtered(text).strip(BLANK)
    if kind == "claude":  # it replaces tabs by blanks, and composes letters (NFC)
        text = unicodedata.normalize("NFC", text.replace("\t", "    "))
    if kind == "gemini":  # it drops zero-width characters; the pool puts a word joiner before what would be a command
        text = "".join(c for c in text if c not in UNSEEN).strip(BLANK).removeprefix("\u2060")
    if kind == "opencode":  # the pool puts a word joiner behind words that would end the agent
        text = text.removesuffix("\u2060")
    return text
