import type { Topic } from "./topic.ts";

/** Going places. */
export const TRAVEL: Topic = {
  id: "travel",
  language: "en",
  keywords:
    "capital france italy spain japan germany europe travel trip visit city holiday vacation train flight hotel airport country paris london rome berlin tokyo lisbon weekend luggage passport beach tour",
  passages: [
    `The best way to see a city is to walk through it without a plan for one morning. Follow a street
because it looks friendly, stop where people are having breakfast, and ask the person at the next
table what they would show a friend. You can visit the famous places in the afternoon.`,
    `Pack half of what you think you need. You can wash a shirt in a sink, and you can buy a toothbrush
almost anywhere. What you cannot buy is the ease of one small bag when the train is about to leave.
Put the papers, the charger and a warm layer where you can reach them.`,
    `Trains are slow enough to see the country and fast enough to cross it. Book a seat by the window,
bring something to read and something to share, and look up when the hills begin. On a long ride, the
dining car is the best place to meet people.`,
    `If you have three days in Lisbon, spend the first one on the hills. Take the old tram early, before
it is full, and walk down through the narrow streets. On the second day, follow the river to the
tower and eat a warm custard tart. Leave the third day for the sea.`,
    `A weekend in Paris is short, so choose two things and enjoy them slowly. See one museum in the
morning, when it is quiet, and sit in a garden in the afternoon. In the evening, cross a bridge on
foot and watch the lights on the water. The rest can wait for another visit.`,
    `When you travel far to the east, the first night is the hardest. Set your watch to the new time as
soon as you sit down in the plane, stay awake until the evening, and go outside in the morning light.
After two days your body will believe it.`,
    `Learn five words of the language before you go: hello, please, thank you, sorry, and delicious.
People do not expect you to speak well. They are happy that you tried, and doors open that no map
would have shown you.`,
    `A good holiday has one empty day. Things will go wrong, and that day is where they can be put right.
If nothing goes wrong, you have a day to sit by the water, write a few postcards, and do nothing at
all.`,
  ],
};

/** How the world was. */
export const HISTORY: Topic = {
  id: "history",
  language: "en",
  keywords:
    "history war empire king queen century ancient roman egypt revolution medieval past invention printing library",
  passages: [
    `The printing press did not only make books cheap. It made them the same. For the first time, two
people in two cities could look at the same page and talk about the same line. Maps, tables and songs
began to travel, and mistakes could be found and put right.`,
    `Roads held the Roman empire together. They were straight where the land allowed it, built in layers
of stone and sand, and marked with the distance to the next town. A message could travel eighty
kilometres in a day. Some of those roads still lie under the ones that we use now.`,
    `The oldest letters that we can read are about trade: how many sheep, how much grain, who still owes
what to whom. Poems came later. People learned to write because memory was not enough, and only then
found out how much more they could do with it.`,
    `In the middle of the nineteenth century, the railway changed the idea of time. Every town had its
own noon before, and nobody minded. When trains had to meet, the clocks had to agree, and a few years
later the whole country lived by the same hour.`,
    `A history of ordinary things is often better than a history of kings. Salt, paper, glass and the
potato have changed more lives than most battles. If you want to know how people lived, look at what
they carried and at what they threw away.`,
    `Libraries have been lost many times, and not always by fire. Most of what the ancient world wrote is
gone because nobody copied it. A text lived only as long as someone found it worth a few weeks of
work. That is still true of many things.`,
  ],
};

/** Money, work, plans. */
export const WORK: Topic = {
  id: "work",
  language: "en",
  keywords:
    "work job meeting email team manager money budget save plan project career interview business startup deadline boss office letter write",
  passages: [
    `A meeting needs a question. Write it at the top of the invitation, ask only the people who can
answer it, and stop when it has been answered. If there is no question, send a short message instead.
Everyone will have an hour more, and you will have their thanks.`,
    `Begin an email with what you need and by when. Give the reason in the next sentence, and put the
details below for those who want them. Read it once more before you send it, and take out every word
that is only there to sound important.`,
    `A budget is a plan for what you want to keep. Write down what comes in and what must go out each
month, and move the savings on the first day rather than the last. Leave a little for things that are
only fun. A plan that is too strict does not survive the first sunny weekend.`,
    `Before an interview, prepare three short stories: something that you built, something that went
wrong, and something that you learned from another person. Most questions can be answered with one of
them. Bring a question of your own, and listen to how it is answered.`,
    `A project is late long before the deadline. It becomes late on the day when something small was not
finished and nobody said so. Ask each week what is really done, show it to someone, and cut the plan
while there is still time to choose what to leave out.`,
    `Good feedback is early, kind and about the work. Say what you saw, what it did to you as a reader,
and what you would try. Leave the decision to the person who did the work. They know things about it
that you do not.`,
    `When you start something new, talk to ten people who have the problem before you build anything.
Do not ask whether they like the idea. Ask how they deal with it today and what it costs them. If they
shrug, you have saved yourself a year.`,
  ],
};
