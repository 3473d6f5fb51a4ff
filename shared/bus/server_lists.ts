/** The models that servers list, as workers tell them on their beats. */
import { z } from "zod";

const KIB = 1024;
const MIB = 1024 * KIB;
const NAME_CHARS_MAX = 64;
const ID_CHARS_MAX = 200;

/** The bounds of such lists, and of the time that they are good for. */
export const DISCOVERY_LIMITS = {
  /** A longer list is an error: 4 MiB are 10,000 models with long descriptions. */
  answerBytesMax: 4 * MIB,
  /** How long a server may take to send its list. */
  answerMs: 10_000,
  /** How long a worker waits for the first lists before it starts without them. */
  startMs: 2_000,
  /** Models of one server; further ones are left out, in the order of its list. */
  modelsMax: 1_000,
  /** Bytes of all lists of a worker, which go into one message of the bus. */
  namesBytesMax: 256 * KIB,
  /** How often a worker tells the edges its lists, besides when they change. */
  tellMs: 5_000,
  /** A server that does not answer keeps its models for this long. */
  keepMs: 600_000,
  /** A model whose last worker is gone gets 503 for this long, then 404. */
  awayMs: 60_000,
} as const;

/** The ids that servers list, by the names of the servers. */
export const serverListsSchema = z.record(
  z.string().max(NAME_CHARS_MAX),
  z.array(z.string().max(ID_CHARS_MAX)).max(DISCOVERY_LIMITS.modelsMax),
);

/** The ids that servers list, by the names of the servers. */
export type ServerLists = Readonly<Record<string, readonly string[]>>;
