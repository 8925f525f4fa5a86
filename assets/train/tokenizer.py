"""The tokenizer: a byte-level BPE trained on the generated text, with LLaDA's pre-tokenizer and special tokens.

    python tokenizer.py OUT.json      train and save (Hugging Face `tokenizers` format)
"""

import random
import sys
from collections import Counter

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

import data
import facts

VOCABULARY = 3072
BOS, EOS, MASK = "<|startoftext|>", "<|endoftext|>", "<|mdm_mask|>"
START_HEADER, END_HEADER, EOT = "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"
SPECIAL = [BOS, EOS, MASK, START_HEADER, END_HEADER, EOT]

# llama.cpp's `bailingmoe` split: words with one leading character, single digits, runs of marks, white space
SPLIT = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first %}{{ bos_token }}{% endif %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)


def corpus(samples=60_000, seed=3):
    """Every task's text; the words to be spelled are left out so that they stay split into short pieces."""
    rng = random.Random(seed)
    for _ in range(samples):
        sample = data.draw(rng, rng.choice(list(data.TESTED)))
        spelled = sample.letters or sample.task == "spelling"
        yield "user\n\n"
        yield "assistant\n\n"
        yield "system\n\n"
        if spelled:
            word = sample.answer[::-1] if sample.letters else sample.answer.replace("-", "")
            yield sample.prompt.replace(word, "")
        else:
            yield sample.prompt
        if not sample.letters:
            yield sample.answer
        for piece, _ in sample.pieces or []:
            yield piece


def untrained(bpe):
    """A tokenizer around a BPE model, with LLaDA's split."""
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train(path):
    """Merges that build a text piece from its start, one letter at a time, the most frequent beginnings first.

    So a common word is one token, and a word that isn't is a known beginning and then single letters. Pieces that begin
    with a small letter are left alone, because their merges would also apply within words; but for the role names.
    Beginnings of words whose spelling is tested stay short enough to be met in other words.
    """
    split, alphabet = untrained(models.BPE()).pre_tokenizer, sorted(pre_tokenizers.ByteLevel.alphabet())
    counts = Counter(piece for text in corpus() for piece, _ in split.pre_tokenize_str(text))
    beginnings = Counter()
    for piece, count in counts.items():
        if not piece[0].islower():
            for end in range(2, len(piece) + 1):
                beginnings[piece[:end]] += count
    roles = ["us", "use", "user", "ss", "ass", *("assistant"[:end] for end in range(4, 10))]
    tested = {" " + word for word in facts.SPELLING_WORDS if data.held_out(data.word_key(word))}
    tested = {word[:end].replace(" ", "Ġ") for word in tested for end in range(6, len(word) + 1)}
    beginnings = {piece: count for piece, count in beginnings.items() if not any(piece[:end] in tested for end in (6, 7, 8))}
    chosen = sorted(beginnings, key=lambda piece: (-beginnings[piece], len(piece), piece))
    chosen = chosen[: VOCABULARY - len(SPECIAL) - len(alphabet) - len(roles)] + roles
    merges = [("a", "ss") if piece == "ass" else (piece[:-1], piece[-1]) for piece in chosen]
    tokenizer = untrained(models.BPE({token: index for index, token in enumerate(alphabet + chosen)}, merges))
    tokenizer.add_special_tokens(SPECIAL)
    assert tokenizer.get_vocab_size() == VOCABULARY, tokenizer.get_vocab_size()
    tokenizer.save(str(path))


class Text:
    """Text to token ids and back, with the chat format and the special ids at hand."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.bos, self.eos, self.mask, self.start_header, self.end_header, self.eot = map(
            self.tokenizer.token_to_id, SPECIAL
        )
        self.cache = {}

    @classmethod
    def load(cls, path):
        return cls(Tokenizer.from_file(str(path)))

    def encode(self, text):
        """Plain text: special tokens typed in it stay text."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def header(self, role):
        if role not in self.cache:
            blank_line = self.encode("\n\n")
            self.cache[role] = [self.start_header, *self.encode(role), self.end_header, *blank_line]
        return self.cache[role]

    def chat(self, prompt):
        """One user turn and the opening of the answer, as the chat template writes it."""
        return [self.bos, *self.header("user"), *self.encode(prompt.strip()), self.eot, *self.header("assistant")]

    def answer(self, sample):
        """The answer's tokens, ended by the end-of-turn token."""
        pieces = sample.answer if sample.letters else [sample.answer]
        return [token for piece in pieces for token in self.encode(piece)] + [self.eot]

    def decode(self, tokens):
        """The text without special tokens."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True)


if __name__ == "__main__":
    train(sys.argv[1])
