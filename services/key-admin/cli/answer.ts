/** What a command says: one object for `--json`, the same for people. */
export interface Answer {
  json: object;
  text: string;
}

/** The command was understood and cannot be done. */
export class CommandRefused extends Error {
  override name = "CommandRefused";
}

/** Says that nobody has this address. */
export function noOwner(email: string): CommandRefused {
  return new CommandRefused(
    `There is no owner ${email}: "owners list" shows those there are`,
  );
}

/** Who acts on the command line, for the audit log. */
export const COMMAND_LINE = { by: "command line", ip: "" } as const;
