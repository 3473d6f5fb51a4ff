/** The choices of one answer, which are written in parallel. Pure. */
import type { Step } from "./step.ts";

/** A step of a choice, when it was made. */
export interface Written {
  readonly step: Step;
  /** The place of the choice. */
  readonly index: number;
  /** Whether it is the first one of its choice. */
  readonly isFirst: boolean;
}

/** Lets choices write, and keeps what each of them has written so far. */
export class Rounds {
  readonly steps: readonly Step[][];
  readonly #choices: readonly Generator<Step>[];

  constructor(choices: readonly Generator<Step>[]) {
    this.#choices = choices;
    this.steps = choices.map(() => []);
  }

  /** Lets every choice that still runs write one step, again and again. */
  *run(): Generator<readonly Written[]> {
    const running = new Map(this.#choices.entries());
    while (running.size > 0) {
      const round: Written[] = [];
      for (const [index, steps] of running) {
        const { value: step, done } = steps.next();
        if (done || step.finish !== undefined) running.delete(index);
        if (done) continue;
        const all = this.steps[index] ?? [];
        round.push({ step, index, isFirst: all.length === 0 });
        all.push(step);
      }
      yield round;
    }
  }
}
