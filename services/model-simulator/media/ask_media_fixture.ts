/** Requests for media, with the official client and without. */
import { Buffer } from "node:buffer";
import OpenAI from "openai";
import { startAsked } from "../ask_fixture.ts";
import type { SimulatorOptions } from "../simulator.ts";

export function startMedia(options: SimulatorOptions = {}) {
  const asked = startAsked(options);
  const { url, seen } = asked;
  const client = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });
  return {
    ...{ url, seen, client },
    /** Posts JSON, or a form if a field is a file. */
    post: (path: string, fields: object, init: RequestInit = {}) => {
      const isForm = Object.values(fields).some((each) => each instanceof File);
      const body = isForm ? formOf(fields) : JSON.stringify(fields);
      return fetch(`${url}${path}`, { method: "POST", body, ...init });
    },
    [Symbol.asyncDispose]: () => asked[Symbol.asyncDispose](),
  };
}

function formOf(fields: object): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    form.set(name, value instanceof File ? value : String(value));
  }
  return form;
}

/** A recording of about 2.5 seconds: 25 characters are spoken in 70 ms each. */
export async function recording(
  { post }: ReturnType<typeof startMedia>,
  response_format = "wav",
) {
  const response = await post("/audio/speech", {
    ...{ model: "simulated-speech-1", voice: "alloy", response_format },
    ...{ input: "x".repeat(25), speed: 0.7 },
  });
  return new File([await response.blob()], `memo.${response_format}`);
}

/** What arrives before the connection is closed, and whether it is cut. */
export async function bytesOf(response: Response) {
  const chunks: Uint8Array[] = [];
  try {
    for await (const chunk of response.body ?? []) chunks.push(chunk);
    return { bytes: Buffer.concat(chunks), isCut: false };
  } catch {
    return { bytes: Buffer.concat(chunks), isCut: true };
  }
}
