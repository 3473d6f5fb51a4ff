/** The parts of a file of usage: the keys of an account, or all accounts. */
import { KEY_FIELDS } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { isCreatedBy, keysFrom } from "../keys/key_page.ts";
import type { SpendAccount } from "../keys/spend_csv.ts";
import { GATEWAY } from "./day_sums.ts";
import type { CsvPart } from "./report_csv.ts";
import type { Grouping } from "./usage_reports.ts";

/** Reads the keys or accounts that have lines of their own; none by other groupings. */
export async function* csvParts(
  { redis, people }: {
    redis: RedisLink;
    people: { accounts: () => AsyncIterable<SpendAccount> };
  },
  by: Grouping | null,
  { ownerId, createdBy }: { ownerId: string; createdBy?: string | undefined },
): AsyncGenerator<CsvPart> {
  if (by !== "account" && by !== "key") return;
  if (ownerId !== GATEWAY) {
    yield* keyParts(redis, { ownerId, createdBy });
    return;
  }
  for await (const { ownerId: id, name } of people.accounts()) {
    const names = [id, name || "First owner"];
    if (by === "account") yield { scope: { ownerId: id, keyId: null }, names };
    else {
      for await (const part of keyParts(redis, { ownerId: id })) {
        yield { ...part, names: [...names, ...part.names] };
      }
    }
  }
}

/** The keys of an account. */
async function* keyParts(
  redis: RedisLink,
  { ownerId, createdBy }: { ownerId: string; createdBy?: string | undefined },
): AsyncGenerator<CsvPart> {
  for await (const { keyId, fields } of keysFrom(redis, ownerId)) {
    if (createdBy && !isCreatedBy(fields, createdBy)) continue;
    const { [KEY_FIELDS.hint]: hint, [KEY_FIELDS.description]: text } = fields;
    yield {
      scope: { ownerId, keyId },
      names: [keyId, hint ?? "", text ?? ""],
    };
  }
}
