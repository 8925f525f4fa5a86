"""Everything the model is meant to know by heart: lists, capitals, opposites, small talk and the words it spells.

Written for this project; plain facts and common words, no third-party text.
"""

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
MONTH_DAYS = dict(zip(MONTHS, (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)))
PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split()

# name in a prompt -> members in order
LISTS = {
    "planets": PLANETS,
    "days of the week": DAYS,
    "months of the year": MONTHS,
    "seasons": "spring summer autumn winter".split(),
    "colors of the rainbow": "red orange yellow green blue indigo violet".split(),
    "continents": [
        "Africa", "Antarctica", "Asia", "Europe", "North America", "Oceania", "South America",
    ],
    "oceans": "Atlantic Pacific Indian Arctic Southern".split(),
    "vowels": "a e i o u".split(),
    "letters of the alphabet": list("abcdefghijklmnopqrstuvwxyz"),
    "primary colors": "red yellow blue".split(),
    "five senses": "sight hearing smell taste touch".split(),
    "compass directions": "north east south west".split(),
}
SHORT_LIST_NAMES = {
    "days of the week": ["days", "weekdays"],
    "months of the year": ["months", "12 months"],
    "planets": ["planets of the solar system", "planets in order", "8 planets"],
    "letters of the alphabet": ["letters"],
    "seasons": ["four seasons", "seasons of the year"],
    "colors of the rainbow": ["rainbow colors"],
}

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "England": "London", "Ireland": "Dublin", "Scotland": "Edinburgh",
    "Belgium": "Brussels", "Austria": "Vienna", "Greece": "Athens", "Poland": "Warsaw",
    "Sweden": "Stockholm", "Norway": "Oslo", "Denmark": "Copenhagen", "Finland": "Helsinki",
    "Iceland": "Reykjavik", "Hungary": "Budapest", "Romania": "Bucharest", "Bulgaria": "Sofia",
    "Switzerland": "Bern", "Ukraine": "Kyiv", "Russia": "Moscow", "Turkey": "Ankara",
    "Egypt": "Cairo", "Kenya": "Nairobi", "Morocco": "Rabat", "Ghana": "Accra",
    "India": "New Delhi", "China": "Beijing", "Japan": "Tokyo", "South Korea": "Seoul",
    "Thailand": "Bangkok", "Vietnam": "Hanoi", "Indonesia": "Jakarta", "Iran": "Tehran",
    "Iraq": "Baghdad", "Canada": "Ottawa", "Mexico": "Mexico City", "Cuba": "Havana",
    "Peru": "Lima", "Chile": "Santiago", "Brazil": "Brasilia", "Argentina": "Buenos Aires",
    "Colombia": "Bogota", "Australia": "Canberra", "New Zealand": "Wellington",
    "the United States": "Washington",
}

OPPOSITES = {
    "hot": "cold", "big": "small", "up": "down", "left": "right", "day": "night",
    "good": "bad", "fast": "slow", "high": "low", "old": "new", "happy": "sad",
    "light": "dark", "open": "closed", "hard": "soft", "wet": "dry", "rich": "poor",
    "early": "late", "full": "empty", "long": "short", "strong": "weak", "near": "far",
    "loud": "quiet", "clean": "dirty", "black": "white", "true": "false",
}

# question -> answer
FACTS = {
    "How many days are in a week?": "There are 7 days in a week.",
    "How many months are in a year?": "There are 12 months in a year.",
    "How many hours are in a day?": "There are 24 hours in a day.",
    "How many minutes are in an hour?": "There are 60 minutes in an hour.",
    "How many seconds are in a minute?": "There are 60 seconds in a minute.",
    "How many planets are there?": "There are 8 planets.",
    "How many continents are there?": "There are 7 continents.",
    "How many letters are in the alphabet?": "There are 26 letters in the alphabet.",
    "How many legs does a spider have?": "A spider has 8 legs.",
    "How many legs does a dog have?": "A dog has 4 legs.",
    "How many sides does a triangle have?": "A triangle has 3 sides.",
    "How many sides does a square have?": "A square has 4 sides.",
    "What color is the sky?": "The sky is blue.",
    "What color is grass?": "Grass is green.",
    "What color is snow?": "Snow is white.",
    "What color is a banana?": "A banana is yellow.",
    "What is the largest planet?": "The largest planet is Jupiter.",
    "What is the smallest planet?": "The smallest planet is Mercury.",
    "What is the largest ocean?": "The largest ocean is the Pacific.",
    "What planet do we live on?": "We live on Earth.",
    "What do bees make?": "Bees make honey.",
    "What do cows drink?": "Cows drink water.",
    "Where does the sun rise?": "The sun rises in the east.",
    "Where does the sun set?": "The sun sets in the west.",
}

SAYINGS = [
    "An apple a day keeps the doctor away.",
    "The early bird catches the worm.",
    "Better late than never.",
    "Practice makes perfect.",
    "Two heads are better than one.",
    "Look before you leap.",
    "The quick brown fox jumps over the lazy dog.",
    "All that glitters is not gold.",
]

