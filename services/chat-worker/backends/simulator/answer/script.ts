import type { Bias } from "../language/ngram_model.ts";
import type { LengthPlan } from "./ending.ts";

/** Which of a message's texts a token belongs to. */
export type Channel = "reasoning" | "content";

/** One part of an answer. */
export type Segment =
  | {
    /** Tokens that are certain before they are said: JSON, a quoted result. */
    type: "fixed";
    channel: Channel;
    tokens: readonly number[];
  }
  | {
    /** Tokens that are sampled one by one. */
    type: "sampled";
    channel: Channel;
    bias: Bias;
    length: LengthPlan;
    /** Whether it begins like a new text, whatever was said before it. */
    isNewText: boolean;
  }
  | {
    /** One tool call. Its id and name go out with one token, the call mark. */
    type: "call";
    index: number;
    id: string;
    name: string;
    /** The JSON text of the arguments. */
    tokens: readonly number[];
  };

/** What one choice will say, and why it ends when nothing cuts it short. */
export interface Script {
  segments: readonly Segment[];
  reason: "stop" | "tool_calls";
}
