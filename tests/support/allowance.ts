/**
 * What a machine that runs other tests at the same time may add to a wait that is
 * promised to be short: some turns of a busy event loop. The same everywhere, so
 * that no test forgives more than another.
 */
export const SCHEDULING_ALLOWANCE_MS = 60;
