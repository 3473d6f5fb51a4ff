/** What the simulator says after it has said what it is: plain prose, written for it. */
export const PASSAGES: readonly string[] = [
  "A river begins as rain on a hill. The water finds the lowest way down, and " +
  "every stream that joins it makes the river wider. Near the sea the land is " +
  "flat, so the water slows and drops the sand that it carried. Over many years " +
  "the sand becomes new land. People have always built their towns beside the " +
  "river, because the water turns the mills and carries the boats.",
  "Bread needs only flour, water, salt and time. The baker mixes the flour with " +
  "the water and waits. Small bubbles rise in the dough while the yeast eats the " +
  "sugar in the flour. After an hour the dough is twice as large. The oven does " +
  "the rest: the crust turns brown, the kitchen smells of bread, and the loaf " +
  "sounds hollow when the baker knocks on it.",
  "The lighthouse stands at the end of the harbour. Its lamp turns once in ten " +
  "seconds, and the sailors know it by that. In the fog they cannot see the lamp, " +
  "so they listen for the horn. The keeper used to climb the stairs every evening " +
  "to light the lamp. Today a small computer does the work, but the stairs are " +
  "still there, and in summer people climb the stairs to see the sea.",
  "A library is a quiet machine. Every book has a number, every number has a " +
  "place on the shelf, and every reader can find the place. When a book comes " +
  "back, it waits on a cart until the evening. Then somebody takes the cart " +
  "along the shelf and puts every book in its place. Without that work the " +
  "library would be only a room with paper in it.",
  "The train leaves the city in the morning and follows the river to the " +
  "mountains. At first there are houses on both sides, then gardens, then only " +
  "trees. The children count the bridges. In the mountains the train is slow, " +
  "because the way is steep, and there is time to look at the snow. In the " +
  "evening the same train goes back to the city, and the lights in the houses " +
  "are on.",
  "Bees keep their hive at the same warmth in summer and in winter. When it is " +
  "hot, they carry water into the hive and move their wings until the air is " +
  "cool. When it is cold, they sit close together and turn slowly, so that every " +
  "bee is warm for a while. A hive makes more honey than the bees need, and the " +
  "keeper takes only what is left.",
  "An old clock has no battery. A weight pulls on a chain, the chain turns a " +
  "wheel, and the wheel would run away if nothing held it. The pendulum holds it. " +
  "Each time the pendulum swings, the wheel may move by one tooth, and that is " +
  "the sound of the clock. A longer pendulum swings more slowly, so the clock is " +
  "set with a small screw at the end of it.",
  "In a market every seller knows a little more than the buyer. The seller knows " +
  "when the fruit was picked and where the fish was caught. The buyer looks, " +
  "smells and asks. A good market is one where the same people meet again the " +
  "next week, because nobody wants to lose a friend over a bad apple.",
  "The moon has no light of its own. We see the part of it on which the sun " +
  "shines, and that part changes from night to night. When the moon stands " +
  "between us and the sun, it is dark for us. Two weeks later it is full, and the " +
  "night is so bright that you can read the large letters of a book. The sea " +
  "follows the moon, and so do the fish.",
  "To mend a fence, walk along all of it first. Look for the posts that move " +
  "when you lean on them, and for the wire that hangs. Bring more nails than you " +
  "need. A fence is as strong as its weakest post, so there is no use in new wire " +
  "on an old post. When the work is done, walk along all of it again.",
];
