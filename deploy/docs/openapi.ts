/** The description of the public API: prose, paths and headers as in the file, the rest from the code. */
import { chatRequestSchema } from "@gateway/shared/openai/chat";
import {
  chatCompletionChunkSchema,
  chatCompletionSchema,
  errorBodySchema,
  modelListSchema,
  modelSchema,
} from "@gateway/shared/openai/completion";
import {
  ApiError,
  ERROR_KINDS,
  isErrorCode,
} from "@gateway/shared/openai/error";
import { TAKES } from "@gateway/shared/openai/fields";
import {
  imageEditFormSchema,
  imageEditSchema,
  imageRequestSchema,
  speechRequestSchema,
  transcriptionRequestSchema,
  videoDeletedSchema,
  videoListSchema,
  videoRemixSchema,
  videoRequestSchema,
  videoSchema,
} from "@gateway/shared/openai/media";
import * as z from "zod";

const REQUESTS = [
  ...[chatRequestSchema, speechRequestSchema, imageRequestSchema],
  ...[imageEditFormSchema, imageEditSchema],
  ...[transcriptionRequestSchema("transcribe")],
  ...[videoRequestSchema, videoRemixSchema],
];
const ANSWERS = [
  ...[chatCompletionSchema, chatCompletionChunkSchema, errorBodySchema],
  ...[modelListSchema, modelSchema, videoSchema, videoListSchema],
  videoDeletedSchema,
];

interface JsonSchema {
  type?: string | string[];
  description?: string | undefined;
  default?: unknown;
  enum?: unknown[];
  anyOf?: JsonSchema[];
  properties?: { [name: string]: JsonSchema };
  required?: string[];
}
interface Document {
  components: {
    responses: {
      [status: string]: { description: string; content: object };
    };
    [kind: string]: object;
  };
}

/** The document `present` with all that comes from the code; `meanings` are those of the error codes. */
export function openApiDocument(
  present: string,
  meanings: ReadonlyMap<string, string>,
): Document {
  const document: Document = JSON.parse(present);
  const { responses } = document.components;
  const examples = Object.entries(ERROR_KINDS).map(([code, kind]) => {
    const retry = kind.retryable ? "retry" : "do not retry";
    // The rest is for operators.
    const description = meanings.get(code)?.replace(/ Operator:.*/, "");
    const value = isErrorCode(code) && new ApiError(code, "…").toBody();
    const summary = `${kind.status}, ${retry}`;
    return [code, { summary, description, value }] as const;
  });
  for (const [status, response] of Object.entries(responses)) {
    const some = examples.filter(([, { summary }]) =>
      summary.startsWith(status)
    );
    const codes = some.map(([, { value }]) => value && value.error.code);
    response.description = `\`${[...new Set(codes)].join("`, `")}\``;
    response.content = {
      "application/json": {
        schema: { $ref: "#/components/schemas/Error" },
        examples: Object.fromEntries(
          some.map(([code]) => [code, {
            $ref: `#/components/examples/${code}`,
          }]),
        ),
      },
    };
  }
  document.components.examples = Object.fromEntries(examples);
  document.components.schemas = jsonSchemas();
  return document;
}

/** The named schemas of requests and answers. */
function jsonSchemas(): { [name: string]: JsonSchema } {
  const requests = JSON.stringify(namedIn(REQUESTS), takeNull);
  const answers = JSON.stringify(namedIn(ANSWERS));
  const parse = (text: string) =>
    JSON.parse(text.replaceAll('"#/$defs/', '"#/components/schemas/'));
  return { ...parse(requests), ...parse(answers) };
}

/** The schemas with an `id`, as JSON Schema. */
function namedIn(list: readonly z.ZodType[]): { [name: string]: unknown } {
  const named: { [name: string]: unknown } = {};
  const convert = (schema: z.ZodType): object => {
    const { $schema: _, $defs = {}, ...converted } = z.toJSONSchema(schema, {
      io: "input",
      override({ zodSchema, jsonSchema }) {
        const takes = TAKES.get(zodSchema)?.schema;
        if (takes instanceof z.ZodType) {
          Object.assign(jsonSchema, convert(takes));
        }
        // Answers may get more members; only our tests forbid them.
        if (jsonSchema.additionalProperties === false) {
          delete jsonSchema.additionalProperties;
        }
      },
    });
    Object.assign(named, $defs);
    return converted;
  };
  for (const schema of list) convert(schema);
  return named;
}

/** For `JSON.stringify`: lets the optional members of an object be null. */
function takeNull(_name: string, node: JsonSchema | null): JsonSchema | null {
  if (![node?.type].flat().includes("object") || !node?.properties) return node;
  const { properties, required = [] } = node;
  const members = Object.entries(properties).map(([name, member]) => [
    name,
    required.includes(name) ? member : orNull(member),
  ]);
  return { ...node, properties: Object.fromEntries(members) };
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
