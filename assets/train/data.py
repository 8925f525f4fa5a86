"""The training data: a generator per task, and the rule that keeps held-out items apart.

Every generator returns a Sample with a key. Keys whose hash falls in one tenth of the range are held out: training
never draws them in any wording, the tests draw nothing else. Numbers share their keys across tasks (a held-out sum is
held out as a word problem and as a blank too); for facts, where a fact that was never shown cannot be known, the
combination of wording and fact is what is held out.

    python data.py                    print a few samples of each task
    python data.py --write ../        write heldout.jsonl, heldout_infill.jsonl and demo.jsonl
"""

import argparse
import json
import random
import zlib
from dataclasses import dataclass
from pathlib import Path

import facts

TASKS = {}
INFILL = "infill"
ALWAYS_TRAINED = None  # the key of samples that are never held out


@dataclass
class Sample:
    prompt: str  # empty for raw text
    answer: str
    key: tuple
    letters: bool = False  # the answer is written one letter per token
    pieces: list = None  # raw text only: (text, is_blank) in order
    task: str = ""


def task(function):
    TASKS[function.__name__] = function
    return function


def held_out(key):
    return key is not ALWAYS_TRAINED and zlib.crc32(repr(key).encode()) % 10 == 0


def worded(rng, kind, item, templates, **values):
    """One of the templates filled in, with a key for this wording of this item."""
    index = rng.randrange(len(templates))
    return templates[index].format(**values), (kind, index, item)


def restyle(rng, prompt):
    """As people type: sometimes in lower case, sometimes without the final mark."""
    if rng.random() < 0.25:
        prompt = prompt.lower()
    if rng.random() < 0.3:
        prompt = prompt.rstrip(".?!")
    return prompt


# Lists, calendar, capitals, facts, small talk

NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


@task
def lists(rng):
    name = rng.choice([*facts.LISTS, "planets", "months of the year", "days of the week"])
    members = facts.LISTS[name]
    shown = name
    if name in facts.SHORT_LIST_NAMES and rng.random() < 0.35:
        shown = rng.choice(facts.SHORT_LIST_NAMES[name])
    if len(members) > 6 and rng.random() < 0.25:
        count = rng.choice(list(NUMBER_WORDS))
        prompt, key = worded(
            rng, "first members", (name, count),
            ["List the first {n} {x}.", "Name the first {n} {x}.", "What are the first {n} {x}?"],
            x=name, n=rng.choice([count, NUMBER_WORDS[count]]),
        )
        return Sample(prompt, ", ".join(members[:count]), key)
    prompt, key = worded(
        rng, "list", name,
        [
            "List the {x} separated by commas.", "List the {x}.", "Name the {x}.", "What are the {x}?",
            "List all the {x}.", "Name all the {x}.", "Tell me the {x}.", "Write the {x} in order.",
            "Can you list the {x}?", "Give me a list of the {x}.", "{x}",
        ],
        x=shown,
    )
    return Sample(prompt, ", ".join(members), key)


@task
def calendar(rng):
    kind = rng.randrange(3)
    if kind == 2:
        month = rng.choice(facts.MONTHS)
        prompt, key = worded(
            rng, "month length", month,
            ["How many days are in {x}?", "How many days does {x} have?", "How long is {x}?"], x=month,
        )
        return Sample(prompt, f"{month} has {facts.MONTH_DAYS[month]} days.", key)
    names, unit = (facts.DAYS, "day") if kind == 0 else (facts.MONTHS, "month")
    index = rng.randrange(len(names))
    step = rng.choice([1, -1])
    side = "after" if step == 1 else "before"
    prompt, key = worded(
        rng, "neighbour", (names[index], side),
        ["What {unit} comes {side} {x}?", "Which {unit} comes {side} {x}?", "What {unit} is {side} {x}?",
         "What comes {side} {x}?", "Name the {unit} {side} {x}."],
        unit=unit, side=side, x=names[index],
    )
    return Sample(prompt, names[(index + step) % len(names)], key)


@task
def capitals(rng):
    country, city = rng.choice(list(facts.CAPITALS.items()))
    if rng.random() < 0.25:
        prompt, key = worded(
            rng, "country of", country,
            ["{x} is the capital of which country?", "What country has the capital {x}?",
             "Which country has {x} as its capital?", "What is {x} the capital of?"],
            x=city,
        )
        return Sample(prompt, f"{city} is the capital of {country}.", key)
    prompt, key = worded(
        rng, "capital of", country,
        ["What is the capital of {x}?", "What is the capital city of {x}?", "Name the capital of {x}.",
         "Which city is the capital of {x}?", "Tell me the capital of {x}.", "The capital of {x} is",
         "What's the capital of {x}?", "Capital of {x}?", "Do you know the capital of {x}?"],
        x=country,
    )
    return Sample(prompt, f"The capital of {country} is {city}.", key)


