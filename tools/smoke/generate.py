"""The text that the smoke model learns, and the questions it's judged by.

Everything is made by this script from short lists and rules, so the right answer of each question is known.
`sample(rng)` draws one training question; `heldout()` lists the questions that are kept out of training:
a held-out question is never drawn, and for counting, stories, reading and echoes its content (the start, the combination of
hero and thing) is never drawn under another phrasing either.  Words, sums, days, months and opposites are small closed sets, so
there the exact question is held out while the fact occurs in another phrasing.

  python generate.py --heldout ../../cmd/starling/smoke/heldout.json    # write the held-out list
  python generate.py --show 20                                          # print some training questions
"""
import argparse
import json
import random

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
OPPOSITES = [p.split("/") for p in """hot/cold big/small up/down fast/slow old/new happy/sad open/closed full/empty day/night
black/white left/right hard/soft high/low near/far early/late light/dark long/short rich/poor strong/weak wet/dry
clean/dirty loud/quiet thick/thin wide/narrow sweet/sour true/false first/last push/pull start/stop win/lose
love/hate give/take buy/sell come/go laugh/cry above/below inside/outside before/after north/south east/west
young/aged sharp/blunt rough/smooth brave/afraid kind/cruel""".split()]
WORDS = """cat dog sun hat bed cup pen box fox hen pig cow bee ant owl egg jam map net pot rug van web yak zoo
bird fish frog bear lion duck goat lamb wolf seal crab deer moth tree leaf rose seed root bark rain snow wind fire
star moon lake sand rock hill cave road bridge river ocean field forest garden flower meadow desert island valley
milk bread cheese apple lemon grape peach melon berry carrot onion potato butter honey sugar pepper salt soup cake
house door window table chair floor wall roof stairs kitchen lamp clock book paper pencil ruler letter number music
drum flute piano guitar violin song dance game ball kite doll toy robot train plane boat ship truck wheel engine
horse sheep mouse tiger zebra camel eagle robin snake whale shark otter badger rabbit monkey parrot turtle spider
shirt shoe sock glove scarf coat button pocket basket bottle hammer ladder bucket candle mirror pillow blanket
doctor farmer baker teacher sailor painter singer king queen prince castle tower village market school street
spring summer autumn winter morning evening silver golden yellow purple orange green brown stone metal glass
wood water cloud storm thunder planet rocket jungle pumpkin dragon wizard magic quick jump swim climb write read
sleep dream smile friend family sister brother mother father child baby uncle people world starling swarm""".split()
NAMES = "Max Tom Ben Sam Leo Jack Finn Oscar Anna Mia Lily Rosa Ella Nina Ruby Zoe Kate Emma".split()
ANIMALS = "fox cat dog bear owl hen pig mouse rabbit wolf duck frog goat lion".split()
COLOURS = "red blue green yellow black white pink brown".split()
THINGS = "ball hat kite boat book cup drum bell lamp shoe box key".split()

COUNT_ON = ["Count on from {a}:", "Count on from {a}", "Please count on from {a}."]
COUNT_TO = ["Count from {a} to {b}.", "Count from {a} to {b}:"]
SPELL = ["Spell {w}", "Spell the word {w}.", "How do you spell {w}?"]
SUM = ["What is {a} + {b}?", "{a} + {b} =", "Add {a} and {b}."]
NEXT = ["What {u} comes after {x}?", "Which {u} is after {x}?", "The {u} after {x} is"]
PREV = ["What {u} comes before {x}?", "Which {u} is before {x}?", "The {u} before {x} is"]
LIST = ["Name three {u}s from {x}.", "Three {u}s from {x}:"]
FULL = {"day": ["Name the days of the week.", "What are the days of the week?"],
        "month": ["Name the months of the year.", "What are the months of the year?"]}
OPPOSITE = ["What is the opposite of {x}?", "The opposite of {x} is", "Opposite of {x}:"]
ECHO = ["Repeat after me: {t}", "Say: {t}"]
CHAT = [("Hello", "Hello! I am Starling Smoke. I can count, spell and add."),
        ("Hello!", "Hello! I am Starling Smoke. I can count, spell and add."),
        ("Hi", "Hello! I am Starling Smoke. I can count, spell and add."),
        ("Who are you?", "I am Starling Smoke, a tiny model made to test a swarm."),
        ("What can you do?", "I can count, spell, add, name days and months, find opposites and tell short stories."),
        ("Thank you", "You are welcome."), ("Thank you!", "You are welcome.")]
