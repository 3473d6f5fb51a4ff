/**
 * Films of the simulator: nobody looks at what they show, so they are fixed files, one
 * for each length. Each has 720x1280 pixels, whatever size was asked for, and a grey
 * frame every second, as H.264 in MP4. They were written by a script.
 */

/** The lengths of films, in seconds. */
export const FILM_SECONDS = ["4", "8", "12"] as const;

/** A length of a film. */
export type FilmSeconds = typeof FILM_SECONDS[number];

const FILMS: Readonly<Record<FilmSeconds, Uint8Array>> = {
  "4": readFilm("film_4s.mp4"),
  "8": readFilm("film_8s.mp4"),
  "12": readFilm("film_12s.mp4"),
};

/** Returns the MP4 file of this length. */
export const filmOf = (seconds: FilmSeconds): Uint8Array => FILMS[seconds];

function readFilm(name: string): Uint8Array {
  return Deno.readFileSync(new URL(name, import.meta.url));
}