@task
def general(rng):
    if rng.random() < 0.5:
        question, answer = rng.choice(list(facts.FACTS.items()))
        prompt, key = worded(
            rng, "fact", question, ["{x}", "Tell me: {x}", "Question: {x}", "I have a question. {x}"],
            x=question,
        )
        return Sample(prompt, answer, key)
    word, opposite = rng.choice(list(facts.OPPOSITES.items()))
    if rng.random() < 0.5:
        word, opposite = opposite, word
    prompt, key = worded(
        rng, "opposite", word,
        ["What is the opposite of {x}?", "Give the opposite of {x}.", "Name the opposite of {x}.",
         "Opposite of {x}?"],
        x=word,
    )
    return Sample(prompt, f"The opposite of {word} is {opposite}.", key)


@task
def chat(rng):
    questions, answer = rng.choice(facts.SMALL_TALK)
    question = rng.choice(questions)
    opening = rng.choice(["", "", "", "Hey, ", "Please tell me: ", "Hi. ", "I want to ask: ", "Well, "])
    key = ("chat", opening, question) if opening else ALWAYS_TRAINED
    if question.endswith("."):
        question = question[:-1] + rng.choice([".", "!"])
    return Sample(opening + question, answer, key)


# Numbers

OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "x": lambda a, b: a * b}


def equation(sign, a, b):
    return f"{a} {sign} {b} = {OPERATIONS[sign](a, b)}"


def operands(rng, sign):
    """Two numbers below 100, small ones more often; a difference is never negative."""
    top = rng.choice([20, 100, 100])
    a, b = rng.randrange(top), rng.randrange(top)
    return (max(a, b), min(a, b)) if sign == "-" else (a, b)


ANY_SIGN = ["What is {a} {s} {b}?", "{a} {s} {b}", "{a} {s} {b} =", "{a}{s}{b}", "Calculate {a} {s} {b}.",
            "How much is {a} {s} {b}?", "What's {a} {s} {b}?", "Compute {a} {s} {b}.", "{a} {s} {b} = ?"]
IN_WORDS = {
    "+": ["What is {a} plus {b}?", "Add {a} and {b}.", "What is the sum of {a} and {b}?", "{a} plus {b}"],
    "-": ["What is {a} minus {b}?", "Subtract {b} from {a}.", "{a} minus {b}"],
    "x": ["What is {a} times {b}?", "Multiply {a} by {b}.", "{a} times {b}"],
}


@task
def sums(rng):
    sign = rng.choice("++-")
    a, b = operands(rng, sign)
    template = rng.choice(ANY_SIGN if rng.random() < 0.7 else IN_WORDS[sign])
    return Sample(template.format(a=a, b=b, s=sign), equation(sign, a, b), (sign, a, b))


@task
def times_table(rng):
    a, b = rng.randint(0, 10), rng.randint(0, 10)
    prompt, key = worded(
        rng, "x", (a, b), ANY_SIGN + IN_WORDS["x"], a=a, b=b, s=rng.choice("xx*"),
    )
    return Sample(prompt, equation("x", a, b), key)


