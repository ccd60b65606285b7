/** How far back the charts of a page look. */

import { choice } from "./choice.js";
import { prefer, preference } from "./preferences.js";
import { RANGES, samplesQuery } from "./series.js";

/** The choice, shared by all pages. */
export class RangeChoice {
  /** @param {function(): void} changed called when another range is wanted */
  constructor(changed) {
    this.age = preference("range", RANGES[0][0]);
    const choose = (value) => {
      this.age = Number(value);
      prefer("range", this.age);
      changed();
    };
    const options = RANGES.map(([age, , label]) => [age, label]);
    this.element = choice("choose-range", "Charts", options, this.age, choose);
  }

  /** @returns {Object<string, number>} what a request for samples has in its query */
  get query() {
    const [age, increment] = RANGES.find(([each]) => each === this.age) ?? RANGES[0];
    return samplesQuery(age, increment);
  }
}
