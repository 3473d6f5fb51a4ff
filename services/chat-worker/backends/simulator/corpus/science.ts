import type { Topic } from "./topic.ts";

/** Physics, space, chemistry. */
export const SCIENCE: Topic = {
  id: "science",
  language: "en",
  keywords:
    "science physics space star planet moon sun light energy atom gravity universe water why sky blue quantum chemistry earth explain experiment black hole",
  passages: [
    `The sky is blue because air scatters light. Sunlight holds all colours, and the short waves of blue
are thrown in every direction far more than the long waves of red. In the evening the light has a
longer way through the air, most of the blue is lost on the way, and what reaches you is red and gold.`,
    `The moon does not fall down because it is always falling. It moves sideways so fast that the earth
curves away beneath it. If it stopped, it would come straight at us. If gravity stopped, it would
leave in a straight line and never return.`,
    `Light needs about eight minutes from the sun to the earth, and more than four years from the nearest
other star. When you look at the night sky, you look into the past. Some of the stars that you see may
have changed long ago, and their light has not told us yet.`,
    `Water is strange in a way that keeps us alive. Most things shrink when they freeze, but ice takes
more room than the water it was made of, and so it floats. A lake freezes from the top, and the fish
below it live through the winter.`,
    `An atom is mostly empty. If the nucleus were as large as a pea, the nearest electron would be at the
other end of a football field. You do not fall through the floor because the electrons of your shoes
and those of the floor push each other away.`,
    `Energy is never lost, but it spreads out. A hot cup of coffee warms the room, and the room never
gives the warmth back to the cup. That is why a ball stops bouncing, why machines need fuel, and why
you can tell a film that runs backwards.`,
    `A good experiment changes one thing and keeps the rest the same. If two things change at once, you
cannot know which of them did it. It also has a result that would prove you wrong. Without that, you
are only collecting reasons to believe what you already believe.`,
    `A black hole is not a drain that pulls in everything. Far away, it pulls no more than a star of the
same weight would. Only very close does the way out become steeper than light can climb, and from
there nothing comes back to tell us what it saw.`,
  ],
};

/** Animals and wild places. */
export const NATURE: Topic = {
  id: "nature",
  language: "en",
  keywords:
    "animal bird cat dog fish bee whale forest sea ocean mountain river wolf octopus tree wild nature species elephant",
  passages: [
    `An octopus has three hearts and a mind that reaches into its arms. Each arm can taste, decide and
move by itself, while the head thinks about something else. It can open a jar, remember a face, and
change its colour in less than a second. It lives for only a few years.`,
    `Bees tell each other where the flowers are by dancing. The angle of the dance shows the direction,
measured from the sun, and its length shows the distance. The others follow in the dark, touching the
dancer, and then fly straight to a field that they have never seen.`,
    `A forest is quieter than it looks busy. Under the ground, thin threads of fungi join the roots of
one tree to another, and sugar and water move along them. Old trees feed young ones in the shade.
Nobody planned it, and it has worked for millions of years.`,
    `Cats sleep for most of the day because hunting is hard work. A cat sees well in weak light, hears a
mouse under the snow, and walks without a sound. When it looks at you and closes its eyes slowly, it
says that it feels safe.`,
    `Rivers never run straight for long. The water is faster on the outer side of a bend and takes the
earth away, and slower on the inner side, where it lays it down again. So every small curve grows
until the river cuts through and leaves a quiet lake behind.`,
    `Whales sing, and their songs travel through the sea for hundreds of kilometres. All the males of one
region sing the same song, and it changes a little every year. No one knows exactly why. It may be a
call, a map, or simply the fashion.`,
    `Birds find their way by the sun, by the stars, and by the field of the earth itself. A young bird
that has never flown south leaves on the right evening and goes in the right direction. Some of them
cross a whole ocean without a rest.`,
  ],
};

/** Numbers and puzzles. */
export const MATHS: Topic = {
  id: "maths",
  language: "en",
  keywords:
    "math maths number calculate sum add multiply prime equation geometry probability percent count algebra statistics puzzle plus minus",
  passages: [
    `A prime number can be divided only by one and by itself. There is no largest one, and the proof
fits on a card. Multiply all the primes that you know and add one. None of them divides the result, so
there must be another prime that you did not know.`,
    `If you toss a coin ten times and see ten heads, the next toss is still even. The coin does not
remember. What is rare is the whole row, not the last step of it. Much money has been lost by people
who felt that their luck had to turn.`,
    `To add the numbers from one to a hundred, fold the row in the middle. One and a hundred make a
hundred and one, two and ninety-nine make the same, and there are fifty such pairs. The sum is five
thousand and fifty, and no long addition was needed.`,
    `An average can hide more than it shows. If nine people earn little and one earns a great deal, the
average describes none of them. Look at the middle value as well, and at how far apart the values
are. A picture of all the points is better still.`,
    `In a room of twenty-three people, it is more likely than not that two share a birthday. It sounds
wrong because we think of our own birthday. But there are two hundred and fifty-three pairs in that
room, and each of them has a small chance.`,
    `A circle holds the most room inside the shortest line. That is why bubbles are round, why pipes are
round, and why cats curl up when it is cold. The shape with the least edge loses the least warmth.`,
  ],
};
