/** Whose key a request has, and from where it comes. */
import { addressDigits } from "@gateway/shared/keys/networks";
import type { Principal } from "@gateway/shared/keys/record";
import { remember } from "@gateway/shared/process/maps";

/** The principal of a request. */
export interface Caller extends Principal {
  /**
   * The address of its client, as trusted proxies report it. Absent: it is not known,
   * so a key that is limited to networks is refused.
   */
  readonly clientAddress?: string;
}

/** How many addresses are remembered, with 150 bytes each. */
const ADDRESSES_MAX = 10_000;

/** The digits of addresses, of which a few send most requests. */
export class CallerAddresses {
  readonly #digits = new Map<string, string>();

  /** What the admission script compares; empty: the address is not known. */
  digitsOf({ clientAddress: address = "" }: Caller): string {
    const digits = this.#digits.get(address);
    if (digits !== undefined) return digits;
    const value = addressDigits(address) ?? "";
    remember(this.#digits, { key: address, value, sizeMax: ADDRESSES_MAX });
    return value;
  }
}
