/** The form of a key: mistakes in it, and the settings that it describes. */
import assert from "node:assert/strict";
import { UNLIMITED } from "@gateway/shared/keys/record";
import { networkText } from "@gateway/shared/keys/networks";
import { catalogOfIds } from "../../../catalog_fixture.ts";
import { limitsOf } from "../../../domain/keys/settings.ts";
import { parse } from "./key_form.tsx";

const NOW_MS = Date.UTC(2026, 10, 20, 12);
const CONSOLE = {
  now: () => NOW_MS,
  catalog: catalogOfIds(["small-1", "large-1"]),
};

/** The form of a key, with single values instead of lists of one. */
type FormValues = Parameters<typeof parse>[0];
const valuesOf = (more: Partial<FormValues>): FormValues => ({
  description: "A key",
  scopes: ["chat"],
  models: [],
  allowedCidrs: "",
  endUsers: "",
  priority: "normal",
  keepSeconds: "",
  expires: "",
  which_models: more.models === undefined ? "all" : "these",
  ...limitsOf(() => ""),
  ...more,
});

/** A field of the form, texts that it does not take, and the message about them. */
interface Mistake {
  field: keyof FormValues;
  says: RegExp;
  values: readonly (string | string[])[];
}

const MISTAKES: readonly Mistake[] = [
  {
    field: "description",
    says: /Say what/,
    values: ["", "   ", "\u200D\u200B", "\u3164"],
  },
  {
    field: "description",
    says: /At most 100 characters/,
    values: [
      "a".repeat(101),
      "e\u0301".repeat(101),
      "a".repeat(1_000),
    ],
  },
  {
    field: "description",
    says: /Line breaks, control characters and text direction/,
    values: [
      "a\r\nset-cookie: b=c",
      "a\u2066b\u2069",
      "a\nb",
      "a\u202Eb",
      "a\0b",
      "a\uFFFE",
      "a\uFFF9b",
    ],
  },
  { field: "scopes", says: /Choose at least one/, values: [[]] },
  { field: "scopes", says: /Scopes are/, values: [["root"]] },
  {
    field: "requestsPerMinute",
    says: /At most 1,000,000/,
    values: ["1000001", "9007199254740991"],
  },
  { field: "concurrency", says: /At most 1,000,000/, values: ["1000001"] },
  {
    field: "tokensPerMinute",
    says: /At most 1,000,000,000,000/,
    values: [
      "1000000000001",
      "9007199254740993",
      "9".repeat(400),
    ],
  },
  {
    field: "tokensPerDay",
    says: /At most 1,000,000,000,000/,
    values: ["1000000000001"],
  },
  {
    field: "tokensPerMinute",
    says: /^Must be a whole number/,
    values: [
      "many",
      "-5",
      "1.5",
      "1e3",
      "1,000",
      "1e400",
      "Infinity",
      "NaN",
      "0x1",
      "-0",
      "+1",
      "1;2",
      "٣",
    ],
  },
  {
    field: "keepSeconds",
    says: /^Must be a whole number of seconds from 0 to 3600/,
    values: ["3601", "-1", "1.5", "soon", "9".repeat(20)],
  },
  {
    field: "budgetDay",
    says: /^Expected a decimal such as "2.50"; 0 means no budget/,
    values: [
      "much",
      "1e3",
      "1,50",
      "+1",
      "$5",
      "NaN",
      "٣",
      ".5",
      "1".repeat(50),
    ],
  },
  {
    field: "budgetMonth",
    says: /^Expected an amount that is not negative/,
    values: ["-1", "-0.000000001"],
  },
  {
    field: "budgetTotal",
    says: /^Expected at most 9 decimals/,
    values: ["0.0000000001"],
  },
  {
    field: "budgetTotal",
    says: /^Expected at most 9007199/,
    values: ["9007199.254740992", "1".repeat(40)],
  },
  { field: "models", says: /Model ids/, values: [["a<b"]] },
  {
    field: "models",
    says: /Choose at least one model, or all models/,
    values: [[]],
  },
  {
    field: "models",
    says: /^There is no model 'small', did you mean 'small-1'\?$/,
    values: [
      ["large-1", "small"],
    ],
  },
  {
    field: "models",
    says: /^There is no model 'gpt-5'. The models are small-1, large-1$/,
    values: [
      ["gpt-5"],
    ],
  },
  {
    field: "allowedCidrs",
    says: /^office: Not an IP address or a network such as 10\.0\.0\.0\/8/,
    values: ["office", "10.0.0.0/8 office", "10.0.0.0/8,\noffice"],
  },
  {
    field: "allowedCidrs",
    says:
      /^10\.0\.0\.1\/8: Its address is not the first of the network: 10\.0\.0\.0\/8/,
    values: ["10.0.0.1/8"],
  },
  {
    field: "allowedCidrs",
    says: /^At most 50 networks/,
    values: [Array.from({ length: 51 }, (_, n) => `192.0.2.${n}`).join("\n")],
  },
  {
    field: "endUsers",
    says: /^(name|header:|header:a\/b): Begin with what tells end users apart/,
    values: ["name rpm=1", "header: rpm=1", "header:a/b rpm=1"],
  },
  {
    field: "endUsers",
    says: /^Name a limit, as in header:x-user-id rpm=60/,
    values: ["user", "session rpm=0"],
  },
  {
    field: "endUsers",
    says:
      /^(rmp=1: There is no such limit.*rpm|rpm(=|=-1|=1\.5|=1000001): Must be)/,
    values: ["user rmp=1", "user rpm=", "user rpm=-1", "user rpm=1.5"],
  },
  {
    field: "endUsers",
    says:
      /^budget-day=.*: Expected (an amount that is not negative|at most 9|a decimal)/,
    values: [
      "user budget-day=-1",
      "user budget-day=0.0000000001",
      "user budget-day=9007199.3",
      "user budget-day=1e3",
    ],
  },
  {
    field: "expires",
    says: /today or a later day/,
    values: ["2026-11-19", "soon", "2027-02-30"],
  },
];