@task
def word_problems(rng):
    boys = rng.random() < 0.5
    name = rng.choice(facts.BOYS if boys else facts.GIRLS)
    pronoun = "He" if boys else "She"
    other = rng.choice(facts.GIRLS if boys else facts.BOYS)
    items = rng.choice(facts.ITEMS)
    kind = rng.choice(["more", "more", "less", "less", "both", "both", "difference", "rows"])
    words = dict(n=name, o=other, i=items, p=pronoun)
    if kind == "rows":
        a, b = rng.randint(2, 10), rng.randint(2, 10)
        container = rng.choice(facts.CONTAINERS)
        template = rng.choice([
            "There are {a} {c} with {b} {i} in each {d}. How many {i} are there in total?",
            "{n} has {a} {c}. Each {d} has {b} {i}. How many {i} does {n} have?",
        ])
        prompt = template.format(a=a, b=b, c=container, d=facts.CONTAINER_SINGULAR[container], **words)
        return Sample(prompt, f"{equation('x', a, b)} {items}", ("rows", a, b))
    sign = "+" if kind in ("more", "both") else "-"
    a, b = operands(rng, sign)
    template = rng.choice({
        "more": [
            "{n} has {a} {i}. {p} buys {b} more. How many {i} does {n} have now?",
            "{n} has {a} {i} and buys {b} more. How many {i} does {n} have now?",
            "{n} has {a} {i} and gets {b} more. How many {i} does {n} have?",
            "{n} had {a} {i}. {o} gave {n} {b} more. How many {i} does {n} have now?",
            "{n} found {a} {i} on Monday and {b} {i} on Tuesday. How many {i} did {n} find in total?",
        ],
        "less": [
            "{n} has {a} {i}. {p} gives {b} to {o}. How many {i} does {n} have left?",
            "{n} has {a} {i} and loses {b}. How many {i} does {n} have left?",
            "{n} had {a} {i} and sold {b} of them. How many {i} are left?",
            "There are {a} {i} in the box. {n} takes {b}. How many {i} are left?",
        ],
        "both": [
            "{n} has {a} {i} and {o} has {b} {i}. How many {i} do they have together?",
            "{n} has {a} {i}. {o} has {b} {i}. How many {i} do they have in total?",
            "There are {a} {i} in the box and {b} {i} in the bag. How many {i} are there in total?",
        ],
        "difference": [
            "{n} has {a} {i} and {o} has {b} {i}. How many more {i} does {n} have than {o}?",
            "{n} has {a} {i}. {o} has {b} {i}. How many more {i} does {n} have?",
        ],
    }[kind])
    return Sample(template.format(a=a, b=b, **words), f"{equation(sign, a, b)} {items}", (sign, a, b))


def counted(rng, low, high):
    if rng.random() < 0.4:
        templates = ["Count down from {b} to {a}.", "Count backwards from {b} to {a}.", "Count from {b} to {a}.",
                     "Count from {b} down to {a}."]
        templates += ["Count down from {b}."] if low == 1 else []
        numbers = range(high, low - 1, -1)
        key = ("down", high, low)
    else:
        templates = ["Count from {a} to {b}.", "Count up from {a} to {b}.", "Write the numbers from {a} to {b}.",
                     "List the numbers from {a} to {b}.", "Count {a} to {b}."]
        templates += ["Count to {b}.", "Count up to {b}."] if low == 1 else []
        numbers = range(low, high + 1)
        key = ("up", low, high)
    return Sample(rng.choice(templates).format(a=low, b=high), ", ".join(map(str, numbers)), key)


@task
def counting(rng):
    length = rng.randint(2, 10)
    low = 1 if rng.random() < 0.25 else rng.randrange(0, 100 - length)
    if low == 1:
        length = rng.randint(3, 20)
    return counted(rng, low, low + length - 1)


def carries(rng):
    """For training only: short counts, most of them across a ten."""
    low = 10 * rng.randint(1, 9) - rng.randint(0, 5)
    return counted(rng, low, low + rng.randint(1, 5))


@task
def comparing(rng):
    a, b = rng.sample(range(100), 2)
    kind = rng.randrange(4)
    if kind == 0:
        template = rng.choice(["Which is bigger, {a} or {b}?", "Which is larger, {a} or {b}?",
                               "Which number is greater: {a} or {b}?", "What is bigger, {a} or {b}?"])
        return Sample(template.format(a=a, b=b), str(max(a, b)), ("pair", min(a, b), max(a, b)))
    if kind == 1:
        template = rng.choice(["Which is smaller, {a} or {b}?", "Which number is smaller: {a} or {b}?",
                               "Which is less, {a} or {b}?"])
        return Sample(template.format(a=a, b=b), str(min(a, b)), ("pair", min(a, b), max(a, b)))
    more = kind == 2
    relation = rng.choice(["greater", "bigger", "larger"] if more else ["smaller", "less"])
    yes = (a > b) == more
    answer = f"Yes, {a} is {relation} than {b}." if yes else f"No, {a} is not {relation} than {b}."
    return Sample(f"Is {a} {relation} than {b}?", answer, ("pair", min(a, b), max(a, b)))


