import type { Target } from "../domain/keys/key_store.ts";
import type { OwnerDirectory } from "../domain/owners/directory.ts";
import { parseEmail } from "../domain/owners/email.ts";
import { COMMAND_LINE, noOwner } from "./answer.ts";
import { type CommandLine, UsageError } from "./arguments.ts";

/** Whose keys a command is about, and which of them. */

interface TargetDeps {
  owners: OwnerDirectory;
}

/** The key that was named. Throws {@link UsageError} when none was. */
export async function targetOf(
  deps: TargetDeps,
  line: CommandLine,
  keyId: string | undefined,
): Promise<Target> {
  if (keyId === undefined) throw new UsageError("Which key? Give its id");
  const ownerId = await findOwner(deps, line);
  return { ownerId, keyId, version: null, actor: COMMAND_LINE };
}

/** The owner that was named, or the first one. */
export async function findOwner(
  { owners }: TargetDeps,
  line: CommandLine,
): Promise<string> {
  const email = emailFrom(line);
  if (email === null) return await owners.first();
  const ownerId = await owners.find(email);
  if (ownerId === null) throw noOwner(email);
  return ownerId;
}

/** The owner of a new key. An address that is new is pointed out: it may be misspelt. */
export async function ensureOwner(
  { owners }: TargetDeps,
  line: CommandLine,
): Promise<{ ownerId: string; note: string }> {
  const email = emailFrom(line);
  if (email === null) return { ownerId: await owners.first(), note: "" };
  const known = await owners.find(email);
  if (known !== null) return { ownerId: known, note: "" };
  return {
    ownerId: await owners.ensure(email),
    note:
      `\n\nThe owner ${email} is new. So that he can sign in: owners invite ${email}`,
  };
}

function emailFrom(line: CommandLine): string | null {
  const text = line.text("owner");
  if (text === undefined) return null;
  const email = parseEmail(text);
  if (email === null) throw new UsageError("--owner is an e-mail address");
  return email;
}
