import type { Topic } from "./topic.ts";

/** Short verses in plain words. */
export const POEMS: Topic = {
  id: "poems",
  language: "en",
  keywords: "poem poem poem poetry verse rhyme haiku sonnet song lyrics poet",
  isVerse: true,
  passages: [
    `The rain came down on the quiet town
and washed the dust from the stone.
A window was bright in the middle of night,
and nobody sat there alone.

The rain went away at the break of day
and left every roof a gleam.
The river was high and as wide as the sky
and as slow as the end of a dream.`,
    `I planted a word in the garden
and watered it every day.
It grew to a little sentence
that had something small to say.

I left it there until summer,
and now, at the garden gate,
there stands a whole tall story
for all who are willing to wait.`,
    `The old lamp hums above the page.
The kettle sings below.
Outside, the fields are white and still
and patient in the snow.

There is no hurry in the house,
no letter to be sent.
The evening came, sat down with me,
and did not say, and went.`,
    `A small boat lies on the morning sea,
its sail as thin as a leaf.
The wind is a hand, and the tide is a road,
and the night was cold and brief.

O small boat, tell me what you have seen
where the water and sky are one.
I have seen the stars go out, it said,
and I followed the first of the sun.`,
    `Quiet autumn pond.
One leaf lets go of its branch
and the moon trembles.`,
    `First light on the hill.
The dog is already there,
waiting for the day.`,
  ],
};

/** Music, pictures, books, stories. */
export const ARTS: Topic = {
  id: "arts",
  language: "en",
  keywords:
    "music art book story novel read write paint piano guitar film movie draw author fairy tale song learn",
  passages: [
    `To learn an instrument, play a little every day rather than a lot on Sunday. Ten minutes are enough
if you listen to yourself. Take the two bars that are hardest, play them so slowly that they cannot go
wrong, and only then a little faster. Finish with something that you love.`,
    `Read the first page of a novel twice. The first time you learn where you are, and the second time
you hear the voice that will keep you company for three hundred pages. If you do not like it, put the
book away without guilt. There are more books than evenings.`,
    `Once there was a clockmaker who built a clock that ran a little slow on happy days. The people of the
town came to sit beneath it, and nobody could say why they felt so rested. When the mayor wanted to
have it repaired, the clockmaker smiled and said that it was the only clock that was right.`,
    `Drawing is mostly looking. Choose a simple thing, such as a cup, and draw the shape of the air around
it instead of the cup. Your hand will stop drawing what you know and begin to draw what you see. It
takes one afternoon to notice the change.`,
    `A good story begins on the day that is different. We do not need to know how the hero was born. We
need to know what they want this morning, and what stands in the way. Everything else can be told
later, when we have begun to care.`,
    `There was once a lighthouse that was afraid of the dark. Every night it turned and turned to see
what was behind it. It never found anything, but the ships came home safely, and after a hundred years
it understood that this had been enough.`,
    `Music works because it promises. A tune goes up, and we wait for it to come down. A good composer
makes us wait a little longer than we like, then gives us something better than what we expected. The
silence afterwards belongs to the piece as well.`,
  ],
};
