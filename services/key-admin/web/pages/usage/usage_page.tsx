/** Pages and files of usage: of an account, of one key, of all accounts. */

import type { KeyRecord } from "@gateway/shared/keys/record";
import { spendCsv } from "../../../domain/keys/spend_csv.ts";
import { restOf, usageCsv } from "../../../domain/keys/usage_csv.ts";
import { GATEWAY } from "../../../domain/usage/day_sums.ts";
import { csvParts } from "../../../domain/usage/csv_parts.ts";
import { reportCsv } from "../../../domain/usage/report_csv.ts";
import type { Grouping } from "../../../domain/usage/usage_reports.ts";
import {
  answerCsv,
  type ConsoleContext,
  type Handler,
  Refused,
  type Routes,
} from "../../context.ts";
import {
  findKey,
  KEYS_OF_OWNER,
  keyScopeOf,
  OWN_KEYS,
  ownScopeOf,
  whoseOf,
} from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { Tabs } from "../../view/parts.tsx";
import { ALL_USAGE, PEOPLE_VIEWS } from "./addresses.ts";
import { spendFile, spendQueryOf } from "./spend_links.tsx";
import { limitsCard } from "./limits_view.tsx";
import { choiceOf } from "./usage_choice.tsx";
import { usageView } from "./usage_view.tsx";

const showUsage: Handler = async (c) => {
  const { deps } = c.var;
  const { ownerId, root, createdBy, ...scope } = ownScopeOf(c);
  const whose = whoseOf(scope);
  const choice = choiceOf(c);
  const all = whose === "own" ? "All your keys" : "All keys of the project";
  return (
    <Page
      c={c}
      title="Usage"
      lead={`${all} together, including deleted ones. Each key's page shows its own numbers.`}
      error={choice.error}
    >
      {await limitsCard(deps, ownerId, { whose })}
      {await usageView(deps, {
        ownerId,
        base: `${root}/usage`,
        choice,
        createdBy,
        keys: scope.base,
        isProject: whose === "project",
      })}
    </Page>
  );
};

/** The usage of all accounts together, for operators. */
const showAll: Handler = async (c) => {
  const choice = choiceOf(c);
  return (
    <Page
      c={c}
      title="Usage"
      lead="All accounts together. What they use now is added up again every 20 seconds."
      error={choice.error}
    >
      <Tabs
        label="View"
        tabs={PEOPLE_VIEWS}
        current={ALL_USAGE}
        to={(view) => view}
      />
      {await usageView(c.var.deps, {
        ownerId: GATEWAY,
        base: ALL_USAGE,
        choice,
      })}
    </Page>
  );
};

/** The account or key whose usage a file has. */
interface FileOf {
  ownerId: string;
  key?: KeyRecord | null;
  createdBy?: string | undefined;
}

/**
 * The file of an account or a key. With a time in the address, it has what the page
 * shows; without one, all hours that are kept, in all columns.
 */
export function answerUsage(
  c: ConsoleContext,
  { ownerId, key = null, createdBy }: FileOf,
): Response {
  const { redis, now, usage, catalog } = c.var.deps;
  const suffix = key === null ? "" : `-${key.id}`;
  const { texts, by, span, error } = choiceOf(c);
  const isAll = ownerId !== GATEWAY && by === null &&
    Object.values(texts).every((text) => text === "");
  if (isAll) {
    const query = { ownerId, key, createdBy };
    return answerCsv(c, `usage${suffix}.csv`, usageCsv(redis, query, now()));
  }
  if (span === null) throw new Refused(400, (error ?? "").replace(/\.$/, ""));
  const grouping = groupingOf(by, { ownerId, key });
  const name = `usage${suffix}-${span.from}-${span.to}.csv`;
  const query = {
    scope: { ownerId, keyId: key?.id ?? null },
    span,
    by: grouping,
    currency: catalog.prices.currency,
    others: grouping === "account" ? "others" : restOf(createdBy),
    parts: () => csvParts(c.var.deps, grouping, { ownerId, createdBy }),
  };
  return answerCsv(c, name, reportCsv(usage, query));
}

/** The groups of a file, as far as there are such. */
function groupingOf(
  by: Grouping | null,
  { ownerId, key }: { ownerId: string; key: KeyRecord | null },
): Grouping | null {
  const isPart = by === "key"
    ? key === null
    : by === "account"
    ? ownerId === GATEWAY
    : true;
  return isPart ? by : null;
}

const exportUsage: Handler = async (c) => {
  const scope = await keyScopeOf(c);
  const { ownerId, createdBy } = scope;
  const key = c.req.param("id") === undefined ? null : await findKey(c, scope);
  return answerUsage(c, { ownerId, key, createdBy });
};

const exportSpend: Handler = (c) => {
  const { redis } = c.var.deps;
  const { ownerId, membership, createdBy } = ownScopeOf(c);
  const name = membership?.project.name ?? c.var.signedIn.account.email;
  const query = { ...spendQueryOf(c), createdBy };
  const lines = spendCsv(redis, [{ ownerId, name }], query);
  return answerCsv(c, spendFile(query), lines);
};

const exportAllSpend: Handler = (c) => {
  const { redis, people } = c.var.deps;
  const query = spendQueryOf(c);
  const lines = spendCsv(redis, people.accounts(), query);
  return answerCsv(c, spendFile(query), lines);
};

/** What was used with one key, on the pages below this path. */
function routesBelow(keys: string): Routes {
  return {
    [`${keys}/:id/export.csv`]: { GET: exportUsage },
  };
}

/** The usage of an account and its files, below the root of its pages. */
export const usageRoutes = (root: string): Routes => ({
  [`${root}/usage`]: { GET: showUsage },
  [`${root}/usage/export.csv`]: { GET: exportUsage },
  [`${root}/usage/spend.csv`]: { GET: exportSpend },
  ...routesBelow(root + OWN_KEYS),
});

/** The same of any key and of all accounts together, for operators. */
export const operatorUsageRoutes: Routes = {
  [ALL_USAGE]: { GET: showAll },
  [`${ALL_USAGE}/export.csv`]: {
    GET: (c) => answerUsage(c, { ownerId: GATEWAY }),
  },
  [`${ALL_USAGE}/spend.csv`]: { GET: exportAllSpend },
  ...routesBelow(KEYS_OF_OWNER),
};
