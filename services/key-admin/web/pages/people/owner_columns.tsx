/** The columns of lists of owners. */
import type { PriceTable } from "@gateway/shared/models/price_list";
import type { OwnerRow } from "../../../domain/operators/people_rows.ts";
import type { Column } from "../../view/sorting.tsx";
import { Email, Moment, money, number, Time } from "../../view/texts.tsx";

/**
 * Columns with the role, keys and usage of an owner; the cost where models have prices.
 */
export const ownerColumns = (
  nowMs: number,
  { used, prices: { id, currency } }: { used: string; prices: PriceTable },
): Column<OwnerRow>[] => [
  [
    "Owner",
    ({ account: { ownerId, email } }) => (
      <a href={`/people/${ownerId}`}>
        <Email>{email || "First owner"}</Email>
      </a>
    ),
    undefined,
    "name",
  ],
  [
    "Status",
    ({ account: { isDisabled, isOperator, hasSignedIn } }) => (
      <span class="row">
        {isDisabled
          ? <span class="badge bad">Disabled</span>
          : hasSignedIn
          ? <span class="badge good">Active</span>
          : <span class="badge">Not signed in yet</span>}
        {isOperator && <span class="badge">Operator</span>}
      </span>
    ),
    undefined,
    "status",
  ],
  [
    "Two-step",
    ({ account }) => account.totpSecret === null ? "Off" : "On",
    undefined,
    "second_factor",
  ],
  [
    "Created",
    ({ account }) => <Time ms={account.createdAtMs} as="day" />,
    undefined,
    "created",
  ],
  [
    "Last sign-in",
    ({ account: { signedInAtMs, hasSignedIn } }) =>
      signedInAtMs === null && hasSignedIn
        ? <span class="faint">Not recorded</span>
        : <Moment ms={signedInAtMs} nowMs={nowMs} />,
    undefined,
    "signed_in",
  ],
  ["Keys", ({ keys }) => number(keys), "num", "keys"],
  [
    `Requests ${used}`,
    ({ totals }) => number(totals.requests),
    "num",
    "requests",
  ],
  [`Tokens ${used}`, ({ totals }) => number(totals.tokens), "num", "tokens"],
  ...(id === null ? [] : [`Cost ${used}`]).map((label): Column<OwnerRow> => [
    label,
    ({ totals }) => money(totals.cost, currency),
    "num",
    "cost",
  ]),
];
