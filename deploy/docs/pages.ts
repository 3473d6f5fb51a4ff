/**
 * Writes the generated pages, the schema of the models file and the description of the
 * API: `deno task docs`.
 */
import { execFileSync } from "node:child_process";
import { catalogJsonSchema } from "@gateway/shared/models/catalog";
import { DIALECT_NAMES, DIALECTS } from "@gateway/shared/models/dialects";
import "@gateway/shared/openai/chat";
import "@gateway/shared/openai/completion";
import {
  ApiError,
  ERROR_KINDS,
  type ErrorKind,
} from "@gateway/shared/openai/error";
import { TAKES } from "@gateway/shared/openai/fields";
import "@gateway/shared/openai/forwarded";
import "@gateway/shared/openai/kept_answer";
import "@gateway/shared/openai/media";
import { aboutOf, keysOf, type Variables } from "@gateway/shared/process/env";
import type { MetricSpec, MetricTable } from "@gateway/shared/process/metrics";
import {
  BUS_METRICS,
  PROCESS_METRICS,
  REDIS_METRICS,
} from "@gateway/shared/process/lifecycle/ops_server";
import { RELOAD_METRICS } from "@gateway/shared/reload/metrics";
import { WORKER_METRICS } from "@gateway/shared/worker/metrics";
import { z } from "zod";
import { CHAT_WORKER_VARIABLES } from "../../services/chat-worker/config.ts";
import { EDGE_VARIABLES } from "../../services/edge-auth/config.ts";
import { EDGE_METRICS } from "../../services/edge-auth/metrics.ts";
import { OVERRIDE_METRICS } from "../../services/key-admin/domain/models/override_teller.ts";
import { NOTICE_METRICS } from "../../services/key-admin/domain/notices/notices.ts";
import { CONSOLE_METRICS } from "../../services/key-admin/web/server.ts";
import {
  COMMAND_VARIABLES,
  CONSOLE_VARIABLES,
} from "../../services/key-admin/config.ts";
import { MEDIA_WORKER_VARIABLES } from "../../services/media-worker/config.ts";
import { SIMULATOR_VARIABLES } from "../../services/model-simulator/config.ts";

const ROOT = new URL("../../", import.meta.url);

/** The variables of each service, in the order of the page. */
export const SERVICE_VARIABLES = {
  "edge-auth": EDGE_VARIABLES,
  "chat-worker": CHAT_WORKER_VARIABLES,
  "media-worker": MEDIA_WORKER_VARIABLES,
  "key-admin": CONSOLE_VARIABLES,
  "model-simulator": SIMULATOR_VARIABLES,
} as const;

const WORKERS = ["chat-worker", "media-worker"] as const;

/** Every metric by the services that export it, in the order of the page. */
export const METRIC_TABLES: readonly {
  services: readonly (keyof typeof SERVICE_VARIABLES)[];
  table: MetricTable;
}[] = [
  { services: ["edge-auth"], table: EDGE_METRICS },
  { services: WORKERS, table: WORKER_METRICS },
  { services: ["key-admin"], table: CONSOLE_METRICS },
  { services: ["key-admin"], table: OVERRIDE_METRICS },
  { services: ["key-admin"], table: NOTICE_METRICS },
  {
    services: ["edge-auth", ...WORKERS, "key-admin"],
    table: RELOAD_METRICS,
  },
  { services: ["edge-auth", ...WORKERS], table: BUS_METRICS },
  { services: ["edge-auth", "key-admin"], table: REDIS_METRICS },
  {
    services: ["edge-auth", ...WORKERS, "key-admin", "model-simulator"],
    table: PROCESS_METRICS,
  },
];

/**
 * Generates each file from the code and, where prose belongs to it, from its present
 * text.
 */
const GENERATORS: {
  [path: string]: (present: string) => string | Promise<string>;
} = {
  "docs/reference/variables.md": variablesPage,
  "docs/reference/metrics.md": (present) => withTable(present, metricRows()),
  "docs/errors.md": errorsPage,
  "docs/models.md": dialectsPage,
  "services/key-admin/web/pages/runbooks.json": runbooks,
  "deploy/models.schema.json": () => JSON.stringify(catalogJsonSchema()),
  "shared/openai/openapi.json": apiDescription,
};

const USAGE = `Usage: deno task docs

Writes from the code: ${Object.keys(GENERATORS).join(", ")}
`;

