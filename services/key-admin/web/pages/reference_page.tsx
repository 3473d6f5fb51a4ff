import document from "@gateway/shared/openai/openapi" with { type: "json" };
import { raw } from "hono/html";
import type { Child } from "hono/jsx";
import type { Handler } from "../context.ts";
import { showPage } from "../layout.tsx";
import { Noted, Table } from "../lists.tsx";
import { Copyable, Facts } from "../parts.tsx";
import { number } from "../texts.tsx";
import { recognize } from "../session.ts";

/** The reference of the API, from its description in OpenAPI. For everyone, as that is. */

type Bounds = {
  [Name in `${"min" | "max"}${"imum" | "Length" | "Items"}`]?: number;
};
/** The keywords of JSON Schema that the description uses. */
interface Schema extends Bounds {
  $ref?: string;
  type?: string | string[];
  description?: string;
  default?: number | boolean | string;
  const?: string | boolean;
  enum?: (string | null)[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: { [name: string]: Schema };
  required?: string[];
  pattern?: string;
  exclusiveMinimum?: number;
}
type Examples = { [name: string]: { value: unknown } };
interface Operation {
  operationId: string;
  summary: string;
  description?: string;
  requestBody?: {
    content: { [mediaType: string]: { schema: object; examples?: Examples } };
  };
  responses: { [status: string]: unknown };
}

const OPERATIONS = Object.entries(document.paths).flatMap(
  ([path, operations]: [string, { [method: string]: Operation }]) =>
    Object.entries(operations).map(([method, operation]) =>
      [`${method.toUpperCase()} ${path}`, operation] as const
    ),
);
const SCHEMAS: { [name: string]: Schema } = document.components.schemas;
const { examples: ERRORS, headers: HEADERS } = document.components;

const showReference: Handler = async (c) => {
  await recognize(c);
  const { apiUrl } = c.var.deps;
  const openApi = new URL("/openapi.json", apiUrl).href;
  return showPage(
    c,
    {
      title: "API reference",
      lead: "What programs send to the gateway, and what they get back.",
      actions: <a class="button" href={openApi}>OpenAPI file</a>,
    },
    <>
      <nav aria-label="On this page">
        {OPERATIONS.map(([name, { operationId }]) => (
          <a href={`#${operationId}`}>{name}</a>
        ))}
        <a href="#errors">Errors</a>
        <a href="#headers">Headers</a>
      </nav>
      <Facts
        facts={{
          "Base URL": <code>{apiUrl}</code>,
          "Key": <code>Authorization: Bearer $OPENAI_API_KEY</code>,
        }}
      />
      <section class="card">
        <Prose text={document.info.description} />
      </section>
      {REFERENCE}
    </>,
  );
};

export const referenceRoutes = { "/reference": { GET: showReference } };

const OperationCard = (
  { name, operation }: { name: string; operation: Operation },
) => {
  const { description = "", responses, requestBody: { content = {} } = {} } =
    operation;
  const examples = Object.values(content).flatMap(({ examples = {} }) =>
    Object.entries(examples)
  );
  return (
    <section class="card">
      <code>{name}</code>
      <Prose text={description} />
      <Refs label="Request" part={content} />
      <Refs label="Answer" part={responses[200]} />
      {examples.map(([id, { value }]) => (
        <details>
          <summary>Example: {id}</summary>
          <Copyable id={id} label={`Example: ${id}`}>
            {JSON.stringify(value, null, 2)}
          </Copyable>
        </details>
      ))}
    </section>
  );
};

/** The fields of an object. In a request, null means absent. A link to it unfolds it. */
const Shape = ({ name, isRequest }: { name: string; isRequest: boolean }) => (
  <details open={name.endsWith("Request")}>
    <summary>{name}</summary>
    <div id={name}>
      <Prose text={SCHEMAS[name]?.description ?? ""} />
      <Table
        caption={name}
        rows={fieldsOf(SCHEMAS[name] ?? {})}
        columns={[
          ["Field", ({ path }) => <code>{path}</code>],
          ["Takes", ({ schema, isRequired }) => (
            <>
              {takes(schema, isRequest && !isRequired)}
              {schema.default !== undefined && `, default ${schema.default}`}
              {isRequired && isRequest && (
                <>
                  {", "}
                  <strong>required</strong>
                </>
              )}
            </>
          )],
          [
            "Meaning",
            ({ schema }) => <Prose text={schema.description ?? ""} />,
          ],
        ]}
      />
    </div>
  </details>
);

/** The fields of an object and of objects in it: `function.name`, `choices[].index`. */
function fieldsOf({ properties = {}, required = [] }: Schema): Member[] {
  return Object.entries(properties).flatMap(([name, schema]) => {
    const { items = schema } = schema;
    const prefix = items === schema ? name : `${name}[]`;
    const inner = fieldsOf(items)
      .map((field) => ({ ...field, path: `${prefix}.${field.path}` }));
    const isRequired = required.includes(name);
    return [{ path: name, schema, isRequired }, ...inner];
  });
}
type Member = { path: string; schema: Schema; isRequired: boolean };

/** The names of the schemas that a part of the description refers to. */
const refsIn = (part: unknown): string[] =>
  [...JSON.stringify(part ?? {}).matchAll(/#\/components\/schemas\/(\w+)/g)]
    .map(([, name = ""]) => name);
const linkTo = (name: string) => <a href={`#${name}`}>{name}</a>;
const Refs = ({ label, part }: { label: string; part: unknown }) =>
  refsIn(part).length > 0 && (
    <p>
      {label}: {listed(refsIn(part).map(linkTo))}
    </p>
  );

/** What a schema takes: a type with bounds, values, or other schemas. */
function takes(schema: Schema, ignoresNull: boolean): Child {
  const { $ref = "", items, const: value = null } = schema;
  const counts = (type: unknown) => !ignoresNull || type !== "null";
  const [ref] = refsIn($ref);
  if (ref) return linkTo(ref);
  const values = schema.enum ?? (value === null ? [] : [value]);
  if (values.length > 0) {
    return listed(values.map((one) => <code key={one}>{one}</code>));
  }
  const options = (schema.anyOf ?? schema.oneOf ?? [])
    .filter(({ type }) => counts(type));
  if (options.length > 0) {
    return listed(options.map((option) => takes(option, ignoresNull)));
  }
  return (
    <>
      {[schema.type ?? []].flat().filter(counts).join(" or ")}
      {boundsOf(schema)}
      {items && <>{" of "}{takes(items, false)}</>}
    </>
  );
}

const listed = (items: Child[]) =>
  items.flatMap((item, at) => at === 0 ? [item] : [" or ", item]);

/** ` (1 to 8)`. The widest bounds of numbers say nothing. */
function boundsOf(schema: Schema): string {
  const { exclusiveMinimum: above, pattern, minItems, maxItems } = schema;
  const units = schema.maxLength ?? schema.minLength ? " characters" : "";
  const [least, most] = [
    schema.minimum ?? schema.minLength ?? (minItems || undefined),
    schema.maximum ?? schema.maxLength ?? maxItems,
  ].map((bound = Infinity) =>
    Math.abs(bound) < Number.MAX_SAFE_INTEGER && number(bound)
  );
  const range = least && most
    ? `${least} to ${most}${units}`
    : (least && `at least ${least}${units}`) ||
      (most && `at most ${most}${units}`);
  const bounds = [
    above !== undefined && `above ${above}`,
    range,
    pattern && (PATTERNS[pattern] ?? pattern),
  ].filter(Boolean);
  return bounds.length > 0 ? ` (${bounds.join(", ")})` : "";
}

const PATTERNS: { [pattern: string]: string } = {
  "^[^\\u0000-\\u001f\\u007f-\\u009f]*$": "no control characters",
  "^[a-zA-Z0-9_-]+$": "letters, digits, _ and -",
  "^(?i:https?:\\/\\/|data:image\\/)": "a URL of https, http or data:image",
  "^chatcmpl-.": "chatcmpl-…",
  "^(auto|[1-9]\\d{1,4}x[1-9]\\d{1,4})$": "auto, or a size such as 1024x1024",
};

/** The parts of Markdown that the description uses: paragraphs, lists, `code` and **names**. */
const Prose = ({ text }: { text: string }) => (
  <>
    {text.split("\n\n").filter(Boolean).map((part) =>
      part.startsWith("- ")
        ? (
          <ul>
            {part.slice(2).split("\n- ").map((item) => (
              <li key={item}>{inline(item)}</li>
            ))}
          </ul>
        )
        : <p key={part}>{inline(part)}</p>
    )}
  </>
);
const inline = (text: string): Child =>
  text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((piece) =>
    piece.startsWith("`")
      ? <code key={piece}>{piece.slice(1, -1)}</code>
      : piece.startsWith("**")
      ? <strong key={piece}>{piece.slice(2, -2)}</strong>
      : piece
  );

/** Operations, each followed by the schemas that no operation before it has, errors and headers. */
function reference() {
  const shown = new Set<string>();
  const shapes = (value: unknown, isRequest: boolean): Child[] =>
    refsIn(value).flatMap((name) => {
      if (shown.has(name)) return [];
      shown.add(name);
      return [
        <Shape key={name} name={name} isRequest={isRequest} />,
        ...shapes(SCHEMAS[name], isRequest),
      ];
    });
  return (
    <>
      {OPERATIONS.map(([name, operation]) => (
        <>
          <h2 id={operation.operationId}>{operation.summary}</h2>
          <OperationCard name={name} operation={operation} />
          {shapes(operation.requestBody, true)}
          {shapes(operation.responses[200], false)}
        </>
      ))}
      <h2 id="errors">Errors</h2>
      <Table
        caption="Errors"
        rows={Object.values(ERRORS)}
        columns={[
          ["Code and type", ({ value: { error } }) => (
            <Noted note={error.type}>
              <code>{error.code}</code>
            </Noted>
          )],
          ["Status", ({ summary }) => summary],
          ["Meaning", ({ description }) => <Prose text={description} />],
        ]}
      />
      <h2 id="headers">Headers of answers</h2>
      <Table
        caption="Headers of answers"
        rows={Object.entries(HEADERS)}
        columns={[
          ["Header", ([name]) => <code>{name}</code>],
          ["Example", ([, { example }]) => <code>{example}</code>],
          ["Meaning", ([, { description }]) => <Prose text={description} />],
        ]}
      />
    </>
  );
}

/** Rendered once: it is the same for everyone, and anyone may ask for it. */
const REFERENCE = raw(String(reference()));
