/** Disabling several keys of a list together. */

import type { KeyRecord } from "@gateway/shared/keys/record";
import { z } from "zod";
import { PAGE_ROWS_MAX } from "../../../domain/keys/key_page.ts";
import {
  actorOf,
  type ConsoleContext,
  type Handler,
  Refused,
  type Routes,
} from "../../context.ts";
import { FORM, list, parseForm } from "../../request/forms.ts";
import {
  type KeyScope,
  noteForOperator,
  OWN_KEYS,
  ownScopeOf,
  stopRequests,
} from "../../request/key_scope.ts";
import { localPath } from "../../request/session.ts";
import { Page } from "../../view/layout.tsx";
import { Box, PostForm } from "../../view/parts.tsx";
import { Email, keyName } from "../../view/texts.tsx";
import { ReasonField } from "./key_form.tsx";

/** The keys of all accounts, for operators. */
export const ALL_KEYS = "/people/keys";

const FORM_ID = "selected";

/** Selects a row of a list for {@link SelectedForm}. */
export const SelectBox = ({ value, name }: { value: string; name: string }) => (
  <input
    class="select"
    type="checkbox"
    name="keys"
    value={value}
    form={FORM_ID}
    aria-label={`Select ${name}`}
  />
);

/** The button for the rows that are selected. It asks before anything changes. */
export const SelectedForm = (
  { action, next }: { action: string; next: string },
) => (
  <form id={FORM_ID} method="get" action={action}>
    <input type="hidden" name="next" value={next} />
    <div class="row">
      <button class="small" type="submit">Disable selected keys</button>
    </div>
  </form>
);

/** A selected key and its account. */
interface Selected {
  readonly value: string;
  readonly key: KeyRecord;
  readonly scope: Pick<KeyScope, "other">;
}

const isForAll = (c: ConsoleContext): boolean =>
  c.req.path.startsWith(`${ALL_KEYS}/`);

/** The selected keys that there are and that whoever has signed in may change. */
async function selectedOf(
  c: ConsoleContext,
  values: readonly string[],
): Promise<Selected[]> {
  const read = isForAll(c) ? ofAnybody : ofAccount;
  const found = await Promise.all(
    values.slice(0, PAGE_ROWS_MAX).map((value) => read(c, value)),
  );
  return found.filter((selected) => selected !== null);
}

/** The key `key_…` of the account whose list it is. */
async function ofAccount(
  c: ConsoleContext,
  value: string,
): Promise<Selected | null> {
  const scope = ownScopeOf(c);
  const key = await c.var.deps.keys.get(scope.ownerId, value);
  const isTheirs = scope.createdBy === undefined ||
    key?.createdBy === scope.createdBy;
  return key !== null && isTheirs ? { value, key, scope } : null;
}

/** The key `own_….key_…` of any account, for operators. */
async function ofAnybody(
  c: ConsoleContext,
  value: string,
): Promise<Selected | null> {
  const { deps: { keys, people }, signedIn: { session } } = c.var;
  const [ownerId = "", keyId = ""] = value.split(".");
  const key = await keys.get(ownerId, keyId);
  const name = key && await people.name(ownerId);
  if (key === null || name === null) return null;
  const other = ownerId === session.ownerId ? null : { ownerId, name };
  return { value, key, scope: { other } };
}

const listOf = (c: ConsoleContext): string =>
  isForAll(c) ? ALL_KEYS : ownScopeOf(c).base;

/** The list as it was when the keys were selected. */
const backOf = (c: ConsoleContext, next: string | undefined): string =>
  next ? localPath(next) : listOf(c);

const askDisable: Handler = async (c) => {
  const selected = await selectedOf(c, c.req.queries("keys") ?? []);
  const back = backOf(c, c.req.query("next"));
  const enabled = selected.filter(({ key }) => key.state === "enabled");
  if (enabled.length === 0) throw new Refused(400, NOTHING, { back });
  return (
    <Page
      c={c}
      title="Disable these keys?"
      lead="Every request with one of the ticked keys is refused as soon as you confirm. You can enable each again at any time."
      isCard
    >
      <PostForm
        action={`${listOf(c)}/disable`}
        hidden={{ next: back }}
        submit="Disable keys"
        look="primary bad"
        cancel={back}
      >
        {enabled.map(({ value, key, scope: { other } }) => (
          <Box key={value} name="keys" value={value} checked>
            <span>
              {keyName(key)}
              {isForAll(c) && other && (
                <span class="help">
                  {" "}
                  <Email>{other.name}</Email>
                </span>
              )}
            </span>
          </Box>
        ))}
        {isForAll(c) && <ReasonField name="the owners of these keys" />}
        <Box name="stop_running">Also stop requests that are running now</Box>
      </PostForm>
    </Page>
  );
};

const NOTHING =
  "No enabled key is selected. Tick the keys in the list, then choose Disable selected keys";

const VALUE_CHARS_MAX = 100;

const disableSelected: Handler = async (c) => {
  const { keys, reason, stop_running: stops, next } = parseForm(
    c,
    FORM.pick({ stop_running: true, next: true }).extend({
      keys: list(VALUE_CHARS_MAX, PAGE_ROWS_MAX),
      reason: isForAll(c) ? FORM.shape.reason : z.undefined().optional(),
    }),
  );
  const selected = (await selectedOf(c, keys))
    .filter(({ key }) => key.state === "enabled");
  const actor = actorOf(c);
  for (const { key, scope } of selected) {
    const { ownerId, id: keyId } = key;
    const target = { ownerId, keyId, version: null, actor, reason };
    await c.var.deps.keys.disable(target);
    const action = "key.disabled";
    await noteForOperator(c, scope, { action, key, reason });
  }
  const isStopped = !stops || await stopSelected(c, selected);
  const back = backOf(c, next);
  const separator = back.includes("?") ? "&" : "?";
  const done = isStopped ? "keys_disabled" : "not_stopped";
  return c.redirect(`${back}${separator}done=${done}`, 303);
};

/** Stops the running requests of the keys. Returns false if that failed. */
async function stopSelected(
  c: ConsoleContext,
  selected: readonly Selected[],
): Promise<boolean> {
  const principals = selected.map(({ key: { id, ownerId } }) => ({
    keyId: id,
    ownerId,
  }));
  if (principals.length === 0) return true;
  if (!await stopRequests(c, principals)) return false;
  const action = "key.stop_requested";
  for (const { key, scope } of selected) {
    const { id: keyId, ownerId, hint, description } = key;
    const about = { ...actorOf(c), keyId, hint, description };
    await c.var.deps.audit.add(ownerId, { action, ...about });
    await noteForOperator(c, scope, { action, key });
  }
  return true;
}

/** The routes for selected keys of an account; they go before those of one key. */
export const selectedRoutes = (root: string): Routes => ({
  [`${root + OWN_KEYS}/disable`]: { GET: askDisable, POST: disableSelected },
});

/** The same for operators and the keys of all accounts. */
export const operatorSelectedRoutes: Routes = {
  [`${ALL_KEYS}/disable`]: { GET: askDisable, POST: disableSelected },
};
