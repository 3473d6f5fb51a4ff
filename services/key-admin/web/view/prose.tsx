/** Text of documents, with the little Markdown that they use. */
import type { Child } from "hono/jsx";

const LINE_BREAK = /\s*\n\s*/g;
/** Code, names, emphasis, and links, of which only the words are shown. */
const MARKED = /(`[^`]+`|\*\*[^*]+\*\*|_[^_`]+_(?= )|\[[^\]]+\]\([^)]+\))/;

/** Paragraphs and lists with `code`, **names**, _emphasis_ and the words of links. */
export const Prose = ({ text = "" }: { text?: string | undefined }) => (
  <>
    {text.split("\n\n").filter(Boolean).map((part) =>
      part.startsWith("- ")
        ? (
          <ul>
            {part.slice(2).split("\n- ").map((item) => (
              <li key={item}>{inline(item)}</li>
            ))}
          </ul>
        )
        : <p key={part}>{inline(part)}</p>
    )}
  </>
);

const inline = (text: string): Child =>
  text.replaceAll(LINE_BREAK, " ").split(MARKED).map((piece) => {
    if (piece.startsWith("`")) {
      return <code key={piece}>{piece.slice(1, -1)}</code>;
    }
    if (piece.startsWith("**")) {
      return <strong key={piece}>{piece.slice(2, -2)}</strong>;
    }
    const isEmphasis = /^_.+_$/.test(piece);
    if (isEmphasis) return <em key={piece}>{piece.slice(1, -1)}</em>;
    return /^\[([^\]]+)\]\(/.exec(piece)?.[1] ?? piece;
  });
