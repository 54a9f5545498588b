#!/usr/bin/env python3
"""Writes char_class_ranges.inc: the character classes of the pre-tokenisation patterns.

The classes are read out of the regular-expression engine of the `tokenizers` package (pip install tokenizers), so that
they carry the Unicode version that the official encoder uses, whatever the version of the ICU on this machine.

    python make_char_classes.py > char_class_ranges.inc
"""

from tokenizers import Regex, __version__, pre_tokenizers

# Bits of char_classes.h.
PATTERNS = {
    1: r"\p{L}",
    2: r"\p{M}",
    4: r"[\p{P}\p{S}]",
    8: r"\p{N}",
    16: r"\s",
    32: r"[\r\n]",
    64: "[一-龥぀-ゟ゠-ヿ]",
}
OTHER = 128
BASIC = 1 | 2 | 4 | 8 | 16


def members(pattern, text):
    """Positions of `text` that match the one-character pattern."""
    rest = pre_tokenizers.Split(Regex(pattern + "+"), "removed").pre_tokenize_str(text)
    unmatched = set()
    for _, (begin, end) in rest:
        unmatched.update(range(begin, end))
    return [i for i in range(len(text)) if i not in unmatched]


def main():
    scalars = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    text = "".join(map(chr, scalars))
    bits = [0] * 0x110000
    for bit, pattern in PATTERNS.items():
        for i in members(pattern, text):
            bits[scalars[i]] |= bit
    for code_point in range(0x110000):
        if not bits[code_point] & BASIC:
            bits[code_point] |= OTHER
    starts = [c for c in range(0x110000) if c == 0 or bits[c] != bits[c - 1]]
    print(f"// Written by make_char_classes.py from tokenizers {__version__}: {{first code point, classes}} of each range. Do not edit.")
    line = ""
    for start in starts:
        entry = f"{{0x{start:X}, {bits[start]}}},"
        if len(line) + len(entry) + 1 > 138:
            print(line)
            line = ""
        line += (" " if line else "") + entry
    print(line)


if __name__ == "__main__":
    main()
