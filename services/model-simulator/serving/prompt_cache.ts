/** Remembers how prompts begin, as model servers do, to say what was cached. Pure. */
import { remember } from "@gateway/shared/process/maps";
import { BYTES_PER_TOKEN } from "@gateway/shared/openai/tokens";

/** Servers keep whole blocks of a few hundred tokens. */
const BLOCK_TOKENS = 256;
const BLOCK_CHARS = BLOCK_TOKENS * BYTES_PER_TOKEN;
/** Conversations of 25 million tokens. */
const BLOCKS_MAX = 100_000;
const FNV_OFFSET = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

/** The tokens of a prompt by what the cache knew of it. */
export interface CachedTokens {
  /** The beginning of the prompt, which an earlier one had, too. */
  readonly readTokens: number;
  /** What follows, in whole blocks, and is known from now on. */
  readonly writtenTokens: number;
}

/** The beginnings of the prompts that a simulator got. */
export class PromptCache {
  readonly #blocks = new Map<string, true>();

  /** `tokens`: of the whole prompt, of which at least one is always new. */
  take(prompt: string, tokens: number): CachedTokens {
    let read = 0;
    let blocks = 0;
    let digest = FNV_OFFSET;
    for (
      let end = BLOCK_CHARS;
      end <= prompt.length && blocks < BLOCKS_MAX;
      end += BLOCK_CHARS
    ) {
      for (let at = end - BLOCK_CHARS; at < end; at++) {
        digest = Math.imul(digest ^ prompt.charCodeAt(at), FNV_PRIME);
      }
      const key = `${blocks} ${digest}`;
      if (read === blocks && this.#blocks.has(key)) read += 1;
      remember(this.#blocks, { key, value: true, sizeMax: BLOCKS_MAX });
      blocks += 1;
    }
    const most = Math.max(0, tokens - 1);
    const all = Math.min(most, blocks * BLOCK_TOKENS);
    const readTokens = Math.min(most, read * BLOCK_TOKENS);
    return { readTokens, writtenTokens: all - readTokens };
  }
}
