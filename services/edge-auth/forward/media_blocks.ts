/** Media in forwarded requests, in the blocks of each dialect. */
import type { ForwardBody } from "@gateway/shared/forward/body";
import type { Medium, ModelConfig } from "@gateway/shared/models/catalog";
import { isJsonObject } from "@gateway/shared/process/error_text";
import {
  MEDIUM_OF_PART,
  notAccepted,
} from "../requests/body/accepted_media.ts";

/** Members with the conversation, or with the inputs. */
const SPOKEN = ["system", "messages", "input"];
/** Anthropic's blocks besides those that chat has. */
const MEDIUM_OF_BLOCK = new Map<string, Medium>([
  ...MEDIUM_OF_PART,
  ["image", "image"],
  ["document", "file"],
]);

/** A block with a medium, and where it stands. */
interface PlacedBlock {
  type: string;
  medium: Medium;
  path: string;
}

/**
 * Throws the 400 of the first block with a medium that the model does not take, if the
 * operator has said which it takes. If not, its server decides: only in chat, whose
 * schema names them, is a medium refused by default.
 */
export function requireAcceptedBlocks(
  { value }: Pick<ForwardBody, "value">,
  model: ModelConfig,
): void {
  if (!model.states_media) return;
  for (const name of SPOKEN) {
    const found = blockIn(value[name], name, model.accepts);
    if (found !== null) throw notAccepted(found, model);
  }
}

function blockIn(
  value: unknown,
  path: string,
  accepted: ReadonlySet<Medium>,
): PlacedBlock | null {
  if (Array.isArray(value)) {
    for (const [index, each] of value.entries()) {
      const found = blockIn(each, `${path}[${index}]`, accepted);
      if (found !== null) return found;
    }
    return null;
  }
  if (!isJsonObject(value)) return null;
  const { type, content, output } = value;
  if (typeof type === "string") {
    const medium = MEDIUM_OF_BLOCK.get(type);
    if (medium !== undefined && !accepted.has(medium)) {
      return { type, medium, path };
    }
  }
  // The content of a message, or of the result of a tool. What stands elsewhere, such
  // as the input of a call, is text.
  return blockIn(content, `${path}.content`, accepted) ??
    blockIn(output, `${path}.output`, accepted);
}