Deno.test("ASVS 2.2.1: parse() reports the mistakes in a key's form by field", async (t) => {
  for (const { field, says, values } of MISTAKES) {
    for (const value of values) {
      await t.step(`${field}: ${JSON.stringify(value).slice(0, 30)}`, () => {
        const { settings, errors } = parse(
          valuesOf({ [field]: value }),
          CONSOLE,
          null,
        );
        assert.equal(settings, undefined);
        assert.deepEqual([...errors.keys()], [field]);
        assert.match(errors.get(field) ?? "", says);
      });
    }
  }
});

Deno.test("parse() reads settings: normal text, limits, models, the end of a day", () => {
  const { settings } = parse(
    valuesOf({
      description: "e\u0301🔑".repeat(50),
      tokensPerDay: " 10000 ",
      requestsPerMinute: "1000000",
      tokensPerMinute: "1000000000000",
      budgetDay: " 2.50 ",
      budgetTotal: "9007199.254740991",
      models: ["small-1", "gone-1"],
      endUsers: " header:X-User-Id  tpm=10000 budget-day=2.50 ",
      allowedCidrs: "10.0.0.0/8,::ffff:10.0.0.0/104\r\n 2001:DB8::/32 ",
      expires: "2026-11-20",
    }),
    CONSOLE,
    { expiresAtMs: null, models: ["gone-1"] },
  );
  assert.equal(settings?.description, "é🔑".repeat(50));
  assert.deepEqual(settings?.limits, {
    ...UNLIMITED,
    requestsPerMinute: 1_000_000,
    tokensPerMinute: 1_000_000_000_000,
    tokensPerDay: 10_000,
    concurrency: 0,
    budgetDay: 2_500_000_000,
    budgetTotal: Number.MAX_SAFE_INTEGER,
  });
  assert.deepEqual(settings?.models, ["small-1", "gone-1"]);
  assert.deepEqual(settings?.endUsers, {
    from: "header:x-user-id",
    requestsPerMinute: 0,
    tokensPerMinute: 10_000,
    budgetDay: 2_500_000_000,
  });
  const cidrs = settings?.networks.map(networkText);
  assert.deepEqual(cidrs, ["10.0.0.0/8", "2001:db8::/32"]);
  assert.equal(settings?.expiresAtMs, Date.UTC(2026, 10, 20, 23, 59, 59));
  // The day that a key has already is no change, whatever the hour, even in the past.
  for (const keptMs of [NOW_MS - 1, NOW_MS - 86_400_000]) {
    const expires = new Date(keptMs).toISOString().slice(0, 10);
    const result = parse(valuesOf({ expires }), CONSOLE, {
      expiresAtMs: keptMs,
      models: [],
    }).settings;
    assert.equal(result?.expiresAtMs, keptMs);
  }
});
