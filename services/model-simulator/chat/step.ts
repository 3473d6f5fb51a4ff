/** What a choice is written in: tokens. */
import type {
  ChunkDelta,
  FinishReason,
} from "@gateway/shared/openai/completion";

/**
 * The output of one step; the content is empty while a stop sequence may have begun.
 */
export interface Step {
  delta: ChunkDelta;
  logprobs?: object[];
  finish?: FinishReason;
  /** The stop text before which the answer ends. */
  stoppedBy?: string;
}
