/**
 * Time as a dependency. Two clocks, because they answer different questions:
 * a deadline must not move when somebody sets the wall clock, and a timestamp
 * in a response must.
 */

/** Milliseconds of a clock that only moves forward. Its zero means nothing. */
export type MonotonicNow = () => number;

/** Milliseconds since the Unix epoch. May jump when the host's clock is set. */
export type WallNow = () => number;

/** The process's monotonic clock, for deadlines and durations. */
export const monotonicNow: MonotonicNow = () => performance.now();

/** The host's wall clock, for timestamps that leave the process. */
export const wallNow: WallNow = () => Date.now();
