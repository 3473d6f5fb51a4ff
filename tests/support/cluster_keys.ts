import { createKeyStore } from "../../services/key-admin/domain/keys/key_store.ts";
import { randomBytes } from "@gateway/shared/process/ids";
import type { RedisAddress } from "@gateway/shared/redis/link";
import type { Cluster } from "./cluster.ts";
import { postChat } from "./chat_request.ts";
import { testRedisLink } from "./redis_link.ts";

const READY_MS = 30_000;

const say = (content: string) => [{ role: "user", content }];
/** A stream that does not end by itself in the time of a test. */
export const LONG = {
  stream: true,
  max_tokens: 10_000,
  messages: say("[simulator: 10000 tokens] [simulator: 20 tokens per second]"),
};

/** Sends a chat request to edge number `edge`; it asks for one token where `body` does not say otherwise. */
export function askCluster(
  cluster: Cluster,
  value: string,
  edge: number,
  body: object = {},
  signal: AbortSignal | null = null,
): Promise<Response> {
  const one = { messages: say("[simulator: 1 token]"), max_tokens: 1 };
  const asked = { ...one, ...body };
  return postChat(cluster.baseUrl(edge), value, asked, { signal });
}

/** The code under which keys are changed by the console and the command line. */
export const openStore = ({ state }: Cluster) =>
  openStoreAt({ url: state.redis_url }, READY_MS);

/** The same on the Redis at an address. */
export async function openStoreAt(
  address: RedisAddress,
  deadlineMs: number,
  readyMs = READY_MS,
) {
  const open = () => testRedisLink(address, { deadlineMs });
  const [redis, writer] = [open(), open()];
  await Promise.all([redis.ready(readyMs), writer.ready(readyMs)]);
  return {
    store: createKeyStore({ redis, writer, randomBytes }),
    /** A link with all permissions. */
    redis,
    [Symbol.asyncDispose]: async () => {
      await Promise.all([redis.close(), writer.close()]);
    },
  };
}
