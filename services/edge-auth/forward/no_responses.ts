/**
 * What `/v1/responses` does not have here: WebSockets, and responses that are stored.
 */
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { clip } from "@gateway/shared/process/error_text";
import type { Admission } from "../limits/admission.ts";
import type { AuthenticatedCall, CallEnd } from "../requests/call.ts";

/** What refusing needs: a key that may not be used is told so first. */
interface RefusalDependencies {
  admission: Pick<Admission, "modelsOf">;
}

/**
 * Codex asks for a WebSocket first, and for events when it is told that there is none.
 */
export async function refuseWebSocket(
  { exchange, principal }: AuthenticatedCall,
  { admission }: RefusalDependencies,
): Promise<CallEnd> {
  await admission.modelsOf(principal, null);
  const { upgrade } = exchange.headers;
  if (upgrade === undefined) {
    const headers = { allow: "POST, OPTIONS" };
    const message = "Not allowed to GET on /v1/responses. Allowed: POST.";
    throw new ApiError("method_not_allowed", message, { headers });
  }
  const message = "WebSockets are not available here. Use POST with 'stream'.";
  const headers = { upgrade: "HTTP/1.1", connection: "upgrade" };
  throw new ApiError("upgrade_required", message, { headers });
}

/** Nothing is stored, so every request about a response by its id gets 404. */
export async function noStoredResponse(
  { id, principal }: AuthenticatedCall,
  { admission }: RefusalDependencies,
): Promise<CallEnd> {
  await admission.modelsOf(principal, null);
  const name = clip(id, REQUEST_LIMITS.nameCharsMax);
  const message = `No response '${name}' was found: none is stored here.`;
  throw new ApiError("not_found", message);
}
