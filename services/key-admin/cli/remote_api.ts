/** The admin API of a gateway elsewhere, over HTTP with an admin key. */
import { errorMessage, keysOf } from "@gateway/shared/process/env";
import { clip } from "@gateway/shared/process/error_text";
import { z } from "zod";
import { ADMIN_ERRORS, AdminRefused } from "../api/route.ts";
import { ADMIN_BASE } from "../api/routes.ts";
import {
  type AdminPort,
  type PortLine,
  type PortRequest,
  queryOf,
} from "./port.ts";

/** A search over all keys takes two seconds; a change waits for the disk. */
const ANSWER_MS = 30_000;

const refusal = z.object({
  error: z.object({
    code: z.enum(keysOf(ADMIN_ERRORS)),
    message: z.string(),
    param: z.string().optional(),
  }),
});

/** The admin API does not answer, or something else does. */
export class ApiUnreachable extends Error {
  override name = "ApiUnreachable";
}

/** Where a gateway is, and what lets us in. */
export interface AdminAccess {
  /** The origin of the console. */
  readonly url: URL;
  /** `sk-admin-…` */
  readonly key: string;
}

/** Asks over HTTP. */
export class RemoteApi implements AdminPort {
  readonly #access: AdminAccess;

  constructor(access: AdminAccess) {
    this.#access = access;
  }

  async ask<Answer extends z.ZodType>(
    answer: Answer,
    line: PortLine,
    sent: PortRequest = {},
  ): Promise<z.output<Answer>> {
    const [method = "", path = ""] = line.split(" ");
    const { url: { origin }, key } = this.#access;
    const query = new URLSearchParams(queryOf(sent));
    const url = `${origin}${ADMIN_BASE}${path}${query.size ? `?${query}` : ""}`;
    const response = await fetch(url, {
      method,
      headers: { authorization: `Bearer ${key}` },
      body: sent.body === undefined ? null : JSON.stringify(sent.body),
      redirect: "manual",
      signal: AbortSignal.timeout(ANSWER_MS),
    }).catch((cause) => {
      const why = errorMessage(cause);
      throw new ApiUnreachable(`Cannot reach ${origin}: ${why}`, { cause });
    });
    const text = await response.text();
    if (response.status === 204) return answer.parse(undefined);
    const json = parsed(text);
    if (response.ok) {
      const { data, error } = answer.safeParse(json);
      if (error === undefined) return data;
      throw new ApiUnreachable(
        `${origin} gave an answer that is not understood: is it of another version? ${
          clip(text)
        }`,
        { cause: error },
      );
    }
    const { data } = refusal.safeParse(json);
    if (data === undefined) {
      throw new ApiUnreachable(
        `${origin} answered ${response.status} without an error of the admin API: is GATEWAY_ADMIN_URL the address of the console?`,
      );
    }
    const { code, message, param } = data.error;
    throw new AdminRefused(code, message, param === undefined ? {} : { param });
  }
}

/** JSON as an object; undefined for what is none. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
