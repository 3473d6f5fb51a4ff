/** The forms of the console, filled in and sent as its pages do. */
import assert from "node:assert/strict";
import { silence } from "../../tests/e2e/media/recording_fixture.ts";
import { modelIdOf } from "./catalog_fixture.ts";
import {
  type Answer,
  type Form,
  hiddenField,
  type TestClient,
} from "./client_fixture.ts";
import { limitsOf } from "./domain/keys/settings.ts";
import type { TryKind } from "./domain/try/kinds.ts";
import { tryFields } from "./domain/try/request.ts";

/** The password of every owner in these tests. */
export const PASSWORD = "correct horse battery staple";

/** Sends the sign-in form. */
export const signIn = (
  client: TestClient,
  email: string,
  { password = PASSWORD, code = "" } = {},
): Promise<Answer> =>
  client.post("/sign-in", { email, password, code, next: "/keys" });

/** Whether the browser has a session. */
export const isSignedIn = async (client: TestClient): Promise<boolean> =>
  (await client.get("/keys")).status === 200;

/** The form of a new key, as the page sends it. */
export const keyForm = (description: string, more: Form = {}): Form => ({
  description,
  expires: "",
  scopes: ["chat", "models"],
  which_models: "all",
  models: [],
  allowedCidrs: "",
  endUsers: "",
  priority: "normal",
  keepSeconds: "",
  ...limitsOf(() => ""),
  ...more,
});

/** The form of the page "Try it" with this message. */
export const tryForm = (
  message: string,
  more: Record<string, string> = {},
): Record<string, string> => tryFormOf("chat", { message, ...more });

/** The form of a kind of models, with the simulator's model. */
export const tryFormOf = (
  kind: TryKind,
  fields: Record<string, string>,
): Record<string, string> => ({
  ...tryFields(kind, ""),
  model: modelIdOf(kind),
  ...fields,
});

/** The parts of {@link upload} that differ from one second of silence. */
export interface Upload {
  /** Fields of the form for a transcription. */
  fields?: Record<string, string>;
  files?: readonly File[];
  path?: string;
}

/** Sends the form for a transcription, with files. */
export function upload(
  client: TestClient,
  {
    fields = {},
    files = [silence()],
    path = "/try?kind=transcription",
  }: Upload = {},
): Promise<Answer> {
  const { file: _, ...form } = tryFormOf("transcription", fields);
  const body = new FormData();
  for (const [name, value] of Object.entries(form)) body.append(name, value);
  for (const file of files) body.append("file", file);
  const headers = { "sec-fetch-site": "same-origin" };
  return client.send(path, { method: "POST", headers, body });
}

/** A key that was created through the pages. */
export interface MadeKey {
  id: string;
  /** The value that clients send. Only {@link text} contains it. */
  value: string;
  /** The page that showed it. */
  text: string;
}

/** Creates a key through the pages. */
export async function makeKey(
  client: TestClient,
  description: string,
  more: Form = {},
): Promise<MadeKey> {
  const nonce = hiddenField((await client.get("/keys/new")).text, "nonce");
  const form = keyForm(description, { nonce, ...more });
  const { status, text } = await client.post("/keys/new", form);
  assert.equal(status, 201, text);
  const value = /sk-Cg[0-9A-Za-z]{46}/.exec(text)?.[0] ?? "";
  const list = await client.get("/keys");
  const id = /\/keys\/(key_[0-9A-Za-z]{20})/.exec(list.text)?.[1] ?? "";
  return { id, value, text };
}