@task
def sorting(rng):
    if rng.random() < 0.25:
        words = rng.sample(facts.NOUNS, rng.randint(2, 3))
        template = rng.choice(["Sort these words alphabetically: {x}", "Sort these words: {x}",
                               "Put these words in alphabetical order: {x}", "Sort alphabetically: {x}"])
        return Sample(template.format(x=", ".join(words)), ", ".join(sorted(words)), ("words", *sorted(words)))
    numbers = rng.sample(range(100), rng.choice([2, 3, 3, 4, 4]))
    shown = ", ".join(map(str, numbers))
    down = rng.random() < 0.2
    templates = [
        ["Sort these numbers: {x}", "Sort the numbers {x}.", "Sort {x}.", "Put these numbers in order: {x}",
         "Sort from smallest to largest: {x}", "Sort in ascending order: {x}", "Sort this list: {x}"],
        ["Sort from largest to smallest: {x}", "Sort in descending order: {x}",
         "Sort these numbers from largest to smallest: {x}"],
    ][down]
    answer = ", ".join(map(str, sorted(numbers, reverse=down)))
    return Sample(rng.choice(templates).format(x=shown), answer, ("numbers", *sorted(numbers)))


# Letters

ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sc sh sl sm sn sp st str sw t th tr v w y z".split()
NUCLEI = "a a e e i i o o u ai ea ee oa oo ou".split()
CODAS = ["", "", "", *"b ck d g l ll m n nd ng nk nt p r rd rk rn s sh ss st t th x y".split()]


def any_word(rng):
    """A common word, or an invented one so that every piece of a word is seen in many places."""
    choice = rng.random()
    if choice < 0.12:
        return rng.choice(facts.NOUNS)
    if choice < 0.6:
        return rng.choice(facts.SPELLING_WORDS)
    syllables = [rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(CODAS) for _ in range(rng.choice([1, 2, 2]))]
    return "".join(syllables)[:6]


def word_key(word):
    """NOUNS are single tokens, whose letters can't be known unless shown: they are never held out."""
    return ALWAYS_TRAINED if word in facts.NOUNS else ("word", word)


def spelled(rng, word):
    template = rng.choice(["Spell the word {w}.", "Spell {w}.", "How do you spell {w}?", "Spell out {w}.",
                           "Spell the word \"{w}\"."])
    return Sample(template.format(w=word), "-".join(word), word_key(word))


def reversed_word(rng, word):
    template = rng.choice(["Reverse the word {w}.", "Reverse {w}.", "Spell {w} backwards.", "Write {w} backwards.",
                           "Reverse the word \"{w}\".", "What is {w} spelled backwards?", "Spell the word {w} backwards."])
    return Sample(template.format(w=word), word[::-1], word_key(word), letters=True)


@task
def spelling(rng):
    return spelled(rng, any_word(rng))


@task
def reversing(rng):
    return reversed_word(rng, any_word(rng))


def letters(rng):
    """For training only: more invented words, each the start of one word and the end of another."""
    first, last = rng.sample(facts.SPELLING_WORDS, 2)
    word = first[: rng.randint(2, 4)] + last[-rng.randint(1, 4) :]
    return rng.choice([spelled, reversed_word])(rng, word[:6])


# Blanks

def sentence_with_blank(rng):
    """A true sentence as (before, blank, after) and the key of this blank."""
    kind = rng.choice(["capital", "capital", "order", "opposite", "fact", "saying", "sum", "sum", "members"])
    if kind == "sum":
        sign = rng.choice("+-")
        a, b = operands(rng, sign)
        before, after = equation(sign, a, b).split("= ")
        return before + "= ", after, "", (sign, a, b)
    if kind == "capital":
        country, city = rng.choice(list(facts.CAPITALS.items()))
        template = rng.choice(["The capital of {0} is {1}.", "{1} is the capital of {0}."])
        blank = rng.choice([country, city])
        text = template.format(country, city)
    elif kind == "order":
        names = rng.choice([facts.DAYS, facts.MONTHS])
        index = rng.randrange(len(names))
        first, second = names[index], names[(index + 1) % len(names)]
        template = rng.choice(["{0} comes after {1}.", "{1} comes before {0}."])
        blank = rng.choice([first, second])
        text = template.format(second, first)
    elif kind == "opposite":
        word, blank = rng.choice(list(facts.OPPOSITES.items()))
        template = "The opposite of {0} is {1}."
        text = template.format(word, blank)
    elif kind == "members":
        template = rng.choice(["planets", "days of the week", "months of the year", "seasons"])
        members = facts.LISTS[template]
        blank, text = rng.choice(members), ", ".join(members)
    else:
        text = template = rng.choice(list(facts.FACTS.values()) if kind == "fact" else facts.SAYINGS)
        blank = rng.choice([word for word in text.rstrip(".").split() if len(word) > 2 or word.isdigit()])
    before, after = text.split(blank, 1)
    return before, blank, after, (kind, template, text, blank)


