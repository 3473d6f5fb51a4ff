import type { JSX } from "hono/jsx/jsx-runtime";

/** Line icons on a 20 x 20 grid, drawn for this console. Decoration: the text beside them says it all. */
const PATHS = {
  mark: "M3 5.5 10 2l7 3.5v9L10 18l-7-3.5zM7 8l3 2 3-2M10 10v4",
  key: "M11.5 8.5 17 3m-2.5 2.5 2 2M12 12a4 4 0 1 1-1-4 4 4 0 0 1 1 4z",
  chart: "M3 17h14M5.5 14V9M10 14V4M14.5 14v-3",
  list: "M7 5h10M7 10h10M7 15h10M3.5 5h.01M3.5 10h.01M3.5 15h.01",
  person:
    "M10 10a3.25 3.25 0 1 0 0-6.5 3.25 3.25 0 0 0 0 6.5zM3.5 17a6.5 6.5 0 0 1 13 0",
  leave: "M8 3.5H4v13h4M13 6.5l3.5 3.5L13 13.5M16 10H8",
  plus: "M10 4v12M4 10h12",
  search: "M9 14.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM13 13l4 4",
  check: "M4 10.5 8 14.5 16 5.5",
  warn: "M10 3 2.5 16.5h15zM10 8.5v3.5M10 14.3h.01",
  copy: "M7 7V3.5h9.5V13H13M3.5 7H13v9.5H3.5z",
  edit: "M4 16l.8-3.5L13.5 3.8l2.7 2.7-8.7 8.7z",
  rotate: "M16 7A6.5 6.5 0 0 0 4 8M4 13a6.5 6.5 0 0 0 12-1M16 3v4h-4M4 17v-4h4",
  trash: "M3.5 5.5h13M8 5.5v-2h4v2M5 5.5l.8 11h8.4l.8-11M8.5 9v4.5M11.5 9v4.5",
  power: "M10 3v6.5M6 5.2a6 6 0 1 0 8 0",
  back: "M12 4.5 6.5 10l5.5 5.5",
  shield: "M10 2.5 16 5v5c0 4-2.7 6.4-6 7.5C6.7 16.4 4 14 4 10V5z",
  download: "M10 3v9.5M6 9l4 4 4-4M3.5 17h13",
} as const;

/** The icons there are. */
export type IconName = keyof typeof PATHS;

/** A decorative icon in the colour of the text around it. */
export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg
      class="icon"
      viewBox="0 0 20 20"
      width="20"
      height="20"
      fill="none"
      stroke="currentColor"
      stroke-width="1.6"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
