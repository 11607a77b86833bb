"""The prompts that are sent, and the rule by which what arrived is compared with them."""
import random
import unicodedata

# What agents take off at the ends: Unicode's white space, and JavaScript's byte order mark.
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
    """So many texts: the fixed ones, evenly chosen where fewer are wanted, then random ones. Where `marked`, each holds a
    number, so that none is like another."""
    chance = random.Random(seed)
    chosen = [FIXED[n * len(FIXED) // count] for n in range(count)] if count < len(FIXED) else list(FIXED)
    while len(chosen) < count:
        text = "".join(chance.choice(LETTERS) for _ in range(chance.choice([1, 2, 5, 20, 80, 400])))
        if filtered(text).strip(BLANK):
            chosen.append(text)
    chance.shuffle(chosen)
    return [f"{text.rstrip(BLANK)} (number {n})" if marked else text for n, text in enumerate(chosen)]


def filtered(text):
    """Without what could leave paste mode: line ends are line feeds, and of the other controls only tabs are left."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def arrives(kind, text):
    """What has to arrive of a text, and what counts of what did arrive."""
    text = filtered(text).strip(BLANK)
    if kind == "claude":  # it writes blanks for tabs, and composes letters
        text = unicodedata.normalize("NFC", text.replace("\t", "    "))
    if kind == "gemini":  # it leaves out what has no width; the pool puts a word joiner before what would be a command
        text = "".join(c for c in text if c not in UNSEEN).strip(BLANK).removeprefix("\u2060")
    if kind == "opencode":  # the pool puts a word joiner behind what would make it leave
        text = text.removesuffix("\u2060")
    return text