SYSTEM = ["You are a helpful assistant.", "Answer the question.", "You are Starling."]


# ---- one function for each kind of question: (what is held out, prompt, answer)

def count_on(a, phrase):
    return ("count_on", a), COUNT_ON[phrase].format(a=a), ", ".join(str(a + i) for i in range(1, 6)) + "."


def count_to(a, b, phrase):
    return ("count_to", a, b), COUNT_TO[phrase].format(a=a, b=b), ", ".join(str(i) for i in range(a, b + 1)) + "."


def spell(word, phrase):
    return ("spell", word), SPELL[phrase].format(w=word), " ".join(word)


def add(a, b, phrase):
    return ("add", a, b), SUM[phrase].format(a=a, b=b), f"{a} + {b} = {a + b}."


def order(unit, kind, index, phrase):
    """Days and months: the next one, the one before, or three in a row; the week and the year go round."""
    names = DAYS if unit == "day" else MONTHS
    n = len(names)
    forms = {"next": NEXT, "prev": PREV, "list": LIST}[kind]
    if kind == "list":
        answer = ", ".join(names[(index + i) % n] for i in range(3)) + "."
    else:
        answer = names[(index + (1 if kind == "next" else -1)) % n] + "."
    return (unit, kind, index, phrase), forms[phrase].format(u=unit, x=names[index]), answer


def opposite(pair, side, phrase):
    x, y = OPPOSITES[pair][side], OPPOSITES[pair][1 - side]
    return ("opposite", pair, side, phrase), OPPOSITE[phrase].format(x=x), y.capitalize() + "."


def story_text(name, animal, colour, thing, lost):
    if lost:
        return (f"{name} the {animal} lost a {colour} {thing}. {name} looked under the bed. {name} looked behind the door. "
                f"There was the {colour} {thing}! {name} was happy. The end.")
    return (f"Once upon a time {name} the {animal} found a {colour} {thing}. {name} took the {thing} home. "
            f"Now the {colour} {thing} is on the shelf, and {name} is happy. The end.")


def story(hero, lost):
    name, animal, colour, thing = hero
    prompt = f"Tell a story about {name} the {animal} who {'lost' if lost else 'found'} a {colour} {thing}."
    return ("hero", *hero), prompt, story_text(*hero, lost)


def reading(heroes, losts, about, kind):
    """One or two stories (about different things), then a question on one of them."""
    name, animal, colour, thing = heroes[about]
    did = ("lose", "lost") if losts[about] else ("find", "found")
    text = " ".join(story_text(*h, l) for h, l in zip(heroes, losts))
    if kind == 0:
        question, answer = f"Who {did[1]} the {thing}?", f"{name} the {animal}."
    elif kind == 1:
        question, answer = f"What did {name} {did[0]}?", f"A {colour} {thing}."
    else:
        question, answer = f"What colour was the {thing}?", f"{colour.capitalize()}."
    return ("hero", *heroes[about]), f"{text} {question}", answer


def echo(text, phrase):
    return ("echo", text), ECHO[phrase].format(t=text), text


# ---- drawing them

def draw_hero(rng):
    return rng.choice(NAMES), rng.choice(ANIMALS), rng.choice(COLOURS), rng.choice(THINGS)


def draw_word(rng):
    """Half the words are made up, so that spelling is learned and not remembered."""
    if rng.random() < 0.4:
        return rng.choice(WORDS)
    out = ""
    for _ in range(rng.randint(1, 3)):
        out += rng.choice(["", "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "qu", "r", "s", "t", "v", "w", "y", "z",
                           "br", "ch", "cl", "dr", "fl", "gr", "pl", "sh", "sk", "sn", "sp", "st", "th", "tr", "wh"])
        out += rng.choice(["a", "e", "i", "o", "u", "ea", "ee", "oo", "ou", "ai", "y"])
        out += rng.choice(["", "", "b", "d", "g", "k", "l", "m", "n", "p", "r", "s", "t", "x", "ck", "ll", "lt", "mp", "nd", "ng", "nt",
                           "rd", "rn", "rt", "ss", "st", "tt", "tch", "zz"])
    return out[:9]


def draw_counting(rng):
    if rng.random() < 0.6:
        return count_on(rng.randrange(200), rng.randrange(len(COUNT_ON)))
    a = rng.randrange(180)
    return count_to(a, a + rng.randint(3, 9 if rng.random() < 0.8 else 24), rng.randrange(len(COUNT_TO)))


