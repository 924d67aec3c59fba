"""The smoke model's own byte-level BPE tokenizer: 3 special tokens, 256 bytes, the rest merges.

The split rule is SmolLM's (`tokenizer.ggml.pre` = "smollm"): each digit alone, then GPT-2's rule; so a digit is always one token.

  python tokenizer.py tokenizer.json        # train on generated questions and save
"""
import random
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

import generate

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]   # ids 0, 1, 2
VOCAB = 448
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def train(questions=20000):
    """Train on the text of generated questions; the same result each time for one version of `tokenizers`."""
    rng = random.Random(3)
    text = []
    for _ in range(questions):
        _, prompt, answer = generate.sample(rng)
        text += [prompt, answer]
    text += generate.SYSTEM * 50 + ["user\n", "assistant\n", "system\n"] * 2000 + [" " + " ".join("abcdefghijklmnopqrstuvwxyz")] * 3000
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(text, trainers.BpeTrainer(vocab_size=VOCAB, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                      special_tokens=[AddedToken(s, special=True) for s in SPECIAL], show_progress=False))
    return tok


def turn(role, content):
    """One message in ChatML, as TEMPLATE writes it."""
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def ask(prompt):
    """A question as the model gets it: the rendered template with the generation prompt."""
    return turn("user", prompt) + "<|im_start|>assistant\n"


if __name__ == "__main__":
    train().save(sys.argv[1])
