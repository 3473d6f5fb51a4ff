/** The prose of the simulator's answers, after their opening sentences. Written for it. */
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
  "Bees keep their hive at the same warmth in summer and in winter. When it is " +
  "hot, they carry water into the hive and move their wings until the air is " +
  "cool. When it is cold, they sit close together and turn slowly, so that every " +
  "bee is warm for a while. A hive makes more honey than the bees need, and the " +
  "keeper takes only what is left.",
  "The moon has no light of its own. We see the part of it on which the sun " +
  "shines, and that part changes from night to night. When the moon stands " +
  "between us and the sun, it is dark for us. Two weeks later it is full, and the " +
  "night is so bright that you can read the large letters of a book. The sea " +
  "follows the moon, and so do the fish.",
];