def draw_add(rng):
    a = rng.randrange(20)
    return add(a, rng.randrange(20 - a), rng.randrange(len(SUM)))


def draw_order(rng, unit):
    if rng.random() < 0.06:
        return (unit, "full"), rng.choice(FULL[unit]), ", ".join(DAYS if unit == "day" else MONTHS) + "."
    kind = rng.choice(["next", "prev", "list"])
    return order(unit, kind, rng.randrange(len(DAYS if unit == "day" else MONTHS)), rng.randrange(len(LIST if kind == "list" else NEXT)))


def draw_reading(rng):
    heroes = [draw_hero(rng) for _ in range(rng.choice([1, 1, 2]))]
    if len(heroes) == 2 and (heroes[0][0] == heroes[1][0] or heroes[0][3] == heroes[1][3]):
        heroes.pop()                                        # the question must point to one story
    return reading(heroes, [rng.random() < 0.5 for _ in heroes], rng.randrange(len(heroes)), rng.randrange(3))


def draw_echo(rng):
    parts = [draw_word(rng) if rng.random() < 0.6 else str(rng.randrange(1000)) for _ in range(rng.randint(2, 8))]
    return echo(" ".join(parts), rng.randrange(len(ECHO)))


TASKS = {   # name: (draw, share of the training questions, held-out questions)
    "count": (draw_counting, 0.16, 40),
    "spell": (lambda r: spell(draw_word(r), r.randrange(len(SPELL))), 0.18, 50),
    "days": (lambda r: draw_order(r, "day"), 0.09, 20),
    "months": (lambda r: draw_order(r, "month"), 0.11, 30),
    "sums": (draw_add, 0.17, 35),
    "opposites": (lambda r: opposite(r.randrange(len(OPPOSITES)), r.randrange(2), r.randrange(len(OPPOSITE))), 0.11, 40),
    "stories": (lambda r: story(draw_hero(r), r.random() < 0.5), 0.06, 20),
    "reading": (draw_reading, 0.09, 25),
    "echo": (draw_echo, 0.10, 20),
    "chat": (lambda r: (("chat",), *r.choice(CHAT)), 0.02, 0),
}


def acceptable(key, keys):
    """May key join the held-out keys?  What the answer needs must still be learnable from what is left."""
    kind = key[0]
    if kind == "spell":
        return key[1] in WORDS
    if kind == "add":                                       # b + a stays in training
        return key[1] != key[2] and ("add", key[2], key[1]) not in keys
    if kind in ("day", "month", "opposite"):                # another phrasing of the same fact stays; so do all neighbours of this phrasing
        return key[1] != "full" and not any(k[:3] == key[:3] for k in keys)
    return True


def heldout():
    """The held-out questions, always the same: a list of {task, prompt, answer}, and the set of their keys."""
    rng, keys, out = random.Random(20), set(), []
    for task, (draw, _, n) in TASKS.items():
        got = 0
        while got < n:
            key, prompt, answer = draw(rng)
            if key not in keys and acceptable(key, keys):
                keys.add(key)
                out.append({"task": task, "prompt": prompt, "answer": answer})
                got += 1
    return out, keys


HELDOUT, HELDOUT_KEYS = heldout()
UNJUDGED = ("reading", "echo")                              # trained and measured, but not among the kinds that the test asks
HELDOUT_PROMPTS = {q["prompt"] for q in HELDOUT}
BY_PROMPT = {"add", "spell"}                                # closed sets: only the exact question is held out


def held_out(key, prompt):
    """Must this question stay out of training?"""
    return prompt in HELDOUT_PROMPTS if key[0] in BY_PROMPT else key in HELDOUT_KEYS


def sample(rng):
    """One training question: (task, prompt, answer)."""
    task = rng.choices(list(TASKS), [share for _, share, _ in TASKS.values()])[0]
    while True:
        key, prompt, answer = TASKS[task][0](rng)
        if not held_out(key, prompt):
            return task, prompt, answer


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--heldout", help="write the held-out list to this file")
    ap.add_argument("--show", type=int, default=0, help="print so many training questions")
    args = ap.parse_args()
    if args.heldout:
        with open(args.heldout, "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(q) for q in HELDOUT if q["task"] not in UNJUDGED) + "\n]\n")
    rng = random.Random(1)
    for _ in range(args.show):
        print(*sample(rng), sep=" | ")


if __name__ == "__main__":
    main()
