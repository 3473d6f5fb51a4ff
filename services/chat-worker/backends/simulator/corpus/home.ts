import type { Topic } from "./topic.ts";

/** Food and how it is made. */
export const COOKING: Topic = {
  id: "cooking",
  language: "en",
  keywords:
    "cook recipe food dinner lunch breakfast meal bake kitchen pasta rice bread soup cake pizza vegetable chicken egg sauce oven eat dish",
  passages: [
    `To cook rice, wash it in cold water until the water stays clear. Use one cup of rice and one and a
half cups of water, add a little salt, and bring it to the boil. Then cover the pot, turn the heat
down, and leave it alone for fifteen minutes. Let it rest for five more before you lift the lid.`,
    `A simple tomato sauce needs only good tomatoes, olive oil, garlic and time. Warm the oil with the
garlic until it smells sweet, add the tomatoes and a pinch of salt, and let it cook slowly for half an
hour. Stir in some basil at the end. It keeps for three days in a cool place.`,
    `Bread is flour, water, salt and yeast, and most of the work is waiting. Mix everything until no dry
flour is left, cover the bowl, and let the dough grow overnight. In the morning, fold it a few times,
shape it, and bake it in a very hot oven until the crust is deep brown.`,
    `A good soup begins with an onion. Cut it small and cook it in butter until it is soft and golden.
Add the vegetables that you have, cover them with water or stock, and let them cook until a spoon goes
through. A squeeze of lemon at the end makes the taste brighter.`,
    `For a quick dinner, boil some pasta and keep a cup of its water. Warm a little oil with garlic and
chili, add the pasta, and stir in the water until a smooth sauce forms. Put some cheese on top and eat
it while it is hot. The whole meal takes a quarter of an hour.`,
    `Salt early and taste often. A pinch at the beginning goes into the food, and a pinch at the end only
sits on it. If a dish tastes flat, it may need acid rather than more salt. Lemon, vinegar or a spoon
of yogurt can wake it up.`,
    `Eggs are best over low heat. Beat them with a little milk and salt, melt some butter in the pan, and
stir slowly until they are just set. Take them off the heat a moment before they look ready, because
they go on cooking on the plate.`,
    `Roast vegetables need space and a hot oven. Cut them into pieces of the same size, turn them in oil
and salt, and lay them out so that they do not touch. After half an hour they are soft inside and
brown at the edges. Serve them warm with bread and a spoon of yogurt.`,
    `A cake is less mysterious than it looks. Beat the butter with the sugar until it is pale, add the
eggs one by one, and fold in the flour with a light hand. Bake it until a thin stick comes out dry,
and let it cool before you cut it.`,
  ],
};

/** Growing things. */
export const GARDEN: Topic = {
  id: "garden",
  language: "en",
  keywords:
    "garden plant flower seed soil grow tree tomato herb water lawn compost rose leaf balcony pot",
  passages: [
    `Most plants die from too much water rather than too little. Put a finger into the soil before you
water them. If it is damp, wait a day. When you do water, do it slowly and deeply, so that the roots
grow down and not along the top.`,
    `Good soil is alive. Feed it with compost in spring and cover it with leaves in autumn, and the
worms will do most of the digging for you. A handful of it should smell of the forest and fall apart
in your fingers.`,
    `Herbs are a kind start for a small garden. Basil likes sun and warmth, mint grows anywhere and wants
a pot of its own, and parsley forgives almost everything. Cut them often, a little at a time, and they
will grow thick and green until the first frost.`,
    `Tomatoes want a warm wall, a strong stick and patience. Take away the small shoots between the stem
and the leaves, so that the plant puts its strength into the fruit. Water them at the foot and keep
the leaves dry. In late summer you will have more than you can eat.`,
    `Plant a tree for the people who come after you. Dig a hole that is wide rather than deep, loosen the
roots, and fill it with the same soil that came out. Give it a bucket of water each week in the first
summer. After that it will look after itself.`,
    `A balcony can feed a surprising number of bees. Choose flowers that open one after another from
spring to autumn, and leave a small dish of water with a stone in it. The bees will find it, and so
will the birds.`,
  ],
};

/** Sleep, movement, everyday care. */
export const WELLBEING: Topic = {
  id: "wellbeing",
  language: "en",
  keywords:
    "sleep health exercise walk run stress tired rest body habit relax breathe weight diet headache doctor",
  passages: [
    `Sleep comes more easily when the evening looks the same each day. Dim the lights an hour before you
go to bed, keep the room cool and quiet, and put the phone in another room. If you lie awake for a
long time, get up, read something calm, and try again when you feel tired.`,
    `A walk of half an hour does more than it seems. It warms the muscles, clears the head, and asks for
nothing but shoes. Go at a pace at which you can still talk. If you do it every day, you will notice
the difference after two weeks.`,
    `When everything is too much, begin with one slow breath. Breathe in while you count to four, wait for
a moment, and breathe out while you count to six. Do this five times. The problem will still be there,
but you will see its edges more clearly.`,
    `New habits stick when they are small. Do not promise to run every morning. Promise to put on your
shoes. Tie the new habit to something that you already do, such as making coffee, and be kind to
yourself on the days when it does not work.`,
    `Sit less if you can, and change how you sit if you cannot. Stand up once an hour, look at something
far away, and let your shoulders fall. If pain stays for more than a few days, it is better to ask a
doctor than a computer.`,
  ],
};
