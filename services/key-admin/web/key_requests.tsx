import type { KeyRecord } from "@gateway/shared/keys/record";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import type { CreatedKey, Target } from "../domain/keys/key_store.ts";
import { type Rate, takeRate } from "../domain/sign_in/attempts.ts";
import { digest, isSecret } from "../domain/store/secret.ts";
import { actorOf, type ConsoleContext, Refused } from "./context.ts";
import { showPage } from "./layout.tsx";
import { Copyable, ShownOnce } from "./parts.tsx";

/** Shared by the pages that create and change keys. */

/** A person creates a few keys in a row; a script uses the command line (API6). */
export const CREATION_RATE: Rate = { count: 10, perMs: 60_000 };

/** The key of the path. Another owner's key does not exist (API1, ASVS 8.2.2). */
export async function findKey(c: ConsoleContext): Promise<KeyRecord> {
  const { deps: { keys }, signedIn: { session: { ownerId } } } = c.var;
  return await keys.find(ownerId, c.req.param("id") ?? "");
}

/** The key in the version that the page showed. */
export const targetOf = (
  c: ConsoleContext,
  { ownerId, id }: KeyRecord,
  version: number,
): Target => ({ ownerId, keyId: id, version, actor: actorOf(c) });

/**
 * Creates a key once for each nonce and answers with the only page that shows its
 * full value. The page is not cached and cannot be loaded again. `replaced` says
 * what happens to the old key of a rotation.
 */
export async function answerCreated(
  c: ConsoleContext,
  nonce: string,
  create: (once: string) => Promise<CreatedKey>,
  replaced?: string,
): Promise<Response> {
  const { deps: { redis, apiUrl }, signedIn: { session: { ownerId } } } = c.var;
  if (!isSecret(nonce)) {
    throw new Refused(400, "This form did not come from the console");
  }
  const waitMs = await takeRate(redis, `create ${ownerId}`, CREATION_RATE);
  if (waitMs > 0) {
    const seconds = String(Math.ceil(waitMs / 1_000));
    throw new Refused(
      429,
      `You created too many keys in the last minute. Try again in ${seconds} seconds`,
      { headers: { "retry-after": seconds } },
    );
  }
  const { key, value } = await create(digest(nonce));
  return showPage(
    c,
    { title: "Store your key", section: "keys", status: 201 },
    <ShownOnce
      title="Store your key now"
      lead={
        <>
          This is the only time the full value of{" "}
          <strong>
            <bdi>{key.description}</bdi>
          </strong>{" "}
          is shown. If you lose it, you need a new key.
        </>
      }
      label="API key"
      value={value}
      next="/keys"
    >
      {replaced && <p>{replaced}</p>}
      <h2>Try it</h2>
      <p>
        Set the environment variable <code>API_KEY</code>{" "}
        of your server to the key. Keep the key out of code and browsers.
      </p>
      <Curl apiUrl={apiUrl} model={key.models[0]} />
    </ShownOnce>,
  );
}

/** An example request. The key is in a variable to keep it out of the shell's history. */
export const Curl = ({ apiUrl, model = DEFAULT_MODEL_ID }: {
  apiUrl: string;
  /** A model that the key may use. */
  model?: string | undefined;
}) => (
  <Copyable id="curl" label="Example request">
    {`curl ${apiUrl}/chat/completions \\
  -H "Authorization: Bearer $API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "${model}",
       "messages": [{"role": "user", "content": "Hello"}]}'`}
  </Copyable>
);
