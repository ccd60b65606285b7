/** Time range of the charts of a page. */

import { choice } from "./choice.js";
import { preference, setPreference } from "./preferences.js";
import { RANGES, samplesQuery } from "./series.js";

/** Select element for the time range; the preference is shared by all pages. */
export class RangeChoice {
  /** @param {function(): void} changed called after a change of the range */
  constructor(changed) {
    this.age = preference("range", RANGES[0][0]);
    const choose = (value) => {
      this.age = Number(value);
      setPreference("range", this.age);
      changed();
    };
    const options = RANGES.map(([age, , label]) => [age, label]);
    this.element = choice("choose-range", "Charts", options, this.age, choose);
  }

  /** @returns {Object<string, number>} query parameters of a request for samples */
  get query() {
    const [age, increment] = RANGES.find(([each]) => each === this.age) ?? RANGES[0];
    return samplesQuery(age, increment);
  }
}
