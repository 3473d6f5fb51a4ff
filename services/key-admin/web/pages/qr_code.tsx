import type { JSX } from "hono/jsx/jsx-runtime";
import { encodeQr } from "../qr.ts";

const QUIET = 4;

/** A QR code as SVG, dark on white in every colour scheme because scanners want it so. */
export function QrCode(
  { text, label }: { text: string; label: string },
): JSX.Element {
  const modules = encodeQr(text);
  if (modules === null) return <p>Your address is too long for a QR code.</p>;
  const size = modules.length + 2 * QUIET;
  const path = modules.flatMap((row, y) =>
    row.map((isDark, x) => isDark ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : "")
  ).join("");
  return (
    <svg
      class="qr"
      viewBox={`0 0 ${size} ${size}`}
      role="img"
      aria-label={label}
      shape-rendering="crispEdges"
    >
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  );
}
