/** The requests that the forms of the page "Try it" describe. */
import type { KeyRecord } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import { scopeOf } from "@gateway/shared/models/kinds";
import { errorMessage } from "@gateway/shared/process/env";
import {
  CHAT_FORMS,
  type ChatForm,
  isChatForm,
  type TryRequest,
} from "./chat_forms.ts";
import {
  chatRequest,
  type Kind,
  TRY_KINDS,
  type TryField,
  type TryKind,
  type TryValues,
} from "./kinds.ts";

/** An endpoint to which a form is sent: that of its kind, or another one for chats. */
export type TryEndpoint = TryKind | ChatForm;

/** An endpoint with its path, and how a form becomes a request to it. */
interface EndpointForm {
  name: TryEndpoint;
  path: string;
  toRequest?: Kind["toRequest"];
  streamed?: TryRequest;
}

/** Returns the endpoint for the values of a form. Only chats are streamed. */
export function endpointOf(kind: TryKind, values: TryValues): EndpointForm {
  const { endpoint = "" } = values;
  if (kind === "chat" && isChatForm(endpoint)) {
    const toRequest: Kind["toRequest"] = (read, errors) =>
      CHAT_FORMS[endpoint](chatRequest(read, errors), errors);
    const streamed = { stream: true };
    return { name: endpoint, path: `/${endpoint}`, toRequest, streamed };
  }
  const { path, toRequest, streamed } = TRY_KINDS[kind];
  return {
    name: kind,
    path,
    ...toRequest && { toRequest },
    ...streamed && { streamed },
  };
}

/** The fields of a form below the model. */
const fieldsOf = (kind: TryKind): readonly TryField[] =>
  TRY_KINDS[kind].fields.flatMap(({ fields }) => fields);

/** The names of the fields of a form, each with this value. */
export const tryFields = <T>(kind: TryKind, value: T): Record<string, T> =>
  Object.fromEntries(
    ["model", ...fieldsOf(kind).map(({ name }) => name)]
      .map((name) => [name, value]),
  );

/** Whether models of this kind can be tried. */
export const isTryKind = (kind: string): kind is TryKind =>
  Object.hasOwn(TRY_KINDS, kind);

/** The first model that a key may use, with a request for it; null if there is none. */
export function exampleFor(
  catalog: Catalog,
  { scopes, models }: Pick<KeyRecord, "scopes" | "models">,
): { kind: TryKind; request: TryRequest } | null {
  for (const { id, kind } of catalog.values()) {
    const isNamed = models.length === 0 || models.includes(id);
    if (!isNamed || !isTryKind(kind)) continue;
    if (!scopes.includes(scopeOf(kind))) continue;
    const values = { model: id, ...TRY_KINDS[kind].example };
    return { kind, request: tryRequest(kind, values).request };
  }
  return null;
}

/** The result of {@link tryRequest}. */
interface ReadForm {
  request: TryRequest;
  /** Mistakes by field. */
  errors: Map<string, string>;
}

/**
 * The request of a filled-in form, and by field what cannot be sent of it. The API
 * itself checks the rest, as for any caller.
 */
export function tryRequest(kind: TryKind, values: TryValues): ReadForm {
  const { needed } = TRY_KINDS[kind];
  const { toRequest } = endpointOf(kind, values);
  const errors = new Map<string, string>();
  const members: Record<string, unknown> = {};
  for (const { name, read = String } of fieldsOf(kind)) {
    const text = values[name] ?? "";
    const complaint = needed?.[name];
    try {
      if (text.trim() !== "") members[name] = read(text);
      else if (complaint) errors.set(name, complaint);
    } catch (error) {
      errors.set(name, errorMessage(error));
    }
  }
  const body = toRequest?.(members, errors) ?? members;
  const request: TryRequest = { model: values.model ?? "", ...body };
  return { request, errors };
}
