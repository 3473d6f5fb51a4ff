import { LAST_USE_DAYS_KEPT } from "@gateway/shared/keys/limiter_state";
import {
  KEY_SCOPES,
  type KeyName,
  type KeyRecord,
} from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import { isExpired } from "../domain/keys/key_record.ts";
import { codeOf } from "../domain/try/code.ts";
import { exampleFor } from "../domain/try/request.ts";
import { address } from "./lists.tsx";
import { Copyable } from "./parts.tsx";
import { Moment, SOON_MS } from "./texts.tsx";

/** What several pages show of a key. */

/** What decides which requests a key can send. */
type Rights = Pick<KeyRecord, "scopes" | "models">;
const ANY_KEY: Rights = { scopes: KEY_SCOPES, models: [] };

/** A first request that a key can send. The key is in a variable to keep it out of the shell's history. */
export const Curl = ({ apiUrl, catalog, keyRecord = ANY_KEY }: {
  apiUrl: string;
  catalog: Catalog;
  keyRecord?: Rights;
}) => {
  const example = exampleFor(catalog, keyRecord);
  return (
    <Copyable id="curl" label="Example request">
      {example
        ? codeOf(example.kind, example.request, apiUrl).curl
        : `curl ${apiUrl}/models -H "Authorization: Bearer $OPENAI_API_KEY"`}
    </Copyable>
  );
};

/** Leads to the page "Try it" with a model that the key may use, where there is one. */
export function TryLink(
  { catalog, keyRecord }: { catalog: Catalog; keyRecord: Rights },
) {
  const example = exampleFor(catalog, keyRecord);
  if (example === null) return null;
  const { kind, request } = example;
  const to = address("/try", { kind, model: String(request.model) });
  return <a class="button small" href={to}>Try it</a>;
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
