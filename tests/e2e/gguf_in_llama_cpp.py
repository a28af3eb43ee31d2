"""A model that we exported as GGUF, in llama.cpp: the same ids of texts, the same greedy tokens, the same template.

usage: gguf_in_llama_cpp.py TIGHTLOOP FILE.gguf MODEL COUNT [EXPORT]

MODEL is the run that FILE came from, EXPORT its Hugging Face export. All texts must become the same ids. COUNT prompts are continued
greedily by 32 tokens, in fp32, by both; where the two part, llama.cpp's own logits must say that the two tokens are a
near-tie: TIE or less apart (logits are some units wide). Of the two continuations only what comes before is compared.
Where a text ends here, llama.cpp must choose a token that ends it there. Prints one line.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy

MOST = 32
# llama.cpp rounds GELU of gpt2 through a table of fp16; the others differ by sums in another order alone.
TIE = {"gpt2": 2e-2}
program, file, source = sys.argv[1:4]
count = int(sys.argv[4])
TEXTS = [
    "Hello, world!", " leading space", "trailing space ", "two  spaces and\ttabs\t\tthere", "line\nline\n\nline\r\n\r\n",
    "I'll say it's 'fine', they're HERE'S we've I'M", "1 12 123 1234 12345 3.14159 0x1F", "Größe, naïve, ÉCOLE, straße",
    "你好，世界。今天天气很好！", "日本語のテキスト ひらがな カタカナ", "Привет, мир! Как дела?", "مرحبا بالعالم", "🦙🦙 family 👨‍👩‍👧‍👦 ok",
    "def f(x):\n    return x**2  # squared\n", "{\"key\": [1, 2.5, null], \"b\": true}", "a" * 100, "-" * 30 + "=====",
    "https://example.org/a?b=c&d=%20", "snake_case camelCase UPPER", "<think>\nnot a mark</think>", "x\n  y\n    z\n",
    "Once upon a time there was a cat", "To be, or not to be, that is the question:", "$%^&*()[]{}|\\;:'\",.<>/?`~",
]
PROMPTS = ["Once upon a time", "The king said", "What is", "In the beginning", "O Romeo", "My lord", "There was a", "I have",
           "Good night", "How many", "The cat", "First Citizen:", "Enter", "And then", "Speak", "If it were", "Never", "A horse",
           "Thou art", "Why"]


def tightloop(*arguments, **more):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"{arguments}: {done.stderr.decode()}")
    return done.stdout.decode()


model = llama_cpp.Llama(file, n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False, logits_all=True,
                        type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, flash_attn=False, seed=0)
architecture = model.metadata["general.architecture"]


def encode(text, special):
    return model.tokenize(text.encode(), add_bos=False, special=special)


def our_ids(text, special):
    return json.loads(tightloop("tokenizer", "encode", "--tokenizer", file, "--special", special, input=text.encode()))


def compare_texts():
    """Ids of each text and of all at once, with special tokens spelled out and as such."""
    marks = "".join(f"{token} a{token}b" for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>"))
    texts = TEXTS + ["\n".join(TEXTS), marks]
    for text in texts:
        for special in ("text", "parse"):
            if special == "text" and "<think>" in text:
                continue  # llama.cpp takes added tokens that are not special for what they are, always
            ours, theirs = our_ids(text, special), encode(text, special == "parse")
            if ours != theirs:
                raise SystemExit(f"{text!r} ({special})\n  ours   {ours}\n  theirs {theirs}")
    return len(texts)


def greedy(prompt):
    """llama.cpp's greedy tokens, and the logits that each was chosen by."""
    model.reset()
    model.eval(prompt)
    tokens, logits = [], []
    for _ in range(MOST):
        scores = numpy.array(model.scores[model.n_tokens - 1], copy=True)
        tokens.append(int(scores.argmax()))
        logits.append(scores)
        model.eval([tokens[-1]])
    return tokens, logits


def compare_tokens(folder):
    prompts = (PROMPTS * 2)[:count]
    (folder / "prompts.txt").write_text("\n".join(prompts) + "\n")
    answers = json.loads(tightloop("generate", "--model", source, "--device", "cpu", "--precision", "fp32", "--prompts",
                                   folder / "prompts.txt", "--max-tokens", MOST, "--temperature", 0, "--json"))["results"]
    vocabulary = llama_cpp.llama_model_get_vocab(model.model)
    compared = ties = 0
    widest = 0.0
    distinct = set()
    for prompt, answer in zip(prompts, answers, strict=True):
        theirs, logits = greedy(our_ids(prompt, "default"))
        ours = answer["ids"]
        distinct.update(ours)
        for at, (a, b) in enumerate(zip(ours, theirs)):
            if a == b:
                compared += 1
                continue
            gap = float(logits[at][b] - logits[at][a])
            if gap > TIE.get(architecture, 1e-3):
                raise SystemExit(f"{prompt!r}, token {at}: {a} here and {b} in llama.cpp, {gap} apart")
            ties += 1
            widest = max(widest, gap)
            break  # from here on the texts differ
        else:
            ended = len(ours) < MOST
            if ended and not llama_cpp.llama_vocab_is_eog(vocabulary, theirs[len(ours)]):
                raise SystemExit(f"{prompt!r}: it ends here after {len(ours)} tokens, and in llama.cpp {theirs[len(ours)]} comes")
            compared += ended
    if len(distinct) < 2 * count:
        raise SystemExit(f"only {len(distinct)} different tokens came: this model says too little")
    return compared, len(distinct), ties, widest


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    texts = compare_texts()
    compared, distinct, ties, widest = compare_tokens(folder)
    spread = float(numpy.std(model.scores[0]))
    if len(sys.argv) > 5:  # a Hugging Face export of the same model
        config = json.loads((pathlib.Path(sys.argv[5]) / "tokenizer_config.json").read_text())
        template = pathlib.Path(sys.argv[5]) / "chat_template.jinja"
        expected = template.read_text() if template.exists() else config.get("chat_template")
        if model.metadata.get("tokenizer.chat_template") != expected:
            raise SystemExit("the chat template is another one")
    print(f"{architecture}: {texts} texts, {compared} tokens the same ({distinct} different ones), {ties} near-ties (up to {widest:.2g} of logits "
          f"with a deviation of {spread:.2g})")
