/**
 * The work one value may cost. Schemas come from callers, and a small one can ask
 * for work without end: references in circles, `allOf` that doubles at every
 * level, counted repeats of counted repeats.
 */
export class WorkBudget {
  #stepsLeft: number;

  /** A step is a schema, a character or a position looked at: about 0.2 us. */
  constructor(steps: number) {
    this.#stepsLeft = steps;
  }

  get isSpent(): boolean {
    return this.#stepsLeft <= 0;
  }

  /** Takes steps off; false when there are none left, and then the work must stop. */
  spend(steps: number): boolean {
    this.#stepsLeft -= steps;
    return this.#stepsLeft > 0;
  }
}
