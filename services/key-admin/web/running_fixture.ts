/** Running requests, as edges would report them. */
import { publicRequestId } from "@gateway/shared/process/ids";
import type { TestConsole } from "../console_fixture.ts";
import type { RunningView } from "../domain/running/running_requests.ts";

/** Adds a running request with a key. Returns its id as pages show it. */
export function run(
  { running }: Pick<TestConsole, "running">,
  { ownerId, keyId }: { ownerId: string; keyId: string },
  more: Partial<RunningView> = {},
): string {
  const requestId = (running.length + 10).toString(16).padStart(32, "0");
  running.push({
    requestId,
    keyId,
    account: ownerId,
    kind: "chat",
    model: "small-1",
    workerId: "w1",
    state: "running",
    ageMs: 5_000,
    tokens: 0,
    backend: "",
    ...more,
  });
  return publicRequestId(requestId);
}
