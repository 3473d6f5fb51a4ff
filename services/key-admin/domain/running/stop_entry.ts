/** The entry of the audit log about a request that was stopped. */
import type { RunningRequest } from "@gateway/shared/bus/running";
import type { KeyRecord } from "@gateway/shared/keys/record";
import { publicRequestId } from "@gateway/shared/process/ids";

/**
 * The entry, without who has stopped it. `key`: undefined or null if it was deleted.
 * `reason`: empty if none was stated.
 */
export function stopEntry(
  { requestId, keyId, model }: Pick<
    RunningRequest,
    "requestId" | "keyId" | "model"
  >,
  key: Pick<KeyRecord, "hint" | "description"> | null | undefined,
  reason: string,
) {
  const what = `${publicRequestId(requestId)}, ${model}`;
  return {
    action: "key.request_stopped",
    keyId,
    hint: key?.hint ?? "",
    description: key?.description ?? "",
    detail: reason === "" ? what : `${what}: ${reason}`,
  } as const;
}