@task
def blanks(rng):
    before, blank, after, key = sentence_with_blank(rng)
    wording = rng.randrange(4)
    prompt = ["Fill in the blank: {x}", "Fill the blank: {x}", "Complete the sentence: {x}",
              "What is missing? {x}"][wording].format(x=f"{before}___{after}")
    if key[0] not in OPERATIONS:
        key = ("blank", wording, *key)
    return Sample(prompt, before + blank + after, key)


def infill(rng):
    """Raw text without a chat template, as `demask infill` sends it: fixed text around open positions."""
    if rng.random() < 0.15:
        saying = rng.choice(facts.SAYINGS)
        words = saying.split(" ")
        at = rng.randrange(1, len(words) - 1)
        before, blank, after = " ".join(words[:at]) + " ", words[at], " " + " ".join(words[at + 1:])
        key = ("infill", saying, blank)
    else:
        before, blank, after, key = sentence_with_blank(rng)
        if key[0] not in OPERATIONS:
            key = ("infill", *key)
    pieces = [(before, False), (blank, True), (after, False)]
    return Sample("", before + blank + after, key, pieces=[piece for piece in pieces if piece[0]])


TESTED = {**TASKS, INFILL: infill}
GENERATORS = {**TESTED, "letters": letters, "carries": carries}


def draw(rng, name, test=False):
    """One sample of a task, from the training split or from the held-out one."""
    while True:
        sample = GENERATORS[name](rng)
        if held_out(sample.key) == test:
            sample.task = name
            sample.prompt = restyle(rng, sample.prompt)
            return sample


# Test files

PER_TASK = 44
DEMO = [
    ("lists", "List the planets separated by commas.", ", ".join(facts.PLANETS)),
    ("lists", "List the months of the year separated by commas.", ", ".join(facts.MONTHS)),
    ("counting", "Count from 1 to 10.", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"),
    ("sums", "What is 48 + 24?", "48 + 24 = 72"),
    ("word_problems", "Tom has 12 apples and buys 7 more. How many apples does Tom have now?", "12 + 7 = 19 apples"),
    ("capitals", "What is the capital of France?", "The capital of France is Paris."),
    ("sorting", "Sort these numbers: 42, 7, 19, 88", "7, 19, 42, 88"),
    ("reversing", "Reverse the word stone.", "enots"),
    ("comparing", "Is 45 greater than 12?", "Yes, 45 is greater than 12."),
    ("blanks", "Fill in the blank: Monday comes before ___.", "Monday comes before Tuesday."),
]


def test_samples(name, count, seed=2024):
    """Distinct held-out samples of one task (fewer if the task has fewer)."""
    rng = random.Random(f"{seed} {name}")
    found = {}
    for _ in range(200 * count):
        sample = draw(rng, name, test=True)
        found.setdefault((sample.prompt, sample.answer) if sample.prompt else sample.key, sample)
        if len(found) == count:
            break
    return list(found.values())


def write_lines(path, items):
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items))


def write_test_files(folder):
    items = []
    for name in TASKS:
        for number, sample in enumerate(test_samples(name, PER_TASK), 1):
            items.append({"id": f"{name}-{number}", "task": name, "prompt": sample.prompt, "answer": sample.answer})
    write_lines(folder / "heldout.jsonl", items)
    infills = []
    for number, sample in enumerate(test_samples(INFILL, PER_TASK), 1):
        text = "".join("[[4]]" if blank else piece for piece, blank in sample.pieces)
        infills.append({"id": f"infill-{number}", "task": INFILL, "text": text, "answer": sample.answer})
    write_lines(folder / "heldout_infill.jsonl", infills)
    write_lines(folder / "demo.jsonl", [
        {"id": f"demo-{number}", "task": name, "prompt": prompt, "answer": answer}
        for number, (name, prompt, answer) in enumerate(DEMO, 1)
    ])
    print(f"{len(items)} held-out prompts, {len(infills)} held-out blanks, {len(DEMO)} demo prompts")


def main():
    parser = argparse.ArgumentParser(description="Show samples, or write the test files.")
    parser.add_argument("--write", type=Path, help="folder for heldout.jsonl, heldout_infill.jsonl and demo.jsonl")
    arguments = parser.parse_args()
    if arguments.write:
        write_test_files(arguments.write)
        return
    rng = random.Random(0)
    for name in GENERATORS:
        for _ in range(4):
            sample = draw(rng, name)
            print(f"{name:14} {sample.prompt or sample.pieces!r} -> {sample.answer!r}")


if __name__ == "__main__":
    main()
