#!/usr/bin/env python3
"""Makes qwen.json, llama.json and golden.jsonl beside it.

    pip install tokenizers==0.23.3
    python3 tests/data/tokenizers/make.py

Two small byte-level BPE tokenizers with the normalizers, pre-tokenizers,
decoders and post-processors of Qwen 3 and of Llama 3, trained on the texts
below, and the tokens that the tokenizers library gives for each text. merges
are pairs in one file and strings in the other.
"""
import json
import os
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from tokenizers import normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEXTS = [
    "",
    " ",
    "a",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog. The dog doesn't mind.",
    "I'm sure they've seen it; we'll see, she'd said, it's what you're after.",
    "I'M SURE THEY'VE SEEN IT; WE'LL SEE, SHE'D SAID, IT'S WHAT YOU'RE AFTER.",
    "'S 'tis 'Tis 'sa 'lL 'Ll 'rE 'Vex 'x 'é '\u017f 'l 'r 'v ' 's's's",
    "rock'n'roll can't won't o'clock ''s '''d",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F 2026-11-17",
    "½ ² ٣٤٥ १२३४ 一二三 Ⅷ ⅷ ①②③④ 𝟘𝟙𝟚𝟛 𐄇𐄈",
    "a  b   c    d     e",
    "  leading and trailing  ",
    "tab\there\t\ttwo\t \tmixed \t",
    "line\nline\n\nline\r\nline\r\n\r\n  indented\n\t\tmore\n \n \n x",
    "\n",
    "\n\n\n",
    " \n \n ",
    "\r\r\n\n \r",
    "end.\n\n\nNext!\n\n?!\r\n\r\n...\n",
    "   \n   x   \n\n   y",
    "no\u00a0break\u2003em\u3000ideographic\u1680ogham\u2028line\u2029para\u0085nel",
    "\u00a0\u00a0x \u00a0 x\u2009\u2009\u2009",
    "zero\u200bwidth\u200djoiner\ufeffbom\u2060",
    "\u001c\u001d\u001e\u001f x\u000b\u000cy\u0000z\u007f",
    "{'key': \"value\", [1, 2]: (3, 4)} // comment /* more */ #include <x.h>",
    "def f(x):\n    return x ** 2  # square\n\n\nif __name__ == '__main__':\n\tf(3)\n",
    "https://example.org/path?query=1&other=%20#frag user@example.com",
    "Ein Straßenbahnführer übt täglich Äpfel, Öl und Übermut.",
    "L'été où l'œuvre naïve déçut, ça s'est passé à Noël.",
    "¿Cómo estás, señor? ¡Mañana será otro día!",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň. Đuro, şiir, ığdır.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ἀρχὴ ἥμισυ παντός",
    "日本語のテキストは、空白なしで書かれます。カタカナとひらがな。ｶﾞｷﾞ",
    "中文没有空格，标点符号也不同！３．１４",
    "한국어는 띄어쓰기를 한다. 각갂간",
    "\u1100\u1161\u11a8 \u1100\u1161 \uac00\u11a8 \u1112\u1175\u11ab",
    "العربية من اليمين إلى اليسار، مُشَكَّلَة",
    "עברית נכתבת מימין לשמאל. שָׁלוֹם",
    "हिन्दी में लिखा हुआ पाठ। क़ ख़ ड़ ढ़",
    "தமிழ் எழுத்து. ไทยไม่มีช่องว่าง ພາສາລາວ ភាសាខ្មែរ မြန်မာ",
    "ქართული Հայերեն አማርኛ ᏣᎳᎩ ᓄᓇᕗᑦ",
    "emoji 😀😃 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☺ 1️⃣ \U0001fae8",
    "math ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α∧¬β, ∑ᵢ xᵢ², 𝔸𝕓𝒞",
    "cafe\u0301 A\u030a \u212b \u2126 e\u0323\u0302 e\u0302\u0323 \u0344 \u0958",
    "o\u0328\u0304 o\u0304\u0328 \u01ed a\u0315\u0300\u05ae\u0062 \u09c7\u09be",
    "\u0300\u0301lone marks \u0338= =\u0338 <\u0338 \u0cc6\u0cc2\u0cd5",
    "\uf900\ufa0e\U0002f800 \u2adc \u0f73 \u0f75\u0f80\u0f71",
    "\U0001d15e\U0001d1bc \U000110a5\U000110ba \U00011131\U00011127",
    "\u0928\u093c \u0929 \u30ab\u3099 \u304b\u3099\u309a",
    "<|endoftext|>",
    "before<|endoftext|>after <|im_start|>user\nHi<|im_end|>\n<|im_start|>",
    "<|endoftext|><|endoftext|> <|endoftext| <|im_startx|> <think>a</think>",
    "<<|endoftext|>> <|end<|endoftext|>",
    "caf\u00e9! cafe\u0301! named \u00c5ngstr\u00f6m A\u030angstro\u0308m",
    "x" * 300,
    "ab" * 200 + " " * 77 + "!" * 130 + "\n" * 50,
    "aaaa aaaaa aaaaaa aaaaaaa\naaaaaaaa",
    "ſtreet ſ's ſ Ｆｕｌｌ ﬁ ﬀ ǅ ʰ ª º µ",
    "\U0010ffff\U000e0001\ufffd\ufffe\ue000 private",
    "a_b __init__ snake_case CamelCase SCREAMING_CASE kebab-case",
    "!!! ??? ... --- *** === ~~~ ``` $$$ €£¥ §¶ « » „“ ‘’ …",
    " !a !1 ! \n!\n! a!\r\nb",
    "\t!x \t! \u00a0! \u3000\uff01",
]