/** Paths from the root, with the text that each file should have. */
export async function generatedFiles(): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  for (const [path, generate] of Object.entries(GENERATORS)) {
    const text = await generate(await read(path));
    files.set(path, formatted(text, path));
  }
  return files;
}

const read = (path: string) => Deno.readTextFile(new URL(path, ROOT));

/** The sections of alerts, for the console. */
async function runbooks(): Promise<string> {
  const [, ...sections] = (await read("docs/troubleshooting.md"))
    .split(/^### /m);
  return JSON.stringify(sections.map((section) => {
    const [alert = "", ...lines] = section.split("\n");
    return { alert, text: lines.join("\n").trim() };
  }));
}

/** The text around the tables is kept. Cells are too wide to be aligned. */
function variablesPage(present: string): string {
  const [introduction = ""] = present.split("<!-- deno-fmt-ignore-start -->");
  const all = {
    ...SERVICE_VARIABLES,
    "gateway, the command": COMMAND_VARIABLES,
  };
  const tables = Object.entries(all).map(([name, variables]) =>
    `## ${name}\n\n${markdownTable(variableRows(variables))}\n`
  );
  return `${introduction}<!-- deno-fmt-ignore-start -->

${tables.join("")}<!-- deno-fmt-ignore-end -->
`;
}

function variableRows(variables: Variables): string[][] {
  const rows = Object.entries(variables).map(([name, schema]) => {
    const { isSecret, expects } = aboutOf(schema);
    const names = `\`${name}\`${isSecret ? ` or \`${name}_FILE\`` : ""}`;
    let preset = schema instanceof z.ZodOptional ? "none" : "required";
    if (schema instanceof z.ZodDefault) {
      const text = String(schema.def.defaultValue);
      preset = text === "" ? "none" : `\`${text}\``;
    }
    return [names, schema.description ?? "", expects, preset];
  });
  return [["Variable", "Meaning", "Value", "Default"], ...rows];
}

function metricRows(): string[][] {
  const rows = METRIC_TABLES.flatMap(({ services, table }) =>
    Object.values(table).map(({ name, type, labels, help }: MetricSpec) => [
      `\`${name}\``,
      type,
      labels.map((label) => `\`${label}\``).join(", ") || "–",
      services.join(", "),
      help,
    ])
  );
  return [["Metric", "Type", "Labels", "Exported by", "Meaning"], ...rows];
}

/** One error of each code. */
const ERRORS = keysOf(ERROR_KINDS)
  .map((code) => new ApiError(code, "…"));

/** One row per code. */
function errorsPage(present: string): string {
  const rows = ERRORS.map((each) => {
    const { code, type } = each.toBody().error;
    const { meaning, forOperators }: ErrorKind = ERROR_KINDS[each.code];
    const remedy = forOperators === undefined
      ? ""
      : ` Operator: ${forOperators}`;
    return [
      String(each.status),
      `\`${code}\``,
      `\`${type}\``,
      each.retryable ? "yes" : "no",
      `\`${each.code}\``,
      `${meaning}${remedy}`,
    ];
  });
  return withTable(present, [
    ["Status", "`code`", "`type`", "Retry", "In the log", "Meaning"],
    ...rows,
  ]);
}

/** One row per field of a dialect, one column per dialect. */
function dialectsPage(present: string): string {
  const rows = keysOf(DIALECTS.dashscope)
    .map((field) => [
      field,
      ...DIALECT_NAMES.map((is) => [DIALECTS[is][field]].flat().join(", ")),
    ]);
  const table = [["dialect", ...DIALECT_NAMES], ...rows];
  return withTable(
    present,
    table.map((cells) => cells.map((cell) => `\`${cell}\``)),
  );
}

/**
 * The page with the table whose first head is the same, which it must have, replaced by
 * this one.
 */
function withTable(page: string, rows: readonly (readonly string[])[]): string {
  const head = RegExp.escape(rows[0]?.[0] ?? "");
  const table = new RegExp(`^\\| *${head} .*\\n(?:\\|.*\\n)*`, "m");
  if (!table.test(page)) throw new Error(`The page has no table of ${head}`);
  return page.replace(table, () => markdownTable(rows));
}

function markdownTable([head = [], ...rows]: readonly (readonly string[])[]) {
  return [head, head.map(() => "---"), ...rows]
    .map((cells) => `| ${cells.join(" | ")} |\n`).join("");
}

