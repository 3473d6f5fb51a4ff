import { countTokens as countCl100k } from "gpt-tokenizer/esm/encoding/cl100k_base";
import { countTokens as countO200k } from "gpt-tokenizer/esm/encoding/o200k_base";

/** What the tokenizers of OpenAI find in a text. They stand for those of all models; nothing but tests uses them. */
export function gptTokens(text: string): { least: number; most: number } {
  const counts = [countO200k(text), countCl100k(text)];
  return { least: Math.min(...counts), most: Math.max(...counts) };
}