def random_texts():
    """Anything beside anything."""
    random.seed(7)
    pieces = [
        "a", "B", "é", "e\u0301", "ß", "я", "あ", "漢", "한", "\u1100\u1161",
        "\u0301", "\u0327", "1", "23", "٣", "½", " ", "  ", "\n", "\r\n", "\t",
        "\u00a0", "\u3000", "'", "'s", "'LL", ".", "!?", "_", "-", "😀",
        "\u200d", "<|im_end|>", "<think>", "the", " the", "\u0915\u093c",
        "\U0001d165", "\ufeff", "\u0000",
    ]
    return [
        "".join(random.choice(pieces) for _ in range(random.randint(2, 24)))
        for _ in range(60)
    ]


def train(digits, normalizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN % digits), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=640,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(TEXTS * 2, trainer)
    return tokenizer


def special(name):
    return AddedToken(name, special=True, normalized=False)


def make_qwen():
    tokenizer = train("", normalizers.NFC())
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([special(name) for name in names])
    plain = [AddedToken(n, normalized=False) for n in ("<think>", "</think>")]
    # Found in the normal form, whatever form the text has.
    plain.append(AddedToken("\u00c5ngstr\u00f6m", normalized=True))
    tokenizer.add_tokens(plain)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return json.loads(tokenizer.to_str())


def make_llama():
    tokenizer = train("{1,3}", None)
    names = ["<|begin_of_text|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"]
    tokenizer.add_special_tokens([special(name) for name in names])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
                special_tokens=[("<|begin_of_text|>", begin)],
            ),
        ]
    )
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    merges = data["model"]["merges"]
    # Words that no merges lead to, which ignore_merges finds as wholes.
    del merges[20:200:3]
    data["model"]["merges"] = [" ".join(pair) for pair in merges]
    return data



def write(name, data):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as out:
        json.dump(data, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")


def main():
    write("qwen.json", make_qwen())
    write("llama.json", make_llama())
    qwen = Tokenizer.from_file(os.path.join(HERE, "qwen.json"))
    llama = Tokenizer.from_file(os.path.join(HERE, "llama.json"))
    with open(os.path.join(HERE, "golden.jsonl"), "w") as out:
        for text in TEXTS + random_texts():
            row = {
                "text": text,
                "nfc": qwen.normalizer.normalize_str(text),
                "qwen": qwen.encode(text, add_special_tokens=False).ids,
                "llama": llama.encode(text, add_special_tokens=False).ids,
            }
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