/** A text, formatted by `deno fmt` as the file at `path` would be. */
function formatted(input: string, path: string): string {
  const args = ["fmt", `--ext=${path.split(".").at(-1)}`, "-"];
  return execFileSync(Deno.execPath(), args, { input, encoding: "utf8" });
}

interface JsonSchema {
  type?: string | string[];
  description?: string | undefined;
  default?: unknown;
  enum?: unknown[];
  anyOf?: JsonSchema[];
  $schema?: string;
  $id?: string;
  properties?: { [name: string]: JsonSchema };
  required?: string[];
  additionalProperties?: unknown;
}
interface Document {
  components: {
    responses: {
      [status: string]: { description: string; content: object };
    };
    [kind: string]: object;
  };
}

/**
 * The description of the API: prose, paths and headers are kept from the file, the rest
 * comes from the code.
 */
function apiDescription(present: string): string {
  const document: Document = JSON.parse(present);
  const { responses } = document.components;
  const examples = ERRORS.map((each) => {
    const retry = each.retryable ? "retry" : "do not retry";
    const summary = `${each.status}, ${retry}`;
    const { meaning: description } = ERROR_KINDS[each.code];
    return [each.code, { summary, description, value: each.toBody() }];
  });
  const exampleOf = (code: string) => ({
    $ref: `#/components/examples/${code}`,
  });
  for (const [status, response] of Object.entries(responses)) {
    const some = ERRORS.filter((each) => String(each.status) === status);
    const codes = some.map((each) => each.toBody().error.code);
    response.description = `\`${[...new Set(codes)].join("`, `")}\``;
    const schema = { $ref: "#/components/schemas/Error" };
    const examples = Object.fromEntries(
      some.map(({ code }) => [code, exampleOf(code)]),
    );
    response.content = { "application/json": { schema, examples } };
  }
  document.components.examples = Object.fromEntries(examples);
  // Those with an `id` in the modules that are imported above, sorted: their order is
  // that in which the modules happened to be loaded.
  const { schemas } = z.toJSONSchema(z.globalRegistry, CONVERSION);
  const names = Object.keys(schemas).sort();
  const sorted = Object.fromEntries(names.map((name) => [name, schemas[name]]));
  document.components.schemas = JSON.parse(
    JSON.stringify(sorted, withoutStrictness),
  );
  return JSON.stringify(document)
    .replaceAll('"#/$defs/', '"#/components/schemas/');
}

const CONVERSION = {
  io: "input",
  uri: (id: string) => `#/$defs/${id}`,
  override({ zodSchema, jsonSchema }): void {
    const takes = TAKES.get(zodSchema)?.schema;
    if (!(takes instanceof z.ZodType)) return;
    const input = z.toJSONSchema(takes, CONVERSION);
    Object.assign(jsonSchema, {
      ...input,
      $schema: undefined,
      $defs: undefined,
    });
  },
} satisfies Parameters<typeof z.toJSONSchema>[1];

/**
 * For `JSON.stringify`: lets the optional members of requests be null, and answers have
 * more members, which only our tests forbid.
 */
function withoutStrictness(_name: string, node: JsonSchema | null) {
  if (![node?.type].flat().includes("object") || !node?.properties) return node;
  const { $schema: _, $id: _id, additionalProperties, ...rest } = node;
  if (additionalProperties === false) return rest;
  const { properties, required = [] } = node;
  const members = Object.entries(properties).map(([name, member]) => [
    name,
    required.includes(name) ? member : orNull(member),
  ]);
  return { ...rest, properties: Object.fromEntries(members) };
}

function orNull(member: JsonSchema): JsonSchema {
  if (typeof member.type === "string" && member.enum === undefined) {
    return { ...member, type: [member.type, "null"] };
  }
  const { description, default: initial, ...rest } = member;
  const { anyOf = [rest] } = rest;
  const types = [...anyOf, { type: "null" }];
  return { description, default: initial, anyOf: types };
}

if (import.meta.main) {
  if (Deno.args.length > 0) {
    await Deno.stdout.write(new TextEncoder().encode(USAGE));
  } else {
    for (const [path, text] of await generatedFiles()) {
      await Deno.writeTextFile(new URL(path, ROOT), text);
    }
  }
}
