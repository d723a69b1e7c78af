#!/usr/bin/env python3
"""Writes canzona/data/generated/unicode_tables.inc from the Unicode character database.

    pip install unicodedata2==16.0.0
    python3 scripts/unicode_tables.py > canzona/data/generated/unicode_tables.inc

The file is the same, byte for byte, wherever it is made.

Letters and numbers are those of Unicode 16.0, which the regular expressions of
the tokenizers library know. Its normalizer knows Unicode 9.0: marks and
compositions that came later (NEWER_MARKS, NEWER_COMPOSED) are left out, so that
the same text gives the same tokens.
"""
import sys

import unicodedata2 as unicode

VERSION = "16.0.0"

HEADING = f"""\
// Generated data, not to be edited: letters, numbers, combining classes and
// decompositions of Unicode {VERSION}. These two commands write this file, the
// same bytes on every machine:
//
//   pip install unicodedata2=={VERSION}
//   python3 scripts/unicode_tables.py > canzona/data/generated/unicode_tables.inc
//
// clang-format off"""

# Characters with a combining class, and composed ones, newer than Unicode 9.0.
NEWER_MARKS = """
7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1ace 1df6-1dfa a82c
10d24-10d27 10d69-10d6d 10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 11070
1133b 113ce-113d0 1145e 11839-1183a 1193d-1193e 11943 119e0 11a34 11a47 11a99
11d42 11d44-11d45 11d97 11f41-11f42 1612f 16ff0-16ff1 1e08f 1e130-1e136 1e2ae
1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef
"""
NEWER_COMPOSED = """
105c9 105e4 11383 11385 1138e 11391 113c5 113c7-113c8 11938 16121-16128
16d68-16d6a
"""


def parse_ranges(text):
    codes = set()
    for word in text.split():
        first, _, last = word.partition("-")
        codes.update(range(int(first, 16), int(last or first, 16) + 1))
    return codes


def every_character():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def ranges_of(values):
    """[(first, last, value)] of neighbours with the same value; None: no part."""
    rows = []
    for code, value in values:
        if value is None:
            continue
        if rows and rows[-1][1] == code - 1 and rows[-1][2] == value:
            rows[-1][1] = code
        else:
            rows.append([code, code, value])
    return rows


def general(letter):
    return ranges_of(
        (c, 0 if unicode.category(chr(c))[0] == letter else None)
        for c in every_character()
    )


def combining_classes():
    newer = parse_ranges(NEWER_MARKS)
    return ranges_of(
        (c, None if c in newer else unicode.combining(chr(c)) or None)
        for c in every_character()
    )


def decompositions():
    """(code, first, second, composes); second 0: one character alone."""
    newer = parse_ranges(NEWER_COMPOSED)
    rows = []
    for c in every_character():
        text = unicode.decomposition(chr(c))
        if not text or text.startswith("<") or c in newer:
            continue
        parts = [int(word, 16) for word in text.split()]
        second = parts[1] if len(parts) == 2 else 0
        # Some are never put together again.
        composes = second and unicode.normalize("NFC", chr(c)) == chr(c)
        rows.append((c, parts[0], second, composes))
    return rows


def wrapped(items):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 80:
            lines.append(line)
            line = "   "
        line += " " + item + ","
    return "\n".join(lines + [line])


def array(type_name, name, items):
    items = list(items)
    return (
        f"constexpr std::array<{type_name}, {len(items)}> {name} = {{{{\n"
        f"{wrapped(items)}\n}}}};\n"
    )


def main():
    if unicode.unidata_version != VERSION:
        sys.exit(f"expected Unicode {VERSION}, found {unicode.unidata_version}")
    pairs = decompositions()
    print(HEADING)
    print('#include "canzona/data/unicode.h"\n')
    print("#include <array>\n\nnamespace canzona::data {\nnamespace {\n")
    for letter, name in (("L", "kLetters"), ("N", "kNumbers")):
        rows = general(letter)
        print(array("CodeRange", name, (f"{{0x{a:x},0x{b:x}}}" for a, b, _ in rows)))
    rows = combining_classes()
    print(
        array(
            "ClassRange",
            "kCombining",
            (f"{{0x{a:x},0x{b:x},{value}}}" for a, b, value in rows),
        )
    )
    print(
        array(
            "Decomposition",
            "kDecompositions",
            (
                f"{{0x{c:x},0x{a:x},0x{b:x},{int(bool(composes))}}}"
                for c, a, b, composes in pairs
            ),
        )
    )
    print("}  // namespace\n")
    for type_name, function, name in (
        ("CodeRange", "letter_ranges", "kLetters"),
        ("CodeRange", "number_ranges", "kNumbers"),
        ("ClassRange", "combining_ranges", "kCombining"),
        ("Decomposition", "decompositions", "kDecompositions"),
    ):
        print(f"std::span<const {type_name}> {function}() {{ return {name}; }}")
    print("\n}  // namespace canzona::data")


if __name__ == "__main__":
    main()
