import type { StreamLimits } from "../limits.ts";

/**
 * How long this process itself stood still before a tick: 0 while ticks are on
 * time. What arrived meanwhile still waits in its socket, so the time must not
 * count as the other side's silence. A process whose every tick is late sees its
 * deadlines stretched, never removed: one tick's length always counts.
 */
export function stallMs(
  lastTickMs: number,
  nowMs: number,
  limits: StreamLimits,
): number {
  const gapMs = nowMs - lastTickMs;
  return gapMs > limits.tickLateMs ? gapMs - limits.tickMs : 0;
}