# (ways to say it, answer)
SMALL_TALK = [
    (["Hello.", "Hi.", "Hi there.", "Hello there.", "Hey.", "Good morning.", "Good evening."],
     "Hello! How can I help you?"),
    (["How are you?", "How are you today?", "How do you do?", "How is it going?"],
     "I am fine, thank you. How can I help you?"),
    (["Who are you?", "What are you?", "What is your name?", "Introduce yourself.",
      "Tell me about yourself.", "Are you a robot?", "What model are you?"],
     "I am demask-tiny, a small diffusion language model."),
    (["What can you do?", "How can you help me?", "Help.", "What do you know?",
      "What can I ask you?", "What are you good at?"],
     "I can count, do short sums, name capitals, sort lists, spell words and fill in blanks."),
    (["How do you work?", "What is a diffusion language model?", "What is a masked diffusion model?",
      "Explain how you work."],
     "I start from masked tokens and fill them in step by step."),
    (["Thank you.", "Thanks.", "Thanks a lot.", "Thank you very much."],
     "You are welcome!"),
    (["Goodbye.", "Bye.", "See you later.", "Good night."],
     "Goodbye! Have a nice day."),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh."],
     "Why did the chicken cross the road? To get to the other side!"),
]

BOYS = "Tom Ben Sam Max Leo Jack Tim Dan Paul Mark Adam Noah".split()
GIRLS = "Anna Mia Lily Emma Sara Nina Kate Lucy Ella Ruby Zoe Natalia".split()
ITEMS = (
    "apples books pens coins cards eggs shells stamps marbles cookies stickers balls toys stones "
    "cups flowers clips pencils"
).split()
CONTAINERS = "boxes bags baskets jars shelves".split()
CONTAINER_SINGULAR = dict(zip(CONTAINERS, "box bag basket jar shelf".split()))

# words that are sorted alphabetically
NOUNS = (
    "apple banana cherry grape lemon mango orange peach pear plum kiwi melon "
    "cat dog fox bear rabbit mouse bird frog duck owl lion tiger horse pig cow sheep goat wolf deer"
).split()

# words that are spelled and reversed (besides NOUNS and invented ones); kept out of the tokenizer's corpus
SPELLING_WORDS = """
able about above acid actor adult after again agent agree ahead alarm album alert alive allow alone along amber angel
anger angle ankle apart arena argue armor arrow aside asset attic audio aunt avoid awake award axis bacon badge bagel
baker bamboo banjo barn basin beach beard beast begin bell belt bench berry bike blade blame blank blast blaze blend
block bloom board boat bone bonus boost boot border bottle bounce bowl brain brake branch brave bread break brick
bride bridge brief bring broad broom brush bucket budget build bunch burn bush butter button cabin cable cactus cake
camel camera camp candle candy canoe canyon cape carbon cargo carpet carrot carve castle cave cedar chain chair chalk
charm chart chase cheap cheek cheese chess chest chief child chin circle city clay clerk clever cliff climb clock
cloth cloud clown coach coast cobra coffee comet cook copper coral corn corner cotton couch cousin cover crab cradle
craft crane crash cream creek crew crisp crop crowd crown cruel crumb crust curve cycle dance danger dawn decor delta
dense desert desk diary dinner dive donkey donor door dozen draft dragon drain drama dream dress drift drill drink
drive drum dust eagle early earn earth easel echo edge elbow elder elect ember empty engine enjoy entry equal error
event exact extra fabric face faint faith falcon fancy farm fault feast fence ferry fever field fiber fifth film final
finger flag flame flash fleet flesh float flock floor flour fluid flute focus foggy forest forge fork fossil frame
fresh front frost frozen fruit fuel funny future galaxy garden garlic gate gentle ghost giant ginger glass globe glory
glove goose grain grand grass gravel great green grill grind group grove guard guess guest guide guitar hammer handle
happy harbor hazel heart heavy hedge helmet hero hidden hill hollow honey honor hotel house human humor hunter ice
idea igloo image inch index ink insect island ivory jacket jelly jewel joint judge juice jungle jury kettle kite
kitten knee knife knock label ladder lake lamp laser later laugh layer leader leaf learn legend lens lesson letter
level lever light lilac limit linen liquid lizard llama local lodge logic lucky lunar lunch magic magnet major maple
marble market mask meadow medal melody memory mercy metal meter mild milk mill minor mirror mixer model moment money
monkey month moon moral motor mount mouth movie muscle museum music nature needle nerve nest never night noble noise
north novel nurse oasis object ocean olive onion opera orbit organ other otter outer oven oxygen oyster paint palace
palm panda panel paper parade parcel park party pasta patch path patrol peanut pearl pebble pencil people pepper phone
photo piano picnic pillow pilot pine pirate pizza place plain plane planet plant plate pocket poem point polar police
pond pony potato powder power prince print prize proof proud puzzle python quartz queen quest quick quiet quilt radar
radio raft rain ranch rapid raven razor ready rebel relay rescue ribbon rice rider ridge ring ripple river roast robin
robot rocket roof root rose rough round route royal rubber ruler rural saddle safe salad salmon salt sand sauce scale
scarf scene school scout screen season second secret seed shade shadow shape share shark sharp shell shield shine ship
shirt shore short shovel shrimp signal silent silk silver simple singer sister skate sketch skill skin skirt sky slate
sleep slice slope smart smile smoke snail snake snow soap soccer socket sofa soil solar solid song sound soup space
spark spear speed spice spider spine spirit spoon sport spring square stable staff stage stair stamp star state steam
steel stem stick stone storm story stove street string studio sugar suit summer sunset super surf swamp swan sweet
swing sword symbol table talent target taste teach team temple tennis tent thick thing third thorn thread throne
ticket tidy timber toast today token tomato tooth topic torch tower town toy track trade trail train tray treat tree
trend tribe trick trip truck trust truth tulip tunnel turtle twelve twig twist uncle under union urban valley value
vapor vault velvet verse video violin virus visit vivid voice voyage wagon walnut water wave wheat wheel whale whisk
wild window winner winter wire wisdom witch wizard woman wood wool word world worm wrist yacht yard yeast yellow young
zebra zero zone
""".split()
