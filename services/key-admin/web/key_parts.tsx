import { LAST_USE_DAYS_KEPT } from "@gateway/shared/keys/limiter_state";
import type { KeyName, KeyRecord } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import { isExpired } from "../domain/keys/key_record.ts";
import { address } from "./lists.tsx";
import { Copyable } from "./parts.tsx";
import { Moment, SOON_MS } from "./texts.tsx";

/** What several pages show of a key. */

/** An example request. The key is in a variable to keep it out of the shell's history. */
export const Curl = ({ apiUrl, catalog, models = [] }: {
  apiUrl: string;
  catalog: Catalog;
  /** Those that the key may use; if empty, all. */
  models?: readonly string[];
}) => (
  <Copyable id="curl" label="Example request">
    {`curl ${apiUrl}/chat/completions \\
  -H "Authorization: Bearer $API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "${exampleModel(catalog, models)}",
       "messages": [{"role": "user", "content": "Hello"}]}'`}
  </Copyable>
);

/** Leads to the page "Try it", with a model that the key may use. */
export const TryLink = (
  { catalog, models }: { catalog: Catalog; models: readonly string[] },
) => (
  <a
    class="button small"
    href={address("/try", { model: exampleModel(catalog, models) })}
  >
    Try it
  </a>
);

/** The first model that the key may use and that is configured, as long as there is one. */
function exampleModel(catalog: Catalog, models: readonly string[]): string {
  const offered = [...catalog.keys()];
  const usable = offered.filter((id) => models.includes(id));
  return [...usable, ...models, ...offered][0] ?? "";
}

/** `Enabled`, `Expires soon`, `Disabled`, `Expired`: words and a colour, never a colour alone. */
export function Status(
  { keyRecord, nowMs }: { keyRecord: KeyRecord; nowMs: number },
) {
  if (isExpired(keyRecord, nowMs)) return <span class="badge">Expired</span>;
  if (keyRecord.state === "disabled") {
    return <span class="badge">Disabled</span>;
  }
  return (keyRecord.expiresAtMs ?? Infinity) - nowMs < SOON_MS
    ? <span class="badge warn">Expires soon</span>
    : <span class="badge good">Enabled</span>;
}

/** The other key of a rotation, with a link if it is one of those `present`. */
export function Rotation({ keyRecord, nowMs, present }: {
  keyRecord: KeyRecord;
  nowMs: number;
  present: ReadonlySet<string>;
}) {
  const { replaces, replacedBy, expiresAtMs } = keyRecord;
  const named = ([id, hint]: KeyName) =>
    present.has(id) ? <a href={`/keys/${id}`}>{hint}</a> : hint;
  return (
    <>
      {replaces && <p class="help">Replaces {named(replaces)}</p>}
      {replacedBy && (
        <p class="help">
          Replaced by {named(replacedBy)}
          {expiresAtMs !== null && (
            <>
              , {isExpired(keyRecord, nowMs) ? "ended" : "ends"}{" "}
              <Moment ms={expiresAtMs} nowMs={nowMs} />
            </>
          )}
        </p>
      )}
    </>
  );
}

/** When a key was last used, as far as that is still known. */
export function LastUse({ ms, keyRecord, nowMs }: {
  ms: number | null;
  keyRecord: KeyRecord;
  nowMs: number;
}) {
  const knownMs = nowMs - LAST_USE_DAYS_KEPT * 86_400_000;
  return ms === null && keyRecord.createdAtMs < knownMs
    ? <span class="faint">Not in {LAST_USE_DAYS_KEPT} days</span>
    : <Moment ms={ms} nowMs={nowMs} />;
}
