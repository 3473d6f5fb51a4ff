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

const schemaOf = (schema: z.ZodType, io: "input" | "output" = "input") => {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, {
    io,
    unrepresentable: "any",
  });
  return rest;
};

/** What is answered, by its media type. */
function contentOf(answers: AdminRoute["answers"]) {
  if (answers === "nothing") return {};
  const [type, schema] = answers === "csv"
    ? ["text/csv", TEXT]
    : ["application/json", schemaOf(answers, "output")];
  return { content: { [type]: { schema } } };
}

const HEADERS = {
  "if-match": {
    name: "If-Match",
    description:
      "The ETag of an answer: if there is another version by now, the answer is 412",
  },
  "idempotency-key": {
    name: "Idempotency-Key",
    description:
      "Of your choice: a second request with the same one within 24 hours gets 409",
  },
};

function operationOf({ path, ...route }: AdminRoute) {
  const query = schemaOf(route.query).properties ?? {};
  const inPath = Array.from(path.matchAll(/:(\w+)/g), ([, name]) => name);
  const parameters = [
    ...inPath.map((name) => ({
      name,
      in: "path",
      required: true,
      schema: TEXT,
    })),
    ...Object.entries(query).map(([name, schema]) => ({
      name,
      in: "query",
      schema,
    })),
    ...(route.headers ?? []).map((header) => ({
      ...HEADERS[header],
      in: "header",
      schema: TEXT,
    })),
  ];
  const hasBody = !(route.body instanceof z.ZodUndefined);
  return {
    summary: route.summary,
    description: `Needs the scope ${
      [route.scope, ...route.alsoWith ?? []].map((scope) => `\`${scope}\``)
        .join(" or ")
    }.`,
    parameters,
    ...hasBody && {
      requestBody: {
        required: true,
        content: { "application/json": { schema: schemaOf(route.body) } },
      },
    },
    responses: {
      "2XX": { description: "Done", ...contentOf(route.answers) },
      default: {
        description: "Refused; nothing was changed",
        content: { "application/json": { schema: ERROR } },
      },
    },
  };
}

const TEXT = { type: "string" };

/** A path as OpenAPI writes it: `/keys/{id}`. */
export const documentPath = (path: string): string =>
  path.replace(/:(\w+)/g, "{$1}");

/** Describes these routes, as far as they go below `base`. */
export function describe(base: string, routes: readonly AdminRoute[]): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    const path = base + documentPath(route.path);
    const operations = paths[path] ?? {};
    operations[route.method.toLowerCase()] = operationOf(route);
    paths[path] = operations;
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Gateway admin API",
      version: VERSION,
      description: "For programs that do what operators do. " +
        "Send an admin key as a bearer token.",
    },
    security: [{ admin_key: [] }],
    components: {
      securitySchemes: { admin_key: { type: "http", scheme: "bearer" } },
    },
    paths,
  };
}
