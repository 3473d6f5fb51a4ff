/** The page that shows a new key once, and first requests with a key. */

import { KEY_SCOPES, type KeyRecord } from "@gateway/shared/keys/record";
import type { CreatedKey } from "../../../domain/keys/key_store.ts";
import { type Rate, takeRate } from "../../../domain/sign_in/attempts.ts";
import { digest } from "../../../domain/store/secret.ts";
import { codeOf } from "../../../domain/try/code.ts";
import { exampleFor } from "../../../domain/try/request.ts";
import {
  type ConsoleContext,
  type ConsoleDeps,
  Refused,
} from "../../context.ts";
import type { KeyScope } from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { address, Copyable, ShownOnce } from "../../view/parts.tsx";
import { unitsText } from "../../view/texts.tsx";

/** A person creates a few keys in a row; a script uses the command line (API6). */
export const CREATION_RATE: Rate = { count: 10, perMs: 60_000 };

/** Throws a {@link Refused} with 429 beyond {@link CREATION_RATE}. */
export async function takeCreation(c: ConsoleContext): Promise<void> {
  const { deps, signedIn: { session: { ownerId } } } = c.var;
  const waitMs = await takeRate(deps.redis, `create ${ownerId}`, CREATION_RATE);
  if (waitMs <= 0) return;
  const seconds = Math.ceil(waitMs / 1_000);
  const wait = unitsText(seconds, "seconds");
  const message =
    `You created too many keys in the last minute. Try again in ${wait}`;
  const headers = { "retry-after": `${seconds}` };
  throw new Refused(429, message, { headers });
}

/** A key that is to be created, and how. */
interface Creation {
  /** The account of the key. */
  scope: Pick<KeyScope, "root" | "base">;
  /** The nonce of the form: one that is sent twice creates one key. */
  nonce: string;
  /** Creates the key unless one was created with the same `once`. */
  create: (once: string) => Promise<CreatedKey>;
  /** A sentence about the old key of a rotation. */
  replaced?: string;
}

/**
 * Creates a key and answers with the only page that shows its full value. The page is
 * not cached and cannot be loaded again. Throws a {@link Refused} with 429 beyond
 * {@link CREATION_RATE}.
 */
export async function answerCreated(
  c: ConsoleContext,
  { scope: { root, base }, nonce, create, replaced }: Creation,
) {
  const { deps } = c.var;
  await takeCreation(c);
  const { key, value } = await create(digest(nonce));
  const lead = (
    <>
      This is the only time the full value of{" "}
      <strong dir="auto">{key.description}</strong>{" "}
      is shown. If you lose it, you need a new key.
    </>
  );
  return (
    <Page c={c} title="Store your key now" lead={lead} status={201} isCard>
      <ShownOnce label="API key" value={value} next={base}>
        {replaced && <p>{replaced}</p>}
        <h2>Example request</h2>
        <p>
          On your server, set the environment variable{" "}
          <code>OPENAI_API_KEY</code>{" "}
          to the key. Keep the key out of code and browsers.
        </p>
        {curlFor(deps, key)}
        <p class="row">{tryLink(deps, { root, key })}</p>
      </ShownOnce>
    </Page>
  );
}

type Offer = Pick<ConsoleDeps, "apiUrl" | "catalog">;
/** The settings that decide which requests a key can send. */
type Rights = Pick<KeyRecord, "scopes" | "models">;
const ANY_KEY: Rights = { scopes: KEY_SCOPES, models: [] };

/**
 * A first request that a key can send. The key is in a variable to keep it out of the
 * shell's history.
 */
export function curlFor({ apiUrl, catalog }: Offer, key = ANY_KEY) {
  const example = exampleFor(catalog, key);
  return (
    <Copyable id="curl" label="Example request">
      {example
        ? codeOf(example.kind, example.request, apiUrl).curl
        : `curl ${apiUrl}/models -H "Authorization: Bearer $OPENAI_API_KEY"`}
    </Copyable>
  );
}

/** Leads to the page "Try it" with a model that the key may use, where there is one. */
export function tryLink(
  { catalog }: Offer,
  { root, key }: { root: string; key: Rights },
) {
  const { kind = "", request } = exampleFor(catalog, key) ?? {};
  const to = address(`${root}/try`, { kind, model: String(request?.model) });
  return kind && <a class="button small" href={to}>Try it</a>;
}
