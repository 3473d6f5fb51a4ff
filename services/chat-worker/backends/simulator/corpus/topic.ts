/** Languages the corpus is written in, and `inner`: how the model talks to itself while it thinks. */
export const LANGUAGES = ["en", "de", "fr", "es", "zh", "ja", "inner"] as const;

/** One of {@link LANGUAGES}. */
export type LanguageId = typeof LANGUAGES[number];

/** One subject of the corpus. Each passage is a whole answer. */
export interface Topic {
  id: string;
  language: LanguageId;
  /** Words of questions that lead here and may not stand in the passages. */
  keywords: string;
  /** Line ends inside a paragraph are spaces; an empty line divides paragraphs. */
  passages: readonly string[];
  /** Line ends are line ends. */
  isVerse?: boolean;
}

/** The passages as the model learns them. */
export function passageTexts(topic: Topic): string[] {
  return topic.passages.map((passage) =>
    topic.isVerse ? passage.trim() : unwrap(passage, topic.language)
  );
}

function unwrap(passage: string, language: LanguageId): string {
  const joint = language === "zh" || language === "ja" ? "" : " ";
  return passage.trim().split(/\n\n+/)
    .map((paragraph) => paragraph.split(/\s*\n\s*/).join(joint))
    .join("\n\n");
}
