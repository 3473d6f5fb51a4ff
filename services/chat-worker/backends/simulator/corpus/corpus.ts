import { CHINESE, FRENCH, GERMAN, JAPANESE, SPANISH } from "./abroad.ts";
import { ARTS, POEMS } from "./arts.ts";
import { COOKING, GARDEN, WELLBEING } from "./home.ts";
import { MATHS, NATURE, SCIENCE } from "./science.ts";
import { ABOUT, SMALL_TALK, THINKING } from "./talk.ts";
import { CODE, GATEWAYS } from "./technology.ts";
import type { Topic } from "./topic.ts";
import { HISTORY, TRAVEL, WORK } from "./world.ts";

/** All that the model learns from: plain prose, written for this project. At most 31 topics, a bit each. */
export const CORPUS: readonly Topic[] = [
  SMALL_TALK,
  ABOUT,
  GATEWAYS,
  CODE,
  COOKING,
  GARDEN,
  WELLBEING,
  TRAVEL,
  HISTORY,
  WORK,
  SCIENCE,
  NATURE,
  MATHS,
  POEMS,
  ARTS,
  GERMAN,
  FRENCH,
  SPANISH,
  CHINESE,
  JAPANESE,
  THINKING,
];

/** The topic of messages that are about none. */
export const CORPUS_FALLBACK_ID = "small-talk";

/** The topic that the model thinks in. */
export const CORPUS_THINKING_ID = "thinking";
