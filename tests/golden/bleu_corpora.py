"""Random corpora for BLEU and chrF with sacreBLEU's scores of them."""
import random

from sacrebleu.metrics import BLEU, CHRF

WORDS = (
    "the a cat dog sat on mat , . ! ? ; : 'tis don't well-known 3.14 1,000 2-3 20-year-old U.S. e.g. x.y .5 5. ( ) [ ] "
    '" &quot; &amp; &lt;b&gt; <skipped> $5 50% a/b {x} ~ ^ _ Straße ÄRGER naïve İstanbul ΣΟΦΟΣ ΟΔΌΣ. Москва Ёж ǅ '
    "我 爱 你们 我爱你。 「中文」 漢字 日本語 カタカナ ｶﾅ ２０２６ … — “quoted” • ☃ ❤️ 😀 👩‍👩‍👧 𠀀 한국어 عربى हिन्दी ไทย"
).split(" ")
SPACES = [" ", "  ", "\t", "\u00a0", "\u3000", "\u2009", "\x1c", ""]
TOKENIZERS = ["none", "13a", "zh", "char"]


def sentence(rng):
    parts = []
    for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 13, 21])):
        parts.append(rng.choice(WORDS))
        parts.append(" " if rng.random() < 0.8 else rng.choice(SPACES))
    return "".join(parts)


def damaged(rng, text):
    """The sentence with characters and words lost, doubled and exchanged."""
    parts = list(text) if rng.random() < 0.3 else text.split(" ")
    joint = "" if len(parts) == len(text) else " "
    result = []
    for part in parts:
        chance = rng.random()
        if chance < 0.1:
            continue
        result.append(part if chance > 0.2 else rng.choice(WORDS))
        if chance > 0.95:
            result.append(part)
    if result and rng.random() < 0.2:
        rng.shuffle(result)
    return rng.choice([joint.join(result)] * 5 + [joint.join(result).upper(), "", text])


def scored(name, tokenize, lowercase, references, hypotheses):
    bleu = BLEU(tokenize=tokenize, lowercase=lowercase)
    one = BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=True)
    chrf = CHRF(lowercase=lowercase)
    return {
        "name": name,
        "tokenize": tokenize,
        "lowercase": lowercase,
        "references": references,
        "hypotheses": hypotheses,
        "bleu": bleu.corpus_score(hypotheses, [references]).score,
        "chrf": chrf.corpus_score(hypotheses, [references]).score,
        "sentences": [
            [one.sentence_score(h, [r]).score, chrf.sentence_score(h, [r]).score] for h, r in zip(hypotheses, references)
        ],
    }


def corpora(count, seed, most):
    rng = random.Random(seed)
    for number in range(count):
        references = [sentence(rng) for _ in range(rng.randint(1, most))]
        hypotheses = [damaged(rng, text) for text in references]
        yield scored("random", TOKENIZERS[number % 4], number // 4 % 2 == 1, references, hypotheses)
