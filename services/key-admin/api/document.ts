/** The description of the admin API, made of its routes: OpenAPI 3.1. */
import { VERSION } from "@gateway/shared/version";
import { z } from "zod";
import { ADMIN_ERRORS, type AdminRoute } from "./route.ts";

const ERROR = {
  type: "object",
  required: ["error"],
  properties: {
    error: {
      type: "object",
      required: ["code", "message"],
      properties: {
        code: { type: "string", enum: Object.keys(ADMIN_ERRORS) },
        message: { type: "string" },
        param: { type: "string", description: "What it is about" },
      },
    },
  },
};

const schemaOf = (schema: z.ZodType) => {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
  });
  return rest;
};

function operationOf({ method, path, ...route }: AdminRoute) {
  const query = schemaOf(route.query).properties ?? {};
  const parameters = [
    ...path.includes(":id")
      ? [{ name: "id", in: "path", required: true, schema: TEXT }]
      : [],
    ...Object.entries(query).map(([name, schema]) => ({
      name,
      in: "query",
      schema,
    })),
    ...method === "GET" ? [] : CHANGE_HEADERS,
  ];
  const type = route.answers === "csv" ? "text/csv" : "application/json";
  const content = route.answers === "nothing" ? {} : {
    content: { [type]: { schema: route.answers === "csv" ? TEXT : OBJECT } },
  };
  const hasBody = !(route.body instanceof z.ZodUndefined);
  return {
    summary: route.summary,
    description: `Needs the scope \`${route.scope}\`.`,
    parameters,
    ...hasBody && {
      requestBody: {
        required: true,
        content: { "application/json": { schema: schemaOf(route.body) } },
      },
    },
    responses: {
      "2XX": { description: "Done", ...content },
      default: {
        description: "Refused; nothing was changed",
        content: { "application/json": { schema: ERROR } },
      },
    },
  };
}

const TEXT = { type: "string" };
const OBJECT = { type: "object" };
const CHANGE_HEADERS = ["If-Match", "Idempotency-Key"]
  .map((name) => ({ name, in: "header", schema: TEXT }));

/** Describes these routes, as far as they go below `base`. */
export function describe(base: string, routes: readonly AdminRoute[]): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    const path = base + route.path.replace(":id", "{id}");
    const operations = paths[path] ?? {};
    operations[route.method.toLowerCase()] = operationOf(route);
    paths[path] = operations;
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Gateway admin API",
      version: VERSION,
      description: "For programs that manage keys, owners and usage. " +
        "Send an admin key as a bearer token.",
    },
    security: [{ admin_key: [] }],
    components: {
      securitySchemes: { admin_key: { type: "http", scheme: "bearer" } },
    },
    paths,
  };
}
