"""Writes splits.json: where the regular expressions of the pre-tokenizers cut.

An independent check of the hand-written splitters: the expressions are those of
llama.cpp (src/llama-vocab.cpp), run by Python's `regex` module (2026.5.9 made
the committed file). Each expression cuts the pieces of the one before it; text
between matches is a piece. Ends are byte offsets in UTF-8.

    python3 splits.py > splits.json
"""
import json
import random

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MODERN = (r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# The cased letters that DeepSeek-LLM's tokenizer lists, as ranges.
CASED = ("A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
         "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
         "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
         "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
         "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
         "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
         "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
         "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
         "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
         "\U000118a0-\U000118df\U0001e900-\U0001e943")
CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
# A word of Tekken and GPT-4o, followed by %s: [^a-z] of a letter, then [^A-Z] of a letter.
CAMEL = (r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+%s|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*%s|")
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
# The blocks that llama.cpp takes for Kimi-K2's \p{Han} (src/unicode.cpp, unicode_cpt_is_han).
HAN = "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002ebef\uf900-\ufaff\U0002f800-\U0002fa1f"
# To llama.cpp (src/unicode.cpp) white space outside ASCII is in no set that lists characters.
CJK = "(?V1)[[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]--\\s]+"
PRES = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "qwen2": [MODERN % ""],
    "llama-bpe": [MODERN % "{1,3}"],
    "deepseek-llm": ["[\r\n]", r"\s?[" + CASED + "]+",
                     r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+", r"\s+\Z",
                     CJK, r"\p{N}+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*""" + SPACES],
    "qwen35": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + SPACES],
    "tekken": [CAMEL % ("", "") + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES],
    "gpt-4o": [CAMEL % (CONTRACTION + "?", CONTRACTION + "?") + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES],
    "seed-coder": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + SPACES],
    "bailingmoe": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "kimi-k2": ["(?V1)[" + HAN + r"]+|[^\r\n\p{L}\p{N}]?[\p{L}--[" + HAN + "]]+" + CONTRACTION +
                r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES],
}

TEXTS = [
    "", " ", "  ", "\n", "\t\n \r\n", "a", " a", "a ", "  a  b   ", "\ta\t\tb\n\n c \n", "\n \n\n \n\n\n",
    "In 2024 there are 366 days", "1234567890 12 345", "x1y22z333", "½ ²³ Ⅷ ٣٤٥ 一二三 ①②",
    "I'm you're WE'VE they'll he'D 'sup ''s '' 'Ve 'x 'l 'r", "it's\u2019s don\u2019t", "'re're'll",
    "Hello, world! (really?) [yes] {no} <tag/> a+b=c $5.00 ~/x|y^z `code` @#%&*",
    "!!! ???\n\n...\r\n--\n x", " !\n\nfoo", "foo  !bar", "foo \t!bar", "a\u00a0b\u3000c \u2003 d\u2028e\x85f",
    "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m stra\u00dfe \u0152uvre \u0130stanbul \ua78f\ua790",
    "нещо на Български Ωμέγα ὅτι ᾳ Ნ ꭰ ﬁ ＡＢｃ！？： ｱ", "你好，世界。这是测试 한국어 日本語カタカナ・ひらがな",
    "हिन्दी में e\u0301 ก็ไทย עברית العربية ١٢٣", "🙂👩‍👩‍👧 🇫🇷🦙 x\ufe0f", "a\u0300\u0301b \u20dd", "\x00\x01 \x7f\u200b\ufeffz",
    "    def f(x):\n        return x**2  # done\n\n\nif __name__ == '__main__':\n\tprint(f(3))\n",
    "https://example.com/a_b?c=d&e=%20#f  user@host.org 1.5e-10 0xFF 3,141,592", "𐐀𐐨 𞤀 𝐀𝟗 \U000105a3",
    "trailing   ", "trailing\t\t", "中   ", "中   文 ", " \u3000。 \u3000x", "x \n y \n", "\u2018quoted\u2019 \u201cdouble\u201d",
    "camelCase HTTPServer ABCdefGHI \u00c9COLE \u00e9ABC AB\u00e9CD XMLHttpRequest's IT'S it'LL O'Reilly /path//to\n/x ://\r\n//",
    "a\r\nb\r\n\r\n  c \r d\n\r", "e\u0301t\u0301 \u0301x \u0301\u0301 .\u0301 1\u0301 \u0bbe\u0bbf\u093f\u093e!\u0301",
    "x\u2028y\u2028\u2028z \u2029\u2028\n", "\u00a0\u00a0a \u00a0\n\u00a0b", "!na\u00efve #Tag $x_y <b>\u00e9</b> ~\u00e9 (\u4f60\u597d)OK",
    "\u3040\u3042\u30ab\u30fc\u6f22\u5b57kanji\u9fa6\u3400 \u4e2d \u4e2d's", "\u0660\u0661\u0662\u0663\u0664 1234567 12345x 1a22b333c4444",
]

def cut(pieces, pattern):
    out = []
    for piece in pieces:
        at = 0
        for m in regex.finditer(pattern, piece):
            if m.start() > at:
                out.append(piece[at:m.start()])
            if m.end() > m.start():
                out.append(m.group())
            at = m.end()
        if at < len(piece):
            out.append(piece[at:])
    return out

def ends(text, pre):
    pieces = [text] if text else []
    for pattern in PRES[pre]:
        pieces = cut(pieces, pattern)
    assert "".join(pieces) == text
    out, n = [], 0
    for p in pieces:
        n += len(p.encode())
        out.append(n)
    return out

def main():
    rng = random.Random(1)
    alphabet = list("  \t\n\r'''aAbsStTrReEvVmMlLdD0123.,!?-_$+<=>^~|`#") + list("éßЖΩᾳ中。한ไ½²٣①🙂\u0301\u00a0\u3000\u2019Ａ！BxÉ/あ\u2028\u093f")
    texts = TEXTS + ["".join(rng.choice(alphabet) for _ in range(rng.randint(2, 40))) for _ in range(160)]
    for text in texts:
        row = {"text": text, "ends": {pre: ends(text, pre) for pre in PRES}}
        print(("[" if text is texts[0] else ",") + json.dumps(row, ensure_ascii=True, separators=(",", ":")))
    print("]")

main()
