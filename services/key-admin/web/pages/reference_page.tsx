/**
 * The API reference, made from the OpenAPI document. Like that, it needs no sign-in.
 */

import document from "@gateway/shared/openai/openapi" with { type: "json" };
import { raw } from "hono/html";
import type { Child } from "hono/jsx";
import type { Handler, Routes } from "../context.ts";
import { Page } from "../view/layout.tsx";
import { Prose } from "../view/prose.tsx";
import { Copyable, Facts, Noted, Table } from "../view/parts.tsx";
import { labelOf } from "../view/texts.tsx";
import { recognize } from "../request/session.ts";

/** JSON Schema, as far as the description uses it; the other keywords are bounds. */
interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  const?: string | boolean;
  enum?: (string | null)[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: { [name: string]: Schema };
  required?: string[];
  [bound: string]: unknown;
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
  return (
    <Page
      c={c}
      title="API reference"
      lead="What programs send to the gateway, and what they get back."
      actions={<a class="button" href={openApi}>OpenAPI file</a>}
    >
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
    </Page>
  );
};

/** The route of the API reference, which needs no sign-in. */
export const referenceRoutes: Routes = { "/reference": { GET: showReference } };

/** An operation, and the schemas that it uses for the first time. */
function sectionOf(name: string, operation: Operation, names: string[]) {
  const { operationId, summary, description = "", responses } = operation;
  const { 200: answer, ...errors } = responses;
  const content = operation.requestBody?.content ?? {};
  const examples = Object.values(content).flatMap(({ examples = {} }) =>
    Object.entries(examples)
  );
  return (
    <>
      <h2 id={operationId}>{summary}</h2>
      <section class="card">
        <code>{name}</code>
        <Prose text={description} />
        {refs("Request", content)}
        {refs("Answer", answer)}
        {refs("Error", errors)}
        {examples.map(([example, { value }]) => (
          <details>
            <summary>Example: {example}</summary>
            <Copyable
              id={`${operationId}-${example}`}
              label={`Example: ${example}`}
            >
              {JSON.stringify(value, null, 2)}
            </Copyable>
          </details>
        ))}
      </section>
      {names.map((name) => <Shape key={name} name={name} />)}
    </>
  );
}

/** The fields of an object. A link to it unfolds it. */
const Shape = ({ name }: { name: string }) => (
  <details open={name.endsWith("Request")}>
    <summary>{name}</summary>
    <div id={name}>
      <Prose text={SCHEMAS[name]?.description} />
      <Table
        caption={name}
        rows={fieldsOf(SCHEMAS[name] ?? {})}
        columns={[
          ["Field", ({ path }) => <code>{path}</code>],
          ["Value", ({ schema, isRequired }) => (
            <>
              {valueOf(schema)}
              {isRequired && <strong>, required</strong>}
            </>
          )],
          ["Meaning", ({ schema }) => <Prose text={schema.description} />],
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
const refs = (label: string, part: unknown) => {
  const names = [...new Set(refsIn(part))];
  return names.length > 0 && (
    <p>
      {label}: {listed(names.map(linkTo))}
    </p>
  );
};

/**
 * Describes the value of a field: types or values with their bounds, or other schemas.
 */
function valueOf(schema: Schema): Child {
  const { $ref, type = [], enum: values, const: only, items } = schema;
  const [ref] = refsIn($ref);
  if (ref) return linkTo(ref);
  const options = schema.oneOf ?? schema.anyOf;
  if (options) return listed(options.map(valueOf));
  const names = [values ?? only ?? type].flat();
  const bounds = Object.entries(schema)
    .filter((bound) => BOUND.test(bound.join(" ")))
    .map(([name, bound]) => `${labelOf(name).toLowerCase()} ${bound}`);
  return (
    <>
      {listed(names.map((name) => <code key={name}>{String(name)}</code>))}
      {bounds.length > 0 && ` (${bounds.join(", ")})`}
      {items && <>{" of "}{valueOf(items)}</>}
    </>
  );
}
/** Bounds that say something: not the largest numbers, nor any number of items. */
const BOUND =
  /^(?!minItems 0$|.* -?9007199254740991$)(min|max|excl|pattern|default|format)/;

const listed = (items: Child[]) =>
  items.flatMap((item, at) => at === 0 ? [item] : [" or ", item]);

/** The operations with the schemas that no earlier one uses, errors and headers. */
function reference() {
  const names = new Set<string>();
  const newIn = (part: unknown): string[] =>
    refsIn(part).flatMap((name) => {
      if (names.has(name)) return [];
      names.add(name);
      return [name, ...newIn(SCHEMAS[name])];
    });
  return (
    <>
      {OPERATIONS.map(([name, operation]) => {
        const { requestBody, responses } = operation;
        return sectionOf(name, operation, newIn([requestBody, responses]));
      })}
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
